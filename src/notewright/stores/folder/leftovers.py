"""Removes old files that changes have left under temp names: at once where nobody can write to them any more, else in
the background, after another look.

An editor that had the note open may write to the old file after we swapped it out. If it did, that file itself goes
back under the note's name (so that even a write still under way arrives there) and ours goes, which is in the history.
Where another program has saved the note since, too, both are people's work: the older one becomes a copy that they can
see. Files that dead processes left are treated by the same rules.
"""

import errno
import heapq
import itertools
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from notewright.errors import Problem
from notewright.lazy_dataclass import NamedTuple
from notewright.notes.path import NotePath
from notewright.stores.base import Version
from notewright.stores.folder.lock import FolderLock
from notewright.stores.folder.paths import TEMP_PREFIX, Root, exists
from notewright.stores.folder.temp_names import (
    CLOSED,
    OPEN,
    UNKNOWN,
    TempName,
    digest_file,
    digest_name,
    remove_if_safe,
)

log = logging.getLogger(__name__)
PAUSES_SECONDS = (0.05, 0.35, 1.1)  # before each look; the last again and again while it is open for writing
OFTEN_LOOKS = 400  # some seven minutes; an editor may have it open for days, and each look reads it whole
RARE_PAUSE_SECONDS = 60.0  # before each look after that
MAX_SWAPS = 100  # of `swap_back`
IDLE_SECONDS = 30.0  # before the thread ends for want of work
MAX_COPIES = 1000


class Leftover(NamedTuple):
    """An old file under a temp name: its folder, its name, and the note's, if that is known."""

    folder: str
    name: str
    note: str | None = None


class Leftovers:
    """The queue of leftovers, and a thread that looks at them while there are any. `follows(version, first)`: only
    writes of ours lie between bytes whose version begins with `first` and this version."""

    def __init__(self, root: Root, lock: FolderLock, follows: Callable[[Version, str], bool]) -> None:
        self._root, self._lock, self._follows = root, lock, follows
        self._queue: list[tuple[float, int, int, Leftover]] = []  # a heap: due, order, number of the look, what
        self._order = itertools.count()
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closing = False

    def remove_or_schedule(self, folder: int, temp: TempName, path: NotePath) -> None:
        """Remove the file that was just swapped out of the note's place, if that is safe, else look at it later."""
        if not remove_if_safe(folder, temp, temp.ours, temp.seen)[1]:
            self.schedule(Leftover(path.folder, str(temp), path.name))

    def schedule(self, left: Leftover, look: int = 0) -> None:
        """Look at it in a while; `look` counts how often it was looked at."""
        pause = PAUSES_SECONDS[min(look, len(PAUSES_SECONDS) - 1)] if look < OFTEN_LOOKS else RARE_PAUSE_SECONDS
        due = time.monotonic() + pause
        with self._wake:
            heapq.heappush(self._queue, (due, next(self._order), look, left))
            if self._thread is None and not self._closing:
                self._thread = threading.Thread(target=self._run, name="notewright-leftovers", daemon=True)
                self._thread.start()
            self._wake.notify()

    def clear_up(self, left: Leftover) -> None:
        """Remove or rescue a leftover now, even while it is open for writing."""
        if not self._remove_if_safe(left, CLOSED, UNKNOWN, OPEN)[0] and (swapped := self._rescue(left)):
            self._remove_if_safe(swapped, CLOSED, UNKNOWN, OPEN)

    def close(self) -> None:
        """Clear up everything now, and nothing afterwards."""
        with self._wake:
            self._closing, thread = True, self._thread
            self._wake.notify()
        if thread is not None:
            thread.join()
        for *_, left in self._queue:
            try:
                self.clear_up(left)
            except (OSError, Problem) as problem:
                log.warning("%s in %s is left for the next start: %s", left.name, left.folder or "the root", problem)
        self._queue.clear()

    def _run(self) -> None:
        while (due := self._wait_for_due()) is not None:
            look, left = due
            try:
                is_last = look >= len(PAUSES_SECONDS) - 1  # then it goes even if it is unknown whether it is open
                is_safe, is_gone = self._remove_if_safe(left, CLOSED, *([UNKNOWN] if is_last else []))
                if not is_safe and (swapped := self._rescue(left)):
                    self.schedule(swapped)
                elif is_safe and not is_gone:
                    self.schedule(left, look + 1)
            except (OSError, Problem) as problem:
                log.info("%s is looked at again later: %s", left.name, problem)
                self.schedule(left, look + 1)

    def _wait_for_due(self) -> tuple[int, Leftover] | None:
        """The next look and its leftover, when it is due; None when it is time for the thread to end."""
        with self._wake:
            while not self._closing:
                wait = self._queue[0][0] - time.monotonic() if self._queue else IDLE_SECONDS
                if wait <= 0:
                    return heapq.heappop(self._queue)[2:]
                if not self._wake.wait(wait) and not self._queue:
                    break
            self._thread = None
            return None

    def _remove_if_safe(self, left: Leftover, *may_go: str) -> tuple[bool, bool]:
        """Whether nobody has written to it since it was swapped out (or it is gone), and whether it is gone now."""
        temp = TempName.parse(left.name)
        with self._root.open_root() as root, self._open_holder(root, left) as holder:
            if holder is None or temp is None:
                return True, True
            safe = ("",) if temp.seen == "new" else (temp.ours, temp.seen)
            found, is_gone = remove_if_safe(holder, temp, *safe, may_go=may_go)
            return found is None or found.startswith(safe), is_gone

    def _rescue(self, left: Leftover) -> Leftover | None:
        """Put a person's work back under the note's name where ours is there now, else keep it as a copy. Returns the
        leftover of that, if there is one."""
        temp = TempName.parse(left.name)
        with self._lock.ensure_held(), self._root.open_root() as root, self._open_holder(root, left) as holder:
            if holder is None or temp is None:
                return None
            with self._root.open_folder_if_exists(root, left.folder, errno.ELOOP) as folder:
                if folder is None:
                    self._keep_copy(holder, holder, left)
                    return None
                if not left.note:
                    names = (name for name in os.listdir(folder) if not name.startswith(TEMP_PREFIX))
                    left = left._replace(note=next((name for name in names if digest_name(name) == temp.note), None))
                swapped = self._put_back(holder, folder, left, temp)
                os.fsync(folder)
                return swapped

    def _put_back(self, holder: int, folder: int, left: Leftover, temp: TempName) -> Leftover | None:
        theirs, note = digest_file(holder, left.name), left.note or ""
        current = digest_file(folder, note) if note else "unknown"
        if theirs is None:
            return None
        if theirs == current:
            os.unlink(left.name, dir_fd=holder)
            return None
        if current is None:
            log.warning("%s was written to while it was being removed: it stays", note)
            self._root.move_new(holder, left.name, folder, note)
            return None
        if not self._follows(current, temp.ours):
            self._keep_copy(holder, folder, left)
            return None
        renamed = left._replace(name=str(temp._replace(ours=current[:12])))
        os.rename(left.name, renamed.name, src_dir_fd=holder, dst_dir_fd=folder)
        try:
            if not self._root.exchange(folder, renamed.name, note):
                os.rename(renamed.name, note, src_dir_fd=folder, dst_dir_fd=folder)
                return None
        except FileNotFoundError:
            self._root.move_new(folder, renamed.name, folder, note)
            return None
        if digest_file(folder, renamed.name) == current:
            log.warning("%s was written to while it was being replaced: that came last and stays", note)
            return renamed
        swap_back(self._root, folder, renamed.name, note, theirs)
        self._keep_copy(folder, folder, renamed)
        return None

    def _keep_copy(self, holder: int, folder: int, left: Leftover) -> None:
        """Rename the older of two saves to a name of its own, for people to see."""
        stem, ending = os.path.splitext(left.note or "Recovered note.md")
        for number in range(1, MAX_COPIES):
            copy = f"{stem} (kept {number}){ending}"
            try:
                self._root.move_new(holder, left.name, folder, copy)
            except FileExistsError:
                continue
            log.warning("a save of %s that came too late is kept as %s", left.note or "a note", copy)
            return

    @contextmanager
    def _open_holder(self, root: int, left: Leftover) -> Iterator[int | None]:
        """The folder it is in: its own, or the root, where it was moved to when its folder was removed."""
        for place in (left.folder, ""):
            with self._root.open_folder_if_exists(root, place, errno.ELOOP) as folder:
                if folder is not None and exists(folder, left.name):
                    yield folder
                    return
        yield None


def swap_back(root: Root, folder: int, name: str, note: str, placed: str) -> None:
    """Exchange until what comes out is what we placed: an editor may save between any two exchanges, and its newest
    save must end up under the note's name."""
    for _ in range(MAX_SWAPS):
        inside = digest_file(folder, name)
        try:
            root.exchange(folder, name, note)
        except FileNotFoundError:  # the note was moved away meanwhile: the name is free
            return root.move_new(folder, name, folder, note)
        if inside is None or digest_file(folder, name) == placed:
            return
        placed = inside
