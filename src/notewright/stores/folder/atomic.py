"""Writes and deletes notes in a folder so that no other program's save is lost.

A change writes its bytes to a temp file, exchanges its name with the note's, looks at what came out, and swaps back if
it is not what was seen. Comparing first and renaming then would lose what an editor saves in between. Here the exchange
*is* the comparison: once the new bytes have the note's name, what they replaced has the temp name, where it can be
checked without a race. Everything happens under the lock (`lock.py`): only foreign programs write at the same time.
"""

import errno
import os
import stat
import threading
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass, field

from notewright.disk_sync import Sync
from notewright.errors import Busy, Conflict, Exists, Forbidden
from notewright.notes.path import NotePath
from notewright.stores.base import OpId, Stored, Swap, Version, changed_error, parents, version_of
from notewright.stores.folder.leftovers import Leftover, Leftovers, swap_back
from notewright.stores.folder.listing import file_entry, stamp_of
from notewright.stores.folder.lock import FolderLock
from notewright.stores.folder.paths import (
    MAX_WAIT_SECONDS,
    READ_FLAGS,
    RETRY_SECONDS,
    TEMP_PREFIX,
    Descriptor,
    Root,
    exists,
)
from notewright.stores.folder.temp_names import (
    TempName,
    copy_metadata,
    digest_descriptor,
    digest_file,
    is_owner_alive,
    new_temp_name,
    remove_if_safe,
    write_temp,
)

QUIET_NS = 150_000_000  # how long a file that another program changed may be incomplete
MAX_REMEMBERED = 4096
_NO_FILE = nullcontext(None)


@dataclass(frozen=True, slots=True)
class _StagedFile:
    """A temp file, and the state of the file its metadata was copied from, looked at before that."""

    name: TempName
    version: Version
    like: tuple[int, ...] | None


@dataclass
class _Op:
    """What one change set has staged, made and touched so far."""

    staged: dict[NotePath, _StagedFile] = field(default_factory=dict)
    made: list[str] = field(default_factory=list)
    touched: dict[str, Sync | None] = field(default_factory=dict)  # folders, with their sync where it has begun
    syncing: Sync | None = None  # of the file that was staged last

    def wait(self) -> None:
        """Wait until everything staged is on disk."""
        syncing, self.syncing = self.syncing, None
        if syncing is not None:
            syncing.wait()


class _HalfWritten(Exception):
    """Another program may be in the middle of writing the file."""


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
        self.lock = FolderLock(root)
        self._root = root
        self._leftovers = Leftovers(root, self.lock, self._is_successor)
        self._ops: dict[OpId, _Op] = {}
        self._guard = threading.Lock()  # of the two below, oldest first
        self._own: dict[str, None] = {}  # stamps of files as this process left them
        self._replaced: dict[Version, Version | None] = {}  # for each version we wrote, the one before

    def may_be_half_written(self, found: os.stat_result) -> bool:
        """Whether another program changed it a moment ago, and may still be writing it."""
        return abs(time.time_ns() - found.st_mtime_ns) < QUIET_NS and stamp_of(found) not in self._own

    def stage(self, root: int, path: NotePath, data: bytes, op: OpId) -> None:
        with self.lock.ensure_held():
            pending, version = self._ops.setdefault(op, _Op()), version_of(data)
            pending.wait()
            with self._open_parent(root, path, pending.made) as folder, self._open_old(folder, path) as old:
                _unstage(folder, pending, path)
                temp = new_temp_name(path.name, op, version)
                pending.syncing = write_temp(folder, str(temp), data, None if old is None else old.file)
                pending.staged[path] = _StagedFile(temp, version, None if old is None else _state(old.found))

    def swap(self, root: int, swap: Swap, op: OpId) -> Stored | None:
        """`Store.swap`. Waits for a file that another program changed a moment ago; Busy if that goes on."""
        deadline = time.monotonic() + MAX_WAIT_SECONDS
        while True:
            try:
                if swap.data is not None:
                    return self._write(root, swap, swap.data, op)
                self._delete(root, swap, op)
                return None
            except _HalfWritten:
                if time.monotonic() > deadline:
                    what = f"{swap.path} is being changed by another program"
                    raise Busy(what, hint="try again in a moment", path=swap.path) from None
            time.sleep(RETRY_SECONDS)

    def _write(self, root: int, swap: Swap, data: bytes, op: OpId) -> Stored:
        path, made = swap.path, list[str]()
        with self.lock.ensure_held():
            if op in self._ops:
                self._ops[op].wait()
            try:
                with (
                    self._open_parent(root, path, made)
                    if swap.seen is None
                    else self._root.open_folder_if_exists(root, path.folder) as folder
                ):
                    if folder is None:
                        raise changed_error(path, None)
                    # The old file is closed after its folder's sync has begun: the system frees the blocks of one that
                    # is replaced then, which takes a third of a sync.
                    with self._open_old(folder, path) as old:
                        stored = self._replace(folder, swap, data, op, old)
                        self._make_durable(folder, path, op, last=swap.source is None)  # else a delete follows
                    return stored
            except BaseException:
                self._remove_empty_folders(root, made)
                raise

    def _replace(self, folder: int, swap: Swap, data: bytes, op: OpId, old: _OldFile | None) -> Stored:
        path, seen, version, current = swap.path, swap.seen, version_of(data), None
        if old is not None:
            if not swap.settled and self.may_be_half_written(old.found):
                raise _HalfWritten
            current = digest_descriptor(old.file, old.found.st_size)
            if current == version:
                return Stored(data, version, file_entry(path, os.fstat(old.file)))
            if seen is None:
                raise Exists(f"{path} already exists", path=path)
        if current != seen:
            raise changed_error(path, current)
        temp = self._take_temp_file(folder, path, data, version, op, old)
        found = self._publish(folder, path, temp, version, seen, old)
        return Stored(data, version, file_entry(path, found))

    def _take_temp_file(
        self, folder: int, path: NotePath, data: bytes, version: Version, op: OpId, old: _OldFile | None
    ) -> TempName:
        """The staged file with these bytes, with the metadata that the old file has now; or one that is written now."""
        pending = self._ops.get(op)
        staged = pending.staged.get(path) if pending else None
        if pending and staged and staged.version == version:
            del pending.staged[path]
            if old is not None and staged.like != _state(old.found):
                with Descriptor(os.open(str(staged.name), READ_FLAGS, dir_fd=folder)) as file:
                    if copy_metadata(file, old.file):
                        os.fsync(file)
            return staged.name
        if pending:
            _unstage(folder, pending, path)
        temp = new_temp_name(path.name, op, version)
        sync = write_temp(folder, str(temp), data, None if old is None else old.file)
        try:
            sync.wait()
        except BaseException:
            _unlink(folder, str(temp))
            raise
        return temp

    def _publish(
        self, folder: int, path: NotePath, temp: TempName, version: Version, seen: Version | None, old: _OldFile | None
    ) -> os.stat_result:
        """Give a temp file the note's name; it is gone, and the note as it was, if that is refused."""
        file = os.open(str(temp), READ_FLAGS, dir_fd=folder)
        try:
            if seen is None:
                self._root.move_new(folder, str(temp), folder, path.name)
            else:
                try:
                    now = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
                    is_same = old is not None and _state(now) == _state(old.found)
                except OSError:
                    is_same = False
                # Checked first, since writing took long: better not to show what must be taken back, even for a moment.
                if not is_same and (current := digest_file(folder, path.name)) != seen:
                    raise _conflict_error(path, current)
                ready = temp._replace(seen=seen[:12])
                os.rename(str(temp), str(ready), src_dir_fd=folder, dst_dir_fd=folder)
                temp = ready
                if not replace_note(self._root, folder, temp, path, version, seen):
                    self._leftovers.remove_or_schedule(folder, temp, path)
            found = os.fstat(file)
            with self._guard:
                self._own[stamp_of(found)] = None
                self._replaced[version] = seen
                for remembered in (self._own, self._replaced):
                    if len(remembered) > MAX_REMEMBERED:
                        remembered.pop(next(iter(remembered)))
            return found
        except BaseException as error:
            # An editor that saved while names were exchanged may have left an older save of its own under the temp
            # name: that is not ours to remove.
            held = digest_file(folder, str(temp))
            if held is None or held[:12] == temp.ours:
                _unlink(folder, str(temp))
            else:
                self._leftovers.schedule(Leftover(path.folder, str(temp), path.name))
            if isinstance(error, FileExistsError):
                raise Exists(f"{path} already exists", path=path) from None
            raise
        finally:
            os.close(file)

    def _delete(self, root: int, swap: Swap, op: OpId) -> None:
        path, seen = swap.path, swap.seen or ""
        with self.lock.ensure_held(), self._root.open_folder_if_exists(root, path.folder) as folder:
            if folder is None:
                return
            try:
                with self._open_old(folder, path) as old:
                    if old is not None and not swap.settled and self.may_be_half_written(old.found):
                        raise _HalfWritten
                    current = None if old is None else digest_descriptor(old.file)
            except Exists:  # a folder is there now
                raise changed_error(path, None) from None
            if current is not None:
                if current != seen:
                    raise changed_error(path, current)
                temp = new_temp_name(path.name, op)._replace(seen=seen[:12])
                try:
                    remove_note(self._root, folder, temp, path, seen)
                finally:
                    self._leftovers.remove_or_schedule(folder, temp, path)
            self._make_durable(folder, path, op)

    def settle(self, root: int, op: OpId, emptied: Iterable[str]) -> None:
        if op not in self._ops and not emptied:
            return  # nothing was staged
        with self.lock.ensure_held():
            pending = self._ops.pop(op, None) or _Op()
            with suppress(OSError):  # these files are to be removed
                pending.wait()
            for path in list(pending.staged):
                with self._root.open_folder_if_exists(root, path.folder, errno.ELOOP) as folder:
                    if folder is not None:
                        _unstage(folder, pending, path)
            with ExitStack() as syncs:  # all run at the same time, and are waited for even if one fails
                for touched, sync in pending.touched.items():
                    if sync is None:
                        with self._root.open_folder_if_exists(root, touched, errno.ELOOP) as folder:
                            sync = None if folder is None else Sync(os.dup(folder))
                    if sync is not None:
                        syncs.callback(sync.wait)
            self._remove_empty_folders(root, [*pending.made, *emptied])

    def sweep(self, root: int, folders: Iterable[str]) -> None:
        with self.lock.ensure_held():
            for each in dict.fromkeys(("", *folders)):  # the root: temp files of a removed folder are moved there
                with self._root.open_folder_if_exists(root, each, errno.ELOOP) as folder:
                    dead = [] if folder is None else [name for name in os.listdir(folder) if _is_dead(folder, name)]
                for name in dead:
                    self._leftovers.clear_up(Leftover(each, name))

    def schedule_dead_files(self, found: Iterable[tuple[str, str]]) -> None:
        """Have the background thread look at temp files that a listing found; those of living processes stay."""
        for each, name in found:
            with self._root.open_root() as root, self._root.open_folder_if_exists(root, each, errno.ELOOP) as folder:
                if folder is not None and _is_dead(folder, name):
                    self._leftovers.schedule(Leftover(each, name))

    def close(self) -> None:
        self._leftovers.close()

    def _make_durable(self, folder: int, path: NotePath, op: OpId, *, last: bool = False) -> None:
        """At once, or with `settle` where something was staged: the sync of what seems to be the last of it is started
        now, and runs while the index is updated."""
        pending = self._ops.get(op)
        if pending is None:
            os.fsync(folder)
        else:
            is_only = last and not pending.staged and not pending.touched
            earlier = pending.touched.get(path.folder)
            if earlier is not None:  # that sync does not cover this change
                earlier.wait()
            pending.touched[path.folder] = Sync(os.dup(folder)) if is_only else None

    def _open_parent(self, root: int, path: NotePath, made: list[str]) -> Descriptor:
        """Open the folder a path is in. Missing folders are made, durably, and added to `made`, outermost first."""
        try:
            return self._root.open_folder(root, path.folder)
        except (FileNotFoundError, NotADirectoryError):
            pass
        new = list[str]()
        try:
            for inner in reversed(parents(path)):
                outer, _, name = inner.rpartition("/")
                with self._root.open_folder(root, outer) as folder:
                    if not exists(folder, name):
                        with suppress(FileExistsError):  # another program made it in this moment
                            os.mkdir(name, dir_fd=folder)
                            new.append(inner)
                            os.fsync(folder)
                    if stat.S_IFMT(os.lstat(name, dir_fd=folder).st_mode) not in (stat.S_IFDIR, stat.S_IFLNK):
                        raise Exists(f"{inner} is a file, not a folder", path=inner)
        except BaseException:
            self._remove_empty_folders(root, new)
            raise
        made += new
        return self._root.open_folder(root, path.folder)

    def _remove_empty_folders(self, root: int, folders: Iterable[str]) -> None:
        """Remove them, innermost first. Temp files in them are moved to the root, where every `sweep` looks."""
        for each in sorted(set(folders), key=lambda folder: folder.count("/"), reverse=True):
            outer, _, name = each.rpartition("/")
            with self._root.open_folder_if_exists(root, outer, errno.ELOOP) as folder:
                if folder is None:
                    continue
                with self._root.open_folder_if_exists(root, each, errno.ELOOP, errno.EACCES) as inner:
                    left = [] if inner is None else os.listdir(inner)
                    if inner is None or not all(file.startswith(TEMP_PREFIX) for file in left):
                        continue
                    with suppress(OSError):  # on another disk than the root: the folder stays for now
                        for file in left:
                            os.rename(file, file, src_dir_fd=inner, dst_dir_fd=root)
                try:
                    os.rmdir(name, dir_fd=folder)
                except OSError:  # something has come into it
                    continue
                os.fsync(folder)

    def _open_old(self, folder: int, path: NotePath) -> AbstractContextManager[_OldFile | None]:
        """The file at a path, None if nothing is there. What may not be replaced is refused."""
        try:
            file = os.open(path.name, READ_FLAGS, dir_fd=folder)
        except FileNotFoundError:
            return _NO_FILE
        except OSError as error:
            if error.errno == errno.ENXIO:
                raise _special_file_error(path) from None
            raise
        try:
            found = os.fstat(file)
            if stat.S_ISDIR(found.st_mode):
                raise Exists(f"{path} is a folder", path=path)
            if not stat.S_ISREG(found.st_mode):
                raise _special_file_error(path)
            if not os.access(path.name, os.W_OK, dir_fd=folder):
                if os.fstatvfs(file).f_flag & os.ST_RDONLY:
                    raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
                raise Forbidden(f"{path} is write-protected", hint="change its permissions first", path=path)
        except BaseException:
            os.close(file)
            raise
        return _OldFile(file, found)

    def _is_successor(self, version: Version, first: str) -> bool:
        """From bytes whose version begins with `first` to these only we have written: what lies between is in the
        history."""
        step: Version | None = version
        for _ in range(MAX_REMEMBERED):
            if step is None or step[:12] == first:
                return step is not None
            step = self._replaced.get(step)
        return False


def replace_note(root: Root, folder: int, temp: TempName, path: NotePath, ours: Version, seen: Version) -> bool:
    """Give the temp file the note's name. True if what was seen is gone then, False if it has the temp name. Conflict,
    and nothing changed, if what came out is not what was seen."""
    note, name = path.name, str(temp)
    try:
        if not root.exchange(folder, name, note):
            _replace_without_exchange(folder, temp, path, seen)
            return False
    except FileNotFoundError:
        raise changed_error(path, None) from None
    try:
        out, is_gone = remove_if_safe(folder, temp, seen)
    except OSError:
        out, is_gone = "unreadable", False
    if out != seen:
        swap_back(root, folder, name, note, ours)
        raise _conflict_error(path, out)
    return is_gone


def _replace_without_exchange(folder: int, temp: TempName, path: NotePath, seen: Version) -> None:
    """Where the file system has no exchange: look, rename over, look again at the old bytes under a second name. A save
    by rename between the two looks is lost; without an exchange there is no way to see it."""
    note, second = path.name, str(temp._replace(number=f"{temp.number}0"))
    with suppress(OSError):  # no links here: the look before is all there is
        os.link(note, second, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    try:
        found = digest_file(folder, second if exists(folder, second) else note)
        if found != seen:
            raise _conflict_error(path, found)
        os.rename(str(temp), note, src_dir_fd=folder, dst_dir_fd=folder)
        found = digest_file(folder, second)
        if found not in (seen, None):
            os.rename(second, note, src_dir_fd=folder, dst_dir_fd=folder)
            raise _conflict_error(path, found)
        if found:
            os.rename(second, str(temp), src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        if exists(folder, second):
            os.unlink(second, dir_fd=folder)
        raise


def remove_note(root: Root, folder: int, temp: TempName, path: NotePath, seen: Version) -> None:
    """Rename the note to `temp`, if it is there. Conflict, and it stays, if it is not what was seen."""
    note, name = path.name, str(temp)
    try:
        root.move_new(folder, note, folder, name)
    except FileNotFoundError:
        return
    out = digest_file(folder, name)
    if out != seen:
        # FileExistsError: a program has saved the note anew meanwhile; this older save is kept by `leftovers.py`.
        with suppress(FileExistsError):
            root.move_new(folder, name, folder, note)
        raise _conflict_error(path, out)


def _conflict_error(path: NotePath, found: str | None) -> Conflict:
    """The Conflict for a changed note. What `digest_file` gives for an unreadable file is not shown as a version."""
    return changed_error(path, None if found is None or found.startswith("!") else found)


def _unstage(folder: int, pending: _Op, path: NotePath) -> None:
    staged = pending.staged.pop(path, None)
    if staged is not None:
        _unlink(folder, str(staged.name))


def _unlink(folder: int, name: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


def _is_dead(folder: int, name: str) -> bool:
    """Whether it is a temp file of a process that has ended."""
    temp = TempName.parse(name)
    return temp is not None and not is_owner_alive(temp, folder)


def _state(found: os.stat_result) -> tuple[int, ...]:
    """Other numbers when it is another file, or its bytes, mode, owner or attributes changed: times alone do not tell
    two changes within a tick of the clock."""
    return found.st_ino, found.st_ctime_ns, found.st_mtime_ns, found.st_size, found.st_mode, found.st_uid, found.st_gid


def _special_file_error(path: NotePath) -> Forbidden:
    return Forbidden(f"{path} is not a regular file", hint="choose another name", path=path)
