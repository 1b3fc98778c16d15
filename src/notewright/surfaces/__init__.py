"""Tools in words: our own surface and five published dialects. A surface translates and decides nothing."""
