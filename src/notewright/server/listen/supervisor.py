"""Worker processes that share one listening socket, and the parent that starts, replaces and stops them.

The parent forks before anything heavy, threaded or connected is there, and then only waits for signals: it stays small,
has nothing that could break, and what breaks in a worker stays in that worker.

All share one listening socket that was opened before the fork. With a socket each (SO_REUSEPORT) the kernel deals out
clients by chance and to the dead too: whoever stands in the queue of a worker that is killed is lost with it. A shared
queue loses only whom the dead one had let in, but by itself it is not fair: whoever wakes up first takes all who wait.
So workers write on a board how many clients they have, and one that has more than another leaves the next client to
that one for some milliseconds (`uvicorn_server.py`). `docs/why.md` has the numbers, and those of uvicorn's supervisor.
"""

import contextlib
import errno
import logging
import mmap
import os
import signal
import socket
import sys
import termios
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from notewright.errors import Problem

log = logging.getLogger(__name__)
STOP_SECONDS = 30.0  # that workers have to finish what they began
EARLY_SECONDS = 5.0  # a worker that ends before has not really begun
RESTART_SECONDS = (0.2, 10.0)  # until a slot is filled again, the first and the longest time
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGALRM)
ABSENT = -1
FROM_OUTSIDE = (-signal.SIGKILL, -signal.SIGTERM)  # somebody ended it: not its own fault


class WorkerSlot:
    """Which of the processes behind one socket this is, and a board on which each writes how many clients it has."""

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
class _Worker:
    """One worker, or the wait for the next in its slot."""

    slot: WorkerSlot
    pid: int = 0  # 0: nobody is there
    begun: float = 0.0
    failed: int = 0  # times in a row that somebody began and ended at once
    start_at: float = 0.0


class Supervisor:
    """Does `work` in so many processes until a signal comes.

    Each is given its slot, numbered from 0; one that ends is replaced by another in its slot. SIGTERM and SIGINT let
    all finish, up to `patience`; a second one ends them at once. SIGHUP is handed on. If this process dies, so do they.
    `sockets` are closed here as soon as they are to stop, so that nobody waits at one that nobody accepts from.
    `died` is told the number of every slot whose process has ended; `reloading` is called before SIGHUP is handed on.
    """

    def __init__(
        self,
        workers: int,
        work: Work,
        *,
        sockets: Sequence[socket.socket] = (),
        patience: float = STOP_SECONDS,
        died: Callable[[int], None] = lambda number: None,
        reloading: Callable[[], None] = lambda: None,
    ) -> None:
        self._died, self._reloading = died, reloading
        board = _board(workers)
        self._workers = [_Worker(WorkerSlot(number, board)) for number in range(workers)]
        self._work = work
        self._sockets = sockets
        self._patience = patience
        self._proven = False  # somebody has worked for a while: it can be done
        self._stop_by: float | None = None  # when those who still work are ended
        self._code = 0

    def run(self) -> int:
        """The exit code, when all have ended. Signals are blocked and waited for: none comes between two steps."""
        handlers = {kind: signal.signal(kind, lambda *_: None) for kind in SIGNALS}
        self._unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        self._life = os.pipe()  # only the parent keeps the end for writing: when it is closed, the parent has gone
        try:
            while self._stop_by is None or self._working():
                self._start_missing()
                self._handle(self._next_signal())
                self._reap()
                if self._stop_by is not None and time.monotonic() >= self._stop_by:
                    self._kill("did not end in time")
        finally:
            for end in self._life:
                os.close(end)
            signal.setitimer(signal.ITIMER_REAL, 0)  # else the alarm ends us, and what waits before its handler is back
            signal.pthread_sigmask(signal.SIG_SETMASK, self._unblocked)
            for kind, handler in handlers.items():
                signal.signal(kind, handler)
        return self._code

    def _working(self) -> list[_Worker]:
        return [worker for worker in self._workers if worker.pid]

    def _next_signal(self) -> int:
        """SIGALRM when there is something to do unasked."""
        moments = [worker.start_at for worker in self._workers if not worker.pid and self._stop_by is None]
        moments += [] if self._stop_by is None else [self._stop_by]
        signal.setitimer(signal.ITIMER_REAL, max(0.001, min(moments) - time.monotonic()) if moments else 0)
        return signal.sigwait(SIGNALS)

    def _start_missing(self) -> None:
        for worker in self._workers:
            if not worker.pid and self._stop_by is None and time.monotonic() >= worker.start_at:
                worker.begun = time.monotonic()
                worker.pid = os.fork()
                if worker.pid == 0:
                    os._exit(self._run_worker(worker.slot))

    def _run_worker(self, slot: WorkerSlot) -> int:
        """In the child: what it ends with, its words said."""
        try:
            os.setpgid(0, 0)  # a group of its own: Ctrl-C is for the parent, who tells each once
            for kind in SIGNALS:
                signal.signal(kind, signal.SIG_DFL)
            held_back = {*self._unblocked, signal.SIGHUP}  # until the worker can do something about it
            signal.pthread_sigmask(signal.SIG_SETMASK, held_back)
            _end_with_parent(self._life, self._patience)
            return self._work(slot)
        except Problem as problem:
            print(f"notewright: {problem}", file=sys.stderr)
            return 1
        except BaseException:
            traceback.print_exc()
            return 1
        finally:
            logging.shutdown()
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.flush()
                sys.stderr.flush()

    def _handle(self, heard: int) -> None:
        if heard in (signal.SIGCHLD, signal.SIGALRM):
            return
        if heard == signal.SIGHUP and not terminal_gone():
            self._reloading()
            self._tell(signal.SIGHUP)
        elif self._stop_by is None:
            self._stop()
        elif heard != signal.SIGHUP:
            self._kill("were told twice")

    def _tell(self, kind: signal.Signals) -> None:
        for worker in self._working():
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker.pid, kind)

    def _stop(self) -> None:
        self._stop_by = time.monotonic() + self._patience
        for listening in self._sockets:
            listening.close()
        self._tell(signal.SIGTERM)

    def _kill(self, why: str) -> None:
        if self._working():
            log.warning("%d workers %s and are ended", len(self._working()), why)
            self._code = 1
            self._tell(signal.SIGKILL)
        self._stop_by = time.monotonic() + self._patience

    def _reap(self) -> None:
        """Learn who has ended. Foreign children too: in a container ours may be the first process of all."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                for worker in self._workers:
                    if worker.pid == ended[0]:
                        self._ended(worker, os.waitstatus_to_exitcode(ended[1]))

    def _ended(self, worker: _Worker, code: int) -> None:
        now = time.monotonic()
        self._proven = self._proven or any(now - one.begun >= EARLY_SECONDS for one in self._working())
        pid, worker.pid = worker.pid, 0
        worker.slot.leave()
        self._died(worker.slot.number)
        if self._stop_by is not None:
            return
        own_fault = now - worker.begun < EARLY_SECONDS and code not in FROM_OUTSIDE
        worker.failed = worker.failed + 1 if own_fault else 0
        first, longest = RESTART_SECONDS
        worker.start_at = now + min(longest, first * 2**worker.failed)
        how = f"ended with code {code}" if code >= 0 else f"was ended by {signal.Signals(-code).name}"
        log.warning("worker %d (%d) %s; another takes its place", worker.slot.number + 1, pid, how)
        if not self._proven and all(one.failed for one in self._workers):
            log.error("no worker starts; their messages are above")
            self._code = 1
            self._stop()


def _end_with_parent(life: tuple[int, int], patience: float) -> None:
    """This process ends with its parent: as if it were asked to, or by itself if that does not help."""
    end, ours = life
    os.close(ours)

    def watch() -> None:
        os.read(end, 1)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(patience)
        os._exit(1)

    threading.Thread(target=watch, name="parent", daemon=True).start()
