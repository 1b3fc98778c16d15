"""Access tokens of an external authorization server: OAuth 2.1, where this server is the protected resource.

A token is for us if its audience (RFC 8707) is `auth.audience`; or, where that is not set, the address that was called
(`https://notes.example.com/mcp/notes`), or this whole server (`https://notes.example.com`, with or without a slash).
One endpoint's token does not open another, and a path between the two opens nothing.

A signed token is checked with the issuer's keys; an opaque one is introspected by the issuer (RFC 7662), once for all
requests that wait for it. The claims of a good token are cached for half a minute, by the SHA-256 of the token: that
long it can be used after it was revoked, or its key was, but never after it expires. A refusal of an opaque one is
cached for five seconds.
"""

import asyncio
import logging
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Generic, Self, TypeVar
from urllib.parse import quote_plus, urlsplit

import httpx2

from notewright.config.load import Config
from notewright.engine.library import Principal, digest_of
from notewright.errors import Busy, Invalid, Unavailable
from notewright.server.auth.authenticate import AuthRefusal
from notewright.server.auth.claims import Claims, Untrusted, canonical, check_claims, parse_header, signed_claims
from notewright.server.auth.jwks import NoAnswer, Provider, fetch_json, http_client, is_safe
from notewright.server.auth.scopes import ADMIN, BASIC_SCOPES, ScopeNames, granted, scope_names

log = logging.getLogger(__name__)
T = TypeVar("T")

OWN_TOKEN_PREFIX = "nw_"  # of the tokens of `notewright token add`, which no issuer gets to see
MAX_TOKEN_CHARS = 16 << 10
GOOD_SECONDS = 30.0  # for which the claims of a good token are cached
BAD_SECONDS = 5.0  # for which the refusal of an opaque one is
MAX_CACHED = 4096
MAX_INTROSPECTIONS = 32  # under way at once
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750


@dataclass(frozen=True)
class IssuerSettings:
    """Whose tokens are accepted, and how they are read: the settings in [auth]. Invalid, with what to write instead, if
    they do not go together."""

    issuer: str
    audience: str | None = None
    scopes: Sequence[str] = ()
    user_claim: str = "sub"
    public_url: str | None = None
    introspection_url: str | None = None
    client_id: str | None = None  # with the secret: to ask about opaque tokens
    client_secret_file: str | None = None

    def __post_init__(self) -> None:
        self._refuse_address("auth.issuer", self.issuer)
        if urlsplit(self.issuer).query or urlsplit(self.issuer).fragment:
            raise Invalid("auth.issuer has a ? or #", hint="name the issuer as its tokens do", what="auth.issuer")
        if self.introspection_url is not None:
            self._refuse_address("auth.introspection_url", self.introspection_url)
        incomplete = (self.client_id is None) != (self.client_secret_file is None)
        if incomplete or (self.introspection_url and self.client_id is None):
            hint = "set auth.client_id and auth.client_secret_file, as the issuer gave them to you"
            raise Invalid("asking about opaque tokens takes an id and a secret", hint=hint, what="auth.client_id")
        _ = self.client, self.names  # read now, so that mistakes are reported at the start

    @classmethod
    def from_config(cls, config: Config) -> Self:
        names = ("issuer", "audience", "scopes", "user_claim", "introspection_url", "client_id", "client_secret_file")
        return cls(**{name: config[f"auth.{name}"] for name in names}, public_url=config["http.public_url"])

    @cached_property
    def names(self) -> ScopeNames:
        return scope_names(self.scopes)

    @cached_property
    def client(self) -> tuple[str, str] | None:
        """The id and secret of this server at the issuer."""
        if self.client_id is None or self.client_secret_file is None:
            return None
        file = self.client_secret_file
        try:
            secret = Path(file).read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            raise Invalid(f"auth.client_secret_file cannot be read: {error}", what="auth.client_secret_file") from error
        if not secret:
            raise Invalid(f"auth.client_secret_file is empty: {file}", what="auth.client_secret_file")
        return self.client_id, secret

    def is_audience(self, claims: Claims, resource: str) -> bool:
        """Whether a token is meant for `resource`, the address that was called."""
        if self.audience is not None:
            return canonical(self.audience) in claims.audiences
        called = urlsplit(resource)
        whole = self.public_url or f"{called.scheme}://{called.netloc}"
        return not claims.audiences.isdisjoint({canonical(resource), canonical(whole)})

    def _refuse_address(self, setting: str, url: str) -> None:
        if not is_safe(url, self.issuer):
            hint = "use an https:// address; http:// is for an issuer on this machine"
            raise Invalid(f"{setting} is not safe: {url}", hint=hint, what=setting)


class RecentResults(Generic[T]):
    """A cache with a lifetime and a maximum size; the least recently used go first."""

    def __init__(self, clock: Callable[[], float], seconds: float, most: int = MAX_CACHED) -> None:
        self._clock, self._seconds, self._most = clock, seconds, most
        self._entries: OrderedDict[str, tuple[float, T]] = OrderedDict()

    def get(self, name: str) -> T | None:
        until, value = self._entries.get(name, (0.0, None))
        if value is None or self._clock() >= until:
            self._entries.pop(name, None)
            return None
        self._entries.move_to_end(name)
        return value

    def put(self, name: str, value: T) -> None:
        self._entries[name] = (self._clock() + self._seconds, value)
        self._entries.move_to_end(name)
        while len(self._entries) > self._most:
            self._entries.popitem(last=False)


class Issuer:
    """Authenticates by the access tokens of one issuer, which is first contacted when one comes in.

    For one event loop. Raises Unavailable or Busy where nobody can say whether a token is good. An Issuer that replaces
    a `previous` one shares its HTTP client, and only the newest is closed.
    """

    def __init__(
        self,
        settings: IssuerSettings,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        *,
        previous: "Issuer | None" = None,
    ) -> None:
        self._settings, self._now = settings, now
        self._http: httpx2.AsyncClient = http_client() if previous is None else previous._http
        self._provider = Provider(settings.issuer, self._http, clock)
        # Two caches: a flood of bad tokens does not push out the good.
        self._good: RecentResults[Claims] = RecentResults(clock, GOOD_SECONDS)
        self._bad: RecentResults[str] = RecentResults(clock, BAD_SECONDS)  # why each was refused
        self._introspections: dict[str, asyncio.Task[Claims]] = {}

    @property
    def scopes(self) -> tuple[str, ...]:
        """The scopes that a client should ask the issuer for, by the issuer's names."""
        return self._settings.names.to_theirs(*BASIC_SCOPES)

    @property
    def wanted_scope(self) -> str:
        return " ".join(self.scopes)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = list(self._introspections.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._provider.close()
        await self._http.aclose()

    async def authenticate(
        self, secret: str, resource: str, check_guesses: Callable[[], None] = lambda: None
    ) -> Principal | AuthRefusal | None:
        """The bearer of a token for `resource`, or why it is refused; None for a token that is not the issuer's.

        `check_guesses` is called before the issuer is asked about an opaque token, which any guess brings about.
        """
        if not _is_foreign(secret):
            return None
        try:
            claims = await self._find_claims(secret, check_guesses)
        except Untrusted as problem:
            return AuthRefusal("invalid_token", str(problem), self.wanted_scope)
        if claims is None:
            return None
        settings, scope = self._settings, self.wanted_scope
        if not settings.is_audience(claims, resource):
            return AuthRefusal("invalid_token", "The access token was issued for another resource", scope)
        ours = settings.names.to_ours(claims.scopes)
        grant = granted(ours)
        if grant is None:
            return AuthRefusal("insufficient_scope", f"The access token has none of the scopes {scope}", scope)
        host = settings.issuer.partition("://")[2].rstrip("/")
        # The slash tells these users from our own tokens, whose names have none.
        return Principal(f"{host}/{claims.user(settings.user_claim)}", grant, "oauth", admin=ADMIN in ours)

    async def _find_claims(self, token: str, check_guesses: Callable[[], None]) -> Claims | None:
        """The claims of a valid token; None if there is no way to check it."""
        digest = digest_of(token)
        if (why := self._bad.get(digest)) is not None:
            raise Untrusted(why)
        cached = self._good.get(digest)
        if cached is not None and cached.expires > self._now():
            return cached
        header = parse_header(token)
        if header is None and self._settings.client is None:
            return None
        if header is None:
            check_guesses()
            claims = await self._introspect_shared(token, digest)
        elif header.issuer != self._settings.issuer:  # before its keys are looked for
            raise Untrusted("The access token is of another issuer")
        else:
            raw = signed_claims(token, await self._provider.keys_for(header))
            claims = check_claims(raw, self._settings.issuer, self._now(), typed=header.typed)
        self._good.put(digest, claims)
        return claims

    async def _introspect_shared(self, token: str, digest: str) -> Claims:
        """The issuer's claims for an opaque token. A caller may go away: others may be waiting for the same answer."""
        if digest not in self._introspections:
            if len(self._introspections) >= MAX_INTROSPECTIONS:
                raise Busy("too many access tokens are being looked up", hint="try again in a second")
            task = self._introspections[digest] = asyncio.create_task(self._introspect(token, digest))
            # Else asyncio complains of an exception where all who waited have gone.
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(self._introspections[digest])

    async def _introspect(self, token: str, digest: str) -> Claims:
        assert self._settings.client is not None
        try:
            auth = httpx2.BasicAuth(*map(quote_plus, self._settings.client))  # RFC 6749 §2.3.1: as in a form
            url = self._settings.introspection_url or await self._provider.endpoint("introspection_endpoint")
            raw = await fetch_json(self._http, url, {"token": token, "token_type_hint": "access_token"}, auth)
            if raw.get("active") is not True:
                raise Untrusted("The access token is not known, was revoked or has expired")
            return check_claims(raw, self._settings.issuer, self._now(), opaque=True)
        except Untrusted as problem:
            self._bad.put(digest, str(problem))
            raise
        except NoAnswer as problem:
            log.warning("the issuer of access tokens cannot be asked about one: %s", problem)
            raise Unavailable("the issuer of access tokens does not answer", hint="try again in a minute") from problem
        finally:
            del self._introspections[digest]


def _is_foreign(secret: str) -> bool:
    """Whether it is none of our own tokens, and could be one of the issuer's."""
    return (
        not secret.startswith(OWN_TOKEN_PREFIX)
        and len(secret) <= MAX_TOKEN_CHARS
        and _TOKEN.fullmatch(secret) is not None
    )
