"""A workspace as one zip file: every file its caller may see, in the order of their paths."""

import struct
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import BinaryIO, cast

from notewright.engine.changes.batch_write import SkippedFile
from notewright.engine.workspace import Workspace
from notewright.errors import NotFound, Problem
from notewright.stores.base import Entry

_FIRST, _LAST = (1980, 1, 1, 0, 0, 0), (2107, 12, 31, 23, 59, 58)  # all a zip file can say of a time
_UNIX = 3
_FILE = 0o100644 << 16


@dataclass
class Exported:
    """What a zip file holds, and what is not in it though its caller may see it."""

    files: int = 0
    size: int = 0  # bytes of the files
    skipped: tuple[SkippedFile, ...] = ()


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
    seen = (entry for entry in ws.store.entries() if ws.access.sees(entry.path))
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry in sorted(seen, key=lambda entry: entry.path):
            if entry.kind == "symlink":
                if entry.real and ws.access.sees(entry.real):
                    done.skipped += (SkippedFile(entry.path, "symlink", f"it is a symlink to {entry.real}"),)
                continue
            try:
                stored = ws.store.read(entry.path)
            except NotFound:
                continue  # deleted meanwhile
            except Problem as problem:
                done.skipped += (SkippedFile(entry.path, "unreadable", problem.message),)
                continue
            archive.writestr(_zip_info(stored.entry), stored.data)
            done.files += 1
            done.size += len(stored.data)
            yield


def _zip_info(entry: Entry) -> zipfile.ZipInfo:
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
