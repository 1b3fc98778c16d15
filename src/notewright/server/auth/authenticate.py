"""Authentication. Every request needs it unless its route says otherwise, so that a new route cannot be forgotten.

`Authenticate` finds out who asks; each route says what they need. Whoever is not known learns nothing but that: a path
that is not there answers a stranger as one that is.
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
from notewright.engine.library import LAST_USE_SECONDS, Principal, admit_digest, digest_of
from notewright.errors import Limited, Problem
from notewright.server.auth.browser_session import BrowserSessions
from notewright.server.host_check import WELL_KNOWN
from notewright.server.request_context import refuse

if TYPE_CHECKING:  # takes a third of a second to load, and few servers have one
    from notewright.server.auth.oauth import Issuer

VISITOR = "notewright.visitor"  # where in the ASGI scope
AGAIN = "notewright.again"  # where in the scope: asks once more who it is, for what stays open for long
COOKIE = "notewright"
METADATA_URL = "notewright.metadata"  # where in the scope the address of that document is
MCP_PATH = re.compile(r"/mcp|/mcp/([\w-]+)|/w/[\w-]{1,64}/mcp/([\w-]+)|/[\w-]{1,64}/mcp", re.ASCII)
SMALL = 1 << 20  # bytes of a request that carries no notes
GUESSES = (Window(30, 60.0, "minute"),)  # of one address, before it has to wait
FORWARDED = ("x-forwarded-for", "forwarded", "x-real-ip", "x-forwarded-host")  # what proxies and tunnels add
DOCUMENT_TOKEN = "nwd_"  # begins a token for live documents, which only their own routes understand
_PAGE_SCHEME = {"ws": "http", "wss": "https"}  # of a WebSocket: that of the page it belongs to
Need = Literal["open", "read", "write", "owner"]


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who sent a request, and how we know."""

    principal: Principal
    address: str
    via: Literal["local", "bearer", "cookie"]
    visit: str = ""  # what a form's token is bound to
    session: str = ""  # which sign-in of a browser it is, until it signs out


@dataclass(frozen=True, slots=True)
class Refused:
    """Why somebody may not come in, in the words of RFC 6750."""

    error: Literal["", "invalid_token", "insufficient_scope"] = ""
    description: str = "Authentication required"
    scope: str | None = None

    @property
    def status(self) -> int:
        return 403 if self.error == "insufficient_scope" else 401


class OwnTokens:
    """The tokens of `notewright token add`."""

    def __init__(self, registry: Accounts) -> None:
        self._registry = registry
        self._pulse = -1
        self._known: dict[str, Token] = {}  # those that came since anything changed: few, and good a moment ago

    def visiting(self, digest: str) -> Principal | None:
        """Whose this is, as long as the token is good."""
        pulse, now = self._registry.pulse(), time.time()
        if pulse != self._pulse:
            self._pulse, self._known = pulse, {}
        found = self._known.get(digest)
        if found is None or not found.good(now) or now - (found.used or 0) > LAST_USE_SECONDS:
            found = admit_digest(self._registry, digest, now)
            if found is None:
                return None
            self._known[digest] = found
        return Principal(found.name, found.grant)


class GuardedRoute(Route):
    """A route that says who may use it and how much they may send."""

    def __init__(
        self,
        path: str,
        endpoint: Callable[..., Any],
        *,
        need: Need,
        methods: Collection[str] | None = None,
        most_bytes: int = SMALL,
    ) -> None:
        super().__init__(path, endpoint, methods=methods)
        self.need: Need = need
        self.most_bytes = most_bytes

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.need != "open" and VISITOR not in scope:  # whatever let them come as far as here
            return await refusal(scope, Refused())(scope, receive, send)
        if self.need == "owner" and not scope[VISITOR].principal.owner:
            raise Narrow(scope, "This takes a token that nothing narrows", "notes:admin")
        if self.need == "write" and scope[VISITOR].principal.grant.read_only:
            raise Narrow(scope, "This takes a token that may write", "notes:write")
        await super().handle(scope, _bounded(scope, receive, self.most_bytes), send)


class GuardedSocket(WebSocketRoute):
    """A WebSocket that says who may open it. `endpoint` is an ASGI application: it accepts or refuses."""

    def __init__(self, path: str, endpoint: ASGIApp, *, need: Literal["open", "read"]) -> None:
        super().__init__(path, endpoint)
        self.need: Need = need

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.need != "open" and VISITOR not in scope:  # whatever let them come as far as here
            return await refusal(scope, Refused())(scope, receive, send)
        await super().handle(scope, receive, send)


class Narrow(HTTPException):
    """Known, and not allowed this; `wanted` is the scope that would do."""

    def __init__(self, scope: Scope, words: str, wanted: str | None = None) -> None:
        said = challenge(Refused("insufficient_scope", words, wanted), scope[METADATA_URL])
        super().__init__(403, words, {"WWW-Authenticate": said})


def _bounded(scope: Scope, receive: Receive, most: int) -> Receive:
    """The same request, up to so many bytes."""
    length = Headers(scope=scope).get("content-length", "0")
    if length.isdecimal() and int(length) > most:
        raise HTTPException(413, f"A request here may have {most} bytes at most")
    size = 0

    async def bounded() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > most:
            raise HTTPException(413, f"A request here may have {most} bytes at most")
        return message

    return bounded


def visitor_of(connection: HTTPConnection) -> Visitor:
    visitor = connection.scope[VISITOR]
    assert isinstance(visitor, Visitor)
    return visitor


def base_url(scope: Scope, public_url: str | None = None) -> str:
    """By which address the client knows us."""
    if public_url:
        return public_url.rstrip("/")
    scheme = scope.get("scheme", "http")
    return f"{_PAGE_SCHEME.get(scheme, scheme)}://{Headers(scope=scope).get('host', 'localhost')}"


def metadata_url(base_url: str, path: str) -> str:
    """Where the RFC 9728 document for this path is; what is no MCP endpoint belongs to the server as a whole."""
    base, path = urlsplit(base_url.rstrip("/")), path.rstrip("/")
    return f"{base.scheme}://{base.netloc}{WELL_KNOWN}{base.path}{path if MCP_PATH.fullmatch(path) else ''}"


def base_path(public_url: str | None) -> str:
    """The path below which a proxy shows us, which it takes away from what it asks us for; "" for none."""
    return urlsplit(public_url or "").path.rstrip("/")


@dataclass(frozen=True)
class AuthSettings:
    """What `Authenticate` goes by."""

    registry: Accounts
    issuer: "Issuer | None" = None  # of tokens beside our own
    user: str = ""  # who everybody is, where no authentication was ever set up
    closed: bool = False  # asks for authentication even so
    cookies: BrowserSessions | None = None
    public_url: str | None = None
    limiter: RateLimits | None = None  # for guesses


class Authenticate:
    """Puts the Visitor into the scope of every request, or answers 401."""

    def __init__(self, app: ASGIApp, entry: AuthSettings, routes: Sequence[BaseRoute]) -> None:
        self._app = app
        self._entry = entry
        self._scope = entry.issuer.asks if entry.issuer else None  # what a client is told to ask its issuer for
        guarded = [route for route in routes if isinstance(route, GuardedRoute | GuardedSocket)]
        self._open = [route for route in guarded if route.need == "open"]
        self._own = OwnTokens(entry.registry)
        self._asked_at, self._closed = -1, True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return await self._app(scope, receive, send)
        scope[METADATA_URL] = metadata_url(base_url(scope, self._entry.public_url), scope["path"])
        try:
            visitor = await self._visitor(scope)
        except Limited as problem:
            refuse("rate")
            told = {"error": "too_many_attempts", "error_description": str(problem)}
            wait = {"Retry-After": str(problem.details["retry_after"])}
            return await JSONResponse(told, 429, wait)(scope, receive, send)
        except Problem as problem:
            return await JSONResponse({"error": str(problem)}, 503, {"Retry-After": "5"})(scope, receive, send)
        if isinstance(visitor, Visitor):
            scope[VISITOR], scope[AGAIN] = visitor, partial(self._visitor, scope)
        elif not any(route.matches(scope)[0] == Match.FULL for route in self._open):
            refuse(visitor.error or "unauthenticated")
            return await self._refusal(scope, visitor)(scope, receive, send)
        await self._app(scope, receive, send)

    @property
    def required(self) -> bool:
        """Once a token was added anybody has to show one, even if all were revoked since."""
        pulse = self._entry.registry.pulse()
        if pulse != self._asked_at:
            self._closed = self._entry.closed or self._entry.issuer is not None or bool(self._entry.registry.tokens())
            self._asked_at = pulse
        return self._closed

    async def _visitor(self, scope: Scope) -> Visitor | Refused:
        address = address_of(scope)
        headers = Headers(scope=scope)
        if not self.required:
            if any(name in headers for name in FORWARDED):  # this machine asks us itself
                return Refused(description="This came through a proxy: make an access token first")
            return Visitor(Principal(self._entry.user, kind="local"), address, "local")
        secret = bearer_of(headers)
        if secret.startswith(DOCUMENT_TOKEN):
            return Refused("invalid_token", "This token is for live documents alone", self._scope)
        if secret:
            found = await self._known(address, secret, base_url(scope, self._entry.public_url) + scope["path"])
            if isinstance(found, Principal):
                return Visitor(found, address, "bearer", found.user)
            if found is None or found.error == "invalid_token":
                self._count_guess(address)
            unknown = "The access token is not known, was revoked or has expired"
            return found or Refused("invalid_token", unknown, self._scope)
        return self._by_cookie(scope, headers, address) or Refused(scope=self._scope)

    async def _known(self, address: str, secret: str, resource: str) -> Principal | Refused | None:
        """Our own tokens first: an issuer is not asked about every guess."""
        found, issuer = self._own.visiting(digest_of(secret)), self._entry.issuer
        if found is not None or issuer is None:
            return found
        if issuer.must_ask(secret):  # which takes long and can be had by anybody who guesses
            self._count_guess(address, peek=True)
        return await issuer.admit(secret, resource)

    def _count_guess(self, address: str, *, peek: bool = False) -> None:
        """Tokens that were not known are counted by address; Limited for one that has guessed too often."""
        if self._entry.limiter is not None:
            self._entry.limiter.count(f"guess {address}", GUESSES, peek=peek)

    def _by_cookie(self, scope: Scope, headers: Headers, address: str) -> Visitor | None:
        value = cookie_parser(headers.get("cookie", "")[:8192]).get(COOKIE)
        if value is None or self._entry.cookies is None or not self._is_our_page(scope, headers.get("origin")):
            return None
        digest, session = self._entry.cookies.read(value, time.time()) or ("", "")
        principal = self._own.visiting(digest) if digest else None
        if principal is None or self._entry.registry.session_ended(session):
            return None
        return Visitor(principal, address, "cookie", digest, session)

    def _is_our_page(self, scope: Scope, origin: str | None) -> bool:
        """A cookie speaks for our own pages alone. Browsers add it to what other ports of this machine send, too, and
        say with every WebSocket whose page opens it."""
        ours = (base_url(scope), base_url(scope, self._entry.public_url))
        if origin is None:
            return bool(scope["type"] == "http")
        return urlsplit(origin).netloc.lower() in {urlsplit(base).netloc.lower() for base in ours}

    def _refusal(self, scope: Scope, refused: Refused) -> Response:
        if _is_browser(scope):
            query = scope.get("query_string", b"").decode("latin-1")
            asked = quote(scope["path"] + (f"?{query}" if query else ""), safe="/")
            address = f"{base_path(self._entry.public_url)}/sign-in?next={asked}"
            return RedirectResponse(address, 303, {"Cache-Control": "no-store"})
        return refusal(scope, refused)


def refusal(scope: Scope, refused: Refused) -> Response:
    told = {"error": refused.error or "unauthorized", "error_description": refused.description}
    return JSONResponse(told, refused.status, {"WWW-Authenticate": challenge(refused, scope.get(METADATA_URL, ""))})


def challenge(refused: Refused, metadata: str) -> str:
    """`WWW-Authenticate` as RFC 6750 and RFC 9728 want it: a request without a token is told no error."""
    parts = {"error": refused.error, "error_description": refused.description if refused.error else ""}
    parts |= {"scope": refused.scope or "", "resource_metadata": metadata}
    return "Bearer " + ", ".join(f'{name}="{_quote_parameter(value)}"' for name, value in parts.items() if value)


def _quote_parameter(value: str) -> str:
    plain = "".join(letter if 31 < ord(letter) < 127 else quote(letter) for letter in value)
    return plain.replace("\\", "%5C").replace('"', "%22")


def bearer_of(headers: Headers) -> str:
    """The token in the header that is for it, "" for none. Two headers are none."""
    scheme, _, secret = ", ".join(headers.getlist("authorization")).partition(" ")
    return secret.strip(" ") if scheme.lower() == "bearer" else ""


def address_of(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else ""


def _is_browser(scope: Scope) -> bool:
    headers = Headers(scope=scope)
    navigates = scope.get("method") in ("GET", "HEAD") and "text/html" in headers.get("accept", "")
    return scope["type"] == "http" and navigates and "authorization" not in headers
