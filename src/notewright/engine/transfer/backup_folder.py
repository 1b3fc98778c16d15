"""A folder that holds backups: one folder for each day, whole by itself, with a manifest of ours in it.

Files that did not change are hard links to the day before: every day can be browsed and copied by hand, and none needs
another. A new day is built beside and put in place whole.

What is being built, replaced or removed has a name that begins with a dot, and is tidied up by whoever comes next.
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
    dump_manifest,
    parse_manifest,
    problems,
)
from notewright.errors import Exists, NotFound, Problem
from notewright.locks import EXCLUSIVE, SHARED, lock_file
from notewright.stores.base import version_of

log = logging.getLogger(__name__)

LOCK = ".notewright-backup.lock"
_GRAINS_NS = (1, 100, 1_000, 1_000_000, 1_000_000_000, 2_000_000_000)  # how finely file systems keep a time
_LEFT = re.compile(r"\.(\d{4}-\d\d-\d\d)\.(partial|old|gone)", re.ASCII)
_NO_LINKS = {errno.EPERM, errno.EACCES, errno.EXDEV, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}
_NO_LINKS |= {errno.EMLINK}
_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EBADF}
_NO_FILE = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EISDIR, errno.ENXIO}
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LOOK = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class BackupFolder(BackupPlace):
    """A folder of dated backups. Nothing is kept open but the lock."""

    def __init__(self, place: str | os.PathLike[str]) -> None:
        self.path = Path(os.path.realpath(Path(place).expanduser()))
        super().__init__(str(self.path))

    @contextmanager
    def locked(self, *, alone: bool = False) -> Iterator[None]:
        """Among all processes. Who is `alone` tidies up what a dead one left."""
        if alone:
            self._make()
        elif not (self.path / LOCK).exists():  # on a disk that cannot be written to, perhaps
            yield
            return
        handle = None
        try:
            with problems(self.path, but_for={errno.EWOULDBLOCK, *_NO_LOCKS}):
                flags = os.O_RDWR | os.O_CREAT if alone else os.O_RDONLY
                handle = lock_file(self.path / LOCK, EXCLUSIVE if alone else SHARED, 0, flags | os.O_NOFOLLOW)
        except BlockingIOError:
            raise self.busy() from None
        except OSError:
            log.warning("%s cannot be locked: make sure that only one backup runs", self.path)
        try:
            if alone:
                self.tidy_up()
            yield
        finally:
            if handle is not None:
                os.close(handle)

    def _make(self) -> None:
        """For the owner's eyes. The folder above must be there: it may be a disk that is not mounted."""
        if not self.path.parent.is_dir():
            hint = "make the folder it is in, or mount its disk"
            raise NotFound(f"{self.path.parent} is not there", hint=hint, what="folder")
        with problems(self.path):
            self.path.mkdir(mode=0o700, exist_ok=True)

    def tidy_up(self) -> None:
        """Remove what is no backup and is not becoming one."""
        with problems(self.path):
            for left in filter(None, map(_LEFT.fullmatch, os.listdir(self.path))):
                if left[2] == "old" and not (self.path / left[1]).exists():
                    os.rename(self.path / left[0], self.path / left[1])  # died between taking it away and the new one
                else:
                    shutil.rmtree(self.path / left[0], ignore_errors=True)

    def dates(self) -> list[str]:
        """The days there is a backup of, oldest first. Folders without a manifest are not ours."""
        if not self.path.is_dir():
            raise NotFound(f"{self.path} is not a folder", hint="name the folder of the backups", what="folder")
        with problems(self.path):
            names = sorted(os.listdir(self.path))
        return [name for name in names if DATE.fullmatch(name) and (self.path / name / NAME).is_file()]

    def manifest(self, date: str) -> Manifest:
        with problems(self.path / date):
            return parse_manifest((self.path / date / NAME).read_bytes(), date)

    def begin(self, date: str) -> "NewDay":
        return NewDay(self, date)

    def read(self, date: str, place: str, kept: BackedUpFile) -> tuple[bytes, int]:
        try:
            with problems(place, but_for=_NO_FILE), os.fdopen(os.open(self.path / date / place, _LOOK), "rb") as file:
                mode, data = os.fstat(file.fileno()).st_mode, file.read(kept.size + 1)
        except OSError:
            raise UnreadableFile("damaged", f"{place} is not in the backup of {date} any more") from None
        if version_of(data) != kept.sha256:
            raise UnreadableFile("damaged", "its bytes in the backup are not those that were backed up")
        return data, mode

    def remove(self, date: str) -> None:
        self.manifest(date)
        away = self.path / f".{date}.gone"
        with problems(self.path / date):
            os.rename(self.path / date, away)
            shutil.rmtree(away)


class NewDay(NewBackup):
    """A backup being built beside its place. `finish` puts it there, `abandon` leaves everything as it was. Exists
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
        with problems(self._root):
            os.mkdir(self._root, 0o700)

    def put(self, place: str, data: bytes, *, modified_ns: int, mode: int | None = None) -> None:
        target = self._room(place)
        with os.fdopen(os.open(target, _NEW, 0o600), "wb") as file:
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
        if not _is_as_left(source, kept):
            return False
        try:
            os.link(source, self._room(place), follow_symlinks=False)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            return False
        return True

    def point(self, place: str, real: str) -> None:
        make_symlink(self._root, place, real)

    def _room(self, place: str) -> Path:
        """Where a file goes, its folder made."""
        folder = place.rpartition("/")[0]
        if folder not in self._folders:
            os.makedirs(self._root / folder, mode=0o700, exist_ok=True)
            self._folders.add(folder)
        return self._root / place

    def drop(self, place: str) -> None:
        self._new.discard(place)
        with problems(place):
            (self._root / place).unlink(missing_ok=True)

    def finish(self, manifest: Manifest) -> None:
        """Durable, and in its place: what was there for the day gives way, whole to whole."""
        there = self.backups.path / self.date
        with problems(self._root):
            self.put(NAME, dump_manifest(manifest), modified_ns=time.time_ns())
            for place in sorted(self._new):
                _sync(self._root / place)
            for folder, _, _ in os.walk(self._root, topdown=False):
                _sync(folder)
            if there.exists():
                os.rename(there, self.backups.path / f".{self.date}.old")
            os.rename(self._root, there)
            _sync(self.backups.path)
        self.backups.tidy_up()

    def abandon(self) -> None:
        with suppress(Problem):
            self.backups.tidy_up()


def copy_mode_and_time(target: str | Path, mode: int | None, modified_ns: int) -> None:
    if mode is not None:
        with suppress(OSError):  # some disks know no modes
            os.chmod(target, stat.S_IMODE(mode) | 0o600)
    os.utime(target, ns=(modified_ns, modified_ns))


def make_symlink(root: str | Path, place: str, real: str) -> None:
    """A symlink to another file of a folder, for who browses it; a disk that cannot goes without."""
    target = Path(root, place)
    with suppress(OSError):
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(os.path.relpath(real, os.path.dirname(place) or "."))


def _is_as_left(source: Path, kept: BackedUpFile) -> bool:
    """Whether nobody wrote to a file of a backup since, by its size and time."""
    try:
        found = os.lstat(source)
    except OSError:
        return False
    if not stat.S_ISREG(found.st_mode) or found.st_size != kept.size:
        return False
    return any(found.st_mtime_ns == kept.modified_ns // grain * grain for grain in _GRAINS_NS)


def _sync(place: str | Path) -> None:
    handle = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # folders of some network disks
            raise
    finally:
        os.close(handle)
