"""WebSocket connections of Yjs clients: limits on their number and pace, and checks whether they may stay open.

A connection is closed when its caller loses the right to the document: a token is revoked or expires, a rule changes, a
note is moved to where its reader sees nothing. All connections are checked once a second, independently: a check that
hangs delays no other.
"""

import asyncio
import contextlib
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from notewright.engine.workspace import Workspace
from notewright.errors import Problem
from notewright.server.auth.authenticate import AuthRefusal, refusal_response
from notewright.server.live.access import DocumentNames, LiveAuthenticator, LiveCaller
from notewright.server.live.forwarding import ForwardedMember, LiveHosts
from notewright.server.live.rooms import FAILED, GOING, RESTARTED, Member, close_reason
from notewright.server.site_context import SiteContext, StillAllowed

log = logging.getLogger(__name__)
MAX_PER_PERSON = 500
MAX_FRAMES_PER_SECOND, MAX_BYTES_PER_SECOND = 1000, 4 << 20  # of one client; one that sends more is read more slowly
BURST_SECONDS = 8.0  # so many seconds' worth of that may come at once
CHECK_SECONDS = 1.0  # between two checks of all connections
ISSUER_TIMEOUT_SECONDS = 10.0  # for an OAuth issuer to answer
MAX_ISSUER_CALLS = 64  # at once
CLOSE_SECONDS = 2.0
NOT_ALLOWED = 1008
FindDocument = Callable[[Mapping[str, str], Sequence[Workspace]], Awaitable[tuple[Workspace, str]]]


@dataclass(eq=False)
class _LiveConnection:
    caller: LiveCaller
    workspace: str
    doc_id: str
    writes: bool
    member: Member | ForwardedMember
    still_allowed: StillAllowed


class LiveConnections:
    """The live connections of one application in this process. Used on the event loop only; `close` ends them all."""

    def __init__(self, site: SiteContext, hosts: LiveHosts, authenticator: LiveAuthenticator) -> None:
        self._site, self._hosts, self._authenticator = site, hosts, authenticator
        self._max_connections = max(1, site.config["http.max_connections"] * 3 // 4)  # the others are for all else
        self._count = site.operations.metrics.live_connections.inc
        self._people: Counter[str] = Counter()
        self._open: set[_LiveConnection] = set()
        self._checking: asyncio.Task[None] | None = None
        self._closed = False

    async def serve(self, scope: Scope, receive: Receive, send: Send, find: FindDocument) -> None:
        """Serve one connection until it ends. `find` finds the document by the parameters of the URL path."""
        await receive()  # websocket.connect
        caller = await self._authenticator.authenticate(scope)
        if isinstance(caller, AuthRefusal):
            return await refusal_response(scope, caller)(scope, receive, send)
        person = caller.principal.user
        is_full = self._people.total() >= self._max_connections or self._people[person] >= MAX_PER_PERSON
        if self._closed or is_full:
            busy = JSONResponse({"error": "Too many connections"}, 503, {"Retry-After": "5"})
            return await busy(scope, receive, send)
        self._people[person] += 1
        self._count(1)
        try:
            await self._serve_admitted(caller, scope, receive, send, find)
        finally:
            self._count(-1)
            self._people[person] -= 1
            if not self._people[person]:
                del self._people[person]

    def close(self) -> None:
        self._closed = True
        for one in self._open:
            one.member.outbox.close(*RESTARTED)

    async def _serve_admitted(
        self, caller: LiveCaller, scope: Scope, receive: Receive, send: Send, find: FindDocument
    ) -> None:
        """Serve a connection within the limits. A refusal comes after the handshake, as
        browsers do not show the reason of a refused one."""
        await send({"type": "websocket.accept"})
        try:
            shown = caller.principal.narrow_library(self._site.library)
            ws, doc_id = await find(scope["path_params"], await self._site.workers.run(shown.workspaces))
            names = await self._hosts.fetch_names(ws, [doc_id])
            writes = caller.may_write(ws.access, doc_id, names)
            if writes and names.may_create(doc_id):
                await self._hosts.call(ws, "new", doc_id, caller.actor)
            member = await self._hosts.join(ws, doc_id, caller.actor, writes)
        except Problem as problem:
            return await _send_close(send, *close_reason(problem))
        still_allowed = self._site.make_check(scope, caller.principal, shown)
        one = _LiveConnection(caller, ws.id, doc_id, writes, member, still_allowed)
        self._open.add(one)
        if self._closed:
            member.outbox.close(*RESTARTED)
        if self._checking is None or self._checking.done():
            self._checking = asyncio.create_task(self._check_all())
        reading = asyncio.create_task(_read_frames(receive, member))
        try:
            await _write_frames(send, member)
        finally:
            self._open.discard(one)
            reading.cancel()
            await member.leave_room()

    async def _check_all(self) -> None:
        """Check all connections every CHECK_SECONDS until none is open."""
        while self._open:
            await asyncio.sleep(CHECK_SECONDS)
            try:
                connections, issuer_calls = list(self._open), asyncio.Semaphore(MAX_ISSUER_CALLS)
                identities = (_check_identity(one, issuer_calls) for one in connections)
                await asyncio.gather(self._check_rights(connections), *identities)
            except Problem as problem:  # the library cannot be opened
                log.debug("the rights of live connections could not be checked: %s", problem)
            except Exception:  # all are checked again in the next round
                log.exception("the rights of live connections could not be checked")

    async def _check_rights(self, connections: list[_LiveConnection]) -> None:
        workspaces = {ws.id: ws for ws in await self._site.workers.run(self._site.library.workspaces)}
        by_workspace: defaultdict[str, list[_LiveConnection]] = defaultdict(list)
        for one in connections:
            by_workspace[one.workspace].append(one)
        await asyncio.gather(*(self._check_rights_in(workspaces.get(id), some) for id, some in by_workspace.items()))

    async def _check_rights_in(self, ws: Workspace | None, connections: list[_LiveConnection]) -> None:
        """Close the connections in one workspace whose callers' rights changed, or cannot be found out."""
        names = DocumentNames("", {})
        try:
            if ws is not None:
                names = await self._hosts.fetch_names(ws, {one.doc_id for one in connections})
        except Problem as problem:  # no process hosts the documents now: their connections end because of that
            return log.debug("the rights of live connections could not be checked: %s", problem)
        for one in connections:
            is_same = False
            try:
                if ws is not None:
                    access = one.caller.principal.narrow(ws).access
                    is_same = one.caller.may_write(access, one.doc_id, names) == one.writes
            except Problem:  # they may not see it
                pass
            except Exception:
                log.exception("the rights of a live connection could not be checked")
            if not is_same:
                one.member.outbox.close(NOT_ALLOWED, "what you may do with this document has changed")


async def _check_identity(one: _LiveConnection, issuer_calls: asyncio.Semaphore) -> None:
    """Close the connection unless its caller would be authenticated again."""
    try:
        async with issuer_calls, asyncio.timeout(ISSUER_TIMEOUT_SECONDS):
            token = one.caller.token
            may_stay = (token is None or time.time() < token.expires) and await one.still_allowed()
    except TimeoutError:  # the issuer does not answer
        may_stay = False
    except Exception:
        log.exception("the caller of a live connection could not be authenticated again")
        return one.member.outbox.close(*FAILED)
    if not may_stay:
        one.member.outbox.close(NOT_ALLOWED, "you may no longer open this document")


async def _read_frames(receive: Receive, member: Member | ForwardedMember) -> None:
    """Pass on what the client sends, at most at the allowed pace."""
    paid_until = 0.0  # the time by which all that was read could have come at that pace
    while (message := await receive())["type"] == "websocket.receive":
        frame = message.get("bytes")
        if frame is None:
            return member.outbox.close(1003, "frames are binary here")
        await member.receive(frame)
        if member.outbox.is_closed:
            return
        now = time.monotonic()
        cost = max(1 / MAX_FRAMES_PER_SECOND, len(frame) / MAX_BYTES_PER_SECOND)
        paid_until = max(paid_until, now - BURST_SECONDS) + cost
        if paid_until > now:
            await asyncio.sleep(paid_until - now)
    member.outbox.close(GOING, "")


async def _write_frames(send: Send, member: Member | ForwardedMember) -> None:
    """Send what is queued for the client until its outbox is closed."""
    outbox = member.outbox
    try:
        while (frame := await outbox.next()) is not None:
            await send({"type": "websocket.send", "bytes": frame})
    except (OSError, RuntimeError):  # it has gone, or was disconnected because it read nothing
        return
    if outbox.code != GOING:
        await _send_close(send, outbox.code or RESTARTED[0], outbox.reason)


async def _send_close(send: Send, code: int, reason: str) -> None:
    """Close the WebSocket. The protocol allows 123 bytes for the reason, so it is cut."""
    short = reason.encode()[:120].decode(errors="ignore")
    with contextlib.suppress(TimeoutError, OSError, RuntimeError):
        async with asyncio.timeout(CLOSE_SECONDS):
            await send({"type": "websocket.close", "code": code, "reason": short})
