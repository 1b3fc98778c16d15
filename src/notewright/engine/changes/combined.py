"""Edits of one note that go out in one write, on a store that takes a write of one file now and then only.

Each is a change set of its own, from the text that the one before it leaves: v0→v1, v1→v2, v2→v3. Such a chain is
one change set for the machine, v0→v3, under the id of the last, which is also the operation's name for the store. They
are recorded at once, closed as done from first to last, and as taken back from last to first: whatever is left of them
when a process dies is again such a chain, and recovery finishes it as one. No edit is answered before all are closed.
"""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from notewright.engine.workspace import Workspace
from notewright.errors import Internal, Problem
from notewright.ledger.base import Change
from notewright.notes.path import NotePath
from notewright.stores.base import Version


class Edited(NamedTuple):
    """One note before and after an edit. `change_id` is None where nothing changed."""

    path: NotePath
    before: str
    after: str
    version: Version
    change_id: str | None


@dataclass(eq=False)
class TextEdit:
    """An edit and its answer. `again`: it may be applied to a newer text than was seen."""

    ws: Workspace
    path: NotePath
    change: Callable[[str], str]
    summary: str
    seen: Version | None = None
    again: bool | Callable[[str], bool] = True
    outcome: Edited | Problem | None = None
    answered: threading.Event | None = None  # where another thread makes it

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
    """Edits of this process that wait for the next write of their note. The thread of the first makes all of them."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._waiting: dict[tuple[int, NotePath], list[TextEdit]] = {}

    def add(self, edit: TextEdit) -> bool:
        """Queue it; True if it is the first."""
        with self._mutex:
            waiting = self._waiting.setdefault((id(edit.ws.store), edit.path), [])
            edit.answered = threading.Event()
            waiting.append(edit)
            return len(waiting) == 1

    def take(self, first: TextEdit) -> list[TextEdit]:
        """All that wait, in the order they came: the next one added is a first again."""
        with self._mutex:
            return self._waiting.pop((id(first.ws.store), first.path), [])


def group_chains(unfinished: Iterable[Change]) -> list[tuple[Change, ...]]:
    """Changes that begin where another ends, together; others alone. In a ledger only such edits ever do: every other
    change set is finished before the next one of the same file is recorded."""
    chains: list[tuple[Change, ...]] = []
    for change in unfinished:
        for place, chain in enumerate(chains):
            if len(change.steps) == len(chain[-1].steps) == 1:
                (new,), (old,) = change.steps, chain[-1].steps
                if new.path == old.path and new.before is not None and new.before == old.after:
                    chains[place] = (*chain, change)
                    break
        else:
            chains.append((change,))
    return chains


def merge_change_sets(chain: tuple[Change, ...]) -> Change:
    """A chain as one change set for the machine: from where the first begins to where the last ends."""
    if len(chain) == 1:
        return chain[0]
    (first,), (last,) = chain[0].steps, chain[-1].steps
    return replace(chain[-1], steps=(replace(first, after=last.after),))


def problem_for_change(change: Change, whole: Change, problem: Problem) -> Problem:
    """A problem of the whole chain as the answer to one of its edits: it names that edit's change."""
    if problem.details.get("change") != whole.id or change.id == whole.id:
        return problem
    details = problem.details | {"change": change.id}
    return type(problem)(problem.message, hint=problem.hint.replace(whole.id, change.id), **details)
