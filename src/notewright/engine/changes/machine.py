"""The change-set machine: what to do next so that a change set happens all or not at all. Pure.

    planned ─► recorded in the ledger ─► laid beside ─► applied k of n ─► settled ─► done
                    (the commit point)                       └──────────► settled ─► taken back

Steps are applied in order: creates, writes, deletes; and taken back in the opposite order. So what the store holds
always looks like "applied k of n", and whoever comes next can tell k by looking. `carry_out` is the first run,
`recovery` that of whoever comes next; both are generators that yield effects and are sent their results (or thrown
the Problem they ended in), and know no store and no ledger.

Somebody else may save a file in the middle. Then, for each file: bytes that are ours or the old ones need no thought;
other bytes are merged with ours where the text allows. What cannot be merged is never overwritten: it decides the
direction. Forward where nothing ahead is in the way, back where nothing behind is; where both are, the writes that can
be made are made, nothing more is deleted, and the change set is kept as what really happened.
"""

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from notewright.engine.changes.case_only import half_moved, twins_of
from notewright.engine.changes.merge import held, joined, merged, replaced
from notewright.errors import Busy, Conflict, Exists, Forbidden, NoSpace, NotFound, Problem
from notewright.ledger.base import Change, State, Step
from notewright.notes.path import NotePath
from notewright.stores.base import OpId, Stored, Version, version_of

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
    """Answered with a Stored, or None where nothing is."""

    path: NotePath


@dataclass(frozen=True, slots=True)
class Recall:
    """Answered with the kept bytes of that SHA-256, or None."""

    version: str


@dataclass(frozen=True, slots=True)
class Write:
    """Answered with a Stored."""

    op: OpId
    path: NotePath
    data: bytes
    seen: Version | None


@dataclass(frozen=True, slots=True)
class Respell:  # answered with the Stored under its new spelling, or None where the two are different names
    old: NotePath
    new: NotePath


@dataclass(frozen=True, slots=True)
class Delete:
    op: OpId
    path: NotePath
    seen: Version


@dataclass(frozen=True, slots=True)
class Settle:
    op: OpId
    emptied: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sweep:
    folders: frozenset[str]


@dataclass(frozen=True, slots=True)
class IndexPaths:
    """Into the index, before it is closed: nobody looks at what is closed, and plans are made from the index."""

    paths: tuple[NotePath, ...]


@dataclass(frozen=True, slots=True)
class Close:
    change_id: str
    state: State
    steps: tuple[Step, ...] | None


Effect = Record | Stage | Read | Recall | Write | Respell | Delete | Settle | Sweep | IndexPaths | Close
Sights = dict[NotePath, Stored | None]  # what is there now; a path that could not be read is absent


@dataclass(frozen=True, slots=True)
class Outcome:
    state: State
    sights: Sights  # what is there in the end
    merged: tuple[NotePath, ...] = ()  # where somebody else's text was put together with ours
    kept: tuple[NotePath, ...] = ()  # where somebody else's bytes were in the way and stayed
    cause: Problem | None = None  # why it was taken back


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


def carry_out(change: Change, blobs: Mapping[str, bytes], sights: Sights, known: Mapping[str, bytes]) -> Machine:
    """Make a change set happen whose steps were just seen to be at their beginnings. `known` are its bytes."""
    yield Record(change, blobs)
    laid = [step for step in change.steps if step.after is not None]
    try:
        for step in laid if len(change.steps) > 1 else ():
            yield Stage(change.id, step.path, known[step.after or ""])
    except Problem:
        yield Settle(change.id, change.made)
        yield Close(change.id, "taken_back", None)
        raise
    return (yield from _Execution(change, sights, dict(known), first=True).finish())


def recovery(change: Change) -> Machine:
    """Finish what a dead process left, or take it back."""
    run = _Execution(change, {}, {}, first=False)
    yield from run.look()
    return (yield from run.finish())


@dataclass
class _Execution:
    change: Change
    sights: Sights
    known: dict[str, bytes]
    first: bool  # by the process that was asked: it may still refuse
    begun: bool = False
    turning: bool = False  # there is no room to go on: back, if that is possible
    barred: set[NotePath] = field(default_factory=set)  # the store lets nobody write there
    cause: Problem | None = None
    merged: set[NotePath] = field(default_factory=set)
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
            except (Conflict, Exists, NotFound, Forbidden) as problem:
                self.cause = self.cause if self.turning else problem
            except (NoSpace, Busy) as problem:
                if self.turning or not self.first:
                    raise  # not finished: whoever comes next tries again
                self.cause, self.turning = problem, True
                yield Settle(self.change.id, ())  # what was laid beside takes the room we need to go back
            else:
                return (yield from self._end(way))
            yield from self.look()
        yield Settle(self.change.id, ())
        path = self.change.steps[0].path
        raise Busy("somebody else keeps changing these notes", hint="try again in a moment", path=path)

    def _route(self) -> Route:
        if self.first and self.cause and not self.begun:
            return Route("taken_back", ())
        return route(self.change.steps, self.sights, self.known, barred=self.barred, back_first=self.turning)

    def _follow(self, way: Route) -> Generator[Effect, Any, None]:
        op = self.change.id if way.state == "done" else self.change.id + "x"
        for step, end in way.ends:
            now = self.sights[step.path]
            if (None if now is None else now.data) == end.data:
                if not self.first and way.state == "done":
                    yield from self._confirm(step, now, op)
                continue
            try:
                yield from self._bring(step, end, now, op)
            except Forbidden:
                self.barred.add(step.path)
                raise
            self.begun = True

    def _bring(self, step: Step, end: FileGoal, now: Stored | None, op: OpId) -> Generator[Effect, Any, None]:
        if end.data is not None:
            there = now or (yield from self._respell(step.path))
            if there is None or there.data != end.data:
                there = yield Write(op, step.path, end.data, None if there is None else there.version)
            self.sights[step.path] = there
        elif now is not None:
            yield Delete(op, step.path, now.version)
            self.sights[step.path] = None
        if now is not None and version_of(now.data) not in (step.before, step.after):
            self.merged.add(step.path)

    def _respell(self, path: NotePath) -> Generator[Effect, Any, Stored | None]:
        """What a store that ignores case has under another spelling, now spelled so; None on other stores."""
        twin = self.twins.get(path)
        if twin is None or self.sights.get(twin) is None:
            return None
        there: Stored | None = yield Respell(twin, path)
        if there is not None:
            self.sights[twin] = None
        return there

    def _confirm(self, step: Step, now: Stored | None, op: OpId) -> Generator[Effect, Any, None]:
        """Repeat what a dead process did: it may have died before the new name was on disk, and now it will be."""
        if now is not None and version_of(now.data) == step.after:
            yield Write(op, step.path, now.data, now.version)
        elif now is None and step.after is None and step.before is not None:
            yield Delete(op, step.path, step.before)

    def look(self) -> Generator[Effect, Any, None]:
        """See what is there, and remember the bytes that may be needed to go either way."""
        self.sights = {}
        for path in dict.fromkeys(path for step in self.change.steps for path in (step.path, step.source) if path):
            try:
                self.sights[path] = yield Read(path)
            except Forbidden:
                pass
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
        if way.state == "done":
            yield Settle(self.change.id, self.change.emptied)
        else:
            yield Settle(self.change.id, ())
            yield Settle(self.change.id + "x", self.change.made)
        if not self.first:  # before it is closed: nobody looks at what is closed
            yield Sweep(frozenset(step.path.folder for step in self.change.steps))
        yield IndexPaths(tuple(step.path for step in self.change.steps if not step.path.is_hidden))
        yield Close(self.change.id, way.state, way.steps)
        return Outcome(way.state, self.sights, tuple(sorted(self.merged)), way.kept, self.cause)


def route(
    steps: tuple[Step, ...],
    sights: Mapping[NotePath, Stored | None],
    known: Mapping[str, bytes],
    *,
    barred: Iterable[NotePath] = (),
    back_first: bool = False,
) -> Route:
    """Where to go from what is seen."""
    seen = [_Seen(step, sights, known, frozenset(barred)) for step in steps]
    applied = max((place for place, each in enumerate(seen) if each.at(each.step.after)), default=-1)
    ahead = [each.end(applied=place <= applied) for place, each in enumerate(seen)]
    behind = [each.turned().end(applied=place > applied) for place, each in enumerate(seen)]
    forward = None if None in ahead else _forward(steps, ahead)
    back = None if None in behind else Route("taken_back", _pairs(steps, behind)[::-1])
    ways = [way for way in ((back, forward) if back_first else (forward, back)) if way is not None]
    ways.sort(key=_moot)  # stable
    return ways[0] if ways else _carried(seen, ahead) or _stand(steps, ahead)


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

    def end(self, *, applied: bool) -> FileGoal | None:
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

    def _merged(self, now: Stored | None, applied: bool) -> FileGoal | None:
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
