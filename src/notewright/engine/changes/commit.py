"""Every write goes through here: a plan becomes a change set that happens all or not at all and can be undone.

The machine (`engine/changes/machine.py`) decides, this module drives it against the store and the ledger of a
workspace, under the store's lock for the whole change set: of the one file it changes, or of all. Each change set also
holds a lock of its own name: an unfinished one without it is of a process that died or gave up, and is finished, alone,
before anything else is written. Access is checked by the verbs, before planning.
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
from notewright.engine.changes.combined import (
    Edited,
    EditQueue,
    TextEdit,
    group_chains,
    merge_change_sets,
    problem_for_change,
)
from notewright.engine.changes.machine import Effect, Machine, Outcome, SeenFiles, find_case_twins
from notewright.engine.changes.plan import Done, Drop, Plan, Put, find_base, is_same_version, plan_rebase
from notewright.engine.changes.quotas import is_bounded, lock_user_quota, refuse_over_quota
from notewright.engine.indexing.filing import PreparedFiling, prepare_filing, refile
from notewright.engine.indexing.ready import has_unindexed_notes, still_indexing_error, wait_for_links
from notewright.engine.workspace import Workspace
from notewright.errors import Busy, Conflict, Exists, Indexing, Internal, Invalid, NotFound, NotText, Problem
from notewright.ledger.base import Change, Ledger, Step
from notewright.notes.path import NotePath
from notewright.stores.base import Stored, Version, read_or_none, stat_or_none, version_of

log = logging.getLogger(__name__)

_queue = EditQueue()
_LETTERS = b"abcdefghijkmnpqrstuvwxyz23456789"  # none that looks like another
_ID_LETTERS = _LETTERS * (256 // len(_LETTERS))
_NO_LOCK = nullcontext()
MAX_TRIES = 8  # at a change, while another program writes in between
RETRY_PAUSE_SECONDS = 0.004  # before the second try, doubled for each further one
_Answer = TypeVar("_Answer")
_Waiting = tuple[TextEdit, Change, Edited | Problem]  # its change, or the last one before it; its answer then


def commit(ws: Workspace, plan: Plan) -> Done:
    """Make it happen: durable and indexed when it returns. Conflict or Exists where a file is not as it was seen."""
    path = plan.steps[0].path if len(plan.steps) == 1 else None
    return _with_lock_and_retries(ws, lambda: _commit_plan(ws, plan), tries=1, path=path)


def commit_latest(
    ws: Workspace, make: Callable[[], tuple[Plan, _Answer]], *, dry_run: bool = False
) -> tuple[Done, _Answer]:
    """Commit what `make` plans, planned under the lock and again when another program writes in between. `make` also
    returns what its caller wants to know of the plan. A dry run plans once and refuses what the commit would."""
    if dry_run:
        plan, about = make()
        rehearse(ws, plan)
        return Done(None, {}), about

    def attempt() -> tuple[Done, _Answer]:
        plan, about = make()
        return _commit_plan(ws, plan), about

    return _with_lock_and_retries(ws, attempt, tries=MAX_TRIES)


def commit_indexed(
    ws: Workspace, make: Callable[[], tuple[Plan, _Answer]], *, dry_run: bool = False
) -> tuple[Done, _Answer]:
    """The same for a plan that asks the index what links where: never by an index that does not know every note, nor
    by one that is deleted in the middle of the questions. A dry run looks at neither."""

    def make_of_whole_index() -> tuple[Plan, _Answer]:
        generation = ws.index.generation()
        if generation.whole and has_unindexed_notes(ws):  # a large note was written while we waited for the lock
            raise _Interrupted(still_indexing_error(ws))
        made = make() if generation.whole else None
        if made is None or ws.index.generation() != generation:
            hint = "try again in a moment"
            raise _Interrupted(Indexing("the index is being built again", hint=hint, done=0, total=None))
        return made

    return commit_latest(ws, make if dry_run else make_of_whole_index, dry_run=dry_run)


def edit(
    ws: Workspace,
    path: NotePath,
    change: Callable[[str], str],
    *,
    summary: str,
    seen: Version | None = None,
    again: bool | Callable[[str], bool] = True,
) -> Edited:
    """Put a note's text through a pure function. `again`: it may be applied to a newer text than was seen."""
    asked = TextEdit(ws, path, change, summary, seen, again)
    if ws.store.next_write_in(path) is None or is_bounded(ws):
        return _with_lock_and_retries(ws, lambda: _edit_once(asked), tries=MAX_TRIES if again else 1, path=path)
    if _queue.add(asked):
        edit_together(asked, _queue.take)
    elif asked.answered is not None:
        asked.answered.wait()
    return asked.result()


def _edit_once(asked: TextEdit) -> Edited:
    ws, path, seen = asked.ws, asked.path, asked.seen
    old = ws.store.read(path, hidden=path.is_hidden)
    before = text_of(path, old.data)
    shown, text = find_base(ws, old, seen), None
    if shown is not None:
        try:
            text = asked.change(text_of(path, shown.data))
        except Problem:
            if seen is not None:
                raise
    if shown is not None and text is not None:
        step = plan_rebase(ws, old, _encode(path, text), shown)
    else:
        step = Put(path, _encode(path, _apply_edit(asked, before, old.version)), old)
    if step.data == old.data:
        return Edited(path, before, before, old.version, None)
    done = _commit_plan(ws, Plan((step,), asked.summary))
    if path in done.merged:
        now = ws.store.read(path, hidden=path.is_hidden)
        return Edited(path, before, text_of(path, now.data), now.version, done.id)
    return Edited(path, before, text_of(path, step.data or b""), done.versions[path] or "", done.id)


def _apply_edit(asked: TextEdit, before: str, version: Version) -> str:
    """The text after an edit, or Conflict where the edit was meant for another version of it."""
    seen, again = asked.seen, asked.again
    if seen is not None and not is_same_version(seen, version) and not (again(before) if callable(again) else again):
        hint = "read it again"
        raise Conflict(f"{asked.path} changed since version {seen}", hint=hint, path=asked.path, current=version)
    return asked.change(before)


def edit_together(first: TextEdit, take: Callable[[TextEdit], list[TextEdit]]) -> None:
    """Wait until the store takes the next write of this note, and make all edits that `take` returns then by that
    write. Each of them gets an answer, whatever happens."""
    ws, path = first.ws, first.path
    edits: list[TextEdit] = []

    def attempt() -> None:
        time.sleep(ws.store.next_write_in(path) or 0.0)  # more edits are queued meanwhile
        if not edits:
            edits.extend(take(first))
        unanswered = [edit for edit in edits if edit.outcome is None]
        if unanswered:
            _edit_chain(unanswered)

    try:
        _with_lock_and_retries(ws, attempt, tries=MAX_TRIES, path=path)
    except Problem as problem:
        for edit in edits or take(first):
            edit.answer(problem)
    finally:
        for edit in edits or take(first):
            edit.answer(Internal("the edits of a note that were made together did not end"))


def _edit_chain(edits: list[TextEdit]) -> None:
    """These edits of one note, each on the text that the one before it leaves, in one write. An edit that fails or
    changes nothing on a text that is not written yet gets its answer after that write, too."""
    ws, path = edits[0].ws, edits[0].path
    old = ws.store.read(path, hidden=path.is_hidden)
    now, version, modified = text_of(path, old.data), old.version, old.entry.modified_ns / 1e9
    known, made, unmade = {old.version: old.data}, list[_Waiting](), list[_Waiting]()
    for edit in edits:
        try:
            after = _apply_edit(edit, now, version)
            data = _encode(path, after)
        except Problem as problem:
            outcome: Edited | Problem | None = problem
        else:
            outcome = Edited(path, now, after, version, None) if after == now else None
        if outcome is not None and made:
            unmade.append((edit, made[-1][1], outcome))
            continue
        if outcome is not None:
            edit.answer(outcome)
            continue
        new = version_of(data)
        step = Step(path, version, new, modified=modified)
        change = Change(_new_id(), edit.ws.clock(), edit.ws.actor, edit.summary, (step,))
        made.append((edit, change, Edited(path, now, after, new, change.id)))
        known[new], now, version = data, after, new
    if made:
        _commit_chain(made, unmade, old, known)


def _commit_chain(made: list[_Waiting], unmade: list[_Waiting], old: Stored, known: dict[str, bytes]) -> None:
    ws, path, chain = made[0][0].ws, old.entry.path, tuple(change for _, change, _ in made)
    whole = merge_change_sets(chain)
    with ExitStack() as locks:
        for change in chain:
            locks.enter_context(_lock_change(ws, change))
        try:
            outcome = drive(machine.carry_out(whole, known, {path: old}, known, in_order=ws.store.in_order), ws, chain)
        except Problem as problem:
            for edit, change, _ in (*made, *unmade):
                edit.answer(problem_for_change(change, whole, problem))
            return
    cause = outcome.cause or Internal("a change was taken back without a reason")
    if outcome.state == "taken_back" and isinstance(cause, Conflict | Exists):
        for edit, _, _ in made:
            if not edit.again:
                edit.answer(cause)
        raise _Interrupted(cause)
    for edit, change, _ in made:
        _notify_subscribers(edit.ws, change, outcome)
    there = outcome.files.get(path)
    for edit, change, answer in (*made, *unmade):
        if outcome.state == "taken_back":
            edit.answer(problem_for_change(change, whole, cause))
        elif isinstance(answer, Edited) and path in outcome.merged and there is not None:
            text = text_of(path, there.data)
            before = answer.before if answer.change_id else text
            edit.answer(answer._replace(before=before, after=text, version=there.version))
        else:
            edit.answer(answer)


def recover(ws: Workspace) -> None:
    """Finish or take back what dead processes left. Every process calls it before its first answer.

    What cannot be finished now (a full disk, an editor that never stops saving) stays unfinished: reading goes on
    without it, and every write tries again first.
    """
    if ws.ledger.find_unfinished():  # perhaps of a living process, which holds the lock
        try:
            _with_lock_and_retries(ws, lambda: None, tries=1)
        except Problem as problem:
            log.warning("a change that was started is not finished yet: %s", problem)


def text_of(path: NotePath, data: bytes) -> str:
    """The text of a note's bytes, unchanged, or NotText."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise NotText(f"{path} is not UTF-8 text, so it is not edited", hint="convert it first", path=path) from None


def _encode(path: NotePath, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise Invalid(f"the new text of {path} is not valid Unicode", what="content", path=path) from None


class _Interrupted(Exception):
    """Another program wrote between planning and writing: plan again."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem


def _with_lock_and_retries(
    ws: Workspace, attempt: Callable[[], _Answer], *, tries: int, path: NotePath | None = None
) -> _Answer:
    """`attempt` under the lock, of one file or of all, after everything unfinished; again while another program writes
    in between."""
    for count in range(1, tries + 1):
        try:
            return _with_lock(ws, attempt, path)
        except _Interrupted as interrupted:
            if count == tries:
                raise interrupted.problem from None
            if isinstance(interrupted.problem, Indexing):
                wait_for_links(ws)
        time.sleep(random.uniform(0, RETRY_PAUSE_SECONDS * 2**count))
    raise AssertionError("the last try returns or raises")


def _with_lock(ws: Workspace, attempt: Callable[[], _Answer], path: NotePath | None) -> _Answer:
    if path is not None and not is_bounded(ws):  # a bound holds for all writers together
        with ws.store.lock(path):
            unfinished = ws.ledger.find_unfinished()
            if all(_is_running(ws, change) for change in unfinished):
                if any(path in (step.path, step.source) for change in unfinished for step in change.steps):
                    raise _still_running()  # it lost the lock and may go on all the same
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
    for chain in group_chains(ws.ledger.find_unfinished()):
        with ExitStack() as locks:
            for change in chain:
                lock = ws.locks.try_lock(_lock_name(change))
                if lock is None:
                    raise _still_running()
                locks.callback(lock.release, last=True)
            recovery = machine.recovery(merge_change_sets(chain), in_order=ws.store.in_order)
            outcome = drive(recovery, ws, chain)
        for change in chain:
            log.info("change %s of another process: %s", change.id, outcome.state)
            _notify_subscribers(ws, change, outcome)


def rehearse(ws: Workspace, plan: Plan) -> tuple[SeenFiles, dict[str, bytes], tuple[Step, ...]]:
    """What was there, the bytes that are known, and the steps. Refuses what `commit` would, and does nothing."""
    # What the plan was made from. Whether it still is so the store finds out when it writes.
    files: SeenFiles = {step.path: step.old for step in plan.steps}
    if len(files) < len(plan.steps):
        raise Internal("a plan names one file twice")
    for step in plan.steps:
        if isinstance(step, Put) and step.source and step.source not in files:
            files[step.source] = read_or_none(ws.store, step.source)
    known = {version_of(seen.data): seen.data for seen in files.values() if seen}
    steps = tuple(step for step in map(partial(_make_step, files, known), plan.steps) if step.before != step.after)
    refuse_over_quota(ws, steps, known)
    return files, known, steps


def _make_step(files: SeenFiles, known: dict[str, bytes], planned: Put | Drop) -> Step:
    """The step of the ledger for one of a plan; its new bytes become known."""
    old = files[planned.path]
    before = None if old is None else version_of(old.data)
    modified = None if old is None else old.entry.modified_ns / 1e9
    if isinstance(planned, Drop):
        return Step(planned.path, before, None, modified=modified)
    data = planned.data
    if data is None:
        source = files.get(planned.source) if planned.source else None
        if source is None:
            raise Conflict(f"{planned.source} is not there any more", path=planned.source, current=None)
        data = source.data
    after = version_of(data)
    known[after] = data
    return Step(planned.path, before, after, planned.source, modified)


def _commit_plan(ws: Workspace, plan: Plan) -> Done:
    """One plan from beginning to end, under the lock."""
    try:
        with lock_user_quota(ws):
            return _carry_out(ws, plan)
    except (Conflict, Exists) as problem:
        raise _Interrupted(problem) from problem


def _carry_out(ws: Workspace, plan: Plan) -> Done:
    files, known, steps = rehearse(ws, plan)
    if not steps:
        return Done(None, _versions(plan, files))
    change = Change(
        _new_id(), ws.clock(), ws.actor, plan.summary, tuple(sorted(steps, key=machine.order_of)),
        undoes=plan.undoes, emptied=plan.emptied, made=_find_new_folders(ws, steps),
    )  # fmt: skip
    blobs = _select_blobs(steps, known)
    with _lock_change(ws, change):
        outcome = drive(machine.carry_out(change, blobs, files, known, in_order=ws.store.in_order), ws)
    _notify_subscribers(ws, change, outcome)
    if outcome.state == "taken_back":
        raise outcome.cause or Internal("a change was taken back without a reason")
    if ws.shown is not None:  # what the writer wrote: they were not shown what others typed meanwhile
        wrote = {step.path: step.wrote for step in plan.steps if isinstance(step, Put)}
        for step in change.steps:
            if ws.shown.get(step.path) is not None:
                ws.shown[step.path] = wrote.get(step.path) or step.after or ""
    return Done(change.id, _versions(plan, outcome.files), outcome.merged, outcome.kept)


def _versions(plan: Plan, files: SeenFiles) -> dict[NotePath, Version | None]:
    found = ((step.path, files.get(step.path)) for step in plan.steps)
    return {path: None if seen is None else seen.version for path, seen in found}


def _lock_change(ws: Workspace, change: Change) -> AbstractContextManager[None]:
    """Hold the lock of its name, by which others tell a slow process from a dead one. Where a store's lock excludes all
    others, nobody finds the change before that ends, and no lock is needed."""
    return _NO_LOCK if ws.store.lock_is_exclusive else _lock_by_name(ws, change)


@contextmanager
def _lock_by_name(ws: Workspace, change: Change) -> Iterator[None]:
    lock = ws.locks.try_lock(_lock_name(change))
    try:
        yield
    finally:
        if lock is not None:
            lock.release(last=True)


def _notify_subscribers(ws: Workspace, change: Change, outcome: Outcome) -> None:
    """Notify subscribers of a finished change; one that fails is logged, the change stands."""
    if outcome.state != "done" or ws.on_change is None:
        return
    steps = tuple(step for step in change.steps if step.path not in outcome.kept)
    try:
        ws.on_change(ws, replace(change, state=outcome.state, steps=steps))
    except Exception:
        log.exception("a subscriber failed on change %s", change.id)


def _select_blobs(steps: tuple[Step, ...], known: Mapping[str, bytes]) -> dict[str, bytes]:
    """The bytes the ledger must hold: all but those that only move from one file of the workspace to another."""
    moved = _find_moved_unchanged(steps) if len(steps) > 1 else ()
    kept = [step for step in steps if step.path not in moved]
    return {version: known[version] for step in kept for version in (step.before, step.after) if version}


def _find_moved_unchanged(steps: tuple[Step, ...]) -> set[NotePath]:
    """Paths between which bytes move unchanged. Not into the trash: people empty it, and undo shall bring the note
    back all the same. And not where only the case of a name changes: on a store that ignores case neither name may be
    there for a moment."""
    gone = {step.path: step.before for step in steps if step.after is None}
    twins, found = find_case_twins(steps), set[NotePath]()
    for step in steps:
        into_trash = step.path.is_note and step.path.is_hidden
        if not step.source or step.before is not None or into_trash or step.path in twins:
            continue
        if gone.get(step.source) == step.after:
            found |= {step.path, step.source}
    return found


def _find_new_folders(ws: Workspace, steps: Iterable[Step]) -> tuple[str, ...]:
    """Folders that will be made for new files, deepest first."""
    if not ws.store.has_folders:
        return ()
    made, there = set[str](), {""}
    for step in steps:
        folder = NotePath(step.path.folder) if step.before is None else NotePath("")
        while folder not in made and folder not in there:
            if stat_or_none(ws.store, folder, hidden=folder.is_hidden) is not None:
                there.add(folder)
            else:
                made.add(folder)
                folder = NotePath(folder.folder)
    return tuple(sorted(made, key=lambda folder: (-folder.count("/"), folder)))


def _new_id() -> str:
    """One word of a million million. The ledger takes none twice."""
    return os.urandom(8).translate(_ID_LETTERS).decode()


def drive(running: Machine, ws: Workspace, chain: tuple[Change, ...] = ()) -> Outcome:
    """Run a machine to its end: perform its effects and send it their results. `chain`: the change sets that it takes
    for one (`engine/changes/combined.py`)."""
    ahead: dict[NotePath, PreparedFiling] = {}
    try:
        effect = next(running)
        while True:
            try:
                answer = perform(effect, ws, chain, ahead)
            except Problem as problem:
                effect = running.throw(problem)
            else:
                effect = running.send(answer)
    except StopIteration as end:
        outcome: Outcome = end.value
        return outcome


def perform(effect: Effect, ws: Workspace, chain: tuple[Change, ...], ahead: dict[NotePath, PreparedFiling]) -> Any:
    """One effect, against the workspace; those of every write first."""
    store, ledger = ws.store, ws.ledger
    match effect:
        case machine.Record(change, blobs):
            first, *following = chain or (change,)
            prepare = partial(prepare_filing, ws.index, change, blobs, ahead)
            try:
                return ledger.record(first, blobs, *following, meanwhile=prepare)
            except Exists as taken:  # another change has the id
                raise Busy("the change could not be recorded", hint="try again in a moment") from taken
        case machine.Write(op, swaps):
            if store.has_folders:  # where the old file is ours, no editor is in the middle of saving it
                swaps = tuple(
                    swap._replace(settled=True)
                    if swap.seen is not None and ledger.has_written(swap.path, swap.seen)
                    else swap
                    for swap in swaps
                )
            return store.write_many(swaps, op=op, hidden=True)
        case machine.Settle(op, emptied):
            return store.settle(op, emptied=emptied)
        case machine.IndexFiles(paths, files):
            return refile(ws, paths, files, ahead)
        case machine.Close(change_id, state, steps) if chain:
            ids = [change.id for change in chain]
            return _close_changes(ledger, ids if state == "done" else ids[::-1], state, () if steps == () else None)
        case machine.Close(change_id, state, steps):
            return _close_changes(ledger, [change_id], state, steps)
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


def _close_changes(ledger: Ledger, ids: list[str], state: Any, steps: tuple[Step, ...] | None) -> bool:
    """Close them in this order, up to the first that fails, so that the rest is still a chain. The notes are written:
    a ledger that cannot record it is no failure of the call, and the next call closes the change."""
    for change_id in ids:
        try:
            ledger.close_change(change_id, state, steps=steps)
        except Problem as problem:
            log.warning("change %s is not closed yet: %s", change_id, problem)
            return False
    return True
