"""Waiting for what other threads and processes do."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(true: Callable[[], object], seconds: float = 30) -> float:
    """Wait for it; how long it took."""
    began = time.monotonic()
    while not true():
        assert time.monotonic() - began < seconds, "it did not come true in time"
        time.sleep(0.005)
    return time.monotonic() - began


def eventually(look: Callable[[], T], seconds: float = 30) -> T:
    """What `look` gives as soon as it is true, or else when the time is up."""
    end = time.monotonic() + seconds
    while not (found := look()) and time.monotonic() < end:
        time.sleep(0.005)
    return found
