"""A small sync server beside the page: y-websocket by path with frame 102, and each change at once in the file.

Stands where `server/live` will, for the tests of the page's editor alone.
"""

import asyncio
import contextlib
import socket
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import uvicorn
from pycrdt import Decoder, Doc, Text
from tests.server.page_desk import Site

from notewright.accounts.sqlite import SqliteAccounts
from notewright.app import compose, compose_http
from notewright.app.opening import OpenWorkspaces
from notewright.config.load import Config
from notewright.engine.workspace import Workspace
from notewright.errors import NotText
from notewright.notes.path import NotePath


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def sync(kind: int, data: bytes) -> bytes:
    return bytes([0, kind]) + varint(len(data)) + data


class Documents:
    """Ids and documents of one folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.paths: dict[str, NotePath] = {}
        self.docs: dict[str, Doc[Any]] = {}

    def id_of(self, path: NotePath) -> str:
        try:
            (self.root / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise NotText(f"{path} is not UTF-8 and cannot be live") from None
        for known, at in self.paths.items():
            if at == path:
                return known
        made = str(uuid.uuid4())
        self.paths[made] = path
        return made

    def path_of(self, doc_id: str) -> NotePath | None:
        return self.paths.get(doc_id)

    def doc(self, path: NotePath) -> Doc[Any]:
        known = self.id_of(path)
        if known not in self.docs:
            doc: Doc[Any] = Doc()
            doc["contents"] = Text((self.root / path).read_text(encoding="utf-8"))
            self.docs[known] = doc
        return self.docs[known]


@dataclass
class StandIn:
    """The ASGI application of the page, with sockets."""

    app: Any
    live: Documents
    away: bool = False
    silent: bool = False  # answers nothing that is asked about the disk
    denies: bool = False
    sockets: dict[Any, str] = field(default_factory=dict)
    states: dict[Any, bytes] = field(default_factory=dict)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "websocket":
            return await self.app(scope, receive, send)
        await receive()
        path = NotePath(unquote(scope["raw_path"].decode()).partition("/live/")[2])
        if self.away:
            return await send({"type": "websocket.close", "code": 1013})
        await send({"type": "websocket.accept"})
        doc = self.live.doc(path)
        known = self.live.id_of(path)
        others = [state for other, state in self.states.items() if self.sockets.get(other) == known]
        self.sockets[send] = known
        first = [sync(0, doc.get_state()), *others, *([b"\x02\x00\x06denied"] if self.denies else [])]
        for frame in first:
            await send({"type": "websocket.send", "bytes": frame})
        try:
            while (message := await receive())["type"] == "websocket.receive":
                await self.hear(message["bytes"], doc, send)
        finally:
            self.sockets.pop(send, None)
            self.states.pop(send, None)

    async def hear(self, frame: bytes, doc: Doc[Any], send: Any) -> None:
        if frame[0] == 102:
            if not self.silent:
                await send({"type": "websocket.send", "bytes": frame})
        elif frame[0] == 1:
            self.states[send] = frame
            await self.tell(frame, send)
        elif frame[:2] == b"\0\0":
            vector = Decoder(frame[2:]).read_message()
            await send({"type": "websocket.send", "bytes": sync(1, doc.get_update(vector or b"\0"))})
        else:
            update = Decoder(frame[2:]).read_message()
            doc.apply_update(update or b"\0\0")
            path = self.live.paths[self.sockets[send]]
            (self.live.root / path).write_text(str(doc["contents"]), encoding="utf-8")
            await self.tell(sync(2, update or b"\0\0"), send)

    async def tell(self, frame: bytes, source: Any) -> None:
        for other, known in list(self.sockets.items()):
            if other is not source and known == self.sockets.get(source):
                await other({"type": "websocket.send", "bytes": frame})

    async def drop_all(self) -> None:
        for other in list(self.sockets):
            await other({"type": "websocket.close", "code": 1012})


@dataclass
class LiveSite(Site):
    sync: StandIn = None  # type: ignore[assignment]
    loop: asyncio.AbstractEventLoop = None  # type: ignore[assignment]

    def go_away(self) -> None:
        self.sync.away = True
        asyncio.run_coroutine_threadsafe(self.sync.drop_all(), self.loop).result(10)

    def come_back(self) -> None:
        self.sync.away = False

    def rename(self, old: str, new: str) -> None:
        """Its document keeps its id; whoever has it open is asked to come again."""
        known = self.sync.live.id_of(NotePath(old))
        (self.place() / new).parent.mkdir(exist_ok=True)
        (self.place() / old).rename(self.place() / new)
        self.sync.live.paths[known] = NotePath(new)
        asyncio.run_coroutine_threadsafe(self.sync.drop_all(), self.loop).result(10)

    def replace(self, path: str, text: str) -> None:
        """Another note of the same name."""
        del self.sync.live.paths[self.sync.live.id_of(NotePath(path))]
        (self.place() / path).write_text(text)


class LiveShelf(OpenWorkspaces):
    live: Documents | None = None

    def _now(self) -> tuple[Workspace, ...]:
        return tuple(replace(ws, live=self.live if ws.id == "main" else None) for ws in super()._now())


@contextlib.contextmanager
def served_live(config: Config) -> Iterator[LiveSite]:
    registry = SqliteAccounts.in_memory()
    live = Documents(Path(config.workspaces[0].location))

    def opened() -> LiveShelf:
        shelf = LiveShelf(config, registry)
        shelf.live = live
        return shelf

    with compose_http.Site(config, registry, opened) as whole:
        app = whole.app([compose.surface_named("notes", config)])
        sync_server = StandIn(app, live)
        settings = uvicorn.Config(sync_server, log_level="error", timeout_graceful_shutdown=1, ws="websockets-sansio")
        server = uvicorn.Server(settings)
        with socket.create_server(("127.0.0.1", 0)) as listening:
            thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
            thread.start()
            base = f"http://127.0.0.1:{listening.getsockname()[1]}"
            site = LiveSite(base, config, whole.registry, sync=sync_server)
            while not server.started:
                threading.Event().wait(0.01)
            site.loop = server.servers[0].get_loop()
            try:
                yield site
            finally:
                site.close()
                site.loop.call_soon_threadsafe(app.state.leave)
                server.should_exit = True
                thread.join(20)
                assert not thread.is_alive()
