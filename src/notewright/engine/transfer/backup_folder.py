"""A folder of backups: one folder for each day, whole by itself, with a manifest in it.

Files that did not change are hard links to the day before: every day can be browsed and copied by hand, and none needs
another. A new day is built in a temporary folder and renamed into place.

A folder that is being built, replaced or removed has a name that begins with a dot; after a crash the next process that
locks the place removes it.
"""

import errno
import logging
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from notewright.engine.changes.batch_write import UnreadableFile
from notewright.engine.transfer.manifest import (
    DATE,
    NAME,
    BackedUpFile,
    BackupPlace,
    Manifest,
    NewBackup,
    busy,
    dump_manifest,
    os_errors_as_problems,
    parse_manifest,
)
from notewright.errors import Exists, NotFound, Problem
from notewright.locks import EXCLUSIVE, SHARED, lock_file
from notewright.stores.base import version_of

log = logging.getLogger(__name__)

LOCK = ".notewright-backup.lock"
_TIME_GRAINS_NS = (1, 100, 1_000, 1_000_000, 1_000_000_000, 2_000_000_000)  # how finely file systems keep a time
_LEFTOVER = re.compile(r"\.(\d{4}-\d\d-\d\d)\.(partial|old|gone)", re.ASCII)
_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EBADF}
_NO_FILE = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EISDIR, errno.ENXIO}
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class BackupFolder(BackupPlace):
    """A folder of dated backups. No file but the lock stays open."""

    def __init__(self, place: str | os.PathLike[str]) -> None:
        self.path = Path(os.path.realpath(Path(place).expanduser()))
        super().__init__(str(self.path))

    @contextmanager
    def lock(self, *, exclusive: bool = False) -> Iterator[None]:
        """Lock it among all processes; an exclusive lock also removes what a crash left."""
        if exclusive:
            if not self.path.parent.is_dir():  # it may be a disk that is not mounted
                hint = "make the folder it is in, or mount its disk"
                raise NotFound(f"{self.path.parent} is not there", hint=hint, what="folder")
            with os_errors_as_problems(self.path):
                self.path.mkdir(mode=0o700, exist_ok=True)
        elif not (self.path / LOCK).exists():  # on a disk that cannot be written to, perhaps
            yield
            return
        handle = None
        try:
            with os_errors_as_problems(self.path, but_for={errno.EWOULDBLOCK, *_NO_LOCKS}):
                flags = os.O_RDWR | os.O_CREAT if exclusive else os.O_RDONLY
                handle = lock_file(self.path / LOCK, EXCLUSIVE if exclusive else SHARED, 0, flags | os.O_NOFOLLOW)
        except BlockingIOError:
            raise busy(self.name) from None
        except OSError:
            log.warning("%s cannot be locked: make sure that only one backup runs", self.path)
        try:
            if exclusive:
                self.remove_leftovers()
            yield
        finally:
            if handle is not None:
                os.close(handle)

    def remove_leftovers(self) -> None:
        """Remove what is neither a backup nor being made into one."""
        with os_errors_as_problems(self.path):
            for left in filter(None, map(_LEFTOVER.fullmatch, os.listdir(self.path))):
                if left[2] == "old" and not (self.path / left[1]).exists():
                    os.rename(self.path / left[0], self.path / left[1])  # killed between the two renames of `finish`
                else:
                    shutil.rmtree(self.path / left[0], ignore_errors=True)

    def dates(self) -> list[str]:
        """The days there is a backup of, oldest first. Folders without a manifest of ours do not count."""
        if not self.path.is_dir():
            raise NotFound(f"{self.path} is not a folder", hint="name the folder of the backups", what="folder")
        with os_errors_as_problems(self.path):
            names = sorted(os.listdir(self.path))
        return [name for name in names if DATE.fullmatch(name) and (self.path / name / NAME).is_file()]

    def manifest(self, date: str) -> Manifest:
        with os_errors_as_problems(self.path / date):
            return parse_manifest((self.path / date / NAME).read_bytes(), date)

    def begin(self, date: str) -> "NewFolderBackup":
        return NewFolderBackup(self, date)

    def read(self, date: str, place: str, kept: BackedUpFile) -> tuple[bytes, int]:
        try:
            with (
                os_errors_as_problems(place, but_for=_NO_FILE),
                os.fdopen(os.open(self.path / date / place, _READ), "rb") as file,
            ):
                mode, data = os.fstat(file.fileno()).st_mode, file.read(kept.size + 1)
        except OSError:
            raise UnreadableFile("damaged", f"{place} is not in the backup of {date} any more") from None
        if version_of(data) != kept.sha256:
            raise UnreadableFile("damaged", "its bytes in the backup are not those that were backed up")
        return data, mode

    def remove(self, date: str) -> None:
        self.manifest(date)
        away = self.path / f".{date}.gone"
        with os_errors_as_problems(self.path / date):
            os.rename(self.path / date, away)
            shutil.rmtree(away)


class NewFolderBackup(NewBackup):
    """A backup that is built in a temporary folder. `finish` renames it into place, `abandon` removes it. Raises Exists
    where a folder that is not ours has the name of the day."""

    backups: BackupFolder

    def __init__(self, backups: BackupFolder, date: str) -> None:
        super().__init__(backups, date)
        there = backups.path / date
        if os.path.lexists(there) and date not in backups.dates():
            hint = "rename it, or choose another folder for backups"
            raise Exists(f"{there} is in the way and is no backup of ours", hint=hint, path=date)
        self._root = backups.path / f".{date}.partial"
        self._folders = {""}
        self._new: set[str] = set()  # places whose bytes are not on the disk yet
        with os_errors_as_problems(self._root):
            os.mkdir(self._root, 0o700)

    def put(self, place: str, data: bytes, *, modified_ns: int, mode: int | None = None) -> None:
        target = self._make_parent(place)
        with os.fdopen(os.open(target, _CREATE, 0o600), "wb") as file:
            try:
                file.write(data)
                file.flush()
            except OSError:
                os.unlink(target)
                raise
        copy_mode_and_time(target, mode, modified_ns)
        self._new.add(place)

    def link(self, old: str, place: str, kept: BackedUpFile) -> bool:
        assert self.before is not None
        source = self.backups.path / self.before.date / old
        try:
            found = os.lstat(source)
        except OSError:
            return False
        if not stat.S_ISREG(found.st_mode) or found.st_size != kept.size:
            return False
        if not any(found.st_mtime_ns == kept.modified_ns // grain * grain for grain in _TIME_GRAINS_NS):
            return False  # it was changed since
        try:
            os.link(source, self._make_parent(place), follow_symlinks=False)
        except OSError:  # a disk without links, say: what else is wrong stands in the way of a copy too
            return False
        return True

    def add_symlink(self, place: str, real: str) -> None:
        make_symlink(self._root, place, real)

    def _make_parent(self, place: str) -> Path:
        """The full path of a new file, whose folder is made."""
        folder = place.rpartition("/")[0]
        if folder not in self._folders:
            os.makedirs(self._root / folder, mode=0o700, exist_ok=True)
            self._folders.add(folder)
        return self._root / place

    def drop(self, place: str) -> None:
        self._new.discard(place)
        with os_errors_as_problems(place):
            (self._root / place).unlink(missing_ok=True)

    def finish(self, manifest: Manifest) -> None:
        """Sync it and rename it into place; an earlier backup of the day is renamed away before."""
        there = self.backups.path / self.date
        with os_errors_as_problems(self._root):
            self.put(NAME, dump_manifest(manifest), modified_ns=time.time_ns())
            for place in sorted(self._new):
                _sync(self._root / place)
            for folder, _, _ in os.walk(self._root, topdown=False):
                _sync(folder)
            if there.exists():
                os.rename(there, self.backups.path / f".{self.date}.old")
            os.rename(self._root, there)
            _sync(self.backups.path)
        self.backups.remove_leftovers()

    def abandon(self) -> None:
        with suppress(Problem):
            self.backups.remove_leftovers()


def copy_mode_and_time(target: str | Path, mode: int | None, modified_ns: int) -> None:
    if mode is not None:
        with suppress(OSError):  # some disks know no modes
            os.chmod(target, stat.S_IMODE(mode) | 0o600)
    os.utime(target, ns=(modified_ns, modified_ns))


def make_symlink(root: str | Path, place: str, real: str) -> None:
    """Make a symlink to another file of a folder, for people who browse it; not on a disk that has no symlinks."""
    target = Path(root, place)
    with suppress(OSError):
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(os.path.relpath(real, os.path.dirname(place) or "."))


def _sync(place: str | Path) -> None:
    handle = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # folders of some network disks
            raise
    finally:
        os.close(handle)
