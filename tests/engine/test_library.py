"""What somebody who came in over the network may use."""

import pytest
from tests.conftest import MakeWorkspace

from notewright.accounts.base import Grant
from notewright.accounts.sqlite import SqliteAccounts
from notewright.engine.library import Library, Principal, digest_of, find_valid_token, new_token
from notewright.engine.write import create
from notewright.errors import Forbidden, Invalid, NotFound, ReadOnly
from notewright.notes.path import NotePath

NOTES = {"Tea.md": "Tea.", "Private/Key.md": "Key.", "Inbox/A.md": "A."}


@pytest.fixture
def whole(workspace: MakeWorkspace) -> Library:
    return Library.of([workspace(NOTES, "Main"), workspace(NOTES, "Other")])


def test_a_token_is_kept_as_a_hash_alone() -> None:
    registry = SqliteAccounts.in_memory()
    secret = new_token(registry, "phone", Grant(), now=100.0)
    kept = registry.tokens()[0]
    assert secret.startswith("nw_") and len(secret) >= 46
    assert secret not in repr(kept)
    assert find_valid_token(registry, digest_of(secret), 101.0) is not None
    assert new_token(registry, "other", Grant(), now=100.0) != secret


def test_only_a_good_token_is_admitted() -> None:
    registry = SqliteAccounts.in_memory()
    secret = new_token(registry, "phone", Grant(), now=100.0, expires=200.0)
    assert find_valid_token(registry, digest_of(secret), 199.0) is not None
    assert find_valid_token(registry, digest_of(secret), 200.0) is None
    assert find_valid_token(registry, digest_of(secret + "x"), 150.0) is None
    assert find_valid_token(registry, digest_of(secret[:-1]), 150.0) is None
    assert find_valid_token(registry, digest_of(""), 150.0) is None
    registry.revoke("phone", 150.0)
    assert find_valid_token(registry, digest_of(secret), 151.0) is None


def test_the_last_use_is_remembered_now_and_then() -> None:
    registry = SqliteAccounts.in_memory()
    secret = new_token(registry, "phone", Grant(), now=100.0)
    for now in (110.0, 120.0):
        find_valid_token(registry, digest_of(secret), now)
    assert registry.tokens()[0].used == 110.0
    find_valid_token(registry, digest_of(secret), 1000.0)
    assert registry.tokens()[0].used == 1000.0


@pytest.mark.parametrize("name", ["", " x", "a\nb", "x" * 65, "a/b", "<b>"])
def test_a_token_has_a_plain_name(name: str) -> None:
    with pytest.raises(Invalid, match="name for a token"):
        new_token(SqliteAccounts.in_memory(), name, Grant(), now=1.0)


@pytest.mark.parametrize("grant", [Grant(hide=("Private/[",)), Grant(write_under=("",)), Grant(hide=("{a",))])
def test_a_pattern_that_is_none_is_refused_when_the_token_is_made(grant: Grant) -> None:
    registry = SqliteAccounts.in_memory()
    with pytest.raises(Invalid, match="not a glob"):
        new_token(registry, "phone", grant, now=100.0)
    assert registry.tokens() == []


def test_a_token_that_is_over_before_it_begins_is_not_made() -> None:
    with pytest.raises(Invalid, match="expired already"):
        new_token(SqliteAccounts.in_memory(), "a", Grant(), now=100.0, expires=100.0)


def test_a_workspace_one_may_not_see_is_one_that_is_not_there(whole: Library) -> None:
    library = Principal("phone", Grant(workspaces=("other",))).narrow_library(whole)
    assert [ws.name for ws in library.workspaces()] == ["Other"]
    assert library.default.name == "Other"
    with pytest.raises(NotFound) as hidden:
        library.find_workspace("Main")
    with pytest.raises(NotFound) as absent:
        library.find_workspace("Nain")
    assert str(hidden.value).replace("Main", "Nain") == str(absent.value)


def test_who_may_use_no_workspace_is_told(whole: Library) -> None:
    library = Principal("phone", Grant(workspaces=("gone",))).narrow_library(whole)
    assert library.workspaces() == ()
    with pytest.raises(NotFound, match="no workspace you may use"):
        _ = library.default


def test_both_the_rules_of_the_workspace_and_of_the_caller_hold(workspace: MakeWorkspace) -> None:
    ws = workspace(NOTES, "Main", hide=("Private/**",), write_under=("Inbox/**", "Tea.md"))
    mine = Principal("bot", Grant(hide=("Tea.md",), write_under=("Inbox/**",))).narrow(ws)
    assert [path for path in ("Tea.md", "Private/Key.md", "Inbox/A.md") if mine.access.sees(path)] == ["Inbox/A.md"]
    with pytest.raises(Forbidden):
        create(mine, NotePath("Elsewhere.md"), b"text")
    create(mine, NotePath("Inbox/B.md"), b"text")
    with pytest.raises(ReadOnly):
        create(Principal("bot", Grant(read_only=True)).narrow(ws), NotePath("Inbox/C.md"), b"text")


def test_an_owner_is_one_whom_nothing_narrows() -> None:
    assert Principal("me").owner
    narrowed = (
        Grant(read_only=True),
        Grant(hide=("x",)),
        Grant(("a",)),
        Grant(None, ("notes",)),
        Grant(write_under=("a",)),
    )
    assert not any(Principal("me", grant).owner for grant in narrowed)
