"""Notes as files in a folder that people and their editors use at the same time.

Reading opens through no symlink and believes no file that an editor has just emptied. Writing lays the new bytes
beside, swaps the names and looks at what came out (`exchange.py`); what came out is looked at once more later
(`leftovers.py`). Serving a folder changes nothing in it; nothing is kept open between calls, so its disk can be
unmounted, and every call then says Unavailable.
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

from notewright.errors import Busy, Exists, Unavailable
from notewright.notes.path import NotePath
from notewright.stores.base import (
    Entry,
    OpId,
    Store,
    Stored,
    UnlistedFile,
    Version,
    changed_error,
    not_found_error,
    parents,
    version_of,
)
from notewright.stores.folder import listing
from notewright.stores.folder.paths import LOOK, PREFIX, READ, Abilities, Root, leads_nowhere, refusal
from notewright.stores.folder.spelling import Spelling

if TYPE_CHECKING:  # who only reads loads nothing of writing and watching
    from notewright.stores.folder._inotify import Inotify
    from notewright.stores.folder.atomic import AtomicWriter

PATIENCE_S = 2.0  # a file that is not still, or just became empty, is waited for no longer than this
_PAUSE_S = 0.01


class FolderStore(Store):
    """A folder. `able` says what to try; a system that cannot is found out by trying. The page cache answers at once:
    nothing is gained by several threads."""

    def __init__(self, root: Path, *, able: Abilities | None = None) -> None:
        self._root = Root(os.fspath(root), able or Abilities())
        self.identity = f"{self._root.device:x}-{self._root.inode:x}"
        self._writer: AtomicWriter | None = None
        self._making_writer = threading.Lock()
        self._spelling = Spelling(self._root)
        self._oddities: tuple[UnlistedFile, ...] = ()
        self._pending_watch: Inotify | None = None  # a watch that the next walk over everything puts up
        self._closed = False

    # What is there

    def entries(self, below: str = "", *, bare: bool = False) -> Iterator[Entry]:
        return self._walk(listing.Walk(self._root, bare), below)

    def changed_entries(self, known: dict[str, str], since_ns: int) -> Iterator[Entry]:
        return self._walk(listing.Walk(self._root, known=known, since_ns=since_ns))

    def _walk(self, walk: listing.Walk, below: str = "") -> Iterator[Entry]:
        self._check(None)
        events = None if below else self._pending_watch
        if events is not None:
            walk.entering = events.watch_walked
        yield from walk.files(below)
        if events is not None:
            events.whole.set()
            if self._pending_watch is events:
                self._pending_watch = None
        if not below:
            self._oddities = tuple(walk.odd)
        if walk.strays:
            self._writing.clear_up_later(walk.strays)

    def unlisted_files(self) -> tuple[UnlistedFile, ...]:
        return self._oddities

    def children(self, folder: str, *, hidden: bool = False, bare: bool = False) -> list[Entry]:
        with self._inside(NotePath(folder) if folder else None, hidden) as root:
            return listing.children(self._root, root, folder, hidden=hidden, bare=bare)

    def stat(self, path: NotePath, *, hidden: bool = False) -> Entry:
        self._check(path, hidden)
        if (file := self._open_directly(path, LOOK)) is not None:
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
        with self._root.folder(root, folder) as opened:
            return os.lstat(name, dir_fd=opened)

    def _open_directly(self, path: NotePath, flags: int) -> int | None:
        """A descriptor, where nothing is out of the ordinary."""
        has_lock = self._writer is not None and self._writer.alone.root() is not None
        if has_lock or self._spelling.ignores_case is not False:
            return None
        file = self._root.open_directly(path, flags)
        if file == -1:
            raise not_found_error(path)
        return file

    def read(self, path: NotePath, *, hidden: bool = False) -> Stored:
        self._check(path, hidden)
        if (file := self._open_directly(path, READ)) is not None:
            try:
                stored = self._read(file, path, last=False)
            except OSError:
                stored = None
            finally:
                os.close(file)
            if stored is not None:
                return stored
        with self._inside(path, hidden) as root:
            until = time.monotonic() + PATIENCE_S
            while True:
                file, straight = self._open_file(root, path, hidden)
                try:
                    stored = self._read(file, path, last=time.monotonic() > until)
                finally:
                    os.close(file)
                if stored is not None:
                    return stored if straight else Stored(stored.data, stored.version, self._stat(root, path, hidden))
                time.sleep(_PAUSE_S)

    def _open_file(self, root: int, path: NotePath, hidden: bool) -> tuple[int, bool]:
        """A descriptor, and whether no symlink was on the way."""
        try:
            return self._root.open(root, path), True
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
        real = NotePath(self._root.resolve(root, path))
        self._check(real, hidden)
        return self._root.open(root, real), False

    def _read(self, file: int, path: NotePath, *, last: bool) -> Stored | None:
        """The bytes, or None while they are not to be believed."""
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            raise not_found_error(path)
        if not found.st_size and not last and self._writing.is_fresh(found):
            return None
        data = _read_all(file, found.st_size)
        after = os.fstat(file)
        if not last and (len(data) != found.st_size or after.st_mtime_ns != found.st_mtime_ns):
            return None
        return Stored(data, version_of(data), listing.file_entry(path, found))

    # Changing it

    @property
    def _writing(self) -> "AtomicWriter":
        """Made when something is first written."""
        if self._writer is not None:
            return self._writer
        from notewright.stores.folder.atomic import AtomicWriter

        with self._making_writer:
            self._writer = self._writer or AtomicWriter(self._root)
            return self._writer

    def stage(self, path: NotePath, data: bytes, *, op: OpId, hidden: bool = False) -> None:
        with self._inside(path, hidden, writing=True) as root:
            self._writing.stage(root, path, data, op)

    def write(
        self,
        path: NotePath,
        data: bytes,
        *,
        seen: Version | None,
        op: OpId,
        source: NotePath | None = None,
        settled: bool = False,
        hidden: bool = False,
    ) -> Stored:
        with self._inside(path, hidden, writing=True) as root:
            self._refuse_twin(root, path, seen)
            until = time.monotonic() + PATIENCE_S
            while True:
                stored = self._writing.write(root, path, data, seen, op, settled=settled, moves=source is not None)
                if stored is not None:
                    return stored
                _pause(path, until)

    def delete(self, path: NotePath, *, seen: Version, op: OpId, settled: bool = False, hidden: bool = False) -> None:
        with self._inside(path, hidden, writing=True) as root:
            if not self._spelling.is_exact(root, path):
                return  # what is there is spelled otherwise
            until = time.monotonic() + PATIENCE_S
            while not self._writing.delete(root, path, seen, op, settled=settled):
                _pause(path, until)

    def _refuse_twin(self, root: int, path: NotePath, seen: Version | None) -> None:
        """A name that is there in another spelling: the file system would take it for this one."""
        for taken in (path, *parents(path)) if self._spelling.folds(root) else ():
            if not self._spelling.is_exact(root, taken) and self._is_reached(root, NotePath(taken)):
                if seen is not None:
                    raise changed_error(path, None)
                raise Exists(f"{taken} is there in another spelling", hint="use the name as it is", path=taken)

    def _is_reached(self, root: int, path: NotePath) -> bool:
        try:
            self._lstat(root, path.folder, path.name)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def respell(self, old: NotePath, new: NotePath, *, hidden: bool = False) -> Stored | None:
        with self._inside(new, hidden, writing=True) as root, self._writing.alone.joined():
            if not self._spelling.folds(root) or not self._is_reached(root, old):
                return None
            self._spelling.respell(root, new)
        return self.read(new, hidden=hidden)

    def settle(self, op: OpId, *, emptied: tuple[str, ...] = ()) -> None:
        with self._inside(None, writing=True) as root:
            self._writing.settle(root, op, emptied)

    def sweep(self, folders: Iterable[str]) -> None:
        with self._inside(None, writing=True) as root:
            self._writing.sweep(root, folders)

    @property
    def lock_is_exclusive(self) -> bool:
        return self._writing.alone.is_shared

    def lock(self, path: NotePath | None = None, *, timeout: float = 10.0) -> AbstractContextManager[None]:
        self._check(None)
        return self._writing.alone.held(timeout)

    def changes(self, stop: threading.Event, *, walked: bool = False) -> Iterator[frozenset[NotePath] | None]:
        self._check(None)
        from notewright.stores.folder.watch import watch

        return watch(self._root, stop, self.healthy, self._keep_pending_watch if walked else None)

    def _keep_pending_watch(self, events: "Inotify") -> None:
        self._pending_watch = events

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

    def _inside(self, path: NotePath | None, hidden: bool = False, *, writing: bool = False) -> "_Inside":
        """The root, open, for a path that may be asked for (None: itself); what the system says is a Problem."""
        self._check(path, hidden)
        locked = None if self._writer is None else self._writer.alone.root()
        inside = _Inside(self._root.enter() if locked is None else locked, path or "", writing, locked is None)
        if path is not None and not writing and not self._spelling.is_exact(inside.root, path):
            with inside:
                raise not_found_error(path)
        return inside

    def _check(self, path: NotePath | None, hidden: bool = False) -> None:
        if self._closed:
            raise Unavailable("the notes are closed")
        if path is None:
            return
        if leads_nowhere(path) or (path.is_hidden and (not hidden or f"/{path}".find(f"/{PREFIX}") >= 0)):
            raise not_found_error(path)


class _Inside:
    """The root for the length of a block, `own` where it was opened for that. Not a generator, for speed."""

    __slots__ = ("_own", "_path", "_writing", "root")

    def __init__(self, root: int, path: str, writing: bool, own: bool) -> None:
        self.root, self._path, self._writing, self._own = root, path, writing, own

    def __enter__(self) -> int:
        return self.root

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._own:
            os.close(self.root)
        if isinstance(error, OSError):
            raise refusal(error, self._path, writing=self._writing) from error


def _pause(path: NotePath, until: float) -> None:
    if time.monotonic() > until:
        raise Busy(f"{path} is being changed by another program", hint="try again in a moment", path=path)
    time.sleep(_PAUSE_S)


def _read_all(file: int, size: int) -> bytes:
    data = os.read(file, size + 1)
    if len(data) == size:
        return data
    pieces = [data]
    while data := os.read(file, 1 << 20):
        pieces.append(data)
    return b"".join(pieces)
