"""The audit log: its lines, its file, and that nothing is missing from it."""

import json
import logging
import multiprocessing
import resource
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.engine.parts import desk, drop, put, write

from notewright import engine
from notewright.engine import Plan, commit
from notewright.server.audit import ALL_MINUTE, EACH_MINUTE, Audit, audit_file
from notewright.server.visit import NOW, Visit


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="ascii").splitlines()]


def visit(address: str = "192.0.2.1", user: str = "", via: str = "bearer") -> Visit:
    """A request from there, of somebody if a name is given."""
    known = SimpleNamespace(principal=SimpleNamespace(user=user), via=via) if user else None
    return Visit("0123456789abcdef", {"client": (address, 4711), "notewright.visitor": known})


def test_a_change_set_leaves_one_line_that_says_who_did_what_where_and_no_text(tmp_path: Path) -> None:
    audit = Audit(tmp_path / "audit.jsonl")
    ws = desk(heard=audit.wrote)
    write(ws, Old="a secret thought\n")
    before = NOW.set(visit(user="ann"))
    done = commit(ws, Plan((put(ws, "New.md", "another secret\n"), drop(ws, "Old.md")), "summary of a secret"))
    NOW.reset(before)
    (told,) = lines(tmp_path / "audit.jsonl")
    assert told.pop("time").endswith("Z")
    assert told == {
        "event": "write",
        "request": "0123456789abcdef",
        "address": "192.0.2.1",
        "change": done.id,
        "workspace": "desk",
        "user": "ann",
        "client": "desk",
        "surface": "notes",
        "tool": "write",
        "files": 2,
        "paths": ["New.md", "Old.md"],
    }


def test_an_undo_names_what_it_takes_back(tmp_path: Path) -> None:
    audit = Audit(tmp_path / "audit.jsonl")
    ws = desk(heard=audit.wrote)
    done = commit(ws, Plan((put(ws, "New.md", "text\n"),), "made"))
    engine.undo(ws, done.id or "")
    assert lines(tmp_path / "audit.jsonl")[1]["undoes"] == [done.id]


def test_a_change_set_of_very_many_files_names_some_and_counts_all(tmp_path: Path) -> None:
    audit = Audit(tmp_path / "audit.jsonl")
    ws = desk(heard=audit.wrote)
    commit(ws, Plan(tuple(put(ws, f"n{number}.md", "x") for number in range(250)), "made"))
    (told,) = lines(tmp_path / "audit.jsonl")
    assert told["files"] == 250 and len(told["paths"]) == 100


def test_the_file_is_for_its_owners_eyes_only(tmp_path: Path) -> None:
    file = tmp_path / "state" / "audit.jsonl"
    Audit(file).admin("backup", user="ann")
    assert file.stat().st_mode & 0o777 == 0o600 and file.parent.stat().st_mode & 0o777 == 0o700


def test_where_it_is_can_be_said_and_off_is_nowhere(tmp_path: Path) -> None:
    assert audit_file(None, tmp_path) == tmp_path / "audit.jsonl"
    assert audit_file("/var/log/notes.jsonl", tmp_path) == Path("/var/log/notes.jsonl")
    nowhere = Audit(audit_file("off", tmp_path))
    nowhere.admin("backup")
    nowhere.refused(visit(), "unauthenticated", 401)
    nowhere.came(visit(user="ann"))
    assert list(tmp_path.iterdir()) == []


def _write_many(file: Path, who: str, count: int, most_bytes: int) -> None:
    audit = Audit(file, most_bytes=most_bytes, kept=99)
    for number in range(count):
        audit.admin("backup", user=who, number=number, filling="x" * 300)


def test_several_processes_share_it_and_nothing_is_lost_while_it_is_moved_away(tmp_path: Path) -> None:
    file, spawn = tmp_path / "audit.jsonl", multiprocessing.get_context("fork")
    at_work = [spawn.Process(target=_write_many, args=(file, f"p{who}", 300, 20_000)) for who in range(4)]
    for process in at_work:
        process.start()
    for process in at_work:
        process.join(60)
    files = list(tmp_path.iterdir())
    told = [(line["user"], line["number"]) for each in files for line in lines(each)]
    assert sorted(told) == sorted((f"p{who}", number) for who in range(4) for number in range(300))
    assert 10 < len(files) < 60 and all(each.stat().st_size < 25_000 for each in files)


def test_grown_large_it_is_moved_away_and_five_old_ones_are_kept(tmp_path: Path) -> None:
    audit = Audit(tmp_path / "audit.jsonl", most_bytes=1000)
    for number in range(200):
        audit.admin("backup", number=number)
    names = {file.name for file in tmp_path.iterdir()}
    assert names == {"audit.jsonl", *(f"audit.jsonl.{number}" for number in range(1, 6))}
    kept = [line["number"] for number in range(5, 0, -1) for line in lines(tmp_path / f"audit.jsonl.{number}")]
    assert [*kept, *(line["number"] for line in lines(tmp_path / "audit.jsonl"))] == list(range(kept[0], 200))


def test_moved_away_by_somebody_else_it_begins_anew(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    audit = Audit(file)
    audit.admin("backup", number=1)
    file.rename(tmp_path / "audit.jsonl-20260301")
    audit.admin("backup", number=2)
    file.unlink()
    audit.admin("backup", number=3)
    assert [line["number"] for line in lines(file)] == [3]
    assert [line["number"] for line in lines(tmp_path / "audit.jsonl-20260301")] == [1]


def test_a_full_disk_fails_no_call_and_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    audit = Audit(Path("/dev/full"))
    ws = desk(heard=audit.wrote)
    with caplog.at_level(logging.ERROR):
        for number in range(3):
            assert commit(ws, Plan((put(ws, f"n{number}.md", "x"),), "made")).id
    assert [record.getMessage() for record in caplog.records] == [
        "the audit log cannot be written: No space left on device"
    ]


def _write_with_little_room(file: Path) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    audit = Audit(file)
    resource.setrlimit(resource.RLIMIT_FSIZE, (150, resource.RLIM_INFINITY))
    for number in range(4):
        audit.admin("backup", number=number)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    audit.admin("backup", number=4)


def test_a_line_that_was_torn_does_not_spoil_the_next(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    process = multiprocessing.get_context("fork").Process(target=_write_with_little_room, args=(file,))
    process.start()
    process.join(20)
    assert process.exitcode == 0
    whole = file.read_text(encoding="ascii").splitlines()
    assert json.loads(whole[0])["number"] == 0 and json.loads(whole[-1])["number"] == 4
    with pytest.raises(ValueError):
        json.loads(whole[1])


def test_a_flood_of_refusals_from_one_address_is_counted_instead_of_written(tmp_path: Path) -> None:
    now = [1000.0]
    audit = Audit(tmp_path / "audit.jsonl", clock=lambda: now[0])
    for _ in range(1000):
        audit.refused(visit(), "unauthenticated", 401)
    audit.refused(visit(), "host", 421)
    now[0] += 61
    audit.refused(visit(), "unauthenticated", 401)
    told = lines(tmp_path / "audit.jsonl")
    assert [line["reason"] for line in told] == ["unauthenticated"] * EACH_MINUTE + ["host", "unauthenticated"]
    assert told[-1]["unwritten"] == 1000 - EACH_MINUTE and "unwritten" not in told[0]
    assert told[-1]["address"] == "192.0.2.1" and told[-1]["status"] == 401


def test_a_flood_from_very_many_addresses_is_bounded_too(tmp_path: Path) -> None:
    audit = Audit(tmp_path / "audit.jsonl", clock=lambda: 1000.0)
    for number in range(10_000):
        audit.refused(visit(f"2001:db8::{number:x}"), "unauthenticated", 401)
    assert len(lines(tmp_path / "audit.jsonl")) == ALL_MINUTE


def test_somebody_is_written_down_when_first_seen_at_an_address(tmp_path: Path) -> None:
    audit = Audit(tmp_path / "audit.jsonl")
    for address, user, via in (("a", "ann", "bearer"), ("a", "ann", "bearer"), ("b", "ann", "bearer"),
                               ("b", "ann", "cookie"), ("b", "bob", "bearer"), ("b", "me", "local")):  # fmt: skip
        audit.came(visit(address, user, via))
    told = [(line["event"], line["address"], line["user"], line["via"]) for line in lines(tmp_path / "audit.jsonl")]
    assert told == [
        ("sign_in", "a", "ann", "bearer"),
        ("sign_in", "b", "ann", "bearer"),
        ("sign_in", "b", "ann", "cookie"),
        ("sign_in", "b", "bob", "bearer"),
    ]


def test_a_secret_that_strayed_into_it_is_not_written(tmp_path: Path) -> None:
    secret = "nw_" + "x" * 43
    Audit(tmp_path / "audit.jsonl").admin("token_added", user="ann", token=secret)
    assert "xxxx" not in (tmp_path / "audit.jsonl").read_text(encoding="ascii")
