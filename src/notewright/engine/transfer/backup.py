"""Back up workspaces: every day is whole by itself, unchanged files are linked, old days are removed after a success.

A backup is the owner's: rules that hide notes from agents do not apply to it. Every file is read and compared by its
bytes, an object of a bucket by its ETag. A file that could not be read keeps the bytes it had in the backup before, and
is named in `errors`.
"""

import logging
import re
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime, timedelta
from itertools import chain
from typing import Any

from notewright.engine.transfer.manifest import (
    BUCKET_THREADS,
    THIS_FILE_ONLY,
    BackedUpFile,
    BackupPlace,
    Manifest,
    NewBackup,
    WorkspacePart,
    os_errors_as_problems,
    refuse_overlap,
    run_each,
)
from notewright.engine.workspace import Workspace
from notewright.errors import Busy, Exists, Invalid, NotFound, Problem
from notewright.notes.path import NotePath
from notewright.stores.base import Entry, parents

log = logging.getLogger(__name__)

Report = Callable[[int, int | None], None]  # files done, files in all
MAX_ROUNDS = 4  # how often files that changed meanwhile are read again, until the backup shows one moment
FEW_FILES = 10  # of a workspace that had more and is empty now, the disk may not be mounted
RETRY = timedelta(hours=1)  # after a backup that failed
RETRY_BUSY = timedelta(minutes=1)  # while another process makes it
MAX_WAIT_SECONDS = 60.0  # between two looks at the clock: the machine may sleep, or its clock be set


@dataclass(frozen=True, slots=True)
class BackupResult:
    """The outcome of a backup. `total_bytes` counts what was copied; `removed` are the old days that were deleted."""

    success: bool
    files_backed_up: int
    files_skipped: int  # unchanged since the backup before
    total_bytes: int
    errors: tuple[str, ...]
    date: str
    removed: tuple[str, ...] = ()

    def record(self) -> dict[str, Any]:
        """The result as JSON values for programs."""
        names = {"files_backed_up": "filesBackedUp", "files_skipped": "filesSkipped", "total_bytes": "totalBytes"}
        values = {names.get(key, key): value for key, value in asdict(self).items()}
        return values | {"errors": list(self.errors), "removed": list(self.removed)}


def back_up(
    workspaces: Sequence[Workspace],
    backups: BackupPlace,
    *,
    now: datetime | None = None,
    keep_days: int = 30,
    report: Report = lambda done, total: None,
    check: Callable[[list[str]], None] = lambda dates: None,
) -> BackupResult:
    """Back up these workspaces for today (UTC). Busy while another backup is written to the same place.

    `check` gets the existing days while the place is locked, and raises where no backup is wanted.
    """
    moment = (now or datetime.now(UTC)).astimezone(UTC)
    if keep_days < 1:
        raise Invalid("backups must be kept for a day at least", hint="keep_days = 30", what="keep_days")
    for ws in workspaces:
        refuse_overlap(ws.store, ws.name, backups.name, backups.objects, "the place for backups")
    with backups.lock(exclusive=True):
        check(backups.dates())
        return _make_backup(workspaces, backups, moment, keep_days, report)


def _make_backup(
    workspaces: Sequence[Workspace], backups: BackupPlace, moment: datetime, keep_days: int, report: Report
) -> BackupResult:
    today = moment.date().isoformat()
    day = backups.begin(today)
    try:
        # Workspaces in an earlier backup of today that are not asked for now stay in it.
        others = []
        asked = {ws.id: ws for ws in workspaces}
        for part in day.before.parts if day.before and day.before.date == today else ():
            if part.id not in asked:
                others.append(part)
            elif part.location != _location(asked[part.id]):
                hint = "give each its own folder for backups"
                raise Exists(f"today's backup there is of another folder, {part.location}", hint=hint, path=part.id)
        several = len(workspaces) + len(others) > 1
        runs = [_WorkspaceBackup(ws, ws.id if several else "", day, report) for ws in workspaces]
        errors: list[str] = []
        for done, run in enumerate(runs):
            run.copy_files(sum(len(earlier.files) for earlier in runs[:done]))
            name, of = run.ws.name, f"{run.ws.name}/" if several else ""
            errors += [f"{of}{path}: {why}" if path else f"{name}: {why}" for path, why in sorted(run.errors.items())]
        parts = [run.part for run in runs] + [_carry_part(part, day) for part in others]
        made_at = moment.strftime("%Y-%m-%dT%H:%M:%SZ")
        made = Manifest(today, made_at, tuple(sorted(parts, key=lambda part: part.id)), tuple(errors))
        day.finish(made)
    except BaseException:
        day.abandon()
        raise
    removed = () if errors else tuple(_remove_old(backups, made, moment.date(), keep_days))
    new = [size for run in runs for size in run.new.values()]
    skipped = sum(len(run.files) - len(run.new) - len(run.stale) for run in runs)
    return BackupResult(not errors, len(new), skipped, sum(new), made.errors, today, removed)


def _carry_part(part: WorkspacePart, day: NewBackup) -> WorkspacePart:
    """Take a workspace over from an earlier backup of the same day."""
    moved = replace(part, folder=part.id)
    for path, kept in part.files.items():
        if not day.link_or_copy(part.place(path), moved.place(path), kept):
            raise Invalid(f"today's backup of {path} is not as it was made", hint="remove it, or choose another folder")
    for path, real in part.links.items():
        day.add_symlink(moved.place(path), moved.place(real))
    return moved


def _location(ws: Workspace) -> str:
    if ws.store.objects is not None:
        return ws.store.objects.location
    return ws.store.full_path(NotePath("")).rstrip("/")


def _remove_old(backups: BackupPlace, made: Manifest, today: date, keep_days: int) -> list[str]:
    """Remove the days that are old enough; those that were. A day stays that cannot be removed, or that has the last
    backup of a workspace that was not backed up now: perhaps its disk is only away."""
    removed, dates = [], backups.dates()
    for day in dates:
        try:
            if date.fromisoformat(day) > today - timedelta(days=keep_days):
                break
            needed: Sequence[WorkspacePart] = backups.manifest(day).parts
            for newer in chain([made], (backups.manifest(later) for later in dates if later > day)):
                held = newer.parts
                needed = [part for part in needed if not any(part.is_same(one.id, one.location) for one in held)]
                if not needed:  # the other manifests need not be read: they are large
                    break
            if not needed:
                backups.remove(day)
                removed.append(day)
        except (ValueError, Problem) as problem:
            log.warning("the backup of %s was not removed: %s", day, problem)
    return removed


class _WorkspaceBackup:
    """Copies one workspace into a new backup."""

    def __init__(self, ws: Workspace, folder: str, day: NewBackup, report: Report) -> None:
        self.ws, self.day, self.report = ws, day, report
        self.files: dict[NotePath, BackedUpFile] = {}
        self.links: dict[NotePath, str] = {}
        self.new: dict[NotePath, int] = {}  # files that were copied, with their sizes
        self.stale: set[NotePath] = set()  # files that could not be read: as they were in the backup before
        self.stamps: dict[NotePath, str] = {}
        self.errors: dict[str, str] = {}  # by path; "" is the whole workspace
        id, location = ws.id, _location(ws)
        self.part = WorkspacePart(id, ws.name, location, folder, self.files, self.links)
        same = [part for part in day.before.parts if part.is_same(id, location)] if day.before else []
        self.base = min(same, key=lambda part: part.id != id, default=WorkspacePart("", "", "", ""))  # as it was before
        self.in_bucket = ws.store.objects is not None

    def copy_files(self, done_before: int) -> None:
        """Read every file, then those that changed meanwhile, until none did: the backup then shows one moment."""
        # Several threads where either end is a bucket: they wait for the service.
        threads = max(self.day.backups.threads, BUCKET_THREADS if self.in_bucket else 1)
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
            for path in (*gone, *(entry.path for entry in changed)):  # as if it had not been read
                self.errors.pop(path, None)
                self.new.pop(path, None)
                self.stamps.pop(path, None)
                if self.files.pop(path, None) or self.links.pop(path, None) is not None:
                    self.day.drop(self.part.place(path))
            total = done_before + len(listed)
            for count, _ in enumerate(run_each(self._copy_file, changed, threads), 1):
                self.report(total - len(changed) + count, total)
        for path in listed.keys() - self.stamps.keys():
            self.errors[path] = "it went away again and again while it was read"
        for odd in self.ws.store.unlisted_files():
            self.errors[odd.path] = odd.why
        held = len(self.base.files)
        if not listed and "" not in self.errors and held >= FEW_FILES:  # a disk that is not mounted looks like this
            self.errors[""] = f"it is empty, and held {held} files when it was last backed up"
        # A file that failed, or is in a folder that did, stays as it was in the backup before.
        for path, kept in self.base.files.items() if self.errors else ():
            if path in self.files or path in self.links or self.errors.keys().isdisjoint(("", path, *parents(path))):
                continue
            if self.day.link_or_copy(self.base.place(path), self.part.place(path), kept):
                self.files[path] = kept
                self.stale.add(path)

    def _copy_file(self, entry: Entry) -> None:
        path, place = entry.path, self.part.place(entry.path)
        if entry.kind == "symlink":
            self.links[path], self.stamps[path] = entry.real or "", entry.stamp
            return self.day.add_symlink(place, self.part.place(entry.real or ""))
        old = self.base.files.get(path)
        kept = self._copy_object(entry, place, old) if self.in_bucket else None
        if kept is None:
            try:
                stored = self.ws.store.read(path)
            except NotFound:
                return  # moved meanwhile: the next listing has it
            except Problem as problem:
                self.errors[path], self.stamps[path] = problem.message, entry.stamp
                return
            entry = stored.entry
            self.stamps[path] = entry.stamp
            stamp = entry.stamp if self.in_bucket else ""
            kept = BackedUpFile(stored.version, len(stored.data), entry.modified_ns, stamp)
            try:
                with os_errors_as_problems(place, but_for=THIS_FILE_ONLY):
                    # A file that was only touched is copied too: a link has one time.
                    if old is None or old != kept or not self.day.link(self.base.place(path), place, old):
                        self.day.put(place, stored.data, modified_ns=entry.modified_ns, mode=entry.mode)
            except OSError as error:
                self.errors[path] = f"the backup cannot hold it: {(error.strerror or str(error)).lower()}"
                return
        self.stamps.setdefault(path, entry.stamp)
        self.files[path] = kept
        if old is None or old.sha256 != kept.sha256:
            self.new[path] = kept.size

    def _copy_object(self, entry: Entry, place: str, old: BackedUpFile | None) -> BackedUpFile | None:
        """Back up an object without reading it: it has the ETag of the backup before, or the index knows its hash and
        the service copies it. None where it has to be read."""
        is_same = old is not None and old.stamp == entry.stamp != ""
        if old is not None and is_same and self.day.link(self.base.place(entry.path), place, old):
            return old
        try:
            filed = self.ws.index.find_file(entry.path)
        except Problem:
            return None
        if filed is None or not filed.version or filed.stamp != entry.stamp:
            return None
        kept = BackedUpFile(filed.version, entry.size, entry.modified_ns, entry.stamp)
        return kept if self.day.copy_in_service(self.ws.store, entry, place) else None


# ---- daily backups ------------------------------------------------------------------------------------
#
# They are made by one process of however many serve the same notes. The destination itself decides which: whoever holds
# its lock looks whether the day has a backup already, and only then makes one. So no process needs to know of another,
# and one that dies is replaced by the next that looks.


def find_last_due(at: str, now: datetime) -> datetime:
    """The last time a clock showed `at` (HH:MM, UTC), `now` included. Invalid where that is no time of day."""
    found = re.fullmatch(r"([01]?\d|2[0-3]):([0-5]\d)", at, re.ASCII)
    if found is None:
        raise Invalid(f"{at!r} is not a time of day", hint='write backup.at = "02:00"; it is in UTC', what="backup.at")
    today = now.astimezone(UTC).replace(hour=int(found[1]), minute=int(found[2]), second=0, microsecond=0)
    return today if today <= now else today - timedelta(days=1)


def is_backup_due(at: str, now: datetime, dates: Sequence[str]) -> bool:
    """Whether there is no backup of the day it was last due, or since. Days in the future do not count: they are from a
    clock that was wrong."""
    today = now.astimezone(UTC).date().isoformat()
    return max((date for date in dates if date <= today), default="") < find_last_due(at, now).date().isoformat()


class _NotNow(Exception):
    """There is a backup already, or the process ends: the one that was begun is abandoned."""


class Schedule:
    """Makes the daily backup in a thread of its own, until closed. `workspaces` and `to` are called for each backup:
    they give the workspaces and the place, open."""

    def __init__(
        self,
        workspaces: Callable[[], Sequence[Workspace]],
        to: Callable[[], BackupPlace],
        *,
        at: str = "02:00",
        keep_days: int = 30,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        on_result: Callable[[BackupResult], None] = lambda result: None,
        max_wait_seconds: float = MAX_WAIT_SECONDS,
    ) -> None:
        self._workspaces, self._to, self._at, self._keep_days = workspaces, to, at, keep_days
        self._now, self._on_result, self._max_wait_seconds = clock, on_result, max_wait_seconds
        find_last_due(at, datetime.now(UTC))  # Invalid is raised here, not in the thread
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="backups", daemon=True)

    def start(self) -> None:
        """Begin. A backup that was missed while no process ran is made at once."""
        self._thread.start()

    def close(self, timeout: float = 10.0) -> None:
        """End; a backup that is being made is abandoned."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def _run(self) -> None:
        done_due = None  # the due time whose backup is there
        failed, retry = self._now(), self._now()
        while not self._stop.is_set():
            now = self._now()  # it may jump, and a backup may last past the next due time
            due = find_last_due(self._at, now)
            if due == done_due or failed <= now < retry:
                left = (due + timedelta(days=1) - now).total_seconds()
                self._stop.wait(min(self._max_wait_seconds, left))
                continue
            try:
                self._make(now)
            except _NotNow:
                pass
            except Busy:
                failed, retry = now, now + RETRY_BUSY
                continue
            except Exception as error:
                log.error("the backup could not be made: %s", error, exc_info=not isinstance(error, Problem))
                failed, retry = now, now + RETRY
                continue
            done_due = due

    def _make(self, now: datetime) -> None:
        def stop_unless_due(dates: list[str]) -> None:
            if not is_backup_due(self._at, now, dates):
                raise _NotNow

        def stop_when_closed(done: int, total: int | None) -> None:
            if self._stop.is_set():
                raise _NotNow

        with closing(self._to()) as place:
            workspaces, days = self._workspaces(), self._keep_days
            result = back_up(workspaces, place, now=now, keep_days=days, report=stop_when_closed, check=stop_unless_due)
        copied = f"{result.files_backed_up} files copied, {result.files_skipped} unchanged"
        if result.success:
            log.info("backup of %s: %s", result.date, copied)
        else:
            log.error("backup of %s: %s, %d errors: %s", result.date, copied, len(result.errors), result.errors[0])
        self._on_result(result)
