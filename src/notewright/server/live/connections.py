"""WebSocket connections of Yjs clients: how many, how fast, and for how long they may stay.

A connection ends when the right ends by which it was opened: a token is revoked or expires, a rule changes, a note is
moved to where its reader sees nothing. Every connection is looked at once in a while, all of them together.
"""

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from notewright.engine.library import Library
from notewright.engine.workspace import Workspace
from notewright.errors import Problem
from notewright.mcp.thread_pool import ThreadPool
from notewright.server.auth.authenticate import AuthRefusal, refusal_response
from notewright.server.auth.revalidate import Revalidation, StillAllowed
from notewright.server.live.callers import Caller, Callers
from notewright.server.live.documents import DocumentNames
from notewright.server.live.forwarding import ForwardedMember, LiveHosts
from notewright.server.live.outbox import GOING, RESTARTED
from notewright.server.live.rooms import FAILED, Member, close_of

log = logging.getLogger(__name__)
MAX_OF_ONE_PERSON = 500
FRAMES_A_SECOND, BYTES_A_SECOND = 1000, 4 << 20  # of one client; who sends more is read more slowly
BURST_SECONDS = 8.0  # so many seconds' worth of that may come at once
LOOK_SECONDS = 1.0  # between two looks at whether everybody may stay
ASK_SECONDS = 10.0  # for an issuer to say who somebody is
ASKED_AT_ONCE = 64  # of whom that is asked
CLOSE_SECONDS = 2.0
NOT_ALLOWED = 1008
Find = Callable[[Mapping[str, str], Sequence[Workspace]], Awaitable[tuple[Workspace, str]]]


@dataclass(eq=False)
class _Connection:
    caller: Caller
    workspace: str
    doc_id: str
    writes: bool
    member: Member | ForwardedMember
    stays: StillAllowed


class Connections:
    """Those of one application, in one process; on the event loop alone. `close` ends them all."""

    def __init__(
        self,
        library: Library,
        callers: Callers,
        hosts: LiveHosts,
        threads: ThreadPool,
        staying: Revalidation,
        most: int,
        count: Callable[[int], None],
    ) -> None:
        """`most` of them at once; `count` is told of each that comes (1) and goes."""
        self._library, self._callers, self._hosts, self._threads = library, callers, hosts, threads
        self._staying = staying
        self._most, self._count = most, count
        self._people: Counter[str] = Counter()
        self._open: set[_Connection] = set()
        self._looking: asyncio.Task[None] | None = None
        self._closed = False

    async def serve(self, scope: Scope, receive: Receive, send: Send, find: Find) -> None:
        """One connection from its handshake to its end. `find` says which document the parameters of its path mean."""
        await receive()  # websocket.connect
        caller = await self._callers.caller(scope)
        if isinstance(caller, AuthRefusal):
            return await refusal_response(scope, caller)(scope, receive, send)
        person = caller.principal.user
        if self._closed or self._people.total() >= self._most or self._people[person] >= MAX_OF_ONE_PERSON:
            busy = JSONResponse({"error": "Too many connections"}, 503, {"Retry-After": "5"})
            return await busy(scope, receive, send)
        self._people[person] += 1
        self._count(1)
        try:
            await self._join(caller, scope, receive, send, find)
        finally:
            self._count(-1)
            self._people[person] -= 1
            if not self._people[person]:
                del self._people[person]

    def close(self) -> None:
        self._closed = True
        for one in self._open:
            one.member.outbox.close(*RESTARTED)

    async def _join(self, caller: Caller, scope: Scope, receive: Receive, send: Send, find: Find) -> None:
        """The handshake is accepted first: a browser learns nothing of a refusal but that there was one."""
        await send({"type": "websocket.accept"})
        try:
            shown = caller.principal.library(self._library)
            ws, doc_id = await find(scope["path_params"], await self._threads.run(shown.workspaces))
            names = await self._hosts.names(ws, [doc_id])
            writes = caller.may_write(ws.access, doc_id, names)
            if writes and names.may_begin(doc_id):
                await self._hosts.call(ws, "new", doc_id, caller.actor)
            member = await self._hosts.join(ws, doc_id, caller.actor, writes)
        except Problem as problem:
            return await _close(send, *close_of(problem))
        stays = self._staying.make_check(scope, caller.principal, shown)
        one = _Connection(caller, ws.id, doc_id, writes, member, stays)
        self._open.add(one)
        if self._closed:
            member.outbox.close(*RESTARTED)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._watch())
        reading = asyncio.create_task(_read(receive, member))
        try:
            await _write(send, member)
        finally:
            self._open.discard(one)
            reading.cancel()
            await member.leave()

    async def _watch(self) -> None:
        """Until nobody is here any longer."""
        while self._open:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self._look()
            except Problem as problem:  # the library cannot be opened
                log.debug("the rights of live connections could not be looked at: %s", problem)
            except Exception:  # whoever comes next is looked after again
                log.exception("the rights of live connections could not be looked at")

    async def _look(self) -> None:
        """At everybody, each by themselves: whoever cannot be looked at keeps nobody else waiting."""
        everybody, at_once = list(self._open), asyncio.Semaphore(ASKED_AT_ONCE)
        await asyncio.gather(self._look_in_workspaces(everybody), *(self._look_at(one, at_once) for one in everybody))

    async def _look_at(self, one: _Connection, at_once: asyncio.Semaphore) -> None:
        """Are they still who they were?"""
        try:
            async with at_once, asyncio.timeout(ASK_SECONDS):
                may_stay = not one.caller.has_expired and await one.stays()
        except TimeoutError:  # nobody can say
            may_stay = False
        except Exception:
            log.exception("whether a live connection may stay could not be asked")
            return one.member.outbox.close(*FAILED)
        if not may_stay:
            one.member.outbox.close(NOT_ALLOWED, "you may no longer open this document")

    async def _look_in_workspaces(self, everybody: list[_Connection]) -> None:
        there = {ws.id: ws for ws in await self._threads.run(self._library.workspaces)}
        here: dict[str, list[_Connection]] = {}
        for one in everybody:
            here.setdefault(one.workspace, []).append(one)
        await asyncio.gather(*(self._look_in(there.get(workspace), some) for workspace, some in here.items()))

    async def _look_in(self, ws: Workspace | None, connections: list[_Connection]) -> None:
        """May they still do the same there?"""
        try:
            names = None if ws is None else await self._hosts.names(ws, {one.doc_id for one in connections})
        except Problem as problem:  # nobody hosts the documents at the moment, and their connections end by that
            return log.debug("the rights of live connections could not be looked at: %s", problem)
        for one in connections:
            if ws is None or names is None or not _rights_unchanged(one, ws, names):
                one.member.outbox.close(NOT_ALLOWED, "what you may do with this document has changed")


def _rights_unchanged(one: _Connection, ws: Workspace, names: DocumentNames) -> bool:
    """As when they came; not those of whom nobody can say."""
    try:
        return one.caller.may_write(one.caller.principal.narrow(ws).access, one.doc_id, names) == one.writes
    except Problem:
        return False
    except Exception:
        log.exception("the rights of a live connection could not be looked at")
        return False


async def _read(receive: Receive, member: Member | ForwardedMember) -> None:
    """What the client sends, as fast as it may."""
    paid_until = 0.0  # the time by which all that was read could have come at that pace
    while (message := await receive())["type"] == "websocket.receive":
        frame = message.get("bytes")
        if frame is None:
            return member.outbox.close(1003, "frames are binary here")
        await member.receive(frame)
        if member.outbox.closed:
            return
        now = time.monotonic()
        paid_until = max(paid_until, now - BURST_SECONDS) + max(1 / FRAMES_A_SECOND, len(frame) / BYTES_A_SECOND)
        if paid_until > now:
            await asyncio.sleep(paid_until - now)
    member.outbox.close(GOING, "")


async def _write(send: Send, member: Member | ForwardedMember) -> None:
    """What the client is to be told, to the end."""
    outbox = member.outbox
    try:
        while (frame := await outbox.next()) is not None:
            await send({"type": "websocket.send", "bytes": frame})
    except (OSError, RuntimeError):  # it has gone, or was shown out because it read nothing
        return
    if outbox.code != GOING:
        await _close(send, outbox.code or RESTARTED[0], outbox.reason)


async def _close(send: Send, code: int, reason: str) -> None:
    """A reason has 123 bytes at most."""
    short = reason.encode()[:120].decode(errors="ignore")
    with contextlib.suppress(TimeoutError, OSError, RuntimeError):
        async with asyncio.timeout(CLOSE_SECONDS):
            await send({"type": "websocket.close", "code": code, "reason": short})
