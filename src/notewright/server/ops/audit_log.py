"""The audit log: who changed what, who was turned away, who came, and what the owner did. One JSON object a line.

It is the owner's: it names people and paths, never the text of a note or a secret. Every line is one write at the end
of the file, so that several processes share one; it is moved away when it has grown. What cannot
be written is said in the log and fails nobody's call.
"""

import contextlib
import json
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from notewright.accounts.limits import RateLimits, Window
from notewright.engine.workspace import Workspace
from notewright.errors import Limited
from notewright.ledger.base import Change
from notewright.locks import locked_file
from notewright.server.ops.logs import rfc3339, scrubbed
from notewright.server.request_context import NOW, RequestContext

log = logging.getLogger(__name__)

MOST_BYTES = 50_000_000
KEPT = 5  # files that were moved away
MOST_PATHS = 100  # named in one line
REMEMBERED = 4096  # visitors, and those who are turned away
EACH_MINUTE = 20  # refusals of one address for one reason; more are counted
ALL_MINUTE = 300  # refusals in all: a flood must not wash away everything else
EACH, ALL = ((Window(calls, 60.0, "minute"),) for calls in (EACH_MINUTE, ALL_MINUTE))
COMPLAIN_SECONDS = 60.0


def audit_file(setting: str | None, state: str | Path) -> Path | None:
    """Where the setting `audit_log` says it is; None where nothing is to be written."""
    if setting is None:
        return Path(state) / "audit.jsonl"
    return None if setting == "off" else Path(setting).expanduser()


class AuditLog:
    """Writes the audit log. Any thread may call."""

    def __init__(
        self,
        file: Path | None,
        *,
        most_bytes: int = MOST_BYTES,
        kept: int = KEPT,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._clock = clock
        self._lines = None if file is None else _RotatingFile(file, most_bytes, kept)
        self._seen = RateLimits(clock, REMEMBERED)
        self._lock = threading.Lock()
        self._unwritten: Counter[str] = Counter()

    def wrote(self, ws: Workspace, change: Change) -> None:
        """A change set was done."""
        actor = change.actor
        self._write(
            "write",
            change=change.id,
            workspace=ws.id,
            user=actor.user,
            client=actor.client,
            surface=actor.surface,
            tool=actor.tool,
            files=len(change.steps),
            paths=[str(step.path) for step in change.steps[:MOST_PATHS]],
            undoes=list(change.undoes) or None,
        )

    def refused(self, visit: RequestContext, reason: str, status: int | None = None) -> None:
        """A request, or the call in it, was turned away. Of very many only some are written, with how many were not."""
        if self._lines is None:
            return
        key = f"{reason} {visit.address}"
        with self._lock:
            try:
                self._seen.count(key, EACH)
                self._seen.count("all", ALL)
            except Limited:
                if len(self._unwritten) >= REMEMBERED:
                    self._unwritten.clear()
                self._unwritten[key] += 1
                return
            unwritten = self._unwritten.pop(key, None)
        facts = {"user": visit.user, "surface": visit.surface, "tool": visit.tool}
        known = {name: value for name, value in facts.items() if value}
        self._write("refused", visit, reason=reason, status=status, **known, unwritten=unwritten)

    def came(self, visit: RequestContext) -> None:
        """Somebody known made a request: written when it is the first from that address."""
        if not visit.user or visit.via == "local":
            return
        if self._seen.once(f"{visit.via} {visit.address} {visit.user}", "came"):
            self._write("sign_in", visit, user=visit.user, via=visit.via)

    def signed_in(self, user: str, *, via: str = "page", failed: bool = False) -> None:
        """Somebody signed in on the page, or tried to."""
        self._write("sign_in_failed" if failed else "sign_in", user=user, via=via)

    def admin(self, action: str, *, user: str = "", **facts: Any) -> None:
        """The owner did something: `token_added`, `workspace_changed`, `backup`, … `facts` hold no secrets."""
        self._write("admin", action=action, user=user, **facts)

    def _write(self, event: str, visit: RequestContext | None = None, **facts: Any) -> None:
        if self._lines is None:
            return
        visit = visit or NOW.get()
        told: dict[str, Any] = {"time": rfc3339(self._clock()), "event": event}
        if visit is not None:
            told |= {"request": visit.id, "address": visit.address}
        told |= {name: value for name, value in facts.items() if value is not None}
        self._lines.add(scrubbed(json.dumps(told, default=str)).encode("ascii", "replace") + b"\n")


@dataclass(eq=False)
class _RotatingFile:
    """A file that lines are added to by many processes, and that is moved away when it has grown.

    It is opened by its name for every line, so that nobody need notice that somebody else moved it away.
    """

    _file: Path
    _most: int  # bytes
    _kept: int
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _torn: bool = False  # the disk was full in the middle of a line
    _complained: float = -COMPLAIN_SECONDS

    def add(self, line: bytes) -> None:
        with self._lock:
            try:
                self._add(line)
            except OSError as error:
                if time.monotonic() - self._complained >= COMPLAIN_SECONDS:
                    self._complained = time.monotonic()
                    log.error("the audit log cannot be written: %s", error.strerror or error)

    def _add(self, line: bytes) -> None:
        if self._size() >= self._most:
            self._move_away()
        handle = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            whole = b"\n" + line if self._torn else line
            self._torn = os.write(handle, whole) < len(whole)
        finally:
            os.close(handle)
        if self._torn:
            raise OSError("the disk took only a part of a line")

    def _size(self) -> int:
        try:
            return self._file.stat().st_size
        except FileNotFoundError:
            self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            return 0

    def _move_away(self) -> None:
        """Whoever waited for the lock finds a small file under the name by then."""
        with locked_file(self._file):
            if self._size() >= self._most:
                for number in range(self._kept, 0, -1):
                    older = self._file.with_name(f"{self._file.name}.{number - 1}") if number > 1 else self._file
                    with contextlib.suppress(FileNotFoundError):
                        os.replace(older, self._file.with_name(f"{self._file.name}.{number}"))
