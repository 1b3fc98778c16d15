"""Opaque access tokens: what the issuer says of one when it is asked (RFC 7662).

It is asked once for all who wait, and a no is remembered for five seconds, by the SHA-256 of the token and never by the
token itself.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar
from urllib.parse import quote_plus

import httpx2

from notewright.errors import Busy, Unavailable
from notewright.server.auth.claims import Claims, Untrusted, believed
from notewright.server.auth.jwks import NoAnswer, Provider, answer

log = logging.getLogger(__name__)
T = TypeVar("T")

NO_FOR = 5.0  # seconds
MOST = 4096  # remembered
AT_ONCE = 32  # questions under way


class RecentResults(Generic[T]):
    """What was learned lately: at most so many, those used longest ago go first."""

    def __init__(self, ticks: Callable[[], float], most: int = MOST) -> None:
        self._ticks = ticks
        self._most = most
        self._known: OrderedDict[str, tuple[float, T]] = OrderedDict()

    def get(self, name: str) -> T | None:
        until, value = self._known.get(name, (0.0, None))
        if value is None or self._ticks() >= until:
            self._known.pop(name, None)
            return None
        self._known.move_to_end(name)
        return value

    def put(self, name: str, value: T, seconds: float) -> None:
        self._known[name] = (self._ticks() + seconds, value)
        self._known.move_to_end(name)
        while len(self._known) > self._most:
            self._known.popitem(last=False)


class Introspection:
    """Asks the issuer about tokens. For one event loop."""

    def __init__(
        self,
        provider: Provider,
        http: httpx2.AsyncClient,
        issuer: str,
        client: tuple[str, str],
        *,
        url: str | None = None,
        now: Callable[[], float] = time.time,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self._provider = provider
        self._http = http
        self._issuer = issuer
        self._auth = httpx2.BasicAuth(*map(quote_plus, client))  # RFC 6749 §2.3.1: as in a form
        self._url = url
        self._now = now
        self._bad: RecentResults[str] = RecentResults(ticks)
        self._asking: dict[str, asyncio.Task[Claims | Untrusted | Unavailable]] = {}

    async def claims(self, token: str, name: str) -> Claims:
        """What the issuer says of a token that is good; Untrusted if it is not, Unavailable if nobody says.

        `name` is by what it is remembered.
        """
        if (why := self._bad.get(name)) is not None:
            raise Untrusted(why)
        if name not in self._asking:
            if len(self._asking) >= AT_ONCE:
                raise Busy("too many access tokens are being looked up", hint="try again in a second")
            self._asking[name] = asyncio.create_task(self._ask(name, token))
        found = await asyncio.shield(self._asking[name])  # who asked may go away; others may be waiting for the answer
        if isinstance(found, Exception):
            raise found
        return found

    async def close(self) -> None:
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self, name: str, token: str) -> Claims | Untrusted | Unavailable:
        try:
            return await self._told(token)
        except Untrusted as problem:
            self._bad.put(name, str(problem), NO_FOR)
            return problem
        except NoAnswer as problem:
            log.warning("the issuer of access tokens cannot be asked about one: %s", problem)
            return Unavailable("the issuer of access tokens does not answer", hint="try again in a minute")
        except Unavailable as problem:
            return problem
        finally:
            del self._asking[name]

    async def _told(self, token: str) -> Claims:
        url = self._url or await self._provider.endpoint("introspection_endpoint")
        said = await answer(self._http, url, {"token": token, "token_type_hint": "access_token"}, self._auth)
        if said.get("active") is not True:
            raise Untrusted("The access token is not known, was revoked or has expired")
        return believed(said, self._issuer, self._now(), opaque=True)
