"""Edits of one note that go out in one write, on a store that takes a write of one file now and then only.

Each is a change set of its own, from the text that the one before it leaves: v0→v1, v1→v2, v2→v3. For the machine they
are one, v0→v3, under the id of the last, which is also the operation that the store is told. They are recorded at
once, closed as done from first to last, and as taken back from last to first: whatever is left of them when a process
dies is again such a row, and whoever comes next finishes it as one. Nobody is answered before all are closed.
"""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from notewright.engine.workspace import Workspace
from notewright.errors import Internal, Problem
from notewright.ledger.base import Change
from notewright.notes.path import NotePath
from notewright.stores.base import Version


@dataclass(frozen=True, slots=True)
class Edited:
    """One note before and after an edit. `change_id` is None where nothing changed."""

    path: NotePath
    before: str
    after: str
    version: Version
    change_id: str | None


@dataclass(eq=False)
class TextEdit:
    """An edit that somebody waits for. `again`: it may be applied to a newer text than was seen."""

    ws: Workspace
    path: NotePath
    change: Callable[[str], str]
    summary: str
    seen: Version | None = None
    again: bool | Callable[[str], bool] = True
    outcome: Edited | Problem | None = None
    answered: threading.Event | None = None  # for one that waits for others to make it

    def answer(self, outcome: Edited | Problem) -> None:
        if self.outcome is None:
            self.outcome = outcome
            if self.answered is not None:
                self.answered.set()

    def result(self) -> Edited:
        if isinstance(self.outcome, Problem):
            raise self.outcome
        if self.outcome is None:
            raise Internal("an edit was not answered")
        return self.outcome


class EditQueue:
    """Edits that wait for the next write of their note, in this process. The first of them sees to all."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._waiting: dict[tuple[int, NotePath], list[TextEdit]] = {}

    def add(self, edit: TextEdit) -> bool:
        """Is it the first?"""
        with self._mutex:
            waiting = self._waiting.setdefault(_key(edit), [])
            edit.answered = threading.Event()
            waiting.append(edit)
            return len(waiting) == 1

    def take(self, first: TextEdit) -> list[TextEdit]:
        """All that wait, in the order they came: whoever comes now is the first of the next."""
        with self._mutex:
            return self._waiting.pop(_key(first), [])


def _key(edit: TextEdit) -> tuple[int, NotePath]:
    return id(edit.ws.store), edit.path


def rows(unfinished: Iterable[Change]) -> list[tuple[Change, ...]]:
    """Changes that begin where another ends, together; others alone. In a ledger only such edits ever do: every other
    change set is finished before the next one of the same file is recorded."""
    found: list[tuple[Change, ...]] = []
    for change in unfinished:
        for place, row in enumerate(found):
            if _follows(change, row[-1]):
                found[place] = (*row, change)
                break
        else:
            found.append((change,))
    return found


def _follows(change: Change, before: Change) -> bool:
    if len(change.steps) != 1 or len(before.steps) != 1:
        return False
    (new,), (old,) = change.steps, before.steps
    return new.path == old.path and new.before is not None and new.before == old.after


def as_one(row: tuple[Change, ...]) -> Change:
    """What the machine is told of a row: from where the first begins to where the last ends."""
    if len(row) == 1:
        return row[0]
    (first,), (last,) = row[0].steps, row[-1].steps
    return replace(row[-1], steps=(replace(first, after=last.after),))


def told_of(change: Change, whole: Change, problem: Problem) -> Problem:
    """A problem of all, for whoever waits for this one: where it names the change, it names theirs."""
    if problem.details.get("change") != whole.id or change.id == whole.id:
        return problem
    details = problem.details | {"change": change.id}
    return type(problem)(problem.message, hint=problem.hint.replace(whole.id, change.id), **details)
