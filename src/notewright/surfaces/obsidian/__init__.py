"""The obsidian dialect."""
