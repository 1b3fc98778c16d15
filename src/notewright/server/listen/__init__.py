"""Listening: uvicorn with bounds, TLS, trusted proxies, several worker processes, reload."""
