"""What a write costs, in things that can be counted: statements, transactions, files synced to disk."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.conftest import MakeWorkspace

from notewright.engine.move import move
from notewright.engine.workspace import Workspace
from notewright.engine.write import create, edit_note
from notewright.notes.edits.edit import Append
from notewright.notes.path import NotePath

LOG = NotePath("f/Log.md")
TEXT = "# Log\n\n" + "\n\n".join(f"paragraph {number} of many words #tag" for number in range(30)) + "\n"


@pytest.fixture
def ws(workspace: MakeWorkspace) -> Workspace:
    linking = {f"f/{number}.md": f"see [[Target]], {number}\n" for number in range(20)}
    made = workspace({str(LOG): TEXT, "Target.md": "# Target\n", **linking})
    made.follower.wait(20)
    made.follower.close()  # nobody else asks
    for number in range(3):  # connections are open, and every word of the next one is known
        edit_note(made, LOG, [Append(f"line {number} of 3 and 4 and 5\n")])
    return made


def statements(ws: Workspace, act: Callable[[], object]) -> dict[str, list[str]]:
    """What was asked of the ledger and of the index while this was done."""
    connections: Any = ws.index
    pool = connections._connections
    parts = {
        "ledger": [ws.ledger._db],  # type: ignore[attr-defined]
        "index": [pool._writer[1].db, *(con.db for _, con in pool._idle)],
    }
    found: dict[str, list[str]] = {name: [] for name in parts}
    for name, opened in parts.items():
        for db in opened:
            db.trace_v2(apsw.SQLITE_TRACE_STMT, lambda event, into=found[name]: into.append(event["sql"]))
    act()
    for opened in parts.values():
        for db in opened:
            db.trace_v2(0)
    return {name: [sql for sql in asked if "'main'" not in sql] for name, asked in found.items()}  # not FTS5's own


def test_an_append_is_two_transactions_of_the_ledger_one_of_them_synced_and_one_of_the_index(ws: Workspace) -> None:
    found = statements(ws, lambda: edit_note(ws, LOG, [Append("line 4\n")]))
    assert found["ledger"].count("commit") == 2
    assert found["ledger"].count("pragma synchronous = full") == 1
    assert found["index"].count("commit") == 1
    assert len(found["ledger"]) <= 22
    assert len(found["index"]) <= 20


def test_an_append_leaves_what_it_did_not_change_in_the_index_alone(ws: Workspace) -> None:
    found = statements(ws, lambda: edit_note(ws, LOG, [Append("line 5\n")]))["index"]
    assert not [sql for sql in found if sql.startswith(("insert into names", "insert into tags", "delete from files"))]
    assert not [sql for sql in found if "vocabulary" in sql]


def synced(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> list[str]:
    """Names of what our own calls sync, with what is laid beside a note told apart."""
    names, real = list[str](), os.fsync

    def fsync(file: int) -> None:
        real(file)
        names.append(Path(os.readlink(f"/proc/self/fd/{file}")).name.split("-")[0])

    monkeypatch.setattr(os, "fsync", fsync)
    act()
    monkeypatch.undo()
    return names


def test_a_write_syncs_the_new_bytes_and_then_the_folder(ws: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    for act in (
        lambda: edit_note(ws, LOG, [Append("more\n")]),
        lambda: create(ws, NotePath("f/New.md"), b"new\n"),
    ):
        assert synced(monkeypatch, act) == [".notewright", "f"]


def test_a_rename_syncs_each_note_and_each_folder_once(ws: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    names = synced(monkeypatch, lambda: move(ws, NotePath("Target.md"), "f/Other.md"))
    assert names[:-2] == [".notewright"] * 21  # the moved note and those that link to it
    assert sorted(names[-2:]) == sorted([Path(ws.store.full_path(NotePath("x"))).parent.name, "f"])
