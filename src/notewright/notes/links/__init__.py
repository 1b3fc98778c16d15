"""Links: how they are written, which note each means, and how a rename rewrites them."""
