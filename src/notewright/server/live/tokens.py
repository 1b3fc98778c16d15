"""Tokens for live documents: signed, short-lived, and worth no more than the right of the person they were made for.

They stand in addresses, because a browser can send no header with a WebSocket: so they open one document, or those of
one folder, and nothing else. A token names its person by the digest of their access token, as a cookie does: when that
is revoked or expires, it is worth nothing; nor is one that was made in a browser, when that signs out. Of a person whom
another issuer knows, it holds what they may do, and lasts some minutes only: nobody could be asked again.
"""

import json
from dataclasses import asdict, dataclass

from notewright.accounts.base import Grant
from notewright.engine.library import Principal
from notewright.server.auth.authenticate import DOCUMENT_TOKEN_PREFIX
from notewright.server.signed_text import seal, unseal

LASTS_SECONDS = 3600  # where nobody says how long
MAX_SECONDS = 24 * 3600
MAX_ISSUED_SECONDS = 600  # of a person whom another issuer knows
MAX_CHARS = 4096


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

    def sealed(self, key: bytes) -> str:
        """As it is given out. The key is `Accounts.secret("live")`."""
        who = None if self.issued is None else {"user": self.issued.user, "grant": asdict(self.issued.grant)}
        said = [self.scope, self.write, self.expires, self.digest, who, self.session]
        return DOCUMENT_TOKEN_PREFIX + seal(key, json.dumps(said, separators=(",", ":")).encode())


def read_token(key: bytes, raw: str, now: float) -> DocumentToken | None:
    """None if it is not ours or has expired."""
    if not raw.startswith(DOCUMENT_TOKEN_PREFIX) or len(raw) > MAX_CHARS:
        return None
    body = unseal(key, raw.removeprefix(DOCUMENT_TOKEN_PREFIX))
    if body is None:
        return None
    scope, write, expires, digest, who, session = json.loads(body)
    issued = None if who is None else Principal(who["user"], Grant.of(who["grant"]), "oauth", admin=False)
    return DocumentToken(scope, write, expires, digest, issued, session) if now < expires else None
