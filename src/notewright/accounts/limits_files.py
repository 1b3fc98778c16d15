"""Rate limits and sessions of several processes, in one folder of small files.

A caller is a file of call times, eight bytes each. A session is a folder whose modification time is its last use: its
marks are empty files in it, made by the process that came first, and each stored digest is a file. Nothing is synced to
disk, and a power cut may take all of it. Where the folder cannot be used each process counts for itself.
"""

import contextlib
import functools
import hashlib
import logging
import os
import random
import shutil
import time
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from notewright.accounts.limits import ENDED, MAX_REMEMBERED, MAX_STORED_DIGESTS, RateLimits, Window, add_call
from notewright.locks import EXCLUSIVE, locked_file

log = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")

SWEEP_CALLS = 256  # of this process between two checks how many callers and sessions are remembered
LOCK_SECONDS = 0.25  # to wait while another process counts a call of the same caller, which takes microseconds
DIGEST_BYTES = 32  # of a stored SHA-256


def _or_in_memory(
    method: Callable[Concatenate["FileRateLimits", P], T],
) -> Callable[Concatenate["FileRateLimits", P], T]:
    """Decorate a method that uses the shared folder: where that fails, the base class answers from memory."""

    @functools.wraps(method)
    def call(limits: "FileRateLimits", /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            found = method(limits, *args, **kwargs)
        except OSError as error:
            if not limits.is_failing:
                log.warning("calls are counted by each worker for itself: %s", error)
            limits.is_failing = True
            in_memory: Callable[P, T] = getattr(super(FileRateLimits, limits), method.__name__)
            return in_memory(*args, **kwargs)
        limits.is_failing = False
        return found

    return call


class FileRateLimits(RateLimits):
    """Rate limits and sessions that all processes with the same `folder` share."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time, most: int = MAX_REMEMBERED) -> None:
        super().__init__(clock, most)
        self.folder = folder
        self.is_failing = False
        self._counted = random.randrange(SWEEP_CALLS)  # so that not all processes sweep at once
        self._callers, self._shared = folder / "calls", folder / "sessions"
        with contextlib.suppress(OSError):  # the first call logs it
            for place in (self._callers, self._shared):
                place.mkdir(parents=True, exist_ok=True, mode=0o700)

    @_or_in_memory
    def count(self, caller: str, windows: Sequence[Window], *, peek: bool = False) -> None:
        with locked_file(self._callers / _digest(caller), EXCLUSIVE, LOCK_SECONDS) as handle:
            made, size = array("d"), os.fstat(handle).st_size
            made.frombytes(os.pread(handle, size - size % made.itemsize, 0))
            add_call(made, windows, self._clock(), peek=peek)
            os.pwrite(handle, made.tobytes(), 0)
            os.ftruncate(handle, len(made) * made.itemsize)
        self._counted += 1
        if self._counted % SWEEP_CALLS == 0:
            _remove_longest_unused(self._callers, self._most // 2)  # a page of memory each
            _remove_longest_unused(self._shared, self._most)

    @_or_in_memory
    def touch(self, session: str, *, idle: float, age: float = 0.0) -> bool:
        folder, now = self._shared / _digest(session), self._clock()
        try:
            used = os.stat(folder).st_mtime
        except FileNotFoundError:
            used = now - age
        if now - used > idle or (folder / _digest(ENDED)).exists():
            return False
        folder.mkdir(mode=0o700, exist_ok=True)
        os.utime(folder, (now, now))
        return True

    @_or_in_memory
    def mark_once(self, session: str, what: str) -> bool:
        try:
            os.close(self._open(session, _digest(what), os.O_EXCL))
        except FileExistsError:
            return False
        return True

    @_or_in_memory
    def is_marked(self, session: str, what: str) -> bool:
        return (self._shared / _digest(session) / _digest(what)).exists()

    @_or_in_memory
    def store_digest(self, session: str, what: str, digest: str) -> None:
        handle = self._open(_digests_of(session), _digest(what), os.O_WRONLY)
        try:
            is_new = os.fstat(handle).st_size == 0
            os.pwrite(handle, bytes.fromhex(digest).ljust(DIGEST_BYTES, b"\0"), 0)
            os.utime(handle, ns=(time.time_ns(),) * 2)  # the system's own times are too coarse to tell which is older
        finally:
            os.close(handle)
        if is_new:
            _remove_longest_unused(self._shared / _digest(_digests_of(session)), MAX_STORED_DIGESTS)

    @_or_in_memory
    def stored_digest(self, session: str, what: str) -> str | None:
        try:
            found = (self._shared / _digest(_digests_of(session)) / _digest(what)).read_bytes()
        except FileNotFoundError:
            return None
        return (found.hex() if any(found) else "") if found else None

    @_or_in_memory
    def forget_session(self, session: str) -> None:
        for name in (session, _digests_of(session)):
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(self._shared / _digest(name))

    def _open(self, session: str, name: str, flags: int = 0) -> int:
        """Open or make a file of a session, which counts as a use of it."""
        folder, now = self._shared / _digest(session), self._clock()
        folder.mkdir(mode=0o700, exist_ok=True)
        handle = os.open(folder / name, flags | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.utime(folder, (now, now))
        return handle


def _digests_of(session: str) -> str:
    """The folder name of a session's digests, apart from its marks: those are never removed for newer ones."""
    return f"notes of {session}"


def _digest(name: str) -> str:
    """The file name for a caller or session: names of people and ids of sessions are not written to disk."""
    return hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _remove_longest_unused(folder: Path, most: int) -> None:
    """Keep the number of files or folders within its bound; beyond it a quarter is removed."""
    names = os.listdir(folder)
    if len(names) <= most:
        return

    def last_used(name: str) -> int:
        with contextlib.suppress(OSError):
            return os.stat(folder / name).st_mtime_ns
        return 0

    names.sort(key=last_used)
    for path in (folder / name for name in names[: len(names) - most * 3 // 4]):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
