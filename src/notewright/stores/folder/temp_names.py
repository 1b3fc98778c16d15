"""Temp files beside the notes: their names, their bytes and metadata, and when they may be removed.

A change writes its bytes to a temp file, exchanges its name with the note's and looks at what came out. The old file
stays beside the note for a moment: an editor that had the note open may still write to it. Whatever such a file holds
that is neither what was seen nor what we wrote is a person's work, and is put back or kept as a copy, never removed.

The name tells all of this to the next process, should this one die:

    .notewright-<where>.<pid>.<start>-<op>-<number>-<note>-<ours>-<seen>

`note` is a digest of the note's name; `ours` and `seen` begin the versions we write and replace. While the bytes are
still being written `seen` is `new`: such a file holds nothing but ours.
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
from typing import NamedTuple

from notewright.disk_sync import Sync
from notewright.stores.base import OpId, Version, version_of
from notewright.stores.folder.paths import CREATE_FLAGS, READ_FLAGS, TEMP_PREFIX, Descriptor

CLOSED, UNKNOWN, OPEN = "closed", "unknown", "open"  # for writing, by any program; not every file system can say
NO_VERSION = "0" * 12
_PIECE_BYTES = 1 << 16  # read at a time: a buffer is made for each
_FOREIGN_SECONDS = 60.0  # how long a temp file of another container or machine is left alone
_NAME = re.compile(
    re.escape(TEMP_PREFIX) + r"([0-9a-f]{6}\.[0-9a-f]+\.[0-9a-f]+)-([\w-]{1,40})-([0-9a-f]+)"
    r"-([0-9a-f]{12})-([0-9a-f]{12})-([0-9a-f]{12}|new)",
    re.ASCII,
)
_PLAIN = re.compile(r"[\w-]{1,40}", re.ASCII)
_numbers = itertools.count()


class TempName(NamedTuple):
    """The parts of a temp file's name."""

    process: str
    op: str
    number: str
    note: str
    ours: str
    seen: str = "new"

    def __str__(self) -> str:
        return f"{TEMP_PREFIX}{self.process}-{self.op}-{self.number}-{self.note}-{self.ours}-{self.seen}"

    @classmethod
    def parse(cls, name: str) -> "TempName | None":
        match = _NAME.fullmatch(name)
        return cls(*match.groups()) if match else None


def new_temp_name(note: str, op: OpId, ours: Version = NO_VERSION) -> TempName:
    plain = op if _PLAIN.fullmatch(op) else version_of(op.encode())[:16]
    return TempName(_process_id(os.getpid()), plain, f"{next(_numbers):x}", digest_name(note), ours[:12])


def digest_name(note: str) -> str:
    return hashlib.sha256(note.encode("utf-8", "surrogateescape")).hexdigest()[:12]


def is_owner_alive(temp: TempName, folder: int) -> bool:
    """Whether the process that wrote it may still use it."""
    where, pid, start = temp.process.split(".")
    if where != _machine_id():
        return _seconds_since_change(folder, str(temp)) < _FOREIGN_SECONDS
    if os.path.exists("/proc/self/stat"):
        return _process_start(int(pid, 16)) == start
    try:
        os.kill(int(pid, 16), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    # Without start times the number may belong to another process by now.
    return _seconds_since_change(folder, str(temp)) < 60 * _FOREIGN_SECONDS


def write_temp(folder: int, name: str, data: bytes, like: int | None) -> Sync:
    """Write bytes under a new name, with mode, owner and attributes of the open file `like`: durable when the sync that
    is started here has ended well."""
    # A new note gets what umask and the folder say; one that replaces another is private until its mode is copied.
    temp = os.open(name, CREATE_FLAGS, 0o666 if like is None else 0o600, dir_fd=folder)
    try:
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(temp, left) :]
            if like is not None:
                copy_metadata(temp, like)
        except BaseException:
            os.close(temp)
            raise
        return Sync(temp)  # which closes it
    except BaseException:
        os.unlink(name, dir_fd=folder)
        raise


def copy_metadata(temp: int, like: int) -> bool:
    """Give a file the mode, owner and extended attributes of another, as far as we may; True if something changed."""
    old, new = os.fstat(like), os.fstat(temp)
    user, group = (-1 if old.st_uid == new.st_uid else old.st_uid), (-1 if old.st_gid == new.st_gid else old.st_gid)
    has_owner = True
    for owner in (user, -1), (-1, group):
        if owner != (-1, -1):
            try:
                os.fchown(temp, *owner)
            except PermissionError:
                has_owner = False  # only root may give files away; the note stays readable by those its mode lets in
    mode = stat.S_IMODE(old.st_mode) if has_owner else old.st_mode & 0o777  # no setuid on a file of another owner
    changed = (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid) or mode != stat.S_IMODE(new.st_mode)
    if changed:
        os.fchmod(temp, mode)
    try:
        names = os.listxattr(like) if hasattr(os, "listxattr") else []
    except OSError:
        names = []
    for name in names:
        value = _read_attribute(like, name)
        if value is not None and _read_attribute(temp, name) != value:
            try:
                os.setxattr(temp, name, value)
                changed = True
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise  # others may be the system's own (security labels) and are not ours to set
    return changed


def _read_attribute(file: int, name: str) -> bytes | None:
    try:
        return os.getxattr(file, name)
    except OSError:
        return None


def digest_file(folder: int, name: str) -> str | None:
    """The version of the bytes at a name, None if nothing is there; "!" and its inode for what is no readable file."""
    opened: int | None = None
    try:
        opened = os.open(name, READ_FLAGS, dir_fd=folder)
    except FileNotFoundError:
        return None
    except OSError:
        pass
    if opened is not None:
        with Descriptor(opened) as file:
            if stat.S_ISREG(os.fstat(file).st_mode):
                return digest_descriptor(file)
    try:
        return f"!{os.lstat(name, dir_fd=folder).st_ino}"
    except FileNotFoundError:
        return None


def digest_descriptor(file: int, size: int = _PIECE_BYTES) -> Version:
    """The version of the bytes of an open file, from where it stands to its end; one that has the `size` given is read
    at once."""
    first = b""
    if size < _PIECE_BYTES:
        first = os.read(file, size + 1)
        if len(first) == size:
            return version_of(first)
    found = hashlib.sha256(first)
    while piece := os.read(file, _PIECE_BYTES):
        found.update(piece)
    return found.hexdigest()


def remove_if_safe(
    folder: int, temp: TempName, *safe: Version, may_go: Sequence[str] = (CLOSED,)
) -> tuple[str | None, bool]:
    """Remove a temp file whose bytes are `safe` elsewhere, if no program has it open for writing (or `may_go` has what
    is known of that): nobody opens it later, under a name that nobody knows. Its version, as `digest_file` has it, and
    whether it is gone now."""
    name, is_gone = str(temp), False
    try:
        with Descriptor(os.open(name, READ_FLAGS, dir_fd=folder)) as file:  # closing it ends the lease
            state, found = _lease_state(file), digest_descriptor(file)
            if found.startswith(safe) and state in may_go:
                os.unlink(name, dir_fd=folder)
                is_gone = True
            return found, is_gone
    except OSError:
        unreadable = digest_file(folder, name)
    if unreadable is not None and unreadable.startswith(safe) and UNKNOWN in may_go:
        os.unlink(name, dir_fd=folder)
        is_gone = True
    return unreadable, is_gone or unreadable is None


def _lease_state(file: int) -> str:
    """Try for a read lease, which is granted only if nobody has the file open for writing, and delays who opens it."""
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


def _seconds_since_change(folder: int, name: str) -> float:
    try:
        return time.time() - os.lstat(name, dir_fd=folder).st_ctime
    except OSError:
        return 0.0


@functools.cache
def _process_id(pid: int) -> str:
    return f"{_machine_id()}.{pid:x}.{_process_start(pid) or '0'}"


@functools.cache
def _machine_id() -> str:
    """The boot of this machine and the process namespace: process numbers mean nothing outside of both."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as boot:
            place = f"{boot.read()}{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        place = os.uname().nodename
    return version_of(place.encode())[:6]


def _process_start(pid: int) -> str | None:
    """When a process began, in ticks since boot; None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return f"{int(file.read().rpartition(b')')[2].split()[19]):x}"
    except (OSError, IndexError, ValueError):
        return None
