"""Threads for the engine's blocking calls, so that many run at once and the event loop never waits.

Our own and not `concurrent.futures`: that one joins its threads when Python ends, and a call that hangs must not keep a
server whose client has gone.
"""

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from notewright.errors import Busy

P = ParamSpec("P")
T = TypeVar("T")

_Job = tuple[asyncio.AbstractEventLoop, "asyncio.Future[object]", Callable[[], object]]


class Workers:
    """At most so many threads, made when needed; more calls wait their turn, and far too many are refused."""

    def __init__(self, threads: int = 32, waiting: int = 1024) -> None:
        self._threads = threads
        self._waiting = waiting
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._started = 0
        self._running = 0  # given out and not answered; only the event loop's thread counts

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What `work` returns or raises. When the caller is cancelled, a call that has begun goes on by itself.

        The thread sees the caller's context variables: what it logs names the request it works for.
        """
        if self._running >= self._threads + self._waiting:
            raise Busy("too many calls at once", hint="wait for some answers, then try again")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[object] = loop.create_future()
        self._running += 1
        if self._started < min(self._running, self._threads):
            self._start()
        here = contextvars.copy_context()
        self._jobs.put((loop, answer, lambda: here.run(work, *args, **kwargs)))
        return await answer  # type: ignore[return-value]

    def close(self) -> None:
        """Idle threads end; busy ones end with their call, or with the process."""
        for _ in range(self._started):
            self._jobs.put(None)

    def _start(self) -> None:
        self._started += 1
        threading.Thread(target=self._work, name=f"call-{self._started}", daemon=True).start()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            loop, answer, work = job
            try:
                result, error = (None, None) if answer.cancelled() else (work(), None)
            except BaseException as raised:
                result, error = None, raised
            try:
                loop.call_soon_threadsafe(self._settle, answer, result, error)
            except RuntimeError:  # the loop has ended before the call did: nobody waits any more
                return

    def _settle(self, answer: "asyncio.Future[object]", result: object, error: BaseException | None) -> None:
        self._running -= 1
        if answer.cancelled():
            return
        if error is None:
            answer.set_result(result)
        else:  # a future takes no StopIteration, and would wait for ever
            answer.set_exception(RuntimeError(error) if isinstance(error, StopIteration) else error)
