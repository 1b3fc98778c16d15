"""Threads for the engine's blocking calls, so that many run at once and the event loop never waits.

Our own and not `concurrent.futures`: that one joins its threads when Python ends, and a call that hangs must not keep a
server whose client has gone.

There are two pools. A call has a thread of its own in the large one, unless it says that it is brief: threads that all
want the interpreter cost more in handing it about than a brief call does, so those take turns in a pool of one (eight
clients, two cores: 184 searches a second, 105 with a thread for each). Brief calls that turn out not to be (a disk
hangs) hold up nobody for long: those that wait go to the large pool.
"""

import asyncio
import contextvars
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from notewright.errors import Busy

P = ParamSpec("P")
T = TypeVar("T")

BRIEF_THREADS = 1
STUCK_SECONDS = 0.02  # in which no brief call began although some wait
_Job = Callable[[], None]


class _Threads:
    """At most so many threads, made when needed; jobs wait their turn."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._changed = threading.Condition()  # of everything below
        self._idle = self._started = 0
        self._closed = False
        self._began = 0.0  # when a job last did
        self.jobs: deque[_Job] = deque()

    def put(self, *jobs: _Job) -> None:
        for job in jobs:
            with self._changed:
                self.jobs.append(job)
                if self._idle >= len(self.jobs):
                    self._changed.notify()
                elif self._started < self._most:
                    self._started += 1
                    threading.Thread(target=self._work, name=f"call-{self._started}", daemon=True).start()

    def take_all(self) -> list[_Job]:
        """The jobs that wait, to be done elsewhere."""
        with self._changed:
            jobs = list(self.jobs)
            self.jobs.clear()
        return jobs

    def is_stuck(self) -> bool:
        """Whether all threads have been at their jobs for some time."""
        return self._started == self._most and not self._idle and time.monotonic() - self._began >= STUCK_SECONDS

    def close(self) -> None:
        """Idle threads end; busy ones end with their job, or with the process."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _work(self) -> None:
        while job := self._next():
            job()
            del job  # and with it what it holds, while we sleep

    def _next(self) -> _Job | None:
        with self._changed:
            while not self.jobs:
                if self._closed:
                    return None
                self._idle += 1
                self._changed.wait()
                self._idle -= 1
            self._began = time.monotonic()
            return self.jobs.popleft()


class ThreadPool:
    """At most so many threads; more calls wait their turn, and far too many are refused. Used by one event loop."""

    def __init__(self, threads: int = 32, waiting: int = 1024) -> None:
        self._most = threads + waiting
        self._brief = _Threads(BRIEF_THREADS)
        self._calls = _Threads(max(1, threads - BRIEF_THREADS))
        self._running = 0  # given out and not answered
        self._is_checking = False  # soon, whether brief calls are stuck

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What `work` returns or raises. When the caller is cancelled, a call that has begun goes on by itself.

        The thread sees the caller's context variables: what it logs names the request it works for.
        """
        return await self._answer(self._calls, lambda: work(*args, **kwargs))

    async def finish(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The same for work that ends something begun: it waits its turn and is never refused."""
        return await self._answer(self._calls, lambda: work(*args, **kwargs), refuse=False)

    async def run_brief(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The same for work that rarely takes longer than some milliseconds and waits for nothing."""
        if not self._is_checking:
            self._is_checking = True
            asyncio.get_running_loop().call_later(STUCK_SECONDS, self._unstick)
        return await self._answer(self._calls if self._brief.is_stuck() else self._brief, lambda: work(*args, **kwargs))

    @property
    def behind(self) -> bool:
        """Whether a call waits for a thread: one that comes now could not begin at once."""
        return bool(self._calls.jobs or self._brief.jobs)

    def close(self) -> None:
        self._calls.close()
        self._brief.close()

    async def _answer(self, threads: _Threads, work: Callable[[], T], *, refuse: bool = True) -> T:
        if refuse and self._running >= self._most:
            raise Busy("too many calls at once", hint="wait for some answers, then try again")
        loop, here = asyncio.get_running_loop(), contextvars.copy_context()
        answer: asyncio.Future[T] = loop.create_future()

        def job() -> None:
            try:
                result, error = (None if answer.cancelled() else here.run(work)), None
            except BaseException as raised:
                result, error = None, raised
            try:
                loop.call_soon_threadsafe(self._settle, answer, result, error)
            except RuntimeError:  # the loop ended before the call: nothing waits for it any more
                pass

        self._running += 1
        threads.put(job)
        return await answer

    def _settle(self, answer: "asyncio.Future[Any]", result: object, error: BaseException | None) -> None:
        self._running -= 1
        if answer.cancelled():
            return
        if error is None:
            answer.set_result(result)
        else:  # a future takes no StopIteration, and would wait for ever
            answer.set_exception(RuntimeError(error) if isinstance(error, StopIteration) else error)

    def _unstick(self) -> None:
        if self._brief.is_stuck():
            self._calls.put(*self._brief.take_all())
        self._is_checking = bool(self._brief.jobs)
        if self._is_checking:
            asyncio.get_running_loop().call_later(STUCK_SECONDS, self._unstick)
