"""Leader election: of all processes that serve the same notes, the one that holds a lock follows outside changes.

Once it has caught up it holds a second lock, which the others try. Nothing is written to a file: that would outlive its
process, and a lock does not.
"""

import time
from contextlib import suppress

from notewright.locks import Coordination, Lock

_ANNOUNCE_SECONDS = 1.0  # to try the second lock for: others hold it for an instant when they try it


class LeaderLock:
    """One process's part in the election. Locks that others no longer find (their files were deleted) are taken
    anew."""

    def __init__(self, locks: Coordination) -> None:
        self._locks = locks
        self._leader: Lock | None = None
        self._fresh: Lock | None = None

    @property
    def is_leader(self) -> bool:
        return self._leader is not None

    def try_lead(self) -> bool:
        """Become the leader or stay it. False where another process is, or no lock can be had."""
        if self.is_held():
            return True
        self.release()
        with suppress(OSError):
            self._leader = self._locks.try_lock("follower")
        return self.is_leader

    def is_held(self) -> bool:
        """Whether the locks we hold are those that others find."""
        held = self._leader is not None and self._leader.is_current()
        return held and (self._fresh is None or self._fresh.is_current())

    def announce_fresh(self) -> None:
        """Let the other processes rely on the index from now on."""
        until = time.monotonic() + _ANNOUNCE_SECONDS
        while self.is_leader and self._fresh is None and time.monotonic() < until:
            with suppress(OSError):  # then the others wait for themselves
                self._fresh = self._locks.try_lock("fresh")
            if self._fresh is None:
                time.sleep(0.002)

    def is_other_fresh(self) -> bool:
        """Whether another process leads, and has caught up since it began."""
        try:
            lock = self._locks.try_lock("fresh", shared=True)
        except OSError:
            return False
        if lock is not None:
            lock.release()
        return lock is None

    def release(self) -> None:
        for lock in (self._fresh, self._leader):
            if lock is not None:
                lock.release()
        self._leader = self._fresh = None
