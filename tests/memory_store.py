"""Notes in memory: for tests and for the simulation, deterministic and with somebody else able to interfere.

A `Disk` is what outlives a process; each `MemoryStore` on it is one process. `step` is called before and after
everything that touches the disk, so that a simulation can switch to another process there, let a foreign editor write,
or raise to be a crash at exactly that point. Drop the store then, call its `die`, and open another on the same disk.

A disk may also be like a bucket (`shuffle`: the writes of a group happen in any order, `keeps_ops`: it knows which
change set wrote a file) or like live documents (`merges`: a change of an older text is carried over
to the newer one).
"""

import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from notewright.errors import Busy, Conflict, Exists, NoSpace, NotFound, Problem, Unavailable
from notewright.notes.edits.merge import merge
from notewright.notes.path import NotePath, path_key
from notewright.stores.base import (
    Entry,
    OpId,
    Store,
    Stored,
    Swap,
    SwapResult,
    Version,
    catch_problem,
    changed_error,
    not_found_error,
    parents,
    version_of,
)

Step = Callable[[str, str], None]  # what is about to happen or has happened, and to which path


@dataclass(frozen=True, slots=True)
class _File:
    data: bytes
    tick: int  # the disk's clock when it was written


@dataclass
class Disk:
    """Files and folders, what was laid beside them, and who holds the lock. `capacity` in bytes, None for no end."""

    capacity: int | None = None
    present: bool = True  # False: unmounted
    folds: bool = False  # names that differ in case alone are one name
    shuffle: Callable[[list[int]], None] | None = None  # the order in which the writes of a group happen
    keeps_ops: bool = False
    merges: bool = False
    ops: dict[str, set[OpId]] = field(default_factory=dict)
    former: dict[str, list[bytes]] = field(default_factory=dict)
    files: dict[str, _File] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    beside: dict[tuple[int, OpId, str], bytes] = field(default_factory=dict)
    holder: int | None = None  # the process that is alone
    sharing: list[tuple[int, str]] = field(default_factory=list)  # processes with the one file that each holds
    locks: dict[str, int] = field(default_factory=dict)  # by name, the process that holds it
    patience: float | None = None  # seconds any lock is waited for, where a simulation wants to say
    processes: int = 0
    living: set[int] = field(default_factory=set)
    tick: int = 0
    feeds: "list[set[str]]" = field(default_factory=list)  # what each watcher has not been told yet
    changed: threading.Condition = field(default_factory=threading.Condition)

    def put(self, path: str, data: bytes | None) -> None:
        """Write or (None) remove a file as a foreign editor does: without looking."""
        with self.changed:
            self.tick += 1
            if self.merges and path in self.files:
                self.former.setdefault(path, []).append(self.files[path].data)
            if data is None:
                self.files.pop(path, None)
            else:
                self.files[path] = _File(data, self.tick)
                self.folders.update(parents(path))
            for feed in self.feeds:
                feed.add(path)
            self.changed.notify_all()

    def used(self) -> int:
        return sum(len(each.data) for each in self.files.values()) + sum(map(len, self.beside.values()))


class MemoryLock:
    """A lock by name that one process on a disk holds."""

    def __init__(self, disk: Disk, name: str) -> None:
        self._disk, self._name = disk, name

    def is_current(self) -> bool:
        return self._name in self._disk.locks

    def release(self, *, last: bool = False) -> None:
        self._disk.locks.pop(self._name, None)


class MemoryStore(Store):
    """One process's view of a disk in memory."""

    def __init__(self, disk: Disk | None = None, *, step: Step | None = None, name: str = "memory") -> None:
        self.disk = disk or Disk()
        self.identity = name
        self.in_order = self.disk.shuffle is None
        self._step = step or (lambda what, path: None)
        self._turn_lost = False
        self._pause = 0.0 if step else 0.01  # a simulation decides by itself who goes on while somebody waits
        with self.disk.changed:
            self.disk.processes += 1
            self._process = self.disk.processes
            self.disk.living.add(self._process)

    def put(self, path: str, data: bytes | None) -> None:
        """A foreign writer: writes or removes without looking."""
        self.disk.put(path, data)

    def die(self) -> None:
        """What the kernel does for a process that was killed: its lock is free, what it laid beside stays."""
        with self.disk.changed:
            self.disk.living.discard(self._process)
            self.lose_turn()
            self.disk.locks = {name: process for name, process in self.disk.locks.items() if process != self._process}
            self.disk.changed.notify_all()

    def lose_turn(self) -> None:
        """What happens to a process so slow that others no longer wait for it: it may write nothing more."""
        self._turn_lost = True
        if self.disk.holder == self._process:
            self.disk.holder = None
        self.disk.sharing = [held for held in self.disk.sharing if held[0] != self._process]

    # What is there

    def entries(self, below: str = "", *, bare: bool = False) -> Iterator[Entry]:
        self._reach()
        inside = f"{below}/" if below else ""
        with self.disk.changed:
            files = [(path, file) for path, file in self.disk.files.items() if path.startswith(inside)]
        for path, file in sorted(files, key=lambda item: (NotePath(item[0]).folder.split("/"), item[0])):
            if not NotePath(path).is_hidden:
                yield _entry(path, file)

    def children(self, folder: str, *, hidden: bool = False, bare: bool = False) -> list[Entry]:
        self._reach()
        with self.disk.changed:
            if folder and (folder not in self.disk.folders or (NotePath(folder).is_hidden and not hidden)):
                raise NotFound(f"there is no folder {folder}", what="folder", path=folder)
            found = [_entry(path, file) for path, file in self.disk.files.items()]
            found += [_folder(path) for path in self.disk.folders]
        inside = [entry for entry in found if entry.path.folder == folder]
        return sorted(entry for entry in inside if hidden or not entry.path.name.startswith("."))

    def stat(self, path: NotePath, *, hidden: bool = False) -> Entry:
        self._reach(path, hidden)
        with self.disk.changed:
            if path in self.disk.files:
                return _entry(path, self.disk.files[path])
            if path in self.disk.folders:
                return _folder(path)
        raise not_found_error(path)

    def read(self, path: NotePath, *, hidden: bool = False) -> Stored:
        self._reach(path, hidden)
        self._step("read", path)
        with self.disk.changed:
            file = self.disk.files.get(path)
        if file is None:
            raise not_found_error(path)
        return _stored(path, file)

    # Changing it

    def stage(self, path: NotePath, data: bytes, *, op: OpId, hidden: bool = False) -> None:
        self._reach(path, hidden)
        if not self.in_order:  # nothing is laid beside in a bucket
            return
        self._step("stage", path)
        with self.disk.changed:
            self._fits(len(data))
            self.disk.beside[self._process, op, path] = data
        self._step("staged", path)

    def swap(self, swap: Swap, *, op: OpId, hidden: bool = False) -> Stored | None:
        path, data, seen = swap.path, swap.data, swap.seen
        if data is None and seen is None:
            return None
        self._reach(path, hidden)
        self._step("write" if data is not None else "delete", path)
        self._keep_turn()
        with self.disk.changed:
            stored = self._remove(path, seen) if data is None else self._swap(path, data, seen, op)
        self._step("written" if data is not None else "deleted", path)
        return stored

    def _swap(self, path: NotePath, data: bytes, seen: Version | None, op: OpId) -> Stored:
        file = self.disk.files.get(path)
        if file is not None and file.data == data:
            return _stored(path, file)
        for taken in (path, *parents(path)):
            if taken in (self.disk.folders if taken == path else self.disk.files):
                raise Exists(f"{taken} is in the way", path=taken)
        twins = {path_key(taken): taken for taken in (path, *parents(path))} if self.disk.folds else {}
        for other in (*self.disk.files, *self.disk.folders) if twins else ():
            if path_key(other) in twins and other not in twins.values():
                raise Exists(f"{other} is there in another spelling", path=other)
        current = None if file is None else version_of(file.data)
        if seen is None and current is not None:
            raise Exists(f"{path} already exists", path=path)
        if seen and current and seen != current and self.read_old_version(path, seen):
            data, seen = self.rebase(path, data, seen=seen, onto=self.read(path)), current
        if current != seen:
            raise changed_error(path, current)
        if self.disk.beside.pop((self._process, op, path), None) is None:
            self._fits(len(data) - (len(file.data) if file else 0))
        self.disk.put(path, data)
        if self.disk.keeps_ops:
            self.disk.ops.setdefault(path, set()).add(op)
        return _stored(path, self.disk.files[path])

    def _remove(self, path: NotePath, seen: Version | None) -> None:
        file = self.disk.files.get(path)
        if path in self.disk.folders:
            raise Conflict(f"{path} is a folder now", path=path, current=None)
        if file is not None and version_of(file.data) != seen:
            raise changed_error(path, version_of(file.data))
        if file is not None:
            self.disk.put(path, None)

    def write_many(self, swaps: Sequence[Swap], *, op: OpId, hidden: bool = False) -> list[SwapResult]:
        order = list(range(len(swaps)))
        if self.disk.shuffle is not None:
            self.disk.shuffle(order)
        done: dict[int, SwapResult] = {}
        for place in order:
            done[place] = catch_problem(self.swap, swaps[place], op=op, hidden=hidden)
            if self.in_order and isinstance(done[place], Problem):
                break
        return [done[place] for place in sorted(done)]

    def find_applied(self, op: OpId, paths: Sequence[NotePath]) -> frozenset[NotePath]:
        return frozenset(path for path in paths if op in self.disk.ops.get(path, ()))

    def read_old_version(self, path: NotePath, version: str) -> Stored | None:
        for data in reversed(self.disk.former.get(path, ())):
            if version_of(data).startswith(version.lower()):
                return Stored(data, version_of(data), _entry(path, _File(data, 0)))
        return None

    def rebase(self, path: NotePath, data: bytes, *, seen: Version, onto: Stored) -> bytes:
        base = self.read_old_version(path, seen)
        both = None if base is None else merge(base.data.decode(), data.decode(), onto.data.decode())
        if both is None:
            raise Conflict(f"{path} changed at the same place", hint="read it again", path=path, current=onto.version)
        return both.encode()

    def respell(self, old: NotePath, new: NotePath, *, hidden: bool = False) -> Stored | None:
        self._reach(new, hidden)
        if not self.disk.folds:
            return None
        self._step("respell", new)
        with self.disk.changed:
            spelled = {path_key(name): name for name in (new, *parents(new))}
            for name in (*self.disk.files, *self.disk.folders):
                self._spell(name, _spelled(name, spelled))
        self._step("respelled", new)
        return self.read(new, hidden=hidden) if new in self.disk.files else None

    def _spell(self, old: str, new: str) -> None:
        if old == new:
            return
        if old in self.disk.folders:
            self.disk.folders.discard(old)
            self.disk.folders.add(new)
        else:
            data = self.disk.files[old].data
            self.disk.put(old, None)
            self.disk.put(new, data)

    def settle(self, op: OpId, *, emptied: tuple[str, ...] = ()) -> None:
        self._reach()
        self._step("settle", "")
        with self.disk.changed:
            for key in [key for key in self.disk.beside if key[:2] == (self._process, op)]:
                del self.disk.beside[key]
            for folder in sorted(emptied, key=len, reverse=True):
                if not any(path.startswith(f"{folder}/") for path in (*self.disk.files, *self.disk.folders)):
                    self.disk.folders.discard(folder)
        self._step("settled", "")

    def sweep(self, folders: Iterable[str]) -> None:
        self._reach()
        self._step("sweep", "")
        named = set(folders)
        with self.disk.changed:
            for key in list(self.disk.beside):
                if key[0] not in self.disk.living and NotePath(key[2]).folder in named:
                    del self.disk.beside[key]

    @contextmanager
    def lock(self, path: NotePath | None = None, *, timeout: float = 10.0) -> Iterator[None]:
        self._reach()
        until = time.monotonic() + (timeout if self.disk.patience is None else self.disk.patience)
        while not self._take(path):
            self._step("wait", "")
            with self.disk.changed:
                if time.monotonic() > until:
                    raise Busy("another change is being made", hint="try again in a moment")
                self.disk.changed.wait(self._pause)
        self._turn_lost = False
        try:
            yield
        finally:
            with self.disk.changed:
                if path is not None and (self._process, path) in self.disk.sharing:
                    self.disk.sharing.remove((self._process, path))
                elif path is None and self.disk.holder == self._process:
                    self.disk.holder = None
                self.disk.changed.notify_all()

    def _take(self, path: NotePath | None) -> bool:
        with self.disk.changed:
            held = [other for _, other in self.disk.sharing]
            if self.disk.holder is not None or (held if path is None else path in held):
                return False
            if path is None:
                self.disk.holder = self._process
            else:
                self.disk.sharing.append((self._process, path))
            return True

    def held(self) -> set[str]:
        """The names that this process has locked."""
        return {name for name, process in self.disk.locks.items() if process == self._process}

    def try_lock(self, name: str, *, shared: bool = False) -> "MemoryLock | None":
        """As `locks.Coordination` promises, among the processes on this disk."""
        with self.disk.changed:
            if self.disk.locks.get(name) is not None:
                return None
            self.disk.locks[name] = self._process
        return MemoryLock(self.disk, name)

    def changes(self, stop: threading.Event, *, walked: bool = False) -> Iterator[frozenset[NotePath] | None]:
        feed: set[str] = set()
        with self.disk.changed:
            self.disk.feeds.append(feed)
        try:
            yield None
            while not stop.is_set():
                with self.disk.changed:
                    self.disk.changed.wait_for(lambda: feed, 0.01)
                    seen = frozenset(path for path in map(NotePath, feed) if not path.is_hidden)
                    feed.clear()
                if seen:
                    yield seen
        finally:
            self.disk.feeds = [other for other in self.disk.feeds if other is not feed]

    def full_path(self, path: NotePath) -> str:
        return path

    def healthy(self) -> bool:
        return self.disk.present and self._process in self.disk.living

    def close(self) -> None:
        self.die()

    def _reach(self, path: NotePath | None = None, hidden: bool = False) -> None:
        if not self.healthy():
            raise Unavailable("the notes cannot be reached")
        if path is not None and path.is_hidden and not hidden:
            raise not_found_error(path)

    def _keep_turn(self) -> None:
        if self._turn_lost:
            raise Busy("the lock was lost", hint="try again in a moment")

    def _fits(self, more: int) -> None:
        if self.disk.capacity is not None and self.disk.used() + more > self.disk.capacity:
            raise NoSpace("the disk is full", hint="nothing was changed; free some space and try again")


def _spelled(path: str, spelled: dict[str, str]) -> str:
    """The path with the first part of it that has another spelling in that one."""
    for part in (path, *parents(path)):
        if path_key(part) in spelled:
            return spelled[path_key(part)] + path[len(part) :]
    return path


def _entry(path: str, file: _File) -> Entry:
    size, tick = len(file.data), file.tick
    return Entry(NotePath(path), "file", f"{tick:x}-{size:x}", size, tick, None, stat.S_IFREG | 0o644, tick)


def _folder(path: str) -> Entry:
    return Entry(NotePath(path), "folder", "", 0, 0, None, stat.S_IFDIR | 0o755, 0)


def _stored(path: str, file: _File) -> Stored:
    return Stored(file.data, version_of(file.data), _entry(path, file))
