"""The OAuth protected resource metadata (RFC 9728): who issues access tokens for this server.

Every MCP endpoint is a resource of its own, and so is the server as a whole. The documents are public, for web pages
too, and are made from the address alone: they are the same for a workspace that exists and for one that does not.
"""

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from notewright.config.settings import SURFACES, normalize_surface
from notewright.server.auth.authenticate import MCP_PATH, GuardedRoute, base_url
from notewright.server.auth.scopes import BASIC_SCOPES
from notewright.server.host_check import WELL_KNOWN

_PUBLIC = {"Access-Control-Allow-Origin": "*", "Cache-Control": "max-age=300"}
_PREFLIGHT = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "GET",
    "Access-Control-Allow-Headers": "*",
    "Access-Control-Max-Age": "86400",
}


def resource_metadata(
    base_url: str, resource_path: str, issuer: str | None = None, scopes: Sequence[str] = BASIC_SCOPES
) -> dict[str, Any]:
    """The document of one endpoint, or of the whole server where the path is empty.

    `scopes` are those that do for everyday work: a client that knows no better asks for all of them. The model of the
    MCP library has no form for a resource without an issuer.
    """
    return {
        "resource": base_url.rstrip("/") + resource_path,
        **({"authorization_servers": [issuer]} if issuer is not None else {}),
        "scopes_supported": list(scopes),
        "bearer_methods_supported": ["header"],
        "resource_name": "Notewright",
    }


def routes(
    public_url: str | None = None,
    issuer: str | None = None,
    scopes: Sequence[str] = BASIC_SCOPES,
    surfaces: Sequence[str] = SURFACES,
) -> list[GuardedRoute]:
    """The routes of these documents."""

    async def answer(request: Request) -> Response:
        if request.method == "OPTIONS":
            return Response(status_code=204, headers=_PREFLIGHT)
        base = base_url(request.scope, public_url)
        path, prefix = "/" + request.path_params.get("path", ""), urlsplit(base).path
        if f"{path}/".startswith(f"{prefix}/"):  # what a proxy puts before our paths
            path = path.removeprefix(prefix)
        path = path.rstrip("/")
        match = MCP_PATH.fullmatch(path)
        surface = match and (match[1] or match[2])
        if (path and match is None) or (surface and normalize_surface(surface) not in surfaces):
            return JSONResponse({"error": "There is no such resource"}, 404, _PUBLIC)
        return JSONResponse(resource_metadata(base, path, issuer, scopes), headers=_PUBLIC)

    paths = (WELL_KNOWN, WELL_KNOWN + "/{path:path}")
    return [GuardedRoute(path, answer, need="open", methods=("GET", "OPTIONS")) for path in paths]
