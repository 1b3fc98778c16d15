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
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO

from notewright.engine.changes.batch_write import IncomingFile, SkippedFile, UnreadableFile
from notewright.errors import Forbidden, Invalid, NotFound, TooLarge
from notewright.notes.path import MAX_PATH_BYTES, NotePath
from notewright.stores.base import Store

MOST_ENTRIES = 200_000  # in a zip file
MOST_BYTES = 4 << 30  # in a zip file, unpacked
MAX_RATIO = 200  # so many times larger than it is packed: text never is
UNCHECKED_BYTES = 1 << 20  # bytes below which that is not looked at
_READ = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}  # the others unpack a piece of any size at once
_ENCRYPTED, _UTF8 = 0x1 | 0x40 | 0x2000, 0x800
_UNSPEAKABLE = re.compile("[\ud800-\udfff]")
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class StoreSource:
    """Notes in a bucket, read as a workspace there would be."""

    store: Store
    name: str


Source = str | os.PathLike[str] | BinaryIO | StoreSource
SourceFile = IncomingFile | SkippedFile  # under its name in the source


def source_files(source: Source) -> Iterator[SourceFile]:
    """The files of a folder, zip file or bucket. Invalid for what is none, NotFound for nothing, TooLarge for too
    much."""
    if isinstance(source, StoreSource):
        return _store_files(source.store)
    if isinstance(source, str | os.PathLike):
        place = os.path.realpath(os.path.expanduser(source))
        if os.path.isdir(place):
            return _folder_files(place)
        if not os.path.exists(place):
            raise NotFound(f"{os.fspath(source)} is not there", hint="name a folder or a zip file", what="file")
        source = place
    return _zip_files(source)


# ---- a zip file ---------------------------------------------------------------------------------------


def _zip_files(source: str | BinaryIO) -> Iterator[SourceFile]:
    try:
        archive = zipfile.ZipFile(source)
    except (zipfile.BadZipFile, ValueError, RuntimeError, OverflowError, EOFError, OSError) as error:
        raise Invalid(f"that is no zip file that can be read: {error}", hint="pack it again", what="source") from None
    total, count = 0, len(archive.infolist())
    with archive:
        if count > MOST_ENTRIES:
            words = f"the zip file has {count:,} entries; the most is {MOST_ENTRIES:,}"
            raise TooLarge(words, hint="split it", size=count, limit=MOST_ENTRIES)
        for info in archive.infolist():
            if info.is_dir():
                continue
            if (against := _against(info)) is not None:
                yield SkippedFile(_name(info), *against)
                continue
            total += info.file_size
            if total > MOST_BYTES:
                words = f"the zip file holds more than {MOST_BYTES:,} bytes"
                raise TooLarge(words, hint="split it", size=total, limit=MOST_BYTES)
            yield IncomingFile(NotePath(_name(info)), info.file_size, partial(_unpack, archive, info))


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
    for odd in store.unlisted_files():
        yield SkippedFile(odd.path, "bad_name", odd.why)


def _fetch(store: Store, path: NotePath) -> bytes:
    try:
        return store.read(path).data
    except (NotFound, Forbidden) as problem:
        raise UnreadableFile("unreadable", problem.message) from None


# ---- a folder -----------------------------------------------------------------------------------------


def _folder_files(name: str, inside: int | None = None, path: str = "") -> Iterator[SourceFile]:
    """Every file beneath a folder `inside` an open one; `path` is that of the folder, with a slash. No symlink is
    followed, whatever anybody puts there meanwhile. A file is to be fetched before the next one is asked for."""
    try:
        with ExitStack() as opened:
            folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=inside)
            opened.callback(os.close, folder)
            for each in sorted(opened.enter_context(os.scandir(folder)), key=lambda each: each.name):
                if _UNSPEAKABLE.search(each.name):
                    shown = f"{path}{each.name}".encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
                    yield SkippedFile(shown, "bad_name", "its name is not text")
                elif each.is_symlink():
                    yield SkippedFile(path + each.name, "symlink", "it is a symlink")
                elif each.is_file(follow_symlinks=False):
                    size = each.stat(follow_symlinks=False).st_size
                    yield IncomingFile(NotePath(path + each.name), size, partial(_read, folder, each.name, size))
                elif not each.is_dir(follow_symlinks=False):
                    yield SkippedFile(path + each.name, "special", "it is not a regular file")
                elif each.name.startswith("."):
                    yield SkippedFile(f"{path}{each.name}/", "dotted", "it begins with a dot")
                elif len(path) + len(each.name) > MAX_PATH_BYTES:  # nor can anything in it be a note
                    yield SkippedFile(f"{path}{each.name}/", "bad_name", f"it is longer than {MAX_PATH_BYTES} bytes")
                else:
                    yield from _folder_files(each.name, folder, f"{path}{each.name}/")
    except OSError as error:
        yield SkippedFile(path.rstrip("/") or ".", "unreadable", _describe(error))


def _read(folder: int, name: str, size: int) -> bytes:
    try:
        with open(os.open(name, _FILE, dir_fd=folder), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UnreadableFile("special", "it is not a regular file any more")
            data = file.read(size + 1)
    except OSError as error:
        raise UnreadableFile("unreadable", _describe(error)) from None
    if len(data) > size:
        raise UnreadableFile("unreadable", "it grew while it was read")
    return data


def _describe(error: OSError) -> str:
    return f"it cannot be read: {(error.strerror or str(error)).lower()}"
