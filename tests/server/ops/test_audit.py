"""The audit log: its lines, its file, and that nothing is missing from it."""

import json
import logging
import multiprocessing
import re
import resource
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.engine.parts import drop, memory_workspace, put, write
from tests.server.watched import watched
from tests.waiting import eventually

from notewright.engine.changes.commit import commit
from notewright.engine.changes.history import undo
from notewright.engine.changes.plan import Plan
from notewright.ledger.base import ChangeQuery
from notewright.server.ops.audit_log import (
    ALL_REFUSALS_PER_MINUTE,
    MAX_FILE_BYTES,
    MAX_OLD_FILES,
    MAX_PATHS,
    REFUSALS_PER_MINUTE,
    AuditLog,
    audit_file,
)
from notewright.server.request_context import CURRENT_REQUEST, RequestContext


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="ascii").splitlines()]


def visit(address: str = "192.0.2.1", user: str = "", via: str = "bearer") -> RequestContext:
    """A request from there, of somebody if a name is given."""
    known = SimpleNamespace(principal=SimpleNamespace(user=user), via=via) if user else None
    return RequestContext("0123456789abcdef", {"client": (address, 4711), "notewright.visitor": known})


def test_a_change_set_leaves_one_line_that_says_who_did_what_where_and_no_text(tmp_path: Path) -> None:
    audit = AuditLog(tmp_path / "audit.jsonl")
    ws = memory_workspace(on_change=audit.record_change)
    write(ws, Old="a secret thought\n")
    before = CURRENT_REQUEST.set(visit(user="ann"))
    done = commit(ws, Plan((put(ws, "New.md", "another secret\n"), drop(ws, "Old.md")), "summary of a secret"))
    CURRENT_REQUEST.reset(before)
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
    audit = AuditLog(tmp_path / "audit.jsonl")
    ws = memory_workspace(on_change=audit.record_change)
    done = commit(ws, Plan((put(ws, "New.md", "text\n"),), "made"))
    undo(ws, done.id or "")
    assert lines(tmp_path / "audit.jsonl")[1]["undoes"] == [done.id]


def test_a_change_set_of_very_many_files_names_some_and_counts_all(tmp_path: Path) -> None:
    audit = AuditLog(tmp_path / "audit.jsonl")
    ws = memory_workspace(on_change=audit.record_change)
    commit(ws, Plan(tuple(put(ws, f"n{number}.md", "x") for number in range(250)), "made"))
    (told,) = lines(tmp_path / "audit.jsonl")
    assert told["files"] == 250 and len(told["paths"]) == 100


def test_the_file_is_for_its_owners_eyes_only(tmp_path: Path) -> None:
    file = tmp_path / "state" / "audit.jsonl"
    AuditLog(file).record_admin("backup", user="ann")
    assert file.stat().st_mode & 0o777 == 0o600 and file.parent.stat().st_mode & 0o777 == 0o700


def test_where_it_is_can_be_said_and_off_is_nowhere(tmp_path: Path) -> None:
    assert audit_file(None, tmp_path) == tmp_path / "audit.jsonl"
    assert audit_file("/var/log/notes.jsonl", tmp_path) == Path("/var/log/notes.jsonl")
    nowhere = AuditLog(audit_file("off", tmp_path))
    nowhere.record_admin("backup")
    nowhere.record_refusal(visit(), "unauthenticated", 401)
    nowhere.record_visitor(visit(user="ann"))
    assert list(tmp_path.iterdir()) == []


def _write_many(file: Path, who: str, count: int, most_bytes: int) -> None:
    audit = AuditLog(file, most_bytes=most_bytes, kept=99)
    for number in range(count):
        audit.record_admin("backup", user=who, number=number, filling="x" * 300)


@pytest.mark.slow
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
    audit = AuditLog(tmp_path / "audit.jsonl", most_bytes=1000)
    for number in range(200):
        audit.record_admin("backup", number=number)
    names = {file.name for file in tmp_path.iterdir()}
    assert names == {"audit.jsonl", *(f"audit.jsonl.{number}" for number in range(1, 6))}
    kept = [line["number"] for number in range(5, 0, -1) for line in lines(tmp_path / f"audit.jsonl.{number}")]
    assert [*kept, *(line["number"] for line in lines(tmp_path / "audit.jsonl"))] == list(range(kept[0], 200))


def test_moved_away_by_somebody_else_it_begins_anew(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    audit = AuditLog(file)
    audit.record_admin("backup", number=1)
    file.rename(tmp_path / "audit.jsonl-20260301")
    audit.record_admin("backup", number=2)
    file.unlink()
    audit.record_admin("backup", number=3)
    assert [line["number"] for line in lines(file)] == [3]
    assert [line["number"] for line in lines(tmp_path / "audit.jsonl-20260301")] == [1]


def test_a_full_disk_fails_no_call_and_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    audit = AuditLog(Path("/dev/full"))
    ws = memory_workspace(on_change=audit.record_change)
    with caplog.at_level(logging.ERROR):
        for number in range(3):
            assert commit(ws, Plan((put(ws, f"n{number}.md", "x"),), "made")).id
    assert [record.getMessage() for record in caplog.records] == [
        "the audit log cannot be written: No space left on device"
    ]


def _write_with_little_room(file: Path) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    audit = AuditLog(file)
    resource.setrlimit(resource.RLIMIT_FSIZE, (150, resource.RLIM_INFINITY))
    for number in range(4):
        audit.record_admin("backup", number=number)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    audit.record_admin("backup", number=4)


@pytest.mark.slow
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
    audit = AuditLog(tmp_path / "audit.jsonl", clock=lambda: now[0])
    for _ in range(1000):
        audit.record_refusal(visit(), "unauthenticated", 401)
    audit.record_refusal(visit(), "host", 421)
    now[0] += 61
    audit.record_refusal(visit(), "unauthenticated", 401)
    told = lines(tmp_path / "audit.jsonl")
    assert [line["reason"] for line in told] == ["unauthenticated"] * REFUSALS_PER_MINUTE + ["host", "unauthenticated"]
    assert told[-1]["unwritten"] == 1000 - REFUSALS_PER_MINUTE and "unwritten" not in told[0]
    assert told[-1]["address"] == "192.0.2.1" and told[-1]["status"] == 401


def test_a_flood_from_very_many_addresses_is_bounded_too(tmp_path: Path) -> None:
    audit = AuditLog(tmp_path / "audit.jsonl", clock=lambda: 1000.0)
    for number in range(10_000):
        audit.record_refusal(visit(f"2001:db8::{number:x}"), "unauthenticated", 401)
    assert len(lines(tmp_path / "audit.jsonl")) == ALL_REFUSALS_PER_MINUTE


def test_somebody_is_written_down_when_first_seen_at_an_address(tmp_path: Path) -> None:
    audit = AuditLog(tmp_path / "audit.jsonl")
    for address, user, via in (("a", "ann", "bearer"), ("a", "ann", "bearer"), ("b", "ann", "bearer"),
                               ("b", "ann", "cookie"), ("b", "bob", "bearer"), ("b", "me", "local")):  # fmt: skip
        audit.record_visitor(visit(address, user, via))
    told = [(line["event"], line["address"], line["user"], line["via"]) for line in lines(tmp_path / "audit.jsonl")]
    assert told == [
        ("sign_in", "a", "ann", "bearer"),
        ("sign_in", "b", "ann", "bearer"),
        ("sign_in", "b", "ann", "cookie"),
        ("sign_in", "b", "bob", "bearer"),
    ]


def test_a_secret_that_strayed_into_it_is_not_written(tmp_path: Path) -> None:
    secret = "nw_" + "x" * 43
    AuditLog(tmp_path / "audit.jsonl").record_admin("token_added", user="ann", token=secret)
    assert "xxxx" not in (tmp_path / "audit.jsonl").read_text(encoding="ascii")


WRITES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("notes", "write", {"path": "Heron", "content": "one [[Reed]]\n"}),
    ("notes", "write", {"path": "Reed", "content": "two\n"}),
    ("notes", "edit", {"path": "Reed", "edits": [{"append": "more"}]}),
    ("notes", "move", {"from": "Reed", "to": "Sedge"}),
    ("notes", "daily", {"append": "seen"}),
    ("notes", "delete", {"path": "Sedge"}),
    ("cairn", "cairn_write", {"path": "crane", "content": "grey"}),
    ("obsidian", "create_note", {"name": "Stork", "content": "white"}),
    ("second_brain", "write", {"path": "ibis.md", "content": "black"}),
    ("octarine", "octarine_write_note", {"workspace": "Private Diary", "note_path": "Egret.md", "content": "pale"}),
)


@pytest.mark.slow
def test_every_write_over_http_is_in_it_once_with_who_and_where(tmp_path: Path) -> None:
    with watched(tmp_path) as server:
        token = server.token("anna")
        for surface, tool, args in WRITES:
            with server.client(surface, token) as client:
                client(tool, **args)
        with server.client("notes", token) as client:
            newest = client("history", limit=1)
            client("undo", change=re.findall(r"\b[a-z0-9]{8}\b", newest)[0])
            client.call("write", {"path": "Heron", "content": "refused: it exists"})
        history = server.site.library.default.ledger.find_changes(ChangeQuery(limit=100))
        told = [line for line in server.audit() if line["event"] == "write"]
    assert [line["change"] for line in told] == [change.id for change in reversed(history)]
    assert [(line["surface"], line["tool"]) for line in told] == [
        *((surface, tool) for surface, tool, _ in WRITES),
        ("notes", "undo"),
    ]
    for line, change in zip(told, reversed(history), strict=True):
        assert line["paths"] == [step.path for step in change.steps] and line["files"] == len(change.steps)
        assert (line["user"], line["client"], line["workspace"]) == ("anna", "tester", "private-diary")
        assert re.fullmatch("[0-9a-f]{16}", line["request"]) and line["address"] == "127.0.0.1"
    text = json.dumps(told)
    assert not any(word in text for word in ("grey", "white", "black", "pale", "seen", "refused", token))


@pytest.mark.slow
def test_who_comes_and_who_is_turned_away_is_in_it(tmp_path: Path) -> None:
    with watched(tmp_path) as server:
        reader = server.token("reader", read_only=True, surfaces=("notes",))
        server.get("/mcp/notes")
        server.get("/mcp/notes", authorization="Bearer nw_" + "wrong" * 8)
        server.get("/healthz", host="evil.example")
        server.get("/healthz", origin="https://evil.example")
        with server.client("notes", reader) as notes:
            notes.call("write", {"path": "Heron", "content": "x"})
            notes.client.post("/mcp/lens", json={})
            notes.client.post("/w/nowhere/mcp/notes", json={})
        told = eventually(lambda: len(server.audit()) >= 8 and server.audit())
    seen = [
        (line["event"], line.get("reason") or line["via"], line.get("status"), line.get("user", "")) for line in told
    ]
    assert sorted(seen, key=str) == [
        ("refused", "forbidden", 403, "reader"),
        ("refused", "hidden", 404, "reader"),
        ("refused", "host", 421, ""),
        ("refused", "invalid_token", 401, ""),
        ("refused", "origin", 403, ""),
        ("refused", "read_only", 200, "reader"),
        ("refused", "unauthenticated", 401, ""),
        ("sign_in", "bearer", None, "reader"),
    ]
    assert all(line["address"] == "127.0.0.1" and line["request"] for line in told)
    assert [(line["reason"], line["tool"]) for line in told if "tool" in line] == [("read_only", "write")]
    assert not any(word in json.dumps(told) for word in ("wrong", reader, "evil.example", "nw_"))


@pytest.mark.slow
def test_behind_a_trusted_proxy_the_address_is_that_of_the_client(tmp_path: Path) -> None:
    with watched(tmp_path, http_trusted_proxies="127.0.0.1") as server:
        token = server.token("anna")
        server.get("/mcp/notes", **{"x-forwarded-for": "203.0.113.9"})
        with server.client("notes", token) as notes:
            notes.client.headers["x-forwarded-for"] = "203.0.113.7"
            notes("write", path="Heron", content="x")
        told = eventually(lambda: len(server.audit()) >= 4 and server.audit())
    assert {(line["event"], line["address"]) for line in told} >= {
        ("refused", "203.0.113.9"),
        ("write", "203.0.113.7"),
        ("sign_in", "203.0.113.7"),
    }


@pytest.mark.slow
def test_turned_off_nothing_is_kept_and_everything_works(tmp_path: Path) -> None:
    with watched(tmp_path, audit_log="off") as server:
        with server.client("notes") as notes:
            notes("write", path="Heron", content="x")
        assert server.get("/healthz", host="evil.example").status_code == 421
        assert not (server.state / "audit.jsonl").exists()


@pytest.mark.slow
def test_it_is_where_the_setting_says(tmp_path: Path) -> None:
    with watched(tmp_path, audit_log=str(tmp_path / "log" / "notes.jsonl")) as server:
        with server.client("notes") as notes:
            notes("write", path="Heron", content="x")
        assert [line["event"] for line in lines(tmp_path / "log" / "notes.jsonl")] == ["write"]


def test_the_guide_shows_lines_as_they_are_and_the_bounds_that_hold(tmp_path: Path) -> None:
    guide = (Path(__file__).resolve().parents[3] / "docs" / "guides" / "operations.md").read_text(encoding="utf-8")
    shown = [json.loads(line) for line in guide.splitlines() if line.startswith('    {"time": "…", "event"')]
    audit, ann = AuditLog(tmp_path / "audit.jsonl"), visit(user="anna")
    commit(ws := memory_workspace(on_change=audit.record_change), Plan((put(ws, "Tea.md", "text\n"),), "made"))
    audit.record_refusal(visit(), "invalid_token", 401)
    audit.record_visitor(ann)
    audit.record_admin("token_added", user="anna", token="laptop")
    told = {line["event"]: line for line in lines(tmp_path / "audit.jsonl")}
    of_a_request = {"request", "address"}
    for line in shown:
        assert set(line) - of_a_request == set(told[line["event"]]) - of_a_request
    assert {line["event"] for line in shown} == set(told)
    assert (
        f"reason {REFUSALS_PER_MINUTE} refusals a minute" in guide
        and f"of all together {ALL_REFUSALS_PER_MINUTE}" in guide
    )
    assert (
        f"Over {MAX_FILE_BYTES // 1_000_000} MB" in guide and MAX_OLD_FILES == 5 and f"{MAX_PATHS} are named" in guide
    )
