"""Second Brain's dialect."""
