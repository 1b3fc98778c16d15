"""Access tokens of a real authorization server: which are taken, for what, and which are not."""

import asyncio
import base64
import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from tests.server.provider import AGENTS, SECRET, Provider, forged, keys, provider

from notewright.accounts.base import Grant
from notewright.accounts.sqlite import SqliteAccounts
from notewright.engine.library import PREFIX, Principal, new_token
from notewright.errors import Unavailable
from notewright.server.auth import oauth
from notewright.server.auth.authenticate import AuthRefusal
from notewright.server.auth.oauth import GOOD_SECONDS, Issuer, IssuerSettings

pytestmark = pytest.mark.slow

BASE = "https://notes.example.com"
HERE = f"{BASE}/mcp/notes"
Found = Principal | AuthRefusal | None


@pytest.fixture(scope="module")
def issuing() -> Iterator[Provider]:
    with provider() as running:
        yield running


@pytest.fixture
def secret_file(tmp_path: Path) -> str:
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    return str(tmp_path / "secret")


def admitted(
    trusted: IssuerSettings, tokens: Sequence[str], resource: str = HERE, now: Callable[[], float] = time.time
) -> list[Found]:
    async def ask() -> list[Found]:
        async with Issuer(trusted, now) as issuer:
            return [await issuer.authenticate(token, resource) for token in tokens]

    return asyncio.run(ask())


def one(trusted: IssuerSettings, token: str, resource: str = HERE) -> Found:
    return admitted(trusted, [token], resource)[0]


def refusal(found: Found) -> tuple[str, str]:
    """What RFC 6750 calls it, and our words."""
    assert isinstance(found, AuthRefusal), found
    return found.error, found.description


def opaque(issuing: Provider, secret_file: str, **more: Any) -> IssuerSettings:
    return IssuerSettings(issuing.issuer, client_id="notewright", client_secret_file=secret_file, **more)


def claims_of(issuing: Provider, **changed: Any) -> dict[str, Any]:
    """What the issuer's own tokens say, changed here and there; None leaves a claim out."""
    now = int(time.time())
    said = {"iss": issuing.issuer, "aud": HERE, "sub": "mallory", "client_id": "agent", "scope": "notes:read"}
    every = {**said, "iat": now, "exp": now + 600, **changed}
    return {name: value for name, value in every.items() if value is not None}


@pytest.mark.parametrize("client", AGENTS)
def test_a_token_for_this_endpoint_is_taken_however_it_is_signed(
    issuing: Provider, secret_file: str, client: str
) -> None:
    token = issuing.token(HERE, "notes:read notes:write", client)
    found = one(opaque(issuing, secret_file), token)
    host = issuing.issuer.removeprefix("http://")
    assert found == Principal(f"{host}/{client}", Grant(), "oauth", admin=False)
    assert not found.owner


@pytest.mark.parametrize("client", ["app", "opaque-app"])
def test_somebody_who_signed_in_is_known_by_name_and_only_their_access_token_counts(
    issuing: Provider, secret_file: str, client: str
) -> None:
    got = issuing.signed_in("alice", HERE, "openid offline_access notes:read", client)
    for_us = opaque(issuing, secret_file)
    found = one(for_us, got["access_token"])
    assert isinstance(found, Principal)
    assert found.user.endswith("/alice") and found.grant.read_only
    assert refusal(one(for_us, got["id_token"]))[0] == "invalid_token"
    assert refusal(one(for_us, got["refresh_token"]))[0] == "invalid_token"


def test_an_id_token_is_no_access_token_even_where_it_is_for_us(issuing: Provider) -> None:
    """Its audience is the client: an owner may have named just that."""
    got = issuing.signed_in("alice", HERE, "openid notes:read")
    kind = ("invalid_token", "This is a token of another kind, not an access token")
    assert refusal(one(IssuerSettings(issuing.issuer, audience="app"), got["id_token"])) == kind
    tokens = []
    for claims in (
        claims_of(issuing, scope=None),
        claims_of(issuing, nonce="n"),
        claims_of(issuing, at_hash="h"),
        claims_of(issuing, token_use="id"),
        claims_of(issuing, typ="ID"),
        claims_of(issuing, typ="Refresh"),
        claims_of(issuing, events={}),
    ):
        tokens.append(forged(issuing.keys[2], claims, typ="JWT"))
    for typ in ("id+jwt", "logout+jwt", "dpop+jwt"):
        tokens.append(forged(issuing.keys[2], claims_of(issuing), typ=typ))
    assert [refusal(found) for found in admitted(IssuerSettings(issuing.issuer), tokens)] == [kind] * len(tokens)


def test_older_access_tokens_do_not_say_what_they_are_and_are_taken_for_their_scopes(issuing: Provider) -> None:
    for said in ({"typ": None}, {"typ": "JWT"}, {"typ": "application/at+jwt"}):
        assert isinstance(
            one(IssuerSettings(issuing.issuer), forged(issuing.keys[2], claims_of(issuing), **said)), Principal
        )
    for claims in (claims_of(issuing, scope=None, scp=["notes:read"]), claims_of(issuing, scope=["notes:read", "x"])):
        assert isinstance(one(IssuerSettings(issuing.issuer), forged(issuing.keys[2], claims, typ=None)), Principal)


@pytest.mark.parametrize(
    ("resource", "called", "good"),
    [
        (HERE, HERE, True),
        (f"{HERE}/", HERE, True),
        (BASE, HERE, True),
        (f"{BASE}/", HERE, True),
        (BASE, f"{BASE}/api/v1/workspaces", True),
        (HERE, "https://NOTES.example.com:443/mcp/notes", True),
        (HERE, f"{BASE}/mcp/lens", False),
        (HERE, f"{BASE}/mcp", False),
        (HERE, f"{BASE}/api/v1/workspaces", False),
        (f"{BASE}/mcp", HERE, False),
        (f"{BASE}/w/examples/mcp/notes", f"{BASE}/w/work/mcp/notes", False),
        ("https://other.example.com/mcp/notes", HERE, False),
        ("http://notes.example.com/mcp/notes", HERE, False),
        ("https://notes.example.com:8443/mcp/notes", HERE, False),
        ("https://notes.example.com.evil.example", HERE, False),
    ],
)
def test_a_token_opens_the_endpoint_or_the_server_it_was_issued_for(
    issuing: Provider, secret_file: str, resource: str, called: str, good: bool
) -> None:
    for client in ("agent", "opaque-agent"):
        found = one(opaque(issuing, secret_file), issuing.token(resource, client=client), called)
        if good:
            assert isinstance(found, Principal)
        else:
            assert refusal(found) == ("invalid_token", "The access token was issued for another resource")


def test_a_named_audience_is_the_only_one(issuing: Provider) -> None:
    named = IssuerSettings(issuing.issuer, audience="https://api.example.com/notes")
    assert isinstance(one(named, issuing.token("https://api.example.com/notes")), Principal)
    assert refusal(one(named, issuing.token(HERE)))[0] == "invalid_token"
    assert refusal(one(named, issuing.token(BASE)))[0] == "invalid_token"


def test_behind_a_path_the_rest_of_the_host_is_somebody_elses(issuing: Provider) -> None:
    behind = IssuerSettings(issuing.issuer, public_url=f"{BASE}/apps/notes/")
    called = f"{BASE}/apps/notes/mcp"
    assert isinstance(one(behind, issuing.token(called), called), Principal)
    assert isinstance(one(behind, issuing.token(f"{BASE}/apps/notes"), called), Principal)
    assert refusal(one(behind, issuing.token(BASE), called))[0] == "invalid_token"


def test_one_of_several_audiences_is_enough_and_none_is_not(issuing: Provider) -> None:
    several = claims_of(issuing, aud=["https://other.example.com", HERE])
    assert isinstance(one(IssuerSettings(issuing.issuer), forged(issuing.keys[2], several)), Principal)
    for aud in (None, [], "", 7, {"of": HERE}):
        found = one(IssuerSettings(issuing.issuer), forged(issuing.keys[2], claims_of(issuing, aud=aud)))
        assert refusal(found) == ("invalid_token", "The access token was issued for another resource")


def test_claims_that_are_wrong_are_refused_though_the_signature_is_right(issuing: Provider) -> None:
    now = int(time.time())
    wrong = {
        "another issuer": claims_of(issuing, iss="https://id.example"),
        "an issuer that is nearly the same": claims_of(issuing, iss=f"{issuing.issuer}/"),
        "no issuer": claims_of(issuing, iss=None),
        "expired": claims_of(issuing, exp=now - 1),
        "no end": claims_of(issuing, exp=None),
        "an end that is no time": claims_of(issuing, exp="tomorrow"),
        "not yet": claims_of(issuing, nbf=now + 120),
        "from the future": claims_of(issuing, iat=now + 120),
        "nobody's": claims_of(issuing, sub=None, client_id=None),
        "somebody with a line break": claims_of(issuing, sub="a\nb", client_id=None),
        "bound to a key": claims_of(issuing, cnf={"jkt": "x"}),
    }
    tokens = [forged(issuing.keys[2], claims) for claims in wrong.values()]
    found = dict(zip(wrong, admitted(IssuerSettings(issuing.issuer), tokens), strict=True))
    assert {name: refusal(answer)[0] for name, answer in found.items()} == dict.fromkeys(wrong, "invalid_token")


def test_a_clock_that_is_a_little_ahead_does_no_harm(issuing: Provider) -> None:
    soon = int(time.time()) + 20
    token = forged(issuing.keys[2], claims_of(issuing, iat=soon, nbf=soon))
    assert isinstance(one(IssuerSettings(issuing.issuer), token), Principal)


@pytest.mark.parametrize("client", ["agent", "opaque-agent"])
def test_a_token_ends_when_its_time_is_up(issuing: Provider, secret_file: str, client: str) -> None:
    """Also one that was good a moment ago, and is still remembered for it."""
    token, later = issuing.token(HERE, client=client), 0.0

    async def ask() -> list[Found]:
        nonlocal later
        async with Issuer(opaque(issuing, secret_file), now=lambda: time.time() + later) as issuer:
            before = await issuer.authenticate(token, HERE)
            later = 601.0
            return [before, await issuer.authenticate(token, HERE)]

    before, after = asyncio.run(ask())
    assert isinstance(before, Principal)
    assert refusal(after)[0] == "invalid_token"


def test_a_token_that_was_tampered_with_is_refused(issuing: Provider) -> None:
    head, body, signature = issuing.token(HERE, "notes:read").split(".")
    more = json.loads(base64.urlsafe_b64decode(body + "==")) | {"scope": "notes:admin"}
    other = base64.urlsafe_b64encode(json.dumps(more).encode()).decode().rstrip("=")
    turned = signature[:20] + ("A" if signature[20] != "A" else "B") + signature[21:]
    tokens = [f"{head}.{other}.{signature}", f"{head}.{body}.{turned}", f"{head}.{body}."]
    for found in admitted(IssuerSettings(issuing.issuer), tokens):
        assert refusal(found) == ("invalid_token", "The access token's signature is wrong")


def test_no_signature_and_one_with_the_public_key_as_a_secret_are_refused(issuing: Provider) -> None:
    """The two oldest tricks: `none`, and a public key taken for a shared secret."""
    public = jwt.PyJWK(issuing.keys[0], "RS256").key.public_key()
    pem = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    said = b".".join(
        base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=")
        for part in ({"alg": "HS256", "typ": "at+jwt", "kid": "RSA-1"}, claims_of(issuing))
    )
    mac = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256).sign(said, pem)
    signed = (said + b"." + base64.urlsafe_b64encode(mac).rstrip(b"=")).decode()
    unsigned = jwt.encode(claims_of(issuing), None, "none", {"typ": "at+jwt"})  # type: ignore[arg-type]
    head = base64.urlsafe_b64encode(b'{"alg":"NonE","kid":"RSA-1"}').decode().rstrip("=")
    for token in (signed, unsigned, f"{head}.{unsigned.split('.')[1]}."):
        told = ("invalid_token", "The access token is not signed in a way that is accepted here")
        assert refusal(one(IssuerSettings(issuing.issuer), token)) == told


def test_a_key_that_comes_with_the_token_is_not_believed(issuing: Provider) -> None:
    with_key = {"jwk": {"kty": "RSA"}, "jku": "https://evil.example/jwks", "x5u": "https://evil.example/cert"}
    stranger = keys()[0]
    for found in admitted(
        IssuerSettings(issuing.issuer),
        [
            forged(stranger, claims_of(issuing), kid="RSA-1", **with_key),
            forged(stranger, claims_of(issuing), kid=None),
            forged(stranger, claims_of(issuing), kid="mine"),
            forged(issuing.keys[2], claims_of(issuing), crit=["exp"], exp=1),
        ],
    ):
        assert refusal(found)[0] == "invalid_token"


def test_a_token_without_a_key_name_is_tried_with_the_keys_there_are(issuing: Provider) -> None:
    assert isinstance(
        one(IssuerSettings(issuing.issuer), forged(issuing.keys[2], claims_of(issuing), kid=None)), Principal
    )


def test_a_flood_of_made_up_key_names_is_not_passed_on(issuing: Provider) -> None:
    stranger, good = keys()[2], issuing.token(HERE)
    tokens = [forged(stranger, claims_of(issuing), kid=f"made-up-{number}") for number in range(200)]

    async def ask() -> list[Found]:
        async with Issuer(IssuerSettings(issuing.issuer)) as issuer:
            found = await asyncio.gather(*(issuer.authenticate(token, HERE) for token in tokens))
            return [*found, await issuer.authenticate(good, HERE)]

    before = issuing.count("/jwks")
    *refused, last = asyncio.run(ask())
    assert {refusal(found)[0] for found in refused} == {"invalid_token"}
    assert isinstance(last, Principal)
    assert issuing.count("/jwks") - before <= 2


def test_a_token_of_another_issuer_is_not_looked_up_at_ours(issuing: Provider) -> None:
    before = issuing.count("/jwks")
    other = forged(keys()[2], claims_of(issuing, iss="https://id.example"), kid="of-others")
    assert refusal(one(IssuerSettings(issuing.issuer), other)) == (
        "invalid_token",
        "The access token is of another issuer",
    )
    assert issuing.count("/jwks") == before


def test_a_key_that_the_issuer_changed_is_learned_at_once_and_the_old_one_forgotten() -> None:
    with provider() as issuing:
        old_key, old, ticks = issuing.keys[0], issuing.token(HERE), [0.0]

        async def ask() -> list[Found]:
            async with Issuer(IssuerSettings(issuing.issuer), clock=lambda: ticks[0]) as issuer:
                first = await issuer.authenticate(old, HERE)
                issuing.rotate()
                new = await issuer.authenticate(issuing.token(HERE), HERE)
                forgery = await issuer.authenticate(forged(old_key, claims_of(issuing)), HERE)
                ticks[0] += GOOD_SECONDS
                return [first, new, forgery, await issuer.authenticate(old, HERE)]

        first, new, forgery, gone = asyncio.run(ask())
    assert isinstance(first, Principal) and isinstance(new, Principal)
    assert refusal(forgery)[0] == refusal(gone)[0] == "invalid_token"


def test_while_the_issuer_is_down_its_known_keys_go_on_and_nothing_else_does(secret_file: str) -> None:
    with provider() as issuing:
        good, by_asking = issuing.token(HERE), issuing.token(HERE, client="opaque-agent")
        stranger = forged(keys()[0], claims_of(issuing), kid="new")
        for_us = opaque(issuing, secret_file)

        async def ask() -> tuple[list[Found], list[object]]:
            async with Issuer(for_us) as issuer, Issuer(for_us) as late:
                first = await issuer.authenticate(good, HERE)
                issuing.close()
                found = [first, await issuer.authenticate(good, HERE)]
                asked = [
                    issuer.authenticate(stranger, HERE),
                    issuer.authenticate(by_asking, HERE),
                    late.authenticate(good, HERE),
                ]
                return found, list(await asyncio.gather(*asked, return_exceptions=True))

        found, problems = asyncio.run(ask())
    assert all(isinstance(one, Principal) for one in found)
    assert [type(problem) for problem in problems] == [Unavailable] * 3


def test_an_issuer_with_a_path_is_found_and_its_name_is_compared_letter_by_letter() -> None:
    with provider(path="/realms/home") as issuing:
        assert isinstance(one(IssuerSettings(issuing.issuer), issuing.token(HERE)), Principal)
        elsewhere = forged(issuing.keys[2], claims_of(issuing, iss=f"{issuing.issuer}/"))
        with pytest.raises(Unavailable):
            one(IssuerSettings(f"{issuing.issuer}/"), elsewhere)


def test_an_opaque_token_is_asked_about_once_and_a_revoked_one_is_refused(issuing: Provider, secret_file: str) -> None:
    token = issuing.token(HERE, client="opaque-agent")
    ticks = 0.0

    async def ask() -> list[Found]:
        nonlocal ticks
        async with Issuer(opaque(issuing, secret_file), clock=lambda: ticks) as issuer:
            found = list(await asyncio.gather(*(issuer.authenticate(token, HERE) for _ in range(20))))
            issuing.revoke(token, "opaque-agent")
            ticks = 29.0
            remembered = await issuer.authenticate(token, HERE)
            ticks = 30.0
            return [*found, remembered, await issuer.authenticate(token, HERE), await issuer.authenticate(token, HERE)]

    before = issuing.count("/token/introspection")
    *good, gone, again = asyncio.run(ask())
    assert all(isinstance(found, Principal) for found in good)
    assert (
        refusal(gone)
        == refusal(again)
        == ("invalid_token", "The access token is not known, was revoked or has expired")
    )
    assert issuing.count("/token/introspection") - before == 2


def test_without_a_way_to_ask_an_opaque_token_is_nobodys(issuing: Provider) -> None:
    assert one(IssuerSettings(issuing.issuer), issuing.token(HERE, client="opaque-agent")) is None


def test_our_own_tokens_and_what_is_none_are_not_shown_to_the_issuer(issuing: Provider, secret_file: str) -> None:
    ours = new_token(SqliteAccounts.in_memory(), "laptop", Grant(), now=time.time())
    assert ours.startswith(oauth.OWN_TOKEN_PREFIX) and oauth.OWN_TOKEN_PREFIX == PREFIX
    before = issuing.count("/token/introspection")
    tokens = [ours, "", "two words", "ünïcode", "x" * 20_000, "a\x00b", "="]
    assert admitted(opaque(issuing, secret_file), tokens) == [None] * len(tokens)
    assert issuing.count("/token/introspection") == before


def test_a_wrong_secret_of_ours_is_not_the_callers_fault(issuing: Provider, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("wrong")
    with pytest.raises(Unavailable):
        one(opaque(issuing, str(tmp_path / "secret")), issuing.token(HERE, client="opaque-agent"))


@pytest.mark.parametrize("client", ["agent", "opaque-agent"])
@pytest.mark.parametrize(
    ("scope", "grant", "admin"),
    [
        ("notes:read", Grant(read_only=True), False),
        ("notes:write", Grant(), False),
        ("notes:admin", Grant(), True),
        ("notes:read workspace:examples", Grant(("examples",), read_only=True), False),
        ("notes:write workspace:work workspace:examples", Grant(("examples", "work")), False),
        ("notes:write surface:lens surface:notes unrelated", Grant(None, ("lens", "notes")), False),
        ("notes:admin workspace:work", Grant(("work",)), True),
    ],
)
def test_scopes_say_what_a_token_may_do(
    issuing: Provider, secret_file: str, client: str, scope: str, grant: Grant, admin: bool
) -> None:
    found = one(opaque(issuing, secret_file), issuing.token(HERE, scope, client))
    assert isinstance(found, Principal)
    assert (found.grant, found.admin) == (grant, admin)
    assert found.owner is (scope == "notes:admin")


@pytest.mark.parametrize("scope", ["unrelated", "workspace:work surface:notes", ""])
def test_a_token_without_any_right_is_told_what_to_ask_for(issuing: Provider, scope: str) -> None:
    found = one(IssuerSettings(issuing.issuer), issuing.token(HERE, scope))
    assert isinstance(found, AuthRefusal)
    assert (found.status, found.error, found.scope) == (403, "insufficient_scope", "notes:read notes:write")


def test_the_issuers_own_names_of_scopes_are_understood_and_asked_for(issuing: Provider) -> None:
    named = IssuerSettings(
        issuing.issuer, scopes=["kb.reader=notes:read workspace:work", "kb.editor=notes:read notes:write"]
    )
    reader, editor, none = admitted(named, [issuing.token(HERE, s) for s in ("kb.reader", "kb.editor", "unrelated")])
    assert isinstance(reader, Principal) and reader.grant == Grant(("work",), read_only=True)
    assert isinstance(editor, Principal) and editor.grant == Grant()
    assert isinstance(none, AuthRefusal) and none.scope == "kb.editor"


def test_people_are_called_by_the_claim_that_the_owner_chose(issuing: Provider) -> None:
    host = issuing.issuer.removeprefix("http://")
    by_mail = IssuerSettings(issuing.issuer, user_claim="email")
    for changed, name in [
        ({"email": "mal@example.com"}, "mal@example.com"),
        ({"email": "mal@example.com", "email_verified": True}, "mal@example.com"),
        ({"email": "mal@example.com", "email_verified": False}, "mallory"),
        ({}, "mallory"),
        ({"sub": None}, "agent"),
        ({"email": ["a"], "sub": None, "client_id": None, "azp": "other"}, "other"),
    ]:
        found = one(by_mail, forged(issuing.keys[2], claims_of(issuing, **changed)))
        assert isinstance(found, Principal) and found.user == f"{host}/{name}"


def test_no_token_and_no_secret_is_ever_logged(
    issuing: Provider, secret_file: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "wrong").write_text("not-the-secret")
    signed, unsigned = issuing.token(HERE), issuing.token(HERE, client="opaque-agent")
    with caplog.at_level(logging.DEBUG):
        admitted(opaque(issuing, secret_file), [signed, unsigned, signed[:-4], unsigned + "x"])
        with pytest.raises(Unavailable):
            one(opaque(issuing, str(tmp_path / "wrong")), unsigned)
    basic = base64.b64encode(b"notewright:").decode()[:12]
    assert "cannot be asked" in caplog.text  # so that we know that we would have seen one
    for private in (signed.split(".")[2], unsigned, SECRET, "not-the-secret", "a%2Fsecret", basic):
        assert private not in caplog.text
    assert SECRET not in repr(opaque(issuing, secret_file))
