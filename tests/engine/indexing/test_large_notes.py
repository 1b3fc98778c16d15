"""Large notes are filed after all others, and no call waits for one of them."""

import threading
import time
from collections.abc import Iterator

import pytest
from tests.waiting import until

from notewright.engine import move as moving
from notewright.engine import read as reading
from notewright.engine.check import check
from notewright.engine.find.links import incoming
from notewright.engine.find.search import parse_query, search
from notewright.engine.indexing import filing, indexer
from notewright.engine.indexing.difference import NOT_INDEXED_YET
from notewright.engine.indexing.filing import LARGE_BYTES, TOO_COSTLY
from notewright.engine.indexing.ready import list_unread, wait_for_texts
from notewright.engine.move import delete_marked, move
from notewright.engine.read import exists, read
from notewright.engine.workspace import Workspace
from notewright.engine.workspace import with_timeout as notes_hurried
from notewright.engine.write import create, edit_note
from notewright.errors import Indexing
from notewright.notes.edits.edit import Append
from notewright.notes.links.resolve import OBSIDIAN
from notewright.notes.parse import parser
from notewright.notes.path import NotePath

pytestmark = pytest.mark.slow

BIG = "word [[Tea]] " * (LARGE_BYTES // 13 + 1)
VAULT = {"Tea.md": "green leaves\n", "Big.md": BIG, "Ink.md": "[[Tea]] and ink\n"}


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Large notes are not read until the event is set."""
    go, file_large = threading.Event(), indexer.file_large

    def hold(*args: object) -> object:
        assert go.wait(60)
        return file_large(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(indexer, "file_large", hold)
    monkeypatch.setattr(filing, "GRACE_SECONDS", 0.05)
    yield go
    go.set()


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few hundred characters are large, and more than a few marks are too many."""
    monkeypatch.setattr(filing, "LARGE_BYTES", 200)
    monkeypatch.setattr(parser, "LARGE_CHARS", 200)
    monkeypatch.setattr(parser, "MAX_MARKS", 50)


def hurried(ws: Workspace) -> Workspace:
    return notes_hurried(ws, 0.1)


def found(ws: Workspace, words: str) -> list[str]:
    return [hit.path for hit in search(ws, parse_query(words)).items]


def test_others_are_found_while_a_large_note_is_not_indexed_yet(workspace, held: threading.Event) -> None:
    ws = workspace(VAULT)
    assert found(ws, "leaves") == ["Tea.md"]
    assert list_unread(ws) == ["Big.md"]
    assert [(one.path, one.message) for one in check(ws) if one.kind == "content"] == [("Big.md", NOT_INDEXED_YET)]
    held.set()
    wait_for_texts(ws, 60)
    assert "Big.md" in found(ws, "word")
    assert list_unread(ws) == []
    assert {link.source for link in incoming(ws, NotePath("Tea.md"))} == {"Big.md", "Ink.md"}


def test_a_change_filed_while_a_large_note_is_read_is_not_replaced_by_the_older_text(
    workspace, held: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    ws = workspace(VAULT)
    ws.follower.wait(60)
    store, index, big = ws.store, ws.index, NotePath("Big.md")
    read_note = filing.read_for_index

    def read_and_be_overtaken(*args: object, **how: object) -> object:
        old = read_note(*args, **how)  # type: ignore[arg-type]
        monkeypatch.setattr(filing, "read_for_index", read_note)
        edit_note(ws, big, [Append("[[Ink]]")])
        return old

    monkeypatch.setattr(filing, "read_for_index", read_and_be_overtaken)
    (again,) = filing.file_large(store, index, big)
    assert again.path == big and again.problem == NOT_INDEXED_YET
    assert filing.file_large(store, index, big) == []
    assert big in {link.source for link in incoming(ws, NotePath("Ink.md"))}


def test_a_rename_waits_for_every_link_and_then_says_what_is_not_indexed_yet(workspace, held: threading.Event) -> None:
    ws = workspace(VAULT)
    ws.follower.wait(60)
    with pytest.raises(Indexing, match=r"still indexing \(2 of 3 notes\); not indexed yet: Big.md"):
        move(hurried(ws), NotePath("Tea.md"), "Coffee.md")
    assert exists(ws, NotePath("Tea.md"))
    held.set()
    wait_for_texts(ws, 60)
    move(ws, NotePath("Tea.md"), "Coffee.md")
    assert "Tea" not in read(ws, NotePath("Big.md")).text


def test_who_may_not_see_a_note_is_not_told_that_it_is_not_indexed_yet(workspace, held: threading.Event) -> None:
    ws = workspace(VAULT, hide=("Big*",))
    ws.follower.wait(60)
    assert list_unread(ws) == []
    with pytest.raises(Indexing) as refused:
        move(hurried(ws), NotePath("Tea.md"), "Coffee.md")
    assert "Big" not in str(refused.value)


def test_a_large_note_of_ours_is_answered_at_once_and_found_soon(workspace, held: threading.Event) -> None:
    ws = workspace({"Tea.md": "leaves\n"})
    ws.follower.wait(60)
    create(ws, NotePath("Big.md"), BIG.encode())
    create(ws, NotePath("Small.md"), b"pebble\n")
    assert found(ws, "pebble") == ["Small.md"]
    assert list_unread(ws) == ["Big.md"]
    held.set()
    wait_for_texts(ws, 60)
    assert "Big.md" in found(ws, "word")


def test_a_large_note_that_takes_a_moment_is_found_by_the_next_call(workspace) -> None:
    ws = workspace({"Tea.md": "leaves\n"})
    ws.follower.wait(60)
    before = time.monotonic()
    create(ws, NotePath("Big.md"), b"pebble " * (LARGE_BYTES // 7 + 1))
    assert found(ws, "pebble") == ["Big.md"] or time.monotonic() - before > filing.GRACE_SECONDS


def test_what_was_not_indexed_when_a_server_ended_is_by_the_next(workspace, monkeypatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(indexer, "file_large", lambda *args: [])
        first = workspace(VAULT)
        first.follower.wait(60)
        assert list_unread(first) == ["Big.md"]
        first.follower.close()
    second = workspace(VAULT)
    wait_for_texts(second, 60)
    assert "Big.md" in found(second, "word")


def test_a_note_that_holds_too_much_is_found_by_name_and_words_and_its_links_are_followed(workspace) -> None:
    ws = workspace({"Tea.md": "leaves\n", "Huge.md": "pebble [[Tea]] [[Pot]]\n" + "[[x]]" * (parser.MAX_MARKS // 2)})
    wait_for_texts(ws, 120)
    assert found(ws, "pebble") == ["Huge.md"]
    assert ws.index.links_from(["Huge.md"]) == []
    assert [(one.path, one.message) for one in check(ws) if one.kind == "content"] == [("Huge.md", TOO_COSTLY)]
    move(ws, NotePath("Tea.md"), "Coffee.md")
    assert read(ws, NotePath("Huge.md")).text.startswith("pebble [[Coffee]] [[Pot]]\n")


@pytest.mark.parametrize(
    ("name", "link"),
    [
        ("Café", "[x](Caf%C3%A9.md)"),
        ("Salt_pot", "[x](Salt\\_pot.md)"),
        ("Salt&pepper", "[x](Salt&amp;pepper.md)"),
        ("It's tea", "---\nsee: '[[It''s tea]]'\n---\n"),
        ("100%25", "[[100%25]]"),
    ],
)
def test_a_link_in_a_note_that_holds_too_much_is_followed_however_it_is_written(
    workspace, small: None, name: str, link: str
) -> None:
    ws = workspace({f"{name}.md": "leaves\n", "Huge.md": f"{link} " + "[[x]] " * 60})
    wait_for_texts(ws, 60)
    assert [file.path for file in ws.index.with_problem(TOO_COSTLY)] == ["Huge.md"]
    move(ws, NotePath(f"{name}.md"), "New.md")
    assert "New" in read(ws, NotePath("Huge.md")).text


def test_a_large_note_that_is_looked_at_again_stays_indexed_meanwhile(workspace, held: threading.Event) -> None:
    ws = workspace({"Big.md": BIG})
    held.set()
    wait_for_texts(ws, 60)
    held.clear()
    ws.follower.close()
    again = workspace({})  # its files were saved a moment ago: they are read again
    again.follower.wait(60)
    assert list_unread(again) == []
    assert found(again, "word") == ["Big.md"]
    held.set()


def test_a_large_note_written_while_a_rename_waits_for_its_turn_is_followed(workspace, monkeypatch) -> None:
    ws = workspace({"Old.md": "leaves\n"})
    ws.follower.wait(60)
    wait, others = moving.wait_for_links, ["Big.md"]

    def interrupted(asked: Workspace) -> None:
        wait(asked)
        if others:  # another client gets the lock between our wait and our plan
            create(ws, NotePath(others.pop()), b"[[Old]] " + b"word " * (LARGE_BYTES // 5))

    monkeypatch.setattr(moving, "wait_for_links", interrupted)
    move(ws, NotePath("Old.md"), "New.md")
    assert read(ws, NotePath("Big.md")).text.startswith("[[New]] ")


def test_a_vault_of_mostly_large_notes_is_built_once(workspace, small: None, monkeypatch) -> None:
    monkeypatch.setattr(indexer, "BUILD_FROM", 5)
    built, build = [], indexer.Indexer._build
    monkeypatch.setattr(indexer.Indexer, "_build", lambda self, *args: (built.append(1), build(self, *args)))
    ws = workspace({f"{number}.md": f"pebble{number} " * 40 for number in range(12)})
    wait_for_texts(ws, 60)
    assert found(ws, "pebble7") == ["7.md"]
    assert len(built) == 1


def test_links_in_a_note_that_holds_too_much_are_marked_by_a_deletion(workspace, small: None) -> None:
    ws = workspace({"Gone.md": "leaves\n", "Huge.md": "[[Gone]] " + "[[x]] " * 60})
    wait_for_texts(ws, 60)
    assert [file.path for file in ws.index.with_problem(TOO_COSTLY)] == ["Huge.md"]
    delete_marked(ws, NotePath("Gone.md"), lambda name: f"lost {name}", policy=OBSIDIAN)
    assert read(ws, NotePath("Huge.md")).text.startswith("[[lost Gone]] [[x]]")


def test_a_large_note_that_cannot_be_filed_keeps_no_other_waiting(workspace, small: None, monkeypatch) -> None:
    file_large = indexer.file_large

    def fails(store, index, path):
        if path == "Bad.md":
            raise Indexing("not this one", hint="", done=0, total=None)
        return file_large(store, index, path)

    monkeypatch.setattr(indexer, "file_large", fails)
    ws = workspace({"Bad.md": "word " * 50, "Good.md": "pebble " * 60})
    until(lambda: list_unread(ws) == ["Bad.md"], seconds=30)
    assert found(ws, "pebble") == ["Good.md"]


def test_a_note_that_holds_too_much_is_read_without_parsing_all_of_it(workspace, small: None, monkeypatch) -> None:
    monkeypatch.setattr(reading, "MAX_CACHED_CHARS", 100)
    text = "---\ntitle: Huge\n---\n# Head\n" + "[[x]] " * 60
    note = read(workspace({"Huge.md": text}), NotePath("Huge.md")).note
    assert (note.title, note.text, note.links, note.headings) == ("Huge", text, (), ())
