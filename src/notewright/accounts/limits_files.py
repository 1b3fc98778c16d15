"""The traffic of several processes in one folder of small files.

A caller is a file of call times, eight bytes each. A session is a folder, changed when the session was used last: that
it ended and what was said once are empty files in it, made by whoever was first, and what is noted is a file for each
name. Nothing waits for the disk, and a power cut may take all of it. Where the folder cannot be used each process
counts for itself.
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

from notewright.accounts.limits import MAX_NOTED, MAX_REMEMBERED, RateLimits, Window, add_call
from notewright.locks import EXCLUSIVE, locked_file

log = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")

SWEEP = 256  # calls of this process between two looks at how many callers and sessions are remembered
WAIT_SECONDS = 0.25  # for another process that counts a call of the same caller, which takes microseconds
DIGEST_BYTES = 32  # of what is noted


def _or_alone(method: Callable[Concatenate["FileRateLimits", P], T]) -> Callable[Concatenate["FileRateLimits", P], T]:
    """In the folder that all share; where that cannot be used, by what this process knows for itself."""

    @functools.wraps(method)
    def call(limits: "FileRateLimits", /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            found = method(limits, *args, **kwargs)
        except OSError as error:
            if not limits.troubled:
                log.warning("calls are counted by each worker for itself: %s", error)
            limits.troubled = True
            alone: Callable[P, T] = getattr(super(FileRateLimits, limits), method.__name__)
            return alone(*args, **kwargs)
        limits.troubled = False
        return found

    return call


class FileRateLimits(RateLimits):
    """Counts in `folder`, together with all processes that have one on the same folder."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time, most: int = MAX_REMEMBERED) -> None:
        super().__init__(clock, most)
        self.folder = folder
        self.troubled = False
        self._counted = random.randrange(SWEEP)  # so that not all processes sweep at once
        self._callers, self._shared = folder / "calls", folder / "sessions"
        with contextlib.suppress(OSError):  # said by the first call
            for place in (self._callers, self._shared):
                place.mkdir(parents=True, exist_ok=True, mode=0o700)

    @_or_alone
    def count(self, caller: str, windows: Sequence[Window], *, peek: bool = False) -> None:
        with locked_file(self._callers / _digest(caller), EXCLUSIVE, WAIT_SECONDS) as handle:
            made, size = array("d"), os.fstat(handle).st_size
            made.frombytes(os.pread(handle, size - size % made.itemsize, 0))
            add_call(made, windows, self._clock(), peek=peek)
            os.pwrite(handle, made.tobytes(), 0)
            os.ftruncate(handle, len(made) * made.itemsize)
        self._counted += 1
        if self._counted % SWEEP == 0:
            _drop_longest_unused(self._callers, self._most // 2)  # a page of memory each
            _drop_longest_unused(self._shared, self._most)

    @_or_alone
    def touch(self, session: str, *, idle: float, age: float = 0.0) -> bool:
        folder, now = self._shared / _digest(session), self._clock()
        try:
            used = os.stat(folder).st_mtime
        except FileNotFoundError:
            used = now - age
        if now - used > idle or (folder / "ended").exists():
            return False
        folder.mkdir(mode=0o700, exist_ok=True)
        os.utime(folder, (now, now))
        return True

    @_or_alone
    def once(self, session: str, what: str) -> bool:
        try:
            os.close(self._open(session, _digest(what), os.O_EXCL))
        except FileExistsError:
            return False
        return True

    @_or_alone
    def marked(self, session: str, what: str) -> bool:
        return (self._shared / _digest(session) / _digest(what)).exists()

    @_or_alone
    def note(self, session: str, what: str, digest: str) -> None:
        handle = self._open(_notes(session), _digest(what), os.O_WRONLY)
        try:
            is_new = os.fstat(handle).st_size == 0
            os.pwrite(handle, bytes.fromhex(digest).ljust(DIGEST_BYTES, b"\0"), 0)
            os.utime(handle, ns=(time.time_ns(),) * 2)  # the system's own times are too coarse to tell which is older
        finally:
            os.close(handle)
        if is_new:
            _drop_longest_unused(self._shared / _digest(_notes(session)), MAX_NOTED)

    @_or_alone
    def noted(self, session: str, what: str) -> str | None:
        try:
            found = (self._shared / _digest(_notes(session)) / _digest(what)).read_bytes()
        except FileNotFoundError:
            return None
        return (found.hex() if any(found) else "") if found else None

    @_or_alone
    def end(self, session: str) -> None:
        os.close(self._open(session, "ended"))

    @_or_alone
    def forget(self, session: str) -> None:
        for name in (session, _notes(session)):
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(self._shared / _digest(name))

    def _open(self, session: str, name: str, flags: int = 0) -> int:
        """A file of a session, which is made if it is not there, and used with that."""
        folder, now = self._shared / _digest(session), self._clock()
        folder.mkdir(mode=0o700, exist_ok=True)
        handle = os.open(folder / name, flags | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.utime(folder, (now, now))
        return handle


def _notes(session: str) -> str:
    """What is noted in a session lies apart from its marks: of those none is ever dropped for a newer one."""
    return f"notes of {session}"


def _digest(name: str) -> str:
    """Names of people and ids of sessions are not written down."""
    return hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _drop_longest_unused(folder: Path, most: int) -> None:
    """Keep the number of callers, sessions or notes within its bound; when it is passed a quarter goes."""
    names = os.listdir(folder)
    if len(names) <= most:
        return
    names.sort(key=lambda name: _last_used(folder / name))
    for kept in (folder / name for name in names[: len(names) - most * 3 // 4]):
        if kept.is_dir():
            shutil.rmtree(kept, ignore_errors=True)
        else:
            kept.unlink(missing_ok=True)


def _last_used(kept: Path) -> int:
    with contextlib.suppress(OSError):
        return os.stat(kept).st_mtime_ns
    return 0
