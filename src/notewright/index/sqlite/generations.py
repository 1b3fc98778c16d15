"""The files of an index: a folder of generations, and a pointer to the current one.

    lock            held shared by writers, exclusively to change the pointer
    building        locked by the process that builds; holds the progress of the build
    current-1 ->    g-5e0c…, for indexes of form 1: another program version keeps its own
    g-5e0c…/index.db

Anything here can be deleted at any moment. A missing index is created again, empty and marked as incomplete.
"""

import contextlib
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import apsw

from notewright.errors import Busy, Unavailable
from notewright.index.sqlite.schema import VERSION, create_index
from notewright.locks import EXCLUSIVE, SHARED, lock_file, lock_in_turn
from notewright.sqlite_file import translate_errors

Identity = tuple[int, int]  # device and inode of an index file; they differ between generations
STALE_SECONDS = 7 * 86400.0  # the age at which a pointer of another program version is removed
READER_LOCK_SECONDS = 0.1  # a reader of the progress holds the lock of the build for an instant
FOREVER_SECONDS = 1e9
_MAX_TRIES = 20  # so often the folder may be deleted while an index is created
translate_index_errors = translate_errors("the index", "cache")


class Generations:
    """The generations in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.index_file = folder / f"current-{VERSION}" / "index.db"
        self._pointer = folder / f"current-{VERSION}"
        self._file_name, self._lock_file = str(self.index_file), str(folder / "gate")  # used by every question

    def ensure_current(self) -> Identity:
        """The identity of the current index, created if there is none. Costs one stat if there is."""
        for _ in range(_MAX_TRIES):
            found = self.find_current()
            if found is not None:
                return found
            with contextlib.suppress(FileNotFoundError, apsw.CantOpenError), self.locked(exclusive=True):
                if self.find_current() is None:
                    self._create_current()
        raise Unavailable("the index is deleted again and again", hint="look at the cache directory")

    def find_current(self) -> Identity | None:
        try:
            status = os.stat(self._file_name)
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def discard(self, damaged: Identity) -> None:
        """Replace this index by a new, empty one if it still is the current one."""
        with self.locked(exclusive=True):
            if self.find_current() == damaged:
                self._create_current()

    def _create_current(self) -> None:
        place = self.make_place()
        create_index(place / "index.db").close()
        self.point(place)

    def make_place(self) -> Path:
        """Create the folder of a new generation."""
        place = self.folder / f"g-{os.urandom(6).hex()}"
        self.folder.mkdir(parents=True, exist_ok=True)
        place.mkdir(mode=0o700)  # it holds the texts of the notes
        return place

    def point(self, place: Path) -> None:
        """Make this generation the current one, for every process. The caller holds the lock exclusively."""
        (place / "answered").touch()
        link = self.folder / f"next-{os.urandom(6).hex()}"
        link.symlink_to(place.name)
        os.replace(link, self._pointer)
        import shutil

        # Remove generations that were current once and that no pointer names any more.
        pointed = {place.name}
        for pointer in self.folder.glob("current-*"):
            with contextlib.suppress(FileNotFoundError):
                if pointer == self._pointer or time.time() - pointer.lstat().st_mtime < STALE_SECONDS:
                    pointed.add(os.readlink(pointer))
                else:
                    pointer.unlink(missing_ok=True)
        for left in self.folder.glob("g-*"):
            with contextlib.suppress(OSError):
                if left.name not in pointed and (left / "answered").exists():
                    shutil.rmtree(left, ignore_errors=True)

    def _sweep_abandoned(self) -> None:
        """Remove generations that never became current. Safe only under the build lock, when nobody else builds."""
        import shutil

        with self.locked(exclusive=True):
            for left in (*self.folder.glob("g-*"), *self.folder.glob("next-*")):
                if left.is_symlink():
                    left.unlink(missing_ok=True)
                elif not (left / "answered").exists():
                    shutil.rmtree(left, ignore_errors=True)

    # ---- locking --------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def locked(self, *, exclusive: bool = False) -> Iterator[None]:
        """Hold the lock shared, to write, or exclusively; in turn, so that writers do not starve an exclusive holder.
        Never held while waiting for anything but the disk."""
        handle = self._open_locked(self._lock_file, EXCLUSIVE if exclusive else SHARED)
        try:
            yield
        finally:
            os.close(handle)

    def _open_locked(self, file: Path | str, kind: int, seconds: float = FOREVER_SECONDS) -> int:
        """Lock a file in the folder, which may be deleted meanwhile and is then created again."""
        while True:
            try:
                return lock_file(file, kind, seconds)
            except FileNotFoundError:
                self.folder.mkdir(parents=True, exist_ok=True)

    # ---- building -------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def building(self, total: int) -> Iterator["BuildProgressFile"]:
        """Hold the build lock; Busy while another process holds it."""
        try:
            handle = self._open_locked(self.folder / "building", EXCLUSIVE, READER_LOCK_SECONDS)
        except BlockingIOError:
            raise Busy("the index is being built by another process", hint="wait until it is done") from None
        try:
            self._sweep_abandoned()
            yield BuildProgressFile(handle, total)
        finally:
            with contextlib.suppress(OSError):
                os.ftruncate(handle, 0)
            os.close(handle)

    def build_progress(self) -> tuple[int, int] | None:
        """The progress (done, total) of the running build of any process; None if none runs."""
        try:
            with open(self.folder / "building", "rb") as file:
                try:
                    lock_in_turn(file.fileno(), SHARED, 0)
                    return None
                except BlockingIOError:
                    done, total = json.loads(file.read())
                    return int(done), int(total)
        except ValueError:
            return 0, 0  # it has just begun
        except OSError:
            return None


class BuildProgressFile:
    """Publishes the progress of a build in its lock file, a few times a second."""

    def __init__(self, handle: int, total: int) -> None:
        self._handle, self._total, self._done, self._written_at = handle, total, 0, 0.0
        self._lock = threading.Lock()
        self.add(0)

    def add(self, count: int) -> None:
        with self._lock:
            self._done += count
            now = time.monotonic()
            if now - self._written_at > 0.2:
                self._written_at = now
                os.pwrite(self._handle, b"[%10d,%10d]" % (self._done, self._total), 0)
