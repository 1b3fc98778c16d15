"""Lists folders without reading files: one `stat` a file, no symlink followed on the way."""

import errno
import os
import re
import stat
from collections.abc import Callable, Iterator
from functools import cache
from operator import attrgetter
from typing import Literal

from notewright.errors import NotFound
from notewright.lazy_dataclass import dataclass, field
from notewright.notes.path import NotePath
from notewright.stores.base import Entry, UnlistedFile, select_changed
from notewright.stores.folder.paths import FOLDER_FLAGS, TEMP_PREFIX, Root, translate_os_error

_DATALESS = 0x40000000  # macOS: the bytes are in the cloud. Linux has no such mark, and guessing by blocks is wrong
_HAS_FLAGS = hasattr(os.stat_result, "st_flags")
MAX_UNLISTED = 1000
_STAMP = "%x-%x-%x-%x"  # several times as fast as four formats of an f-string
_new = tuple.__new__  # of an Entry: half the time of calling it
_name_of = attrgetter("name")


@cache
def _odd_name_pattern() -> re.Pattern[str]:
    """Finds what `NotePath.parse` refuses in a name that exists: control characters, backslashes, bytes that are not
    UTF-8. Compiled for the first listing: it takes a millisecond."""
    return re.compile(r"[\x00-\x1f\x7f\\\ud800-\udfff]")


def stamp_of(found: os.stat_result) -> str:
    """A short text that changes when the file is changed or another file takes its name."""
    return _STAMP % (found.st_mtime_ns, found.st_size, found.st_ino, found.st_ctime_ns)


def file_entry(path: NotePath, found: os.stat_result) -> Entry:
    """The entry of a regular file."""
    size, modified = found.st_size, found.st_mtime_ns
    # `stamp_of` inlined: a listing of 100,000 files spends most of its own time in this function.
    stamp = _STAMP % (modified, size, found.st_ino, found.st_ctime_ns)
    kind: Literal["file", "placeholder"] = "file"
    if _HAS_FLAGS and found.st_flags & _DATALESS:  # type: ignore[attr-defined]
        kind = "placeholder"
    return _new(Entry, (path, kind, stamp, size, modified, None, found.st_mode, found.st_atime_ns, None))


def bare_entry(path: NotePath) -> Entry:
    """The entry of a regular file without a stat: the folder's listing has its name and kind alone."""
    return _new(Entry, (path, "file", "", 0, 0, None, None, None, None))


def entry_of(root: Root, inside: int, path: NotePath, found: os.stat_result, *, hidden: bool = False) -> Entry | None:
    """The entry of whatever is at `path`, `found` being its own stat; None for what does not exist for us: special
    files, symlinks that lead out, in a circle or (unless `hidden`) behind a dot."""
    if stat.S_ISLNK(found.st_mode):
        return _link_entry(root, inside, path, found, hidden=hidden)
    return plain_entry(path, found)


def plain_entry(path: NotePath, found: os.stat_result) -> Entry | None:
    """The entry of a file or a folder, None for anything else."""
    if stat.S_ISREG(found.st_mode):
        return file_entry(path, found)
    if stat.S_ISDIR(found.st_mode):
        return Entry(path, "folder", stamp_of(found), 0, found.st_mtime_ns, None, found.st_mode, found.st_atime_ns)
    return None


def _link_entry(root: Root, inside: int, path: NotePath, found: os.stat_result, *, hidden: bool) -> Entry | None:
    try:
        with root.open_folder(inside, root.resolve(inside, path.folder)) as folder:
            raw = os.readlink(path.name, dir_fd=folder)
    except OSError:
        return None
    target, real = raw.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), None
    try:
        real = root.resolve(inside, path)
        end = _lstat_resolved(root, inside, real, hidden)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            return None
        end = None  # a folder on the way may not be entered
    own = stamp_of(found)
    if end is None:
        return Entry(path, "symlink", own, 0, 0, target, real=real)
    if not (stat.S_ISREG(end.st_mode) or stat.S_ISDIR(end.st_mode)):
        return None
    size, stamp = end.st_size if stat.S_ISREG(end.st_mode) else 0, f"{own}>{stamp_of(end)}"
    return Entry(path, "symlink", stamp, size, end.st_mtime_ns, target, end.st_mode, end.st_atime_ns, real)


def _lstat_resolved(root: Root, inside: int, real: str, hidden: bool) -> os.stat_result | None:
    """The stat of what is at a resolved path, None if nothing is; FileNotFoundError if it is hidden."""
    where = NotePath(real)
    if (where.is_hidden and not hidden) or where.name.startswith(TEMP_PREFIX):
        raise FileNotFoundError(errno.ENOENT, "it leads behind a dot", real)
    try:
        if not real:
            return os.fstat(inside)
        with root.open_folder(inside, where.folder) as folder:
            return os.lstat(where.name, dir_fd=folder)
    except (FileNotFoundError, NotADirectoryError):
        return None


@dataclass
class Walk:
    """One listing of everything. `unlisted` and `temp_files` are complete when it has ended. `known` and `since_ns`:
    only what changed, as `Store.changed_entries` says; an unchanged file costs a stat and its stamp, and no entry is
    made of it. `entering` is called with each folder, open, before it is listed."""

    root: Root
    bare: bool = False
    known: dict[str, str] | None = None
    since_ns: int = 0
    entering: Callable[[int, str], None] | None = None
    unlisted: list[UnlistedFile] = field(default_factory=list)
    temp_files: list[tuple[str, str]] = field(default_factory=list)  # folder and name of each

    def files(self, below: str = "") -> Iterator[Entry]:
        """Files and symlinks to files, folder by folder, sorted in each."""
        with self.root.open_root() as inside:
            left = [] if NotePath(below).is_hidden else [below]
            while left:
                folder = left.pop()
                try:
                    opened = self.root.open(inside, folder, FOLDER_FLAGS)
                    try:
                        if self.entering is not None:
                            self.entering(opened, folder)
                        with os.scandir(opened) as names:
                            found = sorted(names, key=_name_of) if self.known is None else list(names)
                        folders, entries = self._convert(inside, folder, found)
                    finally:
                        os.close(opened)
                except OSError as error:
                    self._handle_failure(folder, error)
                    continue
                left += reversed(folders)
                yield from entries
        os.close(self.root.open_root_fd())  # Unavailable if the root went away, so that the listing is not complete

    def _convert(self, inside: int, folder: str, found: list[os.DirEntry[str]]) -> tuple[list[str], list[Entry]]:
        folders, entries, prefix = list[str](), list[Entry](), f"{folder}/" if folder else ""
        bare, known, since_ns = self.bare, self.known, self.since_ns
        all_plain = not _odd_name_pattern().search("".join(map(_name_of, found)))
        for each in found:
            name = each.name
            if name[0] == ".":
                if name.startswith(TEMP_PREFIX):
                    self.temp_files.append((folder, name))
            elif not all_plain and _odd_name_pattern().search(name):
                self._add_unlisted(prefix + name, "its name is not text that can be written in a path")
            elif each.is_file(follow_symlinks=False):
                path = prefix + name
                if bare:
                    entries.append(bare_entry(NotePath(path)))
                    continue
                try:
                    at = each.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                if known is not None:
                    stamp = _STAMP % (at.st_mtime_ns, at.st_size, at.st_ino, at.st_ctime_ns)
                    if known.pop(path, None) == stamp and at.st_mtime_ns <= since_ns:
                        continue
                entries.append(file_entry(NotePath(path), at))
            elif each.is_dir(follow_symlinks=False):
                folders.append(prefix + name)
            elif each.is_symlink():
                try:
                    at = each.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                entry = _link_entry(self.root, inside, NotePath(prefix + name), at, hidden=False)
                if entry is not None and entry.mode is not None and stat.S_ISREG(entry.mode):
                    entries += [entry] if known is None else select_changed([entry], known, since_ns)
        return folders, entries

    def _handle_failure(self, folder: str, error: OSError) -> None:
        """Pass over a folder that went away or became something else; raise where one that exists would look empty."""
        if error.errno in (errno.EACCES, errno.EPERM):
            self._add_unlisted(folder, "it may not be read")
        elif error.errno == errno.ENAMETOOLONG:
            self._add_unlisted(folder, "its path is too long for the system")
        elif error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP) or not folder:
            raise translate_os_error(error, folder)

    def _add_unlisted(self, path: str, why: str) -> None:
        if len(self.unlisted) < MAX_UNLISTED:
            shown = path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
            self.unlisted.append(UnlistedFile(shown, why))


def children(root: Root, inside: int, folder: str, *, hidden: bool, bare: bool) -> list[Entry]:
    """The entries directly in a folder, which may be reached through symlinks that stay inside."""
    real = root.resolve(inside, folder) if folder else ""
    if NotePath(real).is_hidden and not hidden:
        raise NotFound(f"there is no folder {folder}", what="folder", path=folder)
    prefix, entries = f"{folder}/" if folder else "", list[Entry]()
    with root.open_folder(inside, real) as opened, os.scandir(opened) as names:
        found = sorted(names, key=_name_of)
        all_plain = not _odd_name_pattern().search("".join(map(_name_of, found)))
        for each in found:
            name = each.name
            if name[0] == "." and (not hidden or name.startswith(TEMP_PREFIX)):
                continue
            if not all_plain and _odd_name_pattern().search(name):
                continue
            path, is_file = NotePath(prefix + name), each.is_file(follow_symlinks=False)
            try:
                if is_file:
                    entries.append(bare_entry(path) if bare else file_entry(path, each.stat(follow_symlinks=False)))
                elif entry := entry_of(root, inside, path, each.stat(follow_symlinks=False), hidden=hidden):
                    entries.append(entry)
            except FileNotFoundError:
                continue
    return entries
