"""The one place where the parts are put together."""

import asyncio
import getpass
from collections.abc import Callable, Sequence

from notewright.server import stdio
from notewright.server.library import Opening, OpenLibrary
from notewright.server.mcp import Caller, build
from notewright.server.workers import Workers
from notewright.surfaces import Session, Surface


def serve_stdio(opened: Callable[[], OpenLibrary], surfaces: Sequence[Surface]) -> None:
    """Speak MCP on standard input and output until the input ends. The library opens meanwhile."""
    with stdio.own_wire() as (read_fd, write_fd):
        library = Opening(opened)
        caller = Caller(library, Session(initialized=False), "stdio", user())
        workers = Workers()
        server = build(surfaces, lambda context: caller, workers, push=True)
        asyncio.run(stdio.serve(server, caller, surfaces, read_fd, write_fd))
        workers.close()
        library.close()


def user() -> str:
    """Whose process this is, for the history."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container without a name for its user
        return ""
