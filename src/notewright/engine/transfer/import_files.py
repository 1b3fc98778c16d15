"""Import files from a folder, a zip file or a bucket into a workspace, and report what was left out and why.

The rules for new files apply: names that work everywhere, sizes, quotas, where the caller may write. It is one change
set, or a few for many files, so that undo takes it back. No source is trusted: each file comes with its name as the
source says it, or with a reason to skip it (a symlink, a name that cannot be read, a zip bomb). Only the change set
writes, so a name like `../x` is only a bad name.
"""

import os
import re
import stat
import unicodedata
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO

from notewright.engine.changes.batch_write import BatchResult, IncomingFile, SkippedFile, UnreadableFile, write_files
from notewright.engine.changes.quotas import find_remaining_quota
from notewright.engine.transfer.backup import Report
from notewright.engine.transfer.manifest import refuse_overlap
from notewright.engine.workspace import Workspace
from notewright.engine.write import refuse_twin
from notewright.errors import Forbidden, Invalid, NotFound, Problem, ReadOnly, TooLarge
from notewright.notes.path import MAX_PATH_BYTES, NotePath, name_problem, path_key
from notewright.stores.base import Entry, Store, parents

MAX_ZIP_ENTRIES = 200_000
MAX_ZIP_BYTES = 4 << 30  # unpacked
MAX_RATIO = 200  # of unpacked to packed bytes of a file: text never packs better
MIN_RATIO_BYTES = 1 << 20  # smaller files are not checked for it
_READABLE = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}  # the others unpack a piece of any size at once
_ENCRYPTED, _UTF8 = 0x1 | 0x40 | 0x2000, 0x800
_SURROGATES = re.compile("[\ud800-\udfff]")
_OPEN_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_SYSTEM_FILES = {"__macosx", "thumbs.db", "desktop.ini"}  # what systems put into folders and zip files for themselves


@dataclass(frozen=True, slots=True)
class StoreSource:
    """Notes in a bucket, read as a workspace there would be."""

    store: Store
    name: str


Source = str | os.PathLike[str] | BinaryIO | StoreSource
SourceFile = IncomingFile | SkippedFile  # under its name in the source


@dataclass(frozen=True)
class ImportResult(BatchResult):
    """What was imported, or would be."""

    dry_run: bool = False

    def record(self) -> dict[str, Any]:
        """The result as JSON values for programs."""
        record = {**super().record(), "dry_run": self.dry_run}
        del record["deleted"]
        return record


def import_files(
    ws: Workspace,
    source: Source,
    *,
    into: str = "",
    overwrite: bool = False,
    dry_run: bool = False,
    report: Report = lambda done, total: None,
) -> ImportResult:
    """Import a folder, zip file or bucket under the folder `into`. Existing files stay, unless `overwrite`."""
    if ws.access.read_only:
        raise ReadOnly("this workspace is read-only", hint="ask its owner to allow writing")
    origin = ""
    if isinstance(source, StoreSource):
        refuse_overlap(ws.store, ws.name, source.name, source.store.objects, "the bucket to import")
        origin = f" from {source.name}"
    elif isinstance(source, str | os.PathLike):
        place = os.path.expanduser(os.fspath(source))
        if os.path.isdir(place):
            refuse_overlap(ws.store, ws.name, place, None, "the folder to import")
        name = os.path.basename(os.fspath(source).rstrip("/"))
        origin = f" from {os.fsencode(name).decode('utf-8', 'replace')}"
    folder = ""
    if into.strip("/"):
        path = NotePath.parse(unicodedata.normalize("NFC", into.strip("/")))
        if problem := name_problem(path):
            raise Invalid(f"{into!r} cannot be a folder: {problem}", hint="choose another name", what="into")
        refuse_twin(ws, path)
        folder, origin = path, f"{origin} into {path}"
    ws.follower.refuse_if_lost()
    result = write_files(
        ws,
        map(_Admission(ws, folder, overwrite).admit_or_skip, _read_source(source)),
        summary=lambda count: f"imported {count} file{'' if count == 1 else 's'}{origin}",
        overwrite=overwrite,
        dry_run=dry_run,
        report=lambda done: report(done, None),
    )
    return ImportResult(**vars(result), dry_run=dry_run)


class _Admission:
    """Checks which files may come in, each as if those before it were there already."""

    def __init__(self, ws: Workspace, folder: str, overwrite: bool) -> None:
        self.ws, self.folder, self.overwrite = ws, folder, overwrite
        # None: a file of this import
        self.there: dict[NotePath, Entry | None] = {entry.path: entry for entry in ws.store.entries()}
        self.kinds: dict[str, dict[str, str]] = {}  # by path key, then by spelling: "file" or "folder"
        for path in self.there:
            self._add_name(path)
        self.room = find_remaining_quota(ws)

    def admit_or_skip(self, file: SourceFile) -> SourceFile:
        """The file under its name in the workspace, or why it is skipped."""
        try:
            return self._admit(file)
        except UnreadableFile as refused:
            return refused.to_skipped(file.path)

    def _admit(self, file: SourceFile) -> IncomingFile:
        pieces = file.path.split("/")
        if any(piece.lower() in _SYSTEM_FILES for piece in pieces):
            raise UnreadableFile("rubbish", "it is of the system, not of the notes")
        if any(piece.startswith(".") and piece not in (".", "..") for piece in pieces):
            raise UnreadableFile("dotted", "a name in it begins with a dot")
        if isinstance(file, SkippedFile):
            raise UnreadableFile(file.reason, file.words)
        name = f"{self.folder}/{file.path}" if self.folder else file.path
        try:
            path = NotePath.parse(unicodedata.normalize("NFC", name))
        except Invalid as problem:
            raise UnreadableFile("bad_name", problem.message) from None
        if words := name_problem(path):
            raise UnreadableFile("bad_name", words)
        try:
            self.ws.access.may_write(path)
        except Problem as problem:
            raise UnreadableFile("not_allowed", str(problem)) from None
        if file.size > self.ws.limits.note_bytes:
            most = self.ws.limits.note_bytes
            raise UnreadableFile("too_large", f"it has {file.size:,} bytes; the most is {most:,}")
        there = self.there.get(path)
        if path not in self.there:
            self._refuse_twin(path)
        elif there is None:
            raise UnreadableFile("twice", "it is in there twice; the first one was taken")
        elif there.kind == "symlink":
            raise UnreadableFile("symlink", "a symlink is there, and those are not written through")
        if there is None or self.overwrite:
            more = {"files": 0, "bytes": file.size - there.size} if there else {"files": 1, "bytes": file.size}
            for unit, left in self.room.items():
                if left is not None and more[unit] > max(left, 0):
                    raise UnreadableFile("quota", f"the workspace may hold no more {unit}")
            self.room = {unit: None if left is None else left - more[unit] for unit, left in self.room.items()}
        self.there[path] = None
        self._add_name(path)
        return file._replace(path=path)

    def _add_name(self, path: NotePath) -> None:
        for place in (path, *parents(path)):
            spellings = self.kinds.setdefault(path_key(place), {})
            if place in spellings:
                break
            spellings[place] = "file" if place == path else "folder"

    def _refuse_twin(self, path: NotePath) -> None:
        """A new name must not be another spelling of an existing one, nor a file where a folder is, or the reverse. The
        words name nothing that the caller may not see."""
        for place in (*reversed(parents(path)), path):
            spellings = self.kinds.get(path_key(place), {})
            other_kind = "folder" if place == path else "file"
            there = next((name for name, kind in spellings.items() if kind == other_kind), None)
            words = f"{there} is a {other_kind}"
            if there is None and spellings and place not in spellings:
                there = next(iter(spellings))
                words = f"there is {there}, the same name in another spelling"
            if there is not None and self.ws.access.sees(there):
                raise UnreadableFile("exists", words)
            if there is not None:
                raise UnreadableFile("not_allowed", "writing there is not allowed")


def _read_source(source: Source) -> Iterator[SourceFile]:
    """The files of a folder, zip file or bucket. Invalid for anything else, NotFound where nothing is there, TooLarge
    beyond the bounds of a zip file."""
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
        if count > MAX_ZIP_ENTRIES:
            words = f"the zip file has {count:,} entries; the most is {MAX_ZIP_ENTRIES:,}"
            raise TooLarge(words, hint="split it", size=count, limit=MAX_ZIP_ENTRIES)
        for info in archive.infolist():
            if info.is_dir():
                continue
            name = _zip_name(info)
            if (refusal := _refuse_entry(info)) is not None:
                yield SkippedFile(name, *refusal)
                continue
            total += info.file_size
            if total > MAX_ZIP_BYTES:
                words = f"the zip file holds more than {MAX_ZIP_BYTES:,} bytes"
                raise TooLarge(words, hint="split it", size=total, limit=MAX_ZIP_BYTES)
            yield IncomingFile(NotePath(name), info.file_size, partial(_unpack, archive, info))


def _zip_name(info: zipfile.ZipInfo) -> str:
    """The name of an entry. Many packers write UTF-8 without its flag; what is not UTF-8 is CP437, by the format."""
    raw = info.orig_filename
    if info.flag_bits & _UTF8:
        return raw
    try:
        return raw.encode("cp437").decode()
    except UnicodeError:
        return raw


def _refuse_entry(info: zipfile.ZipInfo) -> tuple[str, str] | None:
    """Why an entry is skipped, as a word and in words; None for a regular one."""
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind == stat.S_IFLNK:
        return "symlink", "it is a symlink"
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "special", "it is not a regular file"
    if info.flag_bits & _ENCRYPTED:
        return "encrypted", "it is encrypted"
    if info.compress_type not in _READABLE:
        return "unreadable", "it is packed in a way that is not unpacked here; use deflate"
    if info.file_size > MIN_RATIO_BYTES and info.file_size > MAX_RATIO * max(1, info.compress_size):
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
    """Every file beneath the folder `name` of the open folder `inside`; `path` is its own, with a slash. No symlink is
    followed, whatever is put there meanwhile. A file must be fetched before the next one is asked for."""
    try:
        with ExitStack() as opened:
            folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=inside)
            opened.callback(os.close, folder)
            for each in sorted(opened.enter_context(os.scandir(folder)), key=lambda each: each.name):
                if _SURROGATES.search(each.name):
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
        with open(os.open(name, _OPEN_FLAGS, dir_fd=folder), "rb") as file:
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
