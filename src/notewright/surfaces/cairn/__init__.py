"""Cairn's dialect."""
