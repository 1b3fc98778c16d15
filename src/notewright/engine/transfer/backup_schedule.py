"""Daily backups, made by one process of however many serve the same notes.

The destination itself decides which: whoever holds its lock looks whether the day has a backup already, and only then
makes one. So no process needs to know of another, and one that dies is replaced by the next that looks.
"""

import logging
import re
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta

from notewright.engine.transfer.backup import BackupResult, back_up
from notewright.engine.transfer.manifest import BackupPlace
from notewright.engine.workspace import Workspace
from notewright.errors import Busy, Invalid, Problem

log = logging.getLogger(__name__)

RETRY = timedelta(hours=1)  # after a backup that failed
RETRY_BUSY = timedelta(minutes=1)  # while another process makes it
MAX_WAIT_SECONDS = 60.0  # between two looks at the clock: the machine may sleep, or its clock be set


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
    """Makes the daily backup in a thread of its own, until closed. `shelf` and `to` are called for each backup: they
    give the workspaces and the place, open."""

    def __init__(
        self,
        shelf: Callable[[], Sequence[Workspace]],
        to: Callable[[], BackupPlace],
        *,
        at: str = "02:00",
        keep_days: int = 30,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        on_result: Callable[[BackupResult], None] = lambda result: None,
        max_wait_seconds: float = MAX_WAIT_SECONDS,
    ) -> None:
        self._shelf, self._to, self._at, self._keep_days = shelf, to, at, keep_days
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
            shelf, days = self._shelf(), self._keep_days
            result = back_up(shelf, place, now=now, keep_days=days, report=stop_when_closed, check=stop_unless_due)
        copied = f"{result.files_backed_up} files copied, {result.files_skipped} unchanged"
        if result.success:
            log.info("backup of %s: %s", result.date, copied)
        else:
            log.error("backup of %s: %s, %d errors: %s", result.date, copied, len(result.errors), result.errors[0])
        self._on_result(result)
