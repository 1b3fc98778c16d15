"""What a backup says of itself: which files of which workspaces it holds, and what their bytes must be. And what a
folder or bucket of backups must be able to do."""

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
AT_ONCE = 32  # objects of a bucket that are read or written at the same time
# The destination does not take this file (its name, its size, a twin on a disk without capitals) but may take others.
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
    beside: bool = field(default=False, compare=False)  # that is not in its place yet


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
        """Where a file of this workspace lies in the backup."""
        return f"{self.folder}/{path}" if self.folder else path

    def is_same(self, id: str, location: str) -> bool:
        """Whether this is that workspace, be it under another name."""
        return self.id == id or self.location == location != ""


@dataclass(frozen=True, slots=True)
class Manifest:
    """A whole backup. `errors` is what it could not hold."""

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
        """The same with each file changed, which is told with its place."""
        parts = (
            replace(part, files={path: change(part.place(path), kept) for path, kept in part.files.items()})
            for part in self.parts
        )
        return replace(self, parts=tuple(parts))


def dump_manifest(manifest: Manifest) -> bytes:
    """The manifest as it lies in the backup: JSON that a person can read, the mark first."""
    document = {
        _MARK: _FORMAT,
        "date": manifest.date,
        "made": manifest.made,
        "errors": list(manifest.errors),
        "workspaces": {part.id: _dump_part(part) for part in manifest.parts},
    }
    return json.dumps(document, ensure_ascii=False, indent=1).encode()


def _dump_part(part: WorkspacePart) -> dict[str, Any]:
    files = {path: _dump_file(kept) for path, kept in sorted(part.files.items())}
    links = dict(sorted(part.links.items()))
    return {"name": part.name, "location": part.location, "folder": part.folder, "files": files, "links": links}


def _dump_file(kept: BackedUpFile) -> dict[str, Any]:
    return {key: value for key, value in asdict(kept).items() if value != "" and value is not False}


def parse_manifest(raw: bytes, date: str) -> Manifest:
    """The manifest that was written so. Invalid for anything else, and for paths that would lead out of the backup."""
    try:
        document = json.loads(raw)
        if document[_MARK] != _FORMAT:  # the folder says the date: it may be a copy of another day
            raise ValueError("it is of another version")
        parts = tuple(_parse_part(id, table) for id, table in document["workspaces"].items())
        return Manifest(date, str(document["made"]), parts, tuple(map(str, document["errors"])))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, Invalid) as error:
        hint = "choose another date, or copy the files by hand"
        raise Invalid(f"the list of the backup {date} cannot be read: {error}", hint=hint, what="backup") from None


def _parse_part(id: str, table: Mapping[str, Any]) -> WorkspacePart:
    folder = table["folder"]
    if folder not in ("", id) or "/" in id:
        raise ValueError(f"{folder!r} is not the folder of a workspace")
    files = {_parse_path(path): _parse_file(entry) for path, entry in table["files"].items()}
    links = {_parse_path(path): str(_parse_path(real)) for path, real in table["links"].items()}
    return WorkspacePart(str(_parse_path(id)), str(table["name"]), str(table["location"]), folder, files, links)


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


# ---- what a place for backups can do ------------------------------------------------------------------


class NewBackup(ABC):
    """The backup of a day that is being made, and the newest one `before` it, which may be of the same day. Calls may
    come from several threads; places are paths in the backup."""

    def __init__(self, backups: "BackupPlace", date: str) -> None:
        self.backups, self.date = backups, date
        self.before = next(readable_manifests(backups), None)

    @abstractmethod
    def put(self, place: str, data: bytes, *, modified_ns: int, mode: int | None = None) -> None: ...

    @abstractmethod
    def link(self, old: str, place: str, kept: BackedUpFile) -> bool:
        """The file of the backup before once more. False where it is not as it was left there, or cannot be had."""

    def carry(self, old: str, place: str, kept: BackedUpFile) -> bool:
        """The same, as a copy if need be; False where it is not there as it was."""
        assert self.before is not None
        try:
            with problems(place, but_for=THIS_FILE_ONLY):
                if not self.link(old, place, kept):
                    data, _ = self.backups.read(self.before.date, old, kept)
                    self.put(place, data, modified_ns=kept.modified_ns)
        except (UnreadableFile, OSError):
            return False
        return True

    def copy_from(self, store: Store, entry: Entry, place: str) -> bool:
        """A file of the workspace, copied inside the service. False where it has to be read and `put`."""
        return False

    def point(self, place: str, real: str) -> None:
        """A symlink to another file of the backup, for who browses it, where there are symlinks."""
        return None

    @abstractmethod
    def drop(self, place: str) -> None:
        """Not this one after all."""

    @abstractmethod
    def finish(self, manifest: Manifest) -> None:
        """Durable, and in its place."""

    def abandon(self) -> None:
        """Without it the next backup of the day goes on with what is there."""
        return None


class BackupPlace(ABC):
    """A folder or bucket of dated backups, each whole by itself (`backup_folder.py`, `backup_bucket.py`)."""

    at_once: int = 1  # files that are worth taking at the same time
    objects: Objects | None = None

    def __init__(self, name: str) -> None:
        self.name = name  # as people write it

    @abstractmethod
    def locked(self, *, alone: bool = False) -> AbstractContextManager[None]:
        """Nobody changes backups here meanwhile, or Busy. Others may read too, unless somebody wants to be `alone` and
        change them: then the place is made if it is not there."""

    @abstractmethod
    def dates(self) -> list[str]:
        """The days there is a whole backup of, oldest first. NotFound where there is no such place."""

    @abstractmethod
    def manifest(self, date: str) -> Manifest:
        """What the backup of a day holds; Invalid where that cannot be read."""

    @abstractmethod
    def read(self, date: str, place: str, kept: BackedUpFile) -> tuple[bytes, int | None]:
        """The bytes of a file, and its mode; UnreadableFile where they are not those that were kept."""

    @abstractmethod
    def begin(self, date: str) -> NewBackup:
        """Exists where something that is not ours has the name of the day."""

    @abstractmethod
    def remove(self, date: str) -> None:
        """Remove one day: only what has a manifest of ours, and never half of it."""

    def busy(self) -> Busy:
        return Busy(f"somebody is using the backups in {self.name} just now", hint="try again when it is done")

    def close(self) -> None:
        return None


def readable_manifests(place: BackupPlace) -> Iterator[Manifest]:
    """Those that can be read, newest first."""
    for date in reversed(place.dates()):
        try:
            yield place.manifest(date)
        except (Invalid, Unavailable, NotFound) as problem:
            log.warning("%s", problem)


# ---- what all of them need ------------------------------------------------------------------------------


def refuse_overlap(store: Store, workspace: str, place: str, objects: Objects | None, what: str) -> None:
    """Invalid for a folder or prefix (`objects`) that lies among the notes of a workspace, or around them."""
    if objects is not None or store.objects is not None:
        if objects is None or store.objects is None:
            return
        if (objects.service, objects.bucket) != (store.objects.service, store.objects.bucket):
            return
        ours, notes = objects.prefix, store.objects.prefix
    else:
        ours, notes = os.path.realpath(place), os.path.realpath(store.full_path(NotePath("")))
        if not os.path.isdir(notes):
            return  # not in a folder of this machine
    ours, notes = (f"{path.rstrip('/')}/" if path else "" for path in (ours, notes))
    if ours.startswith(notes):
        words = f"{what} is inside the workspace {workspace}"
    elif notes.startswith(ours):
        words = f"the workspace {workspace} lies in {what}"
    else:
        return
    raise Invalid(f"{words} ({place})", hint="choose one beside it", what="to")


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


def run_each(call: Callable[[_Item], _Answer], items: Iterable[_Item], at_once: int) -> Iterator[_Answer]:
    """All of them, several at once where they wait for a service."""
    if at_once == 1:
        yield from map(call, items)
        return
    pool = ThreadPoolExecutor(at_once, thread_name_prefix="transfer")
    try:
        yield from pool.map(call, items)
    finally:
        pool.shutdown(cancel_futures=True)
