"""Several processes that do the same work behind one door, and one that looks after them.

The parent forks before anything heavy, threaded or connected is there, and then only waits: it stays small, has nothing
that could break, and what breaks in a worker stays in that worker.

All share one listening socket that was opened before the fork. With a socket each (SO_REUSEPORT) the kernel deals out
clients by chance and to the dead too: whoever stands in the queue of a worker that is killed is lost with it. A shared
queue loses only whom the dead one had let in, but by itself it is not fair: whoever wakes up first takes all who wait.
So workers write on a board how many clients they have, and one that has more than another leaves the next client to
that one for some milliseconds. Two workers, 16 clients coming at once, twenty times; the share of the busier one, and
how 64 lasting connections were spread:

    everybody who waits, at once (uvicorn)   77-92 %, up to 100 %    12/52  14/50  32/32  20/44
    one per turn of the event loop           58-87 %, up to 100 %    15/49  22/42  14/50  26/38
    one per turn, with the board             52-60 %, up to  75 %    32/32  32/32  32/32  32/32   this is what we do
    a socket each (SO_REUSEPORT)             59-61 %, up to  81 %    30/34  28/36

Of 240 requests with 40 at a time under way, one of two workers killed each time: 87 were lost here, 100 with a socket
each. That was before workers left at the door whom they could not serve at once (`uvicorn_server.py`). Two workers, 40
clients that search over a new connection each time, one worker killed, three times: 17, 19 and 19 were lost, and 3, 3
and 4 are now, with 57 and 64 answers a second.
"""

import contextlib
import errno
import logging
import mmap
import os
import select
import signal
import socket
import sys
import termios
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from notewright.errors import Problem

log = logging.getLogger(__name__)
PATIENCE = 30.0  # seconds that workers have to finish what they began
EARLY = 5.0  # seconds; who ends before has not really begun
AGAIN = (0.2, 10.0)  # seconds until a place is filled again, the first and the longest time
OURS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
ABSENT = -1
FROM_OUTSIDE = (-signal.SIGKILL, -signal.SIGTERM)  # somebody ended it: not its own fault


class WorkerSlot:
    """Which of the processes behind one door this is, and a board on which each writes how many clients it has."""

    def __init__(self, number: int = 0, board: memoryview | None = None) -> None:
        self.number = number
        self._board = _board(1) if board is None else board

    def write(self, clients: int) -> None:
        self._board[self.number] = clients

    def leave(self) -> None:
        self._board[self.number] = ABSENT

    @property
    def alone(self) -> bool:
        """Whether nobody else could let a client in."""
        return len(self._board) == 1

    def more_than_others(self) -> int:
        """How many more clients we have than the one that has the fewest."""
        others = [count for number, count in enumerate(self._board) if number != self.number and count != ABSENT]
        return max(0, self._board[self.number] - min(others)) if others else 0


def _board(workers: int) -> memoryview:
    """A word for each, in memory that children share: written at one stroke, so that nobody need lock it."""
    board = memoryview(mmap.mmap(-1, workers * 4)).cast("i")
    for number in range(workers):
        board[number] = ABSENT
    return board


Work = Callable[[WorkerSlot], int]


def run(
    workers: int,
    work: Work,
    *,
    doors: Sequence[socket.socket] = (),
    patience: float = PATIENCE,
    died: Callable[[int], None] = lambda pid: None,
    reloading: Callable[[], None] = lambda: None,
) -> int:
    """Do `work` in so many processes until a signal comes; the exit code.

    Each is given its seat, numbered from 0; one that ends is replaced by another in its seat. SIGTERM and SIGINT let
    all finish, up to `patience`; a second one ends them at once. SIGHUP is handed on. If this process dies, so do they.
    `doors` are closed here as soon as they are to stop, so that nobody waits at a door that nobody opens any more.
    `died` is told of every process that has ended; `reloading` is called when SIGHUP comes, before it is handed on.
    """
    return _Team(workers, work, doors, patience, died, reloading).run()


def terminal_gone() -> bool:
    """Whether the terminal that we write to has been closed: then SIGHUP is no wish for a reload."""
    for stream in (0, 1, 2):
        try:
            termios.tcgetattr(stream)
        except termios.error as error:
            if error.args[0] == errno.EIO:  # one that never was a terminal says something else
                return True
    return False


@dataclass(slots=True)
class _Place:
    """One worker, or the wait for the next."""

    seat: WorkerSlot
    pid: int = 0  # 0: nobody is there
    begun: float = 0.0
    failed: int = 0  # times in a row that somebody began and ended at once
    fill_at: float = 0.0


class _Team:
    def __init__(
        self,
        workers: int,
        work: Work,
        doors: Sequence[socket.socket],
        patience: float,
        died: Callable[[int], None],
        reloading: Callable[[], None],
    ) -> None:
        self._died, self._reloading = died, reloading
        board = _board(workers)
        self._places = [_Place(WorkerSlot(number, board)) for number in range(workers)]
        self._work = work
        self._doors = doors
        self._patience = patience
        self._proven = False  # somebody has worked for a while: it can be done
        self._stop_by: float | None = None  # when those who still work are ended
        self._code = 0

    def run(self) -> int:
        with _SignalPipe() as self._bell, _lifeline() as self._life:
            while self._stop_by is None or self._working():
                self._fill()
                for heard in self._bell.wait(self._wait()):
                    self._hear(heard)
                self._bury()
                if self._stop_by is not None and time.monotonic() >= self._stop_by:
                    self._end_at_once("did not end in time")
        return self._code

    def _working(self) -> list[_Place]:
        return [place for place in self._places if place.pid]

    def _wait(self) -> float | None:
        """Seconds until there is something to do unasked."""
        moments = [place.fill_at for place in self._places if not place.pid and self._stop_by is None]
        moments += [] if self._stop_by is None else [self._stop_by]
        return max(0.0, min(moments) - time.monotonic()) if moments else None

    # Beginning

    def _fill(self) -> None:
        for place in self._places:
            if not place.pid and self._stop_by is None and time.monotonic() >= place.fill_at:
                self._begin(place)

    def _begin(self, place: _Place) -> None:
        with _undisturbed() as before:
            place.begun = time.monotonic()
            place.pid = os.fork()
            if place.pid == 0:
                os._exit(self._in_the_child(place.seat, before))
        with contextlib.suppress(OSError):  # a group of its own: Ctrl-C is for the parent, who tells each once
            os.setpgid(place.pid, place.pid)

    def _in_the_child(self, seat: WorkerSlot, before: set[signal.Signals]) -> int:
        try:
            self._bell.leave()
            with contextlib.suppress(OSError):
                os.setpgid(0, 0)
            for kind in OURS:
                signal.signal(kind, signal.SIG_DFL)
            held_back = before | {signal.SIGHUP}  # until the worker can do something about it
            signal.pthread_sigmask(signal.SIG_SETMASK, held_back)
            _end_with(self._life, self._patience)
            return _code(self._work, seat)
        except BaseException:
            traceback.print_exc()
            return 1

    # Listening

    def _hear(self, heard: int) -> None:
        if heard == signal.SIGCHLD:
            return
        if heard == signal.SIGHUP and not terminal_gone():
            self._reloading()
            self._tell(signal.SIGHUP)
        elif self._stop_by is None:
            self._stop(self._patience)
        elif heard != signal.SIGHUP:
            self._end_at_once("were told twice")

    def _tell(self, kind: signal.Signals) -> None:
        for place in self._working():
            with contextlib.suppress(ProcessLookupError):
                os.kill(place.pid, kind)

    # Ending

    def _stop(self, seconds: float) -> None:
        self._stop_by = time.monotonic() + seconds
        for door in self._doors:
            door.close()
        self._tell(signal.SIGTERM)

    def _end_at_once(self, why: str) -> None:
        if self._working():
            log.warning("%d workers %s and are ended", len(self._working()), why)
            self._code = 1
            self._tell(signal.SIGKILL)
        self._stop_by = time.monotonic() + self._patience

    def _bury(self) -> None:
        """Learn who has ended. Foreign children too: in a container ours may be the first process of all."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for place in self._places:
                if place.pid == pid:
                    self._vacant(place, os.waitstatus_to_exitcode(status))

    def _vacant(self, place: _Place, code: int) -> None:
        lived = time.monotonic() - place.begun
        self._proven = self._proven or any(time.monotonic() - one.begun >= EARLY for one in self._working())
        pid, place.pid = place.pid, 0
        place.seat.leave()
        self._died(pid)
        if self._stop_by is not None:
            return
        own_fault = lived < EARLY and code not in FROM_OUTSIDE
        place.failed = place.failed + 1 if own_fault else 0
        first, longest = AGAIN
        place.fill_at = time.monotonic() + min(longest, first * 2**place.failed)
        log.warning("worker %d (%d) %s; another takes its place", place.seat.number + 1, pid, _how(code))
        if not self._proven and all(one.failed for one in self._places):
            log.error("no worker starts; their messages are above")
            self._code = 1
            self._stop(self._patience)


def _how(code: int) -> str:
    return f"ended with code {code}" if code >= 0 else f"was ended by {signal.Signals(-code).name}"


def _code(work: Work, seat: WorkerSlot) -> int:
    """What a worker ends with, its words said."""
    try:
        return work(seat)
    except Problem as problem:
        print(f"notewright: {problem}", file=sys.stderr)
        return 1
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else 0 if left.code is None else 1
    finally:
        logging.shutdown()
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()


@contextlib.contextmanager
def _undisturbed() -> Iterator[set[signal.Signals]]:
    """No signal between the fork and what each of the two makes of it; as it was before, for the child."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, OURS)
    try:
        yield {signal.Signals(one) for one in before}
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _lifeline() -> Iterator[tuple[int, int]]:
    """A pipe of which only the parent keeps the end for writing: when it is closed, the parent has gone."""
    ends = os.pipe()
    try:
        yield ends
    finally:
        for end in ends:
            os.close(end)


def _end_with(life: tuple[int, int], patience: float) -> None:
    """This process ends with its parent: as if it were asked to, or by itself if that does not help."""
    end, ours = life
    os.close(ours)

    def watch() -> None:
        os.read(end, 1)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(patience)
        os._exit(1)

    threading.Thread(target=watch, name="parent", daemon=True).start()


class _SignalPipe:
    """Signals as something one can wait for."""

    def __enter__(self) -> "_SignalPipe":
        self._out, self._in = os.pipe()
        for end in (self._out, self._in):
            os.set_blocking(end, False)
        self._wakeup = signal.set_wakeup_fd(self._in, warn_on_full_buffer=False)
        self._before = {kind: signal.signal(kind, lambda *_: None) for kind in OURS}
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()
        for kind, before in self._before.items():
            signal.signal(kind, before)

    def leave(self) -> None:
        signal.set_wakeup_fd(self._wakeup if self._wakeup >= 0 else -1)
        os.close(self._out)
        os.close(self._in)

    def wait(self, seconds: float | None) -> bytes:
        select.select([self._out], [], [], seconds)
        try:
            return os.read(self._out, 4096)
        except BlockingIOError:
            return b""
