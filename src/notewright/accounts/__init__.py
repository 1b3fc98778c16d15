"""Who may: tokens, the owner's changes to workspaces, sessions, counts for rate limits."""
