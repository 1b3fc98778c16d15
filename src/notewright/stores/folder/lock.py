"""One change at a time among all threads and processes that use a folder.

The lock is `flock` on the root directory itself: it writes nothing, reaches other users and containers, and the kernel
releases it when a process dies. Between the threads of one store a queue stands before it, so that a process waits with
one ticket (`locks.py`) whatever the number of its threads.
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
_HELD = nullcontext()


class Alone:
    def __init__(self, root: Root) -> None:
        self._root = root
        self._threads = ThreadQueue()
        self._holder: int | None = None
        self._opened = -1
        self.is_shared = True  # False once the file system has said that it knows no locks

    @contextmanager
    def held(self, timeout: float) -> Iterator[None]:
        """Alone until left; Busy after `timeout` seconds of waiting."""
        until = time.monotonic() + timeout
        try:
            turn = self._threads.enter(timeout)
        except BlockingIOError:
            raise _busy() from None
        try:
            with self._root.entered() as root:  # nobody else has this descriptor: closing it is unlocking
                self._lock(root, until)
                self._opened, self._holder = root, threading.get_ident()
                try:
                    yield
                finally:
                    self._holder = None
        finally:
            self._threads.leave(turn)

    def joined(self, timeout: float = 10.0) -> AbstractContextManager[None]:
        """Alone, by the lock this thread already holds or by one for this while."""
        return _HELD if self._holder == threading.get_ident() else self.held(timeout)

    def root(self) -> int | None:
        """The root as this thread has it open while it holds the lock; None while it does not."""
        return self._opened if self._holder == threading.get_ident() else None

    def _lock(self, root: int, until: float) -> None:
        if not self.is_shared:
            return
        try:
            lock_in_turn(root, EXCLUSIVE, until)
        except BlockingIOError:
            raise _busy() from None
        except OSError as error:
            log.warning("this file system has no locks (%s): changes by other processes may collide", error)
            self.is_shared = False


def _busy() -> Busy:
    return Busy("another change is being made to these notes", hint="try again in a moment")
