"""What we are to OAuth: a protected resource that says of itself who lets people in (RFC 9728).

Every MCP endpoint is a resource of its own, and so is the server as a whole. The documents are public, for web pages
too, and are made from the address alone: they are the same for a workspace that is there and for one that is not.
"""

import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from notewright.config.settings import surface_name
from notewright.server.auth.scopes import BASIC

WELL_KNOWN = "/.well-known/oauth-protected-resource"
_ENDPOINT = re.compile(r"/mcp|/mcp/([\w-]+)|/w/[\w-]{1,64}/mcp/([\w-]+)|/[\w-]{1,64}/mcp", re.ASCII)


def resource_metadata(
    base_url: str, resource_path: str, issuer: str | None = None, scopes: Sequence[str] = BASIC
) -> dict[str, Any]:
    """The document of one endpoint, or of the whole server where the path is empty.

    `scopes` are those that do for everyday work: a client that is told nothing else asks for all of them.
    """
    return {
        "resource": base_url.rstrip("/") + resource_path,
        **({"authorization_servers": [issuer]} if issuer is not None else {}),
        "scopes_supported": list(scopes),
        "bearer_methods_supported": ["header"],
        "resource_name": "Notewright",
    }


def metadata_url(base_url: str, path: str) -> str:
    """Where the document for this path is; what is no MCP endpoint belongs to the server as a whole."""
    base, path = urlsplit(base_url.rstrip("/")), path.rstrip("/")
    return f"{base.scheme}://{base.netloc}{WELL_KNOWN}{base.path}{path if _ENDPOINT.fullmatch(path) else ''}"


def endpoint(asked: str, prefix: str, surfaces: Sequence[str]) -> str | None:
    """The path of an endpoint of ours, without what a proxy puts before it; empty for the whole server."""
    path = asked.removeprefix(prefix).rstrip("/") if f"{asked}/".startswith(f"{prefix}/") else asked.rstrip("/")
    found = _ENDPOINT.fullmatch(path)
    if found is None:
        return None if path else ""
    surface = found[1] or found[2]
    return path if surface is None or surface_name(surface) in surfaces else None
