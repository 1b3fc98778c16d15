"""Sessions over HTTP: an id that any worker can check, and a little memory beside it.

The id is signed, not remembered: it holds when it was made and by whom, and is good in every process that has the key.
What is remembered under it (what was said once, how recently it was used) is small, in memory, and bounded.
"""

import base64
import binascii
import hashlib
import hmac
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from notewright.surfaces import Session

IDLE_SECONDS = 30 * 60.0
MOST = 10_000
_SIGNATURE, _TIME, _CHANCE, _CLIENT = 16, 8, 12, 60  # bytes


@dataclass(slots=True)
class _Kept:
    session: Session
    used: float


class Sessions:
    """All sessions of one process. `scope` says for whom an id is good: a surface, and later a user."""

    def __init__(
        self,
        key: bytes | None = None,
        *,
        idle: float = IDLE_SECONDS,
        most: int = MOST,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._key = key or os.urandom(32)
        self._idle = idle
        self._most = most
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, str], _Kept] = OrderedDict()  # the longest unused first
        self._ended: dict[str, float] = {}  # ids that were given back, and when they would have died anyway

    def open(self, scope: str, client: str) -> str:
        """A new id for a client that has just said hello."""
        issued = int(self._clock() * 1000).to_bytes(_TIME, "big")
        named = client.encode("utf-8", "replace")[:_CLIENT]
        body = issued + os.urandom(_CHANCE) + named
        token = base64.urlsafe_b64encode(self._signature(scope, body) + body).decode().rstrip("=")
        with self._lock:
            self._keep((scope, token), Session(client, initialized=False))
        return token

    def find(self, scope: str, token: str) -> Session | None:
        """The session of this id, used again; None if it is not ours, was ended, or was idle for too long."""
        body = self._body(scope, token)
        with self._lock:
            if body is None or token in self._ended:
                return None
            kept = self._fresh((scope, token))
            if kept is None and self._clock() - int.from_bytes(body[:_TIME], "big") / 1000 <= self._idle:
                client = body[_TIME + _CHANCE :].decode("utf-8", "ignore")  # made by another worker
                kept = self._keep((scope, token), Session(client))
            return None if kept is None else kept.session

    def ours(self, scope: str, token: str) -> bool:
        """Whether it was made here, be it alive or not."""
        return self._body(scope, token) is not None

    def of_client(self, scope: str, client: str) -> Session:
        """For requests that name their client and no session: what is remembered about that client."""
        with self._lock:
            kept = self._fresh((scope, "client " + client)) or self._keep((scope, "client " + client), Session(client))
            return kept.session

    def end(self, scope: str, token: str) -> bool:
        """Whether there was such a session; there is none now."""
        if self.find(scope, token) is None:
            return False
        now = self._clock()
        with self._lock:
            self._kept.pop((scope, token), None)
            self._ended = {ended: dies for ended, dies in self._ended.items() if dies > now}
            self._ended[token] = now + self._idle
        return True

    def _fresh(self, place: tuple[str, str]) -> _Kept | None:
        kept = self._kept.get(place)
        if kept is None or self._clock() - kept.used > self._idle:
            self._kept.pop(place, None)
            return None
        kept.used = self._clock()
        self._kept.move_to_end(place)
        return kept

    def _keep(self, place: tuple[str, str], session: Session) -> _Kept:
        while self._kept and (len(self._kept) >= self._most or self._stale()):
            self._kept.popitem(last=False)
        kept = self._kept[place] = _Kept(session, self._clock())
        return kept

    def _stale(self) -> bool:
        oldest = next(iter(self._kept.values()))
        return self._clock() - oldest.used > self._idle

    def _body(self, scope: str, token: str) -> bytes | None:
        try:
            given = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        except (binascii.Error, ValueError):
            return None
        signature, body = given[:_SIGNATURE], given[_SIGNATURE:]
        if len(body) < _TIME + _CHANCE or not hmac.compare_digest(signature, self._signature(scope, body)):
            return None
        return body

    def _signature(self, scope: str, body: bytes) -> bytes:
        return hmac.digest(self._key, scope.encode() + b"\0" + body, hashlib.sha256)[:_SIGNATURE]
