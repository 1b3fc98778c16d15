"""Who calls, and what they may: bearer tokens, OAuth, browser sessions."""
