"""Guessing is slow by address, nobody takes the address of another, and an issuer that cannot speak opens nothing."""

import base64
import hashlib
import hmac
import http.client
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import RSAAlgorithm
from tests.server.guarded import HTML, JSON, Answer, Guarded, guarded
from tests.server.site import Site, site

from notewright.server.auth.authenticate import GUESS_LIMITS
from notewright.server.auth.browser_session import BrowserSessions

pytestmark = pytest.mark.slow

MANY = GUESS_LIMITS[0].calls


def ask(server: Guarded, source: str, token: str | None, **headers: str) -> Answer:
    """A request from one of the many addresses of this machine."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20, source_address=(source, 0))
    try:
        told = {"authorization": f"Bearer {token}"} if token is not None else {}
        connection.request("GET", "/metrics", headers={**JSON, **told, **headers})
        came = connection.getresponse()
        return Answer(came.status, {name.lower(): value for name, value in came.getheaders()}, came.read())
    finally:
        connection.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Guarded]:
    with guarded(tmp_path) as running:
        yield running


def test_an_address_that_guesses_waits_and_nobody_else_does(server: Guarded) -> None:
    statuses = [ask(server, "127.0.0.21", f"nw_{number}").status for number in range(MANY + 10)]
    assert statuses == [401] * MANY + [429] * 10
    told = ask(server, "127.0.0.21", "nw_again")
    assert told.status == 429 and 1 <= int(told.headers["retry-after"]) <= 60
    assert ask(server, "127.0.0.22", "nw_x").status == 401
    assert ask(server, "127.0.0.21", server.tokens["owner"]).status == 200  # who has a key need not guess
    assert ask(server, "127.0.0.21", None).status == 401


def test_another_address_in_a_header_is_no_other_address(server: Guarded) -> None:
    for number in range(MANY):
        assert ask(server, "127.0.0.31", f"nw_{number}", **{"x-forwarded-for": f"10.0.0.{number}"}).status == 401
    for name in ("x-forwarded-for", "x-real-ip", "forwarded", "x-client-ip", "true-client-ip", "cf-connecting-ip"):
        assert ask(server, "127.0.0.31", "nw_x", **{name: "10.9.9.9"}).status == 429, name


def test_guesses_at_the_page_and_at_the_tools_are_counted_together(server: Guarded) -> None:
    csrf = BrowserSessions(server.site.registry.secret("cookies")).csrf("sign-in")
    form = urlencode({"csrf": csrf, "token": "nw_wrong"}).encode()
    headers = {**HTML, "content-type": "application/x-www-form-urlencoded"}
    assert [server.ask("POST", "/sign-in", headers, form).status for _ in range(MANY)] == [403] * MANY
    slowed = server.ask("POST", "/sign-in", headers, form)
    assert slowed.status == 429 and "set-cookie" not in slowed.headers
    assert int(slowed.headers["retry-after"]) > 0
    assert server.ask("GET", "/metrics", {**JSON, "authorization": "Bearer nw_x"}).status == 429
    good = urlencode({"csrf": csrf, "token": server.tokens["owner"]}).encode()
    assert server.ask("POST", "/sign-in", headers, good).status == 303


def test_a_proxy_that_was_named_speaks_for_its_clients_and_for_nobody_further(tmp_path: Path) -> None:
    with guarded(tmp_path, http__trusted_proxies=("127.0.0.41",)) as server:
        for number in range(MANY):
            told = ask(server, "127.0.0.41", "nw_x", **{"x-forwarded-for": f"6.6.6.{number}, 10.0.0.1"})
            assert told.status == 401
        assert ask(server, "127.0.0.41", "nw_x", **{"x-forwarded-for": "7.7.7.7, 10.0.0.1"}).status == 429
        assert ask(server, "127.0.0.41", "nw_x", **{"x-forwarded-for": "10.0.0.2"}).status == 401
        for number in range(MANY):  # not a proxy: what it says of itself is nothing
            assert ask(server, "127.0.0.42", "nw_x", **{"x-forwarded-for": f"6.6.6.{number}"}).status == 401
        assert ask(server, "127.0.0.42", "nw_x", **{"x-forwarded-for": "10.0.0.9"}).status == 429
        assert (
            ask(server, "127.0.0.41", None, **{"x-forwarded-host": "evil.example", "host": "evil.example"}).status
            == 421
        )
        asked = ask(server, "127.0.0.41", server.tokens["owner"], **{"x-request-id": "from-the-proxy"})
        assert asked.headers["x-request-id"] == "from-the-proxy"
        refused = ask(server, "127.0.0.42", server.tokens["owner"], **{"x-request-id": "from-somebody"})
        assert refused.headers["x-request-id"] != "from-somebody"


def test_pages_questions_and_calls_of_one_user_are_counted_together_and_others_go_on(tmp_path: Path) -> None:
    with guarded(tmp_path, rate_limits=True, http__calls_per_minute=6) as server:
        places = ["/", "/w/garden/", "/api/v1/me", "/connect", "/api/v1/workspaces", "/w/garden/notes/Tea.md"]
        assert [server.ask("GET", path, {**HTML, **server.bearer("reader")}).status for path in places] == [200] * 6
        for path in places:
            told = server.ask("GET", path, {**HTML, **server.bearer("reader")})
            assert told.status == 429 and int(told.headers["retry-after"]) >= 1, path
        assert server.call("reader", "notes", "list", {}).status == 429
        assert server.ask("GET", "/", {**HTML, **server.bearer("gardener")}).status == 200


# ---- issuers that cannot be believed ------------------------------------------------------------------


@pytest.fixture(scope="module")
def key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


def token(issuer: str, key: Any, audience: str, algorithm: str = "RS256", **more: Any) -> str:
    now = int(time.time())
    claims = {"iss": issuer, "sub": "mallory", "aud": audience, "scope": "notes:read notes:write notes:admin"}
    claims |= {"iat": now, "exp": now + 600, **more}
    return jwt.encode(claims, key, algorithm, {"kid": "1", "typ": "at+jwt"})


def open_to(server: Guarded, secret: str) -> list[int]:
    headers = {**JSON, "authorization": f"Bearer {secret}", "content-type": "application/json"}
    places = [
        ("GET", "/metrics"),
        ("GET", "/"),
        ("GET", "/api/v1/tokens"),
        ("POST", "/mcp/notes"),
        ("GET", "/w/garden/"),
    ]
    return [server.ask(method, path, headers, b"", stranger=True).status for method, path in places]


def test_an_issuer_that_is_down_opens_nothing_and_closes_nothing_else(tmp_path: Path, key: rsa.RSAPrivateKey) -> None:
    gone = "http://127.0.0.1:9"
    with guarded(tmp_path, auth__issuer=gone) as server:
        for secret in (token(gone, key, server.address), "opaque", "a.b.c", "nw_x"):
            assert set(open_to(server, secret)) <= {401, 503}, secret
        assert server.ask("GET", "/metrics", server.bearer("owner")).status == 200
        assert server.ask("GET", "/metrics", JSON).status == 401


def _described(web: Site, key: rsa.RSAPrivateKey, **more: Any) -> None:
    document = {"issuer": web.address, "jwks_uri": f"{web.address}/keys"} | more
    for place in ("oauth-authorization-server", "openid-configuration"):
        web.put(f"/.well-known/{place}", document)
    web.put("/keys", {"keys": [RSAAlgorithm.to_jwk(key.public_key(), as_dict=True) | {"kid": "1", "use": "sig"}]})


def test_the_same_token_is_good_where_its_issuer_can_be_believed(tmp_path: Path, key: rsa.RSAPrivateKey) -> None:
    with site() as web, guarded(tmp_path, auth__issuer=web.address) as server:
        _described(web, key)
        assert open_to(server, token(web.address, key, server.address))[:3] == [200, 200, 200]


@pytest.mark.parametrize(
    "wrong", ["speaks for another", "keys elsewhere", "no keys", "not JSON", "another key", "redirect"]
)
def test_an_issuer_that_cannot_be_believed_opens_nothing(tmp_path: Path, key: rsa.RSAPrivateKey, wrong: str) -> None:
    with site() as web, guarded(tmp_path, auth__issuer=web.address) as server:
        _described(web, key)
        if wrong == "speaks for another":
            _described(web, key, issuer="https://other.example")
        elif wrong == "keys elsewhere":
            _described(web, key, jwks_uri="http://192.0.2.1/keys")
        elif wrong == "no keys":
            web.put("/keys", {"keys": []})
        elif wrong == "not JSON":
            web.put("/keys", "keys")
        elif wrong == "another key":
            other = rsa.generate_private_key(65537, 2048)
            web.put("/keys", {"keys": [RSAAlgorithm.to_jwk(other.public_key(), as_dict=True) | {"kid": "1"}]})
        else:
            web.put("/keys", {}, status=302, headers={"Location": "http://127.0.0.1:9/keys"})
        assert set(open_to(server, token(web.address, key, server.address))) <= {401, 503}
        assert server.ask("GET", "/metrics", server.bearer("owner")).status == 200


def test_a_forged_token_opens_nothing(tmp_path: Path, key: rsa.RSAPrivateKey) -> None:
    with site() as web, guarded(tmp_path, auth__issuer=web.address) as server:
        _described(web, key)
        public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        good = token(web.address, key, server.address)
        head, body, signature = good.split(".")
        none = base64.urlsafe_b64encode(json.dumps({"alg": "none", "kid": "1"}).encode()).decode().rstrip("=")
        weak = base64.urlsafe_b64encode(json.dumps({"alg": "HS256", "kid": "1"}).encode()).decode().rstrip("=")
        mac = (
            base64.urlsafe_b64encode(hmac.digest(public, f"{weak}.{body}".encode(), hashlib.sha256))
            .decode()
            .rstrip("=")
        )
        now = int(time.time())
        for forged in (
            f"{none}.{body}.",
            f"{none}.{body}.{signature}",
            f"{weak}.{body}.{mac}",
            f"{head}.{body}.",
            f"{head}.{body[:-2]}AA.{signature}",
            token(web.address, key, "https://other.example"),
            token(web.address, key, server.address, exp=now - 1),
            token(web.address, key, server.address, nbf=now + 3600),
            token("https://other.example", key, server.address),
            token(web.address, key, server.address + "/mcp/lens"),
            token(web.address, key, server.address, cnf={"jkt": "x"}),
            token(web.address, key, server.address, scope="openid"),
            token(web.address, key, server.address, typ="ID"),
        ):
            assert set(open_to(server, forged)) <= {401, 403}, forged
        assert open_to(server, good)[0] == 200
        narrow = token(web.address, key, server.address, scope="notes:read workspace:garden")
        assert open_to(server, narrow) == [403, 200, 403, 400, 200]
        assert server.ask("GET", "/w/quillon/", {**JSON, "authorization": f"Bearer {narrow}"}).status == 404
