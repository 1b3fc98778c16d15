"""Hints of what changed in a folder: from inotify where there is any, else from a library or by polling.

Watching libraries follow symlinks out of a folder, watch hidden folders, and swallow the event that others were lost.
Here each folder is watched through its own descriptor, opened as strictly as everything else, and `lost` is reported.
"""

import ctypes
import errno
import logging
import os
import select
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module

from notewright.errors import Problem
from notewright.notes.path import NotePath, path_problem
from notewright.stores.folder.listing import Walk
from notewright.stores.folder.paths import Root

log = logging.getLogger(__name__)
Hint = frozenset[NotePath] | None
Healthy = Callable[[], bool]
Way = Callable[[Root, threading.Event, Healthy], Iterator[Hint]]
OfferWatch = Callable[["Inotify"], None]  # to the next walk

DEBOUNCE_SECONDS, STEP_SECONDS = 0.05, 0.01  # a burst is one hint: it ends with a step without events, or by then
TICK_SECONDS = 0.1  # between two checks of `stop` and of the folder's health
WALK_SECONDS = 60.0  # how long a walk may take to complete the watch; then it is completed without it
RESCAN_SECONDS = 1.0  # between two scans where nothing can be watched; longer where a scan takes long
# Changes made on the other side of these raise no events here.
_REMOTE = ("9p", "afs", "ceph", "cifs", "drvfs", "fuse", "nfs", "smb", "vboxsf", "virtiofs")

_ATTRIB, _MODIFY, _CLOSE_WRITE, _MOVED_FROM, _MOVED_TO = 0x4, 0x2, 0x8, 0x40, 0x80
_CREATE, _DELETE, _DELETE_SELF, _MOVE_SELF = 0x100, 0x200, 0x400, 0x800
_UNMOUNT, _OVERFLOW, _IGNORED, _IS_FOLDER, _ONLY_FOLDERS = 0x2000, 0x4000, 0x8000, 0x40000000, 0x01000000
_MASK = _ATTRIB | _MODIFY | _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _DELETE_SELF | _MOVE_SELF
_EVENT = struct.Struct("iIII")
_BUFFER = 1 << 18

_libc = ctypes.CDLL(None, use_errno=True)


def watch(root: Root, stop: threading.Event, healthy: Healthy, offer: OfferWatch | None = None) -> Iterator[Hint]:
    """`Store.changes` for one folder. Whenever the folder goes or comes back it yields None."""
    ways: list[Way] = [partial(by_events, offer=offer) if has_inotify() else by_watchfiles, by_rescans]
    if _is_remote(root.path):
        log.info("%s is on a network file system: looking for changes every second or so", root.path)
        del ways[0]
    while not stop.is_set():
        try:
            if healthy():
                yield from ways[0](root, stop, healthy)
            else:
                stop.wait(TICK_SECONDS)
        except Problem:
            yield None  # the folder went away
            stop.wait(TICK_SECONDS)
        except OSError as error:
            log.warning("%s cannot be watched (%s): looking for changes every second or so", root.path, error)
            del ways[0]


def by_events(root: Root, stop: threading.Event, healthy: Healthy, offer: OfferWatch | None = None) -> Iterator[Hint]:
    """Hints from inotify, until the folder goes away. `offer` hands the watch to the next walk, which completes it."""
    inotify, deadline = Inotify(root), time.monotonic() + WALK_SECONDS
    try:
        if offer is None:
            inotify.watch_all()
        else:
            offer(inotify)
        yield None
        while not stop.is_set():
            if not inotify.wait_until_complete(TICK_SECONDS):
                if time.monotonic() > deadline:
                    inotify.watch_all()
                    yield None
            elif inotify.wait(TICK_SECONDS):
                # Debounced by polling, not event by event: a change set of ours makes six for each note, and waking for
                # each of them would take the interpreter from the thread that writes. The first is ours as a rule, too.
                time.sleep(STEP_SECONDS)
                events, burst_ends = FolderEvents(), time.monotonic() + DEBOUNCE_SECONDS
                while inotify.take(events) and time.monotonic() < burst_ends:
                    time.sleep(STEP_SECONDS)
                if events.lost or (hints := _note_paths(events.names)):
                    yield None if events.lost else hints
            if not healthy():
                yield None
                return
    finally:
        inotify.close()


def by_watchfiles(root: Root, stop: threading.Event, healthy: Healthy) -> Iterator[Hint]:
    """Hints where there is no inotify (macOS), until the folder goes away."""
    watchfiles = import_module("watchfiles")  # only here, and only now: it takes long to load
    start, begun = len(root.path.rstrip("/")) + 1, False
    feed = watchfiles.watch(
        root.path,
        watch_filter=None,
        debounce=round(DEBOUNCE_SECONDS * 1000),
        step=round(STEP_SECONDS * 1000),
        rust_timeout=round(TICK_SECONDS * 1000),
        yield_on_timeout=True,
        stop_event=stop,
        ignore_permission_denied=True,
    )
    try:
        for events in feed:
            # The first item comes once it is watching, even if nothing happened. What a new folder holds is not listed.
            if not begun or not healthy() or any(os.path.isdir(path) for _, path in events):
                yield None
            elif hints := _note_paths({path[start:] for _, path in events}):
                yield hints
            begun = True
            if not healthy():
                return
    except RuntimeError as error:
        raise OSError(str(error)) from error


def by_rescans(root: Root, stop: threading.Event, healthy: Healthy) -> Iterator[Hint]:
    """Hints by comparing the stamps of successive scans, until the folder goes away."""
    before, pause = {(entry.path, entry.stamp) for entry in Walk(root).files()}, 0.0
    yield None
    while not stop.wait(pause):
        began = time.monotonic()
        now = {(entry.path, entry.stamp) for entry in Walk(root).files()}
        pause = max(RESCAN_SECONDS, 10 * (time.monotonic() - began))
        if changed := frozenset(path for path, _ in now ^ before):
            yield changed
        before = now


def _note_paths(names: Iterable[str]) -> frozenset[NotePath]:
    """The names among these that are valid paths."""
    paths = map(NotePath, names)
    return frozenset(path for path in paths if not path.is_hidden and not path_problem(path))


def _is_remote(root: str) -> bool:
    """Whether the folder is on a mount that other machines may change."""
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as file:
            mounts = [line.split()[1:3] for line in file]
    except OSError:
        return False
    holding = [
        (len(place), kind)
        for place, kind in ((place.replace("\\040", " "), kind) for place, kind in mounts)
        if f"{root}/".startswith(f"{place.rstrip('/')}/")
    ]
    return bool(holding) and max(holding, key=lambda each: each[0])[1].startswith(_REMOTE)


def has_inotify() -> bool:
    return hasattr(_libc, "inotify_init1")


@dataclass
class FolderEvents:
    """The names of files and folders that events were about, relative to the root."""

    names: set[str] = field(default_factory=set)
    lost: bool = False  # some events were dropped: anything may have changed


class Inotify:
    """The watch over all folders beneath a root: empty at first, then filled by `watch_all`, or folder by folder by a
    walk that opens them anyway. OSError where it cannot be (the system's limit, no /proc)."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._folders: dict[int, str] = {}  # by watch
        self._adding = threading.Lock()
        self.complete = threading.Event()  # set once every folder is watched
        self._failure: OSError | None = None  # to watch a folder
        self._events = _libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        if self._events < 0:
            raise _error("inotify")

    def close(self) -> None:
        os.close(self._events)
        self._events = -1  # the number may be another file's by now, and a walk may be still under way

    def watch_all(self) -> None:
        with self._adding:
            for _ in self._watch_tree(""):
                pass
            self.complete.set()

    def watch_folder(self, opened: int, folder: str) -> None:
        """Watch a folder that a walk is about to list: what comes later is an event. A failure is raised by
        `wait_until_complete`, not in the walk. Nothing once the watch is complete: events keep it so from then on."""
        with self._adding:
            if self._failure is None and not self.complete.is_set():
                self._watch(opened, folder)

    def wait_until_complete(self, seconds: float) -> bool:
        """Whether it is complete within so many seconds. Until then no event may be read: a folder that is renamed
        would get its old name back from the walk."""
        if self._failure is not None:
            raise self._failure
        return self.complete.wait(seconds)

    def wait(self, seconds: float) -> bool:
        """Whether an event came within so many seconds."""
        return bool(select.select([self._events], [], [], seconds)[0])

    def take(self, events: FolderEvents) -> bool:
        """Read pending events into `events`, and watch folders that appeared; False if there were none."""
        raw = list(self._read())
        for watch, mask, name in raw:
            folder = self._folders.get(watch)
            if mask & _OVERFLOW:
                events.lost = True
                events.names.update(self._watch_tree(""))
            elif folder is None:
                continue
            elif mask & _IGNORED:
                del self._folders[watch]
            elif mask & _UNMOUNT or (not folder and mask & (_DELETE_SELF | _MOVE_SELF)):
                events.lost = True
            elif name and name[0] != ".":
                path = f"{folder}/{name}" if folder else name
                events.names.add(path)
                if mask & _IS_FOLDER and mask & (_MOVED_FROM | _DELETE):
                    self._forget_tree(path)
                elif mask & _IS_FOLDER and mask & (_MOVED_TO | _CREATE):
                    events.names.update(self._watch_tree(path))
        return bool(raw)

    def _read(self) -> Iterator[tuple[int, int, str]]:
        try:
            data = os.read(self._events, _BUFFER)
        except BlockingIOError:
            return
        place = 0
        while place < len(data):
            watch, mask, _, length = _EVENT.unpack_from(data, place)
            place += _EVENT.size + length
            yield watch, mask, os.fsdecode(data[place - length : place].rstrip(b"\0"))

    def _watch_tree(self, top: str) -> Iterator[NotePath]:
        """Watch a folder and those in it, each before it is listed; the files they hold, which may have come before
        their watch did."""
        for entry in Walk(self._root, bare=True, entering=self._watch).files(top):
            yield entry.path
        if self._failure is not None:
            raise self._failure

    def _watch(self, opened: int, folder: str) -> None:
        """By the descriptor: whatever is swapped for a symlink meanwhile, it is this very folder."""
        watch = _libc.inotify_add_watch(self._events, b"/proc/self/fd/%d" % opened, _MASK | _ONLY_FOLDERS)
        if watch >= 0:
            self._folders[watch] = folder
        elif ctypes.get_errno() not in (errno.EACCES, errno.EPERM, errno.ENOTDIR):
            self._failure = _error("inotify watch")

    def _forget_tree(self, top: str) -> None:
        """Stop watching a folder that was moved or deleted: it may be under another name now, or outside."""
        for watch, folder in list(self._folders.items()):
            if folder == top or folder.startswith(f"{top}/"):
                del self._folders[watch]
                _libc.inotify_rm_watch(self._events, watch)


def _error(what: str) -> OSError:
    number = ctypes.get_errno()
    if number == errno.ENOSPC:
        return OSError(number, "the limit fs.inotify.max_user_watches is reached")
    if number == errno.EMFILE:
        return OSError(number, "the limit fs.inotify.max_user_instances or of open files is reached")
    return OSError(number, f"{what}: {os.strerror(number)}")
