"""The one place where the parts are put together."""

import asyncio
import getpass
import importlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from notewright.server import stdio
from notewright.server.caller import Caller
from notewright.server.lane import Lane
from notewright.server.library import Opening, OpenLibrary
from notewright.server.out import Out
from notewright.server.workers import Workers
from notewright.surfaces import Session, Surface

WebApp = Callable[[Any, Any, Any], Awaitable[None]]  # ASGI; the web stack is loaded when it is served, not before


def serve_stdio(opened: Callable[[], OpenLibrary], surfaces: Sequence[Surface]) -> None:
    """Speak MCP on standard input and output until the input ends. The library opens meanwhile."""
    library = Opening(opened)
    caller = Caller(library, Session(initialized=False), "stdio", user())

    async def long_way(inbox: stdio.Inbox, out: Out, lane: Lane) -> None:
        """The SDK takes most of a second to load, so it comes when somebody asks for it."""
        mcp = await asyncio.to_thread(importlib.import_module, "notewright.server.mcp")
        way = await asyncio.to_thread(importlib.import_module, "notewright.server.longway")
        server = mcp.build(surfaces, lambda context: caller, Workers(), push=True)
        await way.serve(server, inbox, out, lane)

    def lane_to(out: Out) -> Lane:
        return Lane(caller, surfaces, out, library.begin)

    with stdio.own_wire() as (read_fd, write_fd):
        asyncio.run(stdio.serve(lane_to, long_way, read_fd, write_fd))
        library.close()


def http_app(
    opened: Callable[[], OpenLibrary],
    surfaces: Sequence[Surface],
    *,
    hosts: Sequence[str] = (),
    origins: Sequence[str] = (),
) -> WebApp:
    """Every surface over HTTP, as an ASGI application. The library opens meanwhile and is closed with it."""
    from notewright.server import http
    from notewright.server.sessions import Sessions

    library = Opening(opened)
    return http.app(library, surfaces, library, sessions=Sessions(), user=user(), hosts=hosts, origins=origins)


def serve_http(app: WebApp, host: str, port: int) -> None:
    """Until a signal comes; then requests have a few seconds to end."""
    import uvicorn

    uvicorn.run(
        app,
        host=host,
        port=port,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=5,
    )


def user() -> str:
    """Whose process this is, for the history."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container without a name for its user
        return ""
