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
from notewright.stores.folder.paths import FOLDER, PREFIX, READ, Root, exists
from notewright.stores.folder.temp_names import TempName, digest, lease, name_digest, take_out

log = logging.getLogger(__name__)
LOOKS = (0.05, 0.4, 1.5)  # seconds after the swap; after the last it goes
_OPEN_LOOKS = 400  # how many more looks while another program has it open for writing: ten minutes
_COPIES = 1000
_LINGER = 30.0  # seconds the thread waits for more before it ends


@dataclass(frozen=True, slots=True)
class Leftover:
    """A file that lies beside a note: in which folder, under which name, and the note's, if that is known."""

    folder: str
    name: str
    note: str | None = None


class Leftovers:
    """The files that lie aside, and a thread that looks at them while there are any."""

    def __init__(self, root: Root, alone: Alone, follows: Callable[[Version, str], bool]) -> None:
        self._rescuer = LeftoverCleaner(root, follows)
        self._alone = alone
        self._waiting: list[tuple[float, int, int, Leftover]] = []  # due, order, which look, what: a heap
        self._order = itertools.count()
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closing = False

    def let_go(self, folder: int, laid: TempName, path: NotePath) -> None:
        """It was just taken out of `folder`: remove it now if that is safe, else keep it for a while."""
        if not take_out(folder, laid, laid.ours, laid.seen)[1]:
            self.keep(Leftover(path.folder, str(laid), path.name))

    def keep(self, aside: Leftover, look: int = 0, delay: float = LOOKS[0]) -> None:
        """Look at it in a while."""
        with self._wake:
            heapq.heappush(self._waiting, (time.monotonic() + delay, next(self._order), look, aside))
            if self._thread is None and not self._closing:
                self._thread = threading.Thread(target=self._run, name="notewright-asides", daemon=True)
                self._thread.start()
            self._wake.notify()

    def judge(self, aside: Leftover) -> None:
        """Look at it for the last time, now."""
        if not self._rescuer.is_known(aside, remove=True):
            with self._alone.joined():
                left = self._rescuer.rescue(aside)
            if left:
                self._rescuer.is_known(left, remove=True)

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
                if look < _OPEN_LOOKS:
                    self.keep(aside, look + 1, LOOKS[-1])

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
        last = look >= len(LOOKS) - 1 and (look >= _OPEN_LOOKS or not self._rescuer.is_open(aside))
        if self._rescuer.is_known(aside, remove=last):
            if not last:
                self.keep(aside, look + 1, LOOKS[look + 1] - LOOKS[look] if look + 1 < len(LOOKS) else LOOKS[-1])
            return
        with self._alone.joined():
            left = self._rescuer.rescue(aside)
        if left:
            self.keep(left)


@dataclass(frozen=True, slots=True)
class LeftoverCleaner:
    """Removes what lies aside and holds nothing of anybody's; puts back or keeps what does."""

    root: Root
    follows: Callable[[Version, str], bool]  # only writes of ours lie between these bytes and those that begin so

    def is_known(self, aside: Leftover, *, remove: bool) -> bool:
        """Nobody has written to it since it was put aside (or it is gone). Then it goes, if `remove` says so."""
        said = TempName.parse(aside.name)
        with self.root.entered() as root, self._holder(root, aside) as holder:
            found = None if holder is None else digest(holder, aside.name)
            if holder is None or found is None or said is None:
                return True
            known = said.seen == "new" or said.knows(found)
            if known and remove:
                os.unlink(aside.name, dir_fd=holder)
            return known

    def is_open(self, aside: Leftover) -> bool:
        """Another program has it open for writing. Only some file systems can say so; others say no."""
        with self.root.entered() as root, self._holder(root, aside) as holder:
            if holder is None:
                return False
            file = os.open(aside.name, READ, dir_fd=holder)
            try:
                lease(file)
            except BlockingIOError:
                return True
            except OSError:
                return False
            finally:
                os.close(file)
            return False

    def rescue(self, aside: Leftover) -> Leftover | None:
        """Put somebody's work back under the note's name where ours is there now, else keep it as a copy. What lies
        aside after that, to be looked at in its turn. The caller is alone."""
        said = TempName.parse(aside.name)
        with self.root.entered() as root, self._holder(root, aside) as holder:
            if holder is None or said is None:
                return None
            try:
                with self.root.folder(root, aside.folder) as folder:
                    note = aside.note or _name_of_digest(folder, said.note)
                    left = self._rescue(holder, folder, Leftover(aside.folder, aside.name, note), said)
                    os.fsync(folder)
                    return left
            except (FileNotFoundError, NotADirectoryError):  # its folder is gone
                self._keep_copy(holder, holder, aside)
                return None

    def _rescue(self, holder: int, folder: int, aside: Leftover, said: TempName) -> Leftover | None:
        theirs = digest(holder, aside.name)
        current = digest(folder, aside.note) if aside.note else "unknown"
        if theirs is None:
            pass
        elif theirs == current:
            os.unlink(aside.name, dir_fd=holder)
        elif current is None:
            log.warning("%s was written to while it was being removed: it stays", aside.note)
            self.root.move_new(holder, aside.name, folder, aside.note or "")
        elif self.follows(current, said.ours):
            renamed = Leftover(aside.folder, str(said.holding(current)), aside.note)
            os.rename(aside.name, renamed.name, src_dir_fd=holder, dst_dir_fd=folder)
            return self._swap_back(folder, renamed, theirs, current)
        else:
            self._keep_copy(holder, folder, aside)
        return None

    def _swap_back(self, folder: int, aside: Leftover, theirs: str, current: Version) -> Leftover | None:
        note = aside.note or ""
        try:
            if not self.root.exchange(folder, aside.name, note):
                os.rename(aside.name, note, src_dir_fd=folder, dst_dir_fd=folder)
                return None
        except FileNotFoundError:
            self.root.move_new(folder, aside.name, folder, note)
            return None
        if digest(folder, aside.name) == current:
            log.warning("%s was written to while it was being replaced: that came last and stays", note)
            return aside
        put_back(self.root, folder, aside.name, note, theirs)
        self._keep_copy(folder, folder, aside)
        return None

    def _keep_copy(self, holder: int, folder: int, aside: Leftover) -> None:
        """Both are somebody's: the older one gets a name of its own, for people to see."""
        stem, ending = os.path.splitext(aside.note or "Recovered note.md")
        for number in range(1, _COPIES):
            copy = f"{stem} (kept {number}){ending}"
            try:
                self.root.move_new(holder, aside.name, folder, copy)
            except FileExistsError:
                continue
            log.warning("a save of %s that came too late is kept as %s", aside.note or "a note", copy)
            return

    @contextmanager
    def _holder(self, root: int, aside: Leftover) -> Iterator[int | None]:
        folder = self._find(root, aside)
        try:
            yield folder
        finally:
            if folder is not None:
                os.close(folder)

    def _find(self, root: int, aside: Leftover) -> int | None:
        """The folder it lies in: its own, or the root where it was lifted to when its folder was removed."""
        for place in (aside.folder, ""):
            try:
                folder = self.root.open(root, place, FOLDER)
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                    continue
                raise
            if exists(folder, aside.name):
                return folder
            os.close(folder)
        return None


def _name_of_digest(folder: int, wanted: str) -> str | None:
    """The name in a folder that has this digest."""
    names = (name for name in os.listdir(folder) if not name.startswith(PREFIX))
    return next((name for name in names if name_digest(name) == wanted), None)
