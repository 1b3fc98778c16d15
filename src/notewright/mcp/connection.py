"""Who calls."""

import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from notewright.surfaces.base import Library, RpcError, Session, Transport


@dataclass(frozen=True, slots=True)
class ClientConnection:
    """Who is at the other end of the wire, and what they may use."""

    library: Library
    session: Session
    transport: Transport
    user: str = ""
    gone: threading.Event | None = None  # set when the client has left before its answer
    refuse: Callable[[RpcError], None] | None = None  # told of a refusal that wants an HTTP status of its own
    stays: Callable[[], Awaitable[bool]] | None = None  # whether they may still listen to what they listen to


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
