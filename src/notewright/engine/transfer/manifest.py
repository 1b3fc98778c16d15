"""The manifest of a backup (which files of which workspaces it holds, and their hashes), and the interface of a folder
or bucket of backups."""

import errno
import json
import logging
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from notewright.engine.changes.batch_write import UnreadableFile
from notewright.errors import Busy, Forbidden, Invalid, NoSpace, NotFound, Unavailable
from notewright.notes.path import NotePath
from notewright.stores.base import Entry, Objects, Store

log = logging.getLogger(__name__)

NAME = ".notewright-backup.json"  # begins with a dot, so it is never in the place of a note
_MARK = "notewright-backup"
_FORMAT = 1
BUCKET_THREADS = 32  # objects of a bucket that are read or written at the same time
# The destination refuses this file (its name, its size, a twin on a case-insensitive disk) but may take others.
THIS_FILE_ONLY = {errno.EEXIST, errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL}
THIS_FILE_ONLY |= {errno.EFBIG, errno.EISDIR, errno.ENOTDIR}
DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class BackedUpFile:
    """One file as it was when it was backed up."""

    sha256: str
    size: int
    modified_ns: int
    stamp: str = field(default="", compare=False)  # of the workspace's object, where it is in a bucket
    etag: str = field(default="", compare=False)  # of the backup's own object, where that is in a bucket
    beside: bool = field(default=False, compare=False)  # that object is not in its final place yet


@dataclass(frozen=True, slots=True)
class WorkspacePart:
    """One workspace in a backup. Its files lie under `folder`, "" where it is the only one."""

    id: str
    name: str
    location: str
    folder: str
    files: Mapping[NotePath, BackedUpFile] = field(default_factory=dict)
    links: Mapping[NotePath, str] = field(default_factory=dict)  # symlinks: the path each one means

    def place(self, path: str) -> str:
        """The path of a file of this workspace in the backup."""
        return f"{self.folder}/{path}" if self.folder else path

    def is_same(self, id: str, location: str) -> bool:
        """Whether this is that workspace, perhaps renamed."""
        return self.id == id or self.location == location != ""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The contents of a whole backup. `errors` are the files it could not hold."""

    date: str
    made: str  # RFC 3339, UTC
    parts: tuple[WorkspacePart, ...]
    errors: tuple[str, ...] = ()

    @property
    def files(self) -> int:
        return sum(len(part.files) for part in self.parts)

    @property
    def size(self) -> int:
        """In bytes."""
        return sum(kept.size for part in self.parts for kept in part.files.values())

    @property
    def workspaces(self) -> tuple[str, ...]:
        return tuple(part.name for part in self.parts)

    def with_files(self, change: Callable[[str, BackedUpFile], BackedUpFile]) -> "Manifest":
        """A copy in which each file is what `change` makes of its place and itself."""
        parts = (
            replace(part, files={path: change(part.place(path), kept) for path, kept in part.files.items()})
            for part in self.parts
        )
        return replace(self, parts=tuple(parts))


def dump_manifest(manifest: Manifest) -> bytes:
    """The manifest as JSON that a person can read, the mark first."""
    workspaces = {}
    for part in manifest.parts:
        files = {path: asdict(kept) for path, kept in sorted(part.files.items())}
        workspaces[part.id] = {
            "name": part.name,
            "location": part.location,
            "folder": part.folder,
            "files": {
                path: {key: value for key, value in kept.items() if value != "" and value is not False}
                for path, kept in files.items()
            },
            "links": dict(sorted(part.links.items())),
        }
    document = {
        _MARK: _FORMAT,
        "date": manifest.date,
        "made": manifest.made,
        "errors": list(manifest.errors),
        "workspaces": workspaces,
    }
    return json.dumps(document, ensure_ascii=False, indent=1).encode()


def parse_manifest(raw: bytes, date: str) -> Manifest:
    """Read what `dump_manifest` wrote. Invalid for anything else, and for paths that would lead out of the backup."""
    try:
        document = json.loads(raw)
        if document[_MARK] != _FORMAT:  # the date is that of the folder: it may be a copy of another day
            raise ValueError("it is of another version")
        parts = []
        for id, table in document["workspaces"].items():
            folder = table["folder"]
            if folder not in ("", id) or "/" in id:
                raise ValueError(f"{folder!r} is not the folder of a workspace")
            files = {_parse_path(path): _parse_file(entry) for path, entry in table["files"].items()}
            links = {_parse_path(path): str(_parse_path(real)) for path, real in table["links"].items()}
            name, location = str(table["name"]), str(table["location"])
            parts.append(WorkspacePart(str(_parse_path(id)), name, location, folder, files, links))
        return Manifest(date, str(document["made"]), tuple(parts), tuple(map(str, document["errors"])))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, Invalid) as error:
        hint = "choose another date, or copy the files by hand"
        raise Invalid(f"the list of the backup {date} cannot be read: {error}", hint=hint, what="backup") from None


def _parse_path(raw: str) -> NotePath:
    path = NotePath.parse(raw)
    if path.is_hidden:
        raise ValueError(f"{raw!r} begins with a dot")
    return path


def _parse_file(entry: Mapping[str, Any]) -> BackedUpFile:
    sha256, size, modified_ns = entry["sha256"], entry["size"], entry["modified_ns"]
    stamp, etag, beside = str(entry.get("stamp", "")), str(entry.get("etag", "")), entry.get("beside") is True
    if not re.fullmatch(r"[0-9a-f]{64}", sha256) or type(size) is not int or type(modified_ns) is not int:
        raise ValueError("what it says of a file makes no sense")
    return BackedUpFile(sha256, size, modified_ns, stamp, etag, beside)


# ---- the interface of a folder or bucket of backups --------------------------------------------------


class NewBackup(ABC):
    """The backup of a day while it is made. `before` is the newest existing one, perhaps of the same day. Any thread
    may call; a `place` is a path in the backup."""

    def __init__(self, backups: "BackupPlace", date: str) -> None:
        self.backups, self.date = backups, date
        self.before = next(readable_manifests(backups), None)

    @abstractmethod
    def put(self, place: str, data: bytes, *, modified_ns: int, mode: int | None = None) -> None: ...

    @abstractmethod
    def link(self, old: str, place: str, kept: BackedUpFile) -> bool:
        """Take over a file of the backup before. False where it was changed there since, or cannot be linked."""

    def link_or_copy(self, old: str, place: str, kept: BackedUpFile) -> bool:
        """Take over a file of the backup before, as a copy if need be; False where it is not there unchanged."""
        assert self.before is not None
        try:
            with os_errors_as_problems(place, but_for=THIS_FILE_ONLY):
                if not self.link(old, place, kept):
                    data, _ = self.backups.read(self.before.date, old, kept)
                    self.put(place, data, modified_ns=kept.modified_ns)
        except (UnreadableFile, OSError):
            return False
        return True

    def copy_in_service(self, store: Store, entry: Entry, place: str) -> bool:
        """Copy a file of the workspace inside the service of both buckets. False where it has to be read and `put`."""
        return False

    def add_symlink(self, place: str, real: str) -> None:
        """Add a symlink to another file of the backup, for people who browse it, where there are symlinks."""
        return None

    @abstractmethod
    def drop(self, place: str) -> None:
        """Remove a file that was added before."""

    @abstractmethod
    def finish(self, manifest: Manifest) -> None:
        """Make the backup durable and put it in its place."""

    def abandon(self) -> None:
        """Give the backup up. Where nothing is removed, the next one of the day goes on with what is there."""
        return None


class BackupPlace(ABC):
    """A folder or bucket of dated backups, each whole by itself (`backup_folder.py`, `backup_bucket.py`)."""

    threads: int = 1  # files that are worth copying at the same time
    objects: Objects | None = None

    def __init__(self, name: str) -> None:
        self.name = name  # as people write it

    @abstractmethod
    def lock(self, *, exclusive: bool = False) -> AbstractContextManager[None]:
        """Keep everybody from changing backups here, or Busy. Other readers are let in, except by an exclusive lock:
        that one is for changing backups, and makes the place if it is not there."""

    @abstractmethod
    def dates(self) -> list[str]:
        """The days there is a whole backup of, oldest first. NotFound where there is no such place."""

    @abstractmethod
    def manifest(self, date: str) -> Manifest:
        """What the backup of a day holds; Invalid where that cannot be read."""

    @abstractmethod
    def read(self, date: str, place: str, kept: BackedUpFile) -> tuple[bytes, int | None]:
        """The bytes of a file, and its mode; UnreadableFile where they are not those that were backed up."""

    @abstractmethod
    def begin(self, date: str) -> NewBackup:
        """Begin a backup. Exists where something that is not ours has the name of the day."""

    @abstractmethod
    def remove(self, date: str) -> None:
        """Remove one day: only what has a manifest of ours, and never half of it."""

    def close(self) -> None:
        return None


def busy(name: str) -> Busy:
    """The error for a place for backups that is locked."""
    return Busy(f"somebody is using the backups in {name} just now", hint="try again when it is done")


def readable_manifests(place: BackupPlace) -> Iterator[Manifest]:
    """The manifests in a place, newest first; the log names those that cannot be read."""
    for date in reversed(place.dates()):
        try:
            yield place.manifest(date)
        except (Invalid, Unavailable, NotFound) as problem:
            log.warning("%s", problem)


# ---- shared by all transfers ----------------------------------------------------------------------------


def refuse_overlap(store: Store, workspace: str, place: str, objects: Objects | None, what: str) -> None:
    """Raise Invalid for a folder or prefix (`objects`) that lies among the notes of a workspace, or around them."""
    if objects is not None and store.objects is not None and objects.service != store.objects.service:
        return  # two buckets of one name
    ours = os.path.realpath(place) if objects is None else objects.location
    notes = os.path.realpath(store.full_path(NotePath(""))) if store.objects is None else store.objects.location
    ours, notes = f"{ours.rstrip('/')}/", f"{notes.rstrip('/')}/"
    if ours.startswith(notes):
        words = f"{what} is inside the workspace {workspace}"
    elif notes.startswith(ours):
        words = f"the workspace {workspace} lies in {what}"
    else:
        return
    raise Invalid(f"{words} ({place})", hint="choose one beside it", what="to")


@contextmanager
def os_errors_as_problems(place: str | Path, *, but_for: Collection[int] = ()) -> Iterator[None]:
    """Turn errors of the system into Problems, except for these error numbers."""
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


def run_each(call: Callable[[_Item], _Answer], items: Iterable[_Item], threads: int) -> Iterator[_Answer]:
    """Call it for each item, in several threads where the calls wait for a service; the answers in order."""
    if threads == 1:
        yield from map(call, items)
        return
    pool = ThreadPoolExecutor(threads, thread_name_prefix="transfer")
    try:
        yield from pool.map(call, items)
    finally:
        pool.shutdown(cancel_futures=True)
