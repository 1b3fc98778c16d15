"""How long a search may take and how much memory it may need: found out before an engine begins what nobody can stop.

re2 searches in linear time, but a large program is slow where re2 must do without its table of states, and no call of
it can be stopped. `regex` has a clock of its own, and needs memory for every turn of a repetition.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import re2  # type: ignore[import-untyped]

from notewright.engine.find._regex_writers import RE2_BYTES, compile_re2

Span = tuple[int, int]

_ANYWHERE = re2._Anchor.UNANCHORED
_SLICE = 4_000_000  # bytes searched between two looks at the clock
_STEPS = 50_000_000  # in a slice: one for each byte and instruction, up to ten nanoseconds
_SAMPLES = 16  # of a long text
_BESIDE = 2 << 20  # bytes that one may need without waiting for others

_much = threading.Lock()  # who needs much memory is alone with that


class OutOfTime(Exception):
    """The search was stopped before it was done: what was found so far is what there is."""


@dataclass(slots=True)
class Patience:
    """How long a search may take, and whether anybody still waits for it."""

    until: float  # on the monotonic clock
    cancelled: Callable[[], bool] | None = None
    left_out: bool = False  # a text was too long for what the pattern asks

    @classmethod
    def of(cls, seconds: float, cancelled: Callable[[], bool] | None = None) -> "Patience":
        return cls(time.monotonic() + seconds, cancelled)

    def left(self) -> float:
        """Seconds that remain, or OutOfTime."""
        rest = self.until - time.monotonic()
        if rest <= 0 or (self.cancelled is not None and self.cancelled()):
            raise OutOfTime
        return rest


# ---- memory -------------------------------------------------------------------------------------------


@contextmanager
def room(needed: int, patience: Patience) -> Iterator[None]:
    """For so many bytes of memory: whoever needs much waits until nobody else does."""
    if needed <= _BESIDE:
        yield
        return
    if not _much.acquire(timeout=patience.left()):
        raise OutOfTime
    try:
        yield
    finally:
        _much.release()


# ---- re2 ----------------------------------------------------------------------------------------------


def stride(pattern: Any) -> int:
    """Bytes that may be searched without a look at the clock, even if every instruction is at work for each."""
    return _SLICE if pattern is None else max(1_000, min(_SLICE, _STEPS // pattern.programsize))


def fits(pattern: Any, data: bytes, low: int, high: int, patience: Patience) -> bool:
    """Would a search end in time, at its slowest? Told from samples, with every instruction at work: re2 falls back on
    that where a pattern has too many states. `left_out` says so if not."""
    length, size = high - low, pattern.programsize
    if length <= 4 * stride(pattern):
        return True
    never, sample, worst = _never(pattern.pattern, size), max(256, min(4096, _STEPS // 10 // size)), 0.0
    for at in range(low, high, max(length // _SAMPLES, sample)):
        began = time.thread_time()  # a busy machine must not look like a slow pattern
        search(never, data, at, min(at + sample, high))
        worst = max(worst, (time.thread_time() - began) / sample)
        if worst * length > patience.left():
            patience.left_out = True
            return False
    return True


@lru_cache(maxsize=4)
def _never(source: str, size: int) -> Any:
    """Finds nothing, after a look at everything; with memory for its program and hardly any for states."""
    memory = 16 * (size + 100)
    while True:
        try:
            return compile_re2(rf"(?:{source})\x{{10ffff}}\x{{10fffe}}\x{{10ffff}}", memory=memory)
        except re2.error:
            if memory > 2 * RE2_BYTES:
                raise
            memory += memory // 2


def search(pattern: Any, data: bytes, low: int, high: int | None = None) -> Span | None:
    # the public search() makes three objects for each match, which is most of the time where many lines match
    span: Span = pattern._regexp.Match(_ANYWHERE, data, low, len(data) if high is None else high)[0]
    return span if span[0] >= 0 else None
