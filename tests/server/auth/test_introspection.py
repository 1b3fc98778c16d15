"""What an issuer says of an opaque token: how far it is believed, how long remembered, and how often asked for."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.server.site import Page, Site, site

from notewright.engine.library import Principal
from notewright.errors import Busy, Unavailable
from notewright.server.auth import oauth
from notewright.server.auth.authenticate import AuthRefusal
from notewright.server.auth.oauth import BAD_SECONDS, GOOD_SECONDS, Issuer, IssuerSettings, RecentResults

pytestmark = pytest.mark.slow

HERE = "https://notes.example.com/mcp/notes"
ASK = "/introspect"


@pytest.fixture
def issuing() -> Iterator[Site]:
    with site() as running:
        yield running


def says(**changed: Any) -> dict[str, Any]:
    said = {"active": True, "aud": HERE, "sub": "alice", "scope": "notes:read", "exp": time.time() + 600, **changed}
    return {name: value for name, value in said.items() if value is not None}


def talk(
    issuing: Site, tmp_path: Path, conversation: Callable[[Issuer], Awaitable[Any]], ticks: Callable[[], float]
) -> Any:
    (tmp_path / "secret").write_text("s")
    asked = {"introspection_url": issuing.address + ASK, "client_id": "us"}
    trusted = IssuerSettings(issuing.address, client_secret_file=str(tmp_path / "secret"), **asked)

    async def run() -> Any:
        async with Issuer(trusted, clock=ticks) as issuer:
            return await conversation(issuer)

    return asyncio.run(run())


def ask(issuing: Site, tmp_path: Path) -> Any:
    return talk(issuing, tmp_path, lambda issuer: issuer.authenticate("opaque", HERE), time.monotonic)


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"exp": None},
        {"iss": "itself"},
        {"sub": None, "client_id": "agent"},
        {"token_type": "Bearer"},
        {"token_use": "access_token"},
        {"aud": ["https://other.example.com", HERE]},
    ],
)
def test_what_the_issuer_says_of_a_good_token_is_believed(
    issuing: Site, tmp_path: Path, changed: dict[str, Any]
) -> None:
    issuing.put(ASK, says(**(changed | ({"iss": issuing.address} if "iss" in changed else {}))))
    found = ask(issuing, tmp_path)
    assert isinstance(found, Principal) and found.grant.read_only
    assert issuing.forms == [{"token": ["opaque"], "token_type_hint": ["access_token"]}]


@pytest.mark.parametrize(
    "changed",
    [
        {"active": False},
        {"active": "true"},
        {"active": 1},
        {"active": None},
        {"exp": 1000},
        {"exp": "soon"},
        {"nbf": time.time() + 3600},
        {"iss": "https://id.example"},
        {"aud": None},
        {"aud": "https://other.example.com"},
        {"sub": None},
        {"token_type": "DPoP"},
        {"token_use": "refresh_token"},
        {"typ": "Refresh"},
        {"cnf": {"jkt": "x"}},
    ],
)
def test_a_token_of_which_the_issuer_says_less_is_refused(
    issuing: Site, tmp_path: Path, changed: dict[str, Any]
) -> None:
    issuing.put(ASK, says(**changed))
    found = ask(issuing, tmp_path)
    assert isinstance(found, AuthRefusal) and found.error == "invalid_token"


@pytest.mark.parametrize(
    "page", [Page(b"{}", 401), Page(b"", 302, {"Location": "/x"}), Page(b"no"), Page(b" " * 65536, endless=True)]
)
def test_an_issuer_that_says_nothing_useful_is_not_taken_for_a_no(issuing: Site, tmp_path: Path, page: Page) -> None:
    issuing.pages[ASK] = page
    with pytest.raises(Unavailable):
        ask(issuing, tmp_path)


def test_a_yes_is_remembered_for_half_a_minute_and_a_no_for_seconds(issuing: Site, tmp_path: Path) -> None:
    at = 0.0

    async def conversation(issuer: Issuer) -> list[int]:
        nonlocal at
        counted = []
        for said in (says(), says(active=False)):
            issuing.put(ASK, said)
            for later in (0, BAD_SECONDS - 1, 1, GOOD_SECONDS - BAD_SECONDS - 1, 1):
                at += later
                await issuer.authenticate(f"opaque-{said['active']}", HERE)
                counted.append(issuing.visits[ASK])
        return counted

    assert talk(issuing, tmp_path, conversation, lambda: at) == [1, 1, 1, 1, 2, 3, 3, 4, 5, 5]


def test_many_unknown_tokens_at_once_do_not_become_many_questions(issuing: Site, tmp_path: Path) -> None:
    issuing.pages[ASK] = None

    async def conversation(issuer: Issuer) -> list[object]:
        asked = [asyncio.create_task(issuer.authenticate(f"made-up-{number}", HERE)) for number in range(100)]
        await asyncio.sleep(0)
        told = [task.exception() for task in asked if task.done()]
        issuing.pages[ASK] = Page(b'{"active": false}')
        issuing.closing.set()
        await asyncio.gather(*asked, return_exceptions=True)
        return told

    told = talk(issuing, tmp_path, conversation, time.monotonic)
    assert len(told) == 100 - oauth.MAX_INTROSPECTIONS and all(isinstance(problem, Busy) for problem in told)
    assert issuing.visits[ASK] <= oauth.MAX_INTROSPECTIONS


def test_a_question_that_cannot_even_be_written_takes_nobodys_place(tmp_path: Path) -> None:
    """An id that is not UTF-8, as an environment variable may be."""
    (tmp_path / "secret").write_text("s")
    asked = {"introspection_url": "https://id.example/introspect", "client_id": "caf\udce9"}
    trusted = IssuerSettings("https://id.example", client_secret_file=str(tmp_path / "secret"), **asked)

    async def run() -> None:
        async with Issuer(trusted) as issuer:
            for number in range(oauth.MAX_INTROSPECTIONS + 1):
                with pytest.raises(UnicodeEncodeError):
                    await issuer.authenticate(f"opaque-{number}", HERE)

    asyncio.run(run())


def test_what_was_learned_is_bounded_and_the_longest_unused_goes_first() -> None:
    known: RecentResults[str] = RecentResults(lambda: 0.0, 10, most=3)
    for name in "abc":
        known.put(name, name)
    assert known.get("a") == "a"
    known.put("d", "d")
    assert [known.get(name) for name in "abcd"] == ["a", None, "c", "d"]
