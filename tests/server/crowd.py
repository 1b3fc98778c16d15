"""A crowd of clients at one server: connections kept open, real sessions, real tools, and a memory of every answer.

It runs on one thread and does little for each call, so that on a small machine the server has the processors. A client
is closed-loop: it asks, waits for the answer, perhaps pauses, and asks again.
"""

import asyncio
import json
import re
import statistics
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
PATIENCE = 60.0  # seconds for one answer
VERSION = "2025-06-18"
LIMITS = re.compile(r"\b(busy|limited|indexing|too many|rate limit|BUSY|RATE_LIMIT)", re.I)


class Broken(Exception):
    """The connection ended before the answer came: nobody knows whether the call was made."""


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes


class Line(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self) -> None:
        self._came = bytearray()
        self._answer: asyncio.Future[Reply] | None = None
        self._transport: asyncio.WriteTransport | None = None
        self.broken = False

    @classmethod
    async def to(cls, port: int) -> "Line":
        try:
            _, line = await asyncio.get_running_loop().create_connection(cls, "127.0.0.1", port)
        except OSError as error:
            raise Broken(str(error)) from None
        return line

    async def ask(self, request: bytes) -> Reply:
        if self.broken or self._transport is None:
            raise Broken("the connection was closed")
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await asyncio.wait_for(self._answer, PATIENCE)

    @property
    def port(self) -> int:
        """Ours: what the other side calls us by."""
        assert self._transport is not None
        return int(self._transport.get_extra_info("sockname")[1])

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def connection_lost(self, exc: Exception | None) -> None:
        self.broken = True
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(Broken(str(exc or "closed")))

    def data_received(self, data: bytes) -> None:
        self._came += data
        reply, size = _parsed(self._came)
        if reply is not None and self._answer is not None and not self._answer.done():
            del self._came[:size]
            self._answer.set_result(reply)


def _parsed(came: bytearray) -> tuple[Reply | None, int]:
    """The answer and its size; None until it is whole."""
    end = came.find(b"\r\n\r\n")
    if end < 0:
        return None, 0
    first, *rest = bytes(came[:end]).decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
    size = end + 4 + int(headers.get("content-length", "0"))
    if len(came) < size:
        return None, 0
    return Reply(int(first.split(" ", 2)[1]), headers, bytes(came[end + 4 : size])), size


@dataclass(frozen=True, slots=True)
class Ask:
    """A call of a tool. Its answer holds `expects`; `marker` is what a call that writes leaves in a note, once."""

    surface: str
    tool: str
    args: dict[str, Any]
    expects: str = ""
    marker: str = ""
    path: str = ""  # where a marker is left


@dataclass(frozen=True, slots=True)
class Told:
    """How a call went: "yes", "limit" (a documented one), "lost" (no answer) or "fault"."""

    how: str
    text: str
    seconds: float
    status: int = 0
    retry_after: str = ""


@dataclass(frozen=True, slots=True)
class Deed:
    """A call that would write, and what was answered."""

    ask: Ask
    how: str
    client: str


@dataclass
class Tally:
    """What a crowd remembers."""

    reads: list[float] = field(default_factory=list)
    writes: list[float] = field(default_factory=list)
    deeds: list[Deed] = field(default_factory=list)
    limits: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    lost: int = 0

    @property
    def calls(self) -> int:
        return len(self.reads) + len(self.writes)

    def share(self, percent: float) -> float:
        """Seconds within which so many of the calls were answered."""
        times = sorted([*self.reads, *self.writes])
        return times[min(len(times) - 1, int(len(times) * percent / 100))]

    def words(self, seconds: float) -> str:
        if not self.calls:
            return "nothing was answered"
        ms = {name: f"{self.share(percent) * 1000:.1f}" for name, percent in (("p50", 50), ("p99", 99), ("max", 100))}
        means = [f"{statistics.median(some) * 1000:.1f}" if some else "-" for some in (self.reads, self.writes)]
        return (
            f"{self.calls / seconds:.0f} calls/s ({len(self.writes)} writes, {self.lost} lost, {len(self.limits)} "
            f"limits, {len(self.faults)} faults), {ms} ms; median read {means[0]}, write {means[1]} ms"
        )


class Client:
    """Somebody with a name, a token, and two connections, which may lead to two workers."""

    def __init__(self, port: int, name: str, token: str = "", chance: Random | None = None) -> None:
        self.port, self.name = port, name
        self.chance = chance or Random(0)
        self._token = token
        self._lines: list[Line | None] = [None, None]
        self._sessions: dict[str, str] = {}
        self._number = 0

    async def call(self, ask: Ask, line: int | None = None) -> Told:
        """One call over one of the connections."""
        which = self.chance.randrange(len(self._lines)) if line is None else line
        try:
            if ask.surface not in self._sessions:
                await self.greet(ask.surface, which)
            began = time.perf_counter()
            reply = await self.post(ask.surface, "tools/call", {"name": ask.tool, "arguments": ask.args}, which)
        except Broken as broken:
            return Told("lost", str(broken), 0.0)
        return _told(reply, ask, time.perf_counter() - began)

    async def greet(self, surface: str, which: int = 0) -> str:
        """A session of this surface."""
        about = {"name": self.name, "version": "1"}
        hello = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": about}
        reply = await self.post(surface, "initialize", hello, which)
        assert reply.status == 200, reply
        self._sessions[surface] = session = reply.headers.get("mcp-session-id", "")
        await self.post(surface, "notifications/initialized", None, which)
        return session

    async def post(self, surface: str, method: str, params: dict[str, Any] | None, which: int = 0) -> Reply:
        self._number += 1
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        message |= {} if params is None else {"id": self._number, "params": params}
        return await self.send("POST", f"/mcp/{surface}", json.dumps(message).encode(), which, surface)

    async def send(self, method: str, path: str, body: bytes = b"", which: int = 0, surface: str = "") -> Reply:
        line = await self.line(which)
        head = [f"{method} {path} HTTP/1.1", "host: localhost", "accept: application/json"]
        head += ["content-type: application/json", f"content-length: {len(body)}"]
        head += [f"authorization: Bearer {self._token}"] if self._token else []
        head += [f"mcp-session-id: {self._sessions[surface]}"] if self._sessions.get(surface) else []
        return await line.ask("\r\n".join(head).encode() + b"\r\n\r\n" + body)

    async def line(self, which: int, *, anew: bool = False) -> Line:
        """The connection of this number; another if it is broken or is to be made anew."""
        line = self._lines[which]
        if line is not None and anew:
            line.close()
        if line is None or line.broken or anew:
            line = self._lines[which] = await Line.to(self.port)
        return line

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *_: object) -> None:
        for line in self._lines:
            if line is not None:
                line.close()
        await asyncio.sleep(0)  # so that they are


def _told(reply: Reply, ask: Ask, seconds: float) -> Told:
    try:
        message = json.loads(reply.body) if reply.body else {}
    except ValueError:
        message = {}
    result = message.get("result") or {}
    content = result.get("content") or [{}]
    text = str(content[0].get("text", "")) if result else reply.body.decode(errors="replace")
    good = reply.status == 200 and result and not result.get("isError") and '"success":false' not in text
    if good:
        how = "yes" if ask.expects in text else "fault"
    else:
        how = "limit" if reply.status in (429, 503) or LIMITS.search(text[:200]) else "fault"
    return Told(how, text, seconds, reply.status, reply.headers.get("retry-after", ""))


class Behaviour(Protocol):
    """What one client does."""

    def next(self, client: Client) -> Ask: ...

    def heard(self, ask: Ask, told: Told) -> None: ...


async def live(client: Client, does: Behaviour, tally: Tally, until: float, pause: float = 0.0) -> None:
    """Ask until the time has come. A read whose answer was lost is asked again; a write is not."""
    while time.monotonic() < until:
        if pause:
            await asyncio.sleep(client.chance.expovariate(1 / pause))
        ask = does.next(client)
        told = await client.call(ask)
        while told.how == "lost" and not ask.marker and time.monotonic() < until + PATIENCE:
            tally.lost += 1
            await asyncio.sleep(0.02)
            told = await client.call(ask)
        does.heard(ask, told)
        note(tally, client, ask, told)
        if told.how == "limit":
            await asyncio.sleep(min(1.0, float(told.retry_after or 0.1)))


def note(tally: Tally, client: Client, ask: Ask, told: Told) -> None:
    if ask.marker:
        tally.deeds.append(Deed(ask, told.how, client.name))
    if told.how == "yes":
        (tally.writes if ask.marker else tally.reads).append(told.seconds)
    elif told.how == "limit":
        tally.limits.append(f"{ask.surface}.{ask.tool}: {told.status} {told.text[:200]}")
    elif told.how == "lost":
        tally.lost += bool(ask.marker)
    else:
        tally.faults.append(f"{client.name}: {ask}: {told.status} {told.text[:600]}")


def run(doing: Coroutine[Any, Any, T]) -> T:
    """On the quickest event loop that is here."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(doing)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(doing)
