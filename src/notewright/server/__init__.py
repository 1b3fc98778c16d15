"""Serving over HTTP: MCP endpoints, authentication, limits, operations."""
