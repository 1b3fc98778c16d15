"""Threads that read lines and do what they ask for, each line in the thread that read it.

One thread at a time is the reader. Having read a call, it lets go of the input and does the call itself. If something
comes in meanwhile, another thread looks on, and takes the input over only if the call turns out not to be short. So a
client that asks one thing at a time is served by one thread that never waits for another (handing a call to a second
thread and its answer to a third costs five times as much as the call), one that asks many short things at once too
(threads that all want the interpreter cost more in handing it about than such a call does), and one that asks many long
things at once by two threads, and by more when those seem to wait for something.
"""

import collections
import os
import select
import threading
import time
from collections.abc import Callable

READ = 1 << 16  # more would be fresh memory from the kernel for every read, which doubles the time of a small call

SHORT_SECONDS = 0.002  # of a call that others may as well wait for
SIDE_BY_SIDE = 2  # long calls: a search holds the interpreter for more than half of its time, and more would only wait
STUCK_SECONDS = 0.02  # in which none of them was done: they wait for something else than the interpreter

Work = Callable[[], Callable[[], None]]  # does something, and gives back how to tell its outcome


class LineReaders:
    """Reads lines from `fd` until its end. `take` looks at each, in order, and may return work to do with it.

    A line longer than `longest` is given as None. `ended` is told once, at the end of the input.
    """

    def __init__(
        self,
        fd: int,
        take: Callable[[bytes | None], Work | None],
        ended: Callable[[], None],
        *,
        longest: int,
        threads: int = 32,
    ) -> None:
        self._lines = _LineBuffer(fd, longest)
        self._take = take
        self._ended = ended
        self._bell = _bell(fd)
        self._lock = threading.Lock()
        self._led = False  # somebody reads
        self._watched = False  # somebody looks whether the calls that were begun are short
        self._begun = 0.0  # when the last call was
        self._working = 0  # calls begun and not done
        self._done = 0.0  # when one last was, or when the first of those began
        self._over = False
        self._standing_by = 0
        self._room = threads  # for more threads

    def start(self) -> None:
        with self._lock:
            self._hire()
            self._bell.ring()

    def _hire(self) -> None:
        """One more thread to stand by, unless there are enough."""
        if self._room > 0:
            self._room -= 1
            self._standing_by += 1
            threading.Thread(target=self._serve, name=f"wire-{self._room}", daemon=True).start()

    def _serve(self) -> None:
        while not self._over:
            self._bell.wait()
            if self._is_to_take_over():
                self._lead()
                with self._lock:
                    self._standing_by += 1
        self._bell.ring()  # the next one goes home too

    def _is_to_take_over(self) -> bool:
        """Look on while calls come one after the other: whether one takes so long that we are the reader now."""
        with self._lock:
            if self._watched:
                return False
            self._watched = True
        seen = -1.0
        while True:
            with self._lock:
                if self._over or (self._led and self._begun == seen):  # nothing is asked for any more
                    self._watched = False
                    return False
                if self._is_slow():
                    self._watched = False
                    self._led = True
                    self._standing_by -= 1
                    return True
                seen = self._begun
            time.sleep(SHORT_SECONDS)

    def _is_slow(self) -> bool:
        """Nobody reads, and another call could be begun beside those that are under way."""
        now = time.monotonic()
        if self._led or now - self._begun < SHORT_SECONDS:
            return False
        return self._working < SIDE_BY_SIDE or now - self._done >= STUCK_SECONDS

    def _lead(self) -> None:
        """Read and work until somebody else has taken over the reading, or there is nothing more to read."""
        while True:
            work = self._next()
            if work is None:
                return
            began = self._let_go()
            tell = work()
            leading = self._take_back(began)
            tell()  # only now: the client may ask again at once, and nobody else need wake up for it
            if not leading:
                return

    def _next(self) -> Work | None:
        """The next work among the lines; None at their end."""
        while (line := self._lines.next()) != b"":
            work = self._take(line)
            if work is not None:
                return work
        with self._lock:
            self._over = True
        self._bell.ring()
        self._ended()
        return None

    def _let_go(self) -> float:
        """Begin a call; when that was."""
        with self._lock:
            self._led = False
            began = self._begun = time.monotonic()
            if not self._working:
                self._done = began
            self._working += 1
            if not self._standing_by:
                self._hire()
            if not self._watched:
                if self._lines.waiting:
                    self._bell.ring()
                else:
                    self._bell.ring_on_input()
            return began

    def _take_back(self, began: float) -> bool:
        """End a call; whether we read again. Of two who do short calls the one that began last is enough."""
        with self._lock:
            self._working -= 1
            self._done = time.monotonic()
            is_spare = self._begun > began and self._done - began < SHORT_SECONDS
            if self._led or self._over or is_spare:
                return False
            self._led = True
            if not self._watched:
                self._bell.silence()
            return True


class _LineBuffer:
    """Lines without their ends, blank ones left out; b"" at the end of the input."""

    def __init__(self, fd: int, longest: int) -> None:
        self._fd = fd
        self._longest = longest
        self._whole: collections.deque[bytes | None] = collections.deque()
        self._begun: list[bytes] = []
        self._size = 0

    @property
    def waiting(self) -> bool:
        return bool(self._whole)

    def next(self) -> bytes | None:
        while not self._whole:
            data = self._read()
            if not data:  # what stands after the last line end is a line too
                self._finish()
                return self._whole.popleft() if self._whole else b""
            *lines, rest = data.split(b"\n")
            for line in lines:
                self._keep(line)
                self._finish()
            self._keep(rest)
        return self._whole.popleft()

    def _read(self) -> bytes:
        while True:
            try:
                return os.read(self._fd, READ)
            except BlockingIOError:  # somebody made the input non-blocking; wait for it
                select.select([self._fd], [], [])
            except OSError:  # a terminal that went away
                return b""

    def _keep(self, part: bytes) -> None:
        if part:
            self._size += len(part)
            if self._size <= self._longest:
                self._begun.append(part)

    def _finish(self) -> None:
        line = b"".join(self._begun) if self._size <= self._longest else None
        self._begun, self._size = [], 0
        if line is None or line.strip():
            self._whole.append(line)


class _Bell:
    """Wakes one of those who wait for it. All but `wait` are called by one thread at a time.

    This one rings at once where it should ring when input comes: the next thread waits for the input in our place."""

    def __init__(self) -> None:
        self._rung = threading.Semaphore(0)

    def wait(self) -> None:
        self._rung.acquire()

    def ring(self) -> None:
        self._rung.release()

    def ring_on_input(self) -> None:
        self.ring()

    def silence(self) -> None:
        self._rung.acquire(blocking=False)


class _InputBell(_Bell):
    """Rings when input comes, and only if it was told to: who does not ask is not woken."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._epoll = select.epoll()
        self._epoll.register(fd, select.EPOLLONESHOT)
        self._now, full = os.pipe()
        os.write(full, b"!")  # never read, so that the other end is always ready
        self._epoll.register(self._now, select.EPOLLONESHOT)
        self._set = self._now

    def wait(self) -> None:
        self._epoll.poll(maxevents=1)

    def ring(self) -> None:
        self._arm(self._now)

    def ring_on_input(self) -> None:
        self._arm(self._fd)

    def _arm(self, fd: int) -> None:
        self._set = fd
        self._epoll.modify(fd, select.EPOLLIN | select.EPOLLONESHOT)

    def silence(self) -> None:
        self._epoll.modify(self._set, select.EPOLLONESHOT)  # for nothing, and once: a hang-up is told in any case


def _bell(fd: int) -> _Bell:
    try:
        return _InputBell(fd)
    except (AttributeError, OSError):  # no epoll here, or a plain file, which cannot be polled
        return _Bell()
