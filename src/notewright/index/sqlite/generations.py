"""Where an index lives: a folder of generations, and a pointer to the one that answers.

    gate            locked shared by whoever writes, alone by whoever changes the pointer
    building        locked by whoever builds, with how far it is
    current-1 ->    g-5e0c…, for indexes of form 1: another program version keeps its own
    g-5e0c…/index.db

Anything here can be deleted at any moment. What is missing is begun anew, empty and wanting.
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

Identity = tuple[int, int]  # device and inode of an index file: another one is another generation
STALE_SECONDS = 7 * 86400.0  # a generation nobody points to, or of another form, that was not touched for so long
LOOK_SECONDS = 0.1  # who looks how far a build is holds its lock for an instant
FOREVER_SECONDS = 1e9
_TRIES = 20  # so often somebody may delete an index while it is begun
translate_index_errors = translate_errors("the index", "cache")


class Generations:
    """The generations in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.index_file = folder / f"current-{VERSION}" / "index.db"
        self._pointer = folder / f"current-{VERSION}"
        self._file_name, self._gate = str(self.index_file), str(folder / "gate")  # asked for often

    def ensure_current(self) -> Identity:
        """Which index answers; begun anew where there is none. One stat when all is well."""
        for _ in range(_TRIES):
            found = self.find_current()
            if found is not None:
                return found
            with contextlib.suppress(FileNotFoundError, apsw.CantOpenError), self.gate(exclusive=True):
                if self.find_current() is None:
                    self._begin()
        raise Unavailable("the index is deleted again and again", hint="look at the cache directory")

    def find_current(self) -> Identity | None:
        try:
            status = os.stat(self._file_name)
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def discard(self, damaged: Identity) -> None:
        """Begin anew if this one still is the one that answers."""
        with self.gate(exclusive=True):
            if self.find_current() == damaged:
                self._begin()

    def _begin(self) -> None:
        place = self.make_place()
        create_index(place / "index.db").close()
        self.point(place)

    def make_place(self) -> Path:
        """The place of a new generation."""
        place = self.folder / f"g-{os.urandom(6).hex()}"
        self.folder.mkdir(parents=True, exist_ok=True)
        place.mkdir(mode=0o700)  # it holds the texts of the notes
        return place

    def point(self, place: Path) -> None:
        """From now on this generation answers, in every process. Only behind the gate."""
        (place / "answered").touch()
        link = self.folder / f"next-{os.urandom(6).hex()}"
        link.symlink_to(place.name)
        os.replace(link, self._pointer)
        import shutil

        # What answered once and what nobody points to any more goes.
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
        """Remove what was begun and never answered. Only for the one who builds: nobody else does."""
        import shutil

        with self.gate(exclusive=True):
            for left in (*self.folder.glob("g-*"), *self.folder.glob("next-*")):
                if left.is_symlink():
                    left.unlink(missing_ok=True)
                elif not (left / "answered").exists():
                    shutil.rmtree(left, ignore_errors=True)

    # ---- the gate -------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def gate(self, *, exclusive: bool = False) -> Iterator[None]:
        """Among those who write, or alone; in turn, so that who wants to be alone is not kept waiting by writers. Never
        held while waiting for anything but the disk."""
        handle = self._locked(self._gate, EXCLUSIVE if exclusive else SHARED)
        try:
            yield
        finally:
            os.close(handle)

    def _locked(self, file: Path | str, kind: int, seconds: float = FOREVER_SECONDS) -> int:
        """A lock on a file in the folder, which may be deleted meanwhile."""
        while True:
            try:
                return lock_file(file, kind, seconds)
            except FileNotFoundError:
                self.folder.mkdir(parents=True, exist_ok=True)

    # ---- building -------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def building(self, total: int) -> Iterator["BuildProgressFile"]:
        """Be the one who builds; Busy while somebody else does."""
        try:
            handle = self._locked(self.folder / "building", EXCLUSIVE, LOOK_SECONDS)
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
        """How far the build under way is, in whichever process; None without one."""
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
    """Tells everybody how far a build is, a few times a second."""

    def __init__(self, handle: int, total: int) -> None:
        self._handle, self._total, self._done, self._told = handle, total, 0, 0.0
        self._lock = threading.Lock()
        self.add(0)

    def add(self, count: int) -> None:
        with self._lock:
            self._done += count
            now = time.monotonic()
            if now - self._told > 0.2:
                self._told = now
                os.pwrite(self._handle, b"[%10d,%10d]" % (self._done, self._total), 0)
