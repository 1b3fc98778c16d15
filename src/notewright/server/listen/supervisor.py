"""Worker processes that share one listening socket, and the parent that starts, replaces and stops them.

The parent forks before anything heavy, threaded or connected exists, and then only waits for signals: it stays small,
has nothing that could break, and what breaks in a worker stays in that worker.

All share one listening socket that was opened before the fork. With a socket each (SO_REUSEPORT) the kernel assigns
clients at random and to dead workers too: the accept queue of a worker that is killed is lost with it. A shared queue
loses only the connections that the dead worker had accepted, but by itself it is not fair: the first to wake up takes
all that wait. So workers write their number of clients to shared memory, and one that has more than another leaves the
next client to that one for some milliseconds (`uvicorn_server.py`). `docs/why.md` has the numbers, and those of
uvicorn's supervisor.
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
STOP_SECONDS = 30.0  # that workers have to finish their requests
EARLY_SECONDS = 5.0  # a worker that ends sooner counts as failed to start
RESTART_SECONDS = (0.2, 10.0)  # the first and the longest delay before a slot is filled again
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGALRM)
ABSENT = -1  # in place of the number of clients of a slot without a process
KILLED_FROM_OUTSIDE = (-signal.SIGKILL, -signal.SIGTERM)  # exit codes that are not the worker's own fault


class WorkerSlot:
    """The place of one process among those behind one socket, with shared memory for each one's number of clients."""

    def __init__(self, number: int = 0, client_counts: memoryview | None = None) -> None:
        self.number = number
        self._client_counts = shared_counts(1) if client_counts is None else client_counts

    def set_clients(self, clients: int) -> None:
        self._client_counts[self.number] = clients

    def clear(self) -> None:
        self._client_counts[self.number] = ABSENT

    @property
    def is_only(self) -> bool:
        """Whether no other process could accept a client."""
        return len(self._client_counts) == 1

    def surplus_clients(self) -> int:
        """How many more clients this process has than the one with the fewest."""
        counts = self._client_counts
        others = [count for number, count in enumerate(counts) if number != self.number and count != ABSENT]
        return max(0, counts[self.number] - min(others)) if others else 0


def shared_counts(workers: int) -> memoryview:
    """A word for each worker, in memory that children share: writes are atomic, so there is no lock."""
    counts = memoryview(mmap.mmap(-1, workers * 4)).cast("i")
    for number in range(workers):
        counts[number] = ABSENT
    return counts


def is_terminal_gone() -> bool:
    """Whether the terminal that we write to has been closed: then SIGHUP does not ask for a reload."""
    for stream in (0, 1, 2):
        try:
            termios.tcgetattr(stream)
        except termios.error as error:
            if error.args[0] == errno.EIO:  # a stream that never was a terminal gives another error
                return True
    return False


@dataclass(slots=True)
class _Worker:
    """One worker, or the wait for the next in its slot."""

    slot: WorkerSlot
    pid: int = 0  # 0: no process
    started_at: float = 0.0
    failures: int = 0  # in a row
    start_at: float = 0.0


class Supervisor:
    """Runs `work` in a number of processes until a signal comes.

    Each is given its slot, numbered from 0; one that ends is replaced by another in its slot. SIGTERM and SIGINT let
    all finish, up to `patience` seconds; a second one kills them. SIGHUP is passed on. If this process dies, they end.
    `sockets` are closed here as soon as the workers are to stop, so that no client waits where none is accepted.
    `died` gets the number of every slot whose process has ended; `reloading` is called before SIGHUP is passed on.
    """

    def __init__(
        self,
        workers: int,
        work: Callable[[WorkerSlot], int],
        *,
        sockets: Sequence[socket.socket] = (),
        patience: float = STOP_SECONDS,
        died: Callable[[int], None] = lambda number: None,
        reloading: Callable[[], None] = lambda: None,
    ) -> None:
        self._died, self._reloading = died, reloading
        counts = shared_counts(workers)
        self._workers = [_Worker(WorkerSlot(number, counts)) for number in range(workers)]
        self._work = work
        self._sockets = sockets
        self._patience = patience
        self._proven = False  # some worker has run for a while, so workers can start
        self._stop_by: float | None = None  # when workers that still run are killed
        self._code = 0

    def run(self) -> int:
        """The exit code, when all have ended. Signals are blocked and waited for: none comes between two steps."""
        handlers = {kind: signal.signal(kind, lambda *_: None) for kind in SIGNALS}
        self._unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        self._life = os.pipe()  # only the parent keeps the end for writing: when it is closed, the parent has gone
        try:
            while self._stop_by is None or self._running():
                self._start_missing()
                self._handle(self._next_signal())
                self._reap()
                if self._stop_by is not None and time.monotonic() >= self._stop_by:
                    self._kill("did not end in time")
        finally:
            for end in self._life:
                os.close(end)
            signal.setitimer(signal.ITIMER_REAL, 0)  # else the alarm ends us before its handler is back
            signal.pthread_sigmask(signal.SIG_SETMASK, self._unblocked)
            for kind, handler in handlers.items():
                signal.signal(kind, handler)
        return self._code

    def _running(self) -> list[_Worker]:
        return [worker for worker in self._workers if worker.pid]

    def _start_missing(self) -> None:
        for worker in self._workers:
            if not worker.pid and self._stop_by is None and time.monotonic() >= worker.start_at:
                worker.started_at = time.monotonic()
                worker.pid = os.fork()
                if worker.pid == 0:
                    os._exit(self._run_worker(worker.slot))

    def _run_worker(self, slot: WorkerSlot) -> int:
        """Do the work, in the child; its exit code."""
        try:
            os.setpgid(0, 0)  # a group of its own: Ctrl-C reaches the parent alone, which signals each worker once
            for kind in SIGNALS:
                signal.signal(kind, signal.SIG_DFL)
            # SIGHUP stays blocked until the worker can handle it.
            signal.pthread_sigmask(signal.SIG_SETMASK, {*self._unblocked, signal.SIGHUP})
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

    def _next_signal(self) -> int:
        """Wait for a signal; SIGALRM comes when a worker is to be started or killed."""
        moments = [worker.start_at for worker in self._workers if not worker.pid and self._stop_by is None]
        moments += [] if self._stop_by is None else [self._stop_by]
        signal.setitimer(signal.ITIMER_REAL, max(0.001, min(moments) - time.monotonic()) if moments else 0)
        return signal.sigwait(SIGNALS)

    def _handle(self, kind: int) -> None:
        if kind in (signal.SIGCHLD, signal.SIGALRM):
            return
        if kind == signal.SIGHUP and not is_terminal_gone():
            self._reloading()
            self._signal_workers(signal.SIGHUP)
        elif self._stop_by is None:
            self._stop()
        elif kind != signal.SIGHUP:
            self._kill("were told twice")

    def _signal_workers(self, kind: signal.Signals) -> None:
        for worker in self._running():
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker.pid, kind)

    def _stop(self) -> None:
        self._stop_by = time.monotonic() + self._patience
        for listening in self._sockets:
            listening.close()
        self._signal_workers(signal.SIGTERM)

    def _kill(self, why: str) -> None:
        if running := self._running():
            log.warning("%d workers %s and are ended", len(running), why)
            self._code = 1
            self._signal_workers(signal.SIGKILL)
        self._stop_by = time.monotonic() + self._patience

    def _reap(self) -> None:
        """Collect ended children, foreign ones too: in a container this may be the first process of all."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                for worker in self._workers:
                    if worker.pid == ended[0]:
                        self._schedule_restart(worker, os.waitstatus_to_exitcode(ended[1]))

    def _schedule_restart(self, worker: _Worker, code: int) -> None:
        """Free the slot of a worker that has ended, and fill it again: later the more often its workers failed."""
        now = time.monotonic()
        self._proven = self._proven or any(now - other.started_at >= EARLY_SECONDS for other in self._running())
        pid, worker.pid = worker.pid, 0
        worker.slot.clear()
        self._died(worker.slot.number)
        if self._stop_by is not None:
            return
        failed = now - worker.started_at < EARLY_SECONDS and code not in KILLED_FROM_OUTSIDE
        worker.failures = worker.failures + 1 if failed else 0
        first, longest = RESTART_SECONDS
        worker.start_at = now + min(longest, first * 2**worker.failures)
        how = f"ended with code {code}" if code >= 0 else f"was ended by {signal.Signals(-code).name}"
        log.warning("worker %d (%d) %s; another takes its place", worker.slot.number + 1, pid, how)
        if not self._proven and all(other.failures for other in self._workers):
            log.error("no worker starts; their messages are above")
            self._code = 1
            self._stop()


def _end_with_parent(life: tuple[int, int], patience: float) -> None:
    """End this process when its parent does: by SIGTERM, or at once if that does not help in time."""
    read_end, write_end = life
    os.close(write_end)

    def watch() -> None:
        os.read(read_end, 1)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(patience)
        os._exit(1)

    threading.Thread(target=watch, name="parent", daemon=True).start()
