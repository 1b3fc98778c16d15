"""Change sets: recorded, applied all or not at all, kept in the history, undone."""
