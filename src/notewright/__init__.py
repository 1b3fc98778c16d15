"""Notewright: AI agents work in your Markdown notes, and you can take back anything they did."""

__version__ = "0.1.0"
