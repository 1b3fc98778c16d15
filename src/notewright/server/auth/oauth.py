"""Access tokens of somebody else's authorization server: OAuth 2.1, and we are the resource.

A token is for us if its audience (RFC 8707) is `auth.audience`; or, where that is not set, the address that was called
(`https://notes.example.com/mcp/notes`), or this whole server (`https://notes.example.com`, with or without a slash).
One endpoint's token does not open another, and a path between the two opens nothing.

What a good token says is remembered for half a minute, by the SHA-256 of the token: that long it can be used after it
was revoked, or its key was, and no longer than until it ends.
"""

import hashlib
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from notewright.config.load import Config
from notewright.engine.library import Principal
from notewright.errors import Invalid
from notewright.server.auth.authenticate import Refused
from notewright.server.auth.claims import Claims, Untrusted, believed, canonical, header_of, signed_claims
from notewright.server.auth.introspection import Introspection, RecentResults
from notewright.server.auth.jwks import Provider, client, is_safe
from notewright.server.auth.scopes import BASIC, ScopeNames, rights, scope_names

OURS = "nw_"  # how the tokens of `notewright token add` begin: they are nobody else's business
MOST_LETTERS = 16 << 10  # of one token
REMEMBERED = 30.0  # seconds
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750


@dataclass(frozen=True, slots=True)
class Trust:
    """Whose tokens are accepted, and how they are read."""

    issuer: str
    audience: str | None = None
    names: ScopeNames = field(default_factory=ScopeNames)
    user_claim: str = "sub"
    public_url: str | None = None
    introspection_url: str | None = None
    client: tuple[str, str] | None = field(default=None, repr=False)  # id and secret, to ask about opaque tokens

    def is_for_us(self, claims: Claims, resource: str) -> bool:
        if self.audience is not None:
            return canonical(self.audience) in claims.audiences
        called = urlsplit(resource)
        whole = self.public_url or f"{called.scheme}://{called.netloc}"
        return not claims.audiences.isdisjoint({canonical(resource), canonical(whole)})

    @property
    def place(self) -> str:
        """The issuer as people write it."""
        return self.issuer.partition("://")[2].rstrip("/")


def trust(
    issuer: str,
    *,
    audience: str | None = None,
    scopes: Sequence[str] = (),
    user_claim: str = "sub",
    public_url: str | None = None,
    introspection_url: str | None = None,
    client_id: str | None = None,
    client_secret_file: str | None = None,
) -> Trust:
    """From the settings in [auth]; Invalid, with what to write instead, if they do not go together."""
    _refuse_address("auth.issuer", issuer, issuer)
    if urlsplit(issuer).query or urlsplit(issuer).fragment:
        raise Invalid("auth.issuer has a ? or #", hint="name the issuer as its tokens do", what="auth.issuer")
    if introspection_url is not None:
        _refuse_address("auth.introspection_url", introspection_url, issuer)
    if (client_id is None) != (client_secret_file is None) or (introspection_url and client_id is None):
        hint = "set auth.client_id and auth.client_secret_file, as the issuer gave them to you"
        raise Invalid("asking about opaque tokens takes an id and a secret", hint=hint, what="auth.client_id")
    secret = _secret(client_secret_file) if client_secret_file is not None else ""
    client = (client_id, secret) if client_id is not None else None
    names = scope_names(scopes)
    return Trust(issuer, audience, names, user_claim, public_url, introspection_url, client)


def trust_of(config: Config) -> Trust:
    """What the configuration says; Invalid with a hint where something is wrong."""
    names = ("issuer", "audience", "scopes", "user_claim", "introspection_url", "client_id", "client_secret_file")
    return trust(**{name: config[f"auth.{name}"] for name in names}, public_url=config["http.public_url"])


def _refuse_address(setting: str, url: str, issuer: str) -> None:
    if not is_safe(url, issuer):
        hint = "use an https:// address; http:// is for an issuer on this machine"
        raise Invalid(f"{setting} is not safe: {url}", hint=hint, what=setting)


def _secret(file: str) -> str:
    try:
        secret = Path(file).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise Invalid(f"auth.client_secret_file cannot be read: {error}", what="auth.client_secret_file") from error
    if not secret:
        raise Invalid(f"auth.client_secret_file is empty: {file}", what="auth.client_secret_file")
    return secret


class Issuer:
    """Knows the access tokens of one issuer; nothing is asked of it before the first one comes in.

    A `TokenChecker` for one event loop. It raises Unavailable or Busy where nobody can say whether a token is good.
    """

    def __init__(
        self, trust: Trust, now: Callable[[], float] = time.time, ticks: Callable[[], float] = time.monotonic
    ) -> None:
        self._trust = trust
        self._now = now
        self._http = client()
        self._provider = Provider(trust.issuer, self._http, ticks)
        self._good: RecentResults[Claims] = RecentResults(ticks)
        self._introspection = None
        if trust.client is not None:
            self._introspection = Introspection(
                self._provider,
                self._http,
                trust.issuer,
                trust.client,
                url=trust.introspection_url,
                now=now,
                ticks=ticks,
            )

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
        if self._introspection is not None:
            await self._introspection.close()
        await self._provider.close()
        await self._http.aclose()

    def must_ask(self, secret: str) -> bool:
        """Opaque tokens that were not asked about lately; a signed one we judge ourselves."""
        if self._introspection is None or not _is_theirs(secret) or self._good.get(_name(secret)) is not None:
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
            claims = await self._known(secret)
        except Untrusted as problem:
            return Refused("invalid_token", str(problem), self.asks)
        if claims is None:
            return None
        if not self._trust.is_for_us(claims, resource):
            return Refused("invalid_token", "The access token was issued for another resource", self.asks)
        return self._principal(claims)

    async def _known(self, token: str) -> Claims | None:
        """What a token says that is good; None if we have no way to know."""
        name = _name(token)
        known = self._good.get(name)
        if known is not None and known.expires > self._now():
            return known
        found = await self._claims(token, name)
        if found is not None:
            self._good.put(name, found, REMEMBERED)
        return found

    async def _claims(self, token: str, name: str) -> Claims | None:
        header = header_of(token)
        if header is None:
            return None if self._introspection is None else await self._introspection.claims(token, name)
        if header.issuer != self._trust.issuer:  # before its keys are looked for
            raise Untrusted("The access token is of another issuer")
        said = signed_claims(token, await self._provider.keys_for(header))
        return believed(said, self._trust.issuer, self._now(), typed=header.typed)

    def _principal(self, claims: Claims) -> Principal | Refused:
        allowed = rights(self._trust.names.ours(claims.scopes))
        if allowed is None:
            return Refused("insufficient_scope", f"The access token has none of the scopes {self.asks}", self.asks)
        # The slash keeps people apart from our own tokens, whose names have none.
        user = f"{self._trust.place}/{claims.named(self._trust.user_claim)}"
        return Principal(user, allowed.grant, "oauth", admin=allowed.admin)


def _is_theirs(secret: str) -> bool:
    """Whether it could be a token of somebody else's at all."""
    return not secret.startswith(OURS) and len(secret) <= MOST_LETTERS and _TOKEN.fullmatch(secret) is not None


def _name(secret: str) -> str:
    """By which it is remembered."""
    return hashlib.sha256(secret.encode()).hexdigest()
