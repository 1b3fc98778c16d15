"""A folder that holds backups: one folder for each day, whole by itself, with a manifest of ours in it.

This is all a backup needs of its destination (dates, a manifest, files, building a new day beside and putting it in
place, removing an old one), so that another kind of destination has one class to write. Files that did not change are
hard links to the day before: every day can be browsed and copied by hand, and none needs another.

What is being built, replaced or removed has a name that begins with a dot, and is tidied up by whoever comes next.
"""

import errno
import fcntl
import logging
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from notewright.engine.transfer.backup_manifest import NAME, BackedUpFile, Manifest, understood, written
from notewright.errors import Busy, Exists, Forbidden, Invalid, NoSpace, NotFound, Problem, Unavailable

log = logging.getLogger(__name__)

LOCK = ".notewright-backup.lock"
_GRAINS_NS = (1, 100, 1_000, 1_000_000, 1_000_000_000, 2_000_000_000)  # how finely file systems keep a time
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_LEFT = re.compile(r"\.(\d{4}-\d\d-\d\d)\.(partial|old|gone)", re.ASCII)
_NO_LINKS = {errno.EPERM, errno.EACCES, errno.EXDEV, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}
_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EBADF}
# The destination does not take this file; the others it may take.
_THIS_FILE_ONLY = {
    errno.EEXIST,
    errno.ENAMETOOLONG,
    errno.EILSEQ,
    errno.EINVAL,
    errno.EFBIG,
    errno.EISDIR,
    errno.ENOTDIR,
}
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LOOK = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class NotTaken(Exception):
    """The destination cannot hold this one file (its name, its size, a twin on a system without capitals)."""


class BackupFolder:
    """A folder of dated backups. Nothing is kept open but the lock."""

    def __init__(self, place: str | os.PathLike[str]) -> None:
        self.path = Path(os.path.realpath(Path(place).expanduser()))

    def make(self) -> None:
        """Be there, for the owner's eyes. The folder above must be: it may be a disk that is not mounted."""
        try:
            if not self.path.is_dir():
                self.path.mkdir(mode=0o700)
        except FileNotFoundError:
            hint = "make the folder it is in, or mount its disk"
            raise NotFound(f"{self.path.parent} is not there", hint=hint, what="folder") from None
        except OSError as error:
            raise describe_error(error, self.path) from error

    def check(self) -> None:
        """NotFound where there is no such folder."""
        if not self.path.is_dir():
            raise NotFound(f"{self.path} is not a folder", hint="name the folder of the backups", what="folder")

    @contextmanager
    def alone(self) -> Iterator[None]:
        """The only one who changes backups here, in any process; what a dead one left is tidied up. Or Busy."""
        with self._locked(os.O_RDWR | os.O_CREAT, fcntl.LOCK_EX):
            self._tidy_up()
            yield

    @contextmanager
    def still(self) -> Iterator[None]:
        """Nobody changes backups here meanwhile. Busy while somebody does; others may read too."""
        if not (self.path / LOCK).exists():  # on a disk that cannot be written to, perhaps
            yield
            return
        with self._locked(os.O_RDONLY, fcntl.LOCK_SH):
            yield

    @contextmanager
    def _locked(self, flags: int, kind: int) -> Iterator[None]:
        try:
            handle = os.open(self.path / LOCK, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise describe_error(error, self.path) from error
        try:
            fcntl.flock(handle, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            hint = "try again when it is done"
            raise Busy(f"somebody is using the backups in {self.path} just now", hint=hint) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                os.close(handle)
                raise describe_error(error, self.path) from error
            log.warning("%s cannot be locked: make sure that only one backup runs", self.path)
        try:
            yield
        finally:
            os.close(handle)

    def _tidy_up(self) -> None:
        for name in self._names():
            left = _LEFT.fullmatch(name)
            if left and left[2] == "old" and not (self.path / left[1]).exists():
                os.rename(self.path / name, self.path / left[1])  # died between taking it away and the new one
            elif left:
                shutil.rmtree(self.path / name, ignore_errors=True)

    def _names(self) -> list[str]:
        try:
            return sorted(os.listdir(self.path))
        except OSError as error:
            raise describe_error(error, self.path) from error

    def dates(self) -> list[str]:
        """The days there is a backup of, oldest first. Folders without a manifest are not ours."""
        return [name for name in self._names() if _DATE.fullmatch(name) and (self.path / name / NAME).is_file()]

    def manifest(self, date: str) -> Manifest:
        """What the backup of a day holds; Invalid where that cannot be read."""
        try:
            return understood((self.path / date / NAME).read_bytes(), date)
        except FileNotFoundError:
            raise NotFound(f"there is no backup of {date} in {self.path}", what="backup") from None
        except OSError as error:
            raise describe_error(error, self.path / date) from error

    def newest(self) -> Manifest | None:
        """The newest backup that can be read, None where there is none."""
        for date in reversed(self.dates()):
            try:
                return self.manifest(date)
            except (Invalid, NotFound) as problem:
                log.warning("%s", problem)
        return None

    def open(self, date: str, place: str) -> BinaryIO:
        """A file of a backup. NotFound where somebody removed it."""
        try:
            file = os.fdopen(os.open(self.path / date / place, _LOOK), "rb")
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EISDIR, errno.ENXIO):
                raise NotFound(f"{place} is not in the backup of {date} any more", what="file", path=place) from None
            raise describe_error(error, place) from error
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return file
        file.close()
        raise NotFound(f"{place} is no file in the backup of {date}", what="file", path=place)

    def begin(self, date: str) -> "NewDay":
        """A backup of that day, to be filled and put in place. Exists where a folder that is not ours has the name."""
        there = self.path / date
        if os.path.lexists(there) and date not in self.dates():
            hint = "rename it, or choose another folder for backups"
            raise Exists(f"{there} is in the way and is no backup of ours", hint=hint, path=date)
        return NewDay(self, date)

    def remove(self, date: str) -> None:
        """Remove one day. Only what has a manifest of ours, and never half of it."""
        self.manifest(date)
        away = self.path / f".{date}.gone"
        try:
            os.rename(self.path / date, away)
            shutil.rmtree(away)
        except OSError as error:
            raise describe_error(error, self.path / date) from error


class NewDay:
    """A backup being built beside its place. `finish` puts it there, `abandon` leaves everything as it was."""

    def __init__(self, backups: BackupFolder, date: str) -> None:
        self._root, self._date = backups.path, date
        self._beside, self._old = backups.path / f".{date}.partial", backups.path / f".{date}.old"
        self._folders = {""}
        self._new: set[str] = set()  # places whose bytes are not on the disk yet
        self._links = True
        with _words(self._beside):
            os.mkdir(self._beside, 0o700)

    def put(self, place: str, data: bytes, *, modified_ns: int, mode: int | None = None) -> None:
        """A new file. NotTaken where the destination cannot hold it."""
        with _words(place):
            target = self._room(place)
            with os.fdopen(os.open(target, _NEW, 0o600), "wb") as file:
                try:
                    file.write(data)
                    file.flush()
                except OSError:
                    os.unlink(target)
                    raise
            if mode is not None:
                with suppress(OSError):  # some disks know no modes
                    os.chmod(target, stat.S_IMODE(mode) | 0o600)
            os.utime(target, ns=(modified_ns, modified_ns))
            self._new.add(place)

    def keep(self, date: str, old: str, place: str, kept: BackedUpFile) -> bool:
        """The file of an earlier day once more, as a link. False where it is not as it was left there, or cannot be
        linked: then it is to be put."""
        if not self._links:
            return False
        source = self._root / date / old
        with _words(place):
            try:
                found = os.lstat(source)
            except OSError:
                return False
            if not stat.S_ISREG(found.st_mode) or found.st_size != kept.size:
                return False
            if not any(found.st_mtime_ns == kept.modified_ns // grain * grain for grain in _GRAINS_NS):
                return False  # somebody wrote to it since
            target = self._room(place)
            try:
                os.link(source, target, follow_symlinks=False)
            except OSError as error:
                if error.errno != errno.EMLINK and error.errno not in _NO_LINKS:
                    raise
                self._links = error.errno == errno.EMLINK
                return False
        return True

    def point(self, place: str, real: str) -> None:
        """A symlink to another file of the backup, for who browses it; a disk that cannot goes without."""
        with suppress(OSError):
            os.symlink(os.path.relpath(real, os.path.dirname(place) or "."), self._room(place))

    def drop(self, place: str) -> None:
        """Not this one after all."""
        self._new.discard(place)
        with suppress(FileNotFoundError), _words(place):
            os.unlink(self._beside / place)

    def finish(self, manifest: Manifest) -> None:
        """Durable, and in its place: what was there for the day gives way, whole to whole."""
        with _words(self._beside):
            self._write_manifest(manifest)
            for place in sorted(self._new):
                _sync(self._beside / place)
            for folder in sorted(self._folders, reverse=True):
                _sync(self._beside / folder)
            self._take_place()
            _sync(self._root)
        shutil.rmtree(self._old, ignore_errors=True)

    def _take_place(self) -> None:
        there = self._root / self._date
        if not there.exists():
            return os.rename(self._beside, there)
        os.rename(there, self._old)
        try:
            os.rename(self._beside, there)
        except OSError:
            os.rename(self._old, there)
            raise

    def abandon(self) -> None:
        shutil.rmtree(self._beside, ignore_errors=True)

    def _write_manifest(self, manifest: Manifest) -> None:
        with os.fdopen(os.open(self._beside / NAME, _NEW, 0o600), "wb") as file:
            file.write(written(manifest))
        self._new.add(NAME)

    def _room(self, place: str) -> Path:
        """Where a file goes, its folders made."""
        folder = place.rpartition("/")[0]
        if folder not in self._folders:
            os.makedirs(self._beside / folder, mode=0o700, exist_ok=True)
            while folder not in self._folders:
                self._folders.add(folder)
                folder = folder.rpartition("/")[0]
        return self._beside / place


@contextmanager
def _words(place: str | Path) -> Iterator[None]:
    """What the system says becomes NotTaken, or the Problem it is for the whole backup."""
    try:
        yield
    except OSError as error:
        if isinstance(place, str) and error.errno in _THIS_FILE_ONLY:
            raise NotTaken((error.strerror or str(error)).lower()) from error
        raise describe_error(error, place) from error


def describe_error(error: OSError, place: str | Path) -> Problem:
    """An error of the system in our words."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return NoSpace(f"there is no space for {place}", hint="free some, or choose another folder")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return Forbidden(f"the file system does not let us use {place}", hint="whose folder is it?")
    return Unavailable(f"{place} cannot be used: {(error.strerror or str(error)).lower()}")


def _sync(place: Path) -> None:
    handle = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # folders of some network disks
            raise
    finally:
        os.close(handle)
