"""What can be found fast: a cache of the notes that can be deleted at any moment and comes back the same."""
