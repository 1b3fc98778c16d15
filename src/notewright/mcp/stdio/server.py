"""MCP on standard input and output, for POSIX: one line is one message.

The SDK's own transport hands every line to a thread three times, leaves malformed input unanswered, dies of a lone
surrogate and drops calls in flight when its input ends. This one answers everything and lets calls finish. The SDK is
loaded only when a client asks for more than `fast_path.py` knows.
"""

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

from notewright.mcp.jsonrpc import Message, flaw_in, is_message, is_plain, parsed, request_id
from notewright.mcp.stdio.fast_path import FastPath
from notewright.mcp.stdio.leader_follower import LineReaders, Work
from notewright.mcp.stdio.writer import LineWriter
from notewright.surfaces.base import INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR

MOST_BYTES = 64 << 20  # of one message
DRAIN_SECONDS = 5.0  # for calls in flight when the input ends
AHEAD = 256  # messages that the SDK has not taken yet, before we let the client wait

ServeBySdk = Callable[[Message, "Inbox", LineWriter, FastPath], Awaitable[None]]


async def serve(
    make_fast_path: Callable[[LineWriter], FastPath],
    serve_by_sdk: ServeBySdk,
    read_fd: int,
    write_fd: int,
    *,
    threads: int = 32,
) -> None:
    """Serve one client on these two until its input ends or we are told to stop."""
    out = LineWriter(write_fd)
    inbox, fast_path = Inbox(out), make_fast_path(out)
    for number in (signal.SIGTERM, signal.SIGINT):  # an end of input: calls in flight finish. Twice is at once
        asyncio.get_running_loop().add_signal_handler(number, inbox.end)
    LineReaders(read_fd, partial(route, fast_path, inbox, out), inbox.end, longest=MOST_BYTES, threads=threads).start()
    if (opening := await inbox.receive()) is not None:
        await serve_by_sdk(opening, inbox, out, fast_path)
    await out.flushed(DRAIN_SECONDS)


@contextlib.contextmanager
def own_wire() -> Iterator[tuple[int, int]]:
    """Keep standard input and output for MCP: what anybody prints goes to standard error, what they read is empty."""
    read_fd, write_fd = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    yield read_fd, write_fd


def route(fast_path: FastPath, inbox: "Inbox", out: LineWriter, line: bytes | None) -> Work | None:
    """What becomes of a line: work for the thread that read it, a message for the SDK, or an answer at once."""
    if out.is_full:
        out.wait_for_room()
    if line is None:
        out.refuse(None, INVALID_REQUEST, f"A message may have {MOST_BYTES >> 20} MiB at most")
        return None
    try:
        message = parsed(line)
    except (ValueError, RecursionError):
        out.refuse(None, PARSE_ERROR, "Parse error")
        return None
    if flaw := None if is_plain(line) else flaw_in(message):
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


class Inbox:
    """What is meant for the SDK, in order, whether it is there yet or not."""

    def __init__(self, out: LineWriter) -> None:
        self._out = out
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Queue[Message | None] = asyncio.Queue()  # None: the end
        self._settled = asyncio.Event()
        self._room = threading.Semaphore(AHEAD)
        self._begun = False  # a request came that the SDK must answer
        self.ended = False

    def put(self, message: Message) -> None:
        """From a thread at the input."""
        request = message.get("id") if "method" in message else None
        self._begun = self._begun or request is not None
        if not self._begun:
            return  # a notification before the first request: the SDK is told of the handshake when there is a request
        self._room.acquire()
        if request is not None and message["method"] != "subscriptions/listen":  # which never ends by itself
            self._out.unanswered.add(request)
        if message.get("method") == "notifications/cancelled":
            self._out.settle((message.get("params") or {}).get("requestId"))
        self._on_loop(self._ready.put_nowait, message)

    def end(self) -> None:
        """No more input, from any thread; said twice, the answers that are still to come are not waited for."""
        if self.ended:
            self._out.unanswered.clear()
        self.ended = True
        self._out.settled = lambda: self._on_loop(self._settled.set)
        self._on_loop(self._settled.set)
        self._on_loop(self._ready.put_nowait, None)

    def _on_loop(self, told: Callable[..., None], *args: Message | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(told, *args)

    async def receive(self) -> Message | None:
        """The next message; None when there is no more and every answer has gone out."""
        message = await self._ready.get()
        if message is None:
            await self.drained()
            self._ready.put_nowait(None)  # for whoever asks again
        self._room.release()
        return message

    async def drained(self) -> None:
        """Until every request has its answer, but not for ever."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                while self._out.unanswered:
                    self._settled.clear()
                    await self._settled.wait()
