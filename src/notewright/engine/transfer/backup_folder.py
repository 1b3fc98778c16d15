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
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path

from notewright.engine.changes.batch_write import UnreadableFile
from notewright.engine.transfer.manifest import (
    NAME,
    BackedUpFile,
    BackupPlace,
    Destination,
    Manifest,
    NewBackup,
    dump_manifest,
    parse_manifest,
)
from notewright.errors import Busy, Exists, Forbidden, NoSpace, NotFound, Unavailable
from notewright.locks import EXCLUSIVE, SHARED, lock_file
from notewright.notes.path import NotePath
from notewright.stores.base import Store, version_of

log = logging.getLogger(__name__)

LOCK = ".notewright-backup.lock"
_GRAINS_NS = (1, 100, 1_000, 1_000_000, 1_000_000_000, 2_000_000_000)  # how finely file systems keep a time
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_LEFT = re.compile(r"\.(\d{4}-\d\d-\d\d)\.(partial|old|gone)", re.ASCII)
_NO_LINKS = {errno.EPERM, errno.EACCES, errno.EXDEV, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}
_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EBADF}
_NO_FILE = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EISDIR, errno.ENXIO}
# The destination does not take this file (its name, its size, a twin on a disk without capitals) but may take others.
THIS_FILE_ONLY = {errno.EEXIST, errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL}
THIS_FILE_ONLY |= {errno.EFBIG, errno.EISDIR, errno.ENOTDIR}
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LOOK = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def folder_overlap(store: Store, place: str) -> str | None:
    """`inside` where a folder lies among these notes, `around` where they lie in it."""
    if store.objects is not None:
        return None
    home, place = os.path.realpath(store.full_path(NotePath(""))), os.path.realpath(place)
    if not os.path.isdir(home):
        return None  # not in a folder of this machine
    common = os.path.commonpath((home, place))
    return "inside" if common == home else "around" if common == place else None


class BackupFolder(BackupPlace):
    """A folder of dated backups. Nothing is kept open but the lock."""

    def __init__(self, place: str | os.PathLike[str]) -> None:
        self.path = Path(os.path.realpath(Path(place).expanduser()))

    @property
    def name(self) -> str:
        return str(self.path)

    def overlap(self, store: Store) -> str | None:
        return folder_overlap(store, str(self.path))

    def make(self) -> None:
        """Be there, for the owner's eyes. The folder above must be: it may be a disk that is not mounted."""
        if not self.path.parent.is_dir():
            hint = "make the folder it is in, or mount its disk"
            raise NotFound(f"{self.path.parent} is not there", hint=hint, what="folder")
        with problems(self.path):
            self.path.mkdir(mode=0o700, exist_ok=True)

    def check(self) -> None:
        """NotFound where there is no such folder."""
        if not self.path.is_dir():
            raise NotFound(f"{self.path} is not a folder", hint="name the folder of the backups", what="folder")

    @contextmanager
    def alone(self) -> Iterator[None]:
        """The only one who changes backups here, in any process; what a dead one left is tidied up. Or Busy."""
        with self._locked(EXCLUSIVE, os.O_RDWR | os.O_CREAT):
            self._tidy_up()
            yield

    def still(self) -> AbstractContextManager[None]:
        """Nobody changes backups here meanwhile. Busy while somebody does; others may read too."""
        there = (self.path / LOCK).exists()  # not on a disk that cannot be written to, perhaps
        return self._locked(SHARED, os.O_RDONLY) if there else nullcontext()

    @contextmanager
    def _locked(self, kind: int, flags: int) -> Iterator[None]:
        handle = None
        try:
            with problems(self.path, but_for={errno.EWOULDBLOCK, *_NO_LOCKS}):
                handle = lock_file(self.path / LOCK, kind, 0, flags | os.O_NOFOLLOW)
        except BlockingIOError:
            hint = "try again when it is done"
            raise Busy(f"somebody is using the backups in {self.path} just now", hint=hint) from None
        except OSError:
            log.warning("%s cannot be locked: make sure that only one backup runs", self.path)
        try:
            yield
        finally:
            if handle is not None:
                os.close(handle)

    def _tidy_up(self) -> None:
        for name in self._names():
            left = _LEFT.fullmatch(name)
            if left and left[2] == "old" and not (self.path / left[1]).exists():
                os.rename(self.path / name, self.path / left[1])  # died between taking it away and the new one
            elif left:
                shutil.rmtree(self.path / name, ignore_errors=True)

    def _names(self) -> list[str]:
        with problems(self.path):
            return sorted(os.listdir(self.path))

    def dates(self) -> list[str]:
        """The days there is a backup of, oldest first. Folders without a manifest are not ours."""
        return [name for name in self._names() if _DATE.fullmatch(name) and (self.path / name / NAME).is_file()]

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
        if not stat.S_ISREG(mode):
            raise UnreadableFile("damaged", f"{place} is no file in the backup of {date}")
        if version_of(data) != kept.sha256:
            raise UnreadableFile("damaged", "its bytes in the backup are not those that were backed up")
        return data, mode

    def remove(self, date: str) -> None:
        self.manifest(date)
        away = self.path / f".{date}.gone"
        with problems(self.path / date):
            os.rename(self.path / date, away)
            shutil.rmtree(away)


class PlainFolder:
    """Copies in a folder that holds nothing else, with their times and modes. What the system refuses is an OSError."""

    def __init__(self, root: Path, folder_mode: int = 0o777) -> None:
        self.root, self._folder_mode = root, folder_mode
        self._folders = {""}
        self._new: set[str] = set()  # places whose bytes are not on the disk yet

    def put(self, place: str, data: bytes, *, modified_ns: int, mode: int | None = None) -> None:
        """A new file."""
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

    def point(self, place: str, real: str) -> None:
        """A symlink to another file of the folder, for who browses it; a disk that cannot goes without."""
        with suppress(OSError):
            os.symlink(os.path.relpath(real, os.path.dirname(place) or "."), self._room(place))

    def sync(self) -> None:
        """Durable, all of it."""
        with problems(self.root):
            for place in sorted(self._new):
                _sync(self.root / place)
            for folder, _, _ in os.walk(self.root, topdown=False):
                _sync(folder)

    def _room(self, place: str) -> Path:
        """Where a file goes, its folder made."""
        folder = place.rpartition("/")[0]
        if folder not in self._folders:
            os.makedirs(self.root / folder, mode=self._folder_mode, exist_ok=True)
            self._folders.add(folder)
        return self.root / place


class NewDay(PlainFolder, NewBackup):
    """A backup being built beside its place. `finish` puts it there, `abandon` leaves everything as it was. Exists
    where a folder that is not ours has the name of the day."""

    def __init__(self, backups: BackupFolder, date: str) -> None:
        there = backups.path / date
        if os.path.lexists(there) and date not in backups.dates():
            hint = "rename it, or choose another folder for backups"
            raise Exists(f"{there} is in the way and is no backup of ours", hint=hint, path=date)
        super().__init__(backups.path / f".{date}.partial", 0o700)
        self._backups, self._date = backups, date
        self._links = True
        with problems(self.root):
            os.mkdir(self.root, 0o700)

    def link(self, date: str, old: str, place: str, kept: BackedUpFile) -> bool:
        """The file of an earlier day once more. False where it is not as it was left there, or cannot be linked."""
        source = self._backups.path / date / old
        if not self._links or not _is_as_left(source, kept):
            return False
        target = self._room(place)
        try:
            os.link(source, target, follow_symlinks=False)
        except OSError as error:
            if error.errno != errno.EMLINK and error.errno not in _NO_LINKS:
                raise
            self._links = error.errno == errno.EMLINK
            return False
        return True

    def carry(self, date: str, old: str, place: str, kept: BackedUpFile) -> bool:
        try:
            with problems(place, but_for=THIS_FILE_ONLY):
                if not self.link(date, old, place, kept):
                    data, _ = self._backups.read(date, old, kept)
                    self.put(place, data, modified_ns=kept.modified_ns)
        except (UnreadableFile, OSError):
            return False
        return True

    def drop(self, place: str) -> None:
        self._new.discard(place)
        with suppress(FileNotFoundError), problems(place, but_for=(errno.ENOENT,)):
            os.unlink(self.root / place)

    def finish(self, manifest: Manifest) -> None:
        """Durable, and in its place: what was there for the day gives way, whole to whole."""
        there, old = self._backups.path / self._date, self._backups.path / f".{self._date}.old"
        with problems(self.root):
            self.put(NAME, dump_manifest(manifest), modified_ns=time.time_ns())
            self.sync()
            if there.exists():
                os.rename(there, old)
            try:
                os.rename(self.root, there)
            except OSError:
                if old.exists():
                    os.rename(old, there)
                raise
            _sync(self._backups.path)
        shutil.rmtree(old, ignore_errors=True)

    def abandon(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)


class NewFolder(PlainFolder, Destination):
    """A folder that is new or empty."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        super().__init__(Path(os.path.realpath(Path(folder).expanduser())))

    @property
    def name(self) -> str:
        return str(self.root)

    def overlap(self, store: Store) -> str | None:
        return folder_overlap(store, self.name)

    def make(self) -> None:
        with problems(self.root):
            self.root.mkdir(parents=True, exist_ok=True)
            if any(self.root.iterdir()):
                hint = "name a new folder, or restore into the workspace"
                raise Exists(f"{self.root} is not empty", hint=hint, path=str(self.root))

    def put(self, place: str, data: bytes, *, modified_ns: int, mode: int | None = None) -> None:
        try:
            with problems(self.root / place, but_for=(errno.EEXIST,)):
                super().put(place, data, modified_ns=modified_ns, mode=mode)
        except FileExistsError:
            words = "this folder takes it for another file with a name like it"
            raise UnreadableFile("exists", words) from None


@contextmanager
def problems(place: str | Path, *, but_for: Collection[int] = ()) -> Iterator[None]:
    """What the system says is a Problem, except for these errors."""
    try:
        yield
    except OSError as error:
        if error.errno in but_for:
            raise
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise NoSpace(f"there is no space for {place}", hint="free some, or choose another folder") from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise Forbidden(f"the file system does not let us use {place}", hint="whose folder is it?") from error
        raise Unavailable(f"{place} cannot be used: {(error.strerror or str(error)).lower()}") from error


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
