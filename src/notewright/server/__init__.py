"""The wires: MCP on stdio and over HTTP.

stdio: `crew` reads lines in threads, `lane` does what is plain, `longway` takes the rest to the SDK, `out` writes.
HTTP: `edge` checks who calls, `http` finds surface, workspace and session (`sessions`), the SDK speaks the protocol.
Both: `mcp` makes an SDK server of surfaces, `shapes` are the forms of the wire, `workers` the threads behind it.
"""
