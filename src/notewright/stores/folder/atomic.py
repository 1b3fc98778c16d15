"""The changes to one folder: what is laid beside for which change set, which folders were made, what is durable.

Everything here happens alone among our threads and processes (`lock.py`), so that only foreign programs can interfere.
"""

import errno
import os
import stat
import threading
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field

from notewright.disk_sync import Sync
from notewright.errors import Exists, Forbidden
from notewright.notes.path import NotePath
from notewright.stores.base import OpId, Stored, Version, changed_error, parents, version_of
from notewright.stores.folder import exchange
from notewright.stores.folder.leftovers import Leftover, Leftovers
from notewright.stores.folder.listing import file_entry, stamp_of
from notewright.stores.folder.lock import Alone
from notewright.stores.folder.paths import PREFIX, READ, Opened, Root, exists
from notewright.stores.folder.temp_names import (
    TempName,
    copy_metadata,
    digest,
    digest_open,
    is_living,
    temp_name,
    write_temp,
)

STILL_NS = 150_000_000  # a file changed from outside is not believed to be whole for so long
_REMEMBERED = 4096
_NOTHING = nullcontext(None)


@dataclass(frozen=True, slots=True)
class _TempFile:
    """A temp file, and the state of the file its metadata was copied from, looked at before that."""

    name: TempName
    version: Version
    like: tuple[int, ...] | None


@dataclass
class _Op:
    """What one change set has laid beside, made and touched so far."""

    laid: dict[NotePath, _TempFile] = field(default_factory=dict)
    made: list[str] = field(default_factory=list)
    touched: dict[str, Sync | None] = field(default_factory=dict)  # folders, where it has begun with their sync
    laying: Sync | None = None  # of the file that was laid last

    def wait(self) -> None:
        """Until all that was laid is on disk."""
        laying, self.laying = self.laying, None
        if laying is not None:
            laying.wait()


class _OldFile:
    """The file that a write replaces, open for the length of a block, as it was when it was opened."""

    __slots__ = ("file", "found")

    def __init__(self, file: int, found: os.stat_result) -> None:
        self.file, self.found = file, found

    def __enter__(self) -> "_OldFile":
        return self

    def __exit__(self, *problem: object) -> None:
        os.close(self.file)


class AtomicWriter:
    def __init__(self, root: Root) -> None:
        self.alone = Alone(root)
        self._root = root
        self._asides = Leftovers(root, self.alone, self._follows)
        self._ops: dict[OpId, _Op] = {}
        self._guard = threading.Lock()  # of what is remembered, oldest first
        self._own: dict[str, None] = {}  # stamps of files as this process left them
        self._replaced: dict[Version, Version | None] = {}  # what each version we wrote took the place of

    def is_fresh(self, found: os.stat_result) -> bool:
        """Somebody else changed it a moment ago and may not be done."""
        return abs(time.time_ns() - found.st_mtime_ns) < STILL_NS and stamp_of(found) not in self._own

    def stage(self, root: int, path: NotePath, data: bytes, op: OpId) -> None:
        with self.alone.joined():
            pending, version = self._ops.setdefault(op, _Op()), version_of(data)
            pending.wait()
            with self._entered(root, path, pending.made) as folder, self._old(folder, path) as old:
                self._discard(folder, pending, path)
                laid = temp_name(path.name, op, version)
                pending.laying = write_temp(folder, str(laid), data, None if old is None else old.file)
                pending.laid[path] = _TempFile(laid, version, None if old is None else _state(old.found))

    def write(
        self, root: int, path: NotePath, data: bytes, seen: Version | None, op: OpId, *, settled: bool, moves: bool
    ) -> Stored | None:
        """None if somebody has changed the note just now and it must be waited for. `moves`: something is to be deleted
        after it."""
        with self.alone.joined():
            made: list[str] = []
            if op in self._ops:
                self._ops[op].wait()
            try:
                with (
                    self._entered(root, path, made)
                    if seen is None
                    else self._root.folder_if_there(root, path.folder) as folder
                ):
                    if folder is None:
                        raise changed_error(path, None)
                    # The old file is closed after its folder's sync has begun: the system frees the blocks of one that
                    # is replaced then, which takes a third of a sync.
                    with self._old(folder, path) as old:
                        stored = self._write(folder, path, data, seen, op, old, settled=settled)
                        if stored is not None:
                            self._make_durable(folder, path, op, last=not moves)
                    return stored
            except BaseException:
                self._remove_folders(root, made)
                raise

    def _write(
        self,
        folder: int,
        path: NotePath,
        data: bytes,
        seen: Version | None,
        op: OpId,
        old: _OldFile | None,
        *,
        settled: bool,
    ) -> Stored | None:
        version = version_of(data)
        if old is not None and not settled and self.is_fresh(old.found):
            return None
        current = None if old is None else digest_open(old.file, old.found.st_size)
        if old is not None and current == version:
            return Stored(data, version, file_entry(path, os.fstat(old.file)))
        if old is not None and seen is None:
            raise Exists(f"{path} already exists", path=path)
        if current != seen:
            raise changed_error(path, current)
        laid = self._temp_file(folder, path, data, version, op, old)
        found = self._publish(folder, path, laid, version, seen, old)
        return Stored(data, version, file_entry(path, found))

    def _publish(
        self,
        folder: int,
        path: NotePath,
        laid: TempName,
        version: Version,
        seen: Version | None,
        old: _OldFile | None,
    ) -> os.stat_result:
        """Give what was laid the note's name; it is gone, and the note as it was, if that is refused."""
        file = os.open(str(laid), READ, dir_fd=folder)
        try:
            if seen is None:
                self._root.move_new(folder, str(laid), folder, path.name)
            else:
                if _may_be_changed(folder, path.name, old):
                    exchange.check(folder, path, seen)
                ready = laid.seeing(seen)
                os.rename(str(laid), str(ready), src_dir_fd=folder, dst_dir_fd=folder)
                laid = ready
                if not exchange.replace(self._root, folder, laid, path, version, seen):
                    self._asides.let_go(folder, laid, path)
            found = os.fstat(file)
            self._remember(stamp_of(found), version, seen)
            return found
        except BaseException as error:
            self._put_away(folder, path, laid)
            if isinstance(error, FileExistsError):
                raise Exists(f"{path} already exists", path=path) from None
            raise
        finally:
            os.close(file)

    def _put_away(self, folder: int, path: NotePath, laid: TempName) -> None:
        """Remove what was laid and came to nothing. An editor that saved while names were swapped may have left an
        older save of its own there: that is not ours to remove."""
        found = digest(folder, str(laid))
        if found is None or found[:12] == laid.ours:
            _unlink(folder, str(laid))
        else:
            self._asides.keep(Leftover(path.folder, str(laid), path.name))

    def _temp_file(
        self,
        folder: int,
        path: NotePath,
        data: bytes,
        version: Version,
        op: OpId,
        old: _OldFile | None,
    ) -> TempName:
        """What was staged for this, with the metadata that the old file has now; or written now."""
        pending = self._ops.get(op)
        staged = pending.laid.get(path) if pending else None
        if pending and staged and staged.version == version:
            del pending.laid[path]
            if old is not None and staged.like != _state(old.found):
                with Opened(os.open(str(staged.name), READ, dir_fd=folder)) as file:
                    if copy_metadata(file, old.file):
                        os.fsync(file)
            return staged.name
        if pending:
            self._discard(folder, pending, path)
        laid = temp_name(path.name, op, version)
        sync = write_temp(folder, str(laid), data, None if old is None else old.file)
        try:
            sync.wait()
        except BaseException:
            _unlink(folder, str(laid))
            raise
        return laid

    def delete(self, root: int, path: NotePath, seen: Version, op: OpId, *, settled: bool) -> bool:
        """False if somebody has changed the note just now and it must be waited for."""
        with self.alone.joined(), self._root.folder_if_there(root, path.folder) as folder:
            if folder is None:
                return True
            try:
                with self._old(folder, path) as old:
                    if old is not None and not settled and self.is_fresh(old.found):
                        return False
                    current = None if old is None else digest_open(old.file)
            except Exists:  # a folder is there now
                raise changed_error(path, None) from None
            if current is not None:
                if current != seen:
                    raise changed_error(path, current)
                laid = temp_name(path.name, op).seeing(seen)
                try:
                    exchange.remove(self._root, folder, laid, path, seen)
                finally:
                    self._asides.let_go(folder, laid, path)
            self._make_durable(folder, path, op)
            return True

    def settle(self, root: int, op: OpId, emptied: Iterable[str]) -> None:
        if op not in self._ops and not emptied:
            return  # nothing was staged
        with self.alone.joined():
            pending = self._ops.pop(op, None) or _Op()
            with suppress(OSError):  # of what is to go
                pending.wait()
            for path in list(pending.laid):
                with self._root.folder_if_there(root, path.folder, errno.ELOOP) as folder:
                    if folder is not None:
                        self._discard(folder, pending, path)
            for touched in [name for name, sync in pending.touched.items() if sync is None]:
                with self._root.folder_if_there(root, touched, errno.ELOOP) as folder:
                    pending.touched[touched] = None if folder is None else Sync(os.dup(folder))
            for sync in filter(None, pending.touched.values()):
                sync.wait()
            self._remove_folders(root, [*pending.made, *emptied])

    def sweep(self, root: int, folders: Iterable[str]) -> None:
        with self.alone.joined():
            for each in dict.fromkeys(("", *folders)):  # the root: what lay in a folder that was removed is there
                with self._root.folder_if_there(root, each, errno.ELOOP) as folder:
                    names = [] if folder is None else os.listdir(folder)
                    dead = [name for name in names if folder is not None and _is_dead(folder, name)]
                for name in dead:
                    self._asides.judge(Leftover(each, name))

    def clear_up_later(self, strays: Iterable[tuple[str, str]]) -> None:
        """Look, in the background, at files a listing found lying beside notes; those of the living stay."""
        for each, name in strays:
            with self._root.entered() as root, self._root.folder_if_there(root, each, errno.ELOOP) as folder:
                if folder is not None and _is_dead(folder, name):
                    self._asides.keep(Leftover(each, name))

    def close(self) -> None:
        self._asides.finish()

    def _make_durable(self, folder: int, path: NotePath, op: OpId, *, last: bool = False) -> None:
        """At once, or with `settle` where something was staged: what seems to be the last of it is begun with now, and
        the index is told meanwhile."""
        pending = self._ops.get(op)
        if pending is None:
            os.fsync(folder)
        else:
            alone, earlier = last and not pending.laid and not pending.touched, pending.touched.get(path.folder)
            if earlier is not None:  # this came after it
                earlier.wait()
            pending.touched[path.folder] = Sync(os.dup(folder)) if alone else None

    def _entered(self, root: int, path: NotePath, made: list[str]) -> Opened:
        """The folder a path is in, open for a while. Those that were missing are made, and told."""
        try:
            return self._root.folder(root, path.folder)
        except (FileNotFoundError, NotADirectoryError):
            made += self._make(root, path)
            return self._root.folder(root, path.folder)

    def _make(self, root: int, path: NotePath) -> list[str]:
        """Make the folders a path is in, durably; those that were missing, outermost first."""
        made = list[str]()
        try:
            for inner in reversed(parents(path)):
                outer, _, name = inner.rpartition("/")
                with self._root.folder(root, outer) as folder:
                    if not exists(folder, name):
                        with suppress(FileExistsError):  # another program made it in this moment
                            os.mkdir(name, dir_fd=folder)
                            made.append(inner)
                            os.fsync(folder)
                    if stat.S_IFMT(os.lstat(name, dir_fd=folder).st_mode) not in (stat.S_IFDIR, stat.S_IFLNK):
                        raise Exists(f"{inner} is a file, not a folder", path=inner)
        except BaseException:
            self._remove_folders(root, made)
            raise
        return made

    def _remove_folders(self, root: int, folders: Iterable[str]) -> None:
        """Remove those that are empty, innermost first."""
        for each in sorted(set(folders), key=lambda folder: folder.count("/"), reverse=True):
            outer, _, name = each.rpartition("/")
            with self._root.folder_if_there(root, outer, errno.ELOOP) as folder:
                if folder is not None and self._lift(root, each):
                    try:
                        os.rmdir(name, dir_fd=folder)
                    except OSError:  # something has come into it
                        continue
                    os.fsync(folder)

    def _lift(self, root: int, path: str) -> bool:
        """Move what lies aside in a folder to the root, where whoever looks at it will find it; False if the folder
        holds anything else."""
        with self._root.folder_if_there(root, path, errno.ELOOP, errno.EACCES) as folder:
            names = [] if folder is None else os.listdir(folder)
            if folder is None or not all(name.startswith(PREFIX) for name in names):
                return False
            with suppress(OSError):  # on another disk than the root: the folder stays for now
                for name in names:
                    os.rename(name, name, src_dir_fd=folder, dst_dir_fd=root)
            return True

    def _old(self, folder: int, path: NotePath) -> AbstractContextManager[_OldFile | None]:
        """The file at a path, open for a while, None if nothing is there. What may not be replaced is refused."""
        try:
            file = os.open(path.name, READ, dir_fd=folder)
        except FileNotFoundError:
            return _NOTHING
        except OSError as error:
            if error.errno == errno.ENXIO:
                raise _special(path) from None
            raise
        try:
            found = os.fstat(file)
            _refuse_unless_writable(folder, path, file, found.st_mode)
        except BaseException:
            os.close(file)
            raise
        return _OldFile(file, found)

    def _discard(self, folder: int, pending: _Op, path: NotePath) -> None:
        laid = pending.laid.pop(path, None)
        if laid is not None:
            _unlink(folder, str(laid.name))

    def _remember(self, stamp: str, version: Version, seen: Version | None) -> None:
        with self._guard:
            self._own[stamp] = None
            self._replaced[version] = seen
            for kept in (self._own, self._replaced):
                if len(kept) > _REMEMBERED:
                    kept.pop(next(iter(kept)))

    def _follows(self, version: Version, first: str) -> bool:
        """From bytes that begin so to these only we have written: what lies between is in the history."""
        step: Version | None = version
        for _ in range(_REMEMBERED):
            if step is None or step[:12] == first:
                return step is not None
            step = self._replaced.get(step)
        return False


def _refuse_unless_writable(folder: int, path: NotePath, file: int, mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise Exists(f"{path} is a folder", path=path)
    if not stat.S_ISREG(mode):
        raise _special(path)
    if not os.access(path.name, os.W_OK, dir_fd=folder):
        if os.fstatvfs(file).f_flag & os.ST_RDONLY:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        raise Forbidden(f"{path} is write-protected", hint="change its permissions first", path=path)


def _is_dead(folder: int, name: str) -> bool:
    """It was laid by a process that is no more."""
    laid = TempName.parse(name)
    return laid is not None and not is_living(laid, folder)


def _may_be_changed(folder: int, name: str, old: _OldFile | None) -> bool:
    """It is another file than the old one, or was written to, as far as its times tell."""
    try:
        now = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return True
    return old is None or _state(now) != _state(old.found)


def _state(found: os.stat_result) -> tuple[int, ...]:
    """Other numbers when it is another file, or its bytes, mode, owner or attributes changed: times alone do not tell
    two changes within a tick of the clock."""
    return found.st_ino, found.st_ctime_ns, found.st_mtime_ns, found.st_size, found.st_mode, found.st_uid, found.st_gid


def _special(path: NotePath) -> Forbidden:
    return Forbidden(f"{path} is not a regular file", hint="choose another name", path=path)


def _unlink(folder: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        pass
