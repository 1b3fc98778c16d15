"""How many calls a caller may make: exact sliding windows, in memory."""

import math
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from notewright.errors import Limited

MOST_CALLERS = 10_000


@dataclass(frozen=True, slots=True)
class Window:
    calls: int
    seconds: float
    name: str  # "minute"


class Limiter:
    """Remembers when each caller called. A call that is refused does not count; one that fails does."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._calls: OrderedDict[str, deque[float]] = OrderedDict()

    def count(self, caller: str, windows: Sequence[Window]) -> None:
        """Let one more call through, or Limited with the seconds until the first free place."""
        now = self._clock()
        with self._lock:
            made = self._calls.setdefault(caller, deque())
            self._calls.move_to_end(caller)
            longest = max(window.seconds for window in windows)
            while made and made[0] <= now - longest:
                made.popleft()
            for window in windows:
                if len(made) >= window.calls and made[-window.calls] > now - window.seconds:
                    raise _limited(window, made[-window.calls] + window.seconds - now)
            made.append(now)
            if len(self._calls) > MOST_CALLERS:
                self._calls.popitem(last=False)


def _limited(window: Window, wait: float) -> Limited:
    seconds = max(1, math.ceil(wait))
    return Limited(
        f"{window.calls} calls per {window.name} are used up",
        hint=f"try again in {seconds} seconds",
        retry_after=seconds,
        limit=window.calls,
        window=window.seconds,
        name=window.name,
    )
