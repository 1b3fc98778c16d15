"""Open documents and who is in them: what one client types is kept, and told to the others.

A room belongs to the process that hosts the live documents of its workspace. Its members are connections of this
process, or of others that forward theirs (`forwarding.py`). Rooms live on the event loop; documents do not: every call
to one is made in a thread.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from notewright.errors import Conflict, Limited, Problem, Unavailable
from notewright.ledger.base import Actor
from notewright.mcp.thread_pool import ThreadPool
from notewright.server.live import frames
from notewright.server.live.awareness import Awareness
from notewright.server.live.frames import AWARENESS, QUERY_AWARENESS, STEP1, STEP2, SYNC, SYNC_STATUS, UPDATE
from notewright.server.live.outbox import GOING, TOO_SLOW, Outbox
from notewright.surfaces.http_status import STATUS

if TYPE_CHECKING:  # loads pycrdt
    from notewright.stores.live.document import Document
    from notewright.stores.live.documents import LiveDocuments

log = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")
MAX_MEMBERS = 256  # of one document
ENDED = 4410  # close codes: there is no such live document any more
FAILED = 1011, "something went wrong here"  # a close code and its reason


def close_of(problem: Problem) -> tuple[int, str]:
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
        """What the client sent, to the end. One who sends what makes no sense is closed."""
        try:
            for message in frames.messages(frame):
                await self.room.receive(self, message)
        except Problem as problem:
            code = {"invalid": 1007, "busy": TOO_SLOW, "limited": TOO_SLOW}.get(problem.code, close_of(problem)[0])
            self.outbox.close(code, str(problem))
        except Exception:
            log.exception("a frame of a live document failed")
            self.outbox.close(*FAILED)

    async def leave(self) -> None:
        self.outbox.close(GOING, "")
        self.room.leave(self)


class Room:
    """One document, open from when its first member comes until its last one has gone."""

    document: "Document"  # once it has begun, for which every member waits
    _unlisten: Callable[[], None]

    def __init__(
        self, live: "LiveDocuments", doc_id: str, threads: ThreadPool, emptied: "Callable[[Room], None]"
    ) -> None:
        self.doc_id = doc_id
        self._live, self._threads = live, threads
        self._loop = asyncio.get_running_loop()
        self._members: set[Member] = set()
        self._awareness = Awareness()
        self._turn = asyncio.Lock()
        self._over = ""  # why it is no longer live
        self._emptied = emptied
        self._begun = asyncio.ensure_future(self.begin())

    async def begin(self) -> None:
        await self._run(self._open)

    def _open(self) -> None:
        document = self._live.open(self.doc_id)
        try:
            self.document, self._unlisten = document, document.listen(self._told, self._ended)
        except BaseException:
            self._live.release(document)
            raise

    async def end(self) -> None:
        """However busy everything is: a document that is not released is never evicted."""
        await asyncio.wait([self._begun])  # a call in a thread cannot be cancelled, and would leave what it opened
        if self._begun.exception() is None:  # else its members were told
            await self._threads.finish(self._release)

    def _release(self) -> None:
        self._unlisten()
        self._live.release(self.document)

    async def _run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """One call at a time, so that a busy document has one thread and leaves the others to the others."""
        async with self._turn:
            return await self._threads.run(work, *args, **kwargs)

    async def join(self, actor: Actor, writes: bool) -> Member:
        """A new member, who is told what we have and who is here. A reader is not asked for what it has."""
        if len(self._members) >= MAX_MEMBERS:
            words = f"{MAX_MEMBERS} clients have this document open"
            raise Limited(words, hint="try again later", retry_after=30, limit=MAX_MEMBERS, window=0)
        member = Member(self, actor, writes)
        self._members.add(member)
        try:
            await asyncio.shield(self._begun)
            if self._over:
                raise Unavailable(f"this document is not live at the moment: {self._over}", hint="try again")
            if writes:
                member.outbox.put(frames.sync(STEP1, await self._run(self.document.state_vector)))
        except BaseException:
            self.leave(member)
            raise
        self._greet(member)
        return member

    def leave(self, member: Member) -> None:
        if member in self._members:
            self._members.remove(member)
            self._tell_states(self._awareness.leave(member))
            if not self._members:
                self._emptied(self)

    def close(self, code: int, reason: str) -> None:
        for member in self._members:
            member.outbox.close(code, reason)

    async def receive(self, member: Member, message: frames.Message) -> None:
        if message.kind == SYNC and message.step == STEP1:
            missing = await self._run(self._missing, message.payload)
            member.outbox.put(frames.sync(STEP2, missing))
        elif message.kind == SYNC:
            await self._change(member, message.payload)
        elif message.kind == AWARENESS:
            self._tell_states(self._awareness.hear(frames.client_states(message.payload), member), but=member)
        elif message.kind == QUERY_AWARENESS:
            self._greet(member)
        elif message.kind == SYNC_STATUS and not member.denied:
            answer = partial(member.outbox.put, frames.sync_status(message.payload))
            await self._run(self.document.log.call_when_durable, partial(self._soon, answer))

    async def _change(self, member: Member, update: bytes) -> None:
        if update == frames.NOTHING_NEW:
            return
        if not member.writes:
            if not member.denied:
                member.denied = True
                member.outbox.put(frames.permission_denied("you may read this document, not change it"))
            return
        await self._run(self.document.apply, update, by=member.actor, source=member)

    def _missing(self, vector: bytes) -> bytes:
        """In a thread: what a client lacks. Conflict for one that has another document, whose text would stand beside
        ours."""
        if not self.document.is_related(vector):
            raise Conflict("you have another copy of this document", hint="open it anew, without what you kept")
        return self.document.encode_update(vector)

    def _greet(self, member: Member) -> None:
        for frame in frames.awareness_frames(self._awareness.states()):
            member.outbox.put(frame)

    def _tell_states(self, news: list[frames.ClientState], but: Member | None = None) -> None:
        for frame in frames.awareness_frames(news):
            self._tell(frame, but)

    def _tell(self, frame: bytes, but: object = None) -> None:
        for member in self._members:
            if member is not but:
                member.outbox.put(frame)

    def _told(self, update: bytes, source: object) -> None:
        """From any thread. Who sent it is not told it again."""
        self._soon(partial(self._tell, frames.sync(UPDATE, update), source))

    def _ended(self, reason: str) -> None:
        self._over = reason or "it ended"
        self._soon(partial(self.close, ENDED, reason))

    def _soon(self, then: Callable[[], None]) -> None:
        """From any thread."""
        try:
            self._loop.call_soon_threadsafe(then)
        except RuntimeError:  # the loop has ended, and with it every client
            pass


class Rooms:
    """The rooms of one workspace, where this process hosts it. Unavailable (of `open`) where another does."""

    def __init__(self, live: "LiveDocuments", threads: ThreadPool, count: Callable[[int], None]) -> None:
        self.live = live
        self._count = count  # told how many more rooms there are
        self._threads = threads
        self._rooms: dict[str, Room] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def join(self, doc_id: str, actor: Actor, writes: bool) -> Member:
        room = self._rooms.get(doc_id)
        if room is None:
            room = self._rooms[doc_id] = Room(self.live, doc_id, self._threads, self._emptied)
            self._count(1)
        return await room.join(actor, writes)

    def close(self, code: int, reason: str) -> None:
        for room in self._rooms.values():
            room.close(code, reason)

    async def closed(self) -> None:
        """When the last room is."""
        while self._closing:
            await asyncio.gather(*self._closing)

    def _emptied(self, room: Room) -> None:
        """Whoever comes next opens the document anew, also while it is being released here."""
        del self._rooms[room.doc_id]
        self._count(-1)
        task = asyncio.ensure_future(room.end())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
