"""Large notes are filed after all others, and no call waits for one of them."""

import threading
import time
from collections.abc import Iterator

import pytest

from notewright import engine
from notewright.engine import large, sync
from notewright.engine.filing import COSTLY, LARGE, LATER, MOST_MARKS
from notewright.errors import Indexing
from notewright.notes import NotePath

BIG = "word [[Tea]] " * (LARGE // 13 + 1)
VAULT = {"Tea.md": "green leaves\n", "Big.md": BIG, "Ink.md": "[[Tea]] and ink\n"}


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Large notes are not read until the event is set."""
    go, file_large = threading.Event(), sync.file_large

    def hold(*args: object) -> object:
        assert go.wait(60)
        return file_large(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(sync, "file_large", hold)
    monkeypatch.setattr(large, "GRACE_SECONDS", 0.05)
    yield go
    go.set()


def hurried(ws: engine.Workspace) -> engine.Workspace:
    return engine.hurried(ws, 0.1)


def found(ws: engine.Workspace, words: str) -> list[str]:
    return [hit.path for hit in engine.search(ws, engine.parse_query(words)).items]


def test_others_are_found_while_a_large_note_is_not_indexed_yet(workspace, held: threading.Event) -> None:
    ws = workspace(VAULT)
    assert found(ws, "leaves") == ["Tea.md"]
    assert engine.unread(ws) == ["Big.md"]
    assert [(one.path, one.message) for one in engine.check(ws) if one.kind == "content"] == [("Big.md", LATER)]
    held.set()
    engine.wait_for_texts(ws, 60)
    assert "Big.md" in found(ws, "word")
    assert engine.unread(ws) == []
    assert {link.source for link in engine.incoming(ws, NotePath("Tea.md"))} == {"Big.md", "Ink.md"}


def test_a_rename_waits_for_every_link_and_then_says_what_is_not_indexed_yet(workspace, held: threading.Event) -> None:
    ws = workspace(VAULT)
    ws.follower.wait(60)
    with pytest.raises(Indexing, match=r"still indexing \(2 of 3 notes\); not indexed yet: Big.md"):
        engine.move(hurried(ws), NotePath("Tea.md"), "Coffee.md")
    assert engine.exists(ws, NotePath("Tea.md"))
    held.set()
    engine.wait_for_texts(ws, 60)
    engine.move(ws, NotePath("Tea.md"), "Coffee.md")
    assert "Tea" not in engine.read(ws, NotePath("Big.md")).text


def test_who_may_not_see_a_note_is_not_told_that_it_is_not_indexed_yet(workspace, held: threading.Event) -> None:
    ws = workspace(VAULT, hide=("Big*",))
    ws.follower.wait(60)
    assert engine.unread(ws) == []
    with pytest.raises(Indexing) as refused:
        engine.move(hurried(ws), NotePath("Tea.md"), "Coffee.md")
    assert "Big" not in str(refused.value)


def test_a_large_note_of_ours_is_answered_at_once_and_found_soon(workspace, held: threading.Event) -> None:
    ws = workspace({"Tea.md": "leaves\n"})
    ws.follower.wait(60)
    engine.create(ws, NotePath("Big.md"), BIG.encode())
    engine.create(ws, NotePath("Small.md"), b"pebble\n")
    assert found(ws, "pebble") == ["Small.md"]
    assert engine.unread(ws) == ["Big.md"]
    held.set()
    engine.wait_for_texts(ws, 60)
    assert "Big.md" in found(ws, "word")


def test_a_large_note_that_takes_a_moment_is_found_by_the_next_call(workspace) -> None:
    ws = workspace({"Tea.md": "leaves\n"})
    ws.follower.wait(60)
    before = time.monotonic()
    engine.create(ws, NotePath("Big.md"), b"pebble " * (LARGE // 7 + 1))
    assert found(ws, "pebble") == ["Big.md"] or time.monotonic() - before > large.GRACE_SECONDS


def test_what_was_not_indexed_when_a_server_ended_is_by_the_next(workspace, monkeypatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sync, "file_large", lambda *args: [])
        first = workspace(VAULT)
        first.follower.wait(60)
        assert engine.unread(first) == ["Big.md"]
        first.follower.close()
    second = workspace(VAULT)
    engine.wait_for_texts(second, 60)
    assert "Big.md" in found(second, "word")


def test_a_note_that_holds_too_much_is_found_by_name_and_words_and_its_links_are_followed(workspace) -> None:
    ws = workspace({"Tea.md": "leaves\n", "Huge.md": "pebble [[Tea]] [[Pot]]\n" + "[[x]]" * (MOST_MARKS // 2)})
    engine.wait_for_texts(ws, 120)
    assert found(ws, "pebble") == ["Huge.md"]
    assert ws.index.links_from("Huge.md") == []
    assert [(one.path, one.message) for one in engine.check(ws) if one.kind == "content"] == [("Huge.md", COSTLY)]
    engine.move(ws, NotePath("Tea.md"), "Coffee.md")
    assert engine.read(ws, NotePath("Huge.md")).text.startswith("pebble [[Coffee]] [[Pot]]\n")


def test_a_large_note_that_is_looked_at_again_stays_indexed_meanwhile(workspace, held: threading.Event) -> None:
    ws = workspace({"Big.md": BIG})
    held.set()
    engine.wait_for_texts(ws, 60)
    held.clear()
    ws.follower.close()
    again = workspace({})  # its files were saved a moment ago: they are read again
    again.follower.wait(60)
    assert engine.unread(again) == []
    assert found(again, "word") == ["Big.md"]
    held.set()
