"""Notes as files in a folder that people and their editors use at the same time.

Reading opens through no symlink and does not believe a file that an editor has just emptied. Writing writes a temp
file, exchanges the two names and looks at what came out (`atomic.py`), once more later (`leftovers.py`). Serving a
folder changes nothing in it; nothing is kept open between calls, so its disk can be unmounted, and every call then
raises Unavailable.
"""

import errno
import os
import stat
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from notewright.errors import Exists, Unavailable
from notewright.notes.path import NotePath
from notewright.stores.base import (
    Entry,
    OpId,
    Store,
    Stored,
    Swap,
    UnlistedFile,
    changed_error,
    not_found_error,
    parents,
    version_of,
)
from notewright.stores.folder import listing
from notewright.stores.folder.paths import (
    MAX_WAIT_SECONDS,
    READ_FLAGS,
    RETRY_SECONDS,
    STAT_FLAGS,
    TEMP_PREFIX,
    Abilities,
    Descriptor,
    Root,
    is_impossible_path,
    translate_os_error,
)
from notewright.stores.folder.spelling import Spelling

if TYPE_CHECKING:  # a process that only reads loads nothing of writing and watching
    from notewright.stores.folder.atomic import AtomicWriter
    from notewright.stores.folder.watch import Inotify


class FolderStore(Store):
    """A folder. `able` says what to try; a system that cannot is found out by trying. `read_many` uses no threads: the
    page cache answers at once."""

    def __init__(self, root: Path, *, able: Abilities | None = None) -> None:
        self._root = Root(os.fspath(root), able or Abilities())
        self.identity = f"{self._root.device:x}-{self._root.inode:x}"
        self._writer: AtomicWriter | None = None
        self._making_writer = threading.Lock()
        self._spelling = Spelling(self._root)
        self._unlisted: tuple[UnlistedFile, ...] = ()
        self._pending_watch: Inotify | None = None  # a watch that the next walk over everything completes
        self._closed = False

    # Listing and reading

    def entries(self, below: str = "", *, bare: bool = False) -> Iterator[Entry]:
        return self._walk(listing.Walk(self._root, bare), below)

    def changed_entries(self, known: dict[str, str], since_ns: int) -> Iterator[Entry]:
        return self._walk(listing.Walk(self._root, known=known, since_ns=since_ns))

    def _walk(self, walk: listing.Walk, below: str = "") -> Iterator[Entry]:
        self._check(None)
        pending = None if below else self._pending_watch
        if pending is not None:
            walk.entering = pending.watch_folder
        yield from walk.files(below)
        if pending is not None:
            pending.complete.set()
            if self._pending_watch is pending:
                self._pending_watch = None
        if not below:
            self._unlisted = tuple(walk.unlisted)
        if walk.temp_files:
            self._atomic_writer.schedule_dead_files(walk.temp_files)

    def unlisted_files(self) -> tuple[UnlistedFile, ...]:
        return self._unlisted

    def children(self, folder: str, *, hidden: bool = False, bare: bool = False) -> list[Entry]:
        with self._inside(NotePath(folder) if folder else None, hidden) as root:
            return listing.children(self._root, root, folder, hidden=hidden, bare=bare)

    def stat(self, path: NotePath, *, hidden: bool = False) -> Entry:
        self._check(path, hidden)
        if (file := self._open_directly(path, STAT_FLAGS)) is not None:
            try:
                found = os.fstat(file)
            finally:
                os.close(file)
            if (entry := listing.plain_entry(path, found)) is not None:
                return entry
        with self._inside(path, hidden) as root:
            return self._stat(root, path, hidden)

    def _stat(self, root: int, path: NotePath, hidden: bool) -> Entry:
        try:
            found = self._lstat(root, path.folder, path.name)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            folder = self._root.resolve(root, path.folder)
            self._check(NotePath(folder) if folder else None, hidden)
            found = self._lstat(root, folder, path.name)
        entry = listing.entry_of(self._root, root, path, found, hidden=hidden)
        if entry is None:
            raise not_found_error(path)
        return entry

    def _lstat(self, root: int, folder: str, name: str) -> os.stat_result:
        if not folder:
            return os.lstat(name, dir_fd=root)
        with self._root.open_folder(root, folder) as opened:
            return os.lstat(name, dir_fd=opened)

    def _open_directly(self, path: NotePath, flags: int) -> int | None:
        """A descriptor; None while a lock is held, where case is ignored, or if a symlink is on the way."""
        has_lock = self._writer is not None and self._writer.lock.held_root() is not None
        if has_lock or self._spelling.ignores_case is not False:
            return None
        file = self._root.open_directly(path, flags)
        if file == -1:
            raise not_found_error(path)
        return file

    def read(self, path: NotePath, *, hidden: bool = False) -> Stored:
        self._check(path, hidden)
        stored: Stored | None = None
        if (file := self._open_directly(path, READ_FLAGS)) is not None:
            try:
                stored = self._read(file, path, last=False)
            except OSError:
                pass
            finally:
                os.close(file)
            if stored is not None:
                return stored
        with self._inside(path, hidden) as root:
            deadline = time.monotonic() + MAX_WAIT_SECONDS
            while True:
                real = path
                try:
                    file = self._root.open(root, path)
                except OSError as error:
                    if error.errno != errno.ELOOP:
                        raise
                    real = NotePath(self._root.resolve(root, path))
                    self._check(real, hidden)
                    file = self._root.open(root, real)
                with Descriptor(file):
                    stored = self._read(file, path, last=time.monotonic() > deadline)
                if stored is not None:
                    return stored if real is path else stored._replace(entry=self._stat(root, path, hidden))
                time.sleep(RETRY_SECONDS)

    def _read(self, file: int, path: NotePath, *, last: bool) -> Stored | None:
        """The bytes; None where another program may be in the middle of writing them, except at the `last` try."""
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            raise not_found_error(path)
        if not found.st_size and not last and self._atomic_writer.may_be_half_written(found):
            return None
        data = os.read(file, found.st_size + 1)
        if len(data) != found.st_size:
            pieces = [data]
            while piece := os.read(file, 1 << 20):
                pieces.append(piece)
            data = b"".join(pieces)
        after = os.fstat(file)
        if not last and (len(data) != found.st_size or after.st_mtime_ns != found.st_mtime_ns):
            return None
        return Stored(data, version_of(data), listing.file_entry(path, found))

    # Writing

    @property
    def _atomic_writer(self) -> "AtomicWriter":
        """The writer, made when something is first written."""
        if self._writer is not None:
            return self._writer
        from notewright.stores.folder.atomic import AtomicWriter

        with self._making_writer:
            self._writer = self._writer or AtomicWriter(self._root)
            return self._writer

    def stage(self, path: NotePath, data: bytes, *, op: OpId, hidden: bool = False) -> None:
        with self._inside(path, hidden, writing=True) as root:
            self._atomic_writer.stage(root, path, data, op)

    def swap(self, swap: Swap, *, op: OpId, hidden: bool = False) -> Stored | None:
        path, data, seen = swap.path, swap.data, swap.seen
        if data is None and seen is None:
            return None
        with self._inside(path, hidden, writing=True) as root:
            if data is None and not self._spelling.is_exact(root, path):
                return None  # what is there is spelled otherwise
            for taken in (path, *parents(path)) if data is not None and self._spelling.folds(root) else ():
                # The file system would take a name that is there in another spelling for this one.
                if not self._spelling.is_exact(root, taken) and self._exists(root, NotePath(taken)):
                    if seen is not None:
                        raise changed_error(path, None)
                    raise Exists(f"{taken} is there in another spelling", hint="use the name as it is", path=taken)
            return self._atomic_writer.swap(root, swap, op)

    def _exists(self, root: int, path: NotePath) -> bool:
        try:
            self._lstat(root, path.folder, path.name)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def respell(self, old: NotePath, new: NotePath, *, hidden: bool = False) -> Stored | None:
        with self._inside(new, hidden, writing=True) as root, self._atomic_writer.lock.ensure_held():
            if not self._spelling.folds(root) or not self._exists(root, old):
                return None
            self._spelling.respell(root, new)
        return self.read(new, hidden=hidden)

    def settle(self, op: OpId, *, emptied: tuple[str, ...] = ()) -> None:
        with self._inside(None, writing=True) as root:
            self._atomic_writer.settle(root, op, emptied)

    def sweep(self, folders: Iterable[str]) -> None:
        with self._inside(None, writing=True) as root:
            self._atomic_writer.sweep(root, folders)

    @property
    def lock_is_exclusive(self) -> bool:
        return self._atomic_writer.lock.is_supported

    def lock(self, path: NotePath | None = None, *, timeout: float = 10.0) -> AbstractContextManager[None]:
        self._check(None)
        return self._atomic_writer.lock.hold(timeout)

    def changes(self, stop: threading.Event, *, walked: bool = False) -> Iterator[frozenset[NotePath] | None]:
        self._check(None)
        from notewright.stores.folder.watch import watch

        def offer(inotify: "Inotify") -> None:
            self._pending_watch = inotify

        return watch(self._root, stop, self.healthy, offer if walked else None)

    def full_path(self, path: NotePath) -> str:
        return os.path.join(self._root.path, path)

    def healthy(self) -> bool:
        try:
            with self._inside(None):
                return True
        except Unavailable:
            return False

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            if self._writer is not None:
                self._writer.close()

    def _inside(self, path: NotePath | None, hidden: bool = False, *, writing: bool = False) -> "_OpenedRoot":
        """The root, open, for a path that is allowed (None: the root itself); an OSError in the block becomes a
        Problem."""
        self._check(path, hidden)
        locked = None if self._writer is None else self._writer.lock.held_root()
        root = self._root.open_root_fd() if locked is None else locked
        inside = _OpenedRoot(root, path or "", writing=writing, closes=locked is None)
        if path is not None and not writing and not self._spelling.is_exact(root, path):
            with inside:
                raise not_found_error(path)
        return inside

    def _check(self, path: NotePath | None, hidden: bool = False) -> None:
        if self._closed:
            raise Unavailable("the notes are closed")
        if path is None:
            return
        if is_impossible_path(path) or (path.is_hidden and (not hidden or f"/{TEMP_PREFIX}" in f"/{path}")):
            raise not_found_error(path)


class _OpenedRoot:
    """The root's descriptor for the length of a block; `closes` unless it is the lock's. Not a generator, for speed."""

    __slots__ = ("_closes", "_path", "_root", "_writing")

    def __init__(self, root: int, path: str, *, writing: bool, closes: bool) -> None:
        self._root, self._path, self._writing, self._closes = root, path, writing, closes

    def __enter__(self) -> int:
        return self._root

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._closes:
            os.close(self._root)
        if isinstance(error, OSError):
            raise translate_os_error(error, self._path, writing=self._writing) from error
