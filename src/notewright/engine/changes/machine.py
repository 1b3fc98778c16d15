"""The change-set machine: what to do next so that a change set happens all or not at all. Pure.

    planned ─► recorded in the ledger ─► staged ─► applied k of n ─► settled ─► done
                    (the commit point)                    └──────────► settled ─► taken back

One file in a folder that exists is staged before it is recorded: both are on disk before its name changes, and their
syncs run at the same time. A done change is in the index before it is settled, for the same reason.

Steps are applied in three groups: creates, writes, deletes; and taken back in the opposite order. A store that is
`in_order` applies a group from first to last, so that what it holds always looks like "applied k of n" and whoever
comes next can tell k by looking. Elsewhere any subset of one group may be there, and nothing is assumed of the others
in it. `carry_out` is the first run, `recovery` that of whoever comes next; both are generators that yield effects and
are sent their results (or thrown the Problem they ended in), and know no store and no ledger.

Another program may save a file in the middle. Then, for each file: bytes that are ours or the old ones stay as planned;
other bytes are merged with ours where the text allows. What cannot be merged is never overwritten: it decides the
direction. Forward where nothing ahead is in the way, back where nothing behind is; where both are, the writes that can
be made are made, nothing more is deleted, and the change set is kept as what really happened.

A call that failed stays failed: where the store is full, busy or away in the middle, the first run goes back and closes
the change set. Where it cannot even do that, the problem it ends in names the change set: whoever comes next finishes
it or takes it back, and the caller knows that it may have happened.
"""

from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

from notewright.engine.changes.merge import has_change, has_lost_place, merge_change, merge_texts
from notewright.errors import Busy, Conflict, Exists, Forbidden, NoSpace, NotFound, Problem, Unavailable
from notewright.ledger.base import Change, State, Step
from notewright.notes.path import NotePath, path_key
from notewright.stores.base import OpId, Stored, Swap, SwapResult, version_of

_OBSTACLES = (Conflict, Exists, NotFound, Forbidden)
_MAX_ROUNDS = 16  # after so many interruptions by other programs the next call has to finish it


class Record(NamedTuple):
    change: Change
    blobs: Mapping[str, bytes]


class Stage(NamedTuple):
    op: OpId
    path: NotePath
    data: bytes


class Read(NamedTuple):
    """Answered for each path with a Stored, the Problem of reading it, or None where nothing is."""

    paths: tuple[NotePath, ...]


class AskApplied(NamedTuple):
    """Answered with those of these paths that the store knows to have been written for this op."""

    op: OpId
    paths: tuple[NotePath, ...]


class Recall(NamedTuple):
    """Answered with the kept bytes of that SHA-256, or None."""

    version: str


class Write(NamedTuple):
    """One group of writes or deletes. Answered with the outcome of each, or of those up to the first problem."""

    op: OpId
    swaps: tuple[Swap, ...]


class Respell(NamedTuple):  # answered with the Stored under its new spelling, or None where the two are different names
    old: NotePath
    new: NotePath


class Settle(NamedTuple):
    op: OpId
    emptied: tuple[str, ...]


class Sweep(NamedTuple):
    folders: frozenset[str]


class IndexFiles(NamedTuple):
    """Index these files before the change is closed: recovery does not look at closed changes, and plans are made from
    the index. `files` need not be read again."""

    paths: tuple[NotePath, ...]
    files: Mapping[NotePath, Stored | None]


class Close(NamedTuple):
    """Answered with whether the ledger could record it."""

    change_id: str
    state: State
    steps: tuple[Step, ...] | None


Effect = Record | Stage | Read | AskApplied | Recall | Write | Respell | Settle | Sweep | IndexFiles | Close
SeenFiles = dict[NotePath, Stored | None]  # what is there now; a path that could not be read is absent


class Outcome(NamedTuple):
    state: State
    files: SeenFiles  # what is there in the end
    merged: tuple[NotePath, ...] = ()  # where another program's text was merged with ours
    kept: tuple[NotePath, ...] = ()  # where another program's bytes were in the way and stayed
    cause: Problem | None = None  # why it was taken back
    closed: bool = True


Machine = Generator[Effect, Any, Outcome]


class FileGoal(NamedTuple):
    """How one file is to be in the end. `data` None is absence; `obsolete`: another program replaced the very place of
    the step, so that it holds neither the old words nor ours, and there is nothing to do."""

    data: bytes | None
    obsolete: bool = False


class Route(NamedTuple):
    """Where a change set goes from here: the goal of each file, in this order."""

    state: State
    goals: tuple[tuple[Step, FileGoal], ...]
    kept: tuple[NotePath, ...] = ()
    steps: tuple[Step, ...] | None = None  # what really happens, where that is not the plan


def carry_out(
    change: Change, blobs: Mapping[str, bytes], files: SeenFiles, known: Mapping[str, bytes], *, in_order: bool = True
) -> Machine:
    """Make a change set happen whose steps were just seen to be at their beginnings. `known` are its bytes."""
    staged = [Stage(change.id, step.path, known[step.after]) for step in change.steps if step.after is not None]
    if in_order and len(change.steps) == 1 and not change.made:
        # Stage first, so that bytes and record are synced at the same time. A process that dies in between leaves a
        # temp file that no change set names, which the next listing removes.
        try:
            for stage in staged:
                yield stage
            yield Record(change, blobs)
        except Problem:
            with suppress(Problem):
                yield Settle(change.id, ())
            raise
    else:
        yield Record(change, blobs)
        try:
            for stage in staged if len(change.steps) > 1 else ():
                yield stage
        except Problem as problem:
            with suppress(Problem):  # staged files go with the next sweep
                yield Settle(change.id, change.made)
            if (yield Close(change.id, "taken_back", None)):
                raise
            raise _in_doubt(change, problem) from problem
    try:
        outcome = yield from _Execution(change, files, dict(known), first=True, in_order=in_order).run()
    except Problem as problem:
        with suppress(Problem):
            yield Settle(change.id, ())
        raise _in_doubt(change, problem) from problem
    if outcome.cause and not outcome.closed:
        return outcome._replace(cause=_in_doubt(change, outcome.cause))
    return outcome


def _in_doubt(change: Change, problem: Problem, *, recorded: bool = True) -> Problem:
    """The same problem for a change set that is still recorded: the next write completes it or takes it back. Or
    (not `recorded`) for one that was taken back though a write of it had no answer: another program saved that note
    since, perhaps over ours, or the store says that the write may still be under way."""
    comes = f"the next write completes change {change.id} or takes it back; look in the history before you try again"
    gone = f"change {change.id} was taken back as far as could be seen; read the note before you try again"
    hint = comes if recorded else gone
    details = problem.details | {"change": change.id}
    return type(problem)(f"{problem.message}. It may have happened all the same", hint=hint, **details)


def recovery(change: Change, *, in_order: bool = True) -> Machine:
    """Finish what a dead process left, or take it back."""
    execution = _Execution(change, {}, {}, first=False, in_order=in_order)
    yield from execution.read_files()
    return (yield from execution.run())


@dataclass
class _Execution:
    """One run of a change set: what is known so far, and the effects that bring it to an end."""

    change: Change
    files: SeenFiles
    known: dict[str, bytes]
    first: bool  # by the process that was asked: it may still refuse
    in_order: bool
    started: bool = False  # something may have been written
    applied: set[NotePath] = field(default_factory=set)  # known to have been written, whatever replaced them since
    going_back: bool = False  # no room to go on, or the store was away: back, if that is possible
    forbidden: set[NotePath] = field(default_factory=set)  # the store refuses writes there
    cause: Problem | None = None
    unanswered: set[NotePath] = field(default_factory=set)  # written, but the store did not answer
    merged: set[NotePath] = field(default_factory=set)
    spelled: set[NotePath] = field(default_factory=set)  # new names that an old file was given by respelling
    respelled: set[tuple[NotePath, NotePath]] = field(default_factory=set)  # only their spelling is new: (new, old)

    def __post_init__(self) -> None:
        self.twins = find_case_twins(self.change.steps)

    def run(self) -> Machine:
        for _ in range(_MAX_ROUNDS):
            way = self._route()
            try:
                yield from self._write_goals(way)
            except _OBSTACLES as problem:
                self.cause = self.cause if self.going_back else problem
            except (NoSpace, Busy, Unavailable) as problem:
                if self.going_back or not self.first:
                    raise  # not finished: the next call tries again
                self.cause, self.going_back = problem, True
                self.started |= isinstance(problem, Unavailable)  # perhaps only the answer was lost
                yield Settle(self.change.id, ())  # the staged files take the room we need to go back
            else:
                return (yield from self._close(way))
            yield from self.read_files()
        path = self.change.steps[0].path
        raise Busy("somebody else keeps changing these notes", hint="try again in a moment", path=path)

    def _route(self) -> Route:
        steps = self.change.steps
        if not self.first or self.started:
            return route(
                steps, self.files, self.known, forbidden=self.forbidden, back_first=self.going_back,
                applied=self.applied, in_order=self.in_order,
            )  # fmt: skip
        if self.cause is not None:
            return Route("taken_back", ())
        # As planned: the files were just seen as they were before, and nothing was written yet.
        goals = [(step, FileGoal(None if step.after is None else self.known[step.after])) for step in steps]
        return Route("done", tuple(goals))

    def _write_goals(self, way: Route) -> Generator[Effect, Any, None]:
        forward = way.state == "done"
        for _, group in groupby(way.goals, key=lambda pair: order_of(pair[0])):
            swaps: list[Swap] = []
            for step, goal in group:
                there = now = self.files[step.path]
                if (None if now is None else now.data) == goal.data:
                    if forward and not self.first:
                        # Repeat what a dead process did: it may have died before the new name was on disk.
                        if now is not None and version_of(now.data) == step.after:
                            swaps.append(Swap(step.path, now.data, now.version))
                        elif now is None and step.after is None and step.before is not None:
                            swaps.append(Swap(step.path, None, step.before))
                    continue
                if goal.data is not None and now is None:
                    there = yield from self._respell(step.path)
                if there is None or there.data != goal.data:
                    source = step.source if goal.data is not None else None
                    swaps.append(Swap(step.path, goal.data, None if there is None else there.version, source))
            if swaps:
                yield from self._write(swaps, forward)

    def _write(self, swaps: list[Swap], forward: bool) -> Generator[Effect, Any, None]:
        steps = {step.path: step for step in self.change.steps}
        outcomes: list[SwapResult] = yield Write(self.change.id if forward else self.change.id + "x", tuple(swaps))
        for swap, outcome in zip(swaps, outcomes, strict=False):
            if isinstance(outcome, Forbidden):
                self.forbidden.add(swap.path)
            if isinstance(outcome, Unavailable):
                self.unanswered.add(swap.path)
            if isinstance(outcome, Problem):
                continue
            self.started = True
            now, step = self.files[swap.path], steps[swap.path]
            if swap.path not in self.spelled and now and version_of(now.data) not in (step.before, step.after):
                self.merged.add(swap.path)
            if outcome is not None and outcome.data != swap.data:  # by the store
                self.merged.add(swap.path)
            self.files[swap.path] = outcome
            if forward:
                self.applied.add(swap.path)
        problems = [outcome for outcome in outcomes if isinstance(outcome, Problem)]
        if problems:
            raise min(problems, key=lambda problem: isinstance(problem, _OBSTACLES))

    def _respell(self, path: NotePath) -> Generator[Effect, Any, Stored | None]:
        """What a store that ignores case has under another spelling, now spelled so; None on other stores."""
        twin = self.twins.get(path)
        if twin is None or self.files.get(twin) is None:
            return None
        there: Stored | None = yield Respell(twin, path)
        if there is not None:
            self.started = True
            self.files[twin], self.files[path] = None, there
            self.spelled.add(path)
        return there

    def read_files(self) -> Generator[Effect, Any, None]:
        """Read what is there, and remember the bytes that may be needed to go either way."""
        self.files = {}
        steps = self.change.steps
        paths = tuple(dict.fromkeys(path for step in steps for path in (step.path, step.source) if path))
        for path, seen in zip(paths, (yield Read(paths)), strict=True):
            if not isinstance(seen, Problem):
                self.files[path] = seen
            elif not isinstance(seen, Forbidden):
                raise seen
        if not self.first or self.unanswered:
            self.applied |= yield AskApplied(self.change.id, tuple(step.path for step in steps))
        yield from self._undo_respelling()
        for version in (version for step in steps for version in (step.before, step.after)):
            if version is not None and version not in self.known:
                data = yield Recall(version)
                if data is not None:
                    self.known[version] = data
        self.known.update((version_of(seen.data), seen.data) for seen in self.files.values() if seen is not None)

    def _undo_respelling(self) -> Generator[Effect, Any, None]:
        """Give a file that has its new spelling and still the old bytes its old name: it counts as not moved yet."""
        self.respelled = set()
        before = {step.path: step.before for step in self.change.steps if step.after is None}
        for step in self.change.steps:
            new, old, now = step.path, self.twins.get(step.path), self.files.get(step.path)
            if old is None or now is None or step.before is not None or self.files.get(old) is not None:
                continue
            if step.after != before.get(old) == version_of(now.data) and (yield Respell(old, new)) is not None:
                self.respelled.add((new, old))
                self.files[old], self.files[new] = now, None

    def _close(self, way: Route) -> Machine:
        for new, old in self.respelled if way.state == "taken_back" else ():
            yield Respell(new, old)
        index = IndexFiles(tuple(step.path for step in self.change.steps if not step.path.is_hidden), self.files)
        done = way.state == "done"
        if done and self.first:
            yield index  # while folders are synced: Settle waits for that
        yield Settle(self.change.id, self.change.emptied if done else ())
        if not done:
            yield Settle(self.change.id + "x", self.change.made)
        if not self.first:  # before it is closed: recovery does not look at closed changes
            yield Sweep(frozenset(step.path.folder for step in self.change.steps))
        if not done or not self.first:
            yield index
        closed = yield Close(self.change.id, way.state, way.steps)
        cause = None if done else self.cause
        unsure = [step for step in self.change.steps if step.path in self.unanswered]
        if cause and unsure and (cause.details.get("unknown") or any(map(self._was_saved_over, unsure))):
            cause = _in_doubt(self.change, cause, recorded=False)
        return Outcome(way.state, self.files, tuple(sorted(self.merged)), way.kept, cause, closed)

    def _was_saved_over(self, step: Step) -> bool:
        now = self.files.get(step.path)
        return (None if now is None else version_of(now.data)) != step.before


def find_case_twins(steps: tuple[Step, ...]) -> dict[NotePath, NotePath]:
    """Each path of a change set that has another one in another spelling, with that one: on a store that ignores case
    both names are one file."""
    if len(steps) < 2:
        return {}
    spelled: defaultdict[str, list[NotePath]] = defaultdict(list)
    for step in steps:
        spelled[path_key(step.path)].append(step.path)
    pairs = [pair for pair in spelled.values() if len(pair) == 2]
    return {path: other for one, two in pairs for path, other in ((one, two), (two, one))}


def route(
    steps: tuple[Step, ...],
    files: Mapping[NotePath, Stored | None],
    known: Mapping[str, bytes],
    *,
    forbidden: Iterable[NotePath] = (),
    back_first: bool = False,
    applied: Iterable[NotePath] = (),
    in_order: bool = True,
) -> Route:
    """Where to go from what is there. `applied`: steps known to have been made, as far as anybody knows."""
    states = [_StepState(step, files, known, frozenset(forbidden)) for step in steps]
    made = _find_applied(states, frozenset(applied), in_order)
    ahead = [each.find_goal(applied=was_made) for each, was_made in zip(states, made, strict=True)]
    forward = back = None
    if None not in ahead:
        goals = _pair(steps, ahead)
        obsolete = tuple(step.path for step, goal in goals if goal.obsolete)
        left = tuple(step for step, goal in goals if not goal.obsolete)
        forward = Route("done", goals, obsolete, left if obsolete else None)
        if not back_first and not obsolete:
            return forward
    behind = [
        each.invert().find_goal(applied=None if was_made is None else not was_made)
        for each, was_made in zip(states, made, strict=True)
    ]
    if None not in behind:
        back = Route("taken_back", _pair(steps, behind)[::-1])
    ways = [way for way in ((back, forward) if back_first else (forward, back)) if way is not None]
    if ways:
        return min(ways, key=lambda way: any(goal.obsolete for _, goal in way.goals))  # the first of equals
    return _carry_edits_along(states, ahead) or _keep_what_is_possible(steps, ahead)


def _find_applied(states: Sequence["_StepState"], applied: frozenset[NotePath], in_order: bool) -> list[bool | None]:
    """Which steps were made before another program came; None where that cannot be known."""
    made = [each.is_at(each.step.after) or each.step.path in applied for each in states]
    last = max((place for place, is_made in enumerate(made) if is_made), default=-1)
    if in_order or last == -1:
        return [place <= last for place in range(len(states))]
    group, groups = order_of(states[last].step), [order_of(each.step) for each in states]
    return [
        True if is_made else None if own == group else own < group for is_made, own in zip(made, groups, strict=True)
    ]


def order_of(step: Step) -> int:
    """Creates first, so that no link points nowhere on the way, and deletes last."""
    return 2 if step.after is None else 1 if step.before is not None else 0


def _pair(steps: Iterable[Step], goals: Iterable[FileGoal | None]) -> tuple[tuple[Step, FileGoal], ...]:
    return tuple((step, goal) for step, goal in zip(steps, goals, strict=True) if goal is not None)


def _carry_edits_along(states: list["_StepState"], ahead: list[FileGoal | None]) -> Route | None:
    """Neither way is open, but all that is in the way are edits under the old names of moved notes: they go along."""
    goals = list(ahead)
    for place, each in enumerate(states):
        if goals[place] is not None:
            continue
        to = next((at for at, other in enumerate(states) if other.step.source == each.step.path), None)
        both = None if to is None else each.merge_into_moved(goals[to])
        if to is None or both is None:
            return None
        goals[to], goals[place] = FileGoal(both), FileGoal(None)
    return Route("done", _pair([each.step for each in states], goals))


def _keep_what_is_possible(steps: tuple[Step, ...], ahead: list[FileGoal | None]) -> Route:
    """Neither way is open: make the writes that can be made and delete nothing, so that every link leads somewhere."""
    goals = _pair(steps, (None if step.after is None else goal for step, goal in zip(steps, ahead, strict=True)))
    made = {step.path: step for step, _ in goals}
    return Route("done", goals, tuple(step.path for step in steps if step.path not in made), tuple(made.values()))


class _StepState(NamedTuple):
    """One step and what is at its path now."""

    step: Step
    files: Mapping[NotePath, Stored | None]
    known: Mapping[str, bytes]
    forbidden: frozenset[NotePath]

    def invert(self) -> "_StepState":
        step = self.step
        return self._replace(step=Step(step.path, step.after, step.before, step.source))

    def is_at(self, version: str | None) -> bool:
        if self.step.path not in self.files:
            return False
        now = self.files[self.step.path]
        return (None if now is None else version_of(now.data)) == version

    def find_goal(self, *, applied: bool | None) -> FileGoal | None:
        """How the file is to be after this step, or None where something is in the way. `applied`: the step was made
        before another program came, so that what is there now has it unless it shows that it has not."""
        step = self.step
        if step.path not in self.files:
            return None
        now = self.files[step.path]
        if self.is_at(step.after):
            return FileGoal(None if now is None else now.data)
        if not self.is_at(step.before):
            goal = self._merge_goal(now, applied)
        elif step.after is None:
            goal = FileGoal(None)
        else:
            goal = FileGoal(self.known[step.after]) if step.after in self.known else None
        return None if goal and step.path in self.forbidden and goal.data != (now and now.data) else goal

    def merge_into_moved(self, new: FileGoal | None) -> bytes | None:
        """A note under its new name, with what was written under the old one since; None where that cannot be."""
        now, before = self.files.get(self.step.path), self.known.get(self.step.before or "")
        if self.step.after is not None or new is None or new.data is None or now is None or before is None:
            return None
        return None if self.step.path in self.forbidden else merge_texts(before, new.data, now.data)

    def _merge_goal(self, now: Stored | None, applied: bool | None) -> FileGoal | None:
        theirs = FileGoal(None if now is None else now.data)
        before, after = self.known.get(self.step.before or ""), self.known.get(self.step.after or "")
        if now is None or before is None or after is None:
            return theirs if applied else None
        both = merge_change(before, after, now.data)
        if both is not None:
            return FileGoal(both)
        is_held = has_change(before, after, now.data)
        if is_held or (applied and is_held is None):
            return theirs
        return FileGoal(now.data, obsolete=True) if has_lost_place(before, after, now.data) else None
