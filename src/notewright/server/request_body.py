"""A POST as it is taken in: read once, understood once, and given on whole to whoever answers it.

A small one is read at once. One that turns out to be large waits outside until it is its caller's turn: memory is for
everybody, and a caller may have many connections.
"""

import asyncio
import contextlib
import threading
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope

from notewright.errors import Invalid
from notewright.mcp import wire_format
from notewright.mcp.jsonrpc import parsed

LARGE = 1 << 18  # bytes
Turn = contextlib.AbstractAsyncContextManager[None]


@dataclass(slots=True)
class RequestBody:
    """One POST and what its body says."""

    headers: Headers
    body: bytes
    message: Any  # None: no JSON
    in_turn: bool = False  # its turn has come already

    @property
    def modern(self) -> bool:
        version = self.headers.get("mcp-protocol-version")
        return version is not None and version not in wire_format.VERSIONS

    @property
    def method(self) -> str | None:
        return self.message.get("method") if isinstance(self.message, dict) else None


async def read_body(scope: Scope, receive: Receive, turn: Turn, place: contextlib.AsyncExitStack) -> RequestBody:
    """The whole request. Its route bounds its size; `place` holds the turn of a large one.

    Limited if it may not even wait for its turn.
    """
    parts: list[bytes] = []
    size, more, in_turn = 0, True, False
    while more:
        message = await receive()
        more = message["type"] == "http.request" and message.get("more_body", False)
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > LARGE and not in_turn:
            await place.enter_async_context(turn)
            in_turn = True
    body = b"".join(parts)
    try:
        return RequestBody(Headers(scope=scope), body, parsed(body), in_turn)
    except (ValueError, RecursionError):
        return RequestBody(Headers(scope=scope), body, None, in_turn)


def json_object(body: bytes) -> dict[str, Any]:
    """What the body says, where that has to be an object."""
    try:
        read = parsed(body)
    except (ValueError, RecursionError):
        raise Invalid("the body is not JSON", what="body") from None
    if not isinstance(read, dict):
        raise Invalid("the body must be a JSON object", what="body")
    return read


async def nothing_more() -> Message:
    await asyncio.Event().wait()
    return {"type": "http.disconnect"}


def again(body: bytes, receive: Receive) -> Receive:
    """The same request for the next reader."""
    told = False

    async def replay() -> Message:
        nonlocal told
        if told:
            return await receive()
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


LOOK_SECONDS = 0.02  # after which a call is long enough to ask whether anybody still waits for it


class DisconnectWatch:
    """Sets `gone` when the client has gone, until its block ends. Most calls end before that is worth a look."""

    def __init__(self, receive: Receive, gone: threading.Event) -> None:
        self._receive, self._gone = receive, gone
        self._watching: asyncio.Task[None] | None = None

    def __enter__(self) -> None:
        self._soon = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)

    def __exit__(self, *_: object) -> None:
        self._soon.cancel()
        if self._watching is not None:
            self._watching.cancel()

    def _look(self) -> None:
        self._watching = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._gone.set()
