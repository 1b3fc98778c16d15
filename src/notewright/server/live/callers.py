"""Who asks for a live document: somebody whom the gate knows, or the holder of a token for it."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.datastructures import Headers, QueryParams
from starlette.types import Scope

from notewright.accounts.base import Accounts
from notewright.engine.access import Access
from notewright.engine.library import Principal, digest_of
from notewright.ledger.base import Actor
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
from notewright.server.live import tokens
from notewright.server.live.documents import DocumentNames, may_write, no_such_document
from notewright.server.live.tokens import DocumentToken, read_token

SURFACES = ("lens", "page")  # to which a token may be narrowed that opens live documents: whose protocol it is
NO_TOKEN = AuthRefusal(description="This takes an access token, or one for the document")
BAD_TOKEN = AuthRefusal("invalid_token", "The token for this document is not good, or no longer")
AskAgain = Callable[[], Awaitable[Visitor | AuthRefusal]]


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, and the token they showed if it was one for documents."""

    visitor: Visitor
    token: DocumentToken | None = None

    @property
    def principal(self) -> Principal:
        return self.visitor.principal

    @property
    def actor(self) -> Actor:
        return Actor(self.principal.user, "", "live", "type")

    @property
    def has_expired(self) -> bool:
        return self.token is not None and time.time() >= self.token.expires

    def may_write(self, access: Access, doc_id: str, names: DocumentNames) -> bool:
        """Whether they may change a document of this workspace; NotFound for one that they may not see."""
        if self.token is not None and not self.token.opens(doc_id):
            raise no_such_document()
        return may_write(access, doc_id, names) and (self.token is None or self.token.write)


class Callers:
    """Finds out who asks."""

    def __init__(self, registry: Accounts) -> None:
        self._key = registry.secret("live")
        self._registry = registry
        self._own = OwnTokens(registry)

    async def caller(self, scope: Scope) -> Caller | AuthRefusal:
        """A token decides, where there is one. Also makes `scope` say who it is, and how they are asked again."""
        raw = _given_token(scope)
        if raw is None:
            visitor = scope.get(VISITOR)
            found: Caller | AuthRefusal = NO_TOKEN if visitor is None else Caller(visitor)
        else:
            known = scope.get(REAUTHENTICATE)
            found = await self._holder(scope, raw, known)
            scope[REAUTHENTICATE] = lambda: self._again(scope, raw, known)
        if isinstance(found, AuthRefusal):
            return found
        if not any(found.principal.uses(surface) for surface in SURFACES):
            return AuthRefusal("insufficient_scope", "This token is not for live documents", "surface:lens")
        scope[VISITOR] = found.visitor
        return found

    def issue(self, scope: Scope, caller: Caller, opens: str, write: bool, seconds: float) -> str:
        """A token for the documents that `opens` names. One that was shown is passed on no longer than it lasts."""
        principal, digest, issued, session = caller.principal, "", None, caller.visitor.session
        most: float = tokens.MAX_SECONDS
        if caller.token is not None:
            digest, issued, session = caller.token.digest, caller.token.issued, caller.token.session
            most = caller.token.expires - time.time()
        elif principal.kind == "oauth":
            issued, most = principal, tokens.MAX_ISSUED_SECONDS
        elif caller.visitor.via == "cookie":
            digest, most = (
                caller.visitor.csrf_subject,
                min(most, browser_session.COOKIE_SECONDS),
            )  # a sign-out is known so long
        elif principal.kind == "token":
            digest = digest_of(bearer_token(Headers(scope=scope)))
        expires = time.time() + min(seconds, most)
        return DocumentToken(opens, write, expires, digest, issued, session).sealed(self._key)

    async def _holder(self, scope: Scope, raw: str, known: AskAgain | None) -> Caller | AuthRefusal:
        token = read_token(self._key, raw, time.time())
        if token is None or (token.session and self._registry.has_session_ended(token.session)):
            return BAD_TOKEN
        principal = token.issued or (self._own.find_principal(token.digest) if token.digest else None)
        if principal is not None:
            return Caller(Visitor(principal, client_address(scope), "bearer", principal.user), token)
        if token.digest or known is None:
            return BAD_TOKEN
        visitor = await known()  # it was made where nobody is asked who they are: only while that is so
        return Caller(visitor, token) if isinstance(visitor, Visitor) and visitor.via == "local" else BAD_TOKEN

    async def _again(self, scope: Scope, raw: str, known: AskAgain | None) -> Visitor | AuthRefusal:
        found = await self._holder(scope, raw, known)
        return found if isinstance(found, AuthRefusal) else found.visitor


def _given_token(scope: Scope) -> str | None:
    """The token for documents that came along, in the address or as a bearer token."""
    given = QueryParams(scope.get("query_string", b"")).get("token")
    bearer = bearer_token(Headers(scope=scope))
    return given or (bearer if bearer.startswith(DOCUMENT_TOKEN_PREFIX) else None)
