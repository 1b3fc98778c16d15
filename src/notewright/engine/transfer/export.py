"""Export a workspace as one zip file, or as plain files in an empty place: every file its caller may see."""

import secrets
import struct
import threading
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import BinaryIO, NamedTuple, cast

from notewright.engine.changes.batch_write import SkippedFile, UnreadableFile
from notewright.engine.transfer.backup_bucket import MAX_KEY_BYTES
from notewright.engine.transfer.backup_folder import copy_mode_and_time
from notewright.engine.transfer.manifest import BUCKET_THREADS, os_errors_as_problems, refuse_overlap, run_each
from notewright.engine.workspace import Workspace
from notewright.errors import Exists, Forbidden, NotFound, Problem
from notewright.notes.path import NotePath
from notewright.stores.base import Store

_MIN_SECONDS, _MAX_SECONDS = 315_532_800, 4_354_819_198  # 1980 to 2107: all a zip file can say of a time
_UNIX = 3
_REGULAR_FILE = 0o100644 << 16


@dataclass
class ExportResult:
    """What was copied, and what was left out."""

    sizes: dict[str, int] = field(default_factory=dict)  # of each file, in bytes
    skipped: list[SkippedFile] = field(default_factory=list)


class FetchedFile(NamedTuple):
    data: bytes
    modified_ns: int
    mode: int | None = None


Fetch = Callable[[], FetchedFile | None]  # may raise UnreadableFile; None: it was deleted meanwhile
Put = Callable[[str, FetchedFile], None]  # may raise UnreadableFile, where this one cannot be there


def copy_files(files: Iterable[tuple[str, Fetch]], put: Put, threads: int, done: ExportResult) -> Iterator[None]:
    """Copy the files, in any order; yields after each."""

    def copy(file: tuple[str, Fetch]) -> None:
        name, fetch = file
        try:
            if (found := fetch()) is not None:
                put(name, found)
                done.sizes[name] = len(found.data)
        except UnreadableFile as left_out:
            done.skipped.append(left_out.to_skipped(name))

    return run_each(copy, files, threads)


@contextmanager
def open_empty_place(store: Store) -> Iterator[tuple[Put, int]]:
    """A function that puts new files there, in a folder with mode and time, and for how many threads. All of it is
    durable at the end. Forbidden where nothing can be written, Exists where something is there."""
    objects, op = store.objects, f"copy-{secrets.token_hex(8)}"
    # In a folder one write at a time: waiting for the folder's own lock ends with an error after a while.
    write_lock = threading.Lock() if objects is None else nullcontext()
    if objects is None:
        if store.children("", hidden=True):
            hint, root = "name a new folder, or restore into the workspace", store.full_path(NotePath("")).rstrip("/")
            raise Exists(f"{root} is not empty", hint=hint, path=root)
    elif objects.refuses_writes:
        raise Forbidden(f"{objects.location}: {objects.refuses_writes}", hint="choose another place")
    elif there := next((one.key for one in objects.below() if not one.key.startswith(".notewright/")), None):
        raise Exists(f"{objects.location} is not empty: {there}", hint="name an empty prefix", path=there)

    def put(name: str, found: FetchedFile) -> None:
        path = NotePath(name)
        place = store.full_path(path)
        if objects is not None and len(place.encode()) > MAX_KEY_BYTES:
            raise UnreadableFile("bad_name", "its name is too long for a bucket")
        try:
            with write_lock:
                store.stage(path, found.data, op=op)  # then each folder is synced once, at the end
                store.write(path, found.data, seen=None, op=op)
        except Exists as problem:
            folded = "this folder takes it for another file with a name like it"
            raise UnreadableFile("exists", problem.message if objects is not None else folded) from None
        if objects is None:
            with os_errors_as_problems(place):
                copy_mode_and_time(place, found.mode, found.modified_ns)

    try:
        yield put, 1 if objects is None else BUCKET_THREADS
    finally:
        store.settle(op)


def export_to(ws: Workspace, store: Store) -> ExportResult:
    """Copy the files to an empty place."""
    assert store.objects is not None
    refuse_overlap(ws.store, ws.name, store.objects.location, store.objects, "the place to export to")
    done = ExportResult()
    with open_empty_place(store) as (put, threads):
        for _ in copy_files(list(_list_files(ws, done)), put, threads, done):
            pass
    return done


def export_zip(ws: Workspace, out: BinaryIO) -> ExportResult:
    """Write the zip file to `out`: one file of it is in memory at a time."""
    done = ExportResult()
    out.writelines(zip_pieces(ws, done))
    return done


def zip_pieces(ws: Workspace, done: ExportResult | None = None) -> Iterator[bytes]:
    """The zip file in pieces, made as they are asked for."""
    done, pieces = done or ExportResult(), _Pieces()
    with zipfile.ZipFile(cast(BinaryIO, pieces), "w", zipfile.ZIP_DEFLATED) as archive:
        for _ in copy_files(list(_list_files(ws, done)), partial(_put_into_zip, archive), 1, done):
            yield from filter(None, pieces)
            pieces.clear()
    yield from filter(None, pieces)


class _Pieces(list[bytes]):
    """An output file that keeps what was written until it is taken; not seekable."""

    def write(self, data: bytes) -> int:
        self.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        return None


def _list_files(ws: Workspace, done: ExportResult) -> Iterator[tuple[str, Fetch]]:
    seen = (entry for entry in ws.store.entries() if ws.access.sees(entry.path))
    for entry in sorted(seen, key=lambda entry: entry.path):
        if entry.kind != "symlink":
            yield entry.path, partial(_fetch, ws, entry.path)
        elif entry.real and ws.access.sees(entry.real):
            done.skipped.append(SkippedFile(entry.path, "symlink", f"it is a symlink to {entry.real}"))
    done.skipped += [
        SkippedFile(odd.path, "unreadable", odd.why)
        for odd in ws.store.unlisted_files()
        if ws.access.sees(NotePath(odd.path))
    ]


def _fetch(ws: Workspace, path: NotePath) -> FetchedFile | None:
    try:
        stored = ws.store.read(path)
    except NotFound:
        return None  # deleted meanwhile
    except Problem as problem:
        raise UnreadableFile("unreadable", problem.message) from None
    return FetchedFile(stored.data, stored.entry.modified_ns, stored.entry.mode)


def _put_into_zip(archive: zipfile.ZipFile, name: str, found: FetchedFile) -> None:
    """Add one file. Its time is written twice: to two seconds in UTC, as every reader knows, and to one, as most do."""
    seconds = found.modified_ns // 1_000_000_000
    info = zipfile.ZipInfo(name, time.gmtime(max(_MIN_SECONDS, min(_MAX_SECONDS, seconds)))[:6])
    info.compress_type = zipfile.ZIP_DEFLATED
    info.create_system, info.external_attr = _UNIX, _REGULAR_FILE
    if -(1 << 31) <= seconds < 1 << 31:
        info.extra = struct.pack("<HHBl", 0x5455, 5, 1, seconds)
    archive.writestr(info, found.data)
