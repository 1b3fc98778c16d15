"""Yjs clients of one document: they converge, see each other, and are told the truth about what is kept."""

import re

import pytest
from tests.server.live.parts import LiveServer
from tests.waiting import until

from notewright.server.live import frames

pytestmark = pytest.mark.slow


def test_two_clients_converge_and_the_file_follows(server: LiveServer) -> None:
    with server.client("Tea.md") as ann, server.client("Tea.md") as bob:
        ann.sync(), bob.sync()
        assert str(ann.text) == "Steep it.\n"
        ann.type("Green 🍵 tea.\n")
        assert bob.has("Green 🍵 tea.")
        bob.type("日本 ", at=0)
        assert ann.has("日本 ")
        assert str(ann.text) == str(bob.text) == "日本 Steep it.\nGreen 🍵 tea.\n"
        assert server.says("Tea.md", "日本 Steep it.\nGreen 🍵 tea.\n")


def test_a_document_is_the_same_by_its_path_and_by_its_id(server: LiveServer) -> None:
    doc_id = server.id_of("Tea.md")
    with server.client("Tea.md") as ann, server.at(f"/d/{doc_id}/ws/{doc_id}") as bob:
        ann.sync(), bob.sync()
        ann.type("More.\n")
        assert bob.has("More.")


def test_what_somebody_saves_in_the_file_comes_to_the_clients(server: LiveServer) -> None:
    with server.client("Tea.md") as ann:
        ann.sync()
        (server.notes / "Tea.md").write_text("Steep it. Well.\n")
        assert ann.has("Well.")


def test_clients_see_each_others_cursors_until_one_goes(server: LiveServer) -> None:
    with server.client("Tea.md") as ann:
        ann.sync().tell(11, 1, {"user": {"name": "Ann"}})
        with server.client("Tea.md") as bob:
            bob.sync()
            assert bob.until(lambda: 11 in bob.states), "who was here before"
            bob.tell(22, 1, {"user": {"name": "Bob"}})
            assert ann.until(lambda: 22 in ann.states)
        assert ann.until(lambda: 22 not in ann.states), "and who went"
        ann.send(bytes((frames.QUERY_AWARENESS,)))
        assert ann.until(lambda: 11 in ann.states)


def test_a_status_is_answered_only_after_what_came_before_is_kept(server: LiveServer) -> None:
    live = server.site.library.default.live
    assert live is not None
    with server.client("Tea.md") as ann:
        ann.sync()
        held, log = [], live._log
        assert log is not None
        log.call_when_durable = held.append  # type: ignore[method-assign]  # nothing is kept from now on
        ann.type("Not kept yet.")
        ann.ask_status(b"\x01")
        assert not ann.until(lambda: ann.acked, seconds=0.5)
        assert len(held) == 1
        held[0]()
        assert ann.until(lambda: ann.acked == [b"\x01"])
        del log.call_when_durable
        ann.ask_status(b"\x02")
        assert ann.until(lambda: ann.acked == [b"\x01", b"\x02"])


def test_a_note_that_is_deleted_ends_its_connections_with_a_reason(server: LiveServer) -> None:
    with server.client("Tea.md") as ann:
        ann.sync()
        (server.notes / "Tea.md").unlink()
        code, reason = ann.closed()
        assert code == 4410 and "deleted" in reason


def test_connections_and_open_documents_are_counted(server: LiveServer) -> None:
    def counted() -> list[float]:
        told = server.ask("GET", "/metrics").data.decode()  # type: ignore[attr-defined]
        return [
            float(re.findall(rf"^notewright_live_{what} (\S+)", told, re.M)[0]) for what in ("connections", "documents")
        ]

    until(lambda: counted() == [0, 0], 20)
    with server.client("Tea.md"), server.client("Tea.md"), server.client("Recipes/Broth.md"):
        until(lambda: counted() == [3, 2], 20)
    until(lambda: counted() == [0, 0], 20)


def test_what_cannot_be_live_says_so(server: LiveServer) -> None:
    for note, code in {"latin.md": 4422, "cup.png": 4422, "Nowhere.md": 4404, "../Tea.md": 4400}.items():
        with server.client(note) as client:
            assert client.closed()[0] == code, note


def test_a_copy_of_another_document_is_not_put_beside_ours(server: LiveServer) -> None:
    with server.client("Tea.md") as ann:
        ann.sync()
    with server.client("Tea.md") as stranger:
        stranger.text += "Steep it.\n"
        stranger.send(frames.encode_sync(frames.STEP1, stranger.doc.get_state()))
        assert stranger.closed()[0] == 4409
    with server.client("Tea.md") as ann:
        assert str(ann.sync().text) == "Steep it.\n"
