"""The traffic of several processes in one folder of small files.

A caller is a file of call times, eight bytes each, so that the call before which a window began is found by one read,
however many calls the window holds. A session is a folder of empty files: when it was used, that it ended, and what was
said once, which is whoever could create the file; one file holds what is noted in it, the newest at its end. Nothing
waits for the disk, and a power cut may take all of it. Where the folder cannot be used each process counts for itself.

The folder is in memory where the system has a place for that (`/dev/shm`).
"""

import contextlib
import functools
import hashlib
import logging
import os
import random
import shutil
import stat
import struct
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from notewright.accounts.limits import MAX_NOTED, MAX_REMEMBERED, MemoryRateLimits, Window, limited
from notewright.errors import Unavailable
from notewright.locks import EXCLUSIVE, SHARED, lock_file, locked_file

log = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")

MEMORY = Path("/dev/shm")
SWEEP = 256  # calls of this process between two looks at how many callers and sessions are remembered
AHEAD_SECONDS = 1.0  # a call that lies further in the future was counted before somebody set the clock back
WAIT_SECONDS = 0.25  # for another process that counts a call of the same caller, which takes microseconds
_TIME = struct.Struct("d")
_NOTE = struct.Struct("16s32s")  # the digest of a name, and the one that is noted under it


def _or_alone(method: Callable[Concatenate["FileRateLimits", P], T]) -> Callable[Concatenate["FileRateLimits", P], T]:
    """On the folder that all share; where that cannot be used, by what this process knows for itself."""

    @functools.wraps(method)
    def call(limits: "FileRateLimits", /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            found = method(limits, *args, **kwargs)
        except OSError as error:
            if not limits.troubled:
                log.warning("calls are counted by each worker for itself: %s", error)
            limits.troubled = True
            alone: Callable[P, T] = getattr(limits.alone, method.__name__)
            return alone(*args, **kwargs)
        limits.troubled = False
        return found

    return call


class FileRateLimits:
    """Counts in `folder`, together with all processes that have one on the same folder."""

    def __init__(
        self,
        folder: Path,
        clock: Callable[[], float] = time.time,
        most: int = MAX_REMEMBERED,
        present: int | None = None,
    ) -> None:
        """`present` is the open file by which the last one to leave knows that it is the last."""
        self.folder = folder
        self._present = present
        self._clock = clock
        self._most = most
        self.alone = MemoryRateLimits(clock, most)
        self.troubled = False
        self._counted = random.randrange(SWEEP)  # so that not all processes sweep at once
        self._calls, self._sessions = folder / "calls", folder / "sessions"
        try:
            for place in (self._calls, self._sessions):
                place.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            words = f"the call counts cannot be kept in {folder}: {error}"
            raise Unavailable(words, hint="look at the state directory") from error

    @classmethod
    def open(cls, state: Path) -> "FileRateLimits":
        """The traffic of all who share the state directory, which is made if it is not there."""
        for _ in range(10):
            with contextlib.suppress(OSError, Unavailable):  # or somebody is just tidying up there
                place = _in_memory(state)
                return cls(place, present=lock_file(place / "present", SHARED))
        return cls(state / "traffic")

    def close(self) -> None:
        """Whoever leaves last leaves nothing behind: memory is not to be filled with what nobody needs."""
        if self._present is None:
            return
        os.close(self._present)
        self._present = None
        with contextlib.suppress(OSError), locked_file(self.folder / "present", EXCLUSIVE, 0):
            shutil.rmtree(self._calls)
            shutil.rmtree(self._sessions)
            (self.folder / "present").unlink()
            self.folder.rmdir()

    @_or_alone
    def count(self, caller: str, windows: Sequence[Window]) -> None:
        with locked_file(self._calls / _digest(caller), EXCLUSIVE, WAIT_SECONDS) as handle:
            now, made = self._clock(), os.fstat(handle).st_size // _TIME.size
            longest = max(window.seconds for window in windows)
            if made and not now - longest < _call_time(handle, made - 1) <= now + AHEAD_SECONDS:
                os.ftruncate(handle, 0)
                made = 0
            for window in windows:
                if made >= window.calls and (began := _call_time(handle, made - window.calls)) > now - window.seconds:
                    raise limited(window, began + window.seconds - now)
            if made >= 2 * (needed := max(window.calls for window in windows)):
                os.pwrite(handle, os.pread(handle, needed * _TIME.size, (made - needed) * _TIME.size), 0)
                os.ftruncate(handle, needed * _TIME.size)
                made = needed
            os.pwrite(handle, _TIME.pack(now), made * _TIME.size)
        self._counted += 1
        if self._counted % SWEEP == 0:
            _drop_longest_unused(self._calls, self._most // 2)  # a page of memory each
            _drop_longest_unused(self._sessions, self._most)

    @_or_alone
    def touch(self, session: str, *, idle: float, age: float = 0.0) -> bool:
        folder, now = self._sessions / _digest(session), self._clock()
        try:
            used = os.stat(folder / "used").st_mtime
        except FileNotFoundError:
            used = now - age
        if now - used > idle or (folder / "ended").exists():
            return False
        _use(folder, now)
        return True

    @_or_alone
    def once(self, session: str, what: str) -> bool:
        folder = self._sessions / _digest(session)
        if not folder.exists():
            _use(folder, self._clock())
        return _create(folder / _digest(what))

    @_or_alone
    def marked(self, session: str, what: str) -> bool:
        return (self._sessions / _digest(session) / _digest(what)).exists()

    @_or_alone
    def note(self, session: str, what: str, digest: str) -> None:
        folder = self._sessions / _digest(session)
        if not folder.exists():
            _use(folder, self._clock())
        with locked_file(folder / "notes", EXCLUSIVE, WAIT_SECONDS) as handle:
            end = os.fstat(handle).st_size
            if end >= 2 * MAX_NOTED * _NOTE.size:
                notes = [*_NOTE.iter_unpack(os.pread(handle, end, 0))]
                last = sorted({key: place for place, (key, _) in enumerate(notes)}.values())[-MAX_NOTED:]
                kept = b"".join(_NOTE.pack(*notes[place]) for place in last)
                os.pwrite(handle, kept, 0)
                os.ftruncate(handle, end := len(kept))
            os.pwrite(handle, _NOTE.pack(bytes.fromhex(_digest(what)), bytes.fromhex(digest)), end)

    @_or_alone
    def noted(self, session: str, what: str) -> str | None:
        try:
            notes = (self._sessions / _digest(session) / "notes").read_bytes()
        except FileNotFoundError:
            return None
        key = bytes.fromhex(_digest(what))
        whole = len(notes) - len(notes) % _NOTE.size
        found = [value for name, value in _NOTE.iter_unpack(notes[:whole]) if name == key]
        return (found[-1].hex() if any(found[-1]) else "") if found else None

    @_or_alone
    def end(self, session: str) -> None:
        folder = self._sessions / _digest(session)
        _use(folder, self._clock())
        _create(folder / "ended")

    @_or_alone
    def forget(self, session: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self._sessions / _digest(session))


def _in_memory(state: Path) -> Path:
    """A folder of our own in memory, the same for everybody who shares `state`; OSError where there is none."""
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    known = state.stat()
    place = MEMORY / f"notewright-{os.geteuid()}-{known.st_dev:x}-{known.st_ino:x}"
    place.mkdir(mode=0o700, exist_ok=True)
    found = place.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise PermissionError(f"{place} is somebody else's")
    return place


def _digest(name: str) -> str:
    """Names of people and ids of sessions are not written down."""
    return hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _call_time(handle: int, number: int) -> float:
    return float(_TIME.unpack(os.pread(handle, _TIME.size, number * _TIME.size))[0])


def _create(file: Path) -> bool:
    """Whether it was not there before."""
    try:
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return False
    return True


def _use(folder: Path, now: float) -> None:
    used = folder / "used"
    if not used.exists():
        folder.mkdir(exist_ok=True, mode=0o700)
        _create(used)
    os.utime(used, (now, now))


def _drop_longest_unused(folder: Path, most: int) -> None:
    """Keep the number of callers or sessions within its bound; when it is passed a quarter goes."""
    names = os.listdir(folder)
    if len(names) <= most:
        return
    names.sort(key=lambda name: _last_used(folder / name))
    for kept in (folder / name for name in names[: len(names) - most * 3 // 4]):
        if kept.is_dir():
            shutil.rmtree(kept, ignore_errors=True)
        else:
            kept.unlink(missing_ok=True)


def _last_used(kept: Path) -> float:
    with contextlib.suppress(OSError):
        return os.stat(kept / "used" if kept.is_dir() else kept).st_mtime
    return 0.0
