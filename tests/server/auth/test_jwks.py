"""What is fetched from an issuer: how often, how much, and what is believed of it. The site is ours to misbehave."""

import asyncio
import gzip
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from mcp.client.auth.utils import build_oauth_authorization_server_metadata_discovery_urls as discovery_urls
from tests.server.provider import forged, keys, public
from tests.server.site import Page, Site, site

from notewright.errors import Unavailable
from notewright.server.auth import jwks
from notewright.server.auth.claims import Header, Untrusted, signed_claims
from notewright.server.auth.jwks import (
    FRESH_SECONDS,
    RETRY_SECONDS,
    STALE_SECONDS,
    Provider,
    fitting_keys,
    http_client,
    is_safe,
    signing_keys,
)

pytestmark = pytest.mark.slow

OAUTH, OPENID, JWKS = "/.well-known/oauth-authorization-server", "/.well-known/openid-configuration", "/jwks"
SIGNERS = keys()
KEY = Header("", "EdDSA", "OKP-1", typed=True)
OTHER = Header("", "EdDSA", "OKP-2", typed=True)


@pytest.fixture
def issuing() -> Iterator[Site]:
    with site() as running:
        running.put(OAUTH, {"issuer": running.address, "jwks_uri": running.address + JWKS})
        running.put(JWKS, {"keys": public(SIGNERS)})
        yield running


class Clock:
    def __init__(self) -> None:
        self.at = 1000.0

    def __call__(self) -> float:
        return self.at


def talk(address: str, conversation: Callable[[Provider, Clock], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        clock = Clock()
        async with http_client() as http:
            provider = Provider(address, http, clock)
            try:
                return await conversation(provider, clock)
            finally:
                await provider.close()

    return asyncio.run(run())


async def found(provider: Provider, header: Header = KEY) -> str:
    """One word for what came of it."""
    try:
        return str(len(await provider.keys_for(header)))
    except (Untrusted, Unavailable) as problem:
        return type(problem).__name__


def ask(address: str) -> str:
    return str(talk(address, lambda provider, _: found(provider)))


def test_an_issuer_is_looked_for_where_mcp_clients_look() -> None:
    assert discovery_urls("https://id.example", "") == [
        "https://id.example/.well-known/oauth-authorization-server",
        "https://id.example/.well-known/openid-configuration",
    ]
    assert discovery_urls("https://id.example/", "") == discovery_urls("https://id.example", "")
    assert discovery_urls("https://id.example/realms/home", "") == [
        "https://id.example/.well-known/oauth-authorization-server/realms/home",
        "https://id.example/.well-known/openid-configuration/realms/home",
        "https://id.example/realms/home/.well-known/openid-configuration",
    ]


def test_only_https_is_asked_or_this_machine_if_the_issuer_is_here() -> None:
    assert is_safe("https://keys.example/jwks", "https://id.example")
    assert is_safe("http://127.0.0.1:9/jwks", "http://localhost:8")
    for url in (
        "http://id.example/jwks",
        "http://127.0.0.1/jwks",
        "file:///etc/passwd",
        "//x",
        "",
        "https://",
        "http://[",
    ):
        assert not is_safe(url, "https://id.example")
    assert not is_safe("http://id.example/jwks", "http://localhost:8")


def test_an_openid_issuer_without_the_oauth_document_is_found(issuing: Site) -> None:
    issuing.pages[OPENID] = issuing.pages.pop(OAUTH)
    assert ask(issuing.address) == "1"


@pytest.mark.parametrize(
    "said",
    [
        {"issuer": "https://id.example"},
        {"issuer": "{address}/"},
        {},
        {"issuer": ["{address}"]},
        {"issuer": "{ADDRESS}"},
    ],
)
def test_a_document_that_speaks_for_another_issuer_is_not_believed(issuing: Site, said: dict[str, Any]) -> None:
    text = json.dumps({"jwks_uri": issuing.address + JWKS, **said})
    text = text.replace("{address}", issuing.address).replace("{ADDRESS}", issuing.address.upper())
    issuing.pages[OAUTH] = issuing.pages[OPENID] = Page(text.encode())
    assert ask(issuing.address) == "Unavailable"
    assert issuing.visits[JWKS] == 0


def test_the_owner_reads_in_the_log_how_the_issuer_calls_itself(
    issuing: Site, caplog: pytest.LogCaptureFixture
) -> None:
    issuing.put(OAUTH, {"issuer": f"{issuing.address}/", "jwks_uri": issuing.address + JWKS})
    assert ask(issuing.address) == "Unavailable"
    assert f"speaks for '{issuing.address}/', and auth.issuer is '{issuing.address}'" in caplog.text


def test_a_redirect_is_not_followed(issuing: Site) -> None:
    issuing.pages["/elsewhere"] = issuing.pages[JWKS]
    issuing.pages[JWKS] = Page(b"", 302, {"Location": issuing.address + "/elsewhere"})
    assert ask(issuing.address) == "Unavailable"
    assert issuing.visits["/elsewhere"] == 0


def test_an_answer_without_end_and_one_that_is_packed_are_given_up(issuing: Site) -> None:
    whole = json.dumps({"keys": public(SIGNERS)}).encode()
    for page in (
        Page(b" " * 65536, endless=True),
        Page(b" " * (jwks.MAX_BYTES + 1) + whole),
        Page(gzip.compress(whole), headers={"Content-Encoding": "gzip"}),
        Page(b"[" * 100_000),
        Page(b"[1]"),
        Page(b"\xff\xfe"),
        Page(whole, 500),
        Page(b'{"keys": 7}'),
    ):
        issuing.pages[JWKS] = page
        assert ask(issuing.address) == "Unavailable"
    assert issuing.encodings == {"identity"}  # so that a good issuer packs nothing


def test_an_issuer_that_does_not_answer_is_not_waited_for_long(issuing: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jwks, "TIMEOUT_SECONDS", 0.2)
    issuing.pages[JWKS] = None
    begun = time.monotonic()
    assert ask(issuing.address) == "Unavailable"
    assert time.monotonic() - begun < 4


def test_keys_elsewhere_are_fetched_only_from_a_safe_place(issuing: Site) -> None:
    for place in ("http://keys.example/jwks", "file:///etc/passwd", 7, None):
        issuing.put(OAUTH, {"issuer": issuing.address, "jwks_uri": place})
        assert ask(issuing.address) == "Unavailable"


def test_keys_are_fetched_once_in_ten_minutes(issuing: Site) -> None:
    async def conversation(provider: Provider, clock: Clock) -> list[int]:
        counted = []
        for later in (0, 1, FRESH_SECONDS - 2, 1, 1, FRESH_SECONDS):
            clock.at += later
            assert await found(provider) == "1"
            counted.append(issuing.visits[JWKS])
        return counted

    assert talk(issuing.address, conversation) == [1, 1, 1, 2, 2, 3]


def test_a_key_that_is_not_known_is_looked_for_once_in_half_a_minute(issuing: Site) -> None:
    async def conversation(provider: Provider, clock: Clock) -> list[tuple[str, int]]:
        heard = []
        for later in (0, 0, RETRY_SECONDS - 1, 1, 0):
            clock.at += later
            heard.append((await found(provider, OTHER), issuing.visits[JWKS]))
        issuing.put(JWKS, {"keys": public(keys(generation=2))})
        clock.at += RETRY_SECONDS
        heard.append((await found(provider, OTHER), issuing.visits[JWKS]))
        return [*heard, (await found(provider, KEY), issuing.visits[JWKS])]

    no = "Untrusted"
    expected = [(no, 2), (no, 2), (no, 2), (no, 3), (no, 3), ("1", 4), (no, 4)]
    assert talk(issuing.address, conversation) == expected


def test_known_keys_outlive_their_issuer_by_a_day(issuing: Site) -> None:
    async def conversation(provider: Provider, clock: Clock) -> list[str]:
        heard = [await found(provider)]
        issuing.pages.clear()
        for later in (FRESH_SECONDS, 3600.0, STALE_SECONDS - FRESH_SECONDS - 3601, 2.0):
            clock.at += later
            heard.append(await found(provider))
        return heard

    assert talk(issuing.address, conversation) == ["1", "1", "1", "1", "Unavailable"]


def test_an_issuer_that_comes_back_is_asked_again(issuing: Site) -> None:
    async def conversation(provider: Provider, clock: Clock) -> list[str]:
        pages, issuing.pages = issuing.pages, {}
        heard = [await found(provider)]
        issuing.pages = pages
        heard.append(await found(provider))  # too soon
        clock.at += RETRY_SECONDS
        return [*heard, await found(provider)]

    assert talk(issuing.address, conversation) == ["Unavailable", "Unavailable", "1"]


def test_while_an_issuer_is_down_it_is_tried_now_and_then_and_nobody_waits(issuing: Site) -> None:
    async def conversation(provider: Provider, clock: Clock) -> int:
        assert await found(provider) == "1"
        issuing.pages[JWKS] = Page(b"", 500)
        clock.at += FRESH_SECONDS
        assert await found(provider) == "1"  # waited, and was told that there is nothing new
        issuing.pages[JWKS] = None  # who waits for this one, waits long
        async with asyncio.timeout(4):
            clock.at += RETRY_SECONDS - 1
            assert await found(provider) == "1"
            assert issuing.visits[JWKS] == 2
            clock.at += 1
            assert [await found(provider) for _ in range(20)] == ["1"] * 20
            while issuing.visits[JWKS] == 2:
                await asyncio.sleep(0.01)
            assert await found(provider) == "1"
        return issuing.visits[JWKS]

    assert talk(issuing.address, conversation) == 3


def test_who_goes_away_while_keys_are_fetched_does_not_take_them_from_the_others(issuing: Site) -> None:
    async def conversation(provider: Provider, _: Clock) -> list[str]:
        waiting = [asyncio.create_task(found(provider)) for _ in range(5)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        return await asyncio.gather(*waiting[1:])

    assert talk(issuing.address, conversation) == ["1"] * 4
    assert issuing.visits[JWKS] == 1


def test_a_key_is_used_for_what_it_was_made_for_only() -> None:
    rsa_key, ec_key, okp_key = public(SIGNERS)
    secret = {"kty": "oct", "k": "c2VjcmV0", "kid": "RSA-1"}
    fits = [
        (rsa_key, "RS256", True),
        (rsa_key, "PS512", True),
        (rsa_key | {"alg": "RS256"}, "RS256", True),
        (rsa_key | {"alg": "RS256"}, "PS256", False),
        (rsa_key | {"alg": "RSA-OAEP"}, "RS256", False),
        (rsa_key | {"use": "enc"}, "RS256", False),
        (rsa_key | {"key_ops": ["encrypt"]}, "RS256", False),
        (rsa_key | {"key_ops": ["verify"]}, "RS256", True),
        (rsa_key | {"n": "AQAB"}, "ES256", False),
        (rsa_key | {"n": 7}, "RS256", False),
        (ec_key, "ES256", True),
        (ec_key, "ES384", False),
        (ec_key | {"crv": "P-384"}, "ES384", False),
        (okp_key, "EdDSA", True),
        (okp_key | {"crv": "X25519"}, "EdDSA", False),
        (secret, "RS256", False),
        (secret, "HS256", False),
        ("no key", "RS256", False),
    ]
    for key, algorithm, good in fits:
        found = fitting_keys(signing_keys({"keys": [key]}), Header("", algorithm, None, typed=True))
        assert bool(found) is good, (key, algorithm)


def test_a_key_that_is_too_short_signs_nothing() -> None:
    short = dict(jwt.algorithms.RSAAlgorithm.to_jwk(rsa.generate_private_key(65537, 1024), as_dict=True))
    short = {name: value for name, value in short.items() if name != "key_ops"} | {"kid": "short"}
    with pytest.warns(jwt.warnings.InsecureKeyLengthWarning):
        token = forged(short, {"sub": "mallory"})
    with pytest.raises(Untrusted):
        keys_of_it = signing_keys({"keys": public([short])})
        signed_claims(token, fitting_keys(keys_of_it, Header("", "RS256", "short", typed=True)))
