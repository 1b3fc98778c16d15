"""Access tokens of somebody else's authorization server: OAuth 2.1, and we are the resource.

A token is for us if its audience (RFC 8707) is `auth.audience`; or, where that is not set, the address that was called
(`https://notes.example.com/mcp/notes`), or this whole server (`https://notes.example.com`, with or without a slash).
One endpoint's token does not open another, and a path between the two opens nothing.

A signed token is checked with the issuer's keys; about an opaque one the issuer is asked (RFC 7662), once for all who
wait. What a good token says is remembered for half a minute, by the SHA-256 of the token: that long it can be used
after it was revoked, or its key was, and no longer than until it ends. That an opaque one is bad is remembered for five
seconds.
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
from notewright.server.auth.authenticate import Refused
from notewright.server.auth.claims import Claims, Untrusted, believed, canonical, header_of, signed_claims
from notewright.server.auth.jwks import NoAnswer, Provider, answer, client, is_safe
from notewright.server.auth.scopes import BASIC, ScopeNames, rights, scope_names

log = logging.getLogger(__name__)
T = TypeVar("T")

OURS = "nw_"  # how the tokens of `notewright token add` begin: they are nobody else's business
MAX_TOKEN_CHARS = 16 << 10
GOOD_SECONDS = 30.0  # for which a good token is remembered
BAD_SECONDS = 5.0  # and an opaque one that is not
MAX_REMEMBERED = 4096
MAX_QUESTIONS = 32  # to the issuer, under way
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750


@dataclass(frozen=True)
class Trust:
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
        alone = (self.client_id is None) != (self.client_secret_file is None)
        if alone or (self.introspection_url and self.client_id is None):
            hint = "set auth.client_id and auth.client_secret_file, as the issuer gave them to you"
            raise Invalid("asking about opaque tokens takes an id and a secret", hint=hint, what="auth.client_id")
        _ = self.client, self.names  # read now, so that mistakes are told at the start

    @classmethod
    def of(cls, config: Config) -> Self:
        names = ("issuer", "audience", "scopes", "user_claim", "introspection_url", "client_id", "client_secret_file")
        return cls(**{name: config[f"auth.{name}"] for name in names}, public_url=config["http.public_url"])

    @cached_property
    def names(self) -> ScopeNames:
        return scope_names(self.scopes)

    @cached_property
    def client(self) -> tuple[str, str] | None:
        """Our id and secret at the issuer."""
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

    def is_for_us(self, claims: Claims, resource: str) -> bool:
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
    """What was learned of tokens in the last seconds: at most so many, those used longest ago go first."""

    def __init__(self, ticks: Callable[[], float], seconds: float, most: int = MAX_REMEMBERED) -> None:
        self._ticks, self._seconds, self._most = ticks, seconds, most
        self._known: OrderedDict[str, tuple[float, T]] = OrderedDict()

    def get(self, name: str) -> T | None:
        until, value = self._known.get(name, (0.0, None))
        if value is None or self._ticks() >= until:
            self._known.pop(name, None)
            return None
        self._known.move_to_end(name)
        return value

    def put(self, name: str, value: T) -> None:
        self._known[name] = (self._ticks() + self._seconds, value)
        self._known.move_to_end(name)
        while len(self._known) > self._most:
            self._known.popitem(last=False)


class Issuer:
    """Knows the access tokens of one issuer; nothing is asked of it before the first one comes in.

    For one event loop. It raises Unavailable or Busy where nobody can say whether a token is good. One that replaces
    a `previous` one shares its HTTP client, and only the newest is closed.
    """

    def __init__(
        self,
        trust: Trust,
        now: Callable[[], float] = time.time,
        ticks: Callable[[], float] = time.monotonic,
        *,
        previous: "Issuer | None" = None,
    ) -> None:
        self._trust, self._now = trust, now
        self._http: httpx2.AsyncClient = client() if previous is None else previous._http
        self._provider = Provider(trust.issuer, self._http, ticks)
        self._good: RecentResults[Claims] = RecentResults(ticks, GOOD_SECONDS)
        self._bad: RecentResults[str] = RecentResults(ticks, BAD_SECONDS)  # why: a flood of these leaves the good alone
        self._asking: dict[str, asyncio.Task[Claims]] = {}

    @property
    def scopes(self) -> tuple[str, ...]:
        """Those that a client should ask the issuer for, by the issuer's names."""
        return self._trust.names.theirs(*BASIC)

    @property
    def asks(self) -> str:
        return " ".join(self.scopes)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._provider.close()
        await self._http.aclose()

    def must_ask(self, secret: str) -> bool:
        """Opaque tokens that were not asked about lately; a signed one we judge ourselves."""
        if self._trust.client is None or not _is_theirs(secret) or self._good.get(digest_of(secret)) is not None:
            return False
        try:
            return header_of(secret) is None
        except Untrusted:
            return False

    async def admit(self, secret: str, resource: str) -> Principal | Refused | None:
        """Who comes with this token, if it is one of the issuer's for `resource`; else why not."""
        if not _is_theirs(secret):
            return None
        try:
            claims = await self._known_claims(secret)
        except Untrusted as problem:
            return Refused("invalid_token", str(problem), self.asks)
        if claims is None:
            return None
        if not self._trust.is_for_us(claims, resource):
            return Refused("invalid_token", "The access token was issued for another resource", self.asks)
        return self._principal(claims)

    async def _known_claims(self, token: str) -> Claims | None:
        """What a token says that is good; None if we have no way to know."""
        name = digest_of(token)
        if (why := self._bad.get(name)) is not None:
            raise Untrusted(why)
        known = self._good.get(name)
        if known is not None and known.expires > self._now():
            return known
        found = await self._claims(token, name)
        if found is not None:
            self._good.put(name, found)
        return found

    async def _claims(self, token: str, name: str) -> Claims | None:
        header = header_of(token)
        if header is None:
            return None if self._trust.client is None else await self._introspect_shared(token, name)
        if header.issuer != self._trust.issuer:  # before its keys are looked for
            raise Untrusted("The access token is of another issuer")
        said = signed_claims(token, await self._provider.keys_for(header))
        return believed(said, self._trust.issuer, self._now(), typed=header.typed)

    async def _introspect_shared(self, token: str, name: str) -> Claims:
        """What the issuer says of an opaque token; who asked may go away, others may be waiting for the answer."""
        if name not in self._asking:
            if len(self._asking) >= MAX_QUESTIONS:
                raise Busy("too many access tokens are being looked up", hint="try again in a second")
            self._asking[name] = asyncio.create_task(self._ask(token, name))
            # Else asyncio complains of an exception where all who asked have gone.
            self._asking[name].add_done_callback(lambda asked: asked.cancelled() or asked.exception())
        return await asyncio.shield(self._asking[name])

    async def _ask(self, token: str, name: str) -> Claims:
        try:
            return await self._introspect(token)
        except Untrusted as problem:
            self._bad.put(name, str(problem))
            raise
        except NoAnswer as problem:
            log.warning("the issuer of access tokens cannot be asked about one: %s", problem)
            raise Unavailable("the issuer of access tokens does not answer", hint="try again in a minute") from problem
        finally:
            del self._asking[name]

    async def _introspect(self, token: str) -> Claims:
        assert self._trust.client is not None
        auth = httpx2.BasicAuth(*map(quote_plus, self._trust.client))  # RFC 6749 §2.3.1: as in a form
        url = self._trust.introspection_url or await self._provider.endpoint("introspection_endpoint")
        said = await answer(self._http, url, {"token": token, "token_type_hint": "access_token"}, auth)
        if said.get("active") is not True:
            raise Untrusted("The access token is not known, was revoked or has expired")
        return believed(said, self._trust.issuer, self._now(), opaque=True)

    def _principal(self, claims: Claims) -> Principal | Refused:
        allowed = rights(self._trust.names.ours(claims.scopes))
        if allowed is None:
            return Refused("insufficient_scope", f"The access token has none of the scopes {self.asks}", self.asks)
        place = self._trust.issuer.partition("://")[2].rstrip("/")
        # The slash keeps people apart from our own tokens, whose names have none.
        return Principal(f"{place}/{claims.named(self._trust.user_claim)}", allowed.grant, "oauth", admin=allowed.admin)


def _is_theirs(secret: str) -> bool:
    """Whether it could be a token of somebody else's at all."""
    return not secret.startswith(OURS) and len(secret) <= MAX_TOKEN_CHARS and _TOKEN.fullmatch(secret) is not None
