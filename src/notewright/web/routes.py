"""The web page: what agents did and taking it back, the notes to read, and how to connect.

Made on the server, whole without scripts. Nothing on it comes from elsewhere, and nothing in a note can run.
"""

from collections.abc import Awaitable, Callable
from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from notewright.server.auth.authenticate import GuardedRoute, base_path, get_visitor
from notewright.server.site_context import SiteContext
from notewright.web import addresses
from notewright.web.addresses import asset
from notewright.web.event_stream import ActivityFeed, OpenPage
from notewright.web.frame import HEADERS, PAGE, Show, page_route
from notewright.web.pages import activity, browse, changes, connect, health, note, sign_in


def routes(site: SiteContext, feed: ActivityFeed) -> list[GuardedRoute]:
    """The routes of the page, with who may use them."""
    in_workspace: dict[str, Show] = {
        "/": browse.folder,
        "/search": browse.search,
        "/health": partial(health.health, health.Checks()),
        "/notes/{path:path}": note.note,
        "/files/{path:path}": note.file,
        "/changes/{change}": changes.change,
        "/changes/{change}/undo": changes.undo,
        "/undo": changes.undo_since,
    }
    return [
        GuardedRoute("/static/{name}", asset, need="open"),
        page_route(site, "/", activity.activity),
        GuardedRoute("/events", _events(site, feed), need="read"),
        page_route(site, "/connect", connect.connect),
        page_route(site, "/tokens", connect.add_token, need="owner", post=True),
        page_route(site, "/tokens/revoke", connect.revoke_token, need="owner", post=True),
        page_route(site, "/sign-in", sign_in.sign_in, need="open"),
        page_route(site, "/sign-in", sign_in.submit_sign_in, need="open", post=True),
        page_route(site, "/sign-out", sign_in.sign_out, need="open", post=True),
        page_route(site, "/w/", browse.workspaces),
        *(page_route(site, f"/w/{{workspace}}{path}", show) for path, show in in_workspace.items()),
        page_route(site, "/w/{workspace}/edit/{path:path}", note.edit, need="write"),
        page_route(site, "/w/{workspace}/changes/{change}/undo", changes.undo_now, need="write", post=True),
        page_route(site, "/w/{workspace}/undo", changes.undo_since_now, need="write", post=True),
    ]


def _events(site: SiteContext, feed: ActivityFeed) -> Callable[[Request], Awaitable[ASGIApp]]:
    async def events(request: Request) -> ASGIApp:
        addresses.BASE_PATH.set(base_path(site.auth.public_url))
        who = get_visitor(request).principal
        if not who.uses(PAGE):
            return Response("This token is for tools, not for the page", 403, HEADERS, "text/plain")
        last_seen = request.headers.get("last-event-id") or request.query_params.get("after", "")
        try:
            after = float(last_seen) if last_seen else None
        except ValueError:
            after = None
        filter = activity.Filter.from_query(request.query_params)
        return feed.respond_with_stream(OpenPage(who.narrow_library(site.library), filter, after))

    return events
