"""MCP on standard input and output, for POSIX: one line is one message.

The SDK's own transport hands every line to a thread three times, leaves malformed input unanswered, crashes on a lone
surrogate and drops calls in flight when its input ends. This one answers everything and lets calls finish. The SDK is
loaded only when a client asks for more than `fast_path.py` can answer.
"""

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

from notewright.mcp.jsonrpc import Message, find_flaw, is_message, is_plain, parse_json, request_id
from notewright.mcp.stdio.fast_path import FastPath
from notewright.mcp.stdio.leader_follower import LineReaders, Work
from notewright.mcp.stdio.writer import LineWriter
from notewright.surfaces.base import INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR

MAX_MESSAGE_BYTES = 64 << 20  # of one message
DRAIN_SECONDS = 5.0  # for calls in flight when the input ends
MAX_QUEUED = 256  # messages that the SDK has not taken yet; then nothing more is read from the client

ServeBySdk = Callable[[Message, "SdkInbox", LineWriter, FastPath], Awaitable[None]]


async def serve(
    make_fast_path: Callable[[LineWriter], FastPath],
    serve_by_sdk: ServeBySdk,
    read_fd: int,
    write_fd: int,
    *,
    threads: int = 32,
) -> None:
    """Serve one client on these two until its input ends or a signal comes."""
    out = LineWriter(write_fd)
    inbox, fast_path = SdkInbox(out), make_fast_path(out)
    for number in (signal.SIGTERM, signal.SIGINT):  # an end of input: calls in flight finish. Twice is at once
        asyncio.get_running_loop().add_signal_handler(number, inbox.end)
    take = partial(handle_line, fast_path, inbox, out)
    LineReaders(read_fd, take, inbox.end, max_bytes=MAX_MESSAGE_BYTES, threads=threads).start()
    if (opening := await inbox.receive()) is not None:
        await serve_by_sdk(opening, inbox, out, fast_path)
    await out.flush(DRAIN_SECONDS)


@contextlib.contextmanager
def take_over_stdio() -> Iterator[tuple[int, int]]:
    """Keep standard input and output for MCP: other code that prints writes to standard error, and reads nothing."""
    read_fd, write_fd = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    yield read_fd, write_fd


def handle_line(fast_path: FastPath, inbox: "SdkInbox", out: LineWriter, line: bytes | None) -> Work | None:
    """Turn a line into work for the thread that read it, a message for the SDK, or an answer at once."""
    if out.is_full:
        out.wait_for_room()
    if line is None:
        out.refuse(None, INVALID_REQUEST, f"A message may have {MAX_MESSAGE_BYTES >> 20} MiB at most")
        return None
    try:
        message = parse_json(line)
    except (ValueError, RecursionError):
        out.refuse(None, PARSE_ERROR, "Parse error")
        return None
    if flaw := None if is_plain(line) else find_flaw(message):
        if not is_message(message) or "id" in message:
            out.refuse(request_id(message), INVALID_PARAMS, flaw)
        return None
    if not is_message(message):
        out.refuse(request_id(message), INVALID_REQUEST, "Invalid Request")
        return None
    work = fast_path.take(message) if not inbox.ended else True
    if work is False:
        inbox.put(message)
    return None if isinstance(work, bool) else work


class SdkInbox:
    """The queue of messages for the SDK, which may not be loaded yet."""

    def __init__(self, out: LineWriter) -> None:
        self._out = out
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Queue[Message | None] = asyncio.Queue()  # None: the end
        self._answered = asyncio.Event()
        self._room = threading.Semaphore(MAX_QUEUED)
        self._has_request = False  # one came that the SDK must answer
        self.ended = False

    def put(self, message: Message) -> None:
        """Called by the thread that reads the input."""
        request = message.get("id") if "method" in message else None
        self._has_request = self._has_request or request is not None
        if not self._has_request:
            return  # a notification before the first request: the SDK is told of the handshake when there is a request
        self._room.acquire()
        if request is not None and message["method"] != "subscriptions/listen":  # which never ends by itself
            self._out.unanswered.add(request)
        match message:
            case {"method": "notifications/cancelled", "params": {"requestId": int() | str() as cancelled}}:
                self._out.mark_answered(cancelled)
        self._on_loop(self._ready.put_nowait, message)

    def end(self) -> None:
        """No more input; called by any thread. The second call gives up waiting for the answers still to come."""
        if self.ended:
            self._out.unanswered.clear()
        self.ended = True
        self._out.on_answered = lambda: self._on_loop(self._answered.set)
        self._on_loop(self._answered.set)
        self._on_loop(self._ready.put_nowait, None)

    def _on_loop(self, function: Callable[..., None], *args: Message | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(function, *args)

    async def receive(self) -> Message | None:
        """The next message; None when there is no more and every answer has gone out."""
        message = await self._ready.get()
        if message is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DRAIN_SECONDS):
                    while self._out.unanswered:
                        self._answered.clear()
                        await self._answered.wait()
            self._ready.put_nowait(None)  # for the next call
        self._room.release()
        return message
