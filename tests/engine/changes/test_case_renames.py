"""Renames that change nothing but the case of a name, on disks that tell cases apart and on disks that do not."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.engine.changes.test_changes import Killed
from tests.engine.mounting import ignoring_case
from tests.engine.parts import memory_workspace, texts
from tests.memory_store import Disk, MemoryStore

from notewright.app.opening import close_workspace, open_workspace
from notewright.config.load import Config, WorkspaceConfig
from notewright.engine.changes.commit import commit, recover
from notewright.engine.changes.history import undo
from notewright.engine.changes.plan import Drop, Plan, Put
from notewright.engine.find.links import incoming
from notewright.engine.move import move
from notewright.engine.read import locate
from notewright.engine.workspace import Workspace
from notewright.engine.write import new_path
from notewright.errors import Conflict, Exists, NoSpace, NotFound
from notewright.ledger.sqlite import SqliteLedger
from notewright.notes.path import NotePath
from notewright.stores.folder.store import FolderStore

NOTES = {
    "tea.md": "# tea\n[[#tea]] [[tea]] [other](sub/Cup.md)\n",
    "A.md": "[[tea]] [[TEA|x]] [t](tea.md)\n",
    "sub/Cup.md": "[[../tea]] [[Saucer]]\n",
    "sub/deep/Saucer.md": "[[sub/Cup]] ![[pic.png]]\n",
    "sub/deep/pic.png": "bytes",
}


@pytest.fixture(params=["a disk that ignores case", "a disk that does not"])
def vault(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Workspace, Path]]:
    """A workspace on a real disk, as the product opens it."""
    root = tmp_path / "notes"
    if "not" in request.param:
        yield from _opened(root, tmp_path / "state")
        return
    with ignoring_case(root):
        yield from _opened(root, tmp_path / "state")


def _opened(root: Path, state: Path) -> Iterator[tuple[Workspace, Path]]:
    for path, text in NOTES.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
        os.utime(root / path, (1_700_000_000,) * 2)
    asked = WorkspaceConfig("Main", "main", str(root))
    ws = open_workspace(asked, Config((asked,), str(state), str(state / "cache")), watch=False)
    try:
        yield ws, root
    finally:
        close_workspace(ws)


def on_disk(root: Path) -> dict[str, str]:
    """Every file as a listing spells it."""
    found = [Path(folder) / name for folder, _, names in os.walk(root) for name in names]
    return {file.relative_to(root).as_posix(): file.read_text() for file in found if not file.name.startswith(".")}


def indexed(ws: Workspace) -> set[str]:
    ws.follower.wait_for_all(10)
    return {path for path in (*NOTES, "Tea.md", "Sub/Cup.md", "Sub/deep/Saucer.md") if ws.index.find_file(path)}


@pytest.mark.slow
def test_a_note_changes_the_case_of_its_name_and_its_links_follow(vault: tuple[Workspace, Path]) -> None:
    ws, root = vault
    before = on_disk(root)
    moved = move(ws, NotePath("tea.md"), "Tea")
    assert on_disk(root) == {
        "Tea.md": "# tea\n[[#tea]] [[Tea]] [other](sub/Cup.md)\n",
        "A.md": "[[Tea]] [[Tea|x]] [t](Tea.md)\n",
        "sub/Cup.md": "[[../Tea]] [[Saucer]]\n",
        "sub/deep/Saucer.md": before["sub/deep/Saucer.md"],
        "sub/deep/pic.png": "bytes",
    }
    assert indexed(ws) == {"Tea.md", "A.md", "sub/Cup.md", "sub/deep/Saucer.md", "sub/deep/pic.png"}
    assert len(incoming(ws, NotePath("Tea.md"))) == 4
    assert moved.change_id
    undo(ws, moved.change_id)
    assert on_disk(root) == before
    assert indexed(ws) == set(NOTES)


@pytest.mark.slow
def test_a_folder_changes_the_case_of_its_name_with_all_that_is_in_it(vault: tuple[Workspace, Path]) -> None:
    ws, root = vault
    (root / "sub/.hidden").write_text("stays in it")
    before = on_disk(root)
    moved = move(ws, NotePath("sub"), "Sub")
    assert on_disk(root) == {
        "tea.md": "# tea\n[[#tea]] [[tea]] [other](Sub/Cup.md)\n",
        "A.md": before["A.md"],
        "Sub/Cup.md": "[[../tea]] [[Saucer]]\n",
        "Sub/deep/Saucer.md": "[[Sub/Cup]] ![[pic.png]]\n",
        "Sub/deep/pic.png": "bytes",
    }
    assert moved.change_id
    undo(ws, moved.change_id)
    assert on_disk(root) == before


@pytest.mark.slow
def test_a_name_in_another_spelling_is_not_there_but_taken(vault: tuple[Workspace, Path]) -> None:
    ws, root = vault
    with pytest.raises(Exists, match="the same name in another spelling"):
        new_path(ws, "TEA.md")
    with pytest.raises(Exists):
        move(ws, NotePath("A.md"), "TEA")
    with pytest.raises(Exists):
        move(ws, NotePath("sub/Cup.md"), "SUB/Cup")  # the folder holds other notes
    with pytest.raises(NotFound):
        ws.store.read(NotePath("TEA.md"))
    assert locate(ws, "TEA") == "tea.md"
    assert on_disk(root) == NOTES


@pytest.mark.slow
def test_a_folder_that_ignores_case_is_changed_only_under_the_names_it_has(tmp_path: Path) -> None:
    with ignoring_case(tmp_path / "notes"):
        (tmp_path / "notes/sub").mkdir()
        (tmp_path / "notes/sub/tea.md").write_text("tea")
        store = FolderStore(tmp_path / "notes")
        seen = store.read(NotePath("sub/tea.md")).version
        for path in map(NotePath, ("sub/Tea.md", "Sub/tea.md", "Sub/new.md")):
            with pytest.raises(Exists):
                store.write(path, b"tea", seen=None, op="1")
            with pytest.raises(Conflict):
                store.write(path, b"other", seen=seen, op="2")
            store.delete(path, seen=seen, op="3")
        assert on_disk(tmp_path / "notes") == {"sub/tea.md": "tea"}
        store.close()


@pytest.mark.slow
def test_a_kernel_that_takes_both_names_for_one_file_is_helped_by_a_third_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.rename

    def rename(old: str, new: str, **where: int) -> None:
        if old.casefold() != new.casefold():
            real(old, new, **where)

    with ignoring_case(tmp_path / "notes"):
        for ws, root in _opened(tmp_path / "notes", tmp_path / "state"):
            monkeypatch.setattr(os, "rename", rename)
            move(ws, NotePath("tea.md"), "Tea")
            move(ws, NotePath("sub"), "Sub")
            assert {"Tea.md", "Sub/Cup.md", "Sub/deep/Saucer.md"} < set(on_disk(root))


# ---- in memory: at every step ------------------------------------------------------------------------


def respelling(ws: Workspace) -> Plan:
    """One note with new words and one without get a new spelling, and a link to them follows."""
    there = {path: ws.store.read(NotePath(path)) for path in ("f/a.md", "f/b.md", "c.md")}
    puts = (
        Put(NotePath("F/a.md"), b"new a", None, NotePath("f/a.md")),
        Put(NotePath("F/b.md"), None, None, NotePath("f/b.md")),
        Put(NotePath("c.md"), b"[[F/a]]", there["c.md"]),
    )
    drops = (Drop(NotePath(path), there[path]) for path in ("f/a.md", "f/b.md"))
    return Plan((*puts, *drops), "respelled", emptied=("f",))


OLD = {"f/a.md": "old a", "f/b.md": "b", "c.md": "[[f/a]]"}
NEW = {"F/a.md": "new a", "F/b.md": "b", "c.md": "[[F/a]]"}


def folding(step: Callable[[str, str], None] | None = None) -> Workspace:
    store = MemoryStore(Disk(folds=True), step=step)
    for path, text in OLD.items():
        store.put(path, text.encode())
    return memory_workspace(store)


def steps_of(folds: bool = True) -> list[tuple[str, str]]:
    met: list[tuple[str, str]] = []
    ws = folding(lambda what, path: met.append((what, path)))
    commit(ws, respelling(ws))
    assert texts(ws) == NEW
    return met


def test_a_store_that_ignores_case_keeps_one_file_for_two_spellings() -> None:
    ws = folding()
    with pytest.raises(Exists):
        ws.store.write(NotePath("F/A.md"), b"x", seen=None, op="1")
    with pytest.raises(NotFound):
        ws.store.read(NotePath("F/a.md"))
    with pytest.raises(Exists):
        ws.store.write(NotePath("C.md"), b"x", seen=None, op="1")


def test_killed_at_any_step_of_a_change_of_case_it_is_all_old_or_all_new() -> None:
    met = steps_of()
    outcomes = set()
    for number in range(len(met)):
        count = iter(range(len(met) * 10))

        def die(what: str, path: str, at: int = number, count: Iterator[int] = count) -> None:
            if next(count, 0) == at:
                raise Killed

        ws = folding(die)
        with pytest.raises(Killed):
            commit(ws, respelling(ws))
        store = ws.store
        assert isinstance(store, MemoryStore)
        store.die()
        after = memory_workspace(MemoryStore(store.disk), ws.ledger)
        recover(after)
        assert texts(after) in (OLD, NEW), (number, met[number])
        assert after.ledger.find_unfinished() == []
        outcomes.add(texts(after) == NEW)
    assert outcomes == {True, False}


def test_a_change_of_case_that_finds_no_room_leaves_every_name_as_it_was() -> None:
    for what, path in dict.fromkeys(steps_of()):
        if what not in ("write", "stage"):
            continue
        waiting = [(what, path)]

        def full(did: str, where: str, waiting: list[tuple[str, str]] = waiting) -> None:
            if waiting and (did, where) == waiting[0]:
                waiting.clear()
                raise NoSpace("the disk is full")

        ws = folding(full)
        with pytest.raises(NoSpace):
            commit(ws, respelling(ws))
        assert texts(ws) == OLD, (what, path)


def test_a_change_of_case_on_a_real_folder_lets_the_ledger_keep_the_bytes(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("words")
    ws = memory_workspace(FolderStore(tmp_path), SqliteLedger.in_memory())
    seen = ws.store.read(NotePath("a.md"))
    moved = (Put(NotePath("A.md"), None, None, NotePath("a.md")), Drop(NotePath("a.md"), seen))
    commit(ws, Plan(moved, "respelled"))
    assert ws.ledger.blob(seen.version) == b"words"
