"""Advisory locks between processes: `flock`, which the kernel releases when a process dies, given in turn.

`flock` knows no order: whoever asks in the instant after a release gets it, so that a process with a stream of short
changes keeps all others out. Here whoever has to wait takes a ticket, and nobody tries for the lock while there is an
earlier one. A ticket is a shared lock on one byte of the same file, at the offset of the time it was taken: it writes
nothing, needs no second file, reaches other users and containers as the lock itself does, and ends with its process.
Unlike an exclusive one it can be taken on a directory. Where a system has no such locks (`F_OFD_SETLK`), waiting is
polling without an order.
"""

import fcntl
import struct
import threading
import time
from collections import deque

SHARED, EXCLUSIVE = fcntl.LOCK_SH, fcntl.LOCK_EX

_SHORTEST_S, _LONGEST_S = 0.0002, 0.004  # between two tries
_PAUSES = 40  # a pause is such a part of the time waited so far: little is lost between a release and the next try
_RENEWED_NS, _EXPIRED_NS = 1_000_000_000, 2_000_000_000  # a process that was stopped while it waited is passed over

_SET, _GET = getattr(fcntl, "F_OFD_SETLK", None), getattr(fcntl, "F_OFD_GETLK", None)
_RANGE = struct.Struct("hhqqi4x")  # struct flock: type, whence, start, length, process


def lock_in_turn(handle: int, kind: int, until: float) -> None:
    """Lock an open file or directory, after those who asked before; BlockingIOError when `until` (monotonic) is past.

    Unlocked by closing `handle`. Any other OSError: this file system has no locks.
    """
    began, ticket = time.monotonic_ns(), 0
    while True:
        now = time.monotonic_ns()
        if not _waiting_before(handle, ticket or now):
            try:
                fcntl.flock(handle, kind | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                pass
        if now - ticket > _RENEWED_NS:
            _take_ticket(handle, now)
            ticket = now
        if now > until * 1e9:
            _drop_ticket(handle)
            raise BlockingIOError("locked by somebody else")
        time.sleep(min(max(_SHORTEST_S, (now - began) / 1e9 / _PAUSES), _LONGEST_S))
    if ticket:
        _drop_ticket(handle)


def _waiting_before(handle: int, ticket: int) -> bool:
    """Somebody else has an earlier ticket, and not one so old that its owner must have been stopped."""
    if _GET is None:
        return False
    start = max(ticket - _EXPIRED_NS, 0)
    asked = _RANGE.pack(fcntl.F_WRLCK, 0, start, ticket - start, 0)
    try:
        found: int = _RANGE.unpack(fcntl.fcntl(handle, _GET, asked))[0]
    except OSError:
        return False
    return found != fcntl.F_UNLCK


def _take_ticket(handle: int, ticket: int) -> None:
    _drop_ticket(handle)
    _set(handle, fcntl.F_RDLCK, ticket, 1)


def _drop_ticket(handle: int) -> None:
    _set(handle, fcntl.F_UNLCK, 0, 0)


def _set(handle: int, kind: int, start: int, length: int) -> None:
    if _SET is not None:
        try:
            fcntl.fcntl(handle, _SET, _RANGE.pack(kind, 0, start, length, 0))
        except OSError:
            pass  # no such locks here: the order is lost, the lock is not


class ThreadQueue:
    """A lock between threads that they get in the order they asked."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._held = False
        self._waiting: deque[threading.Lock] = deque()

    def acquire(self, timeout: float) -> bool:
        """False when `timeout` seconds have passed."""
        with self._mutex:
            if not self._held:
                self._held = True
                return True
            mine = threading.Lock()
            mine.acquire()
            self._waiting.append(mine)
        try:
            given = mine.acquire(timeout=max(timeout, 0))
        except BaseException:
            if not self._left(mine):
                self.release()
            raise
        return given or not self._left(mine)

    def _left(self, mine: threading.Lock) -> bool:
        """No longer waiting; False if the lock was given in this moment."""
        with self._mutex:
            if mine in self._waiting:
                self._waiting.remove(mine)
                return True
            return False

    def release(self) -> None:
        with self._mutex:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._held = False
