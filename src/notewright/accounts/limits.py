"""What is remembered about who calls: how often, in which session, and what was said once.

Traffic is no truth. It may be lost at any moment, and costs a caller nothing but a count that begins anew.
"""

import math
import threading
import time
from array import array
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from notewright.errors import Limited

MAX_NOTED = 200  # digests of one session
MAX_REMEMBERED = 10_000  # callers, and sessions; more are forgotten, the longest unused first
AHEAD_SECONDS = 1.0  # a call that lies further in the future was counted before somebody set the clock back


@dataclass(frozen=True, slots=True)
class Window:
    """So many calls in so many seconds, wherever those begin."""

    calls: int
    seconds: float
    name: str  # "minute"


def add_call(made: "array[float]", windows: Sequence[Window], now: float, *, peek: bool = False) -> None:
    """One more after the calls that were made, of which those are kept that may matter; or Limited."""
    if made and not now - max(window.seconds for window in windows) < made[-1] <= now + AHEAD_SECONDS:
        del made[:]
    for window in windows:
        if len(made) >= window.calls and made[-window.calls] > now - window.seconds:
            raise _limited(window, made[-window.calls] + window.seconds - now)
    if not peek:
        made.append(now)
    del made[: -max(window.calls for window in windows)]


def _limited(window: Window, wait: float) -> Limited:
    """The refusal of a call in a window that is full for so many seconds."""
    seconds = max(1, math.ceil(wait))
    return Limited(
        f"{window.calls} calls per {window.name} are used up",
        hint=f"try again in {seconds} seconds",
        retry_after=seconds,
        limit=window.calls,
        window=window.seconds,
        name=window.name,
    )


@dataclass(slots=True)
class _Session:
    used: float
    ended: bool = False
    marks: set[str] = field(default_factory=set)
    notes: OrderedDict[str, str] = field(default_factory=OrderedDict)


class RateLimits:
    """The traffic of one process, in memory. Any thread may call. Callers and sessions are known by any text."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, most: int = MAX_REMEMBERED) -> None:
        self._clock = clock
        self._most = most
        self._lock = threading.Lock()
        self._calls: OrderedDict[str, array[float]] = OrderedDict()  # the longest unused first
        self._sessions: OrderedDict[str, _Session] = OrderedDict()

    def count(self, caller: str, windows: Sequence[Window], *, peek: bool = False) -> None:
        """Let one more call through, or Limited with the seconds until the first free place.

        A call that is refused does not count; one that fails later does; to `peek` counts nothing. All count here, so a
        surface puts its own name before the caller's.
        """
        with self._lock:
            made = self._calls.setdefault(caller, array("d"))
            self._calls.move_to_end(caller)
            if len(self._calls) > self._most:
                self._calls.popitem(last=False)
            add_call(made, windows, self._clock(), peek=peek)

    def touch(self, session: str, *, idle: float, age: float = 0.0) -> bool:
        """Whether a session lives, which is used with that: not ended, and last used `idle` seconds ago at most.

        `age` is for one that nobody has used yet: how long ago it was made.
        """
        now = self._clock()
        with self._lock:
            known = self._sessions.get(session)
            used = now - age if known is None else known.used
            if now - used > idle or (known is not None and known.ended):
                return False
            self._session_of(session).used = now
            return True

    def once(self, session: str, what: str) -> bool:
        """True the first time it is asked in this session, and never again."""
        with self._lock:
            marks = self._session_of(session).marks
            first = what not in marks
            marks.add(what)
            return first

    def marked(self, session: str, what: str) -> bool:
        """Whether `once` was asked."""
        with self._lock:
            known = self._sessions.get(session)
            return known is not None and what in known.marks

    def note(self, session: str, what: str, digest: str) -> None:
        """Remember a SHA-256 (or nothing, "") under a name; of a session the last MAX_NOTED."""
        with self._lock:
            notes = self._session_of(session).notes
            notes[what] = digest
            notes.move_to_end(what)
            if len(notes) > MAX_NOTED:
                notes.popitem(last=False)

    def noted(self, session: str, what: str) -> str | None:
        """What was remembered last under this name."""
        with self._lock:
            known = self._sessions.get(session)
            return None if known is None else known.notes.get(what)

    def end(self, session: str) -> None:
        """It lives no more, and will not again."""
        with self._lock:
            self._session_of(session).ended = True

    def forget(self, session: str) -> None:
        """As if it had never been."""
        with self._lock:
            self._sessions.pop(session, None)

    def _session_of(self, session: str) -> _Session:
        kept = self._sessions.setdefault(session, _Session(self._clock()))
        self._sessions.move_to_end(session)
        if len(self._sessions) > self._most:
            self._sessions.popitem(last=False)
        return kept
