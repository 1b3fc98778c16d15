"""Notifying clients of changed notes: `resources/subscribe` of the 2025 era, `subscriptions/listen` of the 2026 one.

The engine notifies of changed paths in a thread of its own; here they become a client's URIs, on the event loop.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import unquote

import mcp_types as wire
from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import ListenHandler, ResourcesListChanged, ResourceUpdated, ServerEvent
from mcp.shared.exceptions import MCPError

from notewright.engine.library import Library
from notewright.engine.workspace import Workspace
from notewright.surfaces.base import INTERNAL_ERROR
from notewright.surfaces.resources import NoteResources

MAX_STREAMS = 1000
RECHECK_SECONDS = 1.0  # between two looks whether a client may still listen
Wanted = dict[str, str]  # URIs that a client asked about: decoded, and as it wrote them


class _ChangeBus:
    """The event source of the SDK's handler: changes of a client's library, in the client's spelling."""

    def __init__(self, library: Library, kinds: Sequence[NoteResources], wanted: Wanted) -> None:
        self._library, self._kinds, self._wanted = library, kinds, wanted

    async def publish(self, event: ServerEvent) -> None:
        raise TypeError("changes come from the library")

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        """Call `listener`, on this event loop, for every change the client may see; returns how to stop it."""
        loop, wanted = asyncio.get_running_loop(), self._wanted

        def notify(uris: Sequence[str] | None) -> None:
            for uri in list(wanted) if uris is None else uris:
                if uri in wanted:
                    listener(ResourceUpdated(wanted[uri]))
            listener(ResourcesListChanged())

        def listen(ws: Workspace, paths: frozenset[str] | None) -> None:
            uris = None  # anything may have changed
            if paths is not None:
                seen = [path for path in sorted(paths) if ws.access.sees(path)]
                uris = [unquote(kind.make_uri(self._library, ws, path)) for kind in self._kinds for path in seen]
            if uris is None or uris:
                with suppress(RuntimeError):  # the server has ended; the engine is about to
                    loop.call_soon_threadsafe(notify, uris)

        ends = [ws.follower.subscribe(partial(listen, ws)) for ws in self._library.workspaces()]

        def stop() -> None:
            for end in ends:
                end()

        return stop


class Subscriptions:
    """The subscriptions of one 2025-era client."""

    def __init__(
        self, library: Library, kinds: Sequence[NoteResources], send: Callable[[str], Awaitable[None]]
    ) -> None:
        self._send = send
        self._wanted: Wanted = {}
        self._sending: set[asyncio.Future[None]] = set()
        _ChangeBus(library, kinds, self._wanted).subscribe(self._send_update)

    def add(self, uri: str) -> None:
        self._wanted[unquote(uri)] = uri

    def drop(self, uri: str) -> None:
        self._wanted.pop(unquote(uri), None)

    def _send_update(self, event: ServerEvent) -> None:
        if isinstance(event, ResourceUpdated):
            task = asyncio.ensure_future(self._send(event.uri))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)


class ChangeStreams:
    """The 2026-era streams of changes that are open: each until its client goes, or all until we do."""

    def __init__(self, most: int = MAX_STREAMS) -> None:
        self._most = most
        self._open: set[ListenHandler] = set()

    async def listen(
        self,
        context: ServerRequestContext[Any, Any],
        params: wire.SubscriptionsListenRequestParams,
        library: Library,
        kinds: Sequence[NoteResources],
        stays: Callable[[], Awaitable[bool]] | None = None,
    ) -> wire.SubscriptionsListenResult:
        """`stays` is called now and then: whether the client may still listen."""
        if len(self._open) >= self._most:
            raise MCPError(INTERNAL_ERROR, "Too many streams of changes are open")
        wanted = {unquote(uri): uri for uri in params.notifications.resource_subscriptions or ()}
        stream = ListenHandler(_ChangeBus(library, kinds, wanted))
        self._open.add(stream)
        recheck = asyncio.create_task(_close_when_refused(stays, stream.close)) if stays is not None else None
        try:
            return await stream(context, params)
        finally:
            self._open.discard(stream)
            if recheck is not None:
                recheck.cancel()

    def close(self) -> None:
        """On the event loop: every client is told that its stream has ended."""
        for stream in list(self._open):
            stream.close()


async def _close_when_refused(stays: Callable[[], Awaitable[bool]], close: Callable[[], None]) -> None:
    while await stays():
        await asyncio.sleep(RECHECK_SECONDS)
    close()
