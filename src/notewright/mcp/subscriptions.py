"""Telling clients that notes changed: `resources/subscribe` of the 2025 era, `subscriptions/listen` of the 2026 one.

The engine tells of changed paths in a thread of its own; here they become the URIs a client knows, on the event loop.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
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
Heard = Callable[[Sequence[str]], None]  # those of them that changed, as the client wrote them


def follow(library: Library, kinds: Sequence[NoteResources], wanted: Wanted, heard: Heard) -> Callable[[], None]:
    """Be told, on this event loop, of every change the library's client may see; call what is returned to stop."""
    loop = asyncio.get_running_loop()

    def tell(uris: Sequence[str] | None) -> None:
        heard([wanted[uri] for uri in (list(wanted) if uris is None else uris) if uri in wanted])

    def listener(workspace: Workspace) -> Callable[[frozenset[str] | None], None]:
        def changed(paths: frozenset[str] | None) -> None:  # None: anything may have changed
            uris = None if paths is None else _uris(library, kinds, workspace, paths)
            if uris is None or uris:
                with suppress(RuntimeError):  # the server has ended; the engine is about to
                    loop.call_soon_threadsafe(tell, uris)

        return changed

    ends = [workspace.follower.subscribe(listener(workspace)) for workspace in library.workspaces()]

    def stop() -> None:
        for end in ends:
            end()

    return stop


def _uris(library: Library, kinds: Sequence[NoteResources], workspace: Workspace, paths: frozenset[str]) -> list[str]:
    seen = [path for path in sorted(paths) if workspace.access.sees(path)]
    return [unquote(kind.uri(library, workspace, path)) for kind in kinds for path in seen]


class Subscriptions:
    """The subscriptions of one 2025-era client."""

    def __init__(
        self, library: Library, kinds: Sequence[NoteResources], send: Callable[[str], Awaitable[None]]
    ) -> None:
        self._send = send
        self._wanted: Wanted = {}
        self._sending: set[asyncio.Future[None]] = set()
        self._end = follow(library, kinds, self._wanted, self._heard)

    def add(self, uri: str) -> None:
        self._wanted[unquote(uri)] = uri

    def drop(self, uri: str) -> None:
        self._wanted.pop(unquote(uri), None)

    def _heard(self, uris: Sequence[str]) -> None:
        for uri in uris:
            task = asyncio.ensure_future(self._send(uri))
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
        """`stays` is asked now and then whether the client may still listen."""
        if len(self._open) >= self._most:
            raise MCPError(INTERNAL_ERROR, "Too many streams of changes are open")
        wanted = {unquote(uri): uri for uri in params.notifications.resource_subscriptions or ()}
        stream = ListenHandler(_Bus(library, kinds, wanted))
        self._open.add(stream)
        leaving = asyncio.create_task(_until_not(stays, stream.close)) if stays is not None else None
        try:
            return await stream(context, params)
        finally:
            self._open.discard(stream)
            if leaving is not None:
                leaving.cancel()

    def close(self) -> None:
        """On the event loop: every client is told that its stream has ended."""
        for stream in list(self._open):
            stream.close()


async def _until_not(stays: Callable[[], Awaitable[bool]], then: Callable[[], None]) -> None:
    while await stays():
        await asyncio.sleep(RECHECK_SECONDS)
    then()


class _Bus:
    """What the SDK's handler listens to: this client's library, in this client's spelling."""

    def __init__(self, library: Library, kinds: Sequence[NoteResources], wanted: Wanted) -> None:
        self._library, self._kinds, self._wanted = library, kinds, wanted

    async def publish(self, event: ServerEvent) -> None:
        raise TypeError("changes come from the library")

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        def heard(uris: Sequence[str]) -> None:
            for uri in uris:
                listener(ResourceUpdated(uri))
            listener(ResourcesListChanged())

        return follow(self._library, self._kinds, self._wanted, heard)
