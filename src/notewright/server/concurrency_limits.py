"""How many calls of one caller run at once over HTTP, and how many they may make in a minute.

One caller who asks for everything at once must not take all threads from the others: above a limit their calls wait in
a queue, and where the queue is full they are refused. Surfaces that have call limits of their own are not counted here
a second time.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from notewright.accounts.limits import RateLimits, Window
from notewright.config.load import Config
from notewright.errors import Limited

MIN_CALLS_AT_ONCE = 20  # that every client may have
MAX_WAITING_CALLS = 256  # of one caller
UNLIMITED = 1 << 30


@dataclass(slots=True)
class _CallerQueue:
    """The calls of one caller."""

    slots: asyncio.Semaphore
    calls: int = 0  # that run or wait


class ConcurrencyLimits:
    """The limits of all callers in one process, used on its event loop only. Zero is no limit."""

    def __init__(
        self,
        limiter: RateLimits | None = None,
        *,
        per_minute: int = 0,
        at_once: int = 0,
        waiting: int = MAX_WAITING_CALLS,
    ) -> None:
        self._limiter = limiter
        self._windows = [Window(per_minute, 60, "minute")] if per_minute else []
        self._at_once = at_once or UNLIMITED
        self._waiting = waiting
        self._queues: dict[str, _CallerQueue] = {}

    @classmethod
    def from_config(cls, config: Config, limiter: RateLimits) -> "ConcurrencyLimits":
        """As configured. Each worker has its share of what may run at once, so that all together keep to the limit,
        but never less than the twenty that any client may have."""
        at_once, workers = config["http.calls_at_once"], max(1, config["http.workers"])
        share = min(at_once, max(MIN_CALLS_AT_ONCE, -(-at_once // workers)))
        return cls(limiter, per_minute=config["http.calls_per_minute"] if config["rate_limits"] else 0, at_once=share)

    @contextlib.asynccontextmanager
    async def slot(self, caller: str, *, counted: bool = True) -> AsyncIterator[None]:
        """Wait until the call may run, and hold its slot while it does; Limited when the queue is full."""
        queue = self._queues.get(caller) or _CallerQueue(asyncio.Semaphore(self._at_once))
        if queue.calls >= self._at_once + self._waiting:
            raise Limited(
                f"{self._at_once} calls of yours run and {queue.calls - self._at_once} wait",
                hint="try again in 1 second, with fewer calls at once",
                retry_after=1,
                limit=self._at_once + self._waiting,
                window=0,
                name="moment",
            )
        if counted and self._windows and self._limiter is not None:
            self._limiter.count(f"http {caller}", self._windows)
        self._queues[caller] = queue
        queue.calls += 1
        try:
            async with queue.slots:
                yield
        finally:
            queue.calls -= 1
            if not queue.calls:
                del self._queues[caller]
