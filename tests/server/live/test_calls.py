"""The document and file calls of the relay's protocol, over HTTP."""

import hashlib
import uuid
from typing import Any
from urllib.parse import urlsplit

import pytest
from pycrdt import Doc, Map, Text
from tests.server.live.parts import LiveServer
from tests.waiting import until

from notewright.engine.changes.history import list_changes
from notewright.ledger.base import ChangeQuery
from notewright.server.live import frames

pytestmark = pytest.mark.slow


def path_of(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.path}?{parts.query}"


def test_a_document_is_read_and_updated_without_a_websocket(server: LiveServer) -> None:
    doc_id = server.id_of("Tea.md")
    ours: Doc[Any] = Doc()
    text = ours.get("contents", type=Text)
    ours.apply_update(server.ask("GET", f"/d/{doc_id}/as-update").data)  # type: ignore[attr-defined]
    assert str(text) == "Steep it.\n"
    before = ours.get_state()
    text += "By HTTP.\n"
    with server.client("Tea.md") as ann:
        ann.sync()
        assert server.ask("POST", f"/d/{doc_id}/update", ours.get_update(before)).status == 200
        assert ann.has("By HTTP.")
    assert server.ask("POST", f"/d/{doc_id}/update", b"nonsense").status == 400
    assert server.says("Tea.md", "By HTTP.")
    unknown = server.folder_id()[:37] + "0" * 36
    for method, path in (
        ("GET", f"/d/{unknown}/as-update"),
        ("POST", f"/doc/{unknown}/auth"),
        ("GET", "/d/x/as-update"),
    ):
        assert server.ask(method, path).status == 404, path


def test_a_new_document_is_there_before_it_has_a_path(server: LiveServer) -> None:
    made = server.json("POST", "/doc/new")["docId"]
    assert made.startswith(server.folder_id()[:37])
    chosen = server.folder_id()[:37] + "1" * 8 + "-1111-1111-1111-" + "1" * 12
    assert server.json("POST", "/doc/new", {"docId": chosen})["docId"] == chosen
    for body in ({"docId": "../x"}, {"docId": 7}, [], b"{"):
        assert server.ask("POST", "/doc/new", body).status == 400, body
    given = server.json("POST", f"/doc/{chosen}/auth", {"validForSeconds": 60})
    with server.at(f"{given['url']}/{chosen}?token={given['token']}") as client:
        client.sync().type("Nowhere yet.")
        client.ask_status(b"\x01")
        assert client.until(lambda: client.acked)
    for body in ({"authorization": "all"}, {"validForSeconds": 0}, {"validForSeconds": "1"}, {"scope": "world"}):
        assert server.ask("POST", f"/doc/{chosen}/auth", body).status == 400, body


def test_a_client_makes_a_note_with_its_document_first_and_its_name_after(server: LiveServer) -> None:
    folder, part = server.folder_id(), str(uuid.uuid4())
    doc_id = folder[:37] + part
    with server.at(f"/d/{doc_id}/ws/{doc_id}") as note, server.at(f"/d/{folder}/ws/{folder}") as names:
        note.sync().type("# Made by a client\n")
        note.ask_status(b"\x01")
        assert note.until(lambda: note.acked)
        names.sync()
        files, docs = names.doc.get("filemeta_v0", type=Map), names.doc.get("docs", type=Map)
        assert names.until(lambda: "/Tea.md" in files)
        before = names.doc.get_state()
        with names.doc.transaction():
            files["/Made.md"], docs["/Made.md"] = {"id": part, "type": "markdown", "version": 0}, part
        names.send(frames.encode_sync(frames.UPDATE, names.doc.get_update(before)))
        until(lambda: (server.notes / "Made.md").exists(), 20)
        note.type("and typed on\n")
        assert server.says("Made.md", "# Made by a client\nand typed on\n")
    for forged in (folder[:37] + "..x", folder[:37] + "x" * 36, "0" * 36 + "-" + part):
        with server.at(f"/d/{forged}/ws/{forged}") as client:
            assert client.closed()[0] == 4404, forged


def test_an_attachment_has_an_id_in_the_folder_document(server: LiveServer) -> None:
    folder = server.folder_id()
    with server.at(f"/d/{folder}/ws/{folder}") as names:
        files = names.sync().doc.get("filemeta_v0", type=Map)
        assert names.until(lambda: "/cup.png" in files)
        doc_id = folder[:37] + files["/cup.png"]["id"]
        assert f"{folder[:37]}{files['/Tea.md']['id']}" == server.id_of("Tea.md")
    new = b"\x89PNG another cup"
    assert server.ask("GET", f"/f/{doc_id}/download").data == (server.notes / "cup.png").read_bytes()  # type: ignore[attr-defined]
    upload = server.json("POST", f"/f/{doc_id}/upload-url?hash={hashlib.sha256(new).hexdigest()}")["uploadUrl"]
    assert server.ask("PUT", path_of(upload), new).status == 200
    assert (server.notes / "cup.png").read_bytes() == new
    with server.at(f"/d/{doc_id}/ws/{doc_id}") as client:
        assert client.closed()[0] == 4422, "it is no text"


def test_files_are_downloaded_and_uploaded_by_what_they_hold(server: LiveServer) -> None:
    doc_id = server.id_of("Tea.md")
    old, new = (server.notes / "Tea.md").read_bytes(), b"# Uploaded\n"
    old_hash, new_hash = hashlib.sha256(old).hexdigest(), hashlib.sha256(new).hexdigest()
    assert server.ask("HEAD", f"/f/{doc_id}?hash={old_hash}").status == 200
    assert server.ask("HEAD", f"/f/{doc_id}?hash={new_hash}").status == 404
    (entry,) = server.json("GET", f"/f/{doc_id}/history")["files"]
    assert (entry["hash"], entry["size"]) == (old_hash, len(old))
    url = server.json("GET", f"/f/{doc_id}/download-url?hash={old_hash}")["downloadUrl"]
    answer = server.ask("GET", path_of(url))
    assert answer.data == old and "sandbox" in answer.headers["content-security-policy"]  # type: ignore[attr-defined]
    assert server.ask("PUT", path_of(url).replace("/download", "/upload"), new).status == 403, "it is for reading"
    upload = path_of(server.json("POST", f"/f/{doc_id}/upload-url?hash={new_hash}")["uploadUrl"])
    assert server.ask("PUT", upload, b"other bytes").status == 409
    assert server.ask("PUT", upload, new).status == 200
    assert (server.notes / "Tea.md").read_bytes() == new
    (change, *_) = list_changes(server.site.library.default, ChangeQuery(path="Tea.md", limit=1))
    assert change.actor.surface == "live"
    assert server.ask("GET", f"/f/{doc_id}/download?hash=zz").status == 400
