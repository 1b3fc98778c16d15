"""What a backup says of itself: which files of which workspaces it holds, and what their bytes must be. And what places
must be able to do: those that backups are kept in, and those that files are copied out to."""

import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

from notewright.engine.changes.batch_write import SkippedFile, UnreadableFile
from notewright.errors import Invalid, NotFound, Unavailable
from notewright.notes.path import NotePath
from notewright.stores.base import Entry, Store

log = logging.getLogger(__name__)

NAME = ".notewright-backup.json"  # begins with a dot, so it is never in the place of a note
_MARK = "notewright-backup"
_FORMAT = 1
AT_ONCE = 32  # objects of a bucket that are read or written at the same time
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


class NewBackup(Protocol):
    """The backup of a day that is being made. Calls may come from several threads; places are paths in the backup. What
    has a body here can be left out."""

    def put(self, place: str, data: bytes, *, modified_ns: int, mode: int | None = None) -> None: ...

    def link(self, date: str, old: str, place: str, kept: BackedUpFile) -> bool:
        """The file of an earlier day once more. False where it is not as it was left there, or cannot be had."""
        ...

    def carry(self, date: str, old: str, place: str, kept: BackedUpFile) -> bool:
        """The same, as a copy if need be; False where it is not there as it was."""
        ...

    def copies_from(self, store: Store) -> bool:
        """Whether `copy_from` may be tried at all."""
        return False

    def copy_from(self, store: Store, entry: Entry, place: str) -> bool:
        """A file of the workspace, copied inside the service. False where it has to be read and `put`."""
        return False

    def point(self, place: str, real: str) -> None:
        """A symlink to another file of the backup, for who browses it, where there are symlinks."""
        return None

    def drop(self, place: str) -> None:
        """Not this one after all."""
        ...

    def finish(self, manifest: Manifest) -> None:
        """Durable, and in its place."""
        ...

    def abandon(self) -> None:
        """Without it the next backup of the day goes on with what is there."""
        return None


class BackupPlace(Protocol):
    """A folder or bucket of dated backups, each whole by itself (`backup_folder.py`, `backup_bucket.py`)."""

    at_once: int = 1  # files that are worth taking at the same time

    @property
    def name(self) -> str:
        """As people write it."""
        ...

    def overlap(self, store: Store) -> str | None:
        """`inside` where the backups would lie among these notes, `around` the other way round."""
        ...

    def make(self) -> None:
        """Be there."""
        ...

    def check(self) -> None:
        """NotFound where there is no such place."""
        return None

    def alone(self) -> AbstractContextManager[None]:
        """The only one who changes backups here, or Busy."""
        ...

    def still(self) -> AbstractContextManager[None]:
        """Nobody changes backups here meanwhile, or Busy; others may read too."""
        ...

    def dates(self) -> list[str]:
        """The days there is a whole backup of, oldest first."""
        ...

    def manifest(self, date: str) -> Manifest:
        """What the backup of a day holds; Invalid where that cannot be read."""
        ...

    def read(self, date: str, place: str, kept: BackedUpFile) -> tuple[bytes, int | None]:
        """The bytes of a file, and its mode; UnreadableFile where they are not those that were kept."""
        ...

    def begin(self, date: str) -> NewBackup:
        """Exists where something that is not ours has the name of the day."""
        ...

    def remove(self, date: str) -> None:
        """Remove one day: only what has a manifest of ours, and never half of it."""
        ...

    def close(self) -> None:
        return None


def readable_manifests(place: BackupPlace) -> Iterator[Manifest]:
    """Those that can be read, newest first."""
    for date in reversed(place.dates()):
        try:
            yield place.manifest(date)
        except (Invalid, Unavailable, NotFound) as problem:
            log.warning("%s", problem)


# ---- what a place that files are copied out to can do --------------------------------------------------


class FetchedFile(NamedTuple):
    data: bytes
    modified_ns: int
    mode: int | None = None


@dataclass(frozen=True, slots=True)
class OutgoingFile:
    """A file that is to be copied out. `fetch` may raise UnreadableFile, and is None where it is gone meanwhile."""

    name: str
    fetch: Callable[[], FetchedFile | None]


class Putting(Protocol):
    """What takes new files, one call for each; `at_once` of them at the same time."""

    at_once: int = 1

    def put(self, place: str, data: bytes, *, modified_ns: int, mode: int | None = None) -> None:
        """A new file; UnreadableFile where this one cannot be there."""
        ...


class Destination(Putting, Protocol):
    """An empty place for files: a folder or a prefix of a bucket."""

    @property
    def name(self) -> str:
        """As people write it."""
        ...

    def overlap(self, store: Store) -> str | None:
        """`inside` where it lies among these notes, `around` the other way round."""
        ...

    def make(self) -> None:
        """Be there. Exists where it is not empty."""
        ...

    def point(self, place: str, real: str) -> None:
        """A symlink to another file of it, where there are symlinks."""
        return None

    def sync(self) -> None:
        """Durable, all of it."""
        return None

    def close(self) -> None:
        return None


def copy_out(
    files: Iterable[OutgoingFile], to: Putting | None, at_once: int
) -> Iterator[tuple[str, int] | SkippedFile | None]:
    """Copy the files, in no order: name and size of each, why it was left out, or None for what is gone. Without a
    destination they are only looked at."""

    def copy(file: OutgoingFile) -> tuple[str, int] | SkippedFile | None:
        try:
            found = file.fetch()
            if found is not None and to is not None:
                to.put(file.name, found.data, modified_ns=found.modified_ns, mode=found.mode)
        except UnreadableFile as left_out:
            return left_out.skipped(file.name)
        return None if found is None else (file.name, len(found.data))

    return run_each(copy, files, at_once)


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
