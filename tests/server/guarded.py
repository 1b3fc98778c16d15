"""A server with something to hide, and callers of every kind who come to it over real HTTP.

Two workspaces: `Garden`, which most may see, and `Quillon`, which is for nobody but its owner. Words that may reach no
one else are made up, so that one of them in an answer can only have come from where it was hidden.
"""

import contextlib
import http.client
import itertools
import json
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from tests.conftest import read_files, write_files
from tests.serving import in_thread

from notewright.accounts.base import Grant
from notewright.app.compose_http import Site
from notewright.config.load import Config, WorkspaceConfig
from notewright.engine.library import digest_of, new_token
from notewright.engine.write import edit_note
from notewright.ledger.base import Actor
from notewright.notes.edits.edit import Append
from notewright.notes.path import NotePath
from notewright.server.auth.authenticate import GuardedRoute
from notewright.server.listen import uvicorn_server
from notewright.server.listen.bounded_protocol import ConnectionLimits

WORKSPACE = "Quillon"  # the one that only its owner sees
BY_RULE, BY_TOKEN = "Zephyrine", "Marzipane"  # notes hidden by the workspace, and by a token
PATTERN = "Truffles"  # in a pattern of what is hidden, and nowhere else
HIDING = ("Private/**", "Attic/**", f"{PATTERN}*")
RULE = ("Hidden/**", "Cellar/**")
_LINKS = "[[Attic/Larder]] [[Larder]] ![[larder]] [[Larder#Shelf]] [jar](Attic/Larder.md) ![](Attic/jar.png) [[Pantry]]"
GARDEN = {
    "Tea.md": "---\ntags: [drink]\n---\n# Tea\n\nSteep it for three minutes. See [[Broth]].\n\n- [ ] buy leaves\n",
    "Recipes/Broth.md": "# Broth\n\nSalt and water. [[Tea]] comes first. #soup\n",
    f"Hidden/{BY_RULE}.md": f"---\naliases: [{BY_RULE}alias]\n---\n# {BY_RULE}\n\n{BY_RULE} is secret. [[Tea]]\n",
    f"Private/{BY_TOKEN}.md": f"---\ntags: [{BY_TOKEN}tag]\n---\n# {BY_TOKEN}\n\n{BY_TOKEN} too. [[Tea]] #{BY_TOKEN}\n",
    f"Private/{BY_TOKEN}folder/Deep.md": f"{BY_TOKEN}deep [[Tea]]\n- [ ] {BY_TOKEN}task\n",
    # Seen by everybody, and full of links to what is not there for a guest:
    "Map.md": f"# Map\n\n{_LINKS} [[Cellar/Door]] [[Door]] [[Cup]] [[Tea]] #shared\n",
    "Recipes/List.md": "# List\n\n- [[Map]]\n- [[Attic/Larder|the larder]]\n- [[Door#Key]]\n- [[Broth]] #shared/soup\n",
    "Board.canvas": '{"nodes": [{"id": "1", "type": "file", "file": "Attic/Larder.md"}], "edges": []}',
    # Hidden by the token, by the rule, and by a pattern for files; some with names that others have too:
    "Attic/Larder.md": (
        f"---\ntitle: {BY_TOKEN}title\naliases: [Pantry, {BY_TOKEN}alias]\ntags: [shared, {BY_TOKEN}tag2]\n---\n"
        f"# {BY_TOKEN}head\n\n## Shelf\n\n{BY_TOKEN}jam [[Map]] [[Tea]] [[Broth]] ^{BY_TOKEN.lower()}block\n"
    ),
    "Attic/Tea.md": f"---\naliases: [Broth]\n---\n{BY_TOKEN}tea [[Map]] [[Attic/Larder]]\n",
    "Attic/jar.png": b"\x89PNG\r\n\x1a\n of a jar",
    "Cellar/Door.md": f"---\naliases: [Cup]\n---\n# {BY_RULE}door\n\n## Key\n\n{BY_RULE}key [[Map]] [[List]] #shared\n",
    f"{PATTERN}.md": f"{PATTERN} [[Tea]] [[Map]] #shared\n",
    "cup.png": b"\x89PNG\r\n\x1a\n and more",
}
QUILLON = {f"{WORKSPACE}note.md": f"# {WORKSPACE}note\n\n{WORKSPACE}text of nobody's business.\n"}
CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "list", "arguments": {}}}
ACTOR = Actor("ann", "claude", "notes", "edit")
HTML, JSON = {"accept": "text/html"}, {"accept": "application/json"}


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")

    @property
    def whole(self) -> str:
        """Everything the caller gets to see, but for what differs from one request to the next."""
        told = {name: value for name, value in self.headers.items() if name not in ("date", "x-request-id")}
        return f"{self.status}\n{json.dumps(told)}\n{self.text}"

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Guarded:
    """The server, from outside and from inside."""

    port: int
    site: Site
    app: Starlette
    place: Path
    tokens: dict[str, str] = field(default_factory=dict)
    change: str = ""  # a change everybody who sees the garden may look at
    names: list[str] = field(default_factory=list)  # of more changes, which differ from one server to the next
    _addresses: Iterator[int] = field(default_factory=lambda: itertools.count(2))

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def doors(self) -> list[GuardedRoute]:
        """Every route there is: one that is no Door has no decision about who may come."""
        doors = [route for route in self.app.routes if isinstance(route, GuardedRoute)]
        assert len(doors) == len(self.app.routes), "a route is no Door"
        return doors

    def token(self, name: str, **narrow: Any) -> str:
        return new_token(self.site.registry, name, Grant(**narrow), now=time.time())

    def bearer(self, who: str) -> dict[str, str]:
        return {"authorization": f"Bearer {self.tokens[who]}"}

    def ask(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes | None = None, *,
        stranger: bool = False,
    ) -> Answer:  # fmt: skip
        """One request, exactly as it is written here. A `stranger` comes from another address each time, as one does
        who does not want to be told to slow down."""
        source = (f"127.{next(self._addresses) // 250 % 250 + 1}.7.{next(self._addresses) % 250 + 1}", 0)
        connection = http.client.HTTPConnection(
            "127.0.0.1", self.port, timeout=20, source_address=source if stranger else None
        )
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in {"host": f"127.0.0.1:{self.port}", **(headers or {})}.items():
                connection.putheader(name, value)
            if body is not None or method in ("POST", "PUT", "PATCH"):
                connection.putheader("content-length", str(len(body or b"")))
            connection.endheaders(body)
            came = connection.getresponse()
            streams = came.headers.get("content-type", "").startswith("text/event-stream")
            said = came.read1(1 << 16) if streams else came.read()
            return Answer(came.status, {name.lower(): value for name, value in came.getheaders()}, said)
        finally:
            connection.close()

    def raw(self, data: bytes, seconds: float = 5.0) -> bytes:
        """Everything that comes back for these bytes, until the server ends it or nothing comes any more."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=seconds) as wire:
            heard = b""
            with contextlib.suppress(OSError):
                wire.sendall(data)
                while piece := wire.recv(1 << 16):
                    heard += piece
            return heard

    def call(self, who: str, surface: str, tool: str, args: Mapping[str, Any], where: str = "/mcp") -> Answer:
        message = {**CALL, "params": {"name": tool, "arguments": dict(args)}}
        return self.rpc(who, surface, message, where)

    def rpc(self, who: str, surface: str, message: Mapping[str, Any], where: str = "/mcp") -> Answer:
        headers = {**JSON, "content-type": "application/json", **self.bearer(who), **self.session(who, surface)}
        return self.ask("POST", f"{where}/{surface}", headers, json.dumps(message).encode())

    def session(self, who: str, surface: str) -> dict[str, str]:
        """For surfaces that want one; made once for each caller."""
        kept = self._sessions.get((who, surface))
        if kept is None:
            hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
            headers = {**JSON, "content-type": "application/json", **self.bearer(who)}
            begin = json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}).encode()
            given = self.ask("POST", f"/mcp/{surface}", headers, begin).headers.get("mcp-session-id")
            kept = self._sessions[who, surface] = {"mcp-session-id": given} if given else {}
            done = json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}).encode()
            self.ask("POST", f"/mcp/{surface}", {**headers, **kept}, done)
        return kept

    _sessions: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)

    def cookie(self, who: str) -> dict[str, str]:
        """What a browser has after it signed in."""
        registry, digest = self.site.registry, digest_of(self.tokens[who])
        from notewright.server.auth.browser_session import BrowserSessions

        return {"cookie": f"notewright={BrowserSessions(registry.secret('cookies')).issue(digest, time.time())}"}

    def files(self) -> dict[str, bytes]:
        """Every byte of every note there is."""
        return read_files(self.place / "notes")


def configured(place: Path, garden: Mapping[str, str | bytes] = GARDEN, **settings: Any) -> Config:
    """`settings` by their names with `__` for the dot."""
    write_files(place / "notes" / "Garden", garden)
    write_files(place / "notes" / WORKSPACE, QUILLON)
    for folder in ("backups", "root"):
        (place / folder).mkdir(exist_ok=True)
    spaces = (
        WorkspaceConfig("Garden", "garden", str(place / "notes" / "Garden"), hide=RULE),
        WorkspaceConfig(WORKSPACE, WORKSPACE.lower(), str(place / "notes" / WORKSPACE)),
    )
    made = Config(spaces, str(place / "state"), str(place / "cache"))
    told = {"backup.to": str(place / "backups"), "workspaces_root": str(place / "root")}
    told |= {"http.max_request_bytes": 1 << 20, "rate_limits": False}
    told |= {name.replace("__", "."): value for name, value in settings.items()}
    return replace(made, values={**made.values, **told})


@contextlib.contextmanager
def guarded(
    place: Path, *, limits: ConnectionLimits | None = None, tokens: bool = True, **settings: Any
) -> Iterator[Guarded]:
    """Served as `notewright serve --http` does it, in a thread of this process. Without tokens everybody who comes is
    the owner."""
    config = configured(place, **settings)
    with Site(config) as site:
        app = site.build_app()
        with serving(app, limits) as port:
            running = Guarded(port, site, app, place)
            running.tokens |= _tokens(running) if tokens else {}
            running.change = _changed(site)
            yield running


@contextlib.contextmanager
def serving(app: Starlette, limits: ConnectionLimits | None = None, **more: Any) -> Iterator[int]:
    """The port at which an application is served with the bounds that a real server has."""
    told = uvicorn_server.settings() | {"timeout_graceful_shutdown": 2} | more
    server = uvicorn_server.Server(uvicorn.Config(app, **told), stopping=app.state.end_streams, limits=limits)
    with in_thread(server) as port:
        yield port


def _tokens(server: Guarded) -> dict[str, str]:
    """One caller of every kind. Those that are no good any more were good once."""
    narrow: dict[str, dict[str, Any]] = {
        "owner": {},
        "reader": {"read_only": True},
        "outsider": {"workspaces": ("meadow",)},
        "gardener": {"workspaces": ("garden",)},
        "guest": {"workspaces": ("garden",), "hide": HIDING},
        "guest-reader": {"workspaces": ("garden",), "hide": HIDING, "read_only": True},
        "lens": {"surfaces": ("lens",)},
        "page": {"surfaces": ("page",)},
        "clerk": {"write_under": ("Inbox/**",)},
        "revoked": {},
    }
    tokens = {name: server.token(name, **given) for name, given in narrow.items()}
    server.site.registry.revoke("revoked", time.time())
    old = time.time() - 1000
    tokens["expired"] = new_token(server.site.registry, "expired", Grant(), now=old, expires=old + 10)
    tokens["wrong"] = "nw_" + "A" * 43
    return tokens


def _changed(site: Site) -> str:
    ws = next(ws for ws in site.library.workspaces() if ws.id == "garden")
    done = edit_note(ws.by(ACTOR), NotePath("Tea.md"), [Append("One more line.\n")])
    assert done.change_id
    return done.change_id
