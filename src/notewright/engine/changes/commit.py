"""Every write goes through here: a plan becomes a change set that happens all or not at all and can be undone.

The machine (`engine/changes/machine.py`) decides, this module drives it against the store and the ledger of a
workspace, under the store's lock for the whole change set: of the one file it changes, or of all. Each change set also
holds a lock of its own name: one that is found unfinished and not held is of a process that died or gave up, and is
finished, alone, before anything else is written. Access is checked by the verbs, before planning.
"""

import logging
import os
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from notewright.engine.changes import machine
from notewright.engine.changes._case_only import twins_of
from notewright.engine.changes.combined import Edited, EditQueue, TextEdit, as_one, rows, told_of
from notewright.engine.changes.machine import Effect, Machine, Outcome, Sights
from notewright.engine.changes.plan import Done, Drop, Plan, Put, carry_over, is_same, recall
from notewright.engine.changes.quotas import counted_alone, is_bounded, refuse_over_quota
from notewright.engine.indexing.filing import PreparedFiling, prepare_filing, refile
from notewright.engine.indexing.large_notes import not_indexed, still_indexing, wait_for_links
from notewright.engine.workspace import Workspace, unheard
from notewright.errors import Busy, Conflict, Exists, Indexing, Internal, Invalid, NotFound, NotText, Problem
from notewright.ledger.base import Change, Ledger, Step
from notewright.notes.path import NotePath
from notewright.stores.base import Store, Stored, Swap, Version, version_of

log = logging.getLogger(__name__)

_queue = EditQueue()
_LETTERS = b"abcdefghijkmnpqrstuvwxyz23456789"  # nothing that is read as something else
_AS_LETTERS = _LETTERS * (256 // len(_LETTERS))
_NOTHING = nullcontext()
PAUSE = 0.004  # seconds before the second try, doubled for each further one
_Answer = TypeVar("_Answer")
_Waiting = tuple[TextEdit, Change, Edited | Problem]  # its change, or the last one before it; what it is told then


def commit(ws: Workspace, plan: Plan) -> Done:
    """Make it happen: durable and indexed when it returns. Conflict or Exists where a file is not as it was seen."""
    return _alone(ws, lambda: _perform(ws, plan), tries=1, path=plan.steps[0].path if len(plan.steps) == 1 else None)


def commit_latest(ws: Workspace, make: Callable[[], Plan], *, max_tries: int = 8) -> Done:
    """Commit what `make` plans, planned under the lock and again when somebody else comes between."""
    return _alone(ws, lambda: _perform(ws, make()), tries=max_tries)


def commit_indexed(ws: Workspace, make: Callable[[], Plan]) -> Done:
    """The same for a plan that asks the index what links where: never by one that does not know every note, be it
    deleted in the middle of the questions."""

    def attempt() -> Done:
        asked = ws.index.generation()
        if not asked.whole:
            raise _Interrupted(_lost())
        if not_indexed(ws):  # somebody wrote a large note while we waited for the lock: its links are not known
            raise _Interrupted(still_indexing(ws))
        plan = make()
        if ws.index.generation() != asked:
            raise _Interrupted(_lost())
        return _perform(ws, plan)

    return _alone(ws, attempt, tries=8)


def _lost() -> Indexing:
    return Indexing("the index is being built again", hint="try again in a moment", done=0, total=None)


def edit(
    ws: Workspace,
    path: NotePath,
    change: Callable[[str], str],
    *,
    summary: str,
    seen: Version | None = None,
    again: bool | Callable[[str], bool] = True,
    max_tries: int = 8,
) -> Edited:
    """Put a note's text through a pure function. `again`: it may be applied to a newer text than was seen."""
    asked = TextEdit(ws, path, change, summary, seen, again)
    if ws.store.next_write_in(path) is None or is_bounded(ws):
        return _alone(ws, lambda: _edit(asked), tries=max_tries if again else 1, path=path)
    if _queue.add(asked):
        edit_together(asked, _queue.take, max_tries=max_tries)
    elif asked.answered is not None:
        asked.answered.wait()
    return asked.result()


def _edit(asked: TextEdit) -> Edited:
    ws, path, seen = asked.ws, asked.path, asked.seen
    old = ws.store.read(path, hidden=path.is_hidden)
    before = text_of(path, old.data)
    shown = recall(ws, old, seen)
    if shown is not None and (text := _changed_as_shown(asked, shown)) is not None:
        return _edited(ws, before, carry_over(ws, old, _bytes(path, text), shown), asked.summary)
    new = _bytes(path, _changed_text(asked, before, old.version))
    return _edited(ws, before, Put(path, new, old), asked.summary)


def _changed_as_shown(asked: TextEdit, shown: Stored) -> str | None:
    """What the edit makes of the text its writer had; None where that cannot be, and the writer names no version."""
    try:
        return asked.change(text_of(asked.path, shown.data))
    except Problem:
        if asked.seen is not None:
            raise
        return None


def _changed_text(asked: TextEdit, before: str, version: Version) -> str:
    """What the edit makes of this text, or Conflict where it was meant for another."""
    seen, again = asked.seen, asked.again
    if seen is not None and not is_same(seen, version) and not (again(before) if callable(again) else again):
        hint = "read it again"
        raise Conflict(f"{asked.path} changed since version {seen}", hint=hint, path=asked.path, current=version)
    return asked.change(before)


def _edited(ws: Workspace, before: str, step: Put, summary: str) -> Edited:
    path, data = step.path, step.data or b""
    if step.old is not None and data == step.old.data:
        return Edited(path, before, before, step.old.version, None)
    done = _perform(ws, Plan((step,), summary))
    if path in done.merged:
        now = ws.store.read(path, hidden=path.is_hidden)
        return Edited(path, before, text_of(path, now.data), now.version, done.id)
    return Edited(path, before, text_of(path, data), done.versions[path] or "", done.id)


def edit_together(first: TextEdit, take: Callable[[TextEdit], list[TextEdit]], *, max_tries: int = 8) -> None:
    """Wait for the next write that the store takes of a note, and make all edits that `take` gives then by it. Each of
    them is answered, whatever happens."""
    ws, path = first.ws, first.path
    edits: list[TextEdit] = []

    def attempt() -> None:
        time.sleep(ws.store.next_write_in(path) or 0.0)  # others come meanwhile
        if not edits:
            edits.extend(take(first))
        _edit_row([one for one in edits if one.outcome is None])

    try:
        _alone(ws, attempt, tries=max_tries, path=path)
    except Problem as problem:
        for one in edits or take(first):
            one.answer(problem)
    finally:
        for one in edits or take(first):
            one.answer(Internal("the edits of a note that were made together did not end"))


def _edit_row(edits: list[TextEdit]) -> None:
    """These edits of one note, each on what the one before it leaves, in one write. What comes of a text that is not
    written yet is answered after that, too."""
    ws, path = edits[0].ws, edits[0].path
    old = ws.store.read(path, hidden=path.is_hidden)
    now, version, modified = text_of(path, old.data), old.version, old.entry.modified_ns / 1e9
    known, made, unmade = {old.version: old.data}, list[_Waiting](), list[_Waiting]()
    for one in edits:
        try:
            after = _changed_text(one, now, version)
            data = _bytes(path, after)
        except Problem as problem:
            outcome: Edited | Problem | None = problem
        else:
            outcome = Edited(path, now, after, version, None) if after == now else None
        if outcome is not None and made:
            unmade.append((one, made[-1][1], outcome))
            continue
        if outcome is not None:
            one.answer(outcome)
            continue
        new = version_of(data)
        step = Step(path, version, new, modified=modified)
        change = Change(_new_id(), one.ws.clock(), one.ws.actor, one.summary, (step,))
        made.append((one, change, Edited(path, now, after, new, change.id)))
        known[new], now, version = data, after, new
    if made:
        _carry_out_row(made, unmade, old, known)


def _carry_out_row(made: list[_Waiting], unmade: list[_Waiting], old: Stored, known: dict[str, bytes]) -> None:
    ws, path, row = made[0][0].ws, old.entry.path, tuple(change for _, change, _ in made)
    whole = as_one(row)
    running = machine.carry_out(whole, known, {path: old}, known, in_order=ws.store.in_order)
    with ExitStack() as locks:
        for change in row:
            locks.enter_context(_held(ws, change))
        try:
            outcome = drive(running, ws, row)
        except Problem as problem:
            for one, change, _ in (*made, *unmade):
                one.answer(told_of(change, whole, problem))
            return
    cause = outcome.cause or Internal("a change was taken back without a reason")
    if outcome.state == "taken_back" and isinstance(cause, Conflict | Exists):
        for one, _, _ in made:
            if not one.again:
                one.answer(cause)
        raise _Interrupted(cause)
    for one, change, _ in made:
        _tell(one.ws, change, outcome)
    there = outcome.sights.get(path)
    for one, change, answer in (*made, *unmade):
        if outcome.state == "taken_back":
            one.answer(told_of(change, whole, cause))
        elif isinstance(answer, Edited) and path in outcome.merged and there is not None:
            text = text_of(path, there.data)
            before = answer.before if answer.change_id else text
            one.answer(replace(answer, before=before, after=text, version=there.version))
        else:
            one.answer(answer)


def recover(ws: Workspace) -> None:
    """Finish or take back what dead processes left. Every process calls it before its first answer.

    What cannot be finished now (a full disk, an editor that never stops saving) waits: reading goes on without it, and
    every write tries again first.
    """
    if ws.ledger.unfinished():  # perhaps of a living one, which holds the lock
        try:
            _alone(ws, lambda: None, tries=1)
        except Problem as problem:
            log.warning("a change that was started is not finished yet: %s", problem)


def text_of(path: NotePath, data: bytes) -> str:
    """The text of a note's bytes, unchanged, or NotText."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise NotText(f"{path} is not UTF-8 text, so it is not edited", hint="convert it first", path=path) from None


def _bytes(path: NotePath, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise Invalid(f"the new text of {path} is not valid Unicode", what="content", path=path) from None


class _Interrupted(Exception):
    """Somebody outside came between planning and writing."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem


def _alone(ws: Workspace, attempt: Callable[[], _Answer], *, tries: int, path: NotePath | None = None) -> _Answer:
    """Under the lock, of one file or of all, and after everything unfinished; again while somebody outside comes
    between."""
    for count in range(1, tries + 1):
        try:
            return _locked(ws, attempt, path)
        except _Interrupted as interrupted:
            if count == tries:
                raise interrupted.problem from None
            if isinstance(interrupted.problem, Indexing):
                wait_for_links(ws)
        time.sleep(random.uniform(0, PAUSE * 2**count))
    raise AssertionError("the last try returns or raises")


def _locked(ws: Workspace, attempt: Callable[[], _Answer], path: NotePath | None) -> _Answer:
    if path is not None and not is_bounded(ws):  # a bound holds for all writers together
        with ws.store.lock(path):
            unfinished = ws.ledger.unfinished()
            if all(_is_running(ws, change) for change in unfinished):
                if any(path in (step.path, step.source) for change in unfinished for step in change.steps):
                    raise _still_running()  # it lost its turn and may go on all the same
                return attempt()
    with ws.store.lock():
        _finish_others(ws)
        return attempt()


def _lock_name(change: Change) -> str:
    return f"change-{change.id}"


def _is_running(ws: Workspace, change: Change) -> bool:
    lock = ws.locks.try_lock(_lock_name(change))
    if lock is not None:
        lock.release()
    return lock is None


def _still_running() -> Busy:
    return Busy("a change of another process is still being made", hint="try again in a moment")


def _finish_others(ws: Workspace) -> None:
    for row in rows(ws.ledger.unfinished()):
        with ExitStack() as locks:
            for change in row:
                lock = ws.locks.try_lock(_lock_name(change))
                if lock is None:
                    raise _still_running()
                locks.callback(lock.release, last=True)
            outcome = drive(machine.recovery(as_one(row), in_order=ws.store.in_order), ws, row)
        for change in row:
            log.info("change %s of another process: %s", change.id, outcome.state)
            _tell(ws, change, outcome)


def _perform(ws: Workspace, plan: Plan) -> Done:
    """One plan from beginning to end, under the lock."""
    try:
        with counted_alone(ws):
            return _carried_out(ws, plan)
    except (Conflict, Exists) as problem:
        raise _Interrupted(problem) from problem


def rehearse(ws: Workspace, plan: Plan) -> tuple[Sights, dict[str, bytes], tuple[Step, ...]]:
    """What was there, the bytes that are known, and the steps. Refuses what `commit` would, and does nothing."""
    sights = _sights(ws.store, plan)
    known = {version_of(seen.data): seen.data for seen in sights.values() if seen}
    steps = tuple(step for step in map(partial(_step, sights, known), plan.steps) if step.before != step.after)
    refuse_over_quota(ws, steps, known)
    return sights, known, steps


def _carried_out(ws: Workspace, plan: Plan) -> Done:
    sights, known, steps = rehearse(ws, plan)
    if not steps:
        return Done(None, {step.path: _version(sights[step.path]) for step in plan.steps})
    change = Change(
        _new_id(), ws.clock(), ws.actor, plan.summary, tuple(sorted(steps, key=machine.order_of)),
        undoes=plan.undoes, emptied=plan.emptied, made=_new_folders(ws, steps),
    )  # fmt: skip
    blobs = _worth_keeping(steps, known)
    with _held(ws, change):
        outcome = drive(machine.carry_out(change, blobs, sights, known, in_order=ws.store.in_order), ws)
    _tell(ws, change, outcome)
    if outcome.state == "taken_back":
        raise outcome.cause or Internal("a change was taken back without a reason")
    versions = {step.path: _version(outcome.sights.get(step.path)) for step in plan.steps}
    if ws.shown is not None:  # the writer knows what they wrote, and not what others typed meanwhile
        wrote = {step.path: step.wrote for step in plan.steps if isinstance(step, Put)}
        for step in change.steps:
            if ws.shown.get(step.path) is not None:
                ws.shown[step.path] = wrote.get(step.path) or step.after or ""
    return Done(change.id, versions, outcome.merged, outcome.kept)


def _held(ws: Workspace, change: Change) -> AbstractContextManager[None]:
    """Under the lock of its name: whoever finds it unfinished knows whether somebody is still at it. Where a turn locks
    out all others nobody finds it before that ends."""
    return _NOTHING if ws.store.lock_is_exclusive else _held_by_name(ws, change)


@contextmanager
def _held_by_name(ws: Workspace, change: Change) -> Iterator[None]:
    lock = ws.locks.try_lock(_lock_name(change))
    try:
        yield
    finally:
        if lock is not None:
            lock.release(last=True)


def _tell(ws: Workspace, change: Change, outcome: Outcome) -> None:
    """What was done is done, whatever becomes of those who are told."""
    if outcome.state != "done" or ws.heard is unheard:
        return
    steps = tuple(step for step in change.steps if step.path not in outcome.kept)
    try:
        ws.heard(ws, replace(change, state=outcome.state, steps=steps))
    except Exception:
        log.exception("no event could be sent for change %s", change.id)


def _sights(store: Store, plan: Plan) -> Sights:
    """What the plan was made from. Whether it still is so the store finds out when it writes."""
    sights: Sights = {step.path: step.old for step in plan.steps}
    if len(sights) < len(plan.steps):
        raise Internal("a plan names one file twice")
    for step in plan.steps:
        if isinstance(step, Put) and step.source and step.source not in sights:
            sights[step.source] = read_or_none(store, step.source)
    return sights


def read_or_none(store: Store, path: NotePath) -> Stored | None:
    """What is there, hidden or not."""
    try:
        return store.read(path, hidden=path.is_hidden)
    except NotFound:
        return None


def _version(seen: Stored | None) -> Version | None:
    return None if seen is None else seen.version


def _step(sights: Sights, known: dict[str, bytes], planned: Put | Drop) -> Step:
    """The step of the ledger for one of a plan; its new bytes become known."""
    old = sights[planned.path]
    before = None if old is None else version_of(old.data)
    modified = None if old is None else old.entry.modified_ns / 1e9
    if isinstance(planned, Drop):
        return Step(planned.path, before, None, modified=modified)
    data = planned.data
    if data is None:
        source = sights.get(planned.source) if planned.source else None
        if source is None:
            raise Conflict(f"{planned.source} is not there any more", path=planned.source, current=None)
        data = source.data
    after = version_of(data)
    known[after] = data
    return Step(planned.path, before, after, planned.source, modified)


def _worth_keeping(steps: tuple[Step, ...], known: Mapping[str, bytes]) -> dict[str, bytes]:
    """The bytes the ledger must hold: all but those that only move from one file of the workspace to another."""
    carried = _carried(steps) if len(steps) > 1 else ()
    kept = [step for step in steps if step.path not in carried]
    return {version: known[version] for step in kept for version in (step.before, step.after) if version}


def _carried(steps: tuple[Step, ...]) -> set[NotePath]:
    """Paths between which bytes move unchanged."""
    gone = {step.path: step.before for step in steps if step.after is None}
    new = {step.path: step for step in steps if step.source and step.before is None and not _is_rubbish(step.path)}
    moved = {path: step.source for path, step in new.items() if step.source and gone.get(step.source) == step.after}
    twins = twins_of(steps)  # where a store ignores case, neither name may be there for a moment
    moved = {path: source for path, source in moved.items() if path not in twins}
    return {*moved, *moved.values()}


def _is_rubbish(path: NotePath) -> bool:
    """A note in the trash: people empty it, and undo shall bring the note back all the same."""
    return path.is_note and path.is_hidden


def _new_folders(ws: Workspace, steps: Iterable[Step]) -> tuple[str, ...]:
    """Folders that will be made for new files, deepest first."""
    if not ws.store.has_folders:
        return ()
    made: set[str] = set()
    there: set[str] = {""}
    for step in steps:
        folder = NotePath(step.path.folder) if step.before is None else NotePath("")
        while folder not in made and folder not in there:
            if _is_there(ws.store, folder):
                there.add(folder)
                break
            made.add(folder)
            folder = NotePath(folder.folder)
    return tuple(sorted(made, key=lambda folder: (-folder.count("/"), folder)))


def _is_there(store: Store, folder: NotePath) -> bool:
    try:
        store.stat(folder, hidden=folder.is_hidden)
    except NotFound:
        return False
    return True


def _new_id() -> str:
    """One word of a million million. The ledger takes none twice."""
    return os.urandom(8).translate(_AS_LETTERS).decode()


def drive(running: Machine, ws: Workspace, row: tuple[Change, ...] = ()) -> Outcome:
    """Run a machine to its end: do what it asks for, tell it what came of it. `row`: the change sets that it takes for
    one (`engine/changes/combined.py`)."""
    ahead: dict[NotePath, PreparedFiling] = {}
    try:
        effect = next(running)
        while True:
            try:
                answer = perform(effect, ws, row, ahead)
            except Problem as problem:
                effect = running.throw(problem)
            else:
                effect = running.send(answer)
    except StopIteration as end:
        outcome: Outcome = end.value
        return outcome


def perform(effect: Effect, ws: Workspace, row: tuple[Change, ...], ahead: dict[NotePath, PreparedFiling]) -> Any:
    """One effect, against the real things; those of every write first."""
    store, ledger = ws.store, ws.ledger
    match effect:
        case machine.Record(change, blobs):
            first, *following = row or (change,)
            prepare = partial(prepare_filing, ws.index, change, blobs, ahead)
            try:
                return ledger.record(first, blobs, *following, meanwhile=prepare)
            except Exists as taken:  # another change has the id
                raise Busy("the change could not be recorded", hint="try again in a moment") from taken
        case machine.Write(op, swaps):
            known = [_settled(swap, ledger) for swap in swaps] if store.has_folders else swaps
            return store.write_many(known, op=op, hidden=True)
        case machine.Settle(op, emptied):
            return store.settle(op, emptied=emptied)
        case machine.IndexFiles(paths, sights):
            return refile(ws, paths, sights, ahead)
        case machine.Close(change_id, state, steps):
            if row:
                ids = [change.id for change in row]
                left_out = () if steps == () else None
                return _close(ledger, ids if state == "done" else ids[::-1], state, left_out)
            return _close(ledger, [change_id], state, steps)
        case machine.Stage(op, path, data):
            return store.stage(path, data, op=op, hidden=path.is_hidden)
        case machine.Read(paths):
            seen = store.read_many(paths, hidden=True)
            return [None if isinstance(one, NotFound) else one for one in seen]
        case machine.AskApplied(op, paths):
            return store.find_applied(op, paths)
        case machine.Recall(version):
            return ledger.blob(version)
        case machine.Respell(old, new):
            return store.respell(old, new, hidden=new.is_hidden)
        case machine.Sweep(folders):
            return store.sweep(folders)


def _settled(swap: Swap, ledger: Ledger) -> Swap:
    """The swap, told whether the file it replaces is ours: then no editor is in the middle of saving it."""
    ours = swap.seen is not None and ledger.wrote(swap.path, swap.seen)
    return Swap(swap.path, swap.data, swap.seen, swap.source, True) if ours else swap


def _close(ledger: Ledger, ids: list[str], state: Any, steps: tuple[Step, ...] | None) -> bool:
    """The notes are written: that the ledger could not say so is no failure of theirs, the next call closes it. It ends
    at the first that could not be closed, so that what is left is a row still."""
    for change_id in ids:
        try:
            ledger.close_change(change_id, state, steps=steps)
        except Problem as problem:
            log.warning("change %s is not closed yet: %s", change_id, problem)
            return False
    return True
