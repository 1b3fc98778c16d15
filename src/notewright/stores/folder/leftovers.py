"""What was taken out of a note's place goes at once where nobody can write to it any more; else it stays beside for a
moment, and is looked at again before it goes.

An editor that had the note open may write to the old file after we swapped it out. If it did, that file itself goes
back under the note's name (so that even a write still under way arrives there) and ours goes, which is in the history.
Where somebody else has saved the note since, under ours too, both are somebody's work: the older one becomes a copy
that people can see. Files that dead processes left are judged by the same rules.
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
from dataclasses import dataclass

from notewright.errors import Problem
from notewright.notes.path import NotePath
from notewright.stores.base import Version
from notewright.stores.folder.exchange import put_back
from notewright.stores.folder.lock import Alone
from notewright.stores.folder.paths import PREFIX, Root, exists
from notewright.stores.folder.temp_names import CLOSED, OPEN, UNKNOWN, TempName, digest, name_digest, take_out

log = logging.getLogger(__name__)
PAUSES = (0.05, 0.35, 1.1)  # seconds before each look; the last again and again while it is open for writing
OFTEN_LOOKS = 400  # some seven minutes; an editor may have it open for days, and each look reads it whole
SELDOM_S = 60.0  # seconds before each look after that
_COPIES = 1000
_LINGER = 30.0  # seconds the thread waits for more before it ends


@dataclass(frozen=True, slots=True)
class Leftover:
    """A file that lies beside a note: in which folder, under which name, and the note's, if that is known."""

    folder: str
    name: str
    note: str | None = None


class Leftovers:
    """The files that lie aside, and a thread that looks at them while there are any. `follows`: only writes of ours lie
    between these bytes and those that begin so."""

    def __init__(self, root: Root, alone: Alone, follows: Callable[[Version, str], bool]) -> None:
        self._root, self._alone, self._follows = root, alone, follows
        self._waiting: list[tuple[float, int, int, Leftover]] = []  # due, order, which look, what: a heap
        self._order = itertools.count()
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closing = False

    def let_go(self, folder: int, laid: TempName, path: NotePath) -> None:
        """It was just taken out of `folder`: remove it now if that is safe, else keep it for a while."""
        if not take_out(folder, laid, laid.ours, laid.seen)[1]:
            self.keep(Leftover(path.folder, str(laid), path.name))

    def keep(self, aside: Leftover, look: int = 0) -> None:
        """Look at it in a while."""
        pause = PAUSES[min(look, len(PAUSES) - 1)] if look < OFTEN_LOOKS else SELDOM_S
        due = time.monotonic() + pause
        with self._wake:
            heapq.heappush(self._waiting, (due, next(self._order), look, aside))
            if self._thread is None and not self._closing:
                self._thread = threading.Thread(target=self._run, name="notewright-asides", daemon=True)
                self._thread.start()
            self._wake.notify()

    def judge(self, aside: Leftover) -> None:
        """Look at it for the last time, now."""
        if not self._take_out(aside, CLOSED, UNKNOWN, OPEN)[0] and (left := self._rescue(aside)):
            self._take_out(left, CLOSED, UNKNOWN, OPEN)

    def finish(self) -> None:
        """Look at everything for the last time, now, and at nothing afterwards."""
        with self._wake:
            self._closing, thread = True, self._thread
            self._wake.notify()
        if thread is not None:
            thread.join()
        for *_, aside in self._waiting:
            try:
                self.judge(aside)
            except (OSError, Problem) as problem:
                log.warning("%s in %s is left for the next start: %s", aside.name, aside.folder or "the root", problem)
        self._waiting.clear()

    def _run(self) -> None:
        while (due := self._next()) is not None:
            look, aside = due
            try:
                self._look(aside, look)
            except (OSError, Problem) as problem:
                log.info("%s is looked at again later: %s", aside.name, problem)
                self.keep(aside, look + 1)

    def _next(self) -> tuple[int, Leftover] | None:
        """What is due, waiting for it; None when it is time for the thread to end."""
        with self._wake:
            while not self._closing:
                wait = self._waiting[0][0] - time.monotonic() if self._waiting else _LINGER
                if wait <= 0:
                    return heapq.heappop(self._waiting)[2:]
                if not self._wake.wait(wait) and not self._waiting:
                    break
            self._thread = None
            return None

    def _look(self, aside: Leftover, look: int) -> None:
        is_last = look >= len(PAUSES) - 1  # where nobody can tell whether it is open
        is_known, is_gone = self._take_out(aside, CLOSED, *([UNKNOWN] if is_last else []))
        if not is_known and (left := self._rescue(aside)):
            self.keep(left)
        elif is_known and not is_gone:
            self.keep(aside, look + 1)

    def _take_out(self, aside: Leftover, *may_go: str) -> tuple[bool, bool]:
        """Whether nobody has written to it since it was put aside (or it is gone), and whether it is gone now."""
        said = TempName.parse(aside.name)
        with self._root.entered() as root, self._holder(root, aside) as holder:
            if holder is None or said is None:
                return True, True
            safe = ("",) if said.seen == "new" else (said.ours, said.seen)
            found, is_gone = take_out(holder, said, *safe, may_go=may_go)
            return found is None or found.startswith(safe), is_gone

    def _rescue(self, aside: Leftover) -> Leftover | None:
        """Put somebody's work back under the note's name where ours is there now, else keep it as a copy. What lies
        aside after that, to be looked at in its turn."""
        said = TempName.parse(aside.name)
        with self._alone.joined(), self._root.entered() as root, self._holder(root, aside) as holder:
            if holder is None or said is None:
                return None
            with self._root.folder_if_there(root, aside.folder, errno.ELOOP) as folder:
                if folder is None:
                    self._keep_copy(holder, holder, aside)
                    return None
                note = aside.note or _name_of_digest(folder, said.note)
                left = self._put_back(holder, folder, Leftover(aside.folder, aside.name, note), said)
                os.fsync(folder)
                return left

    def _put_back(self, holder: int, folder: int, aside: Leftover, said: TempName) -> Leftover | None:
        theirs = digest(holder, aside.name)
        current = digest(folder, aside.note) if aside.note else "unknown"
        if theirs is None:
            pass
        elif theirs == current:
            os.unlink(aside.name, dir_fd=holder)
        elif current is None:
            log.warning("%s was written to while it was being removed: it stays", aside.note)
            self._root.move_new(holder, aside.name, folder, aside.note or "")
        elif self._follows(current, said.ours):
            renamed = Leftover(aside.folder, str(said.holding(current)), aside.note)
            os.rename(aside.name, renamed.name, src_dir_fd=holder, dst_dir_fd=folder)
            return self._swap_back(folder, renamed, theirs, current)
        else:
            self._keep_copy(holder, folder, aside)
        return None

    def _swap_back(self, folder: int, aside: Leftover, theirs: str, current: Version) -> Leftover | None:
        note = aside.note or ""
        try:
            if not self._root.exchange(folder, aside.name, note):
                os.rename(aside.name, note, src_dir_fd=folder, dst_dir_fd=folder)
                return None
        except FileNotFoundError:
            self._root.move_new(folder, aside.name, folder, note)
            return None
        if digest(folder, aside.name) == current:
            log.warning("%s was written to while it was being replaced: that came last and stays", note)
            return aside
        put_back(self._root, folder, aside.name, note, theirs)
        self._keep_copy(folder, folder, aside)
        return None

    def _keep_copy(self, holder: int, folder: int, aside: Leftover) -> None:
        """Both are somebody's: the older one gets a name of its own, for people to see."""
        stem, ending = os.path.splitext(aside.note or "Recovered note.md")
        for number in range(1, _COPIES):
            copy = f"{stem} (kept {number}){ending}"
            try:
                self._root.move_new(holder, aside.name, folder, copy)
            except FileExistsError:
                continue
            log.warning("a save of %s that came too late is kept as %s", aside.note or "a note", copy)
            return

    @contextmanager
    def _holder(self, root: int, aside: Leftover) -> Iterator[int | None]:
        """The folder it lies in: its own, or the root where it was lifted to when its folder was removed."""
        for place in (aside.folder, ""):
            with self._root.folder_if_there(root, place, errno.ELOOP) as folder:
                if folder is not None and exists(folder, aside.name):
                    yield folder
                    return
        yield None


def _name_of_digest(folder: int, wanted: str) -> str | None:
    """The name in a folder that has this digest."""
    names = (name for name in os.listdir(folder) if not name.startswith(PREFIX))
    return next((name for name in names if name_digest(name) == wanted), None)
