"""Threads for the engine's blocking calls, so that many run at once and the event loop never waits.

Our own and not `concurrent.futures`: that one joins its threads when Python ends, and a call that hangs must not keep a
server whose client has gone.

Threads that all want the interpreter cost more in handing it about than a short call does. So a call first waits for a
thread that has just begun another one; it gets a thread of its own when those there wait for something themselves (a
disk, a lock), or have all been at their calls for long. Eight clients at one process, two cores, calls a second and
processor time of a call (the interpreter changed hands 26 times during a read with a thread for each, 4 times so):

    a thread for each call      read 1,040, 1.1 ms      search 105, 12 ms
    as few as do (this)         read 1,590, 0.7 ms      search 152,  9 ms
"""

import asyncio
import contextvars
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from notewright.errors import Busy

P = ParamSpec("P")
T = TypeVar("T")

SOON = 0.003  # seconds: whoever began a call later than that is nearly done
LONG = 0.02  # seconds for which calls may wait while all threads work hard: a short one comes between long ones
FEW = 2  # threads that may work hard at once: one of them may be in a library that does without the interpreter
HARD = 0.9  # of one processor
_Job = tuple[asyncio.AbstractEventLoop, "asyncio.Future[object]", Callable[[], object]]


class _Hand:
    """One thread: when it began its call, and what it sleeps on while there is none."""

    __slots__ = ("began", "bell")

    def __init__(self, began: float) -> None:
        self.began = began
        self.bell = threading.Lock()
        self.bell.acquire()


class Workers:
    """At most so many threads, made when needed; more calls wait their turn, and far too many are refused."""

    def __init__(self, threads: int = 32, waiting: int = 1024) -> None:
        self._threads = threads
        self._waiting = waiting
        self._lock = threading.Lock()  # for everything down to the gap
        self._jobs: deque[_Job] = deque()
        self._busy: set[_Hand] = set()
        self._idle: list[_Hand] = []
        self._started = 0
        self._closed = False
        self._spent, self._measured, self._hard = 0.0, 0.0, False  # how much the process has worked of late

        self._running = 0  # given out and not answered; only the event loop's thread counts
        self._looking: asyncio.AbstractEventLoop | None = None  # which will look soon whether calls still wait

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What `work` returns or raises. When the caller is cancelled, a call that has begun goes on by itself.

        The thread sees the caller's context variables: what it logs names the request it works for.
        """
        if self._running >= self._threads + self._waiting:
            raise Busy("too many calls at once", hint="wait for some answers, then try again")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[object] = loop.create_future()
        self._running += 1
        here = contextvars.copy_context()
        self._give_out(loop, (loop, answer, lambda: here.run(work, *args, **kwargs)))
        return await answer  # type: ignore[return-value]

    def close(self) -> None:
        """Idle threads end; busy ones end with their call, or with the process."""
        with self._lock:
            self._closed = True
            for hand in self._idle:
                hand.bell.release()
            self._idle.clear()

    # On the event loop

    def _give_out(self, loop: asyncio.AbstractEventLoop, *jobs: _Job) -> None:
        now, fresh = time.monotonic(), None
        with self._lock:
            self._jobs.extend(jobs)
            waiting = len(self._jobs)
            if waiting and self._short_of_hands(now):
                fresh = self._wake(now)
                waiting -= 1
        if fresh is not None:
            threading.Thread(target=self._work, args=(fresh,), name=f"call-{self._started}", daemon=True).start()
        if waiting > 0 and self._looking is not loop:
            self._looking = loop
            loop.call_later(SOON, self._look_again, loop)

    def _look_again(self, loop: asyncio.AbstractEventLoop) -> None:
        self._looking = None
        self._give_out(loop)

    def _short_of_hands(self, now: float) -> bool:
        since = now - max((hand.began for hand in self._busy), default=0.0)
        if since < SOON:
            return False
        return len(self._busy) < FEW or since >= LONG or not self._work_hard(now)

    def _work_hard(self, now: float) -> bool:
        if now - self._measured >= SOON / 2:
            spent = time.process_time()
            self._hard = spent - self._spent >= HARD * (now - self._measured)
            self._spent, self._measured = spent, now
        return self._hard

    def _wake(self, now: float) -> _Hand | None:
        """The one that has slept least wakes up; without any, a new one is to be started."""
        if self._idle:
            hand = self._idle.pop()
            hand.began = now
            self._busy.add(hand)
            hand.bell.release()
        elif self._started < self._threads:
            self._started += 1
            self._busy.add(fresh := _Hand(now))
            return fresh
        return None

    def _settle(self, answer: "asyncio.Future[object]", result: object, error: BaseException | None) -> None:
        self._running -= 1
        if answer.cancelled():
            return
        if error is None:
            answer.set_result(result)
        else:  # a future takes no StopIteration, and would wait for ever
            answer.set_exception(RuntimeError(error) if isinstance(error, StopIteration) else error)

    # In the threads

    def _work(self, hand: _Hand) -> None:
        while True:
            with self._lock:
                job = self._jobs.popleft() if self._jobs else None
                if job is not None:
                    hand.began = time.monotonic()
                else:
                    self._busy.discard(hand)
                    if self._closed:
                        return
                    self._idle.append(hand)
            if job is None:
                hand.bell.acquire()
            else:
                self._do(*job)

    def _do(
        self, loop: asyncio.AbstractEventLoop, answer: "asyncio.Future[object]", work: Callable[[], object]
    ) -> None:
        try:
            result, error = (None, None) if answer.cancelled() else (work(), None)
        except BaseException as raised:
            result, error = None, raised
        try:
            loop.call_soon_threadsafe(self._settle, answer, result, error)
        except RuntimeError:  # the loop has ended before the call did: nobody waits any more
            pass
