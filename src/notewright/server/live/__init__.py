"""Live documents for Yjs clients: the y-websocket protocol, its tokens, and the document calls of the relay."""
