"""The JWKS cache: an issuer's metadata and signing keys, fetched and kept.

Outsiders do not decide how often the issuer is asked. A fetched answer is good for ten minutes; an unknown key is
looked for once in half a minute, however many made-up key names come in; and while the issuer is down, its last answer
is used for a day, so that its outage is not ours.
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
from notewright.server.auth.claims import Header, Untrusted
from notewright.server.host_check import LOOPBACK

log = logging.getLogger(__name__)
T = TypeVar("T")
JwkFields = dict[str, Any]

FRESH_SECONDS = 600.0  # for which an answer is used without asking again
STALE_SECONDS = 86_400.0  # for which it is used while there is no newer one
RETRY_SECONDS = 30.0  # between two requests that outsiders can bring about
FIRST_RETRY_SECONDS = 2.0  # between two requests while there is no answer at all
TIMEOUT_SECONDS = 5.0  # for one answer
MAX_BYTES = 512 << 10  # of one answer
MAX_KEYS = 64
MAX_KEYS_TRIED = 8  # on one token
PUBLIC_KEY_TYPES = ("RSA", "EC", "OKP")


class NoAnswer(Exception):
    """The issuer sent no usable answer."""


def http_client() -> httpx2.AsyncClient:
    """For requests to the issuer. Redirects are not followed: only the settings say where to ask."""
    limits = httpx2.Limits(max_connections=16, max_keepalive_connections=4)
    return httpx2.AsyncClient(follow_redirects=False, timeout=TIMEOUT_SECONDS, limits=limits)


async def fetch_json(
    http: httpx2.AsyncClient, url: str, form: Mapping[str, str] | None = None, auth: httpx2.Auth | None = None
) -> dict[str, Any]:
    """The JSON object at an address, within bounds of time and size; NoAnswer if there is none."""
    # No compression: a few bytes could unpack to a gigabyte.
    headers = {"accept": "application/json", "accept-encoding": "identity"}
    method = "GET" if form is None else "POST"
    try:
        async with (
            asyncio.timeout(TIMEOUT_SECONDS),
            http.stream(method, url, data=form, headers=headers, auth=auth) as response,
        ):
            if response.status_code != 200:
                raise NoAnswer(f"{url} answered with status {response.status_code}")
            body = b""
            async for piece in response.aiter_raw():
                body += piece
                if len(body) > MAX_BYTES:
                    raise NoAnswer(f"{url} answered with more than {MAX_BYTES} bytes")
        document = json.loads(body)
    except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError, ValueError, RecursionError) as error:
        raise NoAnswer(f"{url} gave no answer ({type(error).__name__})") from error
    if not isinstance(document, dict):
        raise NoAnswer(f"{url} answered with something else")
    return document


class CachedFetch(Generic[T]):
    """A fetched value, kept for a while, and for longer while it cannot be fetched again. For one event loop."""

    def __init__(self, fetch: Callable[[], Awaitable[T]], clock: Callable[[], float] = time.monotonic) -> None:
        self._fetch, self._clock = fetch, clock
        self._value: T | None = None
        self._fetched_at = self._tried_at = self._refreshed_at = -STALE_SECONDS
        self._failed = False
        self._task: asyncio.Task[None] | None = None

    async def get(self) -> T:
        """The value; Unavailable if there is none that may still be used."""
        now = self._clock()
        gap = FIRST_RETRY_SECONDS if self._value is None else RETRY_SECONDS
        just_failed = self._task is None and self._failed and now - self._tried_at < gap
        if now - self._fetched_at >= FRESH_SECONDS and not just_failed:
            task = self._begin()
            if self._value is None or not self._failed:  # while the issuer stays down no request waits for it again
                await asyncio.shield(task)
        return self._usable_value()

    async def refresh(self) -> T:
        """The value, fetched again unless that was done in the last RETRY_SECONDS: outsiders can bring it about."""
        if self._clock() - self._refreshed_at >= RETRY_SECONDS:
            self._refreshed_at = self._clock()
            self._begin()
        if self._task is not None:  # a caller may go away; the fetch goes on for the others
            await asyncio.shield(self._task)
        if self._failed:
            raise Unavailable("the issuer of access tokens does not answer", hint="try again in a minute")
        return self._usable_value()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _usable_value(self) -> T:
        if self._value is None or self._clock() - self._fetched_at >= STALE_SECONDS:
            raise Unavailable("the issuer of access tokens does not answer", hint="try again in a minute")
        return self._value

    def _begin(self) -> "asyncio.Task[None]":
        if self._task is None:
            self._tried_at = self._clock()
            self._task = asyncio.create_task(self._run())
        return self._task

    async def _run(self) -> None:
        try:
            self._value = await self._fetch()
            self._fetched_at, self._failed = self._clock(), False
        except NoAnswer as problem:
            self._failed = True
            known = "nothing is known of it" if self._value is None else "what it said last is used"
            log.warning("the issuer of access tokens cannot be asked: %s; %s", problem, known)
        finally:
            self._task = None


def is_safe(url: str, issuer: str) -> bool:
    """Whether an address is https, or plain http on this machine if the issuer is there too."""
    try:
        parts, home = urlsplit(url), urlsplit(issuer)
        is_local = parts.hostname in LOOPBACK and home.hostname in LOOPBACK
    except ValueError:
        return False
    return bool(parts.hostname) and (parts.scheme == "https" or (parts.scheme == home.scheme == "http" and is_local))


class Provider:
    """An issuer's metadata and keys, cached."""

    def __init__(self, issuer: str, http: httpx2.AsyncClient, clock: Callable[[], float] = time.monotonic) -> None:
        self._issuer, self._http = issuer, http
        self._metadata = CachedFetch(self._fetch_metadata, clock)
        self._keys = CachedFetch(self._fetch_keys, clock)

    async def keys_for(self, header: Header) -> list[jwt.PyJWK]:
        """The keys that may have made this signature. Untrusted if there is none, Unavailable if that is unknown."""
        keys = fitting_keys(await self._keys.get(), header) or fitting_keys(await self._keys.refresh(), header)
        if not keys:
            raise Untrusted("The access token is signed with a key that its issuer does not have")
        return keys

    async def endpoint(self, name: str) -> str:
        """An address from the issuer's metadata; Unavailable if it has none."""
        url = (await self._metadata.get()).get(name)
        if not isinstance(url, str) or not is_safe(url, self._issuer):
            raise Unavailable(f"the issuer of access tokens names no {name}", hint="set it in [auth]")
        return url

    async def close(self) -> None:
        await self._keys.close()
        await self._metadata.close()

    async def _fetch_metadata(self) -> Mapping[str, Any]:
        """The issuer's metadata. A document that names another issuer does not count, however similar the name."""
        problems = []
        for url in discovery_urls(self._issuer, self._issuer):
            try:
                document = await fetch_json(self._http, url)
            except NoAnswer as problem:
                problems.append(str(problem))
                continue
            if document.get("issuer") == self._issuer:
                return document
            other = str(document.get("issuer"))[:200]
            problems.append(f"{url} speaks for {other!r}, and auth.issuer is {self._issuer!r}")
        raise NoAnswer("; ".join(problems))

    async def _fetch_keys(self) -> list[JwkFields]:
        try:
            return signing_keys(await fetch_json(self._http, await self.endpoint("jwks_uri")))
        except Unavailable as problem:
            raise NoAnswer("where its keys are is not known") from problem


def signing_keys(document: Mapping[str, Any]) -> list[JwkFields]:
    """The public keys in a JWKS that sign; secret ones are left out."""
    keys = document.get("keys")
    if not isinstance(keys, list):
        raise NoAnswer("the issuer's keys are not in the form of RFC 7517")

    def verifies(key: JwkFields) -> bool:
        uses = key.get("key_ops")
        return key.get("use", "sig") == "sig" and (uses is None or (isinstance(uses, list) and "verify" in uses))

    public = [key for key in keys if isinstance(key, dict) and key.get("kty") in PUBLIC_KEY_TYPES]
    return [key for key in public if verifies(key)][:MAX_KEYS]


def fitting_keys(keys: Sequence[JwkFields], header: Header) -> list[jwt.PyJWK]:
    """The keys with the name that the token gives, and of the kind that its algorithm needs."""
    named = (_load_key(header.algorithm, key) for key in keys if header.kid in (None, key.get("kid")))
    return list(islice((key for key in named if key is not None), MAX_KEYS_TRIED))


def _load_key(algorithm: str, key: JwkFields) -> jwt.PyJWK | None:
    """Load a key for this algorithm; None if it does not fit."""
    if key.get("alg", algorithm) != algorithm:
        return None
    try:
        loaded = jwt.PyJWK(dict(key), algorithm)
        loaded.Algorithm.prepare_key(loaded.key)  # which checks the curve
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    return loaded
