"""How far a call is, told now and then."""

import time
from collections.abc import Callable

Report = Callable[[float, float | None, str | None], None]

EVERY = 0.1  # seconds


def unheard(done: float, total: float | None, message: str | None) -> None:
    """For a client that did not ask."""


def now_and_then(tell: Report) -> Report:
    """`tell`, but not more often than anybody can read; the last step is always told."""
    last = 0.0

    def report(done: float, total: float | None, message: str | None) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= EVERY or done == total:
            last = now
            tell(done, total, message)

    return report
