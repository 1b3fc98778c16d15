"""What is kept for a whole server: tokens, the owner's changes, secrets."""

import os
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from notewright.accounts.base import Grant, Token, WorkspaceRecord
from notewright.accounts.sqlite import POLL_SECONDS, SqliteAccounts
from notewright.errors import Exists, Unavailable

PHONE = Token("phone", "d1", Grant(("work",), ("notes",), True, ("Private/**",), ("Inbox/**",)), 100.0, 200.0)


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[SqliteAccounts]:
    made = SqliteAccounts.open(tmp_path)
    yield made
    made.close()


def test_a_token_comes_back_as_it_was_given(registry: SqliteAccounts) -> None:
    registry.add_token(PHONE)
    assert registry.token("d1") == PHONE
    assert registry.tokens() == [PHONE]
    assert registry.token("d2") is None


def test_a_name_can_be_used_again_when_its_token_is_revoked_or_has_expired(registry: SqliteAccounts) -> None:
    registry.add_token(PHONE)
    with pytest.raises(Exists, match="phone"):
        registry.add_token(Token("phone", "d2", Grant(), 150.0))
    registry.add_token(Token("phone", "d3", Grant(), 200.0))  # the first has expired by then
    assert registry.revoke("phone", 210.0)
    registry.add_token(Token("phone", "d4", Grant(), 220.0))
    assert [token.is_valid(230.0) for token in registry.tokens()] == [False, False, True]


def test_revoking_twice_is_told(registry: SqliteAccounts) -> None:
    registry.add_token(PHONE)
    assert registry.revoke("phone", 1.0)
    assert not registry.revoke("phone", 2.0)
    assert not registry.revoke("nobody", 2.0)
    assert registry.tokens()[0].revoked == 1.0


@pytest.mark.slow
def test_every_change_is_felt_in_another_process(registry: SqliteAccounts, tmp_path: Path) -> None:
    felt = registry.data_version()
    other = f"""
import pathlib
from notewright.accounts.base import Grant, Token
from notewright.accounts.sqlite import SqliteAccounts
SqliteAccounts.open(pathlib.Path({str(tmp_path)!r})).add_token(Token("a", "b", Grant(), 1.0))
"""
    subprocess.run([sys.executable, "-c", other], check=True)
    assert registry.data_version() != felt
    assert [token.name for token in registry.tokens()] == ["a"]


def test_the_use_of_a_token_changes_no_rule_in_any_process(registry: SqliteAccounts, tmp_path: Path) -> None:
    registry.add_token(PHONE)
    other = SqliteAccounts.open(tmp_path)
    felt = registry.data_version(), other.data_version()
    for number, one in enumerate((registry, other), 1):
        one.record_use("d1", float(number))
        time.sleep(2 * POLL_SECONDS)
        assert (registry.data_version(), other.data_version()) == felt
        assert [each.tokens()[0].used for each in (registry, other)] == [number, number]
    other.revoke("phone", 3.0)
    time.sleep(2 * POLL_SECONDS)
    assert registry.data_version() != felt[0] and other.data_version() != felt[1]
    other.close()


def test_a_session_that_ended_has_ended_for_everybody_and_is_forgotten_in_the_end(
    registry: SqliteAccounts, tmp_path: Path
) -> None:
    felt = registry.data_version()
    registry.end_session("one", 100.0, 50.0)
    assert registry.data_version() != felt, "streams that stay open are to notice"
    again = SqliteAccounts.open(tmp_path)
    assert again.has_session_ended("one") and not again.has_session_ended("two")
    again.end_session("two", 151.0, 50.0)
    again.end_session("two", 152.0, 50.0)
    assert not registry.has_session_ended("one") and registry.has_session_ended("two")
    again.close()


@pytest.mark.parametrize("change", ["add_token", "revoke", "put_record", "drop_record"])
def test_every_change_of_ones_own_is_felt_too(registry: SqliteAccounts, change: str) -> None:
    registry.add_token(PHONE)
    registry.put_record(WorkspaceRecord("x"))
    felt = registry.data_version()
    if change == "add_token":
        registry.add_token(Token("b", "d2", Grant(), 1.0))
    elif change == "revoke":
        registry.revoke("phone", 2.0)
    elif change == "put_record":
        registry.put_record(WorkspaceRecord("y"))
    else:
        registry.drop_record("x")
    assert registry.data_version() != felt
    assert registry.data_version() == registry.data_version()


def test_a_workspace_keeps_its_place_when_it_is_changed(registry: SqliteAccounts) -> None:
    for name in ("b", "a"):
        registry.put_record(WorkspaceRecord(name, {"timezone": "UTC"}, added=True))
    registry.put_record(WorkspaceRecord("b", {"hide": ["X/**"]}))
    assert registry.records() == [
        WorkspaceRecord("b", {"hide": ["X/**"]}),
        WorkspaceRecord("a", {"timezone": "UTC"}, True),
    ]
    assert registry.drop_record("b")
    assert not registry.drop_record("b")
    assert [record.location for record in registry.records()] == ["a"]


def test_a_secret_is_the_same_for_everybody_and_different_for_every_use(
    registry: SqliteAccounts, tmp_path: Path
) -> None:
    secret = registry.secret("sessions")
    assert len(secret) == 32
    assert registry.secret("cookies") != secret
    again = SqliteAccounts.open(tmp_path)
    assert again.secret("sessions") == secret
    again.close()


def test_nobody_else_on_the_machine_can_read_it(registry: SqliteAccounts, tmp_path: Path) -> None:
    registry.add_token(PHONE)
    for name in os.listdir(tmp_path):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) & 0o077 == 0, name


def test_a_file_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    SqliteAccounts.open(tmp_path).close()
    (tmp_path / "registry.db").chmod(0o644)
    SqliteAccounts.open(tmp_path).close()
    assert stat.S_IMODE((tmp_path / "registry.db").stat().st_mode) == 0o600


def test_one_that_a_newer_program_wrote_is_refused(tmp_path: Path) -> None:
    registry = SqliteAccounts.open(tmp_path)
    registry._db.execute("pragma user_version = 99")
    registry.close()
    with pytest.raises(Unavailable, match="newer"):
        SqliteAccounts.open(tmp_path)
