"""A path with a slash too many or too few leads to the route that was meant.

Starlette's own redirect names the host and path it was asked by, which behind a proxy are not those of the client.
"""

from collections.abc import Sequence
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Receive, Scope, Send


def other_spelling(routes: Sequence[BaseRoute], below: str) -> ASGIApp:
    """What answers a request for which there is no route. `below` is the path that clients have to put before ours."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        meant = path.rstrip("/") if path.endswith("/") else f"{path}/"
        there = scope["type"] == "http" and not meant.startswith("//") and len(meant) > 1
        if not there or all(route.matches({**scope, "path": meant})[0] == Match.NONE for route in routes):
            raise HTTPException(404)
        query = scope.get("query_string", b"").decode("latin-1")
        await RedirectResponse(below + quote(meant) + (f"?{query}" if query else ""))(scope, receive, send)

    return answer
