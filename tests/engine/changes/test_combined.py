"""Edits of one note that go out in one write: each a change of its own, all answered after that write."""

from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pytest
from tests.engine.changes.test_simulation import Killed, Witness
from tests.engine.parts import ANN, memory_workspace, texts
from tests.memory_store import Disk, MemoryStore

from notewright.engine.changes.combined import TextEdit
from notewright.engine.changes.commit import edit_together, recover
from notewright.engine.changes.history import undo
from notewright.engine.workspace import Workspace
from notewright.errors import Conflict, NoSpace, NotFound, Problem, Unavailable
from notewright.ledger.base import ChangeQuery, Ledger
from notewright.ledger.sqlite import SqliteLedger
from notewright.notes.path import NotePath
from notewright.stores.base import version_of

TEA = NotePath("Tea.md")
FIRST = "one two three\n"
LAST = "1 two 3\nfour\n"


def replacing(ws: Workspace, old: str, new: str, **options: object) -> TextEdit:
    def change(text: str) -> str:
        if old not in text:
            raise NotFound(f"no {old}", what="text")
        return text.replace(old, new)

    return TextEdit(ws, TEA, change, f"{old} to {new}", **options)  # type: ignore[arg-type]


def row(ws: Workspace) -> list[TextEdit]:
    """Each needs what the one before it made."""
    pairs = [("one", "first"), ("first", "1"), ("three", "third\nfour"), ("third", "3")]
    return [replacing(ws, old, new) for old, new in pairs]


def together(edits: list[TextEdit]) -> None:
    edit_together(edits[0], lambda first: edits)


def writes_of(ws: Workspace) -> list[str]:
    """What is written from now on."""
    seen: list[str] = []
    store = cast(MemoryStore, ws.store)
    store._step = lambda what, path: seen.append(path) if what == "write" else None
    return seen


def tea(text: str = FIRST) -> Workspace:
    ws = memory_workspace()
    cast(MemoryStore, ws.store).put(TEA, text.encode())
    return ws


def test_they_are_one_write_and_each_is_in_the_history_with_its_own_undo() -> None:
    ws = tea()
    others = ws.by(replace(ANN, user="bob"))
    edits = [*row(ws)[:3], *row(others)[3:]]
    written = writes_of(ws)
    together(edits)
    assert written == [TEA] and texts(ws)[TEA] == LAST
    done = [one.result() for one in edits]
    assert [one.before for one in done] == [FIRST, *(one.after for one in done[:-1])]
    assert [one.version for one in done] == [version_of(one.after.encode()) for one in done]
    past = ws.ledger.find_changes(ChangeQuery())[::-1]
    assert [change.id for change in past] == [one.change_id for one in done]
    assert [change.actor.user for change in past] == ["ann", "ann", "ann", "bob"]
    assert [change.summary for change in past] == ["one to first", "first to 1", "three to third\nfour", "third to 3"]
    undo(ws, done[3].change_id or "")
    assert texts(ws)[TEA] == LAST.replace("3", "third")


def test_one_that_cannot_be_made_or_changes_nothing_is_answered_by_itself() -> None:
    ws = tea()
    wrong, same = replacing(ws, "absent", "x"), replacing(ws, "two", "two")
    stale = replacing(ws, "two", "2", seen="0" * 64, again=False)
    edits = [replacing(ws, "one", "1"), wrong, same, stale, replacing(ws, "1", "I")]
    together(edits)
    assert texts(ws)[TEA] == "I two three\n" and len(ws.ledger.find_changes(ChangeQuery())) == 2
    assert same.result().change_id is None and same.result().after == "1 two three\n"
    for one, problem in ((wrong, NotFound), (stale, Conflict)):
        with pytest.raises(problem):
            one.result()


def test_what_comes_of_a_text_that_is_not_written_yet_fails_with_the_write_of_it() -> None:
    ws = tea()
    early, same, wrong = replacing(ws, "absent", "x"), replacing(ws, "1", "1"), replacing(ws, "one", "x")

    def step(what: str, path: str) -> None:
        if what == "write":
            raise NoSpace("full")

    cast(MemoryStore, ws.store)._step = step
    edits = [early, replacing(ws, "one", "1"), same, wrong]
    together(edits)
    assert texts(ws)[TEA] == FIRST and ws.ledger.find_unfinished() == []
    for one, problem in zip(edits, (NotFound, NoSpace, NoSpace, NoSpace), strict=True):
        with pytest.raises(problem):
            one.result()


def test_what_comes_of_a_text_that_was_not_written_is_tried_again_with_it() -> None:
    ws = tea()
    store, saved = cast(MemoryStore, ws.store), list[str]()
    same, wrong = replacing(ws, "1", "1"), replacing(ws, "four", "4")

    def step(what: str, path: str) -> None:
        if what == "write" and not saved:
            saved.append(path)
            store.disk.put(TEA, FIRST.encode() + b"four\n")

    store._step = step
    together([replacing(ws, "one", "1"), same, wrong])
    assert same.result().after == "1 two three\nfour\n" and same.result().change_id is None
    assert wrong.result().after == texts(ws)[TEA] == "1 two three\n4\n"


def test_where_somebody_saves_in_between_all_are_made_of_what_is_there_then() -> None:
    ws = tea()
    store, edits = cast(MemoryStore, ws.store), row(ws)
    saved: list[str] = []

    def step(what: str, path: str) -> None:
        if what == "write" and not saved:
            saved.append(path)
            store.disk.put(TEA, b"theirs\n" + FIRST.encode())

    store._step = step
    together(edits)
    assert texts(ws)[TEA] == f"theirs\n{LAST}"
    assert len({one.result().change_id for one in edits}) == 4 and ws.ledger.find_unfinished() == []


def test_one_that_is_not_to_be_made_of_what_somebody_saved_in_between_is_a_conflict() -> None:
    ws = tea()
    store, only = cast(MemoryStore, ws.store), replacing(ws, "one", "1", again=False)
    store._step = lambda what, path: store.disk.put(TEA, b"theirs\n") if what == "write" else None
    together([only])
    with pytest.raises(Conflict):
        only.result()
    assert texts(ws)[TEA] == "theirs\n" and ws.ledger.find_changes(ChangeQuery()) == []


def test_where_the_store_is_away_each_is_told_of_its_own_change() -> None:
    ws = tea()
    store, edits = cast(MemoryStore, ws.store), row(ws)

    def step(what: str, path: str) -> None:
        if what in ("write", "read"):
            raise Unavailable("away")

    def away(text: str) -> str:
        store._step = step
        return text + "five\n"

    together([*edits, TextEdit(ws, TEA, away, "last")])
    store._step = lambda what, path: None
    unfinished = [change.id for change in ws.ledger.find_unfinished()]
    told = []
    for one in edits:
        with pytest.raises(Unavailable) as problem:
            one.result()
        told.append(problem.value.details["change"])
        assert told[-1] in problem.value.hint
    assert told == unfinished[:4] and len(unfinished) == 5
    recover(ws)
    assert texts(ws)[TEA] == f"{LAST}five\n" and len(ws.ledger.find_changes(ChangeQuery())) == 5


@pytest.mark.parametrize("keeps_ops", [False, True])
def test_a_process_that_dies_at_any_step_leaves_all_of_them_or_none(keeps_ops: bool) -> None:
    ends = set()
    for deadline in range(200):
        disk, ledger = Disk(keeps_ops=keeps_ops), SqliteLedger.in_memory()
        disk.put(TEA, FIRST.encode())
        left = [deadline]

        def step(what: str, path: str, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise Killed

        edits = row(process(disk, ledger, step))
        try:
            together(edits)
        except Killed:
            cast(MemoryStore, edits[0].ws.store).die()
        else:
            assert len(ends) == 2, "it died before and after the write"
            return
        next_one = process(disk, ledger, lambda what, path: None)
        recover(next_one)
        past = [change.summary for change in ledger.find_changes(ChangeQuery())][::-1]
        assert ledger.find_unfinished() == []
        begun = [FIRST]
        for one in edits[: len(past)]:
            begun.append(one.change(begun[-1]))
        assert texts(next_one)[TEA] == begun[-1], f"after {deadline} steps the history has {past}"
        assert past == [one.summary for one in edits[: len(past)]]
        assert not any(one.outcome for one in edits if not isinstance(one.outcome, Problem))
        ends.add(len(past) == len(edits))
    raise AssertionError("it never ended")


@pytest.mark.parametrize("closed", range(4))
@pytest.mark.parametrize("state", ["done", "taken_back"])
def test_what_the_ledger_cannot_close_is_a_row_that_the_next_process_finishes(state: str, closed: int) -> None:
    disk, ledger = Disk(), SqliteLedger.in_memory()
    disk.put(TEA, FIRST.encode())
    closes: list[str] = []

    def step(what: str, path: str) -> None:
        if what == "write" and state == "taken_back":
            raise NoSpace("full")
        if what == "close":
            closes.append(path)
            if len(closes) == closed + 1:
                raise NoSpace("full")

    edits = row(process(disk, ledger, step))
    together(edits)
    left = 4 - closed
    assert len(ledger.find_unfinished()) == left
    for one in edits:
        if state == "done":
            one.result()
        else:
            with pytest.raises(NoSpace, match="It may have happened all the same"):
                one.result()
    next_one = process(disk, ledger, lambda what, path: None)
    recover(next_one)
    stand = len(edits) if state == "done" else left
    text = FIRST
    for one in edits[:stand]:
        text = one.change(text)
    assert texts(next_one)[TEA] == text and ledger.find_unfinished() == []
    assert [change.summary for change in ledger.find_changes(ChangeQuery())][::-1] == [
        one.summary for one in edits[:stand]
    ]


def process(disk: Disk, ledger: Ledger, step: Callable[[str, str], None]) -> Workspace:
    store = MemoryStore(disk, step=step)
    return memory_workspace(store, cast(Ledger, Witness(ledger, step)), locks=store)
