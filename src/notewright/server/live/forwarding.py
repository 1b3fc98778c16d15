"""One process hosts the live documents of a workspace; the others lead their clients to it.

Who hosts is decided by a lock that `LiveDocuments` takes when it can: elsewhere its calls raise Unavailable. The host
listens on a Unix socket in the state directory of the workspace, for its owner alone. Another process asks there on
behalf of a client, after it has found out who that is and what they may do; then it passes frames to and fro. When the
host dies, the connections end, their clients come again, and whichever process they come to takes the lock.

How they talk is in `stores/live/host_socket.py`. After a join, each message from the host begins with a byte that says
whether a frame follows or the end.
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
from notewright.server.live.documents import DocumentNames, no_such_document
from notewright.server.live.outbox import GOING, RESTARTED, Outbox
from notewright.server.live.rooms import Member, Rooms
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
TRIES, PAUSE_SECONDS = 15, 0.2  # until a host is found
LOOK_SECONDS = 0.5  # between two looks at whether we became one
THREADS = 16
CLOSE_SECONDS = 2.0  # for other processes to hear that we end
STALLED_SECONDS = 20.0  # for which a process may take nothing of what it is sent
_FRAME, _END = b"\x00", b"\x01"


class ForwardedMember:
    """A client of ours in a room of another process."""

    def __init__(self, wire: "_Wire") -> None:
        self._wire = wire
        self.outbox = Outbox()
        self._reading = asyncio.create_task(self._read())

    async def receive(self, frame: bytes) -> None:
        with contextlib.suppress(OSError):
            await self._wire.send(frame)

    async def leave(self) -> None:
        self.outbox.close(GOING, "")
        self._reading.cancel()
        self._wire.close()

    async def _read(self) -> None:
        try:
            while (message := await self._wire.next())[:1] == _FRAME:
                self.outbox.put(message[1:])
            told = json.loads(message[1:])
            self.outbox.close(told["code"], told["reason"])
        except (OSError, EOFError, ValueError):
            self.outbox.close(*RESTARTED)


class LiveHosts:
    """The live documents of all workspaces, whichever process hosts them. On the event loop alone."""

    def __init__(self, library: Library, count: Callable[[int], None]) -> None:
        """`count` is told of documents that clients open (1) and leave."""
        self._library, self._count = library, count
        self._threads = ThreadPool(threads=THREADS)
        self._asking = ThreadPool(threads=THREADS)  # or two processes that ask each other have no thread to answer with
        self._here: dict[str, _Host] = {}  # by the identity of the store
        self._listening: asyncio.Task[None] | None = None

    async def __aenter__(self) -> None:
        self._listening = asyncio.create_task(self._listen())

    async def __aexit__(self, *error: object) -> None:
        if self._listening is not None:
            self._listening.cancel()
        for host in self._here.values():
            await host.end()
        self._here.clear()

    async def _listen(self) -> None:
        """Wherever we became the host, others must find us: also before the first client comes to us."""
        while True:
            try:
                for ws in await self._threads.run(self._library.workspaces):
                    if ws.live is not None and ws.live.is_hosting:
                        await (await self._host(ws)).listen()
            except Exception as problem:  # the library cannot be opened, and says so to all who ask
                log.debug("no live documents yet: %s", problem)
            await asyncio.sleep(LOOK_SECONDS)

    async def join(self, ws: Workspace, doc_id: str, actor: Actor, writes: bool) -> Member | ForwardedMember:
        """A client comes into a document. NotFound, NotText, TooLarge, Limited; Unavailable while nobody hosts it."""
        live, last = _live(ws), no_answer_error()
        for _ in range(TRIES):
            if await self._threads.run(live.try_host):
                return await (await self._host(ws)).join(doc_id, actor, writes)
            try:
                return await _forwarded(live, encode_call("join", doc_id, actor, writes=writes))
            except Unavailable as problem:
                last = problem
            except (OSError, EOFError):  # the host has just gone, or has not begun to listen
                pass
            await asyncio.sleep(PAUSE_SECONDS)
        raise last

    async def call(self, ws: Workspace, what: HostCall, doc: str, actor: Actor, body: bytes = b"") -> bytes:
        """One question that only the host can answer."""
        return await self._asking.run(call_host, _live(ws), what, doc, body, actor)

    async def names(self, ws: Workspace, ids: Iterable[str]) -> DocumentNames:
        """What is known of these ids in a workspace."""
        told = json.loads(await self.call(ws, "names", "", Actor(), json.dumps(list(ids)).encode()))
        paths = {doc_id: None if path is None else NotePath(path) for doc_id, path in told["paths"].items()}
        return DocumentNames(told["folder_id"], paths)

    async def _host(self, ws: Workspace) -> "_Host":
        host, live = self._here.get(ws.store.identity), _live(ws)
        if host is not None and host.live is not live:  # the workspace was opened anew
            self._here.pop(ws.store.identity, None)
            await host.end()
            host = self._here.get(ws.store.identity)
        if host is None:
            host = self._here[ws.store.identity] = _Host(live, self._threads, self._count)
        return host


def _live(ws: Workspace) -> "LiveDocuments":
    if ws.live is None:
        raise no_such_document()
    return ws.live


async def _forwarded(live: "LiveDocuments", asked: bytes) -> ForwardedMember:
    with socket_address(live.socket) as name:
        wire = _Wire(*await asyncio.open_unix_connection(name))
    try:
        await wire.send(asked)
        await wire.send(b"")
        raise_problem(await wire.next())
    except BaseException:
        wire.close()
        raise
    return ForwardedMember(wire)


class _Host(Rooms):
    """The rooms of one workspace, and the socket at which other processes come to them."""

    _server: asyncio.Server | None = None
    _file: tuple[int, int] | None = None  # that of our socket: another host may have put its own there
    _unreachable = False  # nobody can reach us

    def __init__(self, live: "LiveDocuments", threads: ThreadPool, count: Callable[[int], None]) -> None:
        super().__init__(live, threads, count)
        self._serving: set[asyncio.Task[None]] = set()  # who came from other processes

    async def listen(self) -> None:
        """The lock is ours. Also when somebody took our socket away since."""
        place = self.live.socket
        if self._server is not None and _file_at(place) is None:
            self._server.close()
            self._server = None
        if self._server is None and not self._unreachable:
            try:
                place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                with socket_address(place) as name:  # a socket that a dead host left there is replaced
                    self._server = await asyncio.start_unix_server(self._serve, name, start_serving=False)
                os.chmod(place, 0o600)  # before anybody can connect
                self._file = _file_at(place)
                await self._server.start_serving()
            except OSError as error:
                self._unreachable = True
                log.warning("other processes cannot reach the live documents here: %s", error)

    async def end(self) -> None:
        self.close(*RESTARTED)
        if self._server is not None:
            if _file_at(self.live.socket) == self._file:  # before it is closed: then its number may be given to another
                self.live.socket.unlink(missing_ok=True)
            self._server.close()
        if self._serving:
            _, late = await asyncio.wait(self._serving, timeout=CLOSE_SECONDS)
            for one in late:
                one.cancel()
        await self.closed()

    def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving = asyncio.ensure_future(self._answer(_Wire(reader, writer)))
        self._serving.add(serving)
        serving.add_done_callback(self._serving.discard)

    async def _answer(self, wire: "_Wire") -> None:
        with contextlib.suppress(OSError, EOFError, TimeoutError, ValueError), contextlib.closing(wire):
            asked, body = json.loads(await wire.next()), await wire.next()
            actor = Actor(**asked["actor"])
            try:
                if asked["ask"] == "join":
                    member = await self.join(asked["doc"], actor, asked["writes"])
                    return await _pass_on(wire, member)
                told = await self._threads.run(answer_call, self.live, asked["ask"], asked["doc"], body, actor)
            except Problem as problem:
                return await wire.send(encode_problem(problem))
            await wire.send(b"{}")
            await wire.send(told)


async def _pass_on(wire: "_Wire", member: Member) -> None:
    """Between a room and the process that its member is connected to, until one of them has gone."""

    async def read() -> None:
        with contextlib.suppress(OSError, EOFError):
            while not member.outbox.closed:
                await member.receive(await wire.next())
        member.outbox.close(GOING, "")

    reading = asyncio.create_task(read())
    try:
        await wire.send(b"{}")
        while (frame := await member.outbox.next()) is not None:
            await wire.send(_FRAME + frame)
        told = {"code": member.outbox.code, "reason": member.outbox.reason}
        await wire.send(_END + json.dumps(told).encode())
    finally:
        reading.cancel()
        await member.leave()


class _Wire:
    """Messages over a Unix socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def send(self, message: bytes) -> None:
        """OSError where the other process has gone."""
        if self._writer.is_closing():  # uvloop has a RuntimeError for it
            raise ConnectionResetError
        self._writer.write(frame_message(message))
        async with asyncio.timeout(STALLED_SECONDS):
            await self._writer.drain()

    async def next(self) -> bytes:
        """EOFError at the end."""
        (size,) = LENGTH.unpack(await self._reader.readexactly(LENGTH.size))
        if size > MAX_MESSAGE_BYTES:
            raise EOFError
        return await self._reader.readexactly(size)

    def close(self) -> None:
        self._writer.close()


def _file_at(place: Path) -> tuple[int, int] | None:
    """Which file is there: its device and its number on it."""
    with contextlib.suppress(FileNotFoundError):
        found = place.stat()
        return found.st_dev, found.st_ino
    return None
