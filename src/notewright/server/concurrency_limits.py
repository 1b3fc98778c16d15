"""How many calls of one caller run at once over HTTP, and how many they may make in a minute.

One caller who asks for everything at once must not take all threads from the others: beyond some, their calls wait in
line, and beyond many they are refused. Surfaces that have call limits of their own are not counted here a second time.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from notewright.accounts.limits import RateLimits, Window
from notewright.config.load import Config
from notewright.errors import Limited

LEAST = 20  # calls at once that every client may have
WAITING = 256  # calls of one caller that may stand in line
UNLIMITED = 1 << 30


@dataclass(slots=True)
class _Line:
    """The calls of one caller."""

    turns: asyncio.Semaphore
    running: int = 0
    waiting: int = 0


class ConcurrencyLimits:
    """Of all callers of one process; only its event loop's thread may use it. Zero is no limit."""

    def __init__(
        self, limiter: RateLimits | None = None, *, per_minute: int = 0, at_once: int = 0, waiting: int = WAITING
    ) -> None:
        self._limiter = limiter
        self._windows = [Window(per_minute, 60, "minute")] if per_minute else []
        self._at_once = at_once
        self._waiting = waiting
        self._lines: dict[str, _Line] = {}

    @classmethod
    def of(cls, config: Config, limiter: RateLimits) -> "ConcurrencyLimits":
        """As configured. Each worker has its share of what may run at once, so that all together keep to it; but for
        the twenty that any client may have."""
        at_once, workers = config["http.calls_at_once"], max(1, config["http.workers"])
        share = min(at_once, max(LEAST, -(-at_once // workers)))
        return cls(limiter, per_minute=config["http.calls_per_minute"] if config["rate_limits"] else 0, at_once=share)

    @contextlib.asynccontextmanager
    async def turn(self, caller: str, *, counted: bool = True) -> AsyncIterator[None]:
        """Waits until the call may run, and holds its place while it does; Limited when it may not even wait."""
        line = self._lines.get(caller) or _Line(asyncio.Semaphore(self._at_once or UNLIMITED))
        if line.waiting >= self._waiting:
            raise Limited(
                f"{line.running} calls of yours run and {line.waiting} wait",
                hint="try again in 1 second, with fewer calls at once",
                retry_after=1,
                limit=self._at_once + self._waiting,
                window=0,
                name="moment",
            )
        if counted and self._windows and self._limiter is not None:
            self._limiter.count(f"http {caller}", self._windows)
        self._lines[caller] = line
        line.waiting += 1
        try:
            try:
                await line.turns.acquire()
            finally:
                line.waiting -= 1
            line.running += 1
            try:
                yield
            finally:
                line.running -= 1
                line.turns.release()
        finally:
            if not line.waiting and not line.running:
                self._lines.pop(caller, None)
