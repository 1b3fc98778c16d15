"""Keeping the index in step: at start, by watching, by whoever is elected."""

import os
import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import open_folder
from tests.waiting import until

from notewright.app.opening import close_workspace
from notewright.engine.find.links import links
from notewright.engine.find.search import parse_query, search
from notewright.engine.indexing.difference import IndexDifference, compare
from notewright.engine.indexing.indexer import Indexer
from notewright.engine.read import list_files
from notewright.engine.workspace import Workspace
from notewright.engine.write import create
from notewright.errors import Unavailable
from notewright.index.base import Selection
from notewright.locks import FileLocks
from notewright.notes.path import NotePath
from notewright.stores.base import Entry, select_changed


def entry(path: str, stamp: str = "1", modified_ns: int = 0) -> Entry:
    return Entry(NotePath(path), "file", stamp, 1, modified_ns)


def paths(ws: Workspace) -> list[str]:
    return [filed.path for filed in list_files(ws, Selection(notes_only=False))[0]]


def planned(entries: Iterable[Entry], known: dict[str, str], now_ns: int) -> IndexDifference:
    return compare(lambda left, since_ns: select_changed(entries, left, since_ns), known, now_ns)


def test_only_what_differs_is_filed_again() -> None:
    known = {"a.md": "1", "b.md": "1", "gone.md": "1"}
    found = planned([entry("a.md"), entry("b.md", "2"), entry("new.md")], known, 10**18)
    assert [one.path for one in found.file] == ["b.md", "new.md"]
    assert found.drop == ("gone.md",)


def test_a_file_changed_within_the_clocks_grain_is_read_again() -> None:
    now = 10**18
    found = planned([entry("a.md", modified_ns=now - 10**9)], {"a.md": "1"}, now)
    assert [one.path for one in found.file] == ["a.md"]


@pytest.mark.parametrize(("left", "implausible"), [(0, True), (60, True), (70, False)])
def test_losing_a_third_at_once_is_not_believed(left: int, implausible: bool) -> None:
    known = {f"{n}.md": "1" for n in range(100)}
    found = planned([entry(f"{n}.md") for n in range(left)], known, 10**18)
    assert found.is_implausible is implausible


def test_a_small_vault_may_shrink_as_it_likes() -> None:
    assert not planned([], {"a.md": "1", "b.md": "1"}, 10**18).is_implausible


class Noting:
    """An index that notes how much was filed and dropped together."""

    def __init__(self, index: Any) -> None:
        self._index = index
        self.filed_together: list[tuple[int, int]] = []

    def file(self, filings: Iterable[Any], *, drop: Iterable[str] = ()) -> None:
        put, gone = list(filings), list(drop)
        self._index.file(put, drop=gone)
        self.filed_together.append((len(put), len(gone)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._index, name)


@pytest.mark.slow
@pytest.mark.parametrize("hinted", [True, False])
def test_many_outside_changes_are_filed_in_few_transactions_and_what_is_gone_in_the_first(
    workspace, tmp_path: Path, hinted: bool
) -> None:
    root, old = tmp_path / "Main", time.time() - 60
    ws = workspace({f"{n}.md": f"note {n}\n" for n in range(900)})
    for file in root.iterdir():
        os.utime(file, (old, old))
    ws.follower.wait(20)
    ws.follower.close()
    index = Noting(ws.index)
    follower = Indexer(ws.store, index, FileLocks(tmp_path / "elsewhere"), watch=False)
    follower._compare_everything()
    index.filed_together.clear()
    for n in range(250):
        (root / f"{n}.md").write_text(f"changed {n}\n")
        (root / f"{n + 300}.md").unlink()
    if hinted:
        follower._file([f"{n}.md" for n in (*range(250), *range(300, 550))])
    else:
        follower._compare_everything()
    follower.close()
    assert index.filed_together[0][1] == 250
    assert sum(put for put, _ in index.filed_together) == 250
    assert len(index.filed_together) == 2
    assert search(ws, parse_query("changed")).total == 250


def test_a_new_folder_with_notes_in_it_is_found(workspace, tmp_path: Path) -> None:
    ws = workspace({"Tea.md": "green leaves\n"})
    assert paths(ws) == ["Tea.md"]
    deep = tmp_path / "Main" / "a" / "b"
    deep.mkdir(parents=True)
    (deep / "Deep.md").write_text("found\n")
    until(lambda: "a/b/Deep.md" in paths(ws))


def test_a_second_process_sees_what_the_first_follows(workspace, tmp_path: Path) -> None:
    first = workspace({"Tea.md": "green\n"})
    search(first, parse_query("green"))
    second = workspace()
    (tmp_path / "Main" / "Tea.md").write_text("black\n")
    until(lambda: len(search(second, parse_query("black")).items) == 1)


def test_when_the_first_ends_the_second_takes_over(tmp_path: Path) -> None:
    (tmp_path / "Main").mkdir()
    (tmp_path / "Main" / "Tea.md").write_text("green\n")
    first, second = (open_folder(tmp_path / "Main", tmp_path) for _ in range(2))
    search(second, parse_query("green"))
    close_workspace(first)
    (tmp_path / "Main" / "Tea.md").write_text("black\n")
    until(lambda: len(search(second, parse_query("black")).items) == 1)
    close_workspace(second)


def test_a_vault_that_turns_empty_keeps_its_index_and_takes_no_writes(workspace, tmp_path: Path) -> None:
    ws = workspace({f"All/{n}.md": f"note {n} apple\n" for n in range(20)})
    assert search(ws, parse_query("apple")).total == 20
    (tmp_path / "Main" / "All").rename(tmp_path / "away")  # at once: of notes that go one by one some are forgotten
    until(lambda: ws.follower.progress().stale is not None)
    assert search(ws, parse_query("apple")).total == 20
    with pytest.raises(Unavailable, match="gone"):
        create(ws, NotePath("New.md"), b"x")


def test_a_folder_that_never_held_a_note_is_simply_new(workspace) -> None:
    ws = workspace()
    assert create(ws, NotePath("First.md"), b"hello\n").created
    assert paths(ws) == ["First.md"]


def test_deleting_the_index_while_it_is_used_changes_no_answer(workspace, tmp_path: Path) -> None:
    ws = workspace({f"{n}.md": f"note {n} apple\n" for n in range(20)})
    assert search(ws, parse_query("apple")).total == 20
    shutil.rmtree(tmp_path / "cache", ignore_errors=True)  # somebody may put a file into it meanwhile

    def all_there() -> bool:
        ws.follower.wait(10)
        return search(ws, parse_query("apple")).total == 20

    until(all_there, 10)
    create(ws, NotePath("New.md"), b"apple\n")
    assert search(ws, parse_query("apple")).total == 21


def test_a_rebuild_gives_the_same_answers(workspace) -> None:
    ws = workspace({f"{n}.md": f"note {n} apple [[{n + 1}]]\n" for n in range(20)})
    before = links(ws, NotePath("3.md"))
    told: list[tuple[int, int | None]] = []
    ws.follower.rebuild(lambda done, total: told.append((done, total)))
    assert links(ws, NotePath("3.md")) == before
    assert told[-1] == (20, 20)
