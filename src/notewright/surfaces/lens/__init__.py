"""Lens's dialect."""
