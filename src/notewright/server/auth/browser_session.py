"""What a browser that signed in brings along, and what proves that a form is one of ours.

A cookie holds the digest of the token it was given for, never the token: whoever revokes the token ends it. It is
signed and not remembered, so that every process with the key can read it. What is remembered is which of them were
signed out (`Registry.end_session`): a copy ends with the cookie.
"""

import hashlib
import hmac
import secrets
from typing import NamedTuple

from notewright.server.signed_text import seal, unseal

LASTS = 12 * 3600  # seconds
_TIME, _DIGEST, _SESSION = 8, 32, 16  # bytes


class SignedIn(NamedTuple):
    """What a cookie says: the digest of the token, and which of its sign-ins this is."""

    digest: str
    session: str


class BrowserSessions:
    """Makes and reads the cookies of one server. Separate keys are drawn from its secret for each use of it."""

    def __init__(self, key: bytes) -> None:
        self._cookies = hmac.digest(key, b"cookies", hashlib.sha256)
        self._forms = hmac.digest(key, b"forms", hashlib.sha256)

    def issue(self, token_digest: str, now: float) -> str:
        """The cookie for a browser that has just shown the token of this digest."""
        body = int(now).to_bytes(_TIME, "big") + bytes.fromhex(token_digest) + secrets.token_bytes(_SESSION)
        return seal(self._cookies, body)

    def read(self, value: str, now: float) -> SignedIn | None:
        """What it was issued for; None if it is not ours or too old."""
        body = unseal(self._cookies, value)
        if body is None or len(body) != _TIME + _DIGEST + _SESSION:
            return None
        age = now - int.from_bytes(body[:_TIME], "big")
        if not -60 <= age < LASTS:  # clocks of two processes differ a little
            return None
        return SignedIn(body[_TIME : _TIME + _DIGEST].hex(), body[_TIME + _DIGEST :].hex())

    def csrf(self, visit: str) -> str:
        """What every form of a visit carries: no other page can know it. `visit` is the Visitor's."""
        return hmac.new(self._forms, visit.encode("utf-8", "surrogateescape"), hashlib.sha256).hexdigest()

    def check(self, visit: str, told: str) -> bool:
        """Whether a form was made by us for this visit."""
        return hmac.compare_digest(self.csrf(visit).encode(), told.encode("utf-8", "replace"))
