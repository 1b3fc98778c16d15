"""Other people's Yjs clients in our live documents."""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.clients.yjs import YjsClients
from tests.server.live.parts import LiveServer, live_server
from tests.server.live.test_workers import served

pytestmark = pytest.mark.slow


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    with live_server(tmp_path) as running:
        yield running


def by_path(server: LiveServer, name: str, note: str = "Tea.md", **more: Any) -> dict[str, Any]:
    url = server.address("/w/notes/live")
    return {"name": name, "kind": "y-websocket", "url": url, "room": note, **more}


def by_token(server: LiveServer, name: str, note: str = "Tea.md", **more: Any) -> dict[str, Any]:
    doc_id = server.id_of(note)
    auth = f"http://127.0.0.1:{server.port}/doc/{doc_id}/auth"
    return {"name": name, "kind": "y-sweet", "doc": doc_id, "auth": auth, **more}


def test_real_clients_of_both_kinds_share_a_note_and_see_each_other(server: LiveServer, clients: YjsClients) -> None:
    clients.do("open", **by_path(server, "Ann"))
    clients.do("open", **by_token(server, "Bob"))
    assert clients.until("Ann", lambda seen: seen["synced"])["text"] == "Steep it.\n"
    assert clients.until("Bob", lambda seen: seen["synced"])["text"] == "Steep it.\n"
    clients.until("Ann", lambda seen: seen["people"] == ["Ann", "Bob"])
    clients.until("Bob", lambda seen: seen["people"] == ["Ann", "Bob"])
    clients.do("type", name="Ann", words="茶 🍵 é\n")
    clients.do("type", name="Bob", words="First. ", at=0)
    both = "First. Steep it.\n茶 🍵 é\n"
    clients.until("Bob", lambda seen: seen["text"] == both and seen["saved"])
    clients.until("Ann", lambda seen: seen["text"] == both)
    assert server.says("Tea.md", both)
    clients.do("leave", name="Bob")
    clients.until("Ann", lambda seen: seen["people"] == ["Ann"])


def test_a_reader_with_a_real_client_changes_nothing(server: LiveServer, clients: YjsClients) -> None:
    owner = server.token("owner")
    clients.do("open", **by_path(server, "Ann", bearer=owner))
    clients.do("open", **by_token(server, "Bob", bearer=owner, body={"authorization": "read-only"}))
    clients.until("Ann", lambda seen: seen["synced"])
    clients.until("Bob", lambda seen: seen["synced"] and seen["saved"])
    clients.do("type", name="Bob", words="Forged.")
    clients.do("type", name="Ann", words="Honest.\n")
    assert "Honest." in clients.until("Bob", lambda seen: "Honest." in seen["text"])["text"]
    assert not clients.look("Bob")["saved"], "what was thrown away does not look saved"
    assert "Forged" not in clients.look("Ann")["text"]
    assert server.says("Tea.md", "Honest.") and not server.says("Tea.md", "Forged", seconds=0)


def test_a_real_client_does_not_knock_for_ever_where_nothing_is(server: LiveServer, clients: YjsClients) -> None:
    clients.do("open", **by_path(server, "Ann", "Nowhere.md"))
    closed = clients.until("Ann", lambda seen: seen["closed"])["closed"]
    assert closed["code"] == 4404 and "Nowhere.md" in closed["reason"]


def test_a_person_who_lost_the_right_is_out(server: LiveServer, clients: YjsClients) -> None:
    server.token("owner")
    clients.do("open", **by_path(server, "Guest", bearer=server.token("guest")))
    clients.until("Guest", lambda seen: seen["synced"])
    server.site.registry.revoke("guest", time.time())
    clients.until("Guest", lambda seen: not seen["synced"])
    clients.do("type", name="Guest", words="Too late.")
    assert not server.says("Tea.md", "Too late", seconds=1.5)


def test_real_clients_come_back_after_the_server_was_killed(tmp_path: Path, clients: YjsClients) -> None:
    with served(tmp_path, workers=1) as team:
        base = f"127.0.0.1:{team.port}"
        clients.do("open", name="Ann", kind="y-websocket", url=f"ws://{base}/w/notes/live", room="Tea.md")
        clients.until("Ann", lambda seen: seen["synced"])
        (made,) = re.findall(r'"docId":"([^"]+)"', team.ask("POST", "/doc/new").decode())
        clients.do("open", name="Bob", kind="y-sweet", doc=made, auth=f"http://{base}/doc/{made}/auth")
        clients.until("Bob", lambda seen: seen["synced"])
        clients.do("type", name="Ann", words="before ")
        clients.do("type", name="Bob", words="before ")
        clients.until("Bob", lambda seen: seen["saved"])
        team.process.kill()
        clients.until("Ann", lambda seen: not seen["synced"])
        clients.do("type", name="Ann", words="meanwhile ")
        clients.do("type", name="Bob", words="meanwhile ")
    with served(tmp_path, workers=1, port=team.port):
        clients.until("Bob", lambda seen: seen["synced"] and seen["saved"])
        clients.until("Ann", lambda seen: seen["synced"])
        clients.do("open", name="Eve", kind="y-websocket", url=f"ws://{base}/w/notes/live", room="Tea.md")
        clients.do("open", name="Oz", kind="y-sweet", doc=made, auth=f"http://{base}/doc/{made}/auth")
        clients.until("Eve", lambda seen: seen["text"] == "Steep it.\nbefore meanwhile ")
        clients.until("Oz", lambda seen: seen["text"] == "before meanwhile ")
    assert (tmp_path / "notes" / "Tea.md").read_text() == "Steep it.\nbefore meanwhile "
