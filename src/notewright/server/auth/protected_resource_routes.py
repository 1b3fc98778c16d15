"""Where the documents that say what we are to OAuth are served."""

from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from notewright.config.settings import SURFACES
from notewright.server.auth.authenticate import GuardedRoute, base_url
from notewright.server.auth.protected_resource import WELL_KNOWN, endpoint, resource_metadata
from notewright.server.auth.scopes import BASIC

_PUBLIC = {"Access-Control-Allow-Origin": "*", "Cache-Control": "max-age=300"}
_PREFLIGHT = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "GET",
    "Access-Control-Allow-Headers": "*",
    "Access-Control-Max-Age": "86400",
}


def doors(
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
        path = endpoint("/" + request.path_params.get("path", ""), urlsplit(base).path, surfaces)
        if path is None:
            return JSONResponse({"error": "There is no such resource"}, 404, _PUBLIC)
        return JSONResponse(resource_metadata(base, path, issuer, scopes), headers=_PUBLIC)

    methods = ("GET", "OPTIONS")
    return [
        GuardedRoute(place, document, need="open", methods=methods)
        for place in (WELL_KNOWN, WELL_KNOWN + "/{path:path}")
    ]
