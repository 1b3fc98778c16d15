"""Laws of change sets: a plan applied twice is applied once; what is undone was never done."""

from typing import cast

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.parts import memory_workspace
from tests.memory_store import MemoryStore

from notewright.engine.changes.commit import commit, drive
from notewright.engine.changes.history import undo
from notewright.engine.changes.machine import recovery
from notewright.engine.changes.merge import merge_change
from notewright.engine.changes.plan import Drop, Plan, Put
from notewright.engine.workspace import Workspace
from notewright.notes.path import NotePath

NAMES = ("A.md", "B.md", "x/C.md", "x/y/D.md", "pic.png")
TEXTS = st.sampled_from((b"", b"one\n", b"one\ntwo\n", b"\xff\xfe not text", "ünï\r\n".encode()))
VAULTS = st.dictionaries(st.sampled_from(NAMES), TEXTS)
WISHES = st.dictionaries(st.sampled_from(NAMES), st.none() | TEXTS | st.sampled_from(NAMES), min_size=1)


def vault(notes: dict[str, bytes]) -> Workspace:
    ws = memory_workspace()
    for path, data in notes.items():
        cast(MemoryStore, ws.store).put(path, data)
    return ws


def files(ws: Workspace) -> dict[str, bytes]:
    return {path: file.data for path, file in cast(MemoryStore, ws.store).disk.files.items()}


def plan(ws: Workspace, wishes: dict[str, bytes | str | None]) -> Plan:
    """Some files are to hold these bytes, or those of another file, or to be gone."""
    notes, steps = files(ws), list[Put | Drop]()
    for path, wish in wishes.items():
        seen = ws.store.read(NotePath(path)) if path in notes else None
        if wish is None:
            steps += [Drop(NotePath(path), seen)] if seen else []
        elif isinstance(wish, bytes):
            steps.append(Put(NotePath(path), wish, seen))
        elif wish in notes:
            steps.append(Put(NotePath(path), None, seen, NotePath(wish)))
    return Plan(tuple(steps), "as wished")


def outcome(notes: dict[str, bytes], wishes: dict[str, bytes | str | None]) -> dict[str, bytes]:
    after = dict(notes)
    for path, wish in wishes.items():
        if wish is None:
            after.pop(path, None)
        elif isinstance(wish, bytes):
            after[path] = wish
        elif wish in notes:
            after[path] = notes[wish]
    return after


@settings(deadline=None)  # a busy machine breaks no law
@given(VAULTS, WISHES)
def test_a_commit_does_what_the_plan_says(notes: dict[str, bytes], wishes: dict[str, bytes | str | None]) -> None:
    ws = vault(notes)
    commit(ws, plan(ws, wishes))
    assert files(ws) == outcome(notes, wishes)


@settings(deadline=None)  # a busy machine breaks no law
@given(VAULTS, WISHES)
def test_a_commit_and_its_undo_are_nothing(notes: dict[str, bytes], wishes: dict[str, bytes | str | None]) -> None:
    ws = vault(notes)
    folders = set(cast(MemoryStore, ws.store).disk.folders)
    done = commit(ws, plan(ws, wishes))
    if done.id is None:
        return
    after = files(ws)
    undone = undo(ws, done.id)
    assert files(ws) == notes
    assert cast(MemoryStore, ws.store).disk.folders == folders
    assert undone.done and undone.done.id
    undo(ws, undone.done.id)
    assert files(ws) == after


@settings(deadline=None)  # a busy machine breaks no law
@given(VAULTS, WISHES)
def test_a_plan_applied_twice_is_applied_once(notes: dict[str, bytes], wishes: dict[str, bytes | str | None]) -> None:
    ws = vault(notes)
    done = commit(ws, plan(ws, wishes))
    after = files(ws)
    change = ws.ledger.change(done.id) if done.id else None
    if change is not None:
        assert drive(recovery(change), ws).state == "done"
    assert files(ws) == after


# Lines that differ: of two equal lines nobody can say which one somebody else added.
LINES = st.lists(st.sampled_from([f"{word}\n" for word in "abcdefgh"]), max_size=6, unique=True).map("".join)


@settings(deadline=None)  # a busy machine breaks no law
@given(LINES, LINES, LINES)
def test_putting_a_change_in_twice_puts_it_in_once(before: str, after: str, theirs: str) -> None:
    once = merge_change(before.encode(), after.encode(), theirs.encode())
    if once is None or once == theirs.encode():
        return
    assert merge_change(before.encode(), after.encode(), once) in (once, None)
