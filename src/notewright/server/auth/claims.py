"""The checks of an access token's claims: pure, and the same for signed and for opaque tokens.

A token is trusted only as an *access* token of *this* issuer for *us*. An ID token is signed with the same key and says
who somebody is, not what a client may do here. RFC 9068 tokens declare what they are (`at+jwt`); others must have a
scope, which ID tokens do not have, and nothing that only ID, refresh and logout tokens carry. A token that is bound to
a key of its client is refused too: we do not ask for the proof, and without it a thief could use it.
"""

import json
import math
from base64 import urlsafe_b64decode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import jwt

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
LEEWAY_SECONDS = 30.0  # that the issuer's clock may be ahead of ours
_ACCESS_TYPES = frozenset({"at+jwt", "application/at+jwt"})
_PLAIN_TYPES = frozenset({"", "jwt", "application/jwt"})
_FOREIGN_CLAIMS = ("nonce", "at_hash", "c_hash", "s_hash", "events")  # of ID tokens and logout tokens
_FOREIGN_KINDS = frozenset({"id", "refresh", "offline", "logout"})  # Keycloak's `typ` inside
_ACCESS_USES = ("access", "access_token")
_USER_CLAIMS = ("sub", "client_id", "azp")
_SIGNATURE_ONLY: Any = {
    **{f"verify_{claim}": False for claim in ("exp", "nbf", "iat", "aud", "iss", "sub", "jti")},
    "enforce_minimum_key_length": True,
}


class Untrusted(Exception):
    """Why a token is not trusted, in words its sender may read."""


@dataclass(frozen=True, slots=True)
class Header:
    """What the header of a signed token says, not verified yet."""

    issuer: Any
    algorithm: str
    kid: str | None
    typed: bool  # declares itself an access token


@dataclass(frozen=True, slots=True)
class Claims:
    """The checked claims of a token."""

    names: Mapping[str, str]  # of claims that are texts
    scopes: frozenset[str]
    audiences: frozenset[str]
    expires: float  # seconds since 1970

    def user(self, claim: str) -> str | None:
        """Who it is: by the claim that the owner chose, or by what every token has."""
        return next((self.names[name] for name in (claim, *_USER_CLAIMS) if name in self.names), None)


def parse_header(token: str) -> Header | None:
    """None if this is no signed token at all; Untrusted if it is one that no issuer should make."""
    parts = token.split(".")
    header, payload = (_decode_part(part) for part in parts[:2]) if len(parts) == 3 else (None, None)
    if not isinstance(header, dict) or "alg" not in header:
        return None
    algorithm, kid, kind = header["alg"], header.get("kid"), header.get("typ", "")
    if algorithm not in ALGORITHMS:
        raise Untrusted("The access token is not signed in a way that is accepted here")
    if "crit" in header or not isinstance(kid, str | None) or not isinstance(kind, str):
        raise Untrusted("The access token has a header that is not understood")
    if kind.lower() not in _ACCESS_TYPES | _PLAIN_TYPES:
        raise Untrusted("This is a token of another kind, not an access token")
    issuer = payload.get("iss") if isinstance(payload, dict) else None
    return Header(issuer, algorithm, kid, kind.lower() in _ACCESS_TYPES)


def _decode_part(part: str) -> Any:
    try:
        return json.loads(urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (ValueError, RecursionError):
        return None


def signed_claims(token: str, keys: Iterable[jwt.PyJWK]) -> dict[str, Any]:
    """The claims of a token that one of these keys signed."""
    for key in keys:
        try:
            return jwt.decode(token, key, algorithms=[key.algorithm_name], options=_SIGNATURE_ONLY)
        except (jwt.PyJWTError, ValueError, TypeError):  # a key may be unfit, too
            continue
    raise Untrusted("The access token's signature is wrong")


def check_claims(
    raw: Mapping[str, Any], issuer: str, now: float, *, typed: bool = False, opaque: bool = False
) -> Claims:
    """The claims, if they are those of an access token of this issuer that is good now.

    `opaque`: the issuer itself sent them; it may then leave out who it is and when the token expires.
    """
    if raw.get("iss", issuer if opaque else None) != issuer:
        raise Untrusted("The access token is of another issuer")
    expires, not_before, issued = (_parse_time(raw, name) for name in ("exp", "nbf", "iat"))
    if expires is None and not opaque:
        raise Untrusted("The access token does not say when it expires")
    if expires is not None and expires <= now:
        raise Untrusted("The access token has expired")
    if max(not_before or now, issued or now) > now + LEEWAY_SECONDS:
        raise Untrusted("The access token is not good yet")
    _refuse_other_kinds(raw, typed=typed or opaque)
    texts = {claim: value for claim, value in raw.items() if isinstance(value, str) and 0 < len(value) <= 255}
    names = {claim: value for claim, value in texts.items() if value.isprintable() and value == value.strip()}
    if raw.get("email_verified") in (False, "false"):  # an unverified address identifies no user
        names.pop("email", None)
    if names.keys().isdisjoint(_USER_CLAIMS):
        raise Untrusted("The access token does not say whose it is")
    # `scope` is words in one text; some issuers write a list, or call it `scp`.
    scopes = [*_texts(raw.get("scope")), *_texts(raw.get("scp"))]
    return Claims(
        names,
        frozenset(word for text in scopes for word in text.split()),
        frozenset(map(canonical, _texts(raw.get("aud")))),
        math.inf if expires is None else expires,
    )


def _parse_time(raw: Mapping[str, Any], name: str) -> float | None:
    value = raw.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        raise Untrusted(f"The access token's {name} is no time")
    return float(value)


def _refuse_other_kinds(raw: Mapping[str, Any], *, typed: bool) -> None:
    foreign = str(raw.get("typ", "")).lower() in _FOREIGN_KINDS or raw.get("token_use", "access") not in _ACCESS_USES
    distinguishable = typed or "scope" in raw or "scp" in raw
    if foreign or not distinguishable or (not typed and any(claim in raw for claim in _FOREIGN_CLAIMS)):
        raise Untrusted("This is a token of another kind, not an access token")
    if raw.get("cnf") is not None or str(raw.get("token_type", "bearer")).lower() not in ("bearer", *_ACCESS_USES):
        raise Untrusted("The access token is bound to a key; a plain bearer token is accepted here")


def _texts(value: Any) -> list[str]:
    values = value if isinstance(value, list) else [value]
    return [text for text in values if isinstance(text, str)]


def canonical(address: str) -> str:
    """The form in which addresses are compared: scheme and host in lower case, no default port, no slash at the end."""
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        return address
    if parts.scheme not in ("http", "https") or not host or "@" in parts.netloc or parts.fragment:
        return address  # other names are compared unchanged
    netloc = f"[{host}]" if ":" in host else host
    if port not in (None, {"http": 80, "https": 443}[parts.scheme]):
        netloc += f":{port}"
    query = f"?{parts.query}" if parts.query else ""
    return f"{parts.scheme}://{netloc}{parts.path.rstrip('/')}{query}"
