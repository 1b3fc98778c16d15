"""The lock of a bucket's notes on one machine: of one note, or of all. Threads in the order they asked, processes by
locked files in the state directory."""

import hashlib
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from notewright.errors import Busy
from notewright.locks import EXCLUSIVE, SHARED, ThreadQueue, locked_file

SLOTS = 4_096  # files for the locks of single notes: two notes in one slot wait for each other


class NotesLock:
    """Whoever asks waits for those who asked before and want the same note, or all."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._threads = ThreadQueue()

    @contextmanager
    def held(self, path: str | None, timeout: float) -> Iterator[None]:
        until = time.monotonic() + timeout
        files = [("notes", EXCLUSIVE if path is None else SHARED)]
        if path is not None:
            slot = int.from_bytes(hashlib.sha256(path.encode()).digest()[:4], "big") % SLOTS
            files.append((f"note-{slot:03x}", EXCLUSIVE))
        with ExitStack() as held:
            try:
                held.callback(self._threads.leave, self._threads.enter(timeout, path))
                for name, kind in files:
                    left = max(until - time.monotonic(), 0.0)
                    held.enter_context(locked_file(self._folder / name, kind, left))
            except BlockingIOError:
                raise Busy("another change is being made", hint="try again in a moment") from None
            yield
