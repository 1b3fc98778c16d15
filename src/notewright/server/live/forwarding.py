"""One process hosts the live documents of a workspace; the others forward their clients to it.

The host is the process that holds a lock, which `LiveDocuments` takes when it is free; in other processes its calls
raise Unavailable. The host listens on a Unix socket in the state directory of the workspace, which only its owner may
open. Another process connects to it on behalf of a client that it has authenticated and whose rights it has checked,
and then forwards frames in both directions. When the host dies, these connections are closed, the clients reconnect,
and the first process that gets one of them takes the lock.

The messages are those of `stores/live/host_socket.py`. After a join, each message from the host begins with a byte that
says whether it is a frame or the end.
"""

import asyncio
import contextlib
import json
import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from notewright.engine.library import Library
from notewright.engine.workspace import Workspace
from notewright.errors import Problem, Unavailable
from notewright.ledger.base import Actor
from notewright.mcp.thread_pool import ThreadPool
from notewright.notes.path import NotePath
from notewright.server.live.access import DocumentNames, no_such_document
from notewright.server.live.rooms import GOING, RESTARTED, Member, Outbox, Room
from notewright.stores.live.host_socket import (
    LENGTH,
    MAX_MESSAGE_BYTES,
    HostCall,
    answer_call,
    call_host,
    encode_call,
    encode_problem,
    frame_message,
    no_answer_error,
    raise_problem,
    socket_address,
)

if TYPE_CHECKING:  # loads pycrdt
    from notewright.stores.live.documents import LiveDocuments

log = logging.getLogger(__name__)
MAX_TRIES, RETRY_SECONDS = 15, 0.2  # until a host is found
POLL_SECONDS = 0.5  # between two checks whether this process became the host of some workspace
THREADS = 16
CLOSE_SECONDS = 2.0  # to send other processes the last frames when this one ends
STALLED_SECONDS = 20.0  # for which another process may read nothing before it is disconnected
_FRAME, _END = b"\x00", b"\x01"


class ForwardedMember:
    """A client of this process that is a member of a room in another one."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.outbox = Outbox()
        self._reading = asyncio.create_task(self._read())

    async def receive(self, frame: bytes) -> None:
        with contextlib.suppress(OSError):
            await _send(self._writer, frame)

    async def leave_room(self) -> None:
        self.outbox.close(GOING, "")
        self._reading.cancel()
        self._writer.close()

    async def _read(self) -> None:
        try:
            while (message := await _receive(self._reader))[:1] == _FRAME:
                self.outbox.put(message[1:])
            end = json.loads(message[1:])
            self.outbox.close(end["code"], end["reason"])
        except (OSError, EOFError, ValueError):
            self.outbox.close(*RESTARTED)


class HostedRooms:
    """The rooms of one workspace, where this process hosts it, and the socket at which other processes join them.
    Unavailable (of `open`) where another process hosts it."""

    def __init__(self, live: "LiveDocuments", threads: ThreadPool, count: Callable[[int], None]) -> None:
        self.live = live
        self._threads = threads
        self._count = count  # called with how many more rooms there are
        self._rooms: dict[str, Room] = {}
        self._releasing: set[asyncio.Task[None]] = set()
        self._serving: set[asyncio.Task[None]] = set()  # connections of other processes
        self._server: asyncio.Server | None = None
        self._inode: tuple[int, int] | None = None  # that of our socket: another host may have put its own there
        self._is_unreachable = False  # the socket could not be made

    async def join(self, doc_id: str, actor: Actor, writes: bool) -> Member:
        room = self._rooms.get(doc_id)
        if room is None:
            room = self._rooms[doc_id] = Room(self.live, doc_id, self._threads, self._remove)
            self._count(1)
        return await room.join(actor, writes)

    def _remove(self, room: Room) -> None:
        """Forget an empty room and release its document; a client that joins meanwhile opens it in a new room."""
        del self._rooms[room.doc_id]
        self._count(-1)
        task = asyncio.ensure_future(room.release())
        self._releasing.add(task)
        task.add_done_callback(self._releasing.discard)

    async def wait_released(self) -> None:
        while self._releasing:
            await asyncio.gather(*self._releasing)

    async def listen(self) -> None:
        """Make the socket, as holder of the lock; again if its file was removed."""
        place = self.live.socket
        if self._server is not None and _inode_of(place) is None:
            self._server.close()
            self._server = None
        if self._server is None and not self._is_unreachable:
            try:
                place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                with socket_address(place) as address:  # a socket that a dead host left there is replaced
                    self._server = await asyncio.start_unix_server(self._accept, address, start_serving=False)
                os.chmod(place, 0o600)  # before anybody can connect
                self._inode = _inode_of(place)
                await self._server.start_serving()
            except OSError as error:
                self._is_unreachable = True
                log.warning("other processes cannot reach the live documents here: %s", error)

    async def close(self) -> None:
        for room in self._rooms.values():
            room.close(*RESTARTED)
        if self._server is not None:
            if _inode_of(self.live.socket) == self._inode:  # before it is closed: then another may get its number
                self.live.socket.unlink(missing_ok=True)
            self._server.close()
        if self._serving:
            _, late = await asyncio.wait(self._serving, timeout=CLOSE_SECONDS)
            for task in late:
                task.cancel()
        await self.wait_released()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving = asyncio.ensure_future(self._serve(reader, writer))
        self._serving.add(serving)
        serving.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one call of another process."""
        with contextlib.suppress(OSError, EOFError, TimeoutError, ValueError), contextlib.closing(writer):
            call, body = json.loads(await _receive(reader)), await _receive(reader)
            actor = Actor(**call["actor"])
            try:
                if call["ask"] == "join":
                    member = await self.join(call["doc"], actor, call["writes"])
                    return await _forward_frames(reader, writer, member)
                answer = await self._threads.run(answer_call, self.live, call["ask"], call["doc"], body, actor)
            except Problem as problem:
                return await _send(writer, encode_problem(problem))
            await _send(writer, b"{}", answer)


class LiveHosts:
    """The live documents of all workspaces, whichever process hosts them. Used on the event loop only."""

    def __init__(self, library: Library, count: Callable[[int], None]) -> None:
        """`count` is called when clients open a document (1) and when the last has left it (-1)."""
        self._library, self._count = library, count
        self._threads = ThreadPool(threads=THREADS)
        self._calling = ThreadPool(
            threads=THREADS
        )  # a pool of its own: two processes that call each other still have threads to answer
        self._hosted: dict[str, HostedRooms] = {}  # by the identity of the store
        self._polling: asyncio.Task[None] | None = None

    async def __aenter__(self) -> None:
        self._polling = asyncio.create_task(self._poll())

    async def __aexit__(self, *error: object) -> None:
        if self._polling is not None:
            self._polling.cancel()
        for rooms in self._hosted.values():
            await rooms.close()
        self._hosted.clear()

    async def _poll(self) -> None:
        """Listen for every workspace that this process hosts, so that others can connect even before a client does."""
        while True:
            try:
                for ws in await self._threads.run(self._library.workspaces):
                    if ws.live is not None and ws.live.is_hosting:
                        await (await self._open_rooms(ws)).listen()
            except Exception as problem:  # the library cannot be opened, which every call answers
                log.debug("no live documents yet: %s", problem)
            await asyncio.sleep(POLL_SECONDS)

    async def join(self, ws: Workspace, doc_id: str, actor: Actor, writes: bool) -> Member | ForwardedMember:
        """Join the room of a document. NotFound, NotText, TooLarge, Limited; Unavailable while no process hosts it."""
        live, last = _live_documents(ws), no_answer_error()
        for _ in range(MAX_TRIES):
            if await self._threads.run(live.try_host):
                return await (await self._open_rooms(ws)).join(doc_id, actor, writes)
            try:
                with socket_address(live.socket) as address:
                    reader, writer = await asyncio.open_unix_connection(address)
                try:
                    await _send(writer, encode_call("join", doc_id, actor, writes=writes), b"")
                    raise_problem(await _receive(reader))
                except BaseException:
                    writer.close()
                    raise
                return ForwardedMember(reader, writer)
            except Unavailable as problem:
                last = problem
            except (OSError, EOFError):  # the host has just gone, or has not begun to listen
                pass
            await asyncio.sleep(RETRY_SECONDS)
        raise last

    async def call(self, ws: Workspace, what: HostCall, doc: str, actor: Actor, body: bytes = b"") -> bytes:
        """Make a call that only the host can answer."""
        return await self._calling.run(call_host, _live_documents(ws), what, doc, body, actor)

    async def fetch_names(self, ws: Workspace, ids: Iterable[str]) -> DocumentNames:
        """The paths of these documents in a workspace."""
        answer = json.loads(await self.call(ws, "names", "", Actor(), json.dumps(list(ids)).encode()))
        paths = {doc_id: None if path is None else NotePath(path) for doc_id, path in answer["paths"].items()}
        return DocumentNames(answer["folder_id"], paths)

    async def _open_rooms(self, ws: Workspace) -> HostedRooms:
        rooms, live = self._hosted.get(ws.store.identity), _live_documents(ws)
        if rooms is not None and rooms.live is not live:  # the workspace was opened anew
            self._hosted.pop(ws.store.identity, None)
            await rooms.close()
            rooms = self._hosted.get(ws.store.identity)
        if rooms is None:
            rooms = self._hosted[ws.store.identity] = HostedRooms(live, self._threads, self._count)
        return rooms


def _live_documents(ws: Workspace) -> "LiveDocuments":
    if ws.live is None:
        raise no_such_document()
    return ws.live


async def _forward_frames(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, member: Member) -> None:
    """Forward frames between a room and the process of a member, until either ends."""

    async def read() -> None:
        with contextlib.suppress(OSError, EOFError):
            while not member.outbox.is_closed:
                await member.receive(await _receive(reader))
        member.outbox.close(GOING, "")

    reading = asyncio.create_task(read())
    try:
        await _send(writer, b"{}")
        while (frame := await member.outbox.next()) is not None:
            await _send(writer, _FRAME + frame)
        end = {"code": member.outbox.code, "reason": member.outbox.reason}
        await _send(writer, _END + json.dumps(end).encode())
    finally:
        reading.cancel()
        await member.leave_room()


async def _send(writer: asyncio.StreamWriter, *messages: bytes) -> None:
    """Send messages; OSError if the other process has disconnected."""
    for message in messages:
        if writer.is_closing():  # uvloop has a RuntimeError for it
            raise ConnectionResetError
        writer.write(frame_message(message))
        async with asyncio.timeout(STALLED_SECONDS):
            await writer.drain()


async def _receive(reader: asyncio.StreamReader) -> bytes:
    """Receive one message; EOFError at the end."""
    (size,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
    if size > MAX_MESSAGE_BYTES:
        raise EOFError
    return await reader.readexactly(size)


def _inode_of(place: Path) -> tuple[int, int] | None:
    """The device and inode of a file; None if there is none."""
    with contextlib.suppress(FileNotFoundError):
        found = place.stat()
        return found.st_dev, found.st_ino
    return None
