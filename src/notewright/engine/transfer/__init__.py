"""Whole workspaces out and in: backup, restore, export, import."""
