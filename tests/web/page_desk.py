"""The web page on real folders: served in a thread of this process, looked at over real HTTP."""

import contextlib
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path
from typing import Any

import httpx2
import uvicorn
from tests.conftest import write_files
from tests.serving import in_thread

from notewright.accounts.base import Accounts, Grant
from notewright.accounts.sqlite import SqliteAccounts
from notewright.app import compose, compose_http
from notewright.app.opening import close_workspace, open_workspace
from notewright.config.load import Config, WorkspaceConfig
from notewright.engine.library import new_token
from notewright.engine.workspace import Workspace
from notewright.engine.write import edit_note
from notewright.ledger.base import Actor
from notewright.notes.edits.edit import Append
from notewright.notes.path import NotePath
from notewright.server.listen.uvicorn_server import WEBSOCKET

HTML = {"accept": "text/html"}


@dataclass
class Site:
    """A served page. `agent` is another process's way to the same notes."""

    base: str
    config: Config
    registry: Accounts
    opened: list[Workspace] = field(default_factory=list)
    clients: list[httpx2.Client] = field(default_factory=list)

    def client(self, token: str | None = None, **headers: str) -> httpx2.Client:
        """A browser without scripts: signed in by cookie where it has a token."""
        client = httpx2.Client(base_url=self.base, headers=HTML | headers, timeout=30, follow_redirects=True)
        self.clients.append(client)
        if token is not None:
            page = client.get("/sign-in")
            done = client.post("/sign-in", data={"token": token, "csrf": csrf(page), "next": "/"})
            assert done.status_code == 200 and "Activity" in done.text, done.text
        return client

    def token(self, name: str = "me", **narrow: Any) -> str:
        return new_token(self.registry, name, Grant(**narrow), now=time.time())

    def agent(self, name: str = "claude", workspace: int = 0) -> Workspace:
        """The same notes with an index and a ledger of its own, as a stdio server has them."""
        ws = open_workspace(self.config.workspaces[workspace], self.config, watch=False)
        self.opened.append(ws)
        return ws.by(Actor("ann", name, "notes", "edit"))

    def close(self) -> None:
        for client in self.clients:
            client.close()
        for ws in self.opened:
            close_workspace(ws)

    def place(self, workspace: int = 0) -> Path:
        return Path(self.config.workspaces[workspace].location)


def append(ws: Workspace, path: str, text: str) -> str:
    """An agent adds a line; the name of the change."""
    done = edit_note(ws, NotePath(path), [Append(text)])
    assert done.change_id
    return done.change_id


def csrf(page: httpx2.Response) -> str:
    found = re.search(r'name="csrf" value="(\w+)"', page.text)
    assert found, page.text
    return found[1]


def words(page: httpx2.Response) -> str:
    """What a reader sees, without the tags."""
    text = re.sub(r"<(script|style|title).*?</\1>", "", page.text, flags=re.S)
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", text)))


def config_of(place: Path, files: Mapping[str, Mapping[str, str | bytes]], **settings: Any) -> Config:
    """A configuration of these workspaces, by name; `settings` are those of the first."""
    asked = []
    for name, content in files.items():
        write_files(place / name, content)
        asked.append(WorkspaceConfig(name, name.lower(), str(place / name), **(settings if not asked else {})))
    return Config(tuple(asked), str(place / "state"), str(place / "cache"))


@contextlib.contextmanager
def served(config: Config, registry: Accounts | None = None) -> Iterator[Site]:
    with compose_http.Site(config, registry or SqliteAccounts.in_memory()) as whole:
        site = whole.build_app([compose.load_surface("notes", config)])
        server = uvicorn.Server(uvicorn.Config(site, log_level="error", ws=WEBSOCKET, timeout_graceful_shutdown=5))
        with in_thread(server) as port:
            looked_at = Site(f"http://127.0.0.1:{port}", config, whole.registry)
            try:
                yield looked_at
            finally:
                looked_at.close()
                if server.started:
                    server.servers[0].get_loop().call_soon_threadsafe(site.state.end_streams)
