"""The change-set machine by itself: what it asks for when the store says busy, is full, or a process died."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from tests.engine.parts import ANN
from tests.memory_store import MemoryStore

from notewright.engine.changes.machine import (
    AskApplied,
    Close,
    Effect,
    IndexFiles,
    Machine,
    Outcome,
    Read,
    Recall,
    Record,
    Settle,
    Stage,
    Sweep,
    Write,
    carry_out,
    recovery,
)
from notewright.errors import Busy, Conflict, Forbidden, NoSpace, Problem, Unavailable
from notewright.ledger.base import Change, Step
from notewright.notes.path import NotePath
from notewright.stores.base import OpId, Stored, Swap, SwapResult, version_of

A, B, C = NotePath("A.md"), NotePath("f/B.md"), NotePath("C.md")
OLD, NEW = b"old\n", b"new\n"
Files = dict[NotePath, bytes]


class One(NamedTuple):
    """One swap of a group, as it comes to its turn."""

    op: OpId
    path: NotePath
    data: bytes | None
    seen: str | None


Deed = Any  # an Effect, One or Indexed
Foreign = Callable[[Deed, Files], None]


def change(*steps: Step) -> Change:
    return Change("c1", 0.0, ANN, "two notes", steps, emptied=("e",), made=("f",))


def step(path: NotePath, before: bytes | None, after: bytes | None) -> Step:
    return Step(path, before and version_of(before), after and version_of(after))


def stored(path: NotePath, data: bytes | None) -> Stored | None:
    if data is None:
        return None
    store = MemoryStore()
    store.put(path, data)
    return store.read(path)


class Indexed(NamedTuple):
    """Files were given to the index, as they are."""

    paths: tuple[NotePath, ...]


class Run:
    """A machine driven against files in a dict; `foreign` may change them, or raise, before each effect is done."""

    def __init__(self, files: Files, foreign: Foreign = lambda effect, files: None) -> None:
        self.files, self.foreign = dict(files), foreign
        self.barred: set[NotePath] = set()
        self.asked: list[Deed] = []

    def drive(self, running: Machine) -> Outcome:
        effect = next(running)
        try:
            while True:
                self.asked += [] if isinstance(effect, Write | IndexFiles) else [effect]
                try:
                    answer = self.answer(effect)
                except Problem as problem:
                    effect = running.throw(problem)
                else:
                    effect = running.send(answer)
        except StopIteration as end:
            outcome: Outcome = end.value
            return outcome

    def answer(self, effect: Effect) -> Any:
        self.foreign(effect, self.files)
        match effect:
            case Read(paths):
                return [self.read(path) for path in paths]
            case AskApplied():
                return frozenset()
            case Recall(version):
                return {version_of(data): data for data in (OLD, NEW)}.get(version)
            case Write(op, swaps):
                return self.write(op, swaps)
            case IndexFiles(paths, files):
                assert all((seen and seen.data) == self.files.get(path) for path, seen in files.items())
                self.asked.append(Indexed(paths))
            case Close():
                return True
        return None

    def read(self, path: NotePath) -> Stored | Problem | None:
        return Forbidden("not this one", path=path) if path in self.barred else stored(path, self.files.get(path))

    def write(self, op: OpId, swaps: tuple[Swap, ...]) -> list[SwapResult]:
        """One after the other to the first problem, as a folder does it."""
        outcomes: list[SwapResult] = []
        for swap in swaps:
            self.asked.append(One(op, swap.path, swap.data, swap.seen))
            try:
                self.foreign(self.asked[-1], self.files)
                if self.files.get(swap.path) != swap.data:
                    self.swap(swap.path, swap.data, swap.seen)
            except Problem as problem:
                return [*outcomes, problem]
            outcomes.append(stored(swap.path, swap.data))
        return outcomes

    def swap(self, path: NotePath, data: bytes | None, seen: str | None) -> None:
        now = self.files.pop(path, None)
        if now is not None and version_of(now) != seen:
            self.files[path] = now
            raise Conflict("changed", path=path, current=version_of(now))
        if data is not None:
            self.files[path] = data

    def deeds(self, *kinds: type) -> list[Deed]:
        return [effect for effect in self.asked if isinstance(effect, kinds)]


def begin(run: Run, todo: Change) -> Machine:
    files = {each.path: stored(each.path, run.files.get(each.path)) for each in todo.steps}
    known = {version_of(data): data for data in (OLD, NEW)}
    return carry_out(todo, known, files, known)


TWO = change(step(A, OLD, NEW), step(B, OLD, NEW))


def test_a_change_is_recorded_staged_applied_filed_settled_and_closed_in_this_order() -> None:
    run = Run({A: OLD, B: OLD})
    outcome = run.drive(begin(run, TWO))
    assert [type(effect) for effect in run.asked] == [Record, Stage, Stage, One, One, Indexed, Settle, Close]
    assert run.asked[-3:] == [Indexed((A, B)), Settle("c1", ("e",)), Close("c1", "done", None)]
    assert outcome.state == "done" and outcome.cause is None and run.files == {A: NEW, B: NEW}


def test_one_file_alone_is_staged_before_it_is_recorded_so_that_both_are_synced_together() -> None:
    run = Run({A: OLD})
    run.drive(begin(run, replace(change(step(A, OLD, NEW)), made=())))
    assert [type(effect) for effect in run.asked] == [Stage, Record, One, Indexed, Settle, Close]


def test_one_file_alone_is_recorded_first_where_its_folder_must_be_made() -> None:
    run = Run({})
    run.drive(begin(run, change(step(C, None, NEW))))
    assert [type(effect) for effect in run.asked] == [Record, One, Indexed, Settle, Close]


@pytest.mark.parametrize("at", [Stage, Record])
def test_one_file_alone_that_cannot_be_staged_or_recorded_leaves_nothing_beside(at: type) -> None:
    def full(effect: Deed, files: Files) -> None:
        if isinstance(effect, at):
            raise NoSpace("full", path=A)

    run = Run({A: OLD}, full)
    with pytest.raises(NoSpace) as refused:
        run.drive(begin(run, replace(change(step(A, OLD, NEW)), made=())))
    assert run.asked[-1] == Settle("c1", ()) and run.deeds(One, Close) == [] and "change" not in refused.value.details


def test_a_folder_that_cannot_be_synced_leaves_the_change_to_the_next_call() -> None:
    def fail(effect: Deed, files: Files) -> None:
        if isinstance(effect, Settle):
            raise Unavailable("input/output error", path=A)

    run = Run({A: OLD}, fail)
    with pytest.raises(Unavailable) as told:
        run.drive(begin(run, replace(change(step(A, OLD, NEW)), made=())))
    assert told.value.details == {"path": A, "change": "c1"} and run.deeds(Close) == [] and run.files == {A: NEW}


def test_what_cannot_be_staged_is_taken_back_before_anything_is_written() -> None:
    def full(effect: Deed, files: Files) -> None:
        if isinstance(effect, Stage) and effect.path == B:
            raise NoSpace("full", path=B)

    run = Run({A: OLD, B: OLD}, full)
    with pytest.raises(NoSpace):
        run.drive(begin(run, TWO))
    assert run.asked[-2:] == [Settle("c1", ("f",)), Close("c1", "taken_back", None)]
    assert run.deeds(One) == []


def test_what_cannot_be_staged_is_closed_though_the_store_cannot_be_reached() -> None:
    def away(effect: Deed, files: Files) -> None:
        if isinstance(effect, Stage | Settle):
            raise Unavailable("away")

    run = Run({A: OLD, B: OLD}, away)
    with pytest.raises(Unavailable) as refused:
        run.drive(begin(run, TWO))
    assert run.deeds(Close) == [Close("c1", "taken_back", None)] and "change" not in refused.value.details


def test_a_store_that_is_away_in_the_middle_and_stays_so_is_told_with_the_change_that_may_have_happened() -> None:
    def away(effect: Deed, files: Files) -> None:
        if away_now or (isinstance(effect, One) and effect.path == B):
            away_now.append(effect)
            raise Unavailable("away", path=B)

    away_now: list[Deed] = []
    run = Run({A: OLD, B: OLD}, away)
    with pytest.raises(Unavailable, match=r"away\. It may have happened all the same\. .*change c1") as told:
        run.drive(begin(run, TWO))
    assert told.value.details == {"path": B, "change": "c1"}
    assert run.deeds(Close) == [] and run.files == {A: NEW, B: OLD}


def test_a_write_whose_answer_was_lost_is_taken_back_when_the_store_answers_again() -> None:
    def lose(effect: Deed, files: Files) -> None:
        if isinstance(effect, One) and effect.path == B and effect.op == "c1":
            files[B] = NEW
            raise Unavailable("no answer", path=B)

    run = Run({A: OLD, B: OLD}, lose)
    outcome = run.drive(begin(run, TWO))
    assert outcome.state == "taken_back" and outcome.cause and "change" not in outcome.cause.details
    assert run.files == {A: OLD, B: OLD} and run.deeds(Close) == [Close("c1", "taken_back", None)]


def test_a_note_that_somebody_saved_over_a_write_without_an_answer_is_told_with_the_change() -> None:
    def lose(effect: Deed, files: Files) -> None:
        if isinstance(effect, One):
            files[C] = NEW + b"theirs\n"
            raise Unavailable("no answer", path=C)

    run = Run({}, lose)
    outcome = run.drive(begin(run, change(step(C, None, NEW))))
    assert outcome.state == "taken_back" and run.files == {C: NEW + b"theirs\n"}
    assert outcome.cause and outcome.cause.details == {"path": C, "change": "c1"}
    assert "read the note before you try again" in outcome.cause.hint


def test_a_write_that_may_still_be_under_way_is_taken_back_and_told_with_the_change() -> None:
    def lose(effect: Deed, files: Files) -> None:
        if isinstance(effect, One) and effect.op == "c1":
            raise Unavailable("no answer", path=A, unknown=True)

    run = Run({A: OLD}, lose)
    outcome = run.drive(begin(run, change(step(A, OLD, NEW))))
    assert outcome.state == "taken_back" and run.files == {A: OLD}
    assert outcome.cause and outcome.cause.details["change"] == "c1"


def test_what_was_taken_back_and_could_not_be_closed_is_told_with_the_change() -> None:
    class Unclosed(Run):
        def answer(self, effect: Effect) -> Any:
            return False if isinstance(effect, Close) else super().answer(effect)

    def refuse(effect: Deed, files: Files) -> None:
        if isinstance(effect, One):
            raise NoSpace("full", path=A)

    run = Unclosed({A: OLD, B: OLD}, refuse)
    outcome = run.drive(begin(run, TWO))
    assert outcome.state == "taken_back" and outcome.cause and outcome.cause.details["change"] == "c1"


@pytest.mark.parametrize("problem", [NoSpace("full", path=B), Busy("being saved", path=B), Unavailable("away", path=B)])
def test_a_store_that_is_full_busy_or_away_in_the_middle_takes_the_change_back_and_says_why(problem: Problem) -> None:
    def refuse(effect: Deed, files: Files) -> None:
        if isinstance(effect, One) and effect.path == B:
            raise problem

    run = Run({A: OLD, B: OLD}, refuse)
    outcome = run.drive(begin(run, TWO))
    assert (outcome.state, outcome.cause) == ("taken_back", problem)
    assert run.files == {A: OLD, B: OLD}
    at = run.asked.index(One("c1", B, NEW, version_of(OLD)))
    assert run.asked[at + 1] == Settle("c1", ()), "what was staged takes the room that going back needs"
    assert One("c1x", A, OLD, version_of(NEW)) in run.asked
    assert run.asked[-4:] == [
        Settle("c1", ()),
        Settle("c1x", ("f",)),
        Indexed((A, B)),
        Close("c1", "taken_back", None),
    ]


def test_a_store_that_stays_busy_on_the_way_back_leaves_the_change_to_the_next_call() -> None:
    def refuse(effect: Deed, files: Files) -> None:
        if isinstance(effect, One) and (effect.path == B or effect.op == "c1x"):
            raise Busy("being saved", path=effect.path)

    run = Run({A: OLD, B: OLD}, refuse)
    with pytest.raises(Busy, match="being saved"):
        run.drive(begin(run, TWO))
    assert run.deeds(Close) == [], "not closed: it is found unfinished and finished then"
    assert run.files == {A: NEW, B: OLD}


def test_a_store_that_is_busy_during_recovery_leaves_it_to_the_next_call() -> None:
    def refuse(effect: Deed, files: Files) -> None:
        if isinstance(effect, One) and effect.path == B:
            raise Busy("being saved", path=B)

    run = Run({A: NEW, B: OLD}, refuse)
    with pytest.raises(Busy):
        run.drive(recovery(TWO))
    assert run.deeds(Close) == [] and run.files == {A: NEW, B: OLD}, "nothing is taken back by who only helps"


def test_somebody_who_never_stops_saving_is_said_after_a_while_and_nothing_stays_staged() -> None:
    count = 0

    def save(effect: Deed, files: Files) -> None:
        nonlocal count
        if isinstance(effect, One) and effect.path == B:
            count += 1
            files[B] = f"{count}\n".encode() + OLD

    run = Run({A: OLD, B: OLD}, save)
    with pytest.raises(Busy) as refused:
        run.drive(begin(run, TWO))
    assert refused.value.details == {"path": A, "change": "c1"} and "look in the history" in refused.value.hint
    assert run.asked[-1] == Settle("c1", ()) and run.deeds(Close) == []
    assert count == 16
    assert run.files[B] == b"16\n" + OLD, "and their last save stands"


def test_recovery_repeats_what_a_dead_process_wrote_and_deleted_so_that_it_is_on_disk() -> None:
    run = Run({A: NEW, B: NEW})
    outcome = run.drive(recovery(change(step(A, OLD, NEW), step(B, OLD, NEW), step(C, OLD, None))))
    assert run.deeds(One) == [
        One("c1", A, NEW, version_of(NEW)),
        One("c1", B, NEW, version_of(NEW)),
        One("c1", C, None, version_of(OLD)),
    ]
    assert run.asked[-4:] == [
        Settle("c1", ("e",)),
        Sweep(frozenset({"", "f"})),
        Indexed((A, B, C)),
        Close("c1", "done", None),
    ]
    assert outcome.state == "done" and outcome.merged == ()


def test_recovery_does_not_write_over_what_somebody_else_made_of_a_note() -> None:
    run = Run({A: b"top\n" + NEW, B: NEW})
    outcome = run.drive(recovery(TWO))
    assert run.deeds(One) == [One("c1", B, NEW, version_of(NEW))]
    assert run.files == {A: b"top\n" + NEW, B: NEW} and outcome.state == "done"


def test_taking_back_repeats_nothing() -> None:
    run = Run({A: OLD, B: b"somebody's\n"})
    outcome = run.drive(recovery(TWO))
    assert outcome.state == "taken_back" and run.deeds(One) == []


def test_the_first_run_repeats_nothing_that_it_wrote_itself() -> None:
    saved = [b"top\n" + OLD]

    def save(effect: Deed, files: Files) -> None:
        if isinstance(effect, One) and effect.path == B and saved:
            files[B] = saved.pop()

    run = Run({A: OLD, B: OLD}, save)
    outcome = run.drive(begin(run, TWO))
    assert [effect.path for effect in run.deeds(One)] == [A, B, B]
    assert run.files == {A: NEW, B: b"top\n" + NEW} and outcome.merged == (B,)


def test_a_note_that_may_not_be_read_does_not_end_a_recovery() -> None:
    run = Run({A: OLD, B: OLD})
    run.barred.add(A)
    outcome = run.drive(recovery(TWO))
    assert outcome.kept == (A,) and run.files[A] == OLD
    assert run.deeds(Close) == [Close("c1", "done", (TWO.steps[1],))]
