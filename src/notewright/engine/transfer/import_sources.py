"""Where files are imported from: a folder, a zip file or a bucket, none of them trusted.

Each file arrives with its name as the source says it, and with what speaks against it already: a symlink, a name that
cannot be read, an entry made to swell. Nothing is written anywhere but where the engine puts it, so a name like
`../x` is only a bad name.
"""

import os
import re
import stat
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO

from notewright.engine.changes.batch_write import IncomingFile, SkippedFile, UnreadableFile
from notewright.errors import Forbidden, Invalid, NotFound, TooLarge
from notewright.notes.path import NotePath
from notewright.stores.base import Store

MOST_ENTRIES = 200_000  # in a zip file
MOST_BYTES = 4 << 30  # in a zip file, unpacked
MAX_RATIO = 200  # so many times larger than it is packed: text never is
UNCHECKED_BYTES = 1 << 20  # bytes below which that is not looked at
_READ = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}  # the others unpack a piece of any size at once
_ENCRYPTED, _UTF8 = 0x1 | 0x40 | 0x2000, 0x800
_UNSPEAKABLE = re.compile("[\ud800-\udfff]")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class StoreSource:
    """Notes in a bucket, read as a workspace there would be."""

    store: Store
    name: str


Source = str | os.PathLike[str] | BinaryIO | StoreSource
SourceFile = IncomingFile | SkippedFile  # under its name in the source


@contextmanager
def source_files(source: Source) -> Iterator[Iterator[SourceFile]]:
    """The files of a folder, zip file or bucket. Invalid for what is none, NotFound for nothing, TooLarge for too
    much."""
    if isinstance(source, StoreSource):
        yield _store_files(source.store)
        return
    if isinstance(source, str | os.PathLike):
        place = os.path.realpath(os.path.expanduser(source))
        if os.path.isdir(place):
            yield _folder_files(place)
            return
        if not os.path.exists(place):
            raise NotFound(f"{os.fspath(source)} is not there", hint="name a folder or a zip file", what="file")
        source = place
    with _open_zip(source) as archive:
        yield _zip_files(archive)


# ---- a zip file ---------------------------------------------------------------------------------------


@contextmanager
def _open_zip(source: str | BinaryIO) -> Iterator[zipfile.ZipFile]:
    try:
        archive = zipfile.ZipFile(source)
    except (zipfile.BadZipFile, ValueError, RuntimeError, OverflowError, EOFError, OSError) as error:
        raise Invalid(f"that is no zip file that can be read: {error}", hint="pack it again", what="source") from None
    with archive:
        count = len(archive.infolist())
        if count > MOST_ENTRIES:
            words = f"the zip file has {count:,} entries; the most is {MOST_ENTRIES:,}"
            raise TooLarge(words, hint="split it", size=count, limit=MOST_ENTRIES)
        yield archive


def _zip_files(archive: zipfile.ZipFile) -> Iterator[SourceFile]:
    total = 0
    for info in archive.infolist():
        name = _name(info)
        if info.is_dir():
            continue
        if (against := _against(info)) is not None:
            yield SkippedFile(name, *against)
            continue
        total += info.file_size
        if total > MOST_BYTES:
            words = f"the zip file holds more than {MOST_BYTES:,} bytes"
            raise TooLarge(words, hint="split it", size=total, limit=MOST_BYTES)
        yield IncomingFile(NotePath(name), info.file_size, partial(_unpack, archive, info))


def _name(info: zipfile.ZipInfo) -> str:
    """The name as it was meant. Many packers write UTF-8 and do not say so; what is none is read as the format says."""
    raw = info.orig_filename
    if info.flag_bits & _UTF8:
        return raw
    try:
        return raw.encode("cp437").decode()
    except UnicodeError:
        return raw


def _against(info: zipfile.ZipInfo) -> tuple[str, str] | None:
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind == stat.S_IFLNK:
        return "symlink", "it is a symlink"
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "special", "it is not a regular file"
    if info.flag_bits & _ENCRYPTED:
        return "encrypted", "it is encrypted"
    if info.compress_type not in _READ:
        return "unreadable", "it is packed in a way that is not unpacked here; use deflate"
    if info.file_size > UNCHECKED_BYTES and info.file_size > MAX_RATIO * max(1, info.compress_size):
        return "bomb", f"it would swell from {info.compress_size:,} to {info.file_size:,} bytes"
    return None


def _unpack(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    try:
        with archive.open(info) as file:
            data = file.read(info.file_size + 1)
    except Exception as error:  # zlib, struct, zipfile and codecs each have their own
        raise UnreadableFile("damaged", f"it cannot be unpacked: {error}") from None
    if len(data) != info.file_size:
        raise UnreadableFile("damaged", "it is not as long as it says")
    return data


# ---- a bucket ------------------------------------------------------------------------------------------


def _store_files(store: Store) -> Iterator[SourceFile]:
    for entry in store.entries():
        yield IncomingFile(entry.path, entry.size, partial(_fetch, store, entry.path))
    for odd in store.oddities():
        yield SkippedFile(odd.path, "bad_name", odd.why)


def _fetch(store: Store, path: NotePath) -> bytes:
    try:
        return store.read(path).data
    except (NotFound, Forbidden) as problem:
        raise UnreadableFile("unreadable", problem.message) from None


# ---- a folder -----------------------------------------------------------------------------------------


def _folder_files(root: str) -> Iterator[SourceFile]:
    """Every file beneath, folder by folder. No symlink is followed."""
    left = [""]
    while left:
        folder = left.pop()
        try:
            with _enter(root, folder) as handle, os.scandir(handle) as names:
                entries = [_entry(root, folder, each) for each in sorted(names, key=lambda each: each.name)]
        except OSError as error:
            yield SkippedFile(folder or ".", "unreadable", _describe(error))
            continue
        for one in entries:
            if isinstance(one, str):
                left.append(one)
            else:
                yield one


def _entry(root: str, folder: str, each: "os.DirEntry[str]") -> SourceFile | str:
    """What arrives, or the path of a folder to look into."""
    path = f"{folder}/{each.name}" if folder else each.name
    if _UNSPEAKABLE.search(each.name):
        shown = path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        return SkippedFile(shown, "bad_name", "its name is not text")
    if each.is_symlink():
        return SkippedFile(path, "symlink", "it is a symlink")
    if each.is_dir(follow_symlinks=False):
        return SkippedFile(f"{path}/", "dotted", "it begins with a dot") if each.name.startswith(".") else path
    if not each.is_file(follow_symlinks=False):
        return SkippedFile(path, "special", "it is not a regular file")
    size = each.stat(follow_symlinks=False).st_size
    return IncomingFile(NotePath(path), size, partial(_read, root, folder, each.name, size))


def _read(root: str, folder: str, name: str, size: int) -> bytes:
    try:
        with _enter(root, folder) as handle, open(os.open(name, _FILE, dir_fd=handle), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UnreadableFile("special", "it is not a regular file any more")
            data = file.read(size + 1)
    except OSError as error:
        raise UnreadableFile("unreadable", _describe(error)) from None
    if len(data) > size:
        raise UnreadableFile("unreadable", "it grew while it was read")
    return data


@contextmanager
def _enter(root: str, folder: str) -> Iterator[int]:
    """A folder beneath the root, open; through no symlink, whatever anybody put there meanwhile."""
    handle = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in folder.split("/") if folder else ():
            inner = os.open(name, _FOLDER, dir_fd=handle)
            os.close(handle)
            handle = inner
        yield handle
    finally:
        os.close(handle)


def _describe(error: OSError) -> str:
    return f"it cannot be read: {(error.strerror or str(error)).lower()}"
