"""Open documents and the clients in them: what one client types is kept, and sent to the others.

A room belongs to the process that hosts the live documents of its workspace. Its members are connections of this
process, or of others that forward theirs (`forwarding.py`). Rooms live on the event loop; documents do not: every call
to one is made in a thread.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from notewright.errors import Conflict, Invalid, Limited, Problem, Unavailable
from notewright.ledger.base import Actor
from notewright.mcp.thread_pool import ThreadPool
from notewright.server.live import frames
from notewright.server.live.frames import (
    AWARENESS,
    QUERY_AWARENESS,
    STEP1,
    STEP2,
    SYNC,
    SYNC_STATUS,
    UPDATE,
    ClientState,
)
from notewright.surfaces.http_status import STATUS

if TYPE_CHECKING:  # loads pycrdt
    from notewright.stores.live.document import Document
    from notewright.stores.live.documents import LiveDocuments

log = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")
MAX_MEMBERS = 256  # of one document
MAX_WAITING_BYTES = 8 << 20  # on their way to one client
MAX_CLIENTS = 32  # whose awareness one connection may send as its own
MAX_GONE = 1024  # clients whose clocks are remembered after they went, so that no echo brings them back
GOING = 1001  # close codes: the client has gone, nothing is sent
TOO_SLOW = 1013  # try again later
ENDED = 4410  # there is no such live document any more
RESTARTED = 1012, "the server starts again"  # a close code and its reason: come again
FAILED = 1011, "something went wrong here"


class Outbox:
    """Frames on their way to one client, on the event loop alone. Who reads too slowly is closed, so that nobody waits
    for them; to all others, what was put before the end is sent before it."""

    def __init__(self) -> None:
        self._frames: deque[bytes] = deque()
        self._bytes = 0
        self._changed = asyncio.Event()
        self.code: int | None = None  # why it was closed
        self.reason = ""

    @property
    def closed(self) -> bool:
        return self.code is not None

    def put(self, frame: bytes) -> None:
        if self.closed:
            return
        if self._frames and self._bytes + len(frame) > MAX_WAITING_BYTES:
            self._frames.clear()
            return self.close(TOO_SLOW, "you read too slowly")
        self._frames.append(frame)
        self._bytes += len(frame)
        self._changed.set()

    def close(self, code: int, reason: str) -> None:
        """The first reason counts."""
        if not self.closed:
            self.code, self.reason = code, reason
            self._changed.set()

    async def next(self) -> bytes | None:
        """The next frame; None at the end."""
        while not self._frames:
            if self.closed:
                return None
            self._changed.clear()
            await self._changed.wait()
        frame = self._frames.popleft()
        self._bytes -= len(frame)
        return frame


def close_reason(problem: Problem) -> tuple[int, str]:
    """The code and reason by which a connection ends. y-websocket does not come again after 4400 to 4499."""
    return 4000 + STATUS[problem.code], str(problem)


@dataclass(eq=False)
class Member:
    """One client in a room."""

    room: "Room"
    actor: Actor
    writes: bool
    outbox: Outbox = field(default_factory=Outbox)
    denied: bool = False  # it tried to change what it may only read

    @property
    def person(self) -> str:
        return self.actor.user

    async def receive(self, frame: bytes) -> None:
        """Handle what the client sent, to the end. One that sends what makes no sense is closed."""
        try:
            for message in frames.decode_messages(frame):
                await self.room.receive(self, message)
        except Problem as problem:
            code = {"invalid": 1007, "busy": TOO_SLOW, "limited": TOO_SLOW}.get(problem.code, close_reason(problem)[0])
            self.outbox.close(code, str(problem))
        except Exception:
            log.exception("a frame of a live document failed")
            self.outbox.close(*FAILED)

    async def leave(self) -> None:
        self.outbox.close(GOING, "")
        self.room.leave(self)


class Awareness:
    """Who is in a document and where their cursors are: the last state of each client, until it goes.

    Clients pass on the states of each other, so that every state comes back from all of them: only what is newer by its
    clock is news. A state belongs to the member that sent it first: nobody changes that of another person's client."""

    def __init__(self) -> None:
        self._states: dict[int, tuple[ClientState, Member]] = {}
        self._gone: dict[int, int] = {}  # clients and their last clocks

    def states(self) -> list[ClientState]:
        return [state for state, _ in self._states.values()]

    def update(self, states: Sequence[ClientState], by: Member) -> list[ClientState]:
        """Take in what a member sent. Returns what is news to the others; Invalid for more clients than one connection
        can have."""
        news = [one for one in states if self._is_news(one, by)]
        for one in news:
            if one.state is None:
                self._remove(one)
            else:
                self._states[one.client] = one, by
        if sum(owner is by for _, owner in self._states.values()) > MAX_CLIENTS:
            raise Invalid("too many clients on one connection", what="frame")
        return news

    def remove_states_of(self, by: Member) -> list[ClientState]:
        """Returns what is news to the others."""
        gone = [ClientState(one.client, one.clock, None) for one, owner in self._states.values() if owner is by]
        for one in gone:
            self._remove(one)
        return gone

    def _is_news(self, one: ClientState, by: Member) -> bool:
        known = self._states.get(one.client)
        if known is None:
            return one.state is not None and one.clock > self._gone.get(one.client, -1)
        old, owner = known
        if owner.person != by.person:
            return False
        return one.clock > old.clock or (one.clock == old.clock and one.state is None)

    def _remove(self, one: ClientState) -> None:
        self._states.pop(one.client, None)
        self._gone.pop(one.client, None)
        self._gone[one.client] = one.clock
        if len(self._gone) > MAX_GONE:
            del self._gone[next(iter(self._gone))]


class Room:
    """One document, open from when its first member joins until its last one has left."""

    document: "Document"  # once it is open, for which every member waits
    _unlisten: Callable[[], None]

    def __init__(
        self, live: "LiveDocuments", doc_id: str, threads: ThreadPool, on_empty: "Callable[[Room], None]"
    ) -> None:
        self.doc_id = doc_id
        self._live, self._threads = live, threads
        self._loop = asyncio.get_running_loop()
        self._members: set[Member] = set()
        self._awareness = Awareness()
        self._call_lock = asyncio.Lock()
        self._end_reason = ""  # of a document that is no longer live
        self._on_empty = on_empty
        self._opening = asyncio.ensure_future(self.open())

    async def open(self) -> None:
        def open_and_listen() -> None:
            document = self._live.open(self.doc_id)
            try:
                self.document, self._unlisten = document, document.listen(self._on_update, self._on_end)
            except BaseException:
                self._live.release(document)
                raise

        await self._run(open_and_listen)

    async def release(self) -> None:
        """However busy everything is: a document that is not released is never evicted."""

        def release() -> None:
            self._unlisten()
            self._live.release(self.document)

        await asyncio.wait([self._opening])  # a call in a thread cannot be cancelled, and would leave what it opened
        if self._opening.exception() is None:  # else `join` raised it
            await self._threads.finish(release)

    async def _run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """One call at a time, so that a busy document has one thread and leaves the others to the others."""
        async with self._call_lock:
            return await self._threads.run(work, *args, **kwargs)

    async def join(self, actor: Actor, writes: bool) -> Member:
        """Add a member, and send it what we have and who is here. A reader is not asked for what it has."""
        if len(self._members) >= MAX_MEMBERS:
            words = f"{MAX_MEMBERS} clients have this document open"
            raise Limited(words, hint="try again later", retry_after=30, limit=MAX_MEMBERS, window=0)
        member = Member(self, actor, writes)
        self._members.add(member)
        try:
            await asyncio.shield(self._opening)
            if self._end_reason:
                raise Unavailable(f"this document is not live at the moment: {self._end_reason}", hint="try again")
            if writes:
                member.outbox.put(frames.encode_sync(STEP1, await self._run(self.document.state_vector)))
        except BaseException:
            self.leave(member)
            raise
        self._send_awareness(member)
        return member

    def leave(self, member: Member) -> None:
        if member in self._members:
            self._members.remove(member)
            self._broadcast(*frames.encode_awareness_frames(self._awareness.remove_states_of(member)))
            if not self._members:
                self._on_empty(self)

    def close(self, code: int, reason: str) -> None:
        for member in self._members:
            member.outbox.close(code, reason)

    async def receive(self, member: Member, message: frames.Message) -> None:
        kind, payload = message.kind, message.payload
        if kind == SYNC and message.step == STEP1:
            member.outbox.put(frames.encode_sync(STEP2, await self._run(self._encode_missing, payload)))
        elif kind == SYNC and payload != frames.EMPTY_UPDATE:
            if member.writes:
                await self._run(self.document.apply, payload, by=member.actor, source=member)
            elif not member.denied:
                member.denied = True
                member.outbox.put(frames.encode_permission_denied("you may read this document, not change it"))
        elif kind == AWARENESS:
            news = self._awareness.update(frames.decode_awareness(payload), member)
            self._broadcast(*frames.encode_awareness_frames(news), but=member)
        elif kind == QUERY_AWARENESS:
            self._send_awareness(member)
        elif kind == SYNC_STATUS and not member.denied:
            answer = partial(member.outbox.put, frames.encode_sync_status(payload))
            await self._run(self.document.log.call_when_durable, partial(self._call_on_loop, answer))

    def _encode_missing(self, vector: bytes) -> bytes:
        """In a thread: what a client lacks. Conflict for one that has another document, whose text would stand beside
        ours."""
        if not self.document.is_related(vector):
            raise Conflict("you have another copy of this document", hint="open it anew, without what you kept")
        return self.document.encode_update(vector)

    def _send_awareness(self, member: Member) -> None:
        for frame in frames.encode_awareness_frames(self._awareness.states()):
            member.outbox.put(frame)

    def _broadcast(self, *out: bytes, but: object = None) -> None:
        for frame in out:
            for member in self._members:
                if member is not but:
                    member.outbox.put(frame)

    def _on_update(self, update: bytes, source: object) -> None:
        """From any thread. Its sender is not sent it again."""
        self._call_on_loop(partial(self._broadcast, frames.encode_sync(UPDATE, update), but=source))

    def _on_end(self, reason: str) -> None:
        self._end_reason = reason or "it ended"
        self._call_on_loop(partial(self.close, ENDED, reason))

    def _call_on_loop(self, callback: Callable[[], None]) -> None:
        """From any thread."""
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:  # the loop has ended, and with it every client
            pass
