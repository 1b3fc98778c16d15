"""A workspace as one zip file, or as plain files in a bucket: every file its caller may see."""

import struct
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import BinaryIO, cast

from notewright.engine.changes.batch_write import SkippedFile, UnreadableFile
from notewright.engine.transfer.backup import refuse_overlap
from notewright.engine.transfer.manifest import Destination, FetchedFile, OutgoingFile, Putting, copy_out
from notewright.engine.workspace import Workspace
from notewright.errors import NotFound, Problem
from notewright.notes.path import NotePath

_FIRST, _LAST = (1980, 1, 1, 0, 0, 0), (2107, 12, 31, 23, 59, 58)  # all a zip file can say of a time
_UNIX = 3
_FILE = 0o100644 << 16


@dataclass
class Exported:
    """What was exported, and what was not though its caller may see it."""

    files: int = 0
    size: int = 0  # bytes of the files
    skipped: tuple[SkippedFile, ...] = ()


def export_to(ws: Workspace, to: Destination) -> Exported:
    """Copy the files to an empty place."""
    refuse_overlap([ws], to.overlap, to.name, "the place to export to")
    to.make()
    done = Exported()
    for _ in _export(ws, to, done):
        pass
    to.sync()
    return done


def export_zip(ws: Workspace, out: BinaryIO) -> Exported:
    """Write the zip file to `out`, which need not be able to go back: one file of it is in memory at a time."""
    done = Exported()
    for _ in _pack(ws, out, done):
        pass
    return done


def zip_pieces(ws: Workspace) -> Iterator[bytes]:
    """The same zip file in pieces, made as they are asked for."""
    pieces = _Pieces()
    for _ in _pack(ws, cast(BinaryIO, pieces), Exported()):
        yield from filter(None, pieces)
        pieces.clear()
    yield from filter(None, pieces)


class _Pieces(list[bytes]):
    """What was written and not taken yet. It cannot go back, and says so."""

    def write(self, data: bytes) -> int:
        self.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        return None


def _pack(ws: Workspace, out: BinaryIO, done: Exported) -> Iterator[None]:
    """Yields after each file."""
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        yield from _export(ws, _NewZip(archive), done)


def _export(ws: Workspace, to: Putting, done: Exported) -> Iterator[None]:
    for outcome in copy_out(list(_outgoing(ws, done)), to, to.at_once):
        if isinstance(outcome, SkippedFile):
            done.skipped += (outcome,)
        elif outcome is not None:
            done.files += 1
            done.size += outcome[1]
            yield


def _outgoing(ws: Workspace, done: Exported) -> Iterator[OutgoingFile]:
    seen = (entry for entry in ws.store.entries() if ws.access.sees(entry.path))
    for entry in sorted(seen, key=lambda entry: entry.path):
        if entry.kind != "symlink":
            yield OutgoingFile(entry.path, partial(_fetch, ws, entry.path))
        elif entry.real and ws.access.sees(entry.real):
            done.skipped += (SkippedFile(entry.path, "symlink", f"it is a symlink to {entry.real}"),)


def _fetch(ws: Workspace, path: NotePath) -> FetchedFile | None:
    try:
        stored = ws.store.read(path)
    except NotFound:
        return None  # deleted meanwhile
    except Problem as problem:
        raise UnreadableFile("unreadable", problem.message) from None
    return FetchedFile(stored.data, stored.entry.modified_ns, stored.entry.mode)


class _NewZip:
    at_once = 1

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive

    def put(self, place: str, data: bytes, *, modified_ns: int, mode: int | None = None) -> None:
        """Name and time. The time is said twice: to two seconds in UTC, as all can read, and exactly, as most can."""
        seconds = modified_ns // 1_000_000_000
        info = zipfile.ZipInfo(place, _civil(seconds))
        info.compress_type = zipfile.ZIP_DEFLATED
        info.create_system, info.external_attr = _UNIX, _FILE
        if -(1 << 31) <= seconds < 1 << 31:
            info.extra = struct.pack("<HHBl", 0x5455, 5, 1, seconds)
        self._archive.writestr(info, data)


def _civil(seconds: int) -> tuple[int, int, int, int, int, int]:
    try:
        when = datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return _FIRST
    return max(_FIRST, min(_LAST, (when.year, when.month, when.day, when.hour, when.minute, when.second)))
