"""What is told while it happens is told to those who may know it, and for as long as they may."""

import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.server.guarded import ACTOR, BY_TOKEN, HTML, Guarded, guarded
from tests.server.lines import ENVELOPE
from tests.waiting import eventually

from notewright.engine.write import put
from notewright.notes.path import NotePath

pytestmark = pytest.mark.slow

MODERN = {
    "accept": "application/json, text/event-stream",
    "content-type": "application/json",
    "mcp-protocol-version": "2026-07-28",
    "mcp-method": "subscriptions/listen",
}
WISH = {
    "jsonrpc": "2.0",
    "id": 7,
    "method": "subscriptions/listen",
    "params": {
        "_meta": ENVELOPE,
        "notifications": {
            "resourcesListChanged": True,
            "resourceSubscriptions": ["note:///Tea.md", f"note:///Private/{BY_TOKEN}.md"],
        },
    },
}


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded(tmp_path_factory.mktemp("guarded")) as running:
        yield running


class Stream:
    """Everything that came so far, and whether more may come."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.heard, self.ended = "", False
        self._response = response
        self.thread = threading.Thread(target=self._listen, daemon=True)
        self.thread.start()

    @property
    def news(self) -> str:
        """Without the line that tells a client of its own wishes."""
        return "\n".join(line for line in self.heard.splitlines() if "acknowledged" not in line)

    def _listen(self) -> None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            while piece := self._response.read1(1 << 16):
                self.heard += piece.decode()
        self.ended = True


@contextlib.contextmanager
def streaming(server: Guarded, method: str, path: str, headers: dict[str, str], wish: Any = None) -> Iterator[Stream]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request(method, path, json.dumps(wish) if wish else None, headers)
    response = connection.getresponse()
    assert response.status == 200, response.read()
    wire = connection.sock
    stream = Stream(response)
    try:
        yield stream
    finally:
        with contextlib.suppress(OSError):
            wire.shutdown(socket.SHUT_RDWR)
        stream.thread.join(10)
        connection.close()


def change(server: Guarded, path: str, text: str) -> None:
    ws = next(ws for ws in server.site.library.workspaces() if ws.id == "garden").by(ACTOR)
    assert put(ws, NotePath(path), text.encode()).change_id


LISTENING = [("GET", "/events?after=0", {**HTML}, None), ("POST", "/w/garden/mcp/notes", MODERN, WISH)]


@pytest.mark.parametrize(("method", "path", "headers", "wish"), LISTENING, ids=["page", "tools"])
def test_what_happens_to_a_hidden_note_is_not_told(
    server: Guarded, method: str, path: str, headers: dict[str, str], wish: Any
) -> None:
    with streaming(server, method, path, headers | server.bearer("guest"), wish) as stream:
        assert eventually(lambda: stream.heard)
        change(server, f"Private/{BY_TOKEN}.md", f"new {BY_TOKEN}")
        change(server, f"Private/{BY_TOKEN}new.md", f"new {BY_TOKEN}")
        change(server, "Tea.md", "new tea")
        assert eventually(lambda: "Tea.md" in stream.news)
        time.sleep(0.6)
        assert BY_TOKEN not in stream.news


@pytest.mark.parametrize(("method", "path", "headers", "wish"), LISTENING, ids=["page", "tools"])
def test_a_stream_ends_with_the_right_to_listen(
    server: Guarded, method: str, path: str, headers: dict[str, str], wish: Any
) -> None:
    with streaming(server, method, path, headers | server.bearer("guest"), wish) as stream:
        assert eventually(lambda: stream.heard)
        assert server.site.registry.revoke("guest", time.time())
        assert eventually(lambda: stream.ended, 10)
        told = stream.heard
        change(server, "Tea.md", "nobody's business any more")
        assert stream.heard == told


def test_a_stream_ends_when_more_is_hidden_than_when_it_began(server: Guarded) -> None:
    headers, hidden = MODERN | server.bearer("gardener"), {"hide": ["Hidden/**", "Tea*"]}
    with streaming(server, "POST", "/w/garden/mcp/notes", headers, WISH) as stream:
        assert eventually(lambda: stream.heard)
        owner = {**server.bearer("owner"), "content-type": "application/json"}
        changed = server.ask("PATCH", "/api/v1/workspaces/garden", owner, json.dumps(hidden).encode())
        assert changed.status == 200, changed.text
        assert eventually(lambda: stream.ended, 10)


def test_a_stream_goes_on_while_other_tokens_come_and_go(server: Guarded) -> None:
    with streaming(server, "POST", "/w/garden/mcp/notes", MODERN | server.bearer("gardener"), WISH) as stream:
        assert eventually(lambda: stream.heard)
        server.token("somebody else")
        server.site.registry.revoke("somebody else", time.time())
        time.sleep(2.5)
        change(server, "Tea.md", "still told")
        assert eventually(lambda: "Tea.md" in stream.news) and not stream.ended
