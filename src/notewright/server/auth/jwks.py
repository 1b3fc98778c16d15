"""What an issuer says about itself, fetched and kept: its addresses and the keys it signs with.

Nobody outside decides how often the issuer is asked. What was fetched is good for ten minutes; a key we do not know is
looked for once in half a minute, however many made-up names of keys come in; and while the issuer is down, what it said
last goes on being believed for a day, so that its outage is not ours.
"""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import islice
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

import httpx2
import jwt
from mcp.client.auth.utils import build_oauth_authorization_server_metadata_discovery_urls as discovery_urls

from notewright.errors import Unavailable
from notewright.server.auth.claims import ALGORITHMS, Header, Untrusted

log = logging.getLogger(__name__)
T = TypeVar("T")
JwkFields = dict[str, Any]

FRESH_SECONDS = 600.0  # seconds for which an answer is simply used
STALE_SECONDS = 86_400.0  # seconds for which it is used while there is no newer one
RETRY_SECONDS = 30.0  # seconds between two tries that outsiders can bring about
FIRST_RETRY_SECONDS = 2.0  # seconds between two tries while there is nothing to go by
TIMEOUT_SECONDS = 5.0  # seconds for one answer
MAX_BYTES = 512 << 10  # of one answer
MAX_KEYS = 64
MAX_TRIED = 8  # of them on one token
LOOPBACK = ("localhost", "127.0.0.1", "::1")
_FAMILIES = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
_CURVES = {"ES256": ["P-256"], "ES384": ["P-384"], "ES512": ["P-521"], "EdDSA": ["Ed25519", "Ed448"]}


class NoAnswer(Exception):
    """The issuer said nothing that can be used."""


def client() -> httpx2.AsyncClient:
    """For requests to the issuer. A redirect is not followed: where to ask stands in the settings and nowhere else."""
    limits = httpx2.Limits(max_connections=16, max_keepalive_connections=4)
    return httpx2.AsyncClient(follow_redirects=False, timeout=TIMEOUT_SECONDS, limits=limits)


async def answer(
    http: httpx2.AsyncClient, url: str, form: Mapping[str, str] | None = None, auth: httpx2.Auth | None = None
) -> dict[str, Any]:
    """The JSON object at an address, within bounds of time and size; NoAnswer if there is none."""
    # Nothing is unpacked: a few bytes may be a gigabyte then.
    headers = {"accept": "application/json", "accept-encoding": "identity"}
    method = "GET" if form is None else "POST"
    try:
        async with (
            asyncio.timeout(TIMEOUT_SECONDS),
            http.stream(method, url, data=form, headers=headers, auth=auth) as came,
        ):
            if came.status_code != 200:
                raise NoAnswer(f"{url} answered with status {came.status_code}")
            body = b""
            async for piece in came.aiter_raw():
                body += piece
                if len(body) > MAX_BYTES:
                    raise NoAnswer(f"{url} answered with more than {MAX_BYTES} bytes")
        said = json.loads(body)
    except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError, ValueError, RecursionError) as error:
        raise NoAnswer(f"{url} gave no answer ({type(error).__name__})") from error
    if not isinstance(said, dict):
        raise NoAnswer(f"{url} answered with something else")
    return said


class CachedFetch(Generic[T]):
    """Something fetched, kept for a while, and for longer while it cannot be fetched again. For one event loop."""

    def __init__(self, fetch: Callable[[], Awaitable[T]], ticks: Callable[[], float] = time.monotonic) -> None:
        self._fetch, self._ticks = fetch, ticks
        self._value: T | None = None
        self._since = self._tried = self._pressed = -STALE_SECONDS
        self._failed = False
        self._task: asyncio.Task[None] | None = None

    async def get(self) -> T:
        """The value; Unavailable if there is none that may still be used."""
        if self._age() >= FRESH_SECONDS and not self._failed_just_now():
            task = self._begin()
            if self._value is None or not self._failed:  # an issuer that stays down makes nobody wait again
                await asyncio.shield(task)
        return self._usable()

    async def pressed(self) -> T:
        """A value as new as an outsider can make us fetch one."""
        if self._ticks() - self._pressed >= RETRY_SECONDS:
            self._pressed = self._ticks()
            self._begin()
        if self._task is not None:  # who waits may go away; the fetch goes on for the others
            await asyncio.shield(self._task)
        if self._failed:
            raise Unavailable("the issuer of access tokens does not answer", hint="try again in a minute")
        return self._usable()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _age(self) -> float:
        return self._ticks() - self._since

    def _failed_just_now(self) -> bool:
        gap = FIRST_RETRY_SECONDS if self._value is None else RETRY_SECONDS
        return self._task is None and self._failed and self._ticks() - self._tried < gap

    def _usable(self) -> T:
        if self._value is None or self._age() >= STALE_SECONDS:
            raise Unavailable("the issuer of access tokens does not answer", hint="try again in a minute")
        return self._value

    def _begin(self) -> "asyncio.Task[None]":
        if self._task is None:
            self._tried = self._ticks()
            self._task = asyncio.create_task(self._run())
        return self._task

    async def _run(self) -> None:
        try:
            self._value = await self._fetch()
            self._since, self._failed = self._ticks(), False
        except NoAnswer as problem:
            self._failed = True
            known = "nothing is known of it" if self._value is None else "what it said last is used"
            log.warning("the issuer of access tokens cannot be asked: %s; %s", problem, known)
        finally:
            self._task = None


def is_safe(url: str, issuer: str) -> bool:
    """https; or plain http on this machine, if the issuer is there too."""
    try:
        parts, home = urlsplit(url), urlsplit(issuer)
        near = parts.hostname in LOOPBACK and home.hostname in LOOPBACK
    except ValueError:
        return False
    return bool(parts.hostname) and (parts.scheme == "https" or (parts.scheme == home.scheme == "http" and near))


class Provider:
    """An issuer, as far as we ask it: its description and its keys."""

    def __init__(self, issuer: str, http: httpx2.AsyncClient, ticks: Callable[[], float] = time.monotonic) -> None:
        self._issuer, self._http = issuer, http
        self._description = CachedFetch(self._fetch_description, ticks)
        self._keys = CachedFetch(self._fetch_keys, ticks)

    async def keys_for(self, header: Header) -> list[jwt.PyJWK]:
        """Those that may have made this signature. Untrusted if the issuer has none, Unavailable if we cannot tell."""
        found = fitting_keys(await self._keys.get(), header) or fitting_keys(await self._keys.pressed(), header)
        if not found:
            raise Untrusted("The access token is signed with a key that its issuer does not have")
        return found

    async def endpoint(self, name: str) -> str:
        """An address from the issuer's description; Unavailable if it has none."""
        url = (await self._description.get()).get(name)
        if not isinstance(url, str) or not is_safe(url, self._issuer):
            raise Unavailable(f"the issuer of access tokens names no {name}", hint="set it in [auth]")
        return url

    async def close(self) -> None:
        await self._keys.close()
        await self._description.close()

    async def _fetch_description(self) -> Mapping[str, Any]:
        """What the issuer says of itself. A description of anybody else is none, however near the name is."""
        problems = []
        for url in discovery_urls(self._issuer, self._issuer):
            try:
                said = await answer(self._http, url)
            except NoAnswer as problem:
                problems.append(str(problem))
                continue
            if said.get("issuer") == self._issuer:
                return said
            other = str(said.get("issuer"))[:200]
            problems.append(f"{url} speaks for {other!r}, and auth.issuer is {self._issuer!r}")
        raise NoAnswer("; ".join(problems))

    async def _fetch_keys(self) -> list[JwkFields]:
        try:
            return signing_keys(await answer(self._http, await self.endpoint("jwks_uri")))
        except Unavailable as problem:
            raise NoAnswer("where its keys are is not known") from problem


def signing_keys(said: Mapping[str, Any]) -> list[JwkFields]:
    """The keys in a JWKS that sign; a secret one among them is nobody's business and left out."""
    keys = said.get("keys")
    if not isinstance(keys, list):
        raise NoAnswer("the issuer's keys are not in the form of RFC 7517")
    public = [key for key in keys if isinstance(key, dict) and key.get("kty") in _FAMILIES.values()]
    return [key for key in public if key.get("use", "sig") == "sig" and _verifies(key)][:MAX_KEYS]


def _verifies(key: JwkFields) -> bool:
    uses = key.get("key_ops")
    return uses is None or (isinstance(uses, list) and "verify" in uses)


def fitting_keys(keys: Sequence[JwkFields], header: Header) -> list[jwt.PyJWK]:
    """Those by the name that the token gives, and of the kind that its algorithm needs."""
    named = (_key_for(header.algorithm, key) for key in keys if header.kid in (None, key.get("kid")))
    return list(islice((key for key in named if key is not None), MAX_TRIED))


def _key_for(algorithm: str, key: JwkFields) -> jwt.PyJWK | None:
    """The key for this algorithm, if it is one for it."""
    if algorithm not in ALGORITHMS or key.get("kty") != _FAMILIES[algorithm[:2]]:
        return None
    if key.get("alg", algorithm) != algorithm or key.get("crv") not in _CURVES.get(algorithm, [key.get("crv")]):
        return None
    try:
        return jwt.PyJWK(dict(key), algorithm)
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
