"""The change-set machine: what to do next so that a change set happens all or not at all. Pure.

    planned ─► recorded in the ledger ─► laid beside ─► applied k of n ─► settled ─► done
                    (the commit point)                       └──────────► settled ─► taken back

One file in a folder that is there is laid beside before it is recorded: both are on disk before its name changes, and
are synced at the same time. What is done is in the index before it is settled, for the same reason.

Steps are applied in three groups: creates, writes, deletes; and taken back in the opposite order. A store that is
`in_order` applies a group from first to last, so that what it holds always looks like "applied k of n" and whoever
comes next can tell k by looking. Elsewhere any subset of one group may be there, and nothing is assumed of the others
in it. `carry_out` is the first run, `recovery` that of whoever comes next; both are generators that yield effects and
are sent their results (or thrown the Problem they ended in), and know no store and no ledger.

Somebody else may save a file in the middle. Then, for each file: bytes that are ours or the old ones need no thought;
other bytes are merged with ours where the text allows. What cannot be merged is never overwritten: it decides the
direction. Forward where nothing ahead is in the way, back where nothing behind is; where both are, the writes that can
be made are made, nothing more is deleted, and the change set is kept as what really happened.

A call that failed stays failed: where the store is full, busy or away in the middle, the first run goes back and closes
the change set. Where it cannot even do that, the problem it ends in names the change set: whoever comes next finishes
it or takes it back, and the caller knows that it may have happened.
"""

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from notewright.engine.changes._case_only import half_moved, twins_of
from notewright.engine.changes.merge import held, joined, merged, replaced
from notewright.errors import Busy, Conflict, Exists, Forbidden, NoSpace, NotFound, Problem, Unavailable
from notewright.ledger.base import Change, State, Step
from notewright.notes.path import NotePath
from notewright.stores.base import OpId, Stored, Swap, SwapResult, version_of

_IN_THE_WAY = (Conflict, Exists, NotFound, Forbidden)
_ROUNDS = 16  # so often somebody may interfere before we leave it to the next call


@dataclass(frozen=True, slots=True)
class Record:
    change: Change
    blobs: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Stage:
    op: OpId
    path: NotePath
    data: bytes


@dataclass(frozen=True, slots=True)
class Read:
    """Answered for each path with a Stored, the Problem of reading it, or None where nothing is."""

    paths: tuple[NotePath, ...]


@dataclass(frozen=True, slots=True)
class AskApplied:
    """Answered with those of these paths that the store knows to have been written for this op."""

    op: OpId
    paths: tuple[NotePath, ...]


@dataclass(frozen=True, slots=True)
class Recall:
    """Answered with the kept bytes of that SHA-256, or None."""

    version: str


@dataclass(frozen=True, slots=True)
class Write:
    """One group of writes or deletes. Answered with the outcome of each, or of those up to the first problem."""

    op: OpId
    swaps: tuple[Swap, ...]


@dataclass(frozen=True, slots=True)
class Respell:  # answered with the Stored under its new spelling, or None where the two are different names
    old: NotePath
    new: NotePath


@dataclass(frozen=True, slots=True)
class Settle:
    op: OpId
    emptied: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sweep:
    folders: frozenset[str]


@dataclass(frozen=True, slots=True)
class IndexFiles:
    """Into the index, before it is closed: nobody looks at what is closed, and plans are made from the index. What is
    known to be there need not be read again."""

    paths: tuple[NotePath, ...]
    sights: Mapping[NotePath, Stored | None]


@dataclass(frozen=True, slots=True)
class Close:
    """Answered with whether the ledger could write it down."""

    change_id: str
    state: State
    steps: tuple[Step, ...] | None


Effect = Record | Stage | Read | AskApplied | Recall | Write | Respell | Settle | Sweep | IndexFiles | Close
Sights = dict[NotePath, Stored | None]  # what is there now; a path that could not be read is absent


@dataclass(frozen=True, slots=True)
class Outcome:
    state: State
    sights: Sights  # what is there in the end
    merged: tuple[NotePath, ...] = ()  # where somebody else's text was put together with ours
    kept: tuple[NotePath, ...] = ()  # where somebody else's bytes were in the way and stayed
    cause: Problem | None = None  # why it was taken back
    closed: bool = True


Machine = Generator[Effect, Any, Outcome]


@dataclass(frozen=True, slots=True)
class FileGoal:
    """How one file is to be in the end. `data` None is absence; `moot`: somebody replaced the very place of the step,
    so that it holds neither the old words nor ours, and there is nothing to do."""

    data: bytes | None
    moot: bool = False


@dataclass(frozen=True, slots=True)
class Route:
    """Where a change set goes from here: the files to bring to their ends, in this order."""

    state: State
    ends: tuple[tuple[Step, FileGoal], ...]
    kept: tuple[NotePath, ...] = ()
    steps: tuple[Step, ...] | None = None  # what really happens, where that is not the plan


def carry_out(
    change: Change, blobs: Mapping[str, bytes], sights: Sights, known: Mapping[str, bytes], *, in_order: bool = True
) -> Machine:
    """Make a change set happen whose steps were just seen to be at their beginnings. `known` are its bytes."""
    laid = [step for step in change.steps if step.after is not None]
    if in_order and len(change.steps) == 1 and not change.made:
        yield from _record_beside(change, blobs, laid, known)
    else:
        yield Record(change, blobs)
    try:
        for step in laid if len(change.steps) > 1 else ():
            yield Stage(change.id, step.path, known[step.after or ""])
    except Problem as problem:
        with suppress(Problem):  # what lies beside goes with the next sweep
            yield Settle(change.id, change.made)
        if (yield Close(change.id, "taken_back", None)):
            raise
        raise _in_doubt(change, problem) from problem
    try:
        outcome = yield from _Execution(change, sights, dict(known), first=True, in_order=in_order).finish()
    except Problem as problem:
        with suppress(Problem):
            yield Settle(change.id, ())
        raise _in_doubt(change, problem) from problem
    if outcome.cause and not outcome.closed:
        return replace(outcome, cause=_in_doubt(change, outcome.cause))
    return outcome


def _record_beside(
    change: Change, blobs: Mapping[str, bytes], laid: list[Step], known: Mapping[str, bytes]
) -> Generator[Effect, Any, None]:
    """Of one file in a folder that is there: its bytes are laid before the change is recorded, so that both are synced
    at the same time. Who dies in between leaves a file that holds nothing of anybody's; a listing finds it."""
    try:
        for step in laid:
            yield Stage(change.id, step.path, known[step.after or ""])
        yield Record(change, blobs)
    except Problem:
        with suppress(Problem):
            yield Settle(change.id, ())
        raise


def _in_doubt(change: Change, problem: Problem, *, recorded: bool = True) -> Problem:
    """The same problem, told of a change set that is still recorded: whoever comes next decides what becomes of it. Or
    of one that was taken back, though a write of it had no answer: somebody saved that note since, perhaps over ours,
    or the store says that the write may still be under way."""
    comes = f"the next write completes change {change.id} or takes it back; look in the history before you try again"
    gone = f"change {change.id} was taken back as far as could be seen; read the note before you try again"
    hint = comes if recorded else gone
    details = problem.details | {"change": change.id}
    return type(problem)(f"{problem.message}. It may have happened all the same", hint=hint, **details)


def recovery(change: Change, *, in_order: bool = True) -> Machine:
    """Finish what a dead process left, or take it back."""
    run = _Execution(change, {}, {}, first=False, in_order=in_order)
    yield from run.look()
    return (yield from run.finish())


@dataclass
class _Execution:
    change: Change
    sights: Sights
    known: dict[str, bytes]
    first: bool  # by the process that was asked: it may still refuse
    in_order: bool
    begun: bool = False  # something may have been written
    applied: set[NotePath] = field(default_factory=set)  # known to have been written, whatever came over them since
    turning: bool = False  # no room to go on, or the store was away: back, if that is possible
    barred: set[NotePath] = field(default_factory=set)  # the store lets nobody write there
    cause: Problem | None = None
    unanswered: set[NotePath] = field(default_factory=set)  # written to, and nobody knows whether it happened
    merged: set[NotePath] = field(default_factory=set)
    spelled: set[NotePath] = field(default_factory=set)  # new names that an old file was given by respelling
    respelled: set[tuple[NotePath, NotePath]] = field(
        default_factory=set
    )  # names that have their new spelling, no more

    def __post_init__(self) -> None:
        self.twins = twins_of(self.change.steps)

    def finish(self) -> Machine:
        for _ in range(_ROUNDS):
            way = self._route()
            try:
                yield from self._follow(way)
            except _IN_THE_WAY as problem:
                self.cause = self.cause if self.turning else problem
            except (NoSpace, Busy, Unavailable) as problem:
                if self.turning or not self.first:
                    raise  # not finished: whoever comes next tries again
                self.cause, self.turning = problem, True
                self.begun |= isinstance(problem, Unavailable)  # perhaps only the answer was lost
                yield Settle(self.change.id, ())  # what was laid beside takes the room we need to go back
            else:
                return (yield from self._end(way))
            yield from self.look()
        path = self.change.steps[0].path
        raise Busy("somebody else keeps changing these notes", hint="try again in a moment", path=path)

    def _route(self) -> Route:
        if self.first and not self.begun:
            return self._planned() if self.cause is None else Route("taken_back", ())
        return route(
            self.change.steps, self.sights, self.known, barred=self.barred, back_first=self.turning,
            told=self.applied, in_order=self.in_order,
        )  # fmt: skip

    def _planned(self) -> Route:
        """All steps as planned: they were just seen to be at their beginnings, and nothing was written yet."""
        steps = self.change.steps
        ends = [FileGoal(None if step.after is None else self.known[step.after]) for step in steps]
        return Route("done", tuple(zip(steps, ends, strict=True)))

    def _follow(self, way: Route) -> Generator[Effect, Any, None]:
        forward = way.state == "done"
        for _, group in groupby(way.ends, key=lambda pair: order_of(pair[0])):
            swaps: list[Swap] = []
            for step, end in group:
                there = now = self.sights[step.path]
                if (None if now is None else now.data) == end.data:
                    swaps += _confirmed(step, now) if forward and not self.first else ()
                    continue
                if end.data is not None and now is None:
                    there = yield from self._respell(step.path)
                if there is None or there.data != end.data:
                    source = step.source if end.data is not None else None
                    swaps.append(Swap(step.path, end.data, None if there is None else there.version, source))
            if swaps:
                yield from self._write(swaps, forward)

    def _write(self, swaps: list[Swap], forward: bool) -> Generator[Effect, Any, None]:
        steps = {step.path: step for step in self.change.steps}
        outcomes: list[SwapResult] = yield Write(self.change.id if forward else self.change.id + "x", tuple(swaps))
        for swap, outcome in zip(swaps, outcomes, strict=False):
            if isinstance(outcome, Forbidden):
                self.barred.add(swap.path)
            if isinstance(outcome, Unavailable):
                self.unanswered.add(swap.path)
            if isinstance(outcome, Problem):
                continue
            self.begun = True
            now, step = self.sights[swap.path], steps[swap.path]
            if swap.path not in self.spelled and now and version_of(now.data) not in (step.before, step.after):
                self.merged.add(swap.path)
            if outcome is not None and outcome.data != swap.data:  # by the store
                self.merged.add(swap.path)
            self.sights[swap.path] = outcome
            if forward:
                self.applied.add(swap.path)
        problems = [outcome for outcome in outcomes if isinstance(outcome, Problem)]
        if problems:
            raise min(problems, key=lambda problem: isinstance(problem, _IN_THE_WAY))

    def _respell(self, path: NotePath) -> Generator[Effect, Any, Stored | None]:
        """What a store that ignores case has under another spelling, now spelled so; None on other stores."""
        twin = self.twins.get(path)
        if twin is None or self.sights.get(twin) is None:
            return None
        there: Stored | None = yield Respell(twin, path)
        if there is not None:
            self.begun = True
            self.sights[twin], self.sights[path] = None, there
            self.spelled.add(path)
        return there

    def look(self) -> Generator[Effect, Any, None]:
        """See what is there, and remember the bytes that may be needed to go either way."""
        self.sights = {}
        steps = self.change.steps
        paths = tuple(dict.fromkeys(path for step in steps for path in (step.path, step.source) if path))
        for path, seen in zip(paths, (yield Read(paths)), strict=True):
            if not isinstance(seen, Problem):
                self.sights[path] = seen
            elif not isinstance(seen, Forbidden):
                raise seen
        if not self.first or self.unanswered:
            self.applied |= yield AskApplied(self.change.id, tuple(step.path for step in steps))
        yield from self._unspell()
        for step in self.change.steps:
            for version in (step.before, step.after):
                if version is not None and version not in self.known:
                    data = yield Recall(version)
                    if data is not None:
                        self.known[version] = data
        self.known.update((version_of(seen.data), seen.data) for seen in self.sights.values() if seen is not None)

    def _unspell(self) -> Generator[Effect, Any, None]:
        """A file that has its new spelling and still the old bytes counts as not moved yet."""
        self.respelled = set()
        for old, new, now in list(half_moved(self.change.steps, self.twins, self.sights)):
            if (yield Respell(old, new)) is not None:
                self.respelled.add((new, old))
                self.sights[old], self.sights[new] = now, None

    def _end(self, way: Route) -> Machine:
        for new, old in self.respelled if way.state == "taken_back" else ():
            yield Respell(new, old)
        filing = IndexFiles(tuple(step.path for step in self.change.steps if not step.path.is_hidden), self.sights)
        if way.state == "done":
            if self.first:
                yield filing  # while folders are synced, which is waited for then
            yield Settle(self.change.id, self.change.emptied)
        else:
            yield Settle(self.change.id, ())
            yield Settle(self.change.id + "x", self.change.made)
        if not self.first:  # before it is closed: nobody looks at what is closed
            yield Sweep(frozenset(step.path.folder for step in self.change.steps))
        if way.state != "done" or not self.first:
            yield filing
        closed = yield Close(self.change.id, way.state, way.steps)
        cause = self.cause if way.state == "taken_back" else None
        unsure = [step for step in self.change.steps if step.path in self.unanswered]
        if cause and unsure and (cause.details.get("unknown") or any(map(self._is_saved_over, unsure))):
            cause = _in_doubt(self.change, cause, recorded=False)
        return Outcome(way.state, self.sights, tuple(sorted(self.merged)), way.kept, cause, closed)

    def _is_saved_over(self, step: Step) -> bool:
        now = self.sights.get(step.path)
        return (None if now is None else version_of(now.data)) != step.before


def route(
    steps: tuple[Step, ...],
    sights: Mapping[NotePath, Stored | None],
    known: Mapping[str, bytes],
    *,
    barred: Iterable[NotePath] = (),
    back_first: bool = False,
    told: Iterable[NotePath] = (),
    in_order: bool = True,
) -> Route:
    """Where to go from what is seen. `told`: steps known to have been made, as far as anybody knows."""
    seen = [_Seen(step, sights, known, frozenset(barred)) for step in steps]
    applied = _applied(seen, frozenset(told), in_order)
    ahead = [each.end(applied=made) for each, made in zip(seen, applied, strict=True)]
    forward = None if None in ahead else _forward(steps, ahead)
    if forward is not None and not back_first and not _moot(forward):
        return forward
    behind = [
        each.turned().end(applied=None if made is None else not made) for each, made in zip(seen, applied, strict=True)
    ]
    back = None if None in behind else Route("taken_back", _pairs(steps, behind)[::-1])
    ways = [way for way in ((back, forward) if back_first else (forward, back)) if way is not None]
    ways.sort(key=_moot)  # stable
    return ways[0] if ways else _carried(seen, ahead) or _stand(steps, ahead)


def _applied(seen: Sequence["_Seen"], told: frozenset[NotePath], in_order: bool) -> list[bool | None]:
    """Which steps were made before anybody else came; None where that cannot be known."""
    made = [each.at(each.step.after) or each.step.path in told for each in seen]
    last = max((place for place, is_made in enumerate(made) if is_made), default=-1)
    if in_order or last == -1:
        return [place <= last for place in range(len(seen))]
    group, groups = order_of(seen[last].step), [order_of(each.step) for each in seen]
    return [
        True if is_made else None if own == group else own < group for is_made, own in zip(made, groups, strict=True)
    ]


def order_of(step: Step) -> int:
    """Creates first, so that no link points nowhere on the way, and deletes last."""
    return 2 if step.after is None else 1 if step.before is not None else 0


def _confirmed(step: Step, now: Stored | None) -> list[Swap]:
    """What a dead process did, again: it may have died before the new name was on disk, and now it will be."""
    if now is not None and version_of(now.data) == step.after:
        return [Swap(step.path, now.data, now.version)]
    if now is None and step.after is None and step.before is not None:
        return [Swap(step.path, None, step.before)]
    return []


def _moot(way: Route) -> bool:
    return any(end.moot for _, end in way.ends)


def _pairs(steps: Iterable[Step], ends: Iterable[FileGoal | None]) -> tuple[tuple[Step, FileGoal], ...]:
    return tuple((step, end) for step, end in zip(steps, ends, strict=True) if end is not None)


def _forward(steps: tuple[Step, ...], ahead: list[FileGoal | None]) -> Route:
    ends = _pairs(steps, ahead)
    moot = tuple(step.path for step, end in ends if end.moot)
    return Route("done", ends, moot, tuple(step for step in steps if step.path not in moot) if moot else None)


def _carried(seen: list["_Seen"], ahead: list[FileGoal | None]) -> Route | None:
    """Neither way is open, but all that is in the way are edits under the old names of moved notes: they go along."""
    ends = list(ahead)
    for place, each in enumerate(seen):
        if ends[place] is not None:
            continue
        to = next((at for at, other in enumerate(seen) if other.step.source == each.step.path), None)
        both = None if to is None else each.moved_into(ends[to])
        if to is None or both is None:
            return None
        ends[to], ends[place] = FileGoal(both), FileGoal(None)
    return Route("done", _pairs([each.step for each in seen], ends))


def _stand(steps: tuple[Step, ...], ahead: list[FileGoal | None]) -> Route:
    """Neither way is open: make the writes that can be made and delete nothing, so that every link leads somewhere."""
    ends = _pairs(steps, (None if step.after is None else end for step, end in zip(steps, ahead, strict=True)))
    made = tuple(step for step, _ in ends)
    return Route("done", ends, tuple(step.path for step in steps if step not in made), made)


@dataclass(frozen=True, slots=True)
class _Seen:
    """One step and what is at its path now."""

    step: Step
    sights: Mapping[NotePath, Stored | None]
    known: Mapping[str, bytes]
    barred: frozenset[NotePath]

    def turned(self) -> "_Seen":
        step = self.step
        return replace(self, step=Step(step.path, step.after, step.before, step.source))

    def at(self, version: str | None) -> bool:
        if self.step.path not in self.sights:
            return False
        now = self.sights[self.step.path]
        return (None if now is None else version_of(now.data)) == version

    def end(self, *, applied: bool | None) -> FileGoal | None:
        """How the file is to be after this step, or None where something is in the way. `applied`: the step was made
        before somebody else came, so that what is there now has it unless it shows that it has not."""
        if self.step.path not in self.sights:
            return None
        now = self.sights[self.step.path]
        if self.at(self.step.after):
            return FileGoal(None if now is None else now.data)
        end = self._planned() if self.at(self.step.before) else self._merged(now, applied)
        return None if end and self.step.path in self.barred and end.data != (now and now.data) else end

    def moved_into(self, new: FileGoal | None) -> bytes | None:
        """A note under its new name, with what somebody wrote under the old one since; None where that cannot be."""
        now, before = self.sights.get(self.step.path), self.known.get(self.step.before or "")
        if self.step.after is not None or new is None or new.data is None or now is None or before is None:
            return None
        return None if self.step.path in self.barred else joined(before, new.data, now.data)

    def _planned(self) -> FileGoal | None:
        if self.step.after is None:
            return FileGoal(None)
        data = self.known.get(self.step.after)
        return None if data is None else FileGoal(data)

    def _merged(self, now: Stored | None, applied: bool | None) -> FileGoal | None:
        theirs = FileGoal(None if now is None else now.data)
        if now is None or self.step.before is None or self.step.after is None:
            return theirs if applied else None
        before, after = self.known.get(self.step.before), self.known.get(self.step.after)
        if before is None or after is None:
            return theirs if applied else None
        both = merged(before, after, now.data)
        if both is not None:
            return FileGoal(both)
        there = held(before, after, now.data)
        if there or (applied and there is None):
            return theirs
        return FileGoal(now.data, moot=True) if replaced(before, after, now.data) else None
