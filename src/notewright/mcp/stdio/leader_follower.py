"""Threads that read lines and do what they ask for, each line in the thread that read it.

One thread at a time is the reader. Having read a call, it lets go of the input and does the call itself; another thread
takes the input over only if something comes in meanwhile. So a client that asks one thing at a time is served by one
thread that never waits for another (handing a call to a second thread and its answer to a third costs five times as
much as the call), and one that asks many things at once by as many threads as it needs.
"""

import collections
import os
import select
import threading
from collections.abc import Callable

READ = 1 << 16  # more would be fresh memory from the kernel for every read, which doubles the time of a small call

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
            with self._lock:
                if self._led or self._over:
                    continue
                self._led = True
                self._standing_by -= 1
            self._lead()
            with self._lock:
                self._standing_by += 1
        self._bell.ring()  # the next one goes home too

    def _lead(self) -> None:
        """Read and work until somebody else has taken over the reading, or there is nothing more to read."""
        while True:
            work = self._next()
            if work is None:
                return
            self._let_go()
            tell = work()
            leading = self._take_back()
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

    def _let_go(self) -> None:
        with self._lock:
            self._led = False
            if not self._standing_by:
                self._hire()
            if self._lines.waiting:
                self._bell.ring()
            else:
                self._bell.ring_on_input()

    def _take_back(self) -> bool:
        with self._lock:
            if self._led or self._over:
                return False
            self._led = True
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
            if not data:
                return self._last()
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

    def _last(self) -> bytes | None:
        """What stands after the last line end is a line too."""
        self._finish()
        return self._whole.popleft() if self._whole else b""


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
