"""The history of changes made through us, and undo.

An undo is a change set like any other: it is in the history, and undoing it makes the change again. In a note that
was changed since, only the change's own places are reverted; what is in the way is named, and nothing happens.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from itertools import islice, takewhile
from typing import Any, Literal, NamedTuple

from notewright.engine.access import Access
from notewright.engine.changes.commit import commit_latest, rehearse
from notewright.engine.changes.plan import Done, Plan
from notewright.engine.changes.undo_plan import UndoPlan
from notewright.engine.workspace import Workspace
from notewright.errors import Conflict, Forbidden, NotFound
from notewright.ledger.base import Change, ChangeQuery, Ledger, Step
from notewright.notes.edits.diff import compare_lines
from notewright.notes.path import NotePath

PAGE_SIZE, MAX_PAGE_SIZE = 100, 5_000  # changes read at once
MAX_COMPARED_LINES = 5_000  # comparing more takes too long
MAX_KEPT_LINES = 20  # of the later changes in one note that an undo shows


class FileDiff(NamedTuple):
    """What a change did to one file. `why` explains missing lines; `cut`: there were more."""

    path: str
    kind: Literal["created", "changed", "deleted", "moved"]
    source: str | None = None
    lines: tuple[str, ...] = ()  # of a unified diff, without its head
    cut: bool = False
    why: str = ""


class UndoResult(NamedTuple):
    """An undo: the changes it takes back and its plan; `done` is None for a dry run."""

    changes: tuple[Change, ...]  # newest first
    plan: Plan
    done: Done | None
    kept: tuple[FileDiff, ...] = ()  # later changes that are kept, in files the caller may see

    def record(self, ws: Workspace) -> dict[str, Any]:
        """As JSON for programs, with the files the caller may see."""
        return {
            "undone": [change.id for change in self.changes],
            "dry_run": self.done is None,
            "files": sorted({step.path for step in self.plan.steps if ws.access.sees(step.path)}),
            "kept": sorted(diff.path for diff in self.kept),
            "change": self.done.id if self.done else None,
        }


def list_changes(ws: Workspace, query: ChangeQuery) -> list[Change]:
    """The changes a query selects and the caller may see, newest first. A note's history follows its moves."""
    seen = (shown for change in _follow_name(ws, query) if (shown := _hide_files(ws, change)) is not None)
    return list(islice(seen, query.offset, query.offset + query.limit))


def find_change(ws: Workspace, change_id: str) -> Change:
    """One change as the caller may see it, or NotFound with the ids that are close."""
    found = ws.ledger.change(change_id)
    shown = _hide_files(ws, found) if found is not None and found.state == "done" else None
    if shown is None:
        recent = [change.id for change in list_changes(ws, ChangeQuery(limit=PAGE_SIZE))]
        nearest = get_close_matches(change_id, recent, 3, 0.5) or recent[:3]
        known = f"the nearest are {', '.join(nearest)}" if nearest else "nothing was changed through Notewright yet"
        raise NotFound(f"there is no change {change_id}", hint=known, what="change", nearest=nearest)
    return shown


def diff_change(ws: Workspace, change_id: str, *, max_lines: int = 400) -> tuple[FileDiff, ...]:
    """What one change did, file by file; `max_lines` for all of them together."""
    return _diff_steps(find_change(ws, change_id).steps, ws.ledger.blob, max_lines)


def preview_undo(ws: Workspace, undone: UndoResult, *, max_lines: int = 400) -> tuple[FileDiff, ...]:
    """What a dry run of an undo would do to each file the caller may see."""
    _, known, steps = rehearse(ws, undone.plan)
    return _diff_steps(_select_visible(ws.access, steps), known.get, max_lines)


def _diff_steps(
    steps: Sequence[Step], find_bytes: Callable[[str], bytes | None], max_lines: int
) -> tuple[FileDiff, ...]:
    gone = {step.path: step for step in steps if step.after is None}
    moved = {step.source for step in steps if step.source in gone}
    differences, left = [], max_lines
    for step in steps:
        if step.path not in moved:
            came_from = gone.get(step.source) if step.source else None
            differences.append(_diff_step(step, came_from, find_bytes, left))
            left -= len(differences[-1].lines)
    return tuple(differences)


def _diff_step(step: Step, came_from: Step | None, find_bytes: Callable[[str], bytes | None], most: int) -> FileDiff:
    before = came_from.before if came_from else step.before
    kind: Literal["created", "changed", "deleted", "moved"] = "changed"
    if came_from:
        kind = "moved"
    elif step.before is None or step.after is None:
        kind = "created" if step.before is None else "deleted"
    shown = FileDiff(step.path, kind, came_from.path if came_from else None)
    if before == step.after:
        return shown
    old, new = (_decode_lines(b"" if version is None else find_bytes(version)) for version in (before, step.after))
    return _compare(shown, old, new, most)


def _compare(shown: FileDiff, old: list[str] | None, new: list[str] | None, most: int) -> FileDiff:
    if old is None or new is None:
        return shown._replace(why="its bytes are not text or are no longer kept")
    if max(len(old), len(new)) > MAX_COMPARED_LINES:
        return shown._replace(why=f"too large to compare: {len(old)} lines, now {len(new)}")
    lines = compare_lines(old, new)
    return shown._replace(lines=tuple(lines[: max(most, 0)]), cut=len(lines) > most)


def _decode_lines(data: bytes | None) -> list[str] | None:
    try:
        return None if data is None else data.decode().splitlines()
    except UnicodeDecodeError:
        return None


def undo(ws: Workspace, change_id: str, *, dry_run: bool = False) -> UndoResult:
    """Take back one change. Conflict says what stands in the way."""
    shown = find_change(ws, change_id)
    if shown.undone_by:
        raise Conflict(
            f"{change_id} was taken back already, by {shown.undone_by}",
            hint=f"undo {shown.undone_by} to have it again",
            path=shown.steps[0].path,
            current=None,
        )
    return _take_back(ws, [change_id], f"undid: {shown.summary}", dry_run)


def undo_since(
    ws: Workspace, since: float, *, client: str | None = None, user: str | None = None, dry_run: bool = False
) -> UndoResult:
    """Take back everything one client or user did since a time and that is not taken back yet, in one change set."""
    query = ChangeQuery(since=since, client=client, user=user)
    ids = [change.id for change in _select_standing([*iter_changes(ws.ledger, query)]) if _hide_files(ws, change)]
    if not ids:
        raise NotFound("nothing was changed since then that could be taken back", what="change", nearest=[])
    return _take_back(ws, ids, f"undid {len(ids)} changes" if len(ids) > 1 else "undid one change", dry_run)


def _select_standing(changes: list[Change]) -> list[Change]:
    """The changes to take back, newest first. An undo and all it took back cancel out where both are in the list and no
    other change of their files is between them: that one was made to what they left, and would not fit without them."""
    among = {change.id: change for change in changes}
    order = {change.id: number for number, change in enumerate(reversed(changes))}
    touching: defaultdict[NotePath, list[str]] = defaultdict(list)  # changes of each file so far, oldest first
    cancelled = set[str]()
    for change in reversed(changes):
        group = {change.id, *change.undoes} if change.undone_by is None else {change.id}
        paths = {step.path for name in group & among.keys() for step in among[name].steps}
        for path in paths:
            touching[path].append(change.id)
        if len(group) == 1 or not group <= among.keys():
            continue
        first = min(order[name] for name in group)
        later = (name for path in paths for name in _list_later(touching[path], order, first))
        if all(name in group or name in cancelled for name in later):
            cancelled |= group
            for names in map(touching.__getitem__, paths):
                while names and names[-1] in cancelled:
                    names.pop()
    standing = {None, *among} - cancelled
    return [change for change in changes if change.id in standing and change.undone_by in standing]


def _list_later(names: Sequence[str], order: Mapping[str, int], number: int) -> Iterator[str]:
    return takewhile(lambda name: order[name] > number, reversed(names))


def _take_back(ws: Workspace, ids: list[str], summary: str, dry_run: bool) -> UndoResult:
    changes = tuple(change for change in map(ws.ledger.change, ids) if change is not None)
    for change in changes:
        _refuse_forbidden_undo(ws.access, change)

    def make_plan() -> tuple[Plan, tuple[Plan, UndoPlan]]:
        undo_plan = UndoPlan(ws, frozenset(ids))
        for change in changes:
            undo_plan.take_back(change)
        plan = undo_plan.make_plan(summary, changes)
        return plan, (plan, undo_plan)

    if not dry_run:
        ws.follower.refuse_if_lost()
    done, (plan, undo_plan) = commit_latest(ws, make_plan, dry_run=dry_run)
    kept = tuple(
        _compare(FileDiff(path, "changed"), _decode_lines(before), _decode_lines(after), MAX_KEPT_LINES)
        for path, before, after in undo_plan.files_with_later_changes()
        if ws.access.sees(path)
    )
    return UndoResult(changes, plan, None if dry_run else done, kept)


def _refuse_forbidden_undo(access: Access, change: Change) -> None:
    """Refuse an undo that needs more rights. Links rewritten by a move or delete belong to it, in whatever file; every
    other file needs the right to write."""
    removes = any(step.after is None for step in change.steps)
    for step in sorted(change.steps, key=lambda step: not access.sees(step.path)):
        follows = removes and step.before is not None and step.after is not None
        if follows or step.path.is_hidden:
            continue
        if not access.sees(step.path):
            hint = "who may see all of it can take it back"
            raise Forbidden("you may not undo all of this change", hint=hint, by="rule")
        access.may_write(step.path)


def _follow_name(ws: Workspace, query: ChangeQuery) -> Iterator[Change]:
    """The changes a query selects; of one note also those under its former names, as long as it had them. A change
    only of files that the caller may not see is left out."""
    if query.path is None:
        yield from iter_changes(ws.ledger, query)
        return
    name: str | None = query.path
    renamed_by: str | None = None  # changes under a former name are those before this one
    while name is not None:
        former: NotePath | None = None
        for change in iter_changes(ws.ledger, ChangeQuery(path=name, since=query.since)):
            if renamed_by is not None:
                renamed_by = None if change.id == renamed_by else renamed_by
                continue
            steps = [one for one in change.steps if f"{one.path}/".startswith(f"{name}/") and ws.access.sees(one.path)]
            if (
                steps
                and (query.until is None or change.at < query.until)
                and query.client in (None, change.actor.client)
                and query.user in (None, change.actor.user)
            ):
                yield change
            source = next((one.source for one in steps if one.path == name and one.before is None), None)
            if source is not None:
                former, renamed_by = source if ws.access.sees(source) else None, change.id
                break
        name = former


def iter_changes(ledger: Ledger, query: ChangeQuery) -> Iterator[Change]:
    """All changes a query selects, read in pages. Pages grow: a caller who may see few of them skips most."""
    offset, size = 0, PAGE_SIZE
    while page := ledger.find_changes(replace(query, limit=size, offset=offset)):
        yield from page
        offset, size = offset + len(page), min(2 * size, MAX_PAGE_SIZE)


def _hide_files(ws: Workspace, change: Change) -> Change | None:
    """The change without the files the caller may not see; None where no file is left."""
    access = ws.access
    steps = _select_visible(access, change.steps)
    if not steps:
        return None
    undoes = tuple(name for name in change.undoes if _touches_visible_files(ws, name)) if access.hide else change.undoes
    summary = change.summary
    if len(undoes) < len(change.undoes) or any(name in summary for name in _find_hidden_names(access, change.steps)):
        summary = f"changed {', '.join(step.path for step in steps[:3])}"
    return replace(change, steps=steps, summary=summary, undoes=undoes)


def _select_visible(access: Access, steps: Iterable[Step]) -> tuple[Step, ...]:
    """The steps of files that the caller may see, without sources that they may not see."""
    return tuple(
        replace(step, source=None) if step.source and not access.sees(step.source) else step
        for step in steps
        if access.sees(step.path)
    )


def _touches_visible_files(ws: Workspace, change_id: str) -> bool:
    """Whether a change that was taken back touched a file the caller may see, or is no longer in the history."""
    change = ws.ledger.change(change_id)
    return change is None or any(ws.access.sees(step.path) for step in change.steps)


def _find_hidden_names(access: Access, steps: Iterable[Step]) -> Iterator[str]:
    """The files of a change that the caller may not see, and their parent folders that it may not see either."""
    for name in (name for step in steps for name in (str(step.path), step.source)):
        while name and not access.sees(name):
            yield name
            name = name.rpartition("/")[0]
