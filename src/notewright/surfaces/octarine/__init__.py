"""Octarine's dialect."""
