"""The audit log: who changed what, who was refused, who signed in, and what the owner did. One JSON object a line.

It is the owner's: it names people and paths, never the text of a note or a secret. Every line is one write at the end
of the file, so that several processes share one; the file is rotated when it has grown. A line that cannot be written
is reported in the log and fails no call.
"""

import contextlib
import json
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from notewright.accounts.limits import RateLimits, Window
from notewright.engine.workspace import Workspace
from notewright.errors import Limited
from notewright.ledger.base import Change
from notewright.locks import locked_file
from notewright.server.ops.logs import rfc3339, scrub_secrets
from notewright.server.request_context import CURRENT_REQUEST, RequestContext

log = logging.getLogger(__name__)

MAX_FILE_BYTES = 50_000_000
MAX_OLD_FILES = 5
MAX_PATHS = 100  # named in one line
MAX_REMEMBERED = 4096  # visitors, and addresses that are refused
REFUSALS_PER_MINUTE = 20  # of one address for one reason; more are only counted
ALL_REFUSALS_PER_MINUTE = 300  # so that a flood does not push everything else out of the file
COMPLAIN_SECONDS = 60.0  # between two errors in the log about a file that cannot be written
_EACH = (Window(REFUSALS_PER_MINUTE, 60.0, "minute"),)
_ALL = (Window(ALL_REFUSALS_PER_MINUTE, 60.0, "minute"),)


def audit_file(setting: str | None, state: str | Path) -> Path | None:
    """The file that the setting `audit_log` names; None if it is off."""
    if setting is None:
        return Path(state) / "audit.jsonl"
    return None if setting == "off" else Path(setting).expanduser()


class AuditLog:
    """Writes the audit log. Any thread may call."""

    def __init__(
        self,
        file: Path | None,
        *,
        most_bytes: int = MAX_FILE_BYTES,
        kept: int = MAX_OLD_FILES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._clock = clock
        self._file = None if file is None else _RotatingFile(file, most_bytes, kept)
        self._seen = RateLimits(clock, MAX_REMEMBERED)
        self._lock = threading.Lock()
        self._unwritten: Counter[str] = Counter()

    def record_change(self, ws: Workspace, change: Change) -> None:
        """Record a change set."""
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
            paths=[str(step.path) for step in change.steps[:MAX_PATHS]],
            undoes=list(change.undoes) or None,
        )

    def record_refusal(self, context: RequestContext, reason: str, status: int | None = None) -> None:
        """Record a refused request or call. Of very many only some are written, with the number of the others."""
        if self._file is None:
            return
        key = f"{reason} {context.address}"
        with self._lock:
            try:
                self._seen.count(key, _EACH)
                self._seen.count("all", _ALL)
            except Limited:
                if len(self._unwritten) >= MAX_REMEMBERED:
                    self._unwritten.clear()
                self._unwritten[key] += 1
                return
            unwritten = self._unwritten.pop(key, None)
        facts = {"user": context.user, "surface": context.surface, "tool": context.tool}
        facts = {name: value for name, value in facts.items() if value}
        self._write("refused", context, reason=reason, status=status, **facts, unwritten=unwritten)

    def record_visitor(self, context: RequestContext) -> None:
        """Record the first request of a known user from an address."""
        if not context.user or context.via == "local":
            return
        if self._seen.mark_once(f"{context.via} {context.address} {context.user}", "came"):
            self._write("sign_in", context, user=context.user, via=context.via)

    def record_sign_in(self, user: str, *, failed: bool = False) -> None:
        """Record a sign-in on the page, or an attempt."""
        self._write("sign_in_failed" if failed else "sign_in", user=user, via="page")

    def record_admin(self, action: str, *, user: str = "", **facts: Any) -> None:
        """Record an action of the owner: `token_added`, `workspace_changed`, `backup`, … `facts` hold no secrets."""
        self._write("admin", action=action, user=user, **facts)

    def _write(self, event: str, context: RequestContext | None = None, **facts: Any) -> None:
        if self._file is None:
            return
        context = context or CURRENT_REQUEST.get()
        members: dict[str, Any] = {"time": rfc3339(self._clock()), "event": event}
        if context is not None:
            members |= {"request": context.id, "address": context.address}
        members |= {name: value for name, value in facts.items() if value is not None}
        self._file.add(scrub_secrets(json.dumps(members, default=str)).encode("ascii", "replace") + b"\n")


class _RotatingFile:
    """A file to which many processes add lines, and which is rotated when it has grown.

    It is opened by its name for every line, so that no process has to notice that another rotated it.
    """

    def __init__(self, file: Path, most_bytes: int, kept: int) -> None:
        self._file, self._most_bytes, self._kept = file, most_bytes, kept
        self._lock = threading.Lock()
        self._torn = False  # the disk was full in the middle of a line
        self._complained_at = -COMPLAIN_SECONDS

    def add(self, line: bytes) -> None:
        with self._lock:
            try:
                if self._size() >= self._most_bytes:
                    self._rotate()
                handle = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
                try:
                    whole = b"\n" + line if self._torn else line
                    self._torn = os.write(handle, whole) < len(whole)
                finally:
                    os.close(handle)
                if self._torn:
                    raise OSError("the disk took only a part of a line")
            except OSError as error:
                if time.monotonic() - self._complained_at >= COMPLAIN_SECONDS:
                    self._complained_at = time.monotonic()
                    log.error("the audit log cannot be written: %s", error.strerror or error)

    def _size(self) -> int:
        try:
            return self._file.stat().st_size
        except FileNotFoundError:
            self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            return 0

    def _rotate(self) -> None:
        with locked_file(self._file):
            if self._size() < self._most_bytes:  # another process did it while this one waited for the lock
                return
            for number in range(self._kept, 0, -1):
                older = self._file.with_name(f"{self._file.name}.{number - 1}") if number > 1 else self._file
                with contextlib.suppress(FileNotFoundError):
                    os.replace(older, self._file.with_name(f"{self._file.name}.{number}"))
