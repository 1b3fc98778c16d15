"""Parts for tests: a store in memory."""
