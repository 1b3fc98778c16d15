"""The lock of a bucket's notes on one machine: of one note, or of all. Threads in the order they asked, processes by
locked files in the state directory."""

import hashlib
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from notewright.errors import Busy
from notewright.locks import EXCLUSIVE, SHARED, locked_file

SLOTS = 4_096  # files for the locks of single notes: two notes in one slot wait for each other


@dataclass(eq=False)
class _Ticket:
    path: str | None

    def excludes(self, other: "_Ticket") -> bool:
        return self.path is None or other.path is None or self.path == other.path


class NotesLock:
    """Whoever asks waits for those who asked before and want the same note, or all."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._changed = threading.Condition()
        self._queue: list[_Ticket] = []  # holders and waiting ones, in the order they came

    @contextmanager
    def held(self, path: str | None, timeout: float) -> Iterator[None]:
        until = time.monotonic() + timeout
        with self._turn(_Ticket(path), timeout), ExitStack() as files:
            left = max(until - time.monotonic(), 0.0)
            try:
                kind = EXCLUSIVE if path is None else SHARED
                files.enter_context(locked_file(self._folder / "notes", kind, left))
                if path is not None:
                    slot = int.from_bytes(hashlib.sha256(path.encode()).digest()[:4], "big") % SLOTS
                    left = max(until - time.monotonic(), 0.0)
                    files.enter_context(locked_file(self._folder / f"note-{slot:03x}", EXCLUSIVE, left))
            except BlockingIOError:
                raise _busy() from None
            yield

    @contextmanager
    def _turn(self, mine: _Ticket, timeout: float) -> Iterator[None]:
        with self._changed:
            self._queue.append(mine)
        try:
            with self._changed:
                if not self._changed.wait_for(lambda: self._is_next(mine), timeout):
                    raise _busy()
            yield
        finally:
            with self._changed:
                self._queue.remove(mine)
                self._changed.notify_all()

    def _is_next(self, mine: _Ticket) -> bool:
        return not any(other.excludes(mine) for other in self._queue[: self._queue.index(mine)])


def _busy() -> Busy:
    return Busy("another change is being made", hint="try again in a moment")
