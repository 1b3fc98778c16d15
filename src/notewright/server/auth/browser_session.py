"""Browser sessions: signed cookies, and the CSRF tokens of our forms.

A cookie holds the digest of the access token it was given for, never the token: revoking the token ends it. It is
signed and not stored, so that every process with the key can read it. Stored is which of them were signed out
(`Accounts.end_session`): a copy ends with the cookie.
"""

import hashlib
import hmac
import secrets
from typing import NamedTuple

from notewright.server.signed_text import seal, unseal

COOKIE_SECONDS = 12 * 3600
_TIME_BYTES, _DIGEST_BYTES, _SESSION_BYTES = 8, 32, 16


class SignedIn(NamedTuple):
    """The content of a cookie: the digest of the token, and the id of this sign-in."""

    digest: str
    session: str


class BrowserSessions:
    """Makes and reads the cookies of one server. A separate key is derived from its secret for each use."""

    def __init__(self, key: bytes) -> None:
        self._cookies = hmac.digest(key, b"cookies", hashlib.sha256)
        self._forms = hmac.digest(key, b"forms", hashlib.sha256)

    def issue(self, token_digest: str, now: float) -> str:
        """The cookie for a browser that has just shown the token of this digest."""
        issued = int(now).to_bytes(_TIME_BYTES, "big")
        return seal(self._cookies, issued + bytes.fromhex(token_digest) + secrets.token_bytes(_SESSION_BYTES))

    def read(self, value: str, now: float) -> SignedIn | None:
        """The content of a cookie; None if it is not ours or too old."""
        body = unseal(self._cookies, value)
        if body is None or len(body) != _TIME_BYTES + _DIGEST_BYTES + _SESSION_BYTES:
            return None
        age = now - int.from_bytes(body[:_TIME_BYTES], "big")
        if not -60 <= age < COOKIE_SECONDS:  # clocks of two processes differ a little
            return None
        session_at = _TIME_BYTES + _DIGEST_BYTES
        return SignedIn(body[_TIME_BYTES:session_at].hex(), body[session_at:].hex())

    def csrf(self, subject: str) -> str:
        """The token in every form for a visitor (`Visitor.csrf_subject`), which no other page can know."""
        return hmac.new(self._forms, subject.encode("utf-8", "surrogateescape"), hashlib.sha256).hexdigest()

    def check(self, subject: str, form_token: str) -> bool:
        """Whether a form was made by us for this visitor."""
        return hmac.compare_digest(self.csrf(subject).encode(), form_token.encode("utf-8", "replace"))
