"""The kernel's events for the folders beneath a root, and for nothing else.

Watching libraries follow symlinks out of a folder, watch what lies behind dots, and swallow the news that events were
lost. Here each folder is watched through its own descriptor, opened as strictly as everything else, and `lost` says it.
"""

import ctypes
import errno
import os
import select
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from notewright.stores.folder.paths import FOLDER, Root

_ATTRIB, _MODIFY, _CLOSE_WRITE, _MOVED_FROM, _MOVED_TO = 0x4, 0x2, 0x8, 0x40, 0x80
_CREATE, _DELETE, _DELETE_SELF, _MOVE_SELF = 0x100, 0x200, 0x400, 0x800
_UNMOUNT, _OVERFLOW, _IGNORED, _IS_FOLDER, _ONLY_FOLDERS = 0x2000, 0x4000, 0x8000, 0x40000000, 0x01000000
_MASK = _ATTRIB | _MODIFY | _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _DELETE_SELF | _MOVE_SELF
_EVENT = struct.Struct("iIII")
_BUFFER = 1 << 18

_libc = ctypes.CDLL(None, use_errno=True)


def is_here() -> bool:
    """This system has such events."""
    return hasattr(_libc, "inotify_init1")


@dataclass
class Seen:
    """What events told: names of files and folders, relative to the root."""

    names: set[str] = field(default_factory=set)
    lost: bool = False  # some events were dropped: anything may have changed


class Inotify:
    """The watch over all folders beneath a root: none at first, then put up by `watch_all`, or by a walk that comes to
    each of them anyway. OSError where it cannot be (the system's limit, no /proc)."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._folders: dict[int, str] = {}  # by watch
        self._adding = threading.Lock()
        self.whole = threading.Event()  # every folder is watched
        self._failure: OSError | None = None  # of a walk
        self._events = _libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        if self._events < 0:
            raise _error("inotify")

    def close(self) -> None:
        os.close(self._events)
        self._events = -1  # a walk that is still under way must not find another file there

    def watch_all(self) -> None:
        with self._adding:
            self._add("", None)
            self.whole.set()

    def watch_walked(self, opened: int, folder: str) -> None:
        """Watch a folder that a walk is about to list: what comes later is an event. A failure is not the walk's. Once
        the watch is whole, events say what folders are called."""
        with self._adding:
            if self._failure is None and not self.whole.is_set():
                try:
                    self._watch(opened, folder)
                except OSError as error:
                    self._failure = error

    def is_whole(self, seconds: float) -> bool:
        """It is whole within so many seconds. Until then no event is taken: a folder that is renamed would
        get its old name from the walk."""
        if self._failure is not None:
            raise self._failure
        return self.whole.wait(seconds)

    def wait(self, seconds: float) -> bool:
        """Something happened, within so many seconds."""
        return bool(select.select([self._events], [], [], seconds)[0])

    def take(self, seen: Seen) -> bool:
        """Add what has happened to `seen`, watching folders that appeared from now on; False if nothing has."""
        events = list(self._read())
        for watch, mask, name in events:
            folder = self._folders.get(watch)
            if mask & _OVERFLOW:
                seen.lost = True
                self._add("", seen)
            elif folder is None:
                continue
            elif mask & _IGNORED:
                del self._folders[watch]
            elif mask & _UNMOUNT or (not folder and mask & (_DELETE_SELF | _MOVE_SELF)):
                seen.lost = True
            elif name and name[0] != ".":
                self._happened(f"{folder}/{name}" if folder else name, mask, seen)
        return bool(events)

    def _happened(self, path: str, mask: int, seen: Seen) -> None:
        seen.names.add(path)
        if mask & _IS_FOLDER and mask & (_MOVED_FROM | _DELETE):
            self._drop(path)
        elif mask & _IS_FOLDER and mask & (_MOVED_TO | _CREATE):
            self._add(path, seen)

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

    def _add(self, top: str, seen: Seen | None) -> None:
        """Watch a folder and those in it, then name all they hold: files may have come before their watch did."""
        left = [top]
        with self._root.entered() as root:
            while left:
                folder = left.pop()
                try:
                    opened = self._root.open(root, folder, FOLDER)
                except OSError as error:
                    if error.errno in (errno.EMFILE, errno.ENFILE):
                        raise
                    continue  # gone again, a symlink, or not ours to read
                try:
                    if self._watch(opened, folder):
                        left += self._names(opened, f"{folder}/" if folder else "", seen)
                finally:
                    os.close(opened)

    def _watch(self, opened: int, folder: str) -> bool:
        """By the descriptor: whatever is swapped for a symlink meanwhile, it is this very folder."""
        watch = _libc.inotify_add_watch(self._events, b"/proc/self/fd/%d" % opened, _MASK | _ONLY_FOLDERS)
        if watch >= 0:
            self._folders[watch] = folder
        elif ctypes.get_errno() not in (errno.EACCES, errno.EPERM, errno.ENOTDIR):
            raise _error("inotify watch")
        return bool(watch >= 0)

    def _names(self, opened: int, prefix: str, seen: Seen | None) -> list[str]:
        """Everything in a folder goes to `seen`; the folders in it."""
        folders = []
        with os.scandir(opened) as names:
            for each in names:
                if each.name[0] != ".":
                    if seen is not None:
                        seen.names.add(prefix + each.name)
                    if each.is_dir(follow_symlinks=False):
                        folders.append(prefix + each.name)
        return folders

    def _drop(self, top: str) -> None:
        """Forget a folder that went: it may be somewhere else now, under another name or outside."""
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
