"""The web page: what agents did and taking it back, the notes to read, and how to connect.

Made on the server, whole without scripts. Nothing on it comes from elsewhere, and nothing in a note can run.
"""

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from notewright.server.gate import Door, base_path, visitor_of
from notewright.server.page import activity, addresses, browse, changes, connect, entrance, files, health, reading
from notewright.server.page.assets import asset
from notewright.server.page.frame import HEADERS, PAGE, Desk, door
from notewright.server.page.live import Feed, Look


def routes(desk: Desk, feed: Feed) -> list[Door]:
    """Every address of the page, with who may come there."""
    in_workspace = {
        "/": browse.folder,
        "/search": browse.search,
        "/health": health.health(health.Checks()),
        "/notes/{path:path}": reading.note,
        "/files/{path:path}": files.file,
        "/changes/{change}": changes.change,
        "/changes/{change}/undo": changes.undo,
        "/undo": changes.undo_since,
    }
    return [
        Door("/static/{name}", asset, need="open"),
        door(desk, "/", activity.activity),
        Door("/events", _events(desk, feed), need="read"),
        door(desk, "/connect", connect.connect),
        door(desk, "/tokens", connect.add_token, need="owner", post=True),
        door(desk, "/tokens/revoke", connect.revoke_token, need="owner", post=True),
        door(desk, "/sign-in", entrance.sign_in, need="open"),
        door(desk, "/sign-in", entrance.sign_in_now, need="open", post=True),
        door(desk, "/sign-out", entrance.sign_out, need="open", post=True),
        door(desk, "/w/", browse.workspaces),
        *(door(desk, f"/w/{{workspace}}{path}", show) for path, show in in_workspace.items()),
        door(desk, "/w/{workspace}/changes/{change}/undo", changes.undo_now, need="write", post=True),
        door(desk, "/w/{workspace}/undo", changes.undo_since_now, need="write", post=True),
    ]


def _events(desk: Desk, feed: Feed) -> Callable[[Request], Awaitable[Response]]:
    async def events(request: Request) -> Response:
        addresses.BELOW.set(base_path(desk.public_url))
        who = visitor_of(request).principal
        if not who.uses(PAGE):
            return Response("This token is for tools, not for the page", 403, HEADERS, "text/plain")
        told = request.headers.get("last-event-id") or request.query_params.get("after", "")
        try:
            after = float(told) if told else None
        except ValueError:
            after = None
        chosen = activity.Filter.of(request.query_params)
        return await feed.stream(Look(who.library(desk.library), chosen, after))

    return events


__all__ = ["Desk", "Feed", "routes"]
