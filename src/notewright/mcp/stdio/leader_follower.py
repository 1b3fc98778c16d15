"""A leader-follower thread pool: threads that read lines, each doing the call it has read.

One thread at a time is the reader. Having read a call, it stops reading and does the call itself. If input comes
meanwhile, another thread watches, and becomes the reader only if the call turns out not to be short. So a client that
asks one thing at a time is served by one thread that never waits for another (handing a call to a second thread and its
answer to a third costs five times as much as the call), one that asks many short things at once too (threads that
compete for the interpreter cost more in switches than such a call does), and one that asks many long things at once by
two threads, and by more when those seem to wait for something.
"""

import collections
import os
import select
import threading
import time
from collections.abc import Callable

# More would be fresh memory from the kernel for every read, which doubles the time of a small call.
READ_BYTES = 1 << 16

SHORT_SECONDS = 0.002  # a call that is done within this is waited for by those behind it
MAX_BUSY_THREADS = 2  # on long calls: a search holds the interpreter for more than half of its time
STUCK_SECONDS = 0.02  # if no call ended for so long, those under way wait for something else than the interpreter

Work = Callable[[], Callable[[], None]]  # does a call, and returns a function that sends its outcome


class LineReaders:
    """Reads lines from `fd` until its end. `take` looks at each, in order, and may return work to do with it.

    A line longer than `max_bytes` is given as None. `on_end` is called once, at the end of the input.
    """

    def __init__(
        self,
        fd: int,
        take: Callable[[bytes | None], Work | None],
        on_end: Callable[[], None],
        *,
        max_bytes: int,
        threads: int = 32,
    ) -> None:
        self._lines = _LineBuffer(fd, max_bytes)
        self._take = take
        self._on_end = on_end
        self._wakeup: _Wakeup
        try:
            self._wakeup = _InputWakeup(fd)
        except (AttributeError, OSError):  # no epoll here, or a plain file, which cannot be polled
            self._wakeup = _Wakeup()
        self._lock = threading.Lock()  # of everything below
        self._has_reader = False
        self._has_watcher = False  # a thread looks whether the calls under way are short
        self._last_start = 0.0  # of a call
        self._last_end = 0.0  # of a call, or when the first of those under way began
        self._running = 0  # calls begun and not done
        self._ended = False  # no more input
        self._idle = 0  # threads that wait for the wakeup
        self._threads_left = threads  # that may still be started

    def start(self) -> None:
        with self._lock:
            self._start_thread()
            self._wakeup.fire()

    def _start_thread(self) -> None:
        if self._threads_left > 0:
            self._threads_left -= 1
            self._idle += 1
            threading.Thread(target=self._run, name=f"wire-{self._threads_left}", daemon=True).start()

    def _run(self) -> None:
        while not self._ended:
            self._wakeup.wait()
            if self._watch():
                self._read_and_work()
                with self._lock:
                    self._idle += 1
        self._wakeup.fire()  # so that the next thread ends too

    def _watch(self) -> bool:
        """Watch while calls come one after the other: whether one takes so long that this thread is the reader now."""
        with self._lock:
            if self._has_watcher:
                return False
            self._has_watcher = True
        seen = -1.0
        while True:
            with self._lock:
                if self._ended or (self._has_reader and self._last_start == seen):  # nothing is asked for any more
                    self._has_watcher = False
                    return False
                now = time.monotonic()
                may_begin = self._running < MAX_BUSY_THREADS or now - self._last_end >= STUCK_SECONDS
                if not self._has_reader and now - self._last_start >= SHORT_SECONDS and may_begin:
                    self._has_watcher = False
                    self._has_reader = True
                    self._idle -= 1
                    return True
                seen = self._last_start
            time.sleep(SHORT_SECONDS)

    def _read_and_work(self) -> None:
        """Read and do calls until another thread has become the reader, or there is nothing more to read."""
        while (work := self._next_work()) is not None:
            began = self._begin_call()
            send = work()
            still_reader = self._end_call(began)
            send()  # only now: the client may ask again at once, and no other thread need wake up for it
            if not still_reader:
                return

    def _next_work(self) -> Work | None:
        """The next work among the lines; None at their end."""
        while (line := self._lines.next()) != b"":
            work = self._take(line)
            if work is not None:
                return work
        with self._lock:
            self._ended = True
        self._wakeup.fire()
        self._on_end()
        return None

    def _begin_call(self) -> float:
        """Stop being the reader; the time."""
        with self._lock:
            self._has_reader = False
            began = self._last_start = time.monotonic()
            if not self._running:
                self._last_end = began
            self._running += 1
            if not self._idle:
                self._start_thread()
            if not self._has_watcher:
                if self._lines.waiting:
                    self._wakeup.fire()
                else:
                    self._wakeup.fire_on_input()
            return began

    def _end_call(self, began: float) -> bool:
        """Whether this thread is the reader again. Of two with short calls the one that began last is enough."""
        with self._lock:
            self._running -= 1
            self._last_end = time.monotonic()
            is_spare = self._last_start > began and self._last_end - began < SHORT_SECONDS
            if self._has_reader or self._ended or is_spare:
                return False
            self._has_reader = True
            if not self._has_watcher:
                self._wakeup.cancel()
            return True


class _LineBuffer:
    """Lines without their ends, blank ones left out; b"" at the end of the input."""

    def __init__(self, fd: int, max_bytes: int) -> None:
        self._fd = fd
        self._max_bytes = max_bytes
        self.waiting: collections.deque[bytes | None] = collections.deque()
        self._parts: list[bytes] = []  # of a line whose end was not read yet
        self._size = 0  # of that line, also where it is too long to be kept

    def next(self) -> bytes | None:
        while not self.waiting:
            data = self._read()
            *ends, rest = data.split(b"\n") if data else (b"", b"")  # after the last line end stands a line too
            for part in ends:
                self._append(part)
                line = b"".join(self._parts) if self._size <= self._max_bytes else None
                self._parts, self._size = [], 0
                if line is None or line.strip():
                    self.waiting.append(line)
            if not data and not self.waiting:
                return b""
            self._append(rest)
        return self.waiting.popleft()

    def _read(self) -> bytes:
        while True:
            try:
                return os.read(self._fd, READ_BYTES)
            except BlockingIOError:  # the client made the input non-blocking; wait for it
                select.select([self._fd], [], [])
            except OSError:  # a terminal that went away
                return b""

    def _append(self, part: bytes) -> None:
        self._size += len(part)
        if part and self._size <= self._max_bytes:
            self._parts.append(part)


class _Wakeup:
    """Wakes one of the threads that wait for it. All but `wait` are called by one thread at a time.

    This one fires at once where it should fire on input: the next thread waits for the input in our place."""

    def __init__(self) -> None:
        self._fired = threading.Semaphore(0)

    def wait(self) -> None:
        self._fired.acquire()

    def fire(self) -> None:
        self._fired.release()

    def fire_on_input(self) -> None:
        self.fire()

    def cancel(self) -> None:
        self._fired.acquire(blocking=False)


class _InputWakeup(_Wakeup):
    """Fires when input comes, and only if it was told to."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._epoll = select.epoll()
        self._epoll.register(fd, select.EPOLLONESHOT)
        self._always_ready, full = os.pipe()
        os.write(full, b"!")  # never read, so that the other end is always ready
        self._epoll.register(self._always_ready, select.EPOLLONESHOT)
        self._armed = self._always_ready

    def wait(self) -> None:
        self._epoll.poll(maxevents=1)

    def fire(self) -> None:
        self._arm(self._always_ready)

    def fire_on_input(self) -> None:
        self._arm(self._fd)

    def _arm(self, fd: int) -> None:
        self._armed = fd
        self._epoll.modify(fd, select.EPOLLIN | select.EPOLLONESHOT)

    def cancel(self) -> None:
        self._epoll.modify(self._armed, select.EPOLLONESHOT)  # for nothing, and once: a hang-up is told in any case
