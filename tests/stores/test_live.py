"""Live documents over a folder: files are the text at rest, and nothing that anybody wrote is lost or doubled."""

import random
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from pycrdt import Doc, Map, Text
from tests.waiting import until

from notewright.errors import Invalid, NotFound, NotText, Problem, TooLarge, Unavailable
from notewright.notes.path import NotePath
from notewright.stores.base import Entry, Swap, version_of
from notewright.stores.folder.store import FolderStore
from notewright.stores.live import document as document_module
from notewright.stores.live import documents as documents_module
from notewright.stores.live import log as log_module
from notewright.stores.live import paths
from notewright.stores.live.document import Document
from notewright.stores.live.documents import LiveDocuments
from notewright.stores.live.folder_document import FolderDocument
from notewright.stores.live.log import LiveLog
from notewright.stores.live.store import LiveStore
from notewright.stores.live.text import apply_changes, diff_texts, file_bytes, live_text

A, B = NotePath("a.md"), NotePath("b.md")


class Typist:
    """A Yjs client of one document, without a wire between. What it is told it takes in when it is asked for."""

    by: Any = None

    def __init__(self, document: Document) -> None:
        self.document = document
        self.own: Doc[Any] = Doc()
        self.told: deque[bytes] = deque()
        self.ended = ""
        self.changing = False
        self.stop = document.listen(self._hear, self._end)
        self.own.apply_update(document.encode_update(self.own.get_state()))

    @property
    def doc(self) -> "Doc[Any]":
        while self.told and not self.changing:
            self.own.apply_update(self.told.popleft())
        return self.own

    @property
    def text(self) -> Text:
        return self.doc.get("contents", type=Text)

    def _hear(self, update: bytes, source: object) -> None:
        if source is not self:
            self.told.append(update)

    def _end(self, reason: str) -> None:
        self.ended = reason

    def type(self, words: str, at: int | Callable[[str], int] | None = None) -> None:
        """At a place in bytes, by default at the end."""
        before = self.doc.get_state()
        text = self.own.get("contents", type=Text)
        place = len(text) if at is None else at if isinstance(at, int) else at(str(text))
        text.insert(place, words)
        self.document.apply(self.own.get_update(before), by=self.by, source=self)


class Home:
    """A folder, its state, and the process that has its documents."""

    def __init__(self, place: Path) -> None:
        self.root = place / "notes"
        self.root.mkdir(exist_ok=True)
        self.state = place / "state"
        self.start()

    def start(self, kind: type[FolderStore] = FolderStore) -> None:
        folder = kind(self.root)
        self.documents = LiveDocuments(folder, self.state)
        self.store = LiveStore(folder, self.documents)

    def die(self) -> None:
        """As by kill -9: nothing is saved, the kernel lets the lock go. What was committed is on the disk."""
        documents = self.documents
        documents._stop.set()
        documents._wake.set()
        if documents._saver is not None:
            documents._saver.join()
        if documents._log is not None:
            documents._log.close()
        if documents._host_lock is not None:
            documents._host_lock.release()

    def open(self, path: NotePath = A) -> Document:
        return self.documents.open(self.documents.id_of(path))

    def text(self, path: NotePath = A) -> str:
        return (self.root / path).read_text()

    def put(self, data: str | bytes, path: NotePath = A) -> None:
        """As an editor saves: without looking."""
        (self.root / path).write_bytes(data.encode() if isinstance(data, str) else data)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    monkeypatch.setattr(documents_module, "PAUSE_S", 0.2)
    monkeypatch.setattr(paths, "GONE_S", 0.3)
    made = Home(tmp_path)
    yield made
    made.store.close()


def test_a_document_comes_to_life_from_its_file_and_what_is_typed_goes_back_to_it(home: Home) -> None:
    home.put("one\n")
    ann, ben = Typist(home.open()), Typist(home.open())
    assert str(ann.text) == "one\n"
    ann.type("two\n")
    assert str(ben.text) == "one\ntwo\n"
    assert home.store.read(A).data == b"one\ntwo\n", "a tool reads what is typed"
    assert home.store.stat(A).stamp == home.store.read(A).entry.stamp
    until(lambda: home.text() == "one\ntwo\n")
    assert home.store.read(A).data == b"one\ntwo\n"


def test_a_document_that_nobody_opened_is_its_file_and_has_no_log(home: Home) -> None:
    home.put("one\n")
    written = home.store.write(A, b"two\n", seen=home.store.read(A).version, op="1")
    assert (home.store.read(A).version, home.text()) == (written.version, "two\n")
    assert not (home.state / "live.db").exists()


def test_a_tool_writes_between_what_others_type(home: Home) -> None:
    home.put("one two three\n")
    ann = Typist(home.open())
    seen = home.store.read(A)
    ann.type("typed ", 0)
    ann.type("more\n")
    stored = home.store.write(A, b"one TWO three\n", seen=seen.version, op="1")
    assert stored.data == b"typed one TWO three\nmore\n" == home.text().encode()
    assert str(ann.text) == home.text()
    assert home.store.write(A, b"one TWO three\n", seen=seen.version, op="1").data == stored.data, "once"


def test_a_version_that_was_never_shown_is_refused(home: Home) -> None:
    home.put("one\n")
    Typist(home.open())
    with pytest.raises(Problem, match="changed since"):
        home.store.write(A, b"x", seen=version_of(b"never"), op="1")


def test_what_a_tool_says_of_an_older_version_is_made_to_the_newer(home: Home) -> None:
    home.put("one\ntwo\n")
    ann = Typist(home.open())
    seen = home.store.read(A)
    ann.type("three\n")
    shown = home.store.read_old_version(A, seen.version[:8])
    assert shown is not None and shown.data == b"one\ntwo\n"
    assert home.store.rebase(A, b"ONE\ntwo\n", seen=shown.version, onto=home.store.read(A)) == b"ONE\ntwo\nthree\n"


def test_a_saved_file_is_merged_into_what_is_typed(home: Home) -> None:
    home.put("one\ntwo\n")
    ann = Typist(home.open())
    ann.type("typed\n")
    home.put("ONE\ntwo\n")
    until(lambda: home.text() == "ONE\ntwo\ntyped\n")
    assert str(ann.text) == home.text()


def test_a_file_that_an_editor_has_truncated_and_not_yet_written_takes_nothing_away(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.put("one\ntwo\n")
    ann = Typist(home.open())
    monkeypatch.setattr(documents_module, "QUIET_S", 60.0)
    for part in ("", "one\n"):
        home.put(part)
        home.documents.catch_up(ann.document)
        assert str(ann.text) == "one\ntwo\n"
    home.put("one\ntwo\nthree\n")
    until(lambda: str(ann.text) == "one\ntwo\nthree\n")
    monkeypatch.setattr(documents_module, "QUIET_S", 0.2)
    home.put("one\n")
    until(lambda: "two" not in str(ann.text))


def test_an_editor_that_saves_a_stale_buffer_again_and_again_takes_nothing_away(home: Home) -> None:
    home.put("begin\n")
    ann = Typist(home.open())
    buffer = "begin\n"
    words = []
    for number in range(8):
        ann.type(f"typed{number} ")
        words.append(f"typed{number}")
        if number % 3 == 2:
            until(lambda: home.documents.find_open(A).is_saved())  # type: ignore[union-attr]
        buffer += f"saved{number}\n"
        words.append(f"saved{number}")
        home.put(buffer)
        until(lambda number=number: f"saved{number}" in str(ann.text))  # type: ignore[misc]
    until(lambda: home.documents.find_open(A).is_saved())  # type: ignore[union-attr]
    assert sorted(home.text().split()) == sorted(["begin", *words])
    assert str(ann.text) == home.text()


def test_line_ends_and_the_byte_order_mark_stay_as_in_the_file(home: Home) -> None:
    home.put(b"\xef\xbb\xbfone\r\ntwo\nthree\r\n")
    ann = Typist(home.open())
    assert str(ann.text) == "one\ntwo\nthree\n"
    ann.type("new\n", 4)
    until(lambda: b"new" in (home.root / A).read_bytes())
    assert (home.root / A).read_bytes() == b"\xef\xbb\xbfone\r\nnew\r\ntwo\nthree\r\n"


def test_what_cannot_be_live_says_so(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.put(b"\xff\xfe")
    with pytest.raises(NotText, match="not live"):
        home.open()
    monkeypatch.setattr(documents_module, "MAX_TEXT_BYTES", 10)
    home.put("more than ten", B)
    with pytest.raises(TooLarge, match="too many to be live"):
        home.open(B)
    with pytest.raises(NotFound):
        home.open(NotePath("nowhere.md"))
    with pytest.raises(NotFound):
        home.documents.open("forged")


def test_what_was_typed_and_logged_outlives_the_process_and_nothing_is_doubled(home: Home) -> None:
    home.put("one\n")
    ann = Typist(home.open())
    for number in range(5):
        ann.type(f"w{number} ")
        home.die()
        home.start()
        again = home.open()
        assert again.is_related(ann.doc.get_state())
        again.apply(ann.doc.get_update(again.state_vector()))
        ann = Typist(again)
    until(lambda: home.text() == "one\nw0 w1 w2 w3 w4 ")
    assert str(ann.text) == home.text()


def test_a_save_that_was_cut_off_is_not_merged_as_somebody_elses(home: Home) -> None:
    home.put("one\n")
    ann = Typist(home.open())
    ann.type("two ")
    home.documents.save(home.documents.find_open(A))  # type: ignore[arg-type]
    ann.type("three ")
    home.die()  # the file has "two", the log has "three" too
    home.start()
    assert str(Typist(home.open()).text) == "one\ntwo three "
    until(lambda: home.text() == "one\ntwo three ")


def test_a_save_that_never_reached_the_file_loses_nothing_that_was_typed(home: Home) -> None:
    def refuse(*_: object) -> None:
        raise Unavailable("no space")

    home.put("one\n")
    document = home.open()
    home.documents.save_text = refuse
    Typist(document).type("two ")
    home.documents.save(document)
    home.die()  # the log has "two" as a text that the file is about to have
    home.start()
    assert str(Typist(home.open()).text) == "one\ntwo "


def save(home: Home) -> None:
    home.put("one saved\n")
    home.documents.catch_up(home.documents.find_open(A))  # type: ignore[arg-type]


def edit(home: Home) -> None:
    home.store.write(A, b"one edited\n", seen=version_of(b"one\n"), op="1")


def rename(home: Home) -> None:
    home.store.swap(Swap(B, b"one renamed\n", None, A), op="1")
    home.store.delete(A, seen=version_of(b"one\n"), op="1")


@pytest.mark.parametrize("change", [save, edit, rename])
def test_what_clients_are_told_is_on_the_disk_already_so_that_no_kill_doubles_it(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Home], None]
) -> None:
    def photograph(update: bytes, source: object) -> None:
        """The disk as a kill in this moment would leave it."""
        for part in (home.root, home.state):
            shutil.copytree(part, tmp_path / "then" / part.name)

    monkeypatch.setattr(log_module, "LINGER_S", 30)
    home.put("one\n")
    document = home.open()
    document.listen(photograph, lambda reason: None)
    ann = Typist(document)
    change(home)
    said = str(ann.text)
    then = Home(tmp_path / "then")
    try:
        again = then.documents.open(document.id)
        again.apply(ann.doc.get_update(again.state_vector()))
        assert again.text() == str(Typist(again).text) == said != "one\n"
    finally:
        then.store.close()


def test_what_is_typed_is_on_the_disk_before_a_tool_writes_it_to_the_file(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Photographed(FolderStore):
        def swap(self, *args: Any, **options: Any) -> Any:
            stored = super().swap(*args, **options)
            shutil.copytree(tmp_path / "notes", tmp_path / "then" / "notes")
            shutil.copytree(tmp_path / "state", tmp_path / "then" / "state")
            return stored

    monkeypatch.setattr(log_module, "LINGER_S", 30)
    home.start(Photographed)
    home.put("one\n")
    document = home.open()
    ann = Typist(document)
    ann.type("typed\n")
    home.store.write(A, b"one edited\n", seen=version_of(b"one\n"), op="1")
    then = Home(tmp_path / "then")
    try:
        again = then.documents.open(document.id)
        again.apply(ann.own.get_update(again.state_vector()))
        assert again.text() == home.text() == "one edited\ntyped\n"
    finally:
        then.store.close()


def test_a_log_that_cannot_be_written_refuses_no_edit_that_the_file_has(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.put("one\n")
    document = home.open()
    ann = Typist(document)
    real, full = log_module._insert_update, [True]

    def append(db: apsw.Connection, doc: str, update: bytes) -> None:
        if full:
            raise apsw.FullError("database or disk is full")
        real(db, doc, update)

    monkeypatch.setattr(log_module, "_insert_update", append)
    edit(home)
    assert home.text() == document.text() == str(ann.text) == "one edited\n"
    full.clear()
    until(lambda: not home.documents._log._queue)  # type: ignore[union-attr]
    home.die()
    home.start()
    again = home.open()
    again.apply(ann.own.get_update(again.state_vector()))
    assert again.text() == home.text() == "one edited\n"


def test_what_the_folder_document_shows_is_on_the_disk_before_clients_are_told(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "LINGER_S", 30)
    document = home.documents.open(home.documents.folder_id)
    told: list[bytes] = []

    def photograph(update: bytes, source: object) -> None:
        told.append(update)
        shutil.copytree(home.state, tmp_path / "then")

    document.listen(photograph, lambda reason: None)
    FolderDocument(document).show_files("notes", {A: "1"}, {})
    then = LiveLog(tmp_path / "then" / "live.db")
    known, seen = then.load_document(document.id), Doc[Any]()
    then.close()
    assert known is not None and known.state is not None
    seen.apply_update(known.state)
    assert (len(told), seen.get("docs", type=Map).to_py()) == (1, {"/a.md": "1"})


def test_an_old_text_that_is_put_back_while_nobody_has_it_open_is_the_text(home: Home) -> None:
    home.put("one\n")
    Typist(home.open()).type("two\n")
    until(lambda: home.text() == "one\ntwo\n")
    home.store.close()
    home.put("one\n")
    home.start()
    assert str(Typist(home.open()).text) == home.store.read(A).data.decode() == "one\n"


def test_a_deleted_log_costs_ids_and_no_text_and_old_clients_are_known_for_what_they_are(home: Home) -> None:
    home.put("one\n")
    old = home.open()
    ann = Typist(old)
    ann.type("two\n")
    until(lambda: home.text() == "one\ntwo\n")
    home.die()
    for file in home.state.glob("live.db*"):
        file.unlink()
    home.start()
    new = home.open()
    assert (str(Typist(new).text), new.id != old.id) == ("one\ntwo\n", True)
    assert not new.is_related(ann.doc.get_state()), "its text would stand there twice"
    assert new.is_related(Doc().get_state())


def test_the_same_text_comes_to_life_as_the_same_document(home: Home) -> None:
    home.put("one\n")
    ann = Typist(home.open())
    home.die()
    for file in home.state.glob("live.db*"):
        file.unlink()
    home.start()
    new = home.open()
    new.apply(ann.doc.get_update(new.state_vector()))
    assert str(Typist(new).text) == "one\n"


def test_a_moved_note_keeps_its_id_its_editors_and_what_is_typed_on_the_way(home: Home) -> None:
    home.put("one [[x]]\n")
    document = home.open()
    ann = Typist(document)
    seen = home.store.read(A)
    ann.type("typed\n")
    home.store.swap(Swap(B, b"one [[y]]\n", None, A), op="1")
    ann.type("late\n")
    home.store.delete(A, seen=seen.version, op="1")
    assert home.documents.path_of(document.id) == B and home.documents.id_of(B) == document.id
    until(lambda: home.text(B) == "one [[y]]\ntyped\nlate\n")
    assert str(ann.text) == home.text(B) and not (home.root / A).exists()


def test_a_move_that_is_taken_back_leaves_the_document_where_it_was(home: Home) -> None:
    home.put("one\n")
    document = home.open()
    ann = Typist(document)
    home.store.swap(Swap(B, b"one\n", None, A), op="1")
    home.store.delete(B, seen=version_of(b"one\n"), op="1x")
    assert home.documents.path_of(document.id) == A and not ann.ended
    ann.type("two\n")
    until(lambda: home.text() == "one\ntwo\n")


def test_a_listing_begun_before_a_move_does_not_lead_the_document_back(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.put("one\n")
    document = home.open()
    names, folder, set_path = home.documents.paths, home.documents._folder, LiveLog.set_path
    listed, moving = threading.Event(), threading.Event()

    def entries() -> list[Entry]:
        found = list(FolderStore.entries(folder))
        listed.set()
        assert moving.wait(30)
        return found

    def set_path_slowly(*args: Any) -> None:
        moving.set()
        time.sleep(0.1)
        set_path(*args)

    monkeypatch.setattr(LiveLog, "set_path", set_path_slowly)
    monkeypatch.setattr(folder, "entries", entries)
    listing = threading.Thread(target=names.follow_renames, daemon=True)
    listing.start()
    assert listed.wait(30)
    home.store.swap(Swap(B, b"one\n", None, A), op="1")
    listing.join(30)
    assert not listing.is_alive()
    assert (document.path, names.ids) == (B, {B: document.id})


def test_a_note_whose_move_was_taken_back_is_deleted_as_it_is_now(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents_module, "IDLE_S", 0.0)
    home.put("one\n")
    document = home.open()
    home.store.swap(Swap(B, b"one\n", None, A), op="1")
    home.store.delete(B, seen=version_of(b"one\n"), op="1x")
    Typist(document).type("two\n")
    until(lambda: home.text() == "one\ntwo\n")
    home.documents.release(document)
    until(lambda: home.documents.find_open(A) is None)
    home.store.delete(A, seen=home.store.read(A).version, op="2")
    assert not (home.root / A).exists()


def test_a_deleted_note_ends_its_document_and_brought_back_has_the_same_id(home: Home) -> None:
    home.put("one\n")
    document = home.open()
    ann = Typist(document)
    home.store.delete(A, seen=home.store.read(A).version, op="1")
    assert "deleted" in ann.ended
    with pytest.raises(Unavailable):
        ann.type("too late")
    home.store.write(A, b"one\nback\n", seen=None, op="2")
    assert home.documents.id_of(A) == document.id
    assert str(Typist(home.open()).text) == "one\nback\n"


def test_a_file_that_vanishes_under_somebody_who_types_comes_back_with_what_was_typed(home: Home) -> None:
    home.put("one\n")
    ann = Typist(home.open())
    (home.root / A).unlink()
    ann.type("two\n")
    until(lambda: (home.root / A).exists() and home.text() == "one\ntwo\n")
    (home.root / A).unlink()
    until(lambda: bool(ann.ended))


def test_a_document_nobody_has_open_is_let_go_and_comes_back(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents_module, "IDLE_S", 0.0)
    home.put("one\n")
    document = home.open()
    ann = Typist(document)
    ann.type("two\n")
    home.documents.release(document)
    until(lambda: home.documents.find_open(A) is None)
    assert home.text() == "one\ntwo\n"
    home.put("ONE\ntwo\n")
    again = home.open()
    assert again is not document and again.is_related(ann.doc.get_state())
    assert str(Typist(again).text) == "ONE\ntwo\n"


def test_nobody_is_told_that_something_is_on_the_disk_that_could_not_be_written(tmp_path: Path) -> None:
    log = LiveLog(tmp_path / "live.db")
    log.add_document("one")
    log.run(lambda db: db.execute("pragma max_page_count = 1").fetchall())
    acknowledged: list[int] = []
    log.append_update("one", b"x" * 500_000)
    log.call_when_durable(lambda: acknowledged.append(1))
    time.sleep(0.7)
    log.call_when_durable(lambda: acknowledged.append(2))
    assert acknowledged == []
    log._db.execute("pragma max_page_count = 100000").fetchall()
    until(lambda: acknowledged == [1, 2])
    assert log.run(lambda db: db.execute("select length(data) from updates").get) == 500_000
    log.close()


def test_a_log_that_cannot_be_read_is_laid_aside(home: Home) -> None:
    home.put("one\n")
    home.state.mkdir()
    (home.state / "live.db").write_bytes(b"no database" * 1000)
    assert str(Typist(home.open()).text) == "one\n"
    assert len(list(home.state.glob("live.db.unreadable-*"))) == 1


def test_one_process_has_the_documents(home: Home) -> None:
    home.put("one\n")
    home.open()
    other = LiveDocuments(FolderStore(home.root), home.state)
    with pytest.raises(Unavailable, match="another process"):
        other.open("any")
    home.store.close()
    assert other.try_host()
    other.close()
    home.start()


@pytest.mark.parametrize("update", [b"", b"\x00", b"\xff" * 20, b"\x01\x02\x03\x04", b"\x01\x01\x01"])
def test_what_is_no_update_is_refused_and_changes_nothing(home: Home, update: bytes) -> None:
    home.put("one\n")
    document = home.open()
    with pytest.raises(Invalid):
        document.apply(update)
    with pytest.raises(Invalid):
        document.is_related(b"\xff\xff\xff")
    with pytest.raises(Invalid):
        document.encode_update(b"\xff\xff\xff")
    assert str(Typist(document).text) == "one\n"


def test_a_document_grows_no_larger_than_a_note_may(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_module, "MAX_TEXT_BYTES", 1_000)
    home.put("one\n")
    document = home.open()
    ann = Typist(document)
    ann.type("x" * 900)
    with pytest.raises(TooLarge, match="1,000 bytes"):
        ann.type("y" * 200)
    assert len(str(Typist(document).text)) == 904


def test_generated_edits_equal_a_plain_model() -> None:
    """Texts of all scripts, with line ends of all kinds: offsets in bytes never fall inside a character."""
    pieces = ["日本", "é", "e\u0301", "👩‍👩‍👧", "שלום", "a", "foo", "\n", "\n\n", " ", "x\ty", "\u2028", "ﬁ", "𝒳"]
    chance = random.Random(7)
    for _ in range(3_000):
        old = "".join(chance.choice(pieces) for _ in range(chance.randrange(40)))
        new = old
        for _ in range(chance.randrange(4)):
            at = chance.randrange(len(new) + 1)
            put = "".join(chance.choice(pieces) for _ in range(chance.randrange(4)))
            new = new[:at] + put + new[at + chance.randrange(6) :]
        doc: Doc[Any] = Doc()
        text = doc.get("contents", type=Text)
        text += old
        with doc.transaction():
            apply_changes(text, old, diff_texts(old, new))
        assert str(text) == new, (old, new)
        raw = "".join(chance.choice(["\n", "\r\n", "\r"]) if piece == "\n" else piece for piece in old).encode()
        assert file_bytes(live_text(A, raw), raw) == raw


def test_a_space_at_the_end_of_a_line_leaves_the_line_end_alone() -> None:
    with_space, without = "ann: one \n\nben: two\n", "ann: one\n\nben: two\n"
    assert diff_texts(with_space, without) == [(8, 9, "")]
    assert diff_texts(without, with_space) == [(8, 8, " ")]
    assert diff_texts("one \ntwo \n", "one\ntwo more\n") == [(3, 4, ""), (8, 9, " more")]


def test_a_difference_of_large_texts_is_found_quickly() -> None:
    lines = [f"line {number}\n" for number in range(40_000)]
    started = time.perf_counter()
    for one, other in [("a " * 100_000, "b " + "a " * 100_000), ("".join(lines), "".join(reversed(lines)))]:
        found = diff_texts(one, other)
        assert found and sum(len(change.new) for change in found) <= len(other)
    assert time.perf_counter() - started < 20
