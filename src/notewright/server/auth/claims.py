"""What an access token must say to be believed: pure checks, the same for signed and for opaque tokens.

A token is believed for what it is: an *access* token of *this* issuer for *us*. An ID token is signed with the same key
and says who somebody is, not what a client may do here. RFC 9068 tokens say what they are (`at+jwt`); of others we ask
for a scope, which ID tokens do not have, and refuse what only ID, refresh and logout tokens carry. A token that is
bound to a key of its client is refused too: we do not ask for the proof, and without it a thief could use it.
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
LEEWAY_SECONDS = 30.0  # seconds that the issuer's clock may be ahead of ours
_TYPED = frozenset({"at+jwt", "application/at+jwt"})
_UNTYPED = frozenset({"", "jwt", "application/jwt"})
_OF_OTHERS = ("nonce", "at_hash", "c_hash", "s_hash", "events")  # of ID tokens and logout tokens
_OTHER_KINDS = frozenset({"id", "refresh", "offline", "logout"})  # Keycloak's `typ` inside
_ACCESS = ("access", "access_token")
_WHOSE = ("sub", "client_id", "azp")
_SIGNATURE_ONLY: Any = {
    **{f"verify_{claim}": False for claim in ("exp", "nbf", "iat", "aud", "iss", "sub", "jti")},
    "enforce_minimum_key_length": True,
}


class Untrusted(Exception):
    """Why a token is not believed, in words its sender may read."""


@dataclass(frozen=True, slots=True)
class Header:
    """What a signed token says of its signature, believed by nobody yet."""

    issuer: Any
    algorithm: str
    kid: str | None
    typed: bool  # says of itself that it is an access token


@dataclass(frozen=True, slots=True)
class Claims:
    """What a token that was believed says."""

    names: Mapping[str, str]  # of claims that are texts
    scopes: frozenset[str]
    audiences: frozenset[str]
    expires: float  # seconds since 1970

    def named(self, claim: str) -> str | None:
        """Who it is: by the claim that the owner chose, or by what every token has."""
        return next((self.names[name] for name in (claim, *_WHOSE) if name in self.names), None)


def header_of(token: str) -> Header | None:
    """None if this is no signed token at all; Untrusted if it is one that no issuer should make."""
    parts = token.split(".")
    said, inside = (_decoded(part) for part in parts[:2]) if len(parts) == 3 else (None, None)
    if not isinstance(said, dict) or "alg" not in said:
        return None
    algorithm, kid, kind = said["alg"], said.get("kid"), said.get("typ", "")
    if algorithm not in ALGORITHMS:
        raise Untrusted("The access token is not signed in a way that is accepted here")
    if "crit" in said or not isinstance(kid, str | None) or not isinstance(kind, str):
        raise Untrusted("The access token has a header that is not understood")
    if kind.lower() not in _TYPED | _UNTYPED:
        raise Untrusted("This is a token of another kind, not an access token")
    return Header(inside.get("iss") if isinstance(inside, dict) else None, algorithm, kid, kind.lower() in _TYPED)


def _decoded(part: str) -> Any:
    try:
        return json.loads(urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (ValueError, RecursionError):
        return None


def signed_claims(token: str, keys: Iterable[jwt.PyJWK]) -> dict[str, Any]:
    """What a token says that one of these keys signed."""
    for key in keys:
        try:
            return jwt.decode(token, key, algorithms=[key.algorithm_name], options=_SIGNATURE_ONLY)
        except (jwt.PyJWTError, ValueError, TypeError):  # a key may be unfit, too
            continue
    raise Untrusted("The access token's signature is wrong")


def believed(said: Mapping[str, Any], issuer: str, now: float, *, typed: bool = False, opaque: bool = False) -> Claims:
    """The claims, if they are those of an access token of this issuer that is good now.

    `opaque`: the issuer itself told us; it may then leave out who it is and when the token expires.
    """
    if said.get("iss", issuer if opaque else None) != issuer:
        raise Untrusted("The access token is of another issuer")
    expires = _times(said, now, required=not opaque)
    _refuse_other_kinds(said, typed=typed or opaque)
    names = _names(said)
    if names.keys().isdisjoint(_WHOSE):
        raise Untrusted("The access token does not say whose it is")
    return Claims(names, _scopes(said), frozenset(map(canonical, _texts(said.get("aud")))), expires)


def _times(said: Mapping[str, Any], now: float, *, required: bool) -> float:
    """When it expires."""
    expires, begins, issued = (_time(said, name) for name in ("exp", "nbf", "iat"))
    if expires is None and required:
        raise Untrusted("The access token does not say when it expires")
    if expires is not None and expires <= now:
        raise Untrusted("The access token has expired")
    if max(begins or now, issued or now) > now + LEEWAY_SECONDS:
        raise Untrusted("The access token is not good yet")
    return math.inf if expires is None else expires


def _time(said: Mapping[str, Any], name: str) -> float | None:
    value = said.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        raise Untrusted(f"The access token's {name} is no time")
    return float(value)


def _refuse_other_kinds(said: Mapping[str, Any], *, typed: bool) -> None:
    other = str(said.get("typ", "")).lower() in _OTHER_KINDS or said.get("token_use", "access") not in _ACCESS
    told_apart = typed or "scope" in said or "scp" in said
    if other or not told_apart or (not typed and any(claim in said for claim in _OF_OTHERS)):
        raise Untrusted("This is a token of another kind, not an access token")
    if said.get("cnf") is not None or str(said.get("token_type", "bearer")).lower() not in ("bearer", *_ACCESS):
        raise Untrusted("The access token is bound to a key; a plain bearer token is accepted here")


def _names(said: Mapping[str, Any]) -> dict[str, str]:
    """Every claim that may name somebody. An address that the issuer did not verify names nobody."""
    names = {claim: value for claim, value in said.items() if isinstance(value, str) and _is_name(value)}
    if said.get("email_verified") in (False, "false"):
        names.pop("email", None)
    return names


def _is_name(value: str) -> bool:
    return 0 < len(value) <= 255 and value.isprintable() and value == value.strip()


def _scopes(said: Mapping[str, Any]) -> frozenset[str]:
    """`scope` is words in one text; some issuers write a list, or call it `scp`."""
    given = [*_texts(said.get("scope")), *_texts(said.get("scp"))]
    return frozenset(word for text in given for word in text.split())


def _texts(value: Any) -> list[str]:
    listed = value if isinstance(value, list) else [value]
    return [text for text in listed if isinstance(text, str)]


def canonical(address: str) -> str:
    """An address as addresses are compared: scheme and host in small letters, no usual port, no slash at the end."""
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        return address
    if parts.scheme not in ("http", "https") or not host or "@" in parts.netloc or parts.fragment:
        return address  # a name that is no address is compared as it stands
    place = f"[{host}]" if ":" in host else host
    usual = port in (None, {"http": 80, "https": 443}[parts.scheme])
    query = f"?{parts.query}" if parts.query else ""
    return f"{parts.scheme}://{place}{'' if usual else f':{port}'}{parts.path.rstrip('/')}{query}"
