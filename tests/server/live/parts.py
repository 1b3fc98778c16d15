"""A server with live documents over real HTTP, in a thread of this process, and Yjs clients that talk to it."""

import contextlib
import http.client
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pycrdt import Doc, Text
from tests.conftest import write_files
from tests.server.guarded import serving
from tests.waiting import eventually
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from notewright.accounts.base import Grant
from notewright.app.compose_http import Site
from notewright.config.load import Config, WorkspaceConfig
from notewright.engine.library import new_token
from notewright.notes.path import NotePath
from notewright.server.listen import uvicorn_server
from notewright.server.listen.bounded_protocol import ConnectionLimits
from notewright.server.live import frames
from notewright.server.live.frames import ClientState

NOTES = {
    "Tea.md": "Steep it.\n",
    "Recipes/Broth.md": "Salt and water.\n",
    "Hidden/Door.md": "Nobody knows.\n",
    "cup.png": b"\x89PNG\r\n\x1a\n of a cup",
    "latin.md": b"caf\xe9\n",
}
SECONDS = 20.0  # for anything that must come


class LiveClient:
    """Speaks the y-websocket protocol, one call at a time: what came is taken in by `until` alone."""

    def __init__(self, wire: ClientConnection) -> None:
        self.wire = wire
        self.doc: Doc[Any] = Doc()
        self.text = self.doc.get("contents", type=Text)
        self.synced = False
        self.acked: list[bytes] = []
        self.denied: list[bytes] = []
        self.states: dict[int, ClientState] = {}
        self.send(frames.encode_sync(frames.STEP1, self.doc.get_state()))

    def send(self, frame: bytes) -> None:
        with contextlib.suppress(ConnectionClosed):  # why is told to who reads
            self.wire.send(frame)

    def type(self, words: str, at: int | None = None) -> None:
        before = self.doc.get_state()
        self.text.insert(len(self.text) if at is None else at, words)
        self.send(frames.encode_sync(frames.UPDATE, self.doc.get_update(before)))

    def ask_status(self, payload: bytes) -> None:
        self.send(frames.encode_sync_status(payload))

    def tell(self, client: int, clock: int, state: Mapping[str, Any] | None) -> None:
        self.send(frames.encode_awareness([ClientState(client, clock, None if state is None else json.dumps(state))]))

    def until(self, done: Callable[[], Any], seconds: float = SECONDS) -> bool:
        """Take in what comes until `done`, or until the time is up."""
        end = time.monotonic() + seconds
        while not done():
            try:
                self._take(self.wire.recv(timeout=max(0.0, end - time.monotonic())))
            except TimeoutError:
                return bool(done())
        return True

    def has(self, words: str) -> bool:
        return self.until(lambda: words in str(self.text))

    def sync(self) -> "LiveClient":
        assert self.until(lambda: self.synced)
        return self

    def closed(self, seconds: float = SECONDS) -> tuple[int, str]:
        """With which code and reason the server ended it."""
        try:
            self.until(lambda: False, seconds)
        except ConnectionClosed as ended:
            assert ended.rcvd is not None, "it was cut off"
            return ended.rcvd.code, ended.rcvd.reason
        raise AssertionError("it is still open")

    def _take(self, frame: str | bytes) -> None:
        assert isinstance(frame, bytes)
        if frame[0] == frames.AUTH:
            self.denied.append(frame)
            return
        for message in frames.decode_messages(frame):
            if message.kind == frames.SYNC and message.step == frames.STEP1:
                self.send(frames.encode_sync(frames.STEP2, self.doc.get_update(message.payload)))
            elif message.kind == frames.SYNC:
                self.doc.apply_update(message.payload)
                self.synced = self.synced or message.step == frames.STEP2
            elif message.kind == frames.SYNC_STATUS:
                self.acked.append(message.payload)
            elif message.kind == frames.AWARENESS:
                for one in frames.decode_awareness(message.payload):
                    if one.state is None:
                        self.states.pop(one.client, None)
                    else:
                        self.states[one.client] = one


@dataclass
class LiveServer:
    port: int
    site: Site
    notes: Path
    headers: dict[str, str] = field(default_factory=dict)

    def token(self, name: str, **narrowed: Any) -> str:
        return new_token(self.site.registry, name, Grant(**narrowed), now=time.time())

    def ask(
        self, method: str, path: str, body: Any = None, token: str | None = None, **headers: str
    ) -> http.client.HTTPResponse:
        """One request. The answer has been read: it is in `data`."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        bearer = {"authorization": f"Bearer {token}"} if token else {}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        try:
            connection.request(method, path, data, bearer | headers)
            answer = connection.getresponse()
            answer.data = answer.read()  # type: ignore[attr-defined]
            return answer
        finally:
            connection.close()

    def json(self, method: str, path: str, body: Any = None, token: str | None = None) -> Any:
        answer = self.ask(method, path, body, token)
        assert answer.status == 200, (answer.status, answer.data)  # type: ignore[attr-defined]
        return json.loads(answer.data)  # type: ignore[attr-defined]

    def address(self, path: str) -> str:
        return f"ws://127.0.0.1:{self.port}{path}"

    @contextlib.contextmanager
    def client(self, note: str, token: str | None = None, **more: Any) -> Iterator[LiveClient]:
        """In a note of the workspace, by its path; with the owner's token or another."""
        with self.at(f"/w/notes/live/{quote(note)}", token, **more) as client:
            yield client

    @contextlib.contextmanager
    def at(self, path: str, token: str | None = None, **more: Any) -> Iterator[LiveClient]:
        headers = more.pop("headers", {}) | ({"authorization": f"Bearer {token}"} if token else {})
        address = path if "://" in path else self.address(path)
        more = {"compression": None, "max_size": None, "ping_interval": None, **more}
        with connect(address, additional_headers=headers, open_timeout=SECONDS, close_timeout=2, **more) as wire:
            yield LiveClient(wire)

    def folder_id(self) -> str:
        live = self.site.library.default.live
        assert live is not None
        return live.folder_id

    def id_of(self, note: str) -> str:
        live = self.site.library.default.live
        assert live is not None
        return live.id_of(NotePath(note))

    def members(self, note: str) -> int:
        """How many clients have a note open, by what the server says."""
        hosts = self.site._hosts
        assert hosts is not None
        rooms = [room for host in hosts._hosted.values() for room in host._rooms.values()]
        return sum(len(room._members) for room in rooms if room.doc_id == self.id_of(note))

    def granted(self, note: str, token: str | None = None, **body: Any) -> Any:
        """What the server says to whoever wants a token for a note."""
        return self.json("POST", f"/doc/{self.id_of(note)}/auth", body, token)

    def says(self, note: str, words: str, seconds: float = SECONDS) -> bool:
        """The file holds these words, in time."""
        return eventually(lambda: words in (self.notes / note).read_text(), seconds)


def configured(place: Path, notes: Mapping[str, str | bytes] = NOTES, **settings: Any) -> Config:
    """`settings` by their names with `__` for the dot; those of the workspace in `workspace`."""
    write_files(place / "notes", notes)
    workspace = settings.pop("workspace", {})
    spaces = (WorkspaceConfig("Notes", "notes", str(place / "notes"), live=True, **workspace),)
    made = Config(spaces, str(place / "state"), str(place / "cache"))
    told = {"rate_limits": False} | {name.replace("__", "."): value for name, value in settings.items()}
    return replace(made, values={**made.values, **told})


@contextlib.contextmanager
def live_server(place: Path, **settings: Any) -> Iterator[LiveServer]:
    """Served as `notewright serve --http` does it. Without a token everybody who comes is the owner."""
    listening, limits = settings.pop("listening", {}), settings.pop("limits", None)
    with Site(configured(place, **settings)) as site:
        app = site.build_app()
        limits = limits or ConnectionLimits(connections=site.config["http.max_connections"])
        with serving(app, limits, ws=uvicorn_server.WEBSOCKET, **listening) as port:
            yield LiveServer(port, site, place / "notes")
