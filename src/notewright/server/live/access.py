"""Authenticates clients of live documents, by an access token or a document token, and says what they may open.

A document token is signed, short-lived, and allows no more than its user may do. It is part of URLs, because a browser
can send no header with a WebSocket: so it opens one document, or those of one folder, and nothing else. It names its
user by the digest of their access token, as a cookie does, and is invalid once that is revoked or expires; one that was
made in a browser also once that signs out. For a user of an OAuth issuer, whose access token we do not keep, it holds
their rights and lasts a few minutes.
"""

import json
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass

from starlette.datastructures import Headers, QueryParams
from starlette.types import Scope

from notewright.accounts.base import Accounts, Grant
from notewright.engine.access import Access
from notewright.engine.library import Principal, digest_of
from notewright.errors import Forbidden, NotFound, ReadOnly
from notewright.ledger.base import Actor
from notewright.notes.path import NotePath
from notewright.server.auth import browser_session
from notewright.server.auth.authenticate import (
    DOCUMENT_TOKEN_PREFIX,
    REAUTHENTICATE,
    VISITOR,
    AuthRefusal,
    OwnTokens,
    Visitor,
    bearer_token,
    client_address,
)
from notewright.server.signed_text import seal, unseal

DEFAULT_TOKEN_SECONDS = 3600
MAX_TOKEN_SECONDS = 24 * 3600
MAX_ISSUED_SECONDS = 600  # of a document token for a user of an OAuth issuer
MAX_TOKEN_CHARS = 4096
RELAY_CHARS = 36  # length of the part of an id that all documents of a folder share
SURFACES = ("lens", "page")  # a token that is narrowed to surfaces needs one of these to open live documents
NO_TOKEN = AuthRefusal(description="This takes an access token, or one for the document")
BAD_TOKEN = AuthRefusal("invalid_token", "The token for this document is not good, or no longer")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
Authenticate = Callable[[], Awaitable[Visitor | AuthRefusal]]


@dataclass(frozen=True, slots=True)
class DocumentNames:
    """The paths of some documents, as their host knows them. None: it has no path yet, or there is no such document."""

    folder_id: str
    paths: Mapping[str, NotePath | None]

    @property
    def scope(self) -> str:
        """The prefix that the ids of all documents of this folder share."""
        return self.folder_id[:RELAY_CHARS] + "-"

    def may_create(self, doc_id: str) -> bool:
        """Whether it may be a new document: a client that makes a note chooses an id, and opens it at once."""
        part = doc_id.removeprefix(self.scope)
        return doc_id.startswith(self.scope) and self.paths.get(doc_id) is None and _UUID.fullmatch(part) is not None

    def may_hold(self, doc_id: str) -> bool:
        return doc_id.startswith(self.scope) or self.paths.get(doc_id) is not None


@dataclass(frozen=True, slots=True)
class DocumentToken:
    """`scope` is the id of a document, or the prefix of the ids of all documents of a folder. `digest` is that of the
    user's access token; without one, the user is `issued`, or anybody on this machine. `session` is the browser session
    it was made in, if it was one."""

    scope: str
    write: bool
    expires: float
    digest: str = ""
    issued: Principal | None = None
    session: str = ""

    def opens(self, doc_id: str) -> bool:
        return doc_id == self.scope or (self.scope.endswith("-") and doc_id.startswith(self.scope))

    def seal(self, key: bytes) -> str:
        """The signed text that a client gets. The key is `Accounts.secret("live")`."""
        who = None if self.issued is None else {"user": self.issued.user, "grant": asdict(self.issued.grant)}
        fields = [self.scope, self.write, self.expires, self.digest, who, self.session]
        return DOCUMENT_TOKEN_PREFIX + seal(key, json.dumps(fields, separators=(",", ":")).encode())


def read_token(key: bytes, raw: str, now: float) -> DocumentToken | None:
    """Read a document token; None if it is not ours or has expired."""
    if not raw.startswith(DOCUMENT_TOKEN_PREFIX) or len(raw) > MAX_TOKEN_CHARS:
        return None
    body = unseal(key, raw.removeprefix(DOCUMENT_TOKEN_PREFIX))
    if body is None:
        return None
    scope, write, expires, digest, who, session = json.loads(body)
    issued = None if who is None else Principal(who["user"], Grant.of(who["grant"]), "oauth", admin=False)
    return DocumentToken(scope, write, expires, digest, issued, session) if now < expires else None


@dataclass(frozen=True, slots=True)
class LiveCaller:
    """An authenticated caller, and the document token they used, if any."""

    visitor: Visitor
    token: DocumentToken | None = None

    @property
    def principal(self) -> Principal:
        return self.visitor.principal

    @property
    def actor(self) -> Actor:
        return Actor(self.principal.user, "", "live", "type")

    def may_write(self, access: Access, doc_id: str, names: DocumentNames) -> bool:
        """Whether they may change a document of this workspace; NotFound for one that they may not see. The folder
        document names every file, so only callers from whom nothing is hidden may open it. The same holds for one
        that has no path yet, as rules go by paths."""
        if self.token is not None and not self.token.opens(doc_id):
            raise no_such_document()
        may_change = self.token is None or self.token.write
        path = names.paths.get(doc_id)
        if path is None:
            if access.hide or not (doc_id == names.folder_id or access.writes_all):
                raise no_such_document()
            return access.writes_all and may_change
        if not access.sees(path):
            raise no_such_document()
        try:
            access.may_write(path)
        except (ReadOnly, Forbidden):
            return False
        return may_change


class LiveAuthenticator:
    """Authenticates callers, and issues document tokens."""

    def __init__(self, registry: Accounts) -> None:
        self._key = registry.secret("live")
        self._registry = registry
        self._own = OwnTokens(registry)

    async def authenticate(self, scope: Scope) -> LiveCaller | AuthRefusal:
        """Authenticate by the document token, if there is one, else by what `Authenticate` found. Puts the visitor into
        `scope`, and a function that authenticates them again."""
        bearer = bearer_token(Headers(scope=scope))
        raw = QueryParams(scope.get("query_string", b"")).get("token")
        raw = raw or (bearer if bearer.startswith(DOCUMENT_TOKEN_PREFIX) else None)
        if raw is None:
            visitor = scope.get(VISITOR)
            found: LiveCaller | AuthRefusal = NO_TOKEN if visitor is None else LiveCaller(visitor)
        else:
            without_token = scope.get(REAUTHENTICATE)
            found = await self._find_holder(scope, raw, without_token)

            async def reauthenticate() -> Visitor | AuthRefusal:
                holder = await self._find_holder(scope, raw, without_token)
                return holder if isinstance(holder, AuthRefusal) else holder.visitor

            scope[REAUTHENTICATE] = reauthenticate
        if isinstance(found, AuthRefusal):
            return found
        if not any(found.principal.uses(surface) for surface in SURFACES):
            return AuthRefusal("insufficient_scope", "This token is not for live documents", "surface:lens")
        scope[VISITOR] = found.visitor
        return found

    def issue_token(self, scope: Scope, caller: LiveCaller, opens: str, write: bool, seconds: float) -> str:
        """A token for the documents that `opens` names. Made by the holder of another one, it expires no later."""
        principal, digest, issued, session = caller.principal, "", None, caller.visitor.session
        most: float = MAX_TOKEN_SECONDS
        if caller.token is not None:
            digest, issued, session = caller.token.digest, caller.token.issued, caller.token.session
            most = caller.token.expires - time.time()
        elif principal.kind == "oauth":
            issued, most = principal, MAX_ISSUED_SECONDS
        elif caller.visitor.via == "cookie":
            digest = caller.visitor.csrf_subject
            most = min(most, browser_session.COOKIE_SECONDS)  # a sign-out is remembered for so long
        elif principal.kind == "token":
            digest = digest_of(bearer_token(Headers(scope=scope)))
        expires = time.time() + min(seconds, most)
        return DocumentToken(opens, write, expires, digest, issued, session).seal(self._key)

    async def _find_holder(
        self, scope: Scope, raw: str, without_token: Authenticate | None
    ) -> LiveCaller | AuthRefusal:
        token = read_token(self._key, raw, time.time())
        if token is None or (token.session and self._registry.has_session_ended(token.session)):
            return BAD_TOKEN
        principal = token.issued or (self._own.find_principal(token.digest) if token.digest else None)
        if principal is not None:
            return LiveCaller(Visitor(principal, client_address(scope), "bearer", principal.user), token)
        if token.digest or without_token is None:
            return BAD_TOKEN
        visitor = await without_token()  # made while no authentication was set up: valid only as long as none is
        return LiveCaller(visitor, token) if isinstance(visitor, Visitor) and visitor.via == "local" else BAD_TOKEN


def no_such_document(hint: str = "") -> NotFound:
    return NotFound("there is no such document", hint=hint, what="document")
