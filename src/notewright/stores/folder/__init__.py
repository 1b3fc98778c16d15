"""Notes as files in a folder that people and their editors use at the same time."""
