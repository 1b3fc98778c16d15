"""Fair advisory locks between processes: `flock`, which the kernel releases when a process dies, with a queue.

`flock` has no order: the process that asks in the instant after a release gets it, so that one with a stream of short
changes starves all others. Here a process that has to wait takes a ticket, and none tries for the lock while there is
an earlier ticket. A ticket is a shared lock on one byte of the same file, at the offset of the time it was taken: it
writes nothing, needs no second file, reaches other users and containers as the lock itself does, and ends with its
process. Unlike an exclusive lock it can be taken on a directory. Where a system has no such locks (`F_OFD_SETLK`),
waiting is polling without an order.
"""

import contextlib
import fcntl
import os
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

SHARED, EXCLUSIVE = fcntl.LOCK_SH, fcntl.LOCK_EX

MIN_POLL_SECONDS, MAX_POLL_SECONDS = 0.0002, 0.004  # between two tries
_POLL_FRACTION = 1 / 40  # of the time waited so far, so that a release is noticed soon
_TICKET_RENEWAL_NS, _TICKET_EXPIRY_NS = 1_000_000_000, 2_000_000_000  # a stopped process loses its place in the queue

_SET, _GET = getattr(fcntl, "F_OFD_SETLK", None), getattr(fcntl, "F_OFD_GETLK", None)
_RANGE = struct.Struct("hhqqi4x")  # struct flock: type, whence, start, length, process


def lock_file(
    path: Path | str, kind: int = EXCLUSIVE, timeout: float | None = None, flags: int = os.O_RDWR | os.O_CREAT
) -> int:
    """Open the file at this path and lock it until it is closed. The file is made if it is missing, its folder is not.

    Without a `timeout` it waits for ever; BlockingIOError when that many seconds have passed, at once for 0. Where the
    file was deleted or replaced while waiting, the one that has its name now is locked.
    """
    until = None if timeout is None else time.monotonic() + timeout
    while True:
        handle = os.open(path, flags | os.O_CLOEXEC, 0o600)
        try:
            if until is None or timeout == 0:
                fcntl.flock(handle, kind if until is None else kind | fcntl.LOCK_NB)
            else:
                lock_in_turn(handle, kind, until)
            if os.path.samestat(os.fstat(handle), os.stat(path)):
                return handle
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


@contextlib.contextmanager
def locked_file(path: Path, kind: int = EXCLUSIVE, timeout: float | None = None) -> Iterator[int]:
    """Hold `lock_file` for a block, which gets the open file."""
    handle = lock_file(path, kind, timeout)
    try:
        yield handle
    finally:
        os.close(handle)


class Lock(Protocol):
    """A lock that this process holds."""

    def is_current(self) -> bool:
        """Whether it is still the lock that others find under its name."""

    def release(self, *, last: bool = False) -> None:
        """Unlock. `last`: nobody will lock this name again, so its file can go."""


class Coordination(Protocol):
    """Locks by name among all processes that serve the same notes. A lock ends with its process: a dead one
    leaves nothing to clean up, and one that still holds a lock is slow, not dead. OSError where locks do not work."""

    def try_lock(self, name: str, *, shared: bool = False) -> Lock | None:
        """The lock, or None while another holder has it."""


class FileLocks:
    """Files in one folder, each locked by `flock`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def try_lock(self, name: str, *, shared: bool = False) -> "FileLock | None":
        path, kind = f"{self._folder}/{name}", SHARED if shared else EXCLUSIVE
        try:
            return FileLock(path, lock_file(path, kind, timeout=0))
        except FileNotFoundError:
            self._folder.mkdir(parents=True, exist_ok=True)
            return self.try_lock(name, shared=shared)
        except BlockingIOError:
            return None


class FileLock:
    """Held until it is released or its process ends. Its file may be deleted at any moment: then it is not current."""

    def __init__(self, path: str, handle: int) -> None:
        self._path, self._handle = path, handle

    def is_current(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._handle), os.stat(self._path))
        except OSError:
            return False

    def release(self, *, last: bool = False) -> None:
        if last:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)
        os.close(self._handle)


def lock_in_turn(handle: int, kind: int, until: float) -> None:
    """Lock an open file or directory, after those that asked before; BlockingIOError when `until` (monotonic) is past.

    Unlocked by closing `handle`. Any other OSError: this file system has no locks.
    """
    start_ns, ticket = time.monotonic_ns(), 0
    while True:
        now = time.monotonic_ns()
        if not _has_earlier_ticket(handle, ticket or now):
            try:
                fcntl.flock(handle, kind | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                pass
        if now - ticket > _TICKET_RENEWAL_NS:
            _take_ticket(handle, now)
            ticket = now
        if now > until * 1e9:
            _drop_ticket(handle)
            raise BlockingIOError("locked by somebody else")
        time.sleep(min(max(MIN_POLL_SECONDS, (now - start_ns) / 1e9 * _POLL_FRACTION), MAX_POLL_SECONDS))
    if ticket:
        _drop_ticket(handle)


def _has_earlier_ticket(handle: int, ticket: int) -> bool:
    """Whether another process has an earlier ticket; one so old that its owner must be stopped does not count."""
    if _GET is None:
        return False
    start = max(ticket - _TICKET_EXPIRY_NS, 0)
    query = _RANGE.pack(fcntl.F_WRLCK, 0, start, ticket - start, 0)
    try:
        found: int = _RANGE.unpack(fcntl.fcntl(handle, _GET, query))[0]
    except OSError:
        return False
    return found != fcntl.F_UNLCK


def _take_ticket(handle: int, ticket: int) -> None:
    _drop_ticket(handle)
    _set_range_lock(handle, fcntl.F_RDLCK, ticket, 1)


def _drop_ticket(handle: int) -> None:
    _set_range_lock(handle, fcntl.F_UNLCK, 0, 0)


def _set_range_lock(handle: int, kind: int, start: int, length: int) -> None:
    if _SET is not None:
        try:
            fcntl.fcntl(handle, _SET, _RANGE.pack(kind, 0, start, length, 0))
        except OSError:
            pass  # no such locks on this file system: only the order is lost, not the lock


class ThreadTurn:
    """One thread's place in the queue. `granted` is set when it is its turn; None where it need not wait."""

    def __init__(self, name: str | None) -> None:
        self.name = name
        self.granted: threading.Event | None = None

    def excludes(self, other: "ThreadTurn") -> bool:
        return self.name is None or other.name is None or self.name == other.name


class ThreadQueue:
    """A fair lock between threads, in the order they asked: of one name, or (None) of all names."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._queue: list[ThreadTurn] = []  # holders and waiting threads, in the order they asked

    def acquire(self, timeout: float, name: str | None = None) -> ThreadTurn:
        """Wait for a turn, to be released; BlockingIOError when `timeout` seconds have passed."""
        mine = ThreadTurn(name)
        with self._mutex:
            if self._queue and any(other.excludes(mine) for other in self._queue):
                mine.granted = threading.Event()
            self._queue.append(mine)
        try:
            if mine.granted is not None and not mine.granted.wait(timeout):
                raise BlockingIOError("locked by another thread")
        except BaseException:
            self.release(mine)
            raise
        return mine

    def release(self, mine: ThreadTurn) -> None:
        """End a turn, and wake all waiting threads that no earlier one excludes."""
        with self._mutex:
            self._queue.remove(mine)
            for place, turn in enumerate(self._queue):
                if turn.granted is not None and not any(other.excludes(turn) for other in self._queue[:place]):
                    turn.granted.set()
