"""Sessions over HTTP: an id that any worker can check, and a little memory beside it.

The id is signed, not remembered: it holds when it was made and by whom, and is good in every process that has the key.
That it is alive, what was said once under it and which versions it was shown is remembered by all workers together
(`RateLimits`); what else a surface keeps for its client is small, bounded, and each worker's own.
"""

import os
import time
from collections import OrderedDict
from collections.abc import Callable

from notewright.accounts.limits import RateLimits
from notewright.engine.workspace import ShownVersions
from notewright.notes.path import NotePath
from notewright.server.signed_text import seal, unseal
from notewright.surfaces.base import Session

IDLE_SECONDS = 30 * 60.0
MAX_SESSIONS = 10_000
_SIGNATURE, _TIME, _CHANCE, _CLIENT = 16, 8, 12, 60  # bytes
_GREETED, _INITIALIZED = "greeted", "initialized"  # marks of a session: we said hello, and so did they


class _Shared(Session):
    """A session of which other workers know too. What they need not know is kept here only."""

    def __init__(self, client: str, name: str, traffic: RateLimits) -> None:
        self._name = name
        self._traffic = traffic
        self._ready = False
        self.used = 0.0
        super().__init__(client, initialized=False)

    @property
    def initialized(self) -> bool:
        """One that nobody remembers, as after a restart, has shaken hands before."""
        if not self._ready:
            waits = self._traffic.marked(self._name, _GREETED) and not self._traffic.marked(self._name, _INITIALIZED)
            self._ready = not waits
        return self._ready

    @initialized.setter
    def initialized(self, ready: bool) -> None:
        if ready and not self._ready:
            self._traffic.once(self._name, _INITIALIZED)
            self._ready = True

    def once(self, what: str) -> bool:
        return self._traffic.once(self._name, f"once {what}")

    def shown(self, workspace: str) -> ShownVersions:
        return _SharedShown(self._traffic, self._name, workspace)


class _SharedShown:
    """Whichever worker showed it."""

    def __init__(self, traffic: RateLimits, session: str, workspace: str) -> None:
        self._traffic, self._session, self._workspace = traffic, session, workspace

    def get(self, path: NotePath, /) -> str | None:
        return self._traffic.noted(self._session, f"shown {self._workspace} {path}")

    def __setitem__(self, path: NotePath, version: str, /) -> None:
        self._traffic.note(self._session, f"shown {self._workspace} {path}", version)


class Sessions:
    """All sessions of one process, for its event loop. `scope` says for whom an id is good: a surface and a user."""

    def __init__(
        self,
        key: bytes | None = None,
        *,
        traffic: RateLimits | None = None,
        idle: float = IDLE_SECONDS,
        most: int = MAX_SESSIONS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._key = key or os.urandom(32)
        self._traffic = traffic or RateLimits(clock, most)
        self._idle = idle
        self._most = most
        self._clock = clock
        self._kept: OrderedDict[str, _Shared] = OrderedDict()  # the longest unused first

    def open(self, scope: str, client: str) -> str:
        """A new id for a client that has just said hello."""
        issued = int(self._clock() * 1000)
        named = client.encode("utf-8", "replace")[:_CLIENT]
        body = issued.to_bytes(_TIME, "big") + os.urandom(_CHANCE) + named
        token = seal(self._key, body, bound_to=_name(scope, "").encode(), size=_SIGNATURE)
        self._traffic.once(_name(scope, token), _GREETED)
        self._of(_name(scope, token), client)
        return token

    def find(self, scope: str, token: str) -> Session | None:
        """The session of this id, used again; None if it is not ours, was ended, or was idle for too long."""
        body = self._body(scope, token)
        if body is None:
            return None
        name, issued = _name(scope, token), int.from_bytes(body[:_TIME], "big") / 1000
        if not self._traffic.touch(name, idle=self._idle, age=self._clock() - issued):
            self._kept.pop(name, None)
            return None
        return self._of(name, body[_TIME + _CHANCE :].decode("utf-8", "ignore"))

    def ours(self, scope: str, token: str) -> bool:
        """Whether it was made here, be it alive or not."""
        return self._body(scope, token) is not None

    def of_client(self, scope: str, client: str) -> Session:
        """For requests that name their client and no session: what is remembered about that client."""
        name = _name(scope, "client " + client)
        if not self._traffic.touch(name, idle=self._idle):
            self._traffic.forget(name)
            self._traffic.touch(name, idle=self._idle)
            self._kept.pop(name, None)
        return self._of(name, client)

    def end(self, scope: str, token: str) -> bool:
        """Whether there was such a session; there is none now."""
        if self.find(scope, token) is None:
            return False
        self._traffic.end(_name(scope, token))
        self._kept.pop(_name(scope, token), None)
        return True

    def _of(self, name: str, client: str) -> Session:
        """What this process keeps for a session."""
        now = self._clock()
        kept = self._kept.setdefault(name, _Shared(client, name, self._traffic))
        kept.used = now
        self._kept.move_to_end(name)
        while len(self._kept) > self._most or now - next(iter(self._kept.values())).used > self._idle:
            self._kept.popitem(last=False)
        return kept

    def _body(self, scope: str, token: str) -> bytes | None:
        return unseal(self._key, token, bound_to=_name(scope, "").encode(), size=_SIGNATURE)


def _name(scope: str, token: str) -> str:
    return f"{scope}\0{token}"
