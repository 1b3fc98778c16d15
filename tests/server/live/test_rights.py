"""Who may open which live document, for how long, and what a token for documents is worth."""

import asyncio
import json
import logging
import time
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Scope
from tests.server.live.parts import LiveServer, live_server
from websockets.exceptions import InvalidStatus

from notewright.accounts.base import Grant
from notewright.engine.library import Library, Principal, digest_of
from notewright.engine.move import move
from notewright.notes.path import NotePath
from notewright.server.auth.browser_session import COOKIE_SECONDS, BrowserSessions
from notewright.server.live import access
from notewright.server.live.access import DocumentToken, read_token
from notewright.server.site_context import SiteContext, StillAllowed

pytestmark = pytest.mark.slow

PEOPLE: dict[str, dict[str, Any]] = {
    "owner": {},
    "reader": {"read_only": True},
    "guest": {"hide": ("Hidden/**",)},
    "clerk": {"write_under": ("Recipes/**",)},
    "elsewhere": {"workspaces": ("other",)},
    "cairn": {"surfaces": ("cairn",)},
}


@pytest.fixture
def people(server: LiveServer) -> dict[str, str]:
    return {name: server.token(name, **narrowed) for name, narrowed in PEOPLE.items()}


def refused(server: LiveServer, path: str, token: str | None = None, **more: Any) -> int:
    """The status of a handshake that was refused."""
    with pytest.raises(InvalidStatus) as told, server.at(path, token, **more):
        pass
    return told.value.response.status_code


def test_nobody_comes_in_without_a_token_once_there_is_one(
    server: LiveServer, people: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    doc_id = server.id_of("Tea.md")
    for path in ("/w/notes/live/Tea.md", f"/d/{doc_id}/ws/{doc_id}", "/w/none/live/x", "/nowhere"):
        assert refused(server, path) == 401
        assert refused(server, path, "nw_" + "A" * 43) == 401
    for token in ("", "nonsense", "nwd_", "nwd_" + "A" * 80, people["owner"]):
        assert refused(server, f"/d/{doc_id}/ws/{doc_id}?token={token}") == 401
    assert server.ask("POST", f"/doc/{doc_id}/auth", {}).status == 401
    assert server.ask("GET", f"/d/{doc_id}/as-update?token=nwd_AAAA").status == 401
    assert server.ask("GET", "/ready").data == b'{"ok":true}'  # type: ignore[attr-defined]
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING], "strangers cannot fill the log"


def test_a_reader_reads_and_is_told_that_it_may_not_write(server: LiveServer, people: dict[str, str]) -> None:
    with server.client("Tea.md", people["owner"]) as owner, server.client("Tea.md", people["reader"]) as reader:
        owner.sync(), reader.sync()
        reader.ask_status(b"\x01")
        assert reader.until(lambda: reader.acked == [b"\x01"])
        reader.type("Forged. ")
        reader.ask_status(b"\x02")
        assert reader.until(lambda: reader.denied)
        owner.type("Honest.\n")
        assert reader.has("Honest.")
        assert owner.until(lambda: "Forged" in str(owner.text), seconds=0.3) is False
        assert reader.acked == [b"\x01"], "what was thrown away is not acknowledged"
    doc_id = server.id_of("Tea.md")
    assert server.ask("POST", f"/d/{doc_id}/update", b"\x00\x00", people["reader"]).status == 403
    assert b"Forged" not in server.ask("GET", f"/d/{doc_id}/as-update", token=people["reader"]).data  # type: ignore[attr-defined]


def test_what_is_hidden_is_not_there_and_neither_is_the_folder_document(
    server: LiveServer, people: dict[str, str]
) -> None:
    hidden, folder = server.id_of("Hidden/Door.md"), server.folder_id()
    unknown = folder[:37] + "0" * 36
    for doc_id in (hidden, folder, unknown):
        with server.at(f"/d/{doc_id}/ws/{doc_id}", people["guest"]) as guest:
            assert guest.closed() == (4404, "there is no such document")
        for method, path in (("POST", f"/doc/{doc_id}/auth"), ("GET", f"/d/{doc_id}/as-update")):
            answer = server.ask(method, path, token=people["guest"])
            assert (answer.status, answer.data) == (404, b'{"error":"there is no such document"}')  # type: ignore[attr-defined]
        assert server.ask("POST", f"/d/{doc_id}/update", b"\x00\x00", people["guest"]).status == 404
    with (
        server.client("Hidden/Door.md", people["guest"]) as guest,
        server.client("Hidden/Nine.md", people["guest"]) as no,
    ):
        assert guest.closed()[0] == no.closed()[0] == 4404
    assert server.ask("POST", "/doc/new", {}, people["guest"]).status == 403
    with server.client("Tea.md", people["guest"]) as guest:
        guest.sync().type("Seen.\n")
        assert server.says("Tea.md", "Seen.")
    with server.at(f"/d/{folder}/ws/{folder}", people["owner"]) as owner:
        owner.sync()


def test_rules_of_a_token_hold_in_documents(server: LiveServer, people: dict[str, str]) -> None:
    with server.client("Tea.md", people["clerk"]) as clerk:
        clerk.sync().type("No. ")
        assert clerk.until(lambda: clerk.denied)
    with server.client("Recipes/Broth.md", people["clerk"]) as clerk:
        clerk.sync().type("Yes.\n")
        assert server.says("Recipes/Broth.md", "Yes.")
    with server.client("Tea.md", people["elsewhere"]) as stranger:
        assert stranger.closed()[0] == 4404
    assert refused(server, "/w/notes/live/Tea.md", people["cairn"]) == 403
    assert server.granted("Tea.md", people["clerk"])["authorization"] == "read-only"


def test_a_token_opens_one_document_in_the_way_it_says(server: LiveServer, people: dict[str, str]) -> None:
    given = server.granted("Tea.md", people["owner"], authorization="read-only", validForSeconds=60)
    doc_id = server.id_of("Tea.md")
    assert given["docId"] == doc_id and given["authorization"] == "read-only"
    assert given["url"] == f"ws://127.0.0.1:{server.port}/d/{doc_id}/ws"
    assert given["baseUrl"] == f"http://127.0.0.1:{server.port}/d/{doc_id}"
    with server.at(f"{given['url']}/{doc_id}?token={given['token']}") as client:
        client.sync().type("No. ")
        assert client.until(lambda: client.denied)
    full = server.granted("Tea.md", people["owner"])
    with server.at(f"{full['url']}/{doc_id}?token={full['token']}") as client:
        client.sync().type("By token.\n")
        assert server.says("Tea.md", "By token.")
    other = server.id_of("Recipes/Broth.md")
    for path in (f"/d/{other}/ws/{other}", f"/d/{doc_id}/ws/{other}", "/w/notes/live/Recipes/Broth.md"):
        with server.at(f"{path}?token={full['token']}") as client:
            assert client.closed()[0] == 4404, path
    assert server.ask("GET", f"/d/{other}/as-update", token=full["token"]).status == 404
    assert server.ask("GET", f"/d/{doc_id}/as-update", token=full["token"]).status == 200
    assert server.ask("POST", "/doc/new", {}, full["token"]).status == 403
    for path in ("/api/v1/workspaces", "/mcp/notes", "/metrics"):
        assert server.ask("GET", path, token=full["token"]).status == 401, "it is for documents alone"
    assert server.ask("POST", f"/doc/{other}/auth", {}, full["token"]).status == 404


def test_a_token_for_the_folder_opens_what_its_person_may_see(server: LiveServer, people: dict[str, str]) -> None:
    given = server.granted("Tea.md", people["guest"], scope="folder")
    with server.at(f"/w/notes/live/Recipes/Broth.md?token={given['token']}") as client:
        client.sync().type("All of it.\n")
        assert server.says("Recipes/Broth.md", "All of it.")
    with server.at(f"/w/notes/live/Hidden/Door.md?token={given['token']}") as client:
        assert client.closed()[0] == 4404
    one = server.granted("Tea.md", people["guest"])["token"]
    assert server.ask("POST", f"/doc/{server.id_of('Tea.md')}/auth", {"scope": "folder"}, one).status == 403


def test_a_connection_ends_when_the_right_to_it_does(server: LiveServer, people: dict[str, str]) -> None:
    given = server.granted("Tea.md", people["guest"])["token"]
    doc_id = server.id_of("Tea.md")
    with (
        server.client("Tea.md", people["owner"]) as owner,
        server.client("Tea.md", people["guest"]) as guest,
        server.at(f"/d/{doc_id}/ws/{doc_id}?token={given}") as holder,
    ):
        owner.sync(), guest.sync(), holder.sync()
        server.site.registry.revoke("guest", time.time())
        assert guest.closed()[0] == 1008
        assert holder.closed()[0] == 1008
        owner.type("Still here.\n")
        assert server.says("Tea.md", "Still here.")
    assert refused(server, f"/d/{doc_id}/ws/{doc_id}?token={given}") == 401


def test_one_who_cannot_be_looked_at_goes_and_keeps_nobody_else_in(
    server: LiveServer, people: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    check = SiteContext.make_check

    async def hangs() -> bool:
        await asyncio.sleep(3600)
        return True

    async def fails() -> bool:
        raise RuntimeError("nobody thought of this")

    def some_fail(self: SiteContext, scope: Scope, who: Principal, shown: Library) -> StillAllowed:
        return {"guest": hangs, "clerk": fails}.get(who.user) or check(self, scope, who, shown)

    monkeypatch.setattr(SiteContext, "make_check", some_fail)
    monkeypatch.setattr("notewright.server.live.connections.ISSUER_TIMEOUT_SECONDS", 1.5)
    with (
        server.client("Tea.md", people["guest"]) as guest,
        server.client("Tea.md", people["clerk"]) as clerk,
        server.client("Tea.md", people["reader"]) as reader,
        server.client("Tea.md", people["owner"]) as owner,
    ):
        owner.sync()
        server.site.registry.revoke("reader", time.time())
        assert reader.closed()[0] == 1008
        assert guest.closed()[0] == 1008
        assert clerk.closed()[0] == 1011
        owner.type("Still here.\n")
        assert server.says("Tea.md", "Still here.")


def test_a_connection_ends_when_its_token_expires_or_its_note_is_hidden(
    server: LiveServer, people: dict[str, str]
) -> None:
    given = server.granted("Tea.md", people["owner"], validForSeconds=2)["token"]
    doc_id = server.id_of("Tea.md")
    with (
        server.at(f"/d/{doc_id}/ws/{doc_id}?token={given}") as holder,
        server.client("Tea.md", people["guest"]) as guest,
    ):
        holder.sync(), guest.sync()
        assert holder.closed()[0] == 1008
        move(server.site.library.default, NotePath("Tea.md"), NotePath("Hidden/Tea.md"))
        assert guest.closed()[0] == 1008


def test_a_page_of_somebody_else_opens_no_document(server: LiveServer, people: dict[str, str]) -> None:
    digest = digest_of(people["owner"])
    cookie = BrowserSessions(server.site.registry.secret("cookies")).issue(digest, time.time())
    jar, here = {"cookie": f"notewright={cookie}"}, f"http://127.0.0.1:{server.port}"
    with server.client("Tea.md", headers=jar, origin=here) as ours:
        ours.sync()
    path = "/w/notes/live/Tea.md"
    assert refused(server, path, headers=jar) == 401, "a browser always says whose page it is"
    for origin in ("https://evil.example", "http://127.0.0.1:1", "null"):
        assert refused(server, path, headers=jar, origin=origin) == 403
        assert refused(server, path, people["owner"], origin=origin) == 403
    assert refused(server, path, people["owner"], headers={"host": "evil.example"}) == 421


def test_a_token_that_a_browser_made_ends_when_it_signs_out(server: LiveServer, people: dict[str, str]) -> None:
    sessions, registry = BrowserSessions(server.site.registry.secret("cookies")), server.site.registry
    cookie = sessions.issue(digest_of(people["owner"]), time.time())
    _, session = sessions.read(cookie, time.time()) or ("", "")
    doc_id = server.id_of("Tea.md")
    made = server.ask("POST", f"/doc/{doc_id}/auth", {"validForSeconds": 86400}, cookie=f"notewright={cookie}")
    first = json.loads(made.data)["token"]  # type: ignore[attr-defined]
    passed_on = server.granted("Tea.md", first)["token"]
    apart = server.granted("Tea.md", people["owner"])["token"]
    reading = read_token(registry.secret("live"), first, time.time())
    assert reading is not None and reading.expires <= time.time() + COOKIE_SECONDS, (
        "as long as a sign-out is remembered"
    )
    path = f"/d/{doc_id}/ws/{doc_id}?token="
    with server.at(path + first) as mine, server.at(path + passed_on) as other, server.at(path + apart) as elsewhere:
        mine.sync(), other.sync(), elsewhere.sync()
        registry.end_session(session, time.time(), COOKIE_SECONDS)
        assert mine.closed()[0] == other.closed()[0] == 1008
        elsewhere.type("Still here.\n")
        assert server.says("Tea.md", "Still here.")
    assert refused(server, path + first) == refused(server, path + passed_on) == 401


def test_an_origin_that_the_owner_named_needs_a_token_and_no_cookie(tmp_path: Path) -> None:
    with live_server(tmp_path, http__origins=["https://app.example"]) as server:
        token = server.token("owner")
        cookie = BrowserSessions(server.site.registry.secret("cookies")).issue(digest_of(token), time.time())
        doc_id, given = server.id_of("Tea.md"), server.granted("Tea.md", token)["token"]
        with server.at(f"/d/{doc_id}/ws/{doc_id}?token={given}", origin="https://app.example") as client:
            client.sync()
        jar = {"cookie": f"notewright={cookie}"}
        assert refused(server, "/w/notes/live/Tea.md", headers=jar, origin="https://app.example") == 401


def test_addresses_in_answers_are_those_that_clients_know(tmp_path: Path) -> None:
    with live_server(tmp_path, http__public_url="https://notes.example/below") as server:
        given = server.granted("Tea.md", server.token("owner"))
        doc_id = server.id_of("Tea.md")
        assert given["url"] == f"wss://notes.example/below/d/{doc_id}/ws"
        assert given["baseUrl"] == f"https://notes.example/below/d/{doc_id}"


def test_on_this_machine_alone_a_token_narrows_until_there_are_people(server: LiveServer) -> None:
    doc_id = server.id_of("Tea.md")
    given = server.granted("Tea.md", authorization="read-only")["token"]
    path = f"/d/{doc_id}/ws/{doc_id}?token={given}"
    with server.at(path) as client:
        client.sync().type("No. ")
        assert client.until(lambda: client.denied)
        server.token("owner")
        assert client.closed()[0] == 1008
    assert refused(server, path) == 401


def test_tokens_are_in_no_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "notewright")
    with live_server(tmp_path) as server:
        owner = server.token("owner")
        given = server.granted("Tea.md", owner)["token"]
        doc_id = server.id_of("Tea.md")
        with server.at(f"/d/{doc_id}/ws/{doc_id}?token={given}") as client:
            client.sync()
        server.ask("GET", f"/d/{doc_id}/as-update?token={given}")
        server.ask("GET", f"/d/{doc_id}/as-update?token={given}x")
    said = "\n".join(record.getMessage() for record in caplog.records)
    assert "GET /d/{doc_id}/ws/{again} 101" in said and "/d/{doc_id}/as-update 401" in said
    written = [file.read_bytes() for file in (tmp_path / "state").rglob("*.log*")]
    assert given[:40] not in said and not any(given[:40].encode() in text for text in written)


def test_a_token_that_was_changed_or_is_old_is_none() -> None:
    key = b"k" * 32
    somebody = Principal("ann", Grant(workspaces=("notes",), hide=("a/**",)), "oauth", admin=False)
    whole = DocumentToken("relay-", True, 100.0, "", somebody)
    raw = whole.seal(key)
    assert read_token(key, raw, 99.0) == whole and read_token(key, raw, 100.0) is None
    assert read_token(b"x" * 32, raw, 99.0) is None
    for at in range(4, len(raw), 7):
        assert read_token(key, raw[:at] + ("A" if raw[at] != "A" else "B") + raw[at + 1 :], 99.0) is None
    assert len(raw) < access.MAX_TOKEN_CHARS and json.dumps(raw)
    assert whole.opens("relay-1") and not whole.opens("relay") and not DocumentToken("a", True, 1.0).opens("ab")
