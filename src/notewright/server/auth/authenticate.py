"""Authentication. Every request needs it unless its route says otherwise, so that a new route cannot be forgotten.

`Authenticate` finds out who calls; each route says what its callers need. An unknown caller learns nothing else: a path
that does not exist answers them like one that does.
"""

import re
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, cookie_parser
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Match, Route, WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from notewright.accounts.base import Accounts, Token
from notewright.accounts.limits import RateLimits, Window
from notewright.engine.library import LAST_USE_SECONDS, Principal, digest_of, find_valid_token
from notewright.errors import Limited, Problem
from notewright.server.auth.browser_session import BrowserSessions
from notewright.server.host_check import WELL_KNOWN
from notewright.server.request_context import note_refusal

if TYPE_CHECKING:  # takes a third of a second to load, and few servers have one
    from notewright.server.auth.oauth import Issuer

VISITOR = "notewright.visitor"  # the keys of the ASGI scope: the Visitor,
REAUTHENTICATE = "notewright.again"  # a function that authenticates once more, for what stays open for long,
METADATA_URL = "notewright.metadata"  # and the address of the resource's metadata
COOKIE_NAME = "notewright"
MCP_PATH = re.compile(r"/mcp|/mcp/([\w-]+)|/w/[\w-]{1,64}/mcp/([\w-]+)|/[\w-]{1,64}/mcp", re.ASCII)
SMALL_BODY_BYTES = 1 << 20  # of a request that carries no notes
GUESS_LIMITS = (Window(30, 60.0, "minute"),)  # for unknown tokens from one address
PROXY_HEADERS = ("x-forwarded-for", "forwarded", "x-real-ip", "x-forwarded-host")  # that proxies and tunnels add
DOCUMENT_TOKEN_PREFIX = "nwd_"  # of tokens for live documents, which only their own routes understand
_HTTP_SCHEME = {"ws": "http", "wss": "https"}  # of the page that a WebSocket belongs to
Need = Literal["open", "read", "write", "owner"]


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who sent a request, and how we know."""

    principal: Principal
    address: str
    via: Literal["local", "bearer", "cookie"]
    csrf_subject: str = ""  # what a form's token is bound to
    session: str = ""  # the browser's sign-in, until it signs out


@dataclass(frozen=True, slots=True)
class AuthRefusal:
    """Why a request is not authenticated, in the words of RFC 6750."""

    error: Literal["", "invalid_token", "insufficient_scope"] = ""
    description: str = "Authentication required"
    scope: str | None = None

    @property
    def status(self) -> int:
        return 403 if self.error == "insufficient_scope" else 401


class OwnTokens:
    """The tokens of `notewright token add`, with a cache of those used since the registry last changed."""

    def __init__(self, registry: Accounts) -> None:
        self._registry = registry
        self._data_version = -1
        self._cache: dict[str, Token] = {}

    def find_principal(self, digest: str) -> Principal | None:
        """The principal of a valid token with this digest."""
        data_version, now = self._registry.data_version(), time.time()
        if data_version != self._data_version:
            self._data_version, self._cache = data_version, {}
        token = self._cache.get(digest)
        if token is None or not token.is_valid(now) or now - (token.used or 0) > LAST_USE_SECONDS:
            token = find_valid_token(self._registry, digest, now)
            if token is None:
                return None
            self._cache[digest] = token
        return Principal(token.name, token.grant)


class GuardedRoute(Route):
    """A route that says who may use it and how much they may send."""

    def __init__(
        self,
        path: str,
        endpoint: Callable[..., Any],
        *,
        need: Need,
        methods: Collection[str] | None = None,
        most_bytes: int = SMALL_BODY_BYTES,
    ) -> None:
        super().__init__(path, endpoint, methods=methods)
        self.need: Need = need
        self.most_bytes = most_bytes

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.need != "open" and VISITOR not in scope:  # should a middleware ever let one through
            return await refusal_response(scope, AuthRefusal())(scope, receive, send)
        if self.need == "owner" and not scope[VISITOR].principal.owner:
            raise InsufficientScope(scope, "This takes a token that nothing narrows", "notes:admin")
        if self.need == "write" and scope[VISITOR].principal.grant.read_only:
            raise InsufficientScope(scope, "This takes a token that may write", "notes:write")
        await super().handle(scope, _limit_body(scope, receive, self.most_bytes), send)


class OpenSocket(WebSocketRoute):
    """A WebSocket whose endpoint, an ASGI application, finds out by itself who opens it."""

    need: Need = "open"


class InsufficientScope(HTTPException):
    """403 for a known caller; `wanted` is the scope that would do."""

    def __init__(self, scope: Scope, words: str, wanted: str | None = None) -> None:
        challenge = _bearer_challenge(AuthRefusal("insufficient_scope", words, wanted), scope[METADATA_URL])
        super().__init__(403, words, {"WWW-Authenticate": challenge})


def _limit_body(scope: Scope, receive: Receive, most: int) -> Receive:
    """Limit the body of a request: 413 for more bytes than that, announced or sent."""

    def check(size: int) -> None:
        if size > most:
            raise HTTPException(413, f"A request here may have {most} bytes at most")

    length = Headers(scope=scope).get("content-length", "0")
    if length.isdecimal():
        check(int(length))
    size = 0

    async def limited_receive() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        check(size)
        return message

    return limited_receive


def get_visitor(connection: HTTPConnection) -> Visitor:
    visitor = connection.scope[VISITOR]
    assert isinstance(visitor, Visitor)
    return visitor


def base_url(scope: Scope, public_url: str | None = None) -> str:
    """The address by which the client reaches this server."""
    if public_url:
        return public_url.rstrip("/")
    scheme = scope.get("scheme", "http")
    return f"{_HTTP_SCHEME.get(scheme, scheme)}://{Headers(scope=scope).get('host', 'localhost')}"


def metadata_url(base_url: str, path: str) -> str:
    """Where the RFC 9728 document for this path is; what is no MCP endpoint belongs to the server as a whole."""
    base, path = urlsplit(base_url.rstrip("/")), path.rstrip("/")
    return f"{base.scheme}://{base.netloc}{WELL_KNOWN}{base.path}{path if MCP_PATH.fullmatch(path) else ''}"


def base_path(public_url: str | None) -> str:
    """The path below which a proxy shows us, which it strips from the requests it passes on; "" for none."""
    return urlsplit(public_url or "").path.rstrip("/")


@dataclass(frozen=True)
class AuthSettings:
    """The settings of `Authenticate`."""

    registry: Accounts
    cookies: BrowserSessions  # knows the tokens of our own forms, too
    limiter: RateLimits  # for guesses
    issuer: "Issuer | None" = None  # of tokens beside our own
    user: str = ""  # who every caller is, where no authentication was ever set up
    closed: bool = False  # requires authentication even so
    public_url: str | None = None


class Authenticate:
    """Puts the Visitor into the scope of every request, or answers 401."""

    def __init__(self, app: ASGIApp, settings: AuthSettings, routes: Sequence[BaseRoute]) -> None:
        self._app = app
        self._settings = settings
        self._scope = settings.issuer.wanted_scope if settings.issuer else None  # that clients should ask for
        guarded = [route for route in routes if isinstance(route, GuardedRoute | OpenSocket)]
        self._open = [route for route in guarded if route.need == "open"]
        self._own = OwnTokens(settings.registry)
        self._data_version, self._required = -1, True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return await self._app(scope, receive, send)
        scope[METADATA_URL] = metadata_url(base_url(scope, self._settings.public_url), scope["path"])
        try:
            visitor = await self._authenticate(scope)
        except Limited as problem:
            error = {"error": "too_many_attempts", "error_description": str(problem)}
            wait = {"Retry-After": str(problem.details["retry_after"])}
            return await JSONResponse(error, 429, wait)(scope, receive, send)
        except Problem as problem:
            return await JSONResponse({"error": str(problem)}, 503, {"Retry-After": "5"})(scope, receive, send)
        if isinstance(visitor, Visitor):
            scope[VISITOR], scope[REAUTHENTICATE] = visitor, partial(self._authenticate, scope)
        elif not any(route.matches(scope)[0] == Match.FULL for route in self._open):
            note_refusal(visitor.error or "unauthenticated")
            return await self._refuse(scope, visitor)(scope, receive, send)
        await self._app(scope, receive, send)

    @property
    def required(self) -> bool:
        """Whether callers must authenticate: for good once a token was added, even if all were revoked since."""
        settings, data_version = self._settings, self._settings.registry.data_version()
        if data_version != self._data_version:
            self._required = settings.closed or settings.issuer is not None or bool(settings.registry.tokens())
            self._data_version = data_version
        return self._required

    async def _authenticate(self, scope: Scope) -> Visitor | AuthRefusal:
        address = client_address(scope)
        headers = Headers(scope=scope)
        if not self.required:
            if any(name in headers for name in PROXY_HEADERS):  # else the request is from this machine
                return AuthRefusal(description="This came through a proxy: make an access token first")
            return Visitor(Principal(self._settings.user, kind="local"), address, "local")
        secret, issuer = bearer_token(headers), self._settings.issuer
        if not secret:
            return self._read_cookie(scope, headers, address) or AuthRefusal(scope=self._scope)
        if secret.startswith(DOCUMENT_TOKEN_PREFIX):
            return AuthRefusal("invalid_token", "This token is for live documents alone", self._scope)
        # Our own tokens first: an issuer is not asked about every guess.
        found: Principal | AuthRefusal | None = self._own.find_principal(digest_of(secret))
        if found is None and issuer is not None:
            resource = base_url(scope, self._settings.public_url) + scope["path"]
            found = await issuer.authenticate(secret, resource, partial(self._count_guess, address, peek=True))
        if isinstance(found, Principal):
            return Visitor(found, address, "bearer", found.user)
        if found is None or found.error == "invalid_token":
            self._count_guess(address)
        unknown = "The access token is not known, was revoked or has expired"
        return found or AuthRefusal("invalid_token", unknown, self._scope)

    def _count_guess(self, address: str, *, peek: bool = False) -> None:
        """Count an unknown token by address; Limited for an address with too many."""
        self._settings.limiter.count(f"guess {address}", GUESS_LIMITS, peek=peek)

    def _read_cookie(self, scope: Scope, headers: Headers, address: str) -> Visitor | None:
        """The visitor of a browser session. Its cookie counts for our own pages alone: browsers add it to what other
        ports of this machine send, too, and name with every WebSocket the page that opens it."""
        settings, origin = self._settings, headers.get("origin")
        value = cookie_parser(headers.get("cookie", "")[:8192]).get(COOKIE_NAME)
        if value is None or (origin is None and scope["type"] != "http"):
            return None
        ours = {urlsplit(base).netloc.lower() for base in (base_url(scope), base_url(scope, settings.public_url))}
        if origin is not None and urlsplit(origin).netloc.lower() not in ours:
            return None
        digest, session = settings.cookies.read(value, time.time()) or ("", "")
        principal = self._own.find_principal(digest) if digest else None
        if principal is None or settings.registry.has_session_ended(session):
            return None
        return Visitor(principal, address, "cookie", digest, session)

    def _refuse(self, scope: Scope, refusal: AuthRefusal) -> Response:
        """A redirect to the sign-in page for a browser that navigates, 401 for all others."""
        headers = Headers(scope=scope)
        navigates = scope.get("method") in ("GET", "HEAD") and "text/html" in headers.get("accept", "")
        if scope["type"] != "http" or not navigates or "authorization" in headers:
            return refusal_response(scope, refusal)
        query = scope.get("query_string", b"").decode("latin-1")
        target = quote(scope["path"] + (f"?{query}" if query else ""), safe="/")
        address = f"{base_path(self._settings.public_url)}/sign-in?next={target}"
        return RedirectResponse(address, 303, {"Cache-Control": "no-store"})


def refusal_response(scope: Scope, refusal: AuthRefusal) -> Response:
    error = {"error": refusal.error or "unauthorized", "error_description": refusal.description}
    challenge = _bearer_challenge(refusal, scope.get(METADATA_URL, ""))
    return JSONResponse(error, refusal.status, {"WWW-Authenticate": challenge})


def _bearer_challenge(refusal: AuthRefusal, metadata: str) -> str:
    """`WWW-Authenticate` as RFC 6750 and RFC 9728 want it: a request without a token gets no error."""
    parts = {"error": refusal.error, "error_description": refusal.description if refusal.error else ""}
    parts |= {"scope": refusal.scope or "", "resource_metadata": metadata}
    return "Bearer " + ", ".join(f'{name}="{_quote_parameter(value)}"' for name, value in parts.items() if value)


def _quote_parameter(value: str) -> str:
    plain = "".join(letter if 31 < ord(letter) < 127 else quote(letter) for letter in value)
    return plain.replace("\\", "%5C").replace('"', "%22")


def bearer_token(headers: Headers) -> str:
    """The token in the Authorization header, "" for none. Two headers count as none."""
    scheme, _, secret = ", ".join(headers.getlist("authorization")).partition(" ")
    return secret.strip(" ") if scheme.lower() == "bearer" else ""


def client_address(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else ""
