"""Our own surface."""
