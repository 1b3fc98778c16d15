"""Rate limits and sessions: how often each caller called, which sessions live, and what was marked or stored in them.

It may be lost at any moment; counting then starts again.
"""

import math
import threading
import time
from array import array
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from notewright.errors import Limited

MAX_STORED_DIGESTS = 200  # digests stored for one session
MAX_REMEMBERED = 10_000  # callers, and sessions; beyond that the longest unused are forgotten
ENDED = "ended"  # the mark of a session
MAX_AHEAD_SECONDS = 1.0  # a counted call further in the future means that the clock was set back


@dataclass(frozen=True, slots=True)
class Window:
    """A limit: so many calls in any so many seconds."""

    calls: int
    seconds: float
    name: str  # "minute"


def add_call(made: "array[float]", windows: Sequence[Window], now: float, *, peek: bool = False) -> None:
    """Add a call to the times of the calls before, or raise Limited. Times that no window needs are removed."""
    if made and not now - max(window.seconds for window in windows) < made[-1] <= now + MAX_AHEAD_SECONDS:
        del made[:]
    for window in windows:
        if len(made) >= window.calls and made[-window.calls] > now - window.seconds:
            wait = max(1, math.ceil(made[-window.calls] + window.seconds - now))
            raise Limited(
                f"{window.calls} calls per {window.name} are used up",
                hint=f"try again in {wait} seconds",
                retry_after=wait,
                limit=window.calls,
                window=window.seconds,
                name=window.name,
            )
    if not peek:
        made.append(now)
    del made[: -max(window.calls for window in windows)]


@dataclass(slots=True)
class _Session:
    used: float
    marks: set[str] = field(default_factory=set)
    notes: OrderedDict[str, str] = field(default_factory=OrderedDict)


class RateLimits:
    """The counts and sessions of one process, in memory. Any thread may call. Any text names a caller or session."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, most: int = MAX_REMEMBERED) -> None:
        self._clock = clock
        self._most = most
        self._lock = threading.Lock()
        self._calls: OrderedDict[str, array[float]] = OrderedDict()  # the longest unused first
        self._sessions: OrderedDict[str, _Session] = OrderedDict()

    def count(self, caller: str, windows: Sequence[Window], *, peek: bool = False) -> None:
        """Count one more call, or Limited with the seconds until the next one is allowed.

        A refused call does not count; one that fails later does; `peek` only checks. All callers share one table, so a
        surface prefixes the caller with its own name.
        """
        with self._lock:
            made = self._calls.setdefault(caller, array("d"))
            self._calls.move_to_end(caller)
            if len(self._calls) > self._most:
                self._calls.popitem(last=False)
            add_call(made, windows, self._clock(), peek=peek)

    def touch(self, session: str, *, idle: float, age: float = 0.0) -> bool:
        """Record a use of a session, and return whether it is valid: not ended, last used at most `idle` seconds ago.

        `age` is for a session that was not used yet: how long ago it was made.
        """
        now = self._clock()
        with self._lock:
            known = self._sessions.get(session)
            used = now - age if known is None else known.used
            if now - used > idle or (known is not None and ENDED in known.marks):
                return False
            self._session_of(session).used = now
            return True

    def mark_once(self, session: str, what: str) -> bool:
        """Set a mark of a session; True the first time."""
        with self._lock:
            marks = self._session_of(session).marks
            first = what not in marks
            marks.add(what)
            return first

    def is_marked(self, session: str, what: str) -> bool:
        """Whether `mark_once` was called."""
        with self._lock:
            known = self._sessions.get(session)
            return known is not None and what in known.marks

    def store_digest(self, session: str, what: str, digest: str) -> None:
        """Store a SHA-256 (or "") under a name; a session keeps the last MAX_STORED_DIGESTS."""
        with self._lock:
            notes = self._session_of(session).notes
            notes[what] = digest
            notes.move_to_end(what)
            if len(notes) > MAX_STORED_DIGESTS:
                notes.popitem(last=False)

    def stored_digest(self, session: str, what: str) -> str | None:
        """What was stored last under this name."""
        with self._lock:
            known = self._sessions.get(session)
            return None if known is None else known.notes.get(what)

    def end_session(self, session: str) -> None:
        """End a session for good."""
        self.mark_once(session, ENDED)

    def forget_session(self, session: str) -> None:
        """Forget a session: its name may be used again."""
        with self._lock:
            self._sessions.pop(session, None)

    def _session_of(self, session: str) -> _Session:
        kept = self._sessions.setdefault(session, _Session(self._clock()))
        self._sessions.move_to_end(session)
        if len(self._sessions) > self._most:
            self._sessions.popitem(last=False)
        return kept
