"""The index in SQLite with FTS5."""
