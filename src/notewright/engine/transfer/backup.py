"""Backing up workspaces: every day whole by itself, unchanged files linked, old days removed after a success only.

A backup is the owner's: rules that hide notes from agents do not hold for it. Every file is read and compared by its
bytes. What could not be read keeps the bytes it had in the backup before, and is named in `errors`.
"""

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any

from notewright.engine.transfer.backup_folder import BackupFolder, NewDay, NotTaken
from notewright.engine.transfer.backup_manifest import BackedUpFile, Manifest, WorkspacePart
from notewright.engine.workspace import Workspace
from notewright.errors import Exists, Invalid, NotFound, Problem
from notewright.notes.path import NotePath
from notewright.stores.base import Entry, Stored, version_of

log = logging.getLogger(__name__)

Report = Callable[[int, int | None], None]  # so many files of so many
ROUNDS = 4  # how often what changed meanwhile is read again, until the backup shows one moment
FEW = 10  # files; a workspace that had more and is empty now is not believed


@dataclass(frozen=True, slots=True)
class BackupResult:
    """What came of a backup. `total_bytes` are those that were copied; `removed` are the days that were let go."""

    success: bool
    files_backed_up: int
    files_skipped: int  # not changed since the backup before
    total_bytes: int
    errors: tuple[str, ...]
    date: str
    removed: tuple[str, ...] = ()

    def record(self) -> dict[str, Any]:
        """As it is told to programs."""
        return {
            "success": self.success,
            "filesBackedUp": self.files_backed_up,
            "filesSkipped": self.files_skipped,
            "totalBytes": self.total_bytes,
            "errors": list(self.errors),
            "date": self.date,
            "removed": list(self.removed),
        }


def back_up(
    shelf: Sequence[Workspace],
    to: str | os.PathLike[str],
    *,
    now: datetime | None = None,
    keep_days: int = 30,
    report: Report = lambda done, total: None,
) -> BackupResult:
    """Back up these workspaces into the folder `to`, for today (UTC). Busy while another backup goes there."""
    made = back_up_if(lambda dates: True, shelf, to, now=now, keep_days=keep_days, report=report)
    assert made is not None
    return made


def back_up_if(
    wanted: Callable[[list[str]], bool],
    shelf: Sequence[Workspace],
    to: str | os.PathLike[str],
    *,
    now: datetime | None = None,
    keep_days: int = 30,
    report: Report = lambda done, total: None,
) -> BackupResult | None:
    """The same if it is `wanted`, asked with the days there are while nobody else can add one; else None."""
    moment = (now or datetime.now(UTC)).astimezone(UTC)
    if keep_days < 1:
        raise Invalid("backups must be kept for a day at least", hint="keep_days = 30", what="keep_days")
    backups = BackupFolder(to)
    refuse_overlap(shelf, str(backups.path))
    backups.make()
    with backups.alone():
        if not wanted(backups.dates()):
            return None
        return _made(shelf, backups, moment, keep_days, report)


def refuse_overlap(shelf: Iterable[Workspace], place: str, what: str = "the folder for backups") -> None:
    """Neither among the notes nor around them: Invalid."""
    for ws in shelf:
        home = ws.store.full_path(NotePath(""))
        if not os.path.isdir(home):
            continue  # not in a folder of this machine
        home, place = os.path.realpath(home), os.path.realpath(place)
        if os.path.commonpath((home, place)) in (home, place):
            inside = f"{what} is inside the workspace {ws.name}"
            around = f"the workspace {ws.name} lies in {what}"
            words = inside if os.path.commonpath((home, place)) == home else around
            raise Invalid(f"{words} ({place})", hint="choose a folder beside it", what="to")


def _made(
    shelf: Sequence[Workspace], backups: BackupFolder, moment: datetime, keep_days: int, report: Report
) -> BackupResult:
    today = moment.date().isoformat()
    before = backups.newest()
    others = _of_others(shelf, before if before and before.date == today else None)
    several = len(shelf) + len(others) > 1
    day = backups.begin(today)
    try:
        runs = [_WorkspaceBackup(ws, ws.id if several else "", backups, day, before, report) for ws in shelf]
        for done, run in enumerate(runs):
            run.go(sum(len(earlier.files) for earlier in runs[:done]))
        errors = tuple(error for run in runs for error in run.told(several))
        parts = [run.part() for run in runs] + [_carried(part, backups, day, today) for part in others]
        stamp = moment.strftime("%Y-%m-%dT%H:%M:%SZ")
        made = Manifest(today, stamp, tuple(sorted(parts, key=lambda part: part.id)), errors)
        day.finish(made)
    except BaseException:
        day.abandon()
        raise
    removed = () if errors else _removed(backups, made, moment.date(), keep_days)
    new = [size for run in runs for size in run.new.values()]
    skipped = sum(len(run.files) - len(run.new) - len(run.stale) for run in runs)
    return BackupResult(not errors, len(new), skipped, sum(new), errors, today, removed)


def _of_others(shelf: Sequence[Workspace], today: Manifest | None) -> list[WorkspacePart]:
    """Workspaces in today's backup that are not asked for: they stay in it. Exists where it is of another folder."""
    asked = {ws.id: ws for ws in shelf}
    for part in today.parts if today else ():
        if part.id in asked and part.location != _location(asked[part.id]):
            hint = "give each its own folder for backups"
            raise Exists(f"today's backup there is of another folder, {part.location}", hint=hint, path=part.id)
    return [part for part in today.parts if part.id not in asked] if today else []


def _location(ws: Workspace) -> str:
    return ws.store.full_path(NotePath("")).rstrip("/")


def _removed(backups: BackupFolder, made: Manifest, today: date, keep_days: int) -> tuple[str, ...]:
    """Let go of the days that are old enough, now that there is a newer one. What cannot be removed stays, and so does
    the last backup of a workspace that was not among those `made` now: perhaps its disk is only away."""
    removed: list[str] = []
    for day in backups.dates():
        try:
            if date.fromisoformat(day) > today - timedelta(days=keep_days):
                break
            missing = [part for part in backups.manifest(day).parts if not _holds(made, part)]
            if not missing or _are_newer(backups, missing, day):
                backups.remove(day)
                removed.append(day)
        except (ValueError, Problem) as problem:
            log.warning("the backup of %s was not removed: %s", day, problem)
    return tuple(removed)


def _holds(manifest: Manifest, part: WorkspacePart) -> bool:
    return any(part.id == other.id or part.location == other.location != "" for other in manifest.parts)


def _are_newer(backups: BackupFolder, parts: Sequence[WorkspacePart], day: str) -> bool:
    """Whether every one of these workspaces is in a backup after that day."""
    newer = [later for later in backups.dates() if later > day]
    return all(any(_holds(backups.manifest(later), part) for later in newer) for part in parts)


@dataclass
class _WorkspaceBackup:
    """One workspace on its way into a backup."""

    ws: Workspace
    folder: str
    backups: BackupFolder
    day: NewDay
    before: Manifest | None
    report: Report
    files: dict[NotePath, BackedUpFile] = field(default_factory=dict)
    links: dict[NotePath, str] = field(default_factory=dict)
    new: dict[NotePath, int] = field(default_factory=dict)  # copied, with their sizes
    stale: set[NotePath] = field(default_factory=set)  # could not be read: as they were in the backup before
    stamps: dict[NotePath, str] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)  # "" is the whole workspace

    def __post_init__(self) -> None:
        self.base = _base(self.before, self.ws)

    def go(self, done_before: int) -> None:
        """Read everything, then what changed meanwhile: when nothing did, all of it is as it was at one moment."""
        for turn in range(ROUNDS):
            listed = self._listed()
            if "" in self.errors or (not self._catch_up(listed, done_before) and turn):
                break
        for entry in listed:
            if entry.path not in self.stamps:
                self.errors[entry.path] = "it went away again and again while it was read"
        for odd in self.ws.store.oddities():
            self.errors[odd.path] = odd.why
        self._doubt_emptiness(len(listed))
        self._keep_what_could_not_be_read()

    def _listed(self) -> list[Entry]:
        try:
            return list(self.ws.store.entries())
        except Problem as problem:
            self.errors[""] = problem.message
            return []

    def _catch_up(self, listed: list[Entry], done_before: int) -> bool:
        """Whether anything was different from what was read so far."""
        gone = self.stamps.keys() - {entry.path for entry in listed}
        for path in gone:
            self._forget(path)
        changed = [entry for entry in listed if self.stamps.get(entry.path) != entry.stamp]
        total = done_before + len(listed)
        for count, entry in enumerate(changed, 1):
            self._take(entry)
            self.report(total - len(changed) + count, total)
        return bool(gone or changed)

    def _take(self, entry: Entry) -> None:
        self._forget(entry.path)
        path = entry.path
        try:
            if entry.kind == "symlink":
                self.links[path] = entry.real or ""
                self.stamps[path] = entry.stamp
                return self.day.point(self._place(path), self._place(entry.real or ""))
            stored = self.ws.store.read(path)
        except NotFound:
            return  # the next listing knows where it is
        except Problem as problem:
            self.errors[path], self.stamps[path] = problem.message, entry.stamp
            return
        self.stamps[path] = stored.entry.stamp
        try:
            self._store(path, stored)
        except NotTaken as refused:
            self.errors[path] = f"the backup cannot hold it: {refused}"

    def _store(self, path: NotePath, stored: Stored) -> None:
        entry = stored.entry
        kept = BackedUpFile(version_of(stored.data), len(stored.data), entry.modified_ns)
        old = self.base.files.get(path) if self.base else None
        if not (old == kept and self._linked(path, kept)):  # what was only touched is copied: a link has one time
            self.day.put(self._place(path), stored.data, modified_ns=entry.modified_ns, mode=entry.mode)
        self.files[path] = kept
        if old is None or old.sha256 != kept.sha256:
            self.new[path] = kept.size

    def _linked(self, path: NotePath, kept: BackedUpFile) -> bool:
        if self.base is None or self.before is None:
            return False
        return self.day.keep(self.before.date, self.base.place(path), self._place(path), kept)

    def _forget(self, path: NotePath) -> None:
        """As if it had not been read."""
        self.errors.pop(path, None)
        self.new.pop(path, None)
        if self.stamps.pop(path, None) is not None and (path in self.files or path in self.links):
            self.files.pop(path, None)
            self.links.pop(path, None)
            self.day.drop(self._place(path))

    def _doubt_emptiness(self, count: int) -> None:
        """A disk that is not mounted looks like a workspace without notes."""
        if count == 0 and "" not in self.errors and self.base is not None and len(self.base.files) >= FEW:
            self.errors[""] = f"it is empty, and held {len(self.base.files)} files when it was last backed up"

    def _keep_what_could_not_be_read(self) -> None:
        if self.base is None or self.before is None or not self.errors:
            return
        for path, kept in self.base.files.items():
            if path in self.files or path in self.links or not self._failed(path):
                continue
            if _carry(self.backups, self.day, self.before.date, self.base.place(path), self._place(path), kept):
                self.files[path] = kept
                self.stale.add(path)

    def _failed(self, path: NotePath) -> bool:
        """It could not be read, or a folder it is in."""
        pieces = path.split("/")
        return "" in self.errors or any("/".join(pieces[:count]) in self.errors for count in range(1, len(pieces) + 1))

    def _place(self, path: str) -> str:
        return f"{self.folder}/{path}" if self.folder else path

    def part(self) -> WorkspacePart:
        return WorkspacePart(self.ws.id, self.ws.name, _location(self.ws), self.folder, self.files, self.links)

    def told(self, several: bool) -> list[str]:
        """The errors as people read them."""
        of = f"{self.ws.name}/" if several else ""
        return [f"{of}{path}: {why}" if path else f"{self.ws.name}: {why}" for path, why in sorted(self.errors.items())]


def _base(before: Manifest | None, ws: Workspace) -> WorkspacePart | None:
    """The same workspace in the backup before, be it under another name."""
    if before is None:
        return None
    return before.part(ws.id) or next((part for part in before.parts if part.location == _location(ws) != ""), None)


def _carried(part: WorkspacePart, backups: BackupFolder, day: NewDay, date: str) -> WorkspacePart:
    """A workspace of an earlier backup of the same day, once more."""
    moved = WorkspacePart(part.id, part.name, part.location, part.id, part.files, part.links)
    for path, kept in part.files.items():
        if not _carry(backups, day, date, part.place(path), moved.place(path), kept):
            raise Invalid(f"today's backup of {path} is not as it was made", hint="remove it, or choose another folder")
    for path, real in part.links.items():
        day.point(moved.place(path), moved.place(real))
    return moved


def _carry(backups: BackupFolder, day: NewDay, date: str, old: str, place: str, kept: BackedUpFile) -> bool:
    """Take a file over from an earlier backup without the workspace; False where it is not there as it was."""
    if day.keep(date, old, place, kept):
        return True
    try:
        with backups.open(date, old) as file:
            data = file.read()
    except NotFound:
        return False
    if version_of(data) != kept.sha256:
        return False
    try:
        day.put(place, data, modified_ns=kept.modified_ns)
    except NotTaken:
        return False
    return True
