"""MCP on standard input and output, for POSIX: one line is one message.

The SDK's own transport hands every line to a thread three times, leaves malformed input unanswered, dies of a lone
surrogate and drops calls in flight when its input ends. This one answers everything and lets calls finish. Plain tool
calls of the 2025 era, which is nearly all there is, do not pass through the SDK (`Lane`); everything else does.
"""

import asyncio
import collections
import contextlib
import json
import logging
import os
import select
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any

import anyio
import mcp_types as wire
import pydantic_core
from mcp.server import Server
from mcp.server.runner import serve_dual_era_loop, serve_loop
from mcp.shared.message import SessionMessage

from notewright.server.crew import Crew, Work
from notewright.server.lane import Lane
from notewright.server.mcp import Caller
from notewright.surfaces import Surface

log = logging.getLogger(__name__)

MOST_BYTES = 64 << 20  # of one message
DRAIN_SECONDS = 5.0  # for calls in flight when the input ends
CHUNK = 4096  # a pipe that can be written to takes so much without blocking
AHEAD = 256  # messages for the SDK that it has not taken yet, before we let the client wait
LATE = 16 << 20  # bytes the client has not read yet, before we read no more from it


async def serve(server: Server[Any], caller: Caller, surfaces: Sequence[Surface], read_fd: int, write_fd: int) -> None:
    """Serve one client on these two until its input ends or we are told to stop."""
    out = Out(write_fd)
    inbox = Inbox(out)
    door = Door(Lane(caller, surfaces, out.unanswered, out.answer), inbox, out)
    with _ended_by_signals(inbox):
        Crew(read_fd, door.take, inbox.end, longest=MOST_BYTES).start()
        async with server.lifespan(server) as state:
            opening = await inbox.opening()
            if opening is None:
                return
            modern = opening.method != "initialize" and _has_envelope(opening)
            loop = serve_dual_era_loop if modern else serve_loop  # the latter has one stream less to pass
            options = server.create_initialization_options()
            await loop(server, inbox, out, lifespan_state=state, init_options=options)


def _has_envelope(request: wire.JSONRPCRequest) -> bool:
    meta = (request.params or {}).get("_meta")
    return isinstance(meta, dict) and wire.PROTOCOL_VERSION_META_KEY in meta


@contextlib.contextmanager
def own_wire() -> Iterator[tuple[int, int]]:
    """Keep standard input and output for MCP: what anybody prints goes to standard error, what they read is empty."""
    read_fd, write_fd = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    yield read_fd, write_fd


@contextlib.contextmanager
def _ended_by_signals(inbox: "Inbox") -> Iterator[None]:
    """SIGTERM and SIGINT are an end of input: calls in flight finish, everything is closed."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, inbox.end)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


class Door:
    """What becomes of each line: a plain call is work for the thread that read it, the rest goes to the SDK."""

    def __init__(self, lane: Lane, inbox: "Inbox", out: "Out") -> None:
        self._lane = lane
        self._inbox = inbox
        self._out = out

    def take(self, line: bytes | None) -> Work | None:
        if line is None:
            self._refuse(wire.INVALID_REQUEST, f"A message may have {MOST_BYTES >> 20} MiB at most")
            return None
        try:
            given = _parsed(line)
        except (ValueError, RecursionError):
            self._refuse(wire.PARSE_ERROR, "Parse error")
            return None
        self._out.room()
        work = self._lane.take(given) if isinstance(given, dict) else None
        if work is None:
            self._pass_on(given)
        return work

    def _pass_on(self, given: Any) -> None:
        try:
            message = wire.jsonrpc_message_adapter.validate_python(given, by_name=False)
        except ValueError:
            message = None
        if message is None or (isinstance(message, wire.JSONRPCNotification) and "id" in given):
            request = given.get("id") if isinstance(given, dict) else None
            usable = isinstance(request, str | int) and not isinstance(request, bool)
            self._refuse(wire.INVALID_REQUEST, "Invalid Request", request if usable else None)
        else:
            self._inbox.put(message)

    def _refuse(self, code: int, message: str, request: wire.RequestId | None = None) -> None:
        self._out.write(_fault(code, message, request))


def _parsed(line: bytes) -> Any:
    try:
        return pydantic_core.from_json(line)
    except ValueError:
        return json.loads(line)  # takes lone surrogates, which the stricter one does not


class Out:
    """The SDK's write stream, and everybody's: lines from any thread, written at once while the client keeps up."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)
        self._late: collections.deque[memoryview] = collections.deque()
        self._late_bytes = 0
        self._room = threading.Event()
        self._room.set()
        self._broken = False
        self.unanswered: set[Any] = set()  # ids of requests
        self.settled: Callable[[], None] | None = None  # told of every answer, once somebody waits for the last

    async def send(self, item: SessionMessage, /) -> None:
        message = item.message
        try:
            line = message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        except ValueError:  # text that is not Unicode
            line = _fault(wire.INTERNAL_ERROR, "The answer could not be written", getattr(message, "id", None))
        request = message.id if isinstance(message, wire.JSONRPCResponse | wire.JSONRPCError) else None
        self.write(line)
        self.settle(request)
        if self._broken:
            raise anyio.BrokenResourceError

    def answer(self, request: wire.RequestId, outcome: dict[str, Any] | None) -> None:
        """The result or error of a request; None: nobody wants to know any more."""
        if outcome is not None:
            try:
                line = pydantic_core.to_json({"jsonrpc": "2.0", "id": request, **outcome}) + b"\n"
            except ValueError:
                line = _fault(wire.INTERNAL_ERROR, "The answer could not be written", request)
            self.write(line)
        self.settle(request)

    def settle(self, request: Any) -> None:
        self.unanswered.discard(request)
        if self.settled is not None:
            self.settled()

    def write(self, line: bytes) -> None:
        """The whole line, now or as soon as the client reads; never waits."""
        with self._lock:
            behind = bool(self._late)
            self._late.append(memoryview(line))
            self._late_bytes += len(line)
            if not behind and not self._written():
                self._loop.call_soon_threadsafe(self._loop.add_writer, self._fd, self._writable)
            if self._late_bytes > LATE:
                self._room.clear()

    def room(self) -> None:
        """Wait while the client does not read what it has been told."""
        self._room.wait()

    def _writable(self) -> None:
        with self._lock:
            if self._written():
                self._loop.remove_writer(self._fd)
                self._room.set()

    def _written(self) -> bool:
        """Write what can be written without waiting; whether that was everything."""
        try:
            while self._late:
                if not self._poll.poll(0):
                    return False
                count = os.write(self._fd, self._late[0][:CHUNK])
                self._late_bytes -= count
                self._late[0] = self._late[0][count:]
                if not self._late[0]:
                    self._late.popleft()
        except BlockingIOError:
            return False
        except OSError:  # nobody reads any more
            self._late.clear()
            self._late_bytes = 0
            self._broken = True
        return True

    async def aclose(self) -> None:
        """What is late is still sent, if the client reads it soon."""
        deadline = self._loop.time() + DRAIN_SECONDS
        while self._late and self._loop.time() < deadline:
            await asyncio.sleep(0.01)

    async def __aenter__(self) -> "Out":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class Inbox:
    """The SDK's read stream: what the threads at the input pass on, in order."""

    def __init__(self, out: Out) -> None:
        self._out = out
        self._loop = asyncio.get_running_loop()
        self._ready: collections.deque[SessionMessage] = collections.deque()
        self._wake = asyncio.Event()
        self._room = threading.Event()
        self._room.set()
        self._ended = 0

    def put(self, message: wire.JSONRPCMessage) -> None:
        """From a thread at the input."""
        self._room.wait()
        if isinstance(message, wire.JSONRPCRequest) and message.method != "subscriptions/listen":  # that never ends
            self._out.unanswered.add(message.id)
        elif isinstance(message, wire.JSONRPCNotification) and message.method == "notifications/cancelled":
            self._out.settle((message.params or {}).get("requestId"))
        self._ready.append(SessionMessage(message))
        if len(self._ready) >= AHEAD:
            self._room.clear()
        self._on_loop(self._wake.set)

    def end(self) -> None:
        """No more input; said twice, the answers that are still to come are not waited for. From any thread."""
        self._ended += 1
        if self._ended > 1:
            self._out.unanswered.clear()
        self._out.settled = lambda: self._on_loop(self._wake.set)
        self._on_loop(self._wake.set)

    def _on_loop(self, told: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(told)

    async def opening(self) -> wire.JSONRPCRequest | None:
        """The first request, which decides the era; it stays to be received. None if the client leaves before."""
        while True:
            for item in self._ready:
                if isinstance(item.message, wire.JSONRPCRequest):
                    return item.message
            if self._ended:
                return None
            self._wake.clear()
            await self._wake.wait()

    async def receive(self) -> SessionMessage:
        while not self._ready:
            if self._ended:
                await self._drained()
                raise anyio.EndOfStream
            self._wake.clear()
            await self._wake.wait()
        item = self._ready.popleft()
        if not self._room.is_set() and len(self._ready) < AHEAD // 2:
            self._room.set()
        return item

    async def _drained(self) -> None:
        """Until every request has its answer, but not for ever."""
        with anyio.move_on_after(DRAIN_SECONDS):
            while self._out.unanswered:
                self._wake.clear()
                await self._wake.wait()

    async def aclose(self) -> None:
        return None

    def __aiter__(self) -> "Inbox":
        return self

    async def __anext__(self) -> SessionMessage:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> "Inbox":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


def _fault(code: int, message: str, request: wire.RequestId | None) -> bytes:
    error = {"jsonrpc": "2.0", "id": request, "error": {"code": code, "message": message}}
    return json.dumps(error).encode() + b"\n"
