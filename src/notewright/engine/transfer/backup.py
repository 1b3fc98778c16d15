"""Backing up workspaces: every day whole by itself, unchanged files linked, old days removed after a success only.

A backup is the owner's: rules that hide notes from agents do not hold for it. Every file is read and compared by its
bytes, an object of a bucket by its ETag. What could not be read keeps the bytes it had in the backup before, and is
named in `errors`.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

from notewright.engine.transfer.manifest import (
    AT_ONCE,
    THIS_FILE_ONLY,
    BackedUpFile,
    BackupPlace,
    Manifest,
    NewBackup,
    WorkspacePart,
    problems,
    refuse_overlap,
    run_each,
)
from notewright.engine.workspace import Workspace
from notewright.errors import Exists, Invalid, NotFound, Problem
from notewright.notes.path import NotePath
from notewright.stores.base import Entry, Stored, parents

log = logging.getLogger(__name__)

Report = Callable[[int, int | None], None]  # so many files of so many
MAX_ROUNDS = 4  # how often what changed meanwhile is read again, until the backup shows one moment
FEW_FILES = 10  # a workspace that had more and is empty now is not believed


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
        named = {"files_backed_up": "filesBackedUp", "files_skipped": "filesSkipped", "total_bytes": "totalBytes"}
        told = {named.get(key, key): value for key, value in asdict(self).items()}
        return told | {"errors": list(self.errors), "removed": list(self.removed)}


def back_up(
    shelf: Sequence[Workspace],
    backups: BackupPlace,
    *,
    now: datetime | None = None,
    keep_days: int = 30,
    report: Report = lambda done, total: None,
    check: Callable[[list[str]], None] = lambda dates: None,
) -> BackupResult:
    """Back up these workspaces for today (UTC). Busy while another backup goes there.

    `check` is given the days there are while nobody else can add one, and raises where no backup is wanted.
    """
    moment = (now or datetime.now(UTC)).astimezone(UTC)
    if keep_days < 1:
        raise Invalid("backups must be kept for a day at least", hint="keep_days = 30", what="keep_days")
    for ws in shelf:
        refuse_overlap(ws.store, ws.name, backups.name, backups.objects, "the place for backups")
    with backups.locked(alone=True):
        check(backups.dates())
        return _make_backup(shelf, backups, moment, keep_days, report)


def _make_backup(
    shelf: Sequence[Workspace], backups: BackupPlace, moment: datetime, keep_days: int, report: Report
) -> BackupResult:
    today = moment.date().isoformat()
    day = backups.begin(today)
    try:
        others = _find_others(shelf, day.before) if day.before and day.before.date == today else []
        several = len(shelf) + len(others) > 1
        runs = [_WorkspaceBackup(ws, ws.id if several else "", day, report) for ws in shelf]
        for done, run in enumerate(runs):
            run.go(sum(len(earlier.files) for earlier in runs[:done]))
        errors = tuple(error for run in runs for error in run.describe_errors(several))
        parts = [run.part for run in runs] + [_carry_part(part, day) for part in others]
        stamp = moment.strftime("%Y-%m-%dT%H:%M:%SZ")
        made = Manifest(today, stamp, tuple(sorted(parts, key=lambda part: part.id)), errors)
        day.finish(made)
    except BaseException:
        day.abandon()
        raise
    removed = () if errors else tuple(_remove_old(backups, made, moment.date(), keep_days))
    new = [size for run in runs for size in run.new.values()]
    skipped = sum(len(run.files) - len(run.new) - len(run.stale) for run in runs)
    return BackupResult(not errors, len(new), skipped, sum(new), errors, today, removed)


def _find_others(shelf: Sequence[Workspace], today: Manifest) -> list[WorkspacePart]:
    """Workspaces in today's backup that are not asked for: they stay in it. Exists where it is of another folder."""
    asked = {ws.id: ws for ws in shelf}
    for part in today.parts:
        if part.id in asked and part.location != _location(asked[part.id]):
            hint = "give each its own folder for backups"
            raise Exists(f"today's backup there is of another folder, {part.location}", hint=hint, path=part.id)
    return [part for part in today.parts if part.id not in asked]


def _carry_part(part: WorkspacePart, day: NewBackup) -> WorkspacePart:
    """A workspace of an earlier backup of the same day, once more."""
    moved = replace(part, folder=part.id)
    for path, kept in part.files.items():
        if not day.carry(part.place(path), moved.place(path), kept):
            raise Invalid(f"today's backup of {path} is not as it was made", hint="remove it, or choose another folder")
    for path, real in part.links.items():
        day.point(moved.place(path), moved.place(real))
    return moved


def _location(ws: Workspace) -> str:
    if ws.store.objects is not None:
        return ws.store.objects.location
    return ws.store.full_path(NotePath("")).rstrip("/")


def _remove_old(backups: BackupPlace, made: Manifest, today: date, keep_days: int) -> Iterator[str]:
    """Let go of the days that are old enough, now that there is a newer one. What cannot be removed stays, and so does
    the last backup of a workspace that was not among those `made` now: perhaps its disk is only away."""
    for day in backups.dates():
        try:
            if date.fromisoformat(day) > today - timedelta(days=keep_days):
                break
            if all(_is_newer(part, backups, made, day) for part in backups.manifest(day).parts):
                backups.remove(day)
                yield day
        except (ValueError, Problem) as problem:
            log.warning("the backup of %s was not removed: %s", day, problem)


def _is_newer(part: WorkspacePart, backups: BackupPlace, made: Manifest, day: str) -> bool:
    """Whether this workspace is in a backup after that day."""

    def held_by(manifest: Manifest) -> bool:
        return any(part.is_same(other.id, other.location) for other in manifest.parts)

    return held_by(made) or any(held_by(backups.manifest(later)) for later in backups.dates() if later > day)


@dataclass
class _WorkspaceBackup:
    """One workspace on its way into a backup."""

    ws: Workspace
    folder: str
    day: NewBackup
    report: Report
    files: dict[NotePath, BackedUpFile] = field(default_factory=dict)
    links: dict[NotePath, str] = field(default_factory=dict)
    new: dict[NotePath, int] = field(default_factory=dict)  # copied, with their sizes
    stale: set[NotePath] = field(default_factory=set)  # could not be read: as they were in the backup before
    stamps: dict[NotePath, str] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)  # "" is the whole workspace

    def __post_init__(self) -> None:
        id, location = self.ws.id, _location(self.ws)
        self.part = WorkspacePart(id, self.ws.name, location, self.folder, self.files, self.links)
        same = [part for part in self.day.before.parts if part.is_same(id, location)] if self.day.before else []
        self.base = min(same, key=lambda part: part.id != id, default=WorkspacePart("", "", "", ""))  # as it was before
        self.in_bucket = self.ws.store.objects is not None
        # Several at once where either end is a bucket: then they wait for the service.
        self.at_once = max(self.day.backups.at_once, AT_ONCE if self.in_bucket else 1)

    def go(self, done_before: int) -> None:
        """Read everything, then what changed meanwhile: when nothing did, all of it is as it was at one moment."""
        for turn in range(MAX_ROUNDS):
            try:
                listed = {entry.path: entry for entry in self.ws.store.entries()}
            except Problem as problem:
                self.errors[""], listed = problem.message, {}
                break
            gone = self.stamps.keys() - listed.keys()
            changed = [entry for path, entry in listed.items() if self.stamps.get(path) != entry.stamp]
            if turn and not gone and not changed:
                break
            for path in (*gone, *(entry.path for entry in changed)):
                self._forget(path)
            total = done_before + len(listed)
            for count, _ in enumerate(run_each(self._take, changed, self.at_once), 1):
                self.report(total - len(changed) + count, total)
        for path in listed.keys() - self.stamps.keys():
            self.errors[path] = "it went away again and again while it was read"
        for odd in self.ws.store.unlisted_files():
            self.errors[odd.path] = odd.why
        held = len(self.base.files)
        if not listed and "" not in self.errors and held >= FEW_FILES:  # a disk that is not mounted looks like this
            self.errors[""] = f"it is empty, and held {held} files when it was last backed up"
        self._keep_what_could_not_be_read()

    def _forget(self, path: NotePath) -> None:
        """As if it had not been read."""
        self.errors.pop(path, None)
        self.new.pop(path, None)
        self.stamps.pop(path, None)
        if self.files.pop(path, None) or self.links.pop(path, None) is not None:
            self.day.drop(self.part.place(path))

    def _take(self, entry: Entry) -> None:
        path, place = entry.path, self.part.place(entry.path)
        if entry.kind == "symlink":
            self.links[path], self.stamps[path] = entry.real or "", entry.stamp
            return self.day.point(place, self.part.place(entry.real or ""))
        kept = self._copy_unread(entry, place) if self.in_bucket else None
        if kept is None:
            try:
                stored = self.ws.store.read(path)
            except NotFound:
                return  # the next listing knows where it is
            except Problem as problem:
                self.errors[path], self.stamps[path] = problem.message, entry.stamp
                return
            self.stamps[path] = stored.entry.stamp
            try:
                with problems(place, but_for=THIS_FILE_ONLY):
                    kept = self._copy(stored, place)
            except OSError as error:
                self.errors[path] = f"the backup cannot hold it: {(error.strerror or str(error)).lower()}"
                return
        self.stamps.setdefault(path, entry.stamp)
        self.files[path] = kept
        old = self.base.files.get(path)
        if old is None or old.sha256 != kept.sha256:
            self.new[path] = kept.size

    def _copy_unread(self, entry: Entry, place: str) -> BackedUpFile | None:
        """An object of a bucket with the ETag it had in the backup before, or one that the service itself copies and
        whose hash the index knows."""
        old = self.base.files.get(entry.path)
        if (
            old is not None
            and old.stamp == entry.stamp != ""
            and self.day.link(self.base.place(entry.path), place, old)
        ):
            return old
        try:
            filed = self.ws.index.filed(entry.path)
        except Problem:
            return None
        if filed is None or not filed.version or filed.stamp != entry.stamp:
            return None
        kept = BackedUpFile(filed.version, entry.size, entry.modified_ns, entry.stamp)
        return kept if self.day.copy_from(self.ws.store, entry, place) else None

    def _copy(self, stored: Stored, place: str) -> BackedUpFile:
        entry = stored.entry
        stamp = entry.stamp if self.in_bucket else ""
        kept = BackedUpFile(stored.version, len(stored.data), entry.modified_ns, stamp)
        old = self.base.files.get(entry.path)
        if old is None or old != kept or not self.day.link(self.base.place(entry.path), place, old):
            # what was only touched is copied too: a link has one time
            self.day.put(place, stored.data, modified_ns=entry.modified_ns, mode=entry.mode)
        return kept

    def _keep_what_could_not_be_read(self) -> None:
        """A file that failed, or a folder it is in, stays as it was in the backup before."""
        for path, kept in self.base.files.items() if self.errors else ():
            if path in self.files or path in self.links or self.errors.keys().isdisjoint(("", path, *parents(path))):
                continue
            if self.day.carry(self.base.place(path), self.part.place(path), kept):
                self.files[path] = kept
                self.stale.add(path)

    def describe_errors(self, several: bool) -> list[str]:
        of = f"{self.ws.name}/" if several else ""
        return [f"{of}{path}: {why}" if path else f"{self.ws.name}: {why}" for path, why in sorted(self.errors.items())]
