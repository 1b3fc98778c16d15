"""Who calls."""

import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from notewright.surfaces import Library, RpcError, Session, Transport


@dataclass(frozen=True, slots=True)
class Caller:
    """Who is at the other end of the wire, and what they may use."""

    library: Library
    session: Session
    transport: Transport
    user: str = ""
    gone: threading.Event | None = None  # set when the client has left before its answer
    refuse: Callable[[RpcError], None] | None = None  # told of a refusal that wants an HTTP status of its own
    stays: Callable[[], Awaitable[bool]] | None = None  # whether they may still listen to what they listen to
