"""Makes the plan that takes changes back, newest first, computed on what the notes hold now."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from notewright.engine.changes.merge import without_change
from notewright.engine.changes.plan import Drop, Plan, Put
from notewright.engine.workspace import Workspace
from notewright.errors import Conflict, NotFound, Problem
from notewright.ledger.base import Change, ChangeQuery, Step
from notewright.notes.path import NotePath
from notewright.stores.base import Stored, version_of

MAX_OBSTACLES_NAMED = 10  # obstacles that a refusal names
MAX_LATER_CHANGES = 1000  # of one note, searched for the change that is in the way


class Obstacle(NamedTuple):
    """Why one file cannot be brought back; `change_id` and `by` where a later change of ours is in the way."""

    path: str
    why: str
    change_id: str | None = None
    by: str = ""

    def __str__(self) -> str:
        who = f" by {self.by}" if self.by else ""
        return f"{self.path} {self.why}{who}" + (f" (change {self.change_id})" if self.change_id else "")


@dataclass
class UndoPlan:
    """The notes as they would be with some changes taken back. Call `take_back` for each of them, then `make_plan`."""

    ws: Workspace
    ids: frozenset[str]
    seen: dict[NotePath, Stored | None] = field(default_factory=dict)
    now: dict[NotePath, bytes | None] = field(default_factory=dict)
    origin: dict[NotePath, NotePath] = field(default_factory=dict)  # where a file is moved back from
    obstacles: list[Obstacle] = field(default_factory=list)
    merged_into: dict[NotePath, bytes | None] = field(default_factory=dict)  # what was there, if that is still known
    moves: dict[str, dict[NotePath, NotePath]] = field(default_factory=dict)  # of the changes looked at, by their ids

    def files_with_later_changes(self) -> Iterator[tuple[NotePath, bytes | None, bytes]]:
        """Files in which later changes stay: their path, bytes before the changes, and bytes after the undo."""
        for path, before in self.merged_into.items():
            after = self.now.get(path)
            if after is not None and after != before:
                yield path, before, after

    def take_back(self, change: Change) -> None:
        self._read([step.path for step in change.steps])
        gone = {step.path: step for step in change.steps if step.after is None}
        moved = {step.source: step for step in change.steps if step.before is None and step.source in gone}
        for source, step in moved.items():
            self._move_back(change, step, gone[source or step.path])
        settled = {*moved, *(step.path for step in moved.values())}
        for step in reversed(change.steps):
            if step.path not in settled:
                self._restore(change, step)

    def make_plan(self, summary: str, changes: Iterable[Change]) -> Plan:
        """The plan of the undo, or Conflict with everything that stands in the way."""
        if self.obstacles:
            named = [str(each) for each in self.obstacles[:MAX_OBSTACLES_NAMED]]
            if len(self.obstacles) > len(named):
                named.append(f"and {len(self.obstacles) - len(named)} more")
            first = self.obstacles[0]
            hint = f"undo {first.change_id} first" if first.change_id else "put it right by hand"
            obstacles = tuple(self.obstacles)
            raise Conflict("; ".join(named), hint=hint, path=first.path, current=None, obstacles=obstacles)
        steps: list[Put | Drop] = []
        for path, data in self.now.items():
            old = self.seen[path]
            if data == (None if old is None else old.data):
                continue
            if data is not None:
                steps.append(Put(path, data, old, self.origin.get(path) if old is None else None))
            elif old is not None:
                steps.append(Drop(path, old))
        ids = tuple(change.id for change in changes)
        if not steps:
            where = next(iter(self.now), None)
            raise Conflict(
                "nothing of that is left to take back", hint="it was undone by hand", path=where, current=None
            )
        made = dict.fromkeys(folder for change in changes for folder in change.made)
        return Plan(tuple(steps), summary, emptied=tuple(made), undoes=ids)

    def _read(self, paths: Iterable[NotePath]) -> None:
        """Read the files that were not read yet, in one request."""
        unread = [path for path in dict.fromkeys(paths) if path not in self.seen]
        for path, found in zip(unread, self.ws.store.read_many(unread, hidden=True), strict=True):
            if isinstance(found, Problem) and not isinstance(found, NotFound):
                raise found
            self.seen[path] = found if isinstance(found, Stored) else None

    def _current_bytes(self, path: NotePath) -> bytes | None:
        if path not in self.seen:
            self._read([path])
        if path not in self.now:
            stored = self.seen[path]
            self.now[path] = None if stored is None else stored.data
        return self.now[path]

    def _find_bytes(self, version: str | None) -> bytes | None:
        """The bytes of a version: from the history, or of a file that has them now."""
        if version is None:
            return None
        kept = self.ws.ledger.blob(version)
        if kept is not None:
            return kept
        found = (seen.data for seen in self.seen.values() if seen is not None)
        return next((data for data in found if version_of(data) == version), None)

    def _move_back(self, change: Change, new: Step, old: Step) -> None:
        """Give a moved note its old name back, with what was written to it since."""
        current = self._current_bytes(new.path)
        if self._current_bytes(old.path) is not None:
            return self._add_obstacle(change, old.path, "is there again")
        if current is None and not new.path.is_hidden:
            return self._add_obstacle(change, new.path, "is not there any more")
        if current is None:  # the trash was emptied
            back = self._find_bytes(old.before)
        elif new.after == old.before:
            back = current
        else:
            back = self._remove_change(new, old.before, current)
        if back is None:
            return self._add_obstacle(change, new.path, "was changed since")
        self._remember_merged(old.path, old.before, back)
        self.now[old.path], self.now[new.path] = back, None
        self.origin[old.path] = self.origin.pop(new.path, new.path)  # through all moves that are taken back together

    def _restore(self, change: Change, step: Step) -> None:
        path = step.path
        current = self._current_bytes(path)
        if current is None and step.before is not None and step.after is not None:
            path = self._find_current_path(change, path)
            current = self._current_bytes(path)
        version = None if current is None else version_of(current)
        if version == step.after:
            back = self._find_bytes(step.before)
            if back is None and step.before is not None:
                return self._add_obstacle(change, path, "was changed, and its earlier bytes are no longer kept")
            self.now[path] = back
        elif version == step.before:
            if step.before is None and self._find_later_changes(change, path):
                self._add_obstacle(change, path, "was moved or deleted since")
        elif current is None or step.before is None or step.after is None:
            why = "is not there any more" if current is None else "was changed since"
            self._add_obstacle(change, path, why)
        else:
            back = self._remove_change(step, step.before, current)
            if back is None:
                return self._add_obstacle(change, path, "was changed since at the same place")
            self._remember_merged(path, step.before, back)
            self.now[path] = back

    def _remember_merged(self, path: NotePath, before: str | None, back: bytes) -> None:
        if version_of(back) != before:
            self.merged_into[path] = self._find_bytes(before)

    def _remove_change(self, step: Step, before: str | None, current: bytes) -> bytes | None:
        """The bytes without what a step changed, or None where later changes cannot be told apart from it."""
        old = self._find_bytes(before)
        if version_of(current) == step.after:
            return old
        made = self._find_bytes(step.after)
        return None if old is None or made is None else without_change(old, made, current)

    def _find_current_path(self, change: Change, path: NotePath) -> NotePath:
        """The path to which later changes of ours moved the note."""
        after = change
        while True:
            for later in reversed(self._find_later_changes(after, path)):
                target = self._moves_of(later).get(path)
                if target is not None:
                    path, after = target, later
                    break
            else:
                return path

    def _moves_of(self, change: Change) -> dict[NotePath, NotePath]:
        """Where a change moved files, by their former paths."""
        if change.id not in self.moves:
            gone = {step.path for step in change.steps if step.after is None}
            moves = ((step.source, step.path) for step in reversed(change.steps) if step.before is None)
            self.moves[change.id] = {old: new for old, new in moves if old is not None and old in gone}
        return self.moves[change.id]

    def _find_later_changes(self, change: Change, path: NotePath) -> list[Change]:
        """Later changes of this path, newest first, without those being taken back."""
        found: list[Change] = []
        for later in self.ws.ledger.find_changes(ChangeQuery(path=path, limit=MAX_LATER_CHANGES)):
            if later.id == change.id:
                break
            if later.id not in self.ids:
                found.append(later)
        return found

    def _add_obstacle(self, change: Change, path: NotePath, why: str) -> None:
        standing = [later for later in self._find_later_changes(change, path) if later.undone_by is None]
        if not self.ws.access.sees(path):
            self.obstacles.append(Obstacle("a note you may not see", why))
        elif standing:
            actor = standing[0].actor
            self.obstacles.append(Obstacle(path, why, standing[0].id, actor.client or actor.user))
        else:
            self.obstacles.append(Obstacle(path, f"{why}, outside Notewright"))
