"""A workspace as one zip file: every file its caller may see, in the order of their paths."""

import struct
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import BinaryIO, cast

from notewright.engine.changes.batch_write import SkippedFile
from notewright.engine.workspace import Workspace
from notewright.errors import NotFound, Problem
from notewright.stores.base import Entry, Stored

_FIRST, _LAST = (1980, 1, 1, 0, 0, 0), (2107, 12, 31, 23, 59, 58)  # all a zip file can say of a time
_UNIX = 3
_FILE = 0o100644 << 16


@dataclass(frozen=True, slots=True)
class Exported:
    """What a zip file holds, and what is not in it though its caller may see it."""

    files: int
    size: int  # bytes of the files
    skipped: tuple[SkippedFile, ...] = ()


def export_zip(ws: Workspace, out: BinaryIO) -> Exported:
    """Write the zip file to `out`, which need not be able to go back: one file of it is in memory at a time."""
    packing = _Packing(ws)
    for _ in packing.into(out):
        pass
    return packing.result()


def zip_pieces(ws: Workspace) -> Iterator[bytes]:
    """The same zip file in pieces, made as they are asked for."""
    pieces = _Pieces()
    for _ in _Packing(ws).into(cast(BinaryIO, pieces)):
        yield from pieces.taken()
    yield from pieces.taken()


class _Pieces:
    """What was written and not taken yet. It cannot go back, and says so."""

    def __init__(self) -> None:
        self._waiting: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._waiting.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        return None

    def taken(self) -> list[bytes]:
        taken, self._waiting = [piece for piece in self._waiting if piece], []
        return taken


@dataclass
class _Packing:
    ws: Workspace
    files: int = 0
    size: int = 0
    skipped: list[SkippedFile] = field(default_factory=list)

    def into(self, out: BinaryIO) -> Iterator[None]:
        """Yields after each file."""
        seen = (entry for entry in self.ws.store.entries() if self.ws.access.sees(entry.path))
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            for entry in sorted(seen, key=lambda entry: entry.path):
                stored = self._read(entry)
                if stored is not None:
                    archive.writestr(_named(stored.entry), stored.data)
                    self.files += 1
                    self.size += len(stored.data)
                    yield

    def _read(self, entry: Entry) -> Stored | None:
        if entry.kind == "symlink":
            if entry.real and self.ws.access.sees(entry.real):
                self.skipped.append(SkippedFile(entry.path, "symlink", f"it is a symlink to {entry.real}"))
            return None
        try:
            return self.ws.store.read(entry.path)
        except NotFound:
            return None  # deleted meanwhile
        except Problem as problem:
            self.skipped.append(SkippedFile(entry.path, "unreadable", problem.message))
            return None

    def result(self) -> Exported:
        return Exported(self.files, self.size, tuple(self.skipped))


def _named(entry: Entry) -> zipfile.ZipInfo:
    """Name and time. The time is said twice: to two seconds in UTC, as all can read, and exactly, as most can."""
    seconds = entry.modified_ns // 1_000_000_000
    info = zipfile.ZipInfo(entry.path, _civil(seconds))
    info.compress_type = zipfile.ZIP_DEFLATED
    info.create_system, info.external_attr = _UNIX, _FILE
    if -(1 << 31) <= seconds < 1 << 31:
        info.extra = struct.pack("<HHBl", 0x5455, 5, 1, seconds)
    return info


def _civil(seconds: int) -> tuple[int, int, int, int, int, int]:
    try:
        when = datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return _FIRST
    return max(_FIRST, min(_LAST, (when.year, when.month, when.day, when.hour, when.minute, when.second)))
