"""Before the index is there: naming and listing answer from the store, as the index will."""

import os
import random
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import until

from notewright.engine.access import Access
from notewright.engine.indexing.indexer import Indexer
from notewright.engine.read import list_files, list_folder, locate
from notewright.engine.workspace import Limits, Workspace
from notewright.engine.write import create
from notewright.errors import Ambiguous, Indexing, Problem
from notewright.index.base import Selection
from notewright.index.sqlite.index import SqliteIndex
from notewright.ledger.sqlite import SqliteLedger
from notewright.locks import FileLocks
from notewright.notes.path import NotePath
from notewright.stores.base import Entry, Stored
from notewright.stores.folder.store import FolderStore

FILES = ("Tea.md", "Tea/Green.md", "Tea/Deep/Black.md", "Coffee/Green.md", "Tea/leaf.png", "Ünï/Straße.md", "a.canvas")


class Noted(FolderStore):
    """A folder that notes when it is listed and watched; it is slow to watch, and reads nothing before it may."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.captured: list[str] = []
        self.may_read, self.may_list = threading.Event(), threading.Event()
        self.may_read.set()
        self.may_list.set()

    def entries(self, below: str = "", *, bare: bool = False) -> Iterator[Entry]:
        self.captured.append("named" if bare else "listed")
        self.may_list.wait(30)
        return super().entries(below, bare=bare)

    def changed_entries(self, known: dict[str, str], since_ns: int) -> Iterator[Entry]:
        self.captured.append("listed")
        return super().changed_entries(known, since_ns)

    def changes(self, stop: threading.Event, *, walked: bool = False) -> Iterator[frozenset[NotePath] | None]:
        time.sleep(0.1)
        self.captured.append("watched")
        return super().changes(stop, walked=walked)

    def read_many(
        self, paths: Sequence[NotePath], *, hidden: bool = False, keep: bool = True
    ) -> list[Stored | Problem]:
        self.may_read.wait(10)
        return super().read_many(paths, hidden=hidden, keep=keep)


@pytest.fixture
def early(tmp_path: Path) -> Iterator[Workspace]:
    """A workspace whose follower has not begun, in a hurry."""
    root = tmp_path / "notes"
    for number, name in enumerate(FILES):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x" * (1 + random.Random(name).randrange(90)))
        os.utime(root / name, (1_700_000_000 + number, 1_700_000_000 + number))
    store, index = Noted(root), SqliteIndex(tmp_path / "cache")
    locks = FileLocks(tmp_path / "cache")
    follower = Indexer(store, index, locks, watch=False)
    limits = Limits(seconds=0.05, index_seconds=0.05)
    ws = Workspace("W", "w", store, index, SqliteLedger.in_memory(), locks, follower, limits=limits)
    yield ws
    follower.close()
    index.close()
    store.close()


def indexed(ws: Workspace) -> Workspace:
    """The same workspace once it is indexed."""
    assert isinstance(ws.follower, Indexer)
    ws.follower.start()
    ws.follower.wait(10)
    return ws


SELECTIONS = [
    Selection(folder=folder, recursive=recursive, notes_only=notes_only, sort=sort, limit=limit, offset=offset)
    for folder in ("", "Tea")
    for recursive in (False, True)
    for notes_only in (False, True)
    for sort in ("path", "name", "modified", "size")
    for limit, offset in ((None, 0), (2, 0), (2, 1))
]


def test_a_listing_before_the_index_is_the_listing_after_it(early: Workspace) -> None:
    seen = [[(filed.path, filed.size, filed.modified_ns) for filed in list_files(early, one)[0]]
            for one in SELECTIONS]  # fmt: skip
    totals = [list_files(early, one)[1] for one in SELECTIONS]
    indexed(early)
    after = [list_files(early, one) for one in SELECTIONS]
    assert seen == [[(filed.path, filed.size, filed.modified_ns) for filed in found] for found, _ in after]
    assert totals == [total for _, total in after]


@pytest.mark.parametrize("glob", [None, "**/*.md", "*.canvas"])
def test_a_folder_before_the_index_is_the_folder_after_it(early: Workspace, glob: str | None) -> None:
    def shown(ws: Workspace) -> list[object]:
        levels = [list_folder(ws, folder, glob=glob) for folder in ("", "Tea")]
        return [(level.folders, [filed.path for filed, _ in level.files], level.total) for level in levels]

    before = shown(early)
    assert before == shown(indexed(early))


def test_a_name_is_known_before_the_index(early: Workspace) -> None:
    assert locate(early, "strasse") == "Ünï/Straße.md"
    assert locate(early, "deep/black") == "Tea/Deep/Black.md"
    with pytest.raises(Ambiguous):
        locate(early, "green")


def test_what_only_the_index_knows_is_waited_for(early: Workspace) -> None:
    with pytest.raises(Indexing):
        locate(early, "an alias perhaps")
    with pytest.raises(Indexing):
        list_files(early, Selection(tags=("x",)))


def test_what_is_hidden_is_not_listed_before_the_index_either(early: Workspace) -> None:
    ws = replace(early, access=Access(hide=("Tea/**",)))
    level = list_folder(ws, "")
    assert [folder for folder, _ in level.folders] == ["Coffee", "Ünï"]
    assert locate(ws, "green") == "Coffee/Green.md"


def test_a_note_made_while_everything_is_indexed_is_listed(early: Workspace) -> None:
    create(early, NotePath("Tea/New.md"), b"new\n")
    assert "Tea/New.md" in [filed.path for filed, _ in list_folder(early, "Tea").files]


def test_while_everything_is_read_names_and_folders_are_told_without_another_listing(early: Workspace) -> None:
    assert isinstance(early.store, Noted) and isinstance(early.follower, Indexer)
    seen = [replace(early, access=Access(hide=hide)) for hide in ((), ("Tea/**",))]
    before = [(list_folder(ws, "").folders, locate(ws, "strasse")) for ws in seen]
    early.store.may_read.clear()
    early.follower.start()
    while early.follower.first_listing() is None:
        time.sleep(0.005)
    early.store.captured.clear()
    assert [(list_folder(ws, "").folders, locate(ws, "strasse")) for ws in seen] == before
    assert early.store.captured == []
    early.store.may_read.set()
    early.follower.wait(10)
    assert early.follower.first_listing() is None


def test_the_stamps_in_the_index_are_read_before_the_watch_is_waited_for(
    early: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(early.store, Noted)
    indexed(early).follower.close()
    noted, may_watch, stamps, changes = early.store.captured, threading.Event(), early.index.stamps, early.store.changes
    noted.clear()
    monkeypatch.setattr(early.index, "stamps", lambda: (noted.append("stamps"), may_watch.set(), stamps())[-1])
    monkeypatch.setattr(early.store, "changes", lambda *stop, **how: may_watch.wait(30) and changes(*stop, **how))
    follower = Indexer(early.store, early.index, FileLocks(tmp_path / "another"))
    follower.start()
    follower.wait(30)
    follower.close()
    assert noted == ["stamps", "watched", "listed"]


def test_a_start_that_finds_nothing_changed_lists_each_folder_once(
    early: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    indexed(early).follower.close()
    listed, scandir = list[str](), os.scandir

    def counted(opened: int) -> Any:
        listed.append(os.readlink(f"/proc/self/fd/{opened}"))
        return scandir(opened)

    monkeypatch.setattr(os, "scandir", counted)
    follower = Indexer(early.store, early.index, FileLocks(tmp_path / "another"))
    follower.start()
    follower.wait(30)
    assert sorted(os.path.relpath(folder, tmp_path / "notes") for folder in listed) == [
        ".", "Coffee", "Tea", "Tea/Deep", "Ünï"
    ]  # fmt: skip
    (tmp_path / "notes/Tea/New.md").write_text("newcomer")  # and each is watched
    until(lambda: early.index.find_file(NotePath("Tea/New.md")) is not None)
    follower.close()


def test_a_name_asked_for_while_everything_is_listed_waits_for_that_listing(early: Workspace) -> None:
    assert isinstance(early.store, Noted) and isinstance(early.follower, Indexer)
    early.store.may_list.clear()
    early.store.may_read.clear()
    early.follower.start()
    while not early.store.captured:
        time.sleep(0.005)
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(locate, early, "strasse")
        time.sleep(0.05)
        early.store.may_list.set()
        assert found.result(30) == "Ünï/Straße.md"
    assert early.store.captured.count("named") == 1
    early.store.may_read.set()


@pytest.mark.parametrize("glob", [None, "**/*.md"])
def test_before_the_index_a_listing_of_one_folder_scans_that_folder_alone(
    early: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, glob: str | None
) -> None:
    for number in range(120):
        (tmp_path / "notes" / f"Year {number % 30}" / f"Month {number // 30}").mkdir(parents=True)
        (tmp_path / "notes" / f"Year {number % 30}" / f"Month {number // 30}" / "Log.md").write_text("log\n")
    scanned, scandir = [], os.scandir
    monkeypatch.setattr(os, "scandir", lambda folder: scanned.append(folder) or scandir(folder))
    level = list_folder(early, "Year 7", glob=glob)
    assert level.folders == (() if glob else tuple((f"Year 7/Month {number}", 1) for number in range(4)))
    assert level.total == (4 if glob else 0)
    assert len(scanned) == 5  # it and the four in it


def test_before_the_index_only_the_files_that_are_shown_are_looked_at(
    early: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(40):
        (tmp_path / "notes" / "Tea" / f"Sort {number:02}.md").write_text("tea\n")
    looked_at: list[str] = []
    stat = early.store.stat
    monkeypatch.setattr(early.store, "stat", lambda path, **given: looked_at.append(path) or stat(path, **given))
    shown = list_folder(early, "Tea", limit=3)
    assert [filed.path for filed, _ in shown.files] == looked_at == ["Tea/Green.md", "Tea/Sort 00.md", "Tea/Sort 01.md"]
    assert shown.total == 41 and all(filed.size and filed.stamp for filed, _ in shown.files)
    assert not any(entry.stamp for entry in early.store.entries("Tea", bare=True))


def test_who_waits_for_the_index_does_not_have_everything_listed_twice(early: Workspace, tmp_path: Path) -> None:
    assert isinstance(early.store, Noted)
    follower = Indexer(early.store, early.index, FileLocks(tmp_path / "another"))
    follower.start()
    follower.wait(10)
    follower.close()
    assert sorted(early.store.captured) == ["listed", "named", "watched"]
    assert early.store.captured[-1] == "listed"
