"""Rooms: open documents and their clients. What one client types is saved, and sent to the others.

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
MAX_WAITING_BYTES = 8 << 20  # queued for one client
MAX_CLIENTS = 32  # whose awareness one connection may send as its own
MAX_GONE = 1024  # disconnected clients whose clocks are kept, so that no forwarded state brings them back
GOING = 1001  # close codes: the client has disconnected, nothing is sent
TOO_SLOW = 1013  # the client should try again later
ENDED = 4410  # there is no such live document any more
RESTARTED = 1012, "the server starts again"  # a close code and its reason; the client reconnects
FAILED = 1011, "something went wrong here"


class Outbox:
    """The queue of frames for one client, used on the event loop only. A client that reads too slowly is disconnected,
    so that nobody waits for it; for all others, frames queued before the close are sent first."""

    def __init__(self) -> None:
        self._frames: deque[bytes] = deque()
        self._bytes = 0
        self._changed = asyncio.Event()
        self.code: int | None = None  # why it was closed
        self.reason = ""

    @property
    def is_closed(self) -> bool:
        return self.code is not None

    def put(self, frame: bytes) -> None:
        if self.is_closed:
            return
        if self._frames and self._bytes + len(frame) > MAX_WAITING_BYTES:
            self._frames.clear()
            return self.close(TOO_SLOW, "you read too slowly")
        self._frames.append(frame)
        self._bytes += len(frame)
        self._changed.set()

    def close(self, code: int, reason: str) -> None:
        """Close with this code and reason, unless it is closed already."""
        if not self.is_closed:
            self.code, self.reason = code, reason
            self._changed.set()

    async def next(self) -> bytes | None:
        """Wait for the next frame; None once it is closed and empty."""
        while not self._frames:
            if self.is_closed:
                return None
            self._changed.clear()
            await self._changed.wait()
        frame = self._frames.popleft()
        self._bytes -= len(frame)
        return frame


def close_reason(problem: Problem) -> tuple[int, str]:
    """The code and reason to close a connection with. y-websocket does not reconnect after 4400 to 4499."""
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
        """Handle one frame of the client completely. A client that sends an invalid one is disconnected."""
        try:
            for message in frames.decode_messages(frame):
                await self.room.receive(self, message)
        except Problem as problem:
            code = {"invalid": 1007, "busy": TOO_SLOW, "limited": TOO_SLOW}.get(problem.code, close_reason(problem)[0])
            self.outbox.close(code, str(problem))
        except Exception:
            log.exception("a frame of a live document failed")
            self.outbox.close(*FAILED)

    async def leave_room(self) -> None:
        self.outbox.close(GOING, "")
        self.room.remove_member(self)


class Awareness:
    """Who is in a document and where their cursors are: the last state of each client until it disconnects.

    Clients forward the states of each other, so every state comes back from all of them: only a state with a newer
    clock is news. A state belongs to the member that sent it first: another person's client cannot change it."""

    def __init__(self) -> None:
        self._states: dict[int, tuple[ClientState, Member]] = {}
        self._gone: dict[int, int] = {}  # clients and their last clocks

    def states(self) -> list[ClientState]:
        return [state for state, _ in self._states.values()]

    def update(self, states: Sequence[ClientState], by: Member) -> list[ClientState]:
        """Apply the states a member sent, and return those that are news to the others. Invalid for more clients than
        one connection can have."""
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
        """Remove the states of a member, and return what the others have to be sent."""
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
    """One document, open from when its first member joins until its last one leaves."""

    document: "Document"  # set when it is open; every member waits for that
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
        """Release the document, even if all threads are busy: one that is not released is never evicted."""

        def release() -> None:
            self._unlisten()
            self._live.release(self.document)

        await asyncio.wait([self._opening])  # a call in a thread cannot be cancelled, and would leave what it opened
        if self._opening.exception() is None:  # else `join` raised it
            await self._threads.finish(release)

    async def _run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work` in a thread, one call at a time: a busy document takes only one thread of the pool."""
        async with self._call_lock:
            return await self._threads.run(work, *args, **kwargs)

    async def join(self, actor: Actor, writes: bool) -> Member:
        """Add a member, and send it our state and who is here. A reader is not asked for its own state."""
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
            self.remove_member(member)
            raise
        self._send_awareness(member)
        return member

    def remove_member(self, member: Member) -> None:
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
        """The update a client lacks; runs in a thread. Conflict for a client with a copy of another document: both
        texts would end up in it."""
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
        """Broadcast an update to all but its sender. Called from any thread."""
        self._call_on_loop(partial(self._broadcast, frames.encode_sync(UPDATE, update), but=source))

    def _on_end(self, reason: str) -> None:
        self._end_reason = reason or "it ended"
        self._call_on_loop(partial(self.close, ENDED, reason))

    def _call_on_loop(self, callback: Callable[[], None]) -> None:
        """Run `callback` on the event loop. Called from any thread."""
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:  # the loop has stopped, and every client is disconnected
            pass
