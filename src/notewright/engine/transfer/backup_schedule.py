"""Backups by themselves, once a day, made by one process of however many serve the same notes.

The destination itself decides who makes it: whoever holds its lock looks whether the day has a backup already, and only
then makes one. So no process needs to know of another, and one that dies is replaced by the next that looks.
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

RETRY = timedelta(hours=1)  # after one that could not be made
LOOK_AGAIN = timedelta(minutes=1)  # while another process makes it
MAX_WAIT_SECONDS = 60.0  # seconds; a machine that slept, or whose clock was set, is noticed then


def last_due(at: str, now: datetime) -> datetime:
    """The last time a clock showed `at` (HH:MM, UTC), `now` included."""
    hour, minute = _parse_clock(at)
    today = now.astimezone(UTC).replace(hour=hour, minute=minute, second=0, microsecond=0)
    return today if today <= now else today - timedelta(days=1)


def backup_due(at: str, now: datetime, dates: Sequence[str]) -> bool:
    """Whether a backup is missing: there is none of the day it was last due, or since. Days to come do not count: they
    are from a clock that was wrong."""
    today = now.astimezone(UTC).date().isoformat()
    return max((date for date in dates if date <= today), default="") < last_due(at, now).date().isoformat()


def _parse_clock(at: str) -> tuple[int, int]:
    found = re.fullmatch(r"([01]?\d|2[0-3]):([0-5]\d)", at, re.ASCII)
    if found is None:
        raise Invalid(f"{at!r} is not a time of day", hint='write backup.at = "02:00"; it is in UTC', what="backup.at")
    return int(found[1]), int(found[2])


class _NotNow(Exception):
    """There is a backup already, or the process ends: what was begun is left for the next."""


class Schedule:
    """Makes the daily backup from a thread of its own, until closed. Each time `shelf` is asked for workspaces and `to`
    for the place, open."""

    def __init__(
        self,
        shelf: Callable[[], Sequence[Workspace]],
        to: Callable[[], BackupPlace],
        *,
        at: str = "02:00",
        keep_days: int = 30,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        told: Callable[[BackupResult], None] = lambda result: None,
        longest_wait: float = MAX_WAIT_SECONDS,
    ) -> None:
        _parse_clock(at)
        self._shelf, self._to, self._at, self._keep_days = shelf, to, at, keep_days
        self._now, self._told, self._longest_wait = clock, told, longest_wait
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="backups", daemon=True)

    def start(self) -> None:
        """Begin. One that was missed while nobody ran is made at once."""
        self._thread.start()

    def close(self, timeout: float = 10.0) -> None:
        """End; a backup that is being made is given up, and nothing of it stays."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def _run(self) -> None:
        seen = None  # when the backup was due that is there
        failed, again = self._now(), self._now()
        while not self._stop.is_set():
            now = self._now()  # it may jump, and a backup may last past the next time
            due = last_due(self._at, now)
            if due == seen or failed <= now < again:
                left = (due + timedelta(days=1) - now).total_seconds()
                self._stop.wait(min(self._longest_wait, left))
                continue
            try:
                self._make(now)
            except _NotNow:
                pass
            except Busy:
                failed, again = now, now + LOOK_AGAIN
                continue
            except Exception as error:
                log.error("the backup could not be made: %s", error, exc_info=not isinstance(error, Problem))
                failed, again = now, now + RETRY
                continue
            seen = due

    def _make(self, now: datetime) -> None:
        def refuse_unless_due(dates: list[str]) -> None:
            if not backup_due(self._at, now, dates):
                raise _NotNow

        def refuse_when_closed(done: int, total: int | None) -> None:
            if self._stop.is_set():
                raise _NotNow

        with closing(self._to()) as place:
            result = back_up(
                self._shelf(),
                place,
                now=now,
                keep_days=self._keep_days,
                report=refuse_when_closed,
                check=refuse_unless_due,
            )
        copied = f"{result.files_backed_up} files copied, {result.files_skipped} unchanged"
        if result.success:
            log.info("backup of %s: %s", result.date, copied)
        else:
            log.error("backup of %s: %s, %d errors: %s", result.date, copied, len(result.errors), result.errors[0])
        self._told(result)
