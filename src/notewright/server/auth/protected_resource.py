"""What we are to OAuth: a protected resource that says of itself who lets people in (RFC 9728).

Every MCP endpoint is a resource of its own, and so is the server as a whole. The documents are public, for web pages
too, and are made from the address alone: they are the same for a workspace that is there and for one that is not.
"""

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from notewright.config.settings import SURFACES, normalize_surface
from notewright.server.auth.authenticate import MCP_PATH, GuardedRoute, base_url
from notewright.server.auth.scopes import BASIC
from notewright.server.host_check import WELL_KNOWN

_PUBLIC = {"Access-Control-Allow-Origin": "*", "Cache-Control": "max-age=300"}
_PREFLIGHT = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "GET",
    "Access-Control-Allow-Headers": "*",
    "Access-Control-Max-Age": "86400",
}


def resource_metadata(
    base_url: str, resource_path: str, issuer: str | None = None, scopes: Sequence[str] = BASIC
) -> dict[str, Any]:
    """The document of one endpoint, or of the whole server where the path is empty.

    `scopes` are those that do for everyday work: a client that is told nothing else asks for all of them. The model of
    the MCP library has no form for a resource without an issuer.
    """
    return {
        "resource": base_url.rstrip("/") + resource_path,
        **({"authorization_servers": [issuer]} if issuer is not None else {}),
        "scopes_supported": list(scopes),
        "bearer_methods_supported": ["header"],
        "resource_name": "Notewright",
    }


def _endpoint(asked: str, prefix: str, surfaces: Sequence[str]) -> str | None:
    """The path of an endpoint of ours, without what a proxy puts before it; empty for the whole server."""
    path = asked.removeprefix(prefix).rstrip("/") if f"{asked}/".startswith(f"{prefix}/") else asked.rstrip("/")
    found = MCP_PATH.fullmatch(path)
    if found is None:
        return None if path else ""
    surface = found[1] or found[2]
    return path if surface is None or normalize_surface(surface) in surfaces else None


def routes(
    public_url: str | None = None,
    issuer: str | None = None,
    scopes: Sequence[str] = BASIC,
    surfaces: Sequence[str] = SURFACES,
) -> list[GuardedRoute]:
    """Where the documents are served."""

    async def document(request: Request) -> Response:
        if request.method == "OPTIONS":
            return Response(status_code=204, headers=_PREFLIGHT)
        base = base_url(request.scope, public_url)
        path = _endpoint("/" + request.path_params.get("path", ""), urlsplit(base).path, surfaces)
        if path is None:
            return JSONResponse({"error": "There is no such resource"}, 404, _PUBLIC)
        return JSONResponse(resource_metadata(base, path, issuer, scopes), headers=_PUBLIC)

    places = (WELL_KNOWN, WELL_KNOWN + "/{path:path}")
    return [GuardedRoute(place, document, need="open", methods=("GET", "OPTIONS")) for place in places]
