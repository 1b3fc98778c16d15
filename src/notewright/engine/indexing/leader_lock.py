"""Of all processes that serve the same notes one is elected to follow changes made from outside: whoever holds a lock.

Once it has caught up it holds a second one, which the others try. Nothing is written: what a file says outlives who
wrote it, and a lock does not.
"""

import time
from contextlib import suppress

from notewright.locks import Coordination, Lock

_SHOW_SECONDS = 1.0  # others hold the second lock for an instant when they try it


class LeaderLock:
    """One process's part in it. Locks that others no longer find (their files were deleted) are taken anew."""

    def __init__(self, locks: Coordination) -> None:
        self._locks = locks
        self._held: Lock | None = None
        self._shown: Lock | None = None

    @property
    def won(self) -> bool:
        return self._held is not None

    def stand(self) -> bool:
        """Be the one, still or from now on. False where somebody else is, or no lock can be had."""
        if self.holds():
            return True
        self.resign()
        with suppress(OSError):
            self._held = self._locks.try_lock("follower")
        return self.won

    def holds(self) -> bool:
        """The locks we hold are those that everybody else finds."""
        held = self._held is not None and self._held.is_current()
        return held and (self._shown is None or self._shown.is_current())

    def say_fresh(self) -> None:
        """From now on the others may rely on us."""
        until = time.monotonic() + _SHOW_SECONDS
        while self.won and self._shown is None and time.monotonic() < until:
            with suppress(OSError):  # then they wait for themselves
                self._shown = self._locks.try_lock("fresh")
            if self._shown is None:
                time.sleep(0.002)

    def others_are_fresh(self) -> bool:
        """Another process follows, and has caught up since it began."""
        try:
            lock = self._locks.try_lock("fresh", shared=True)
        except OSError:
            return False
        if lock is not None:
            lock.release()
        return lock is None

    def resign(self) -> None:
        for lock in (self._shown, self._held):
            if lock is not None:
                lock.release()
        self._held = self._shown = None
