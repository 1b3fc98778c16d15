"""The lock that lets one change at a time happen among all threads and processes that use a folder.

It is `flock` on the root directory itself: it writes nothing, reaches other users and containers, and the kernel
releases it when a process dies. The threads of one store queue for it first, so that a process waits with one ticket
(`locks.py`) whatever the number of its threads.
"""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from notewright.errors import Busy
from notewright.locks import EXCLUSIVE, ThreadQueue, lock_in_turn
from notewright.stores.folder.paths import Root

log = logging.getLogger(__name__)
_ALREADY_HELD = nullcontext()


class FolderLock:
    def __init__(self, root: Root) -> None:
        self._root = root
        self._threads = ThreadQueue()
        self._holder: int | None = None  # the thread that holds it
        self._opened = -1
        self.is_supported = True  # False once the file system has refused to lock

    @contextmanager
    def hold(self, timeout: float = 10.0) -> Iterator[None]:
        """Hold the lock for a block; Busy after `timeout` seconds of waiting."""
        deadline = time.monotonic() + timeout
        try:
            turn = self._threads.acquire(timeout)
        except BlockingIOError:
            raise _busy_error() from None
        try:
            with self._root.open_root() as root:  # only this thread has this descriptor: closing it unlocks
                if self.is_supported:
                    try:
                        lock_in_turn(root, EXCLUSIVE, deadline)
                    except BlockingIOError:
                        raise _busy_error() from None
                    except OSError as error:
                        log.warning("this file system has no locks (%s): changes by other processes may collide", error)
                        self.is_supported = False
                self._opened, self._holder = root, threading.get_ident()
                try:
                    yield
                finally:
                    self._holder = None
        finally:
            self._threads.release(turn)

    def ensure_held(self) -> AbstractContextManager[None]:
        """Hold it for a block, unless this thread holds it already."""
        return _ALREADY_HELD if self._holder == threading.get_ident() else self.hold()

    def held_root(self) -> int | None:
        """The root's descriptor while this thread holds the lock, else None."""
        return self._opened if self._holder == threading.get_ident() else None


def _busy_error() -> Busy:
    return Busy("another change is being made to these notes", hint="try again in a moment")
