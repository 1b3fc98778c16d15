"""What was done: change sets under way and done, and the bytes they replaced. Kept, migrated, never rebuilt."""
