"""Where notes live: bytes of files with compare-and-swap."""
