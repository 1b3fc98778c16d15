"""Sessions over HTTP: signed ids that any worker can check, and a little memory beside them.

An id is signed, not stored: it holds when it was made and for which client, and is good in every process that has the
key. Whether it is alive, what was sent only once in it and which versions it was shown is kept for all workers together
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
_SIGNATURE_BYTES, _TIME_BYTES, _RANDOM_BYTES, _CLIENT_BYTES = 16, 8, 12, 60
_GREETED, _INITIALIZED = "greeted", "initialized"  # marks of a session: `initialize` answered, `initialized` received


class _SharedSession(Session):
    """A session whose marks and shown versions all workers share. Its other values are this worker's own."""

    def __init__(self, client: str, name: str, rate_limits: RateLimits) -> None:
        self._name = name
        self._rate_limits = rate_limits
        self._ready = False
        self.used_at = 0.0
        super().__init__(client, initialized=False)

    @property
    def initialized(self) -> bool:
        """A session without any mark, as after a restart, counts as initialized."""
        if not self._ready:
            waits = self._rate_limits.is_marked(self._name, _GREETED) and not self._rate_limits.is_marked(
                self._name, _INITIALIZED
            )
            self._ready = not waits
        return self._ready

    @initialized.setter
    def initialized(self, ready: bool) -> None:
        if ready and not self._ready:
            self._rate_limits.mark_once(self._name, _INITIALIZED)
            self._ready = True

    def mark_once(self, what: str) -> bool:
        return self._rate_limits.mark_once(self._name, f"once {what}")

    def shown_versions(self, workspace: str) -> ShownVersions:
        return _SharedShownVersions(self._rate_limits, self._name, workspace)


class _SharedShownVersions:
    """The versions that a session was shown, by any worker."""

    def __init__(self, rate_limits: RateLimits, session: str, workspace: str) -> None:
        self._rate_limits, self._session, self._workspace = rate_limits, session, workspace

    def get(self, path: NotePath, /) -> str | None:
        return self._rate_limits.stored_digest(self._session, f"shown {self._workspace} {path}")

    def __setitem__(self, path: NotePath, version: str, /) -> None:
        self._rate_limits.store_digest(self._session, f"shown {self._workspace} {path}", version)


class Sessions:
    """All sessions of one process, for its event loop. An id is good for one `scope`: a surface and a user."""

    def __init__(
        self,
        key: bytes | None = None,
        *,
        rate_limits: RateLimits | None = None,
        idle: float = IDLE_SECONDS,
        most: int = MAX_SESSIONS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._key = key or os.urandom(32)
        self._rate_limits = rate_limits or RateLimits(clock, most)
        self._idle = idle
        self._most = most
        self._clock = clock
        self._kept: OrderedDict[str, _SharedSession] = OrderedDict()  # the longest unused first

    def open(self, scope: str, client: str) -> str:
        """A new id for a client that has sent `initialize`."""
        issued = int(self._clock() * 1000).to_bytes(_TIME_BYTES, "big")
        body = issued + os.urandom(_RANDOM_BYTES) + client.encode("utf-8", "replace")[:_CLIENT_BYTES]
        token = seal(self._key, body, bound_to=f"{scope}\0".encode(), size=_SIGNATURE_BYTES)
        self._rate_limits.mark_once(f"{scope}\0{token}", _GREETED)
        self._keep(f"{scope}\0{token}", client)
        return token

    def find(self, scope: str, token: str) -> Session | None:
        """The session of this id, used again; None if it is not ours, was ended, or was idle for too long."""
        body = self._unseal(scope, token)
        if body is None:
            return None
        name, issued = f"{scope}\0{token}", int.from_bytes(body[:_TIME_BYTES], "big") / 1000
        if not self._rate_limits.touch(name, idle=self._idle, age=self._clock() - issued):
            self._kept.pop(name, None)
            return None
        return self._keep(name, body[_TIME_BYTES + _RANDOM_BYTES :].decode("utf-8", "ignore"))

    def is_ours(self, scope: str, token: str) -> bool:
        """Whether the id was made here, alive or not."""
        return self._unseal(scope, token) is not None

    def find_by_client(self, scope: str, client: str) -> Session:
        """The session of a client by its name, for requests without a session id."""
        name = f"{scope}\0client {client}"
        if not self._rate_limits.touch(name, idle=self._idle):
            self._rate_limits.forget_session(name)
            self._rate_limits.touch(name, idle=self._idle)
            self._kept.pop(name, None)
        return self._keep(name, client)

    def end(self, scope: str, token: str) -> bool:
        """End a session; whether there was one."""
        if self.find(scope, token) is None:
            return False
        self._rate_limits.end_session(f"{scope}\0{token}")
        self._kept.pop(f"{scope}\0{token}", None)
        return True

    def _keep(self, name: str, client: str) -> Session:
        """This process's part of a session, made if it is not there; sessions too many or idle are forgotten."""
        now = self._clock()
        session = self._kept.setdefault(name, _SharedSession(client, name, self._rate_limits))
        session.used_at = now
        self._kept.move_to_end(name)
        while len(self._kept) > self._most or now - next(iter(self._kept.values())).used_at > self._idle:
            self._kept.popitem(last=False)
        return session

    def _unseal(self, scope: str, token: str) -> bytes | None:
        return unseal(self._key, token, bound_to=f"{scope}\0".encode(), size=_SIGNATURE_BYTES)
