"""What we lay beside a note while we change it: its name, its bytes, and when it may go.

A change lays its new bytes beside the note, swaps the two names and looks at what came out. What came out then stays
beside for a moment: an editor that had the note open may still write to it. Whatever such a file holds that is neither
what was seen nor what we wrote is somebody's work, and is put back or kept as a copy, never removed.

The name tells all of this to the next process, should this one die:

    .notewright-<where>.<pid>.<start>-<op>-<number>-<note>-<ours>-<seen>

`note` is a digest of the note's name; `ours` and `seen` begin the versions we write and replace. While the bytes are
still being laid `seen` is `new`: such a file holds nothing but ours.
"""

import errno
import fcntl
import functools
import hashlib
import itertools
import os
import re
import signal
import stat
import time
from collections.abc import Sequence
from dataclasses import dataclass

from notewright.disk_sync import Sync
from notewright.stores.base import OpId, Version, version_of
from notewright.stores.folder.paths import LAY, PREFIX, READ, Opened

CLOSED, UNKNOWN, OPEN = "closed", "unknown", "open"  # for writing, by any program; not every file system can say
NOTHING = "0" * 12  # the place of a version where there is none
_PIECE_BYTES = 1 << 16  # read at a time: a buffer is made for each
_STRANGER_S = 60.0  # what a process of another container or machine laid is left alone for so long
_NAME = re.compile(
    re.escape(PREFIX) + r"([0-9a-f]{6}\.[0-9a-f]+\.[0-9a-f]+)-([\w-]{1,40})-([0-9a-f]+)"
    r"-([0-9a-f]{12})-([0-9a-f]{12})-([0-9a-f]{12}|new)",
    re.ASCII,
)
_PLAIN = re.compile(r"[\w-]{1,40}", re.ASCII)
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class TempName:
    """What the name of a file laid beside a note says."""

    process: str
    op: str
    number: str
    note: str
    ours: str
    seen: str = "new"

    def __str__(self) -> str:
        return f"{PREFIX}{self.process}-{self.op}-{self.number}-{self.note}-{self.ours}-{self.seen}"

    @classmethod
    def parse(cls, name: str) -> "TempName | None":
        match = _NAME.fullmatch(name)
        return cls(*match.groups()) if match else None

    def seeing(self, version: Version) -> "TempName":
        return TempName(self.process, self.op, self.number, self.note, self.ours, version[:12])

    def holding(self, version: Version) -> "TempName":
        return TempName(self.process, self.op, self.number, self.note, version[:12], self.seen)


def temp_name(note: str, op: OpId, ours: Version = NOTHING) -> TempName:
    """A new name to lay bytes under."""
    plain = op if _PLAIN.fullmatch(op) else version_of(op.encode())[:16]
    return TempName(_process(os.getpid()), plain, f"{next(_numbers):x}", name_digest(note), ours[:12])


def name_digest(note: str) -> str:
    return hashlib.sha256(note.encode("utf-8", "surrogateescape")).hexdigest()[:12]


def is_living(laid: TempName, folder: int) -> bool:
    """The process that laid it may still come back to it."""
    where, pid, start = laid.process.split(".")
    if where != _where():
        return _age(folder, str(laid)) < _STRANGER_S
    if os.path.exists("/proc/self/stat"):
        return _start(int(pid, 16)) == start
    try:
        os.kill(int(pid, 16), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return _age(folder, str(laid)) < 60 * _STRANGER_S  # without start times a number may have been given out again


def write_temp(folder: int, name: str, data: bytes, like: int | None) -> Sync:
    """Write bytes under a new name, with mode, owner and attributes `like` those of an open file: durable when the sync
    that is begun here has ended well."""
    # A new note gets what umask and the folder say; one that replaces another is private until its mode is copied.
    laid = os.open(name, LAY, 0o666 if like is None else 0o600, dir_fd=folder)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(laid, left) :]
        if like is not None:
            copy_metadata(laid, like)
    except BaseException:
        os.close(laid)
        os.unlink(name, dir_fd=folder)
        raise
    try:
        return Sync(laid)
    except BaseException:
        os.unlink(name, dir_fd=folder)
        raise


def copy_metadata(laid: int, like: int) -> bool:
    """Give a file the mode, owner and extended attributes of another, as far as we may; True if something changed."""
    old, new = os.fstat(like), os.fstat(laid)
    given = _give(laid, old.st_uid, -1) if old.st_uid != new.st_uid else True
    if old.st_gid != new.st_gid:
        given = _give(laid, -1, old.st_gid) and given
    mode = stat.S_IMODE(old.st_mode) if given else old.st_mode & 0o777  # setuid is not for a file of somebody else's
    changed = (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid) or mode != stat.S_IMODE(new.st_mode)
    if changed:
        os.fchmod(laid, mode)
    return _copy_attributes(laid, like) or changed


def _give(laid: int, owner: int, group: int) -> bool:
    try:
        os.fchown(laid, owner, group)
    except PermissionError:
        return False  # only root may give files away; the note stays readable by those its mode lets in
    return True


def _copy_attributes(laid: int, like: int) -> bool:
    changed = False
    for name in _attributes(like):
        value = _attribute(like, name)
        if value is not None and _attribute(laid, name) != value:
            try:
                os.setxattr(laid, name, value)
                changed = True
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise  # others may be the system's own (security labels) and are not ours to set
    return changed


def _attributes(like: int) -> list[str]:
    try:
        return os.listxattr(like) if hasattr(os, "listxattr") else []
    except OSError:
        return []


def _attribute(laid: int, name: str) -> bytes | None:
    try:
        return os.getxattr(laid, name)
    except OSError:
        return None


def digest(folder: int, name: str) -> str | None:
    """The version of the bytes at a name, None if nothing is there; for what is no readable file a mark of its own."""
    try:
        opened = os.open(name, READ, dir_fd=folder)
    except FileNotFoundError:
        return None
    except OSError:
        return _mark(folder, name)
    with Opened(opened) as file:
        return digest_open(file) if stat.S_ISREG(os.fstat(file).st_mode) else _mark(folder, name)


def digest_open(opened: int, size: int = _PIECE_BYTES) -> Version:
    """The version of the bytes of an open file, from where it stands to its end; one that is as large as it is said to
    be is read at once."""
    first = b""
    if size < _PIECE_BYTES:
        first = os.read(opened, size + 1)
        if len(first) == size:
            return version_of(first)
    found = hashlib.sha256(first)
    while piece := os.read(opened, _PIECE_BYTES):
        found.update(piece)
    return found.hexdigest()


def take_out(folder: int, laid: TempName, *safe: Version, may_go: Sequence[str] = (CLOSED,)) -> tuple[str | None, bool]:
    """The version of what lies beside a note, as `digest` has it, and whether it is gone now: bytes that are `safe`
    elsewhere go if no program has the file open for writing, for under a name that nobody knows nobody will open it;
    or if it `may_go` otherwise."""
    name, is_gone = str(laid), False
    try:
        with Opened(os.open(name, READ, dir_fd=folder)) as file:  # and with it goes the lease
            state, found = _lease(file), digest_open(file)
            if found.startswith(safe) and state in may_go:
                os.unlink(name, dir_fd=folder)
                is_gone = True
            return found, is_gone
    except OSError:
        unreadable = digest(folder, name)
    if unreadable is not None and unreadable.startswith(safe) and UNKNOWN in may_go:
        os.unlink(name, dir_fd=folder)
        is_gone = True
    return unreadable, is_gone or unreadable is None


def _lease(file: int) -> str:
    """A read lease is granted only if nobody has the file open for writing; who would open it so then waits."""
    if not hasattr(fcntl, "F_SETLEASE"):
        return UNKNOWN
    try:
        fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)  # an opener in this very moment must not end us
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except BlockingIOError:
        return OPEN
    except OSError:
        return UNKNOWN
    return CLOSED


def _mark(folder: int, name: str) -> str | None:
    try:
        return f"!{os.lstat(name, dir_fd=folder).st_ino}"
    except FileNotFoundError:
        return None


def _age(folder: int, name: str) -> float:
    try:
        return time.time() - os.lstat(name, dir_fd=folder).st_ctime
    except OSError:
        return 0.0


@functools.cache
def _process(pid: int) -> str:
    return f"{_where()}.{pid:x}.{_start(pid) or '0'}"


@functools.cache
def _where() -> str:
    """The boot of this machine and the process namespace: process numbers mean nothing outside of both."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as boot:
            place = f"{boot.read()}{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        place = os.uname().nodename
    return version_of(place.encode())[:6]


def _start(pid: int) -> str | None:
    """When a process began, in ticks since boot; None if there is none such."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return f"{int(file.read().rpartition(b')')[2].split()[19]):x}"
    except (OSError, IndexError, ValueError):
        return None
