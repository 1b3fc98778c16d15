"""Tokens for live documents: signed, short-lived, and worth no more than the right of the person they were made for.

They stand in addresses, because a browser can send no header with a WebSocket: so they open one document, or those of
one folder, and nothing else. A token names its person by the digest of their access token, as a cookie does: when that
is revoked or expires, it is worth nothing; nor is one that was made in a browser, when that signs out. Of a person whom
another issuer knows, it holds what they may do, and lasts some minutes only: nobody could be asked again.
"""

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from notewright.accounts.base import Grant
from notewright.engine.library import Principal
from notewright.server.auth.authenticate import DOCUMENT_TOKEN

LASTS_SECONDS = 3600  # where nobody says how long
MAX_SECONDS = 24 * 3600
MAX_ISSUED_SECONDS = 600  # of a person whom another issuer knows
MAX_CHARS = 4096
_SIGNATURE = 32


@dataclass(frozen=True, slots=True)
class DocumentToken:
    """`scope` is the id of a document, or what the ids of all documents of a folder begin with.

    `digest` is that of the person's access token; without one it is everybody on this machine, or `issued`. `session`
    is the sign-in of a browser that it was made in, if it was one."""

    scope: str
    write: bool
    expires: float
    digest: str = ""
    issued: Principal | None = None
    session: str = ""

    def opens(self, doc_id: str) -> bool:
        return doc_id == self.scope or (self.scope.endswith("-") and doc_id.startswith(self.scope))


class DocumentTokens:
    """Makes and reads the tokens of one server. The key is `Accounts.secret("live")`."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def issue(self, token: DocumentToken) -> str:
        who = None if token.issued is None else {"user": token.issued.user, "grant": asdict(token.issued.grant)}
        said = [token.scope, token.write, token.expires, token.digest, who, token.session]
        body = json.dumps(said, separators=(",", ":")).encode()
        return DOCUMENT_TOKEN + base64.urlsafe_b64encode(self._sign(body) + body).decode().rstrip("=")

    def read(self, raw: str, now: float) -> DocumentToken | None:
        """None if it is not ours or has expired."""
        if not raw.startswith(DOCUMENT_TOKEN) or len(raw) > MAX_CHARS:
            return None
        given = raw[len(DOCUMENT_TOKEN) :]
        try:
            signed = base64.b64decode(given + "=" * (-len(given) % 4), altchars=b"-_", validate=True)
        except ValueError:
            return None
        signature, body = signed[:_SIGNATURE], signed[_SIGNATURE:]
        if not hmac.compare_digest(signature, self._sign(body)):
            return None
        scope, write, expires, digest, who, session = json.loads(body)
        token = DocumentToken(scope, write, expires, digest, None if who is None else _principal(who), session)
        return token if now < expires else None

    def _sign(self, body: bytes) -> bytes:
        return hmac.digest(self._key, body, hashlib.sha256)


def _principal(who: Mapping[str, Any]) -> Principal:
    grant: dict[str, Any] = {name: tuple(one) if isinstance(one, list) else one for name, one in who["grant"].items()}
    return Principal(who["user"], Grant(**grant), "oauth", admin=False)
