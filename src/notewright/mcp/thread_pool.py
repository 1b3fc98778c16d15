"""Threads for the engine's blocking calls, so that many run at once and the event loop never waits.

Our own and not `concurrent.futures`: that one joins its threads when Python ends, and a call that hangs must not keep a
server whose client has gone.

A call has a thread of its own, unless it says that it is brief. Threads that all want the interpreter cost more in
handing it about than a brief call does, so such a one waits for a thread that has just begun another of its kind, and
gets one more thread when those there have to wait themselves (for a disk) or have been at their calls for long. One
process, eight clients, two cores; calls a second, processor time of a call, and how often a thread waited for its turn:

    a thread for each call      read 1,000  1.1 ms  26      search 105  12 ms  230
    as few as do (this)         read 1,750  0.6 ms   3      search 168   7 ms   33
    one thread                  read 1,470  0.7 ms   4      search 184   6 ms   10
"""

import asyncio
import contextvars
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

from notewright.errors import Busy

P = ParamSpec("P")
T = TypeVar("T")

SOON = 0.003  # seconds: whoever began a brief call later than that is nearly done
LONG = 0.02  # seconds that brief calls may wait while threads work hard at others that were not so brief
FEW = 2  # threads that may work hard at once: one of them may be in a library that does without the interpreter
HARD = 0.9  # of one processor
_Job = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", Callable[[], object]]


class _Hand:
    """One thread: when it began its call and whether that is brief, and what it sleeps on while there is none."""

    __slots__ = ("began", "bell", "brief", "thread", "woken")

    def __init__(self) -> None:
        self.thread: threading.Thread | None = None
        self.began = 0.0
        self.brief = False
        self.woken = False  # for a call that counts on it
        self.bell = threading.Lock()
        self.bell.acquire()


class ThreadPool:
    """At most so many threads, made when needed; more calls wait their turn, and far too many are refused."""

    def __init__(self, threads: int = 32, waiting: int = 1024) -> None:
        self._threads = threads
        self._waiting = waiting
        self._lock = threading.Lock()  # for everything down to the gap
        self._jobs: deque[_Job] = deque()
        self._brief: deque[_Job] = deque()
        self._busy: set[_Hand] = set()
        self._idle: list[_Hand] = []
        self._started = 0
        self._closed = False
        self._spent, self._measured, self._hard = 0.0, 0.0, False  # how much the process has worked of late

        self._running = 0  # given out and not answered; only the event loop's thread counts
        self._looking: asyncio.AbstractEventLoop | None = None  # which will look soon whether brief calls still wait

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What `work` returns or raises. When the caller is cancelled, a call that has begun goes on by itself.

        The thread sees the caller's context variables: what it logs names the request it works for.
        """
        return await self._answer(False, lambda: work(*args, **kwargs))

    async def run_brief(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The same for what seldom takes longer than some milliseconds, and waits for nobody."""
        return await self._answer(True, lambda: work(*args, **kwargs))

    @property
    def behind(self) -> bool:
        """Whether a call waits for a thread: one that comes now could not begin at once."""
        return bool(self._jobs or self._brief)

    def close(self) -> None:
        """Idle threads end; busy ones end with their call, or with the process."""
        with self._lock:
            self._closed = True
            for hand in self._idle:
                hand.bell.release()
            self._idle.clear()

    # On the event loop

    async def _answer(self, brief: bool, work: Callable[[], T]) -> T:
        if self._running >= self._threads + self._waiting:
            raise Busy("too many calls at once", hint="wait for some answers, then try again")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        self._running += 1
        here = contextvars.copy_context()
        job: _Job = (loop, answer, lambda: here.run(work))
        if brief:
            self._share_out(loop, job)
        else:
            with self._lock:
                self._jobs.append(job)
                hand = self._called(False)
            self._rouse(hand)
        return await answer

    def _share_out(self, loop: asyncio.AbstractEventLoop, *jobs: _Job) -> None:
        """Brief calls: another thread for the first that waits, if those there will not do."""
        with self._lock:
            self._brief.extend(jobs)
            enough = not self._brief or self._suffice(self._busy)
            hand = None if enough else self._called(True)
            waiting = len(self._brief) - (hand is not None)
        self._rouse(hand)
        if waiting > 0 and self._looking is not loop:
            self._looking = loop
            loop.call_later(SOON, self._look_again, loop)

    def _look_again(self, loop: asyncio.AbstractEventLoop) -> None:
        self._looking = None
        self._share_out(loop)

    def _called(self, brief: bool) -> _Hand | None:
        """One more for a call that waits: who has slept least, or somebody new; None if all are at work."""
        if self._idle:
            hand = self._idle.pop()
        elif self._started < self._threads:
            self._started += 1
            hand = _Hand()
        else:
            return None
        hand.began, hand.brief, hand.woken = time.monotonic(), brief, True
        self._busy.add(hand)
        return hand

    def _rouse(self, hand: _Hand | None) -> None:
        if hand is None:
            return
        if hand.thread is None:
            hand.thread = threading.Thread(target=self._work, args=(hand,), name=f"call-{self._started}", daemon=True)
            hand.thread.start()
        else:
            hand.bell.release()

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
                job = self._next(hand)
                if job is None and self._closed:
                    return
            if job is None:
                hand.bell.acquire()
            else:
                self._do(*job)
                del job  # and with it what it holds, while we sleep

    def _next(self, hand: _Hand) -> _Job | None:
        """What to do now; None to go to sleep, because there is nothing or the others will see to it."""
        if self._jobs:
            job, hand.brief = self._jobs.popleft(), False
        elif self._brief and (hand.woken or not self._suffice(self._busy - {hand})):
            job, hand.brief = self._brief.popleft(), True
        else:
            self._busy.discard(hand)
            if not self._closed:
                self._idle.append(hand)
            return None
        hand.began, hand.woken = time.monotonic(), False
        return job

    def _do(self, loop: asyncio.AbstractEventLoop, answer: "asyncio.Future[Any]", work: Callable[[], object]) -> None:
        try:
            result, error = (None, None) if answer.cancelled() else (work(), None)
        except BaseException as raised:
            result, error = None, raised
        try:
            loop.call_soon_threadsafe(self._settle, answer, result, error)
        except RuntimeError:  # the loop has ended before the call did: nobody waits any more
            pass

    # Under the lock

    def _suffice(self, hands: Iterable[_Hand]) -> bool:
        """Whether one of these will be free for a brief call before it is worth waking another."""
        began = [hand.began for hand in hands if hand.brief]
        now = time.monotonic()
        since = now - max(began, default=0.0)
        return since < SOON or (len(began) >= FEW and since < LONG and self._work_hard(now))

    def _work_hard(self, now: float) -> bool:
        """Whether the process used a whole processor of late; as long as that is not known, yes."""
        if now - self._measured >= SOON / 2:
            spent, known = time.process_time(), now - self._measured < 4 * SOON
            self._hard = not known or spent - self._spent >= HARD * (now - self._measured)
            self._spent, self._measured = spent, now
        return self._hard
