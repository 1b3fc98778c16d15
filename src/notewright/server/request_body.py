"""The body of a POST: read once, parsed once, and replayed for the handler that answers it.

A small body is read at once. One that turns out to be large waits for its caller's slot before the rest is read:
memory is shared, and a caller may have many connections.
"""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope

from notewright.errors import Invalid
from notewright.mcp import wire_format
from notewright.mcp.jsonrpc import parse_json

LARGE_BYTES = 1 << 18
WATCH_AFTER_SECONDS = 0.02  # after which a call is long enough to ask whether its client is still there
CallSlot = contextlib.AbstractAsyncContextManager[None]


@dataclass(slots=True)
class RequestBody:
    """One POST and what its body says."""

    headers: Headers
    body: bytes
    message: Any  # None: no JSON
    has_slot: bool = False  # its call has its slot already

    @property
    def modern(self) -> bool:
        version = self.headers.get("mcp-protocol-version")
        return version is not None and version not in wire_format.VERSIONS

    @property
    def method(self) -> str | None:
        return self.message.get("method") if isinstance(self.message, dict) else None


async def read_body(scope: Scope, receive: Receive, slot: CallSlot, stack: contextlib.AsyncExitStack) -> RequestBody:
    """The whole request. Its route bounds its size; a large one enters `slot` on the `stack`.

    Limited if it may not even wait for its slot.
    """
    parts: list[bytes] = []
    size, more, has_slot = 0, True, False
    while more:
        message = await receive()
        more = message["type"] == "http.request" and message.get("more_body", False)
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > LARGE_BYTES and not has_slot:
            await stack.enter_async_context(slot)
            has_slot = True
    body = b"".join(parts)
    try:
        return RequestBody(Headers(scope=scope), body, parse_json(body), has_slot)
    except (ValueError, RecursionError):
        return RequestBody(Headers(scope=scope), body, None, has_slot)


def json_object(body: bytes) -> dict[str, Any]:
    """The body as JSON; Invalid unless it is an object."""
    try:
        document = parse_json(body)
    except (ValueError, RecursionError):
        raise Invalid("the body is not JSON", what="body") from None
    if not isinstance(document, dict):
        raise Invalid("the body must be a JSON object", what="body")
    return document


async def receive_nothing() -> Message:
    await asyncio.Event().wait()
    return {"type": "http.disconnect"}


def replay_body(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives the next reader the same body."""
    replayed = False

    async def replay() -> Message:
        nonlocal replayed
        if replayed:
            return await receive()
        replayed = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


@contextlib.contextmanager
def watch_disconnect(receive: Receive, gone: threading.Event) -> Iterator[None]:
    """Set `gone` when the client disconnects while the block runs. Most calls end before the watch begins."""
    tasks: list[asyncio.Task[None]] = []

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        gone.set()

    def begin() -> None:
        tasks.append(asyncio.create_task(watch()))

    timer = asyncio.get_running_loop().call_later(WATCH_AFTER_SECONDS, begin)
    try:
        yield
    finally:
        timer.cancel()
        for task in tasks:
            task.cancel()
