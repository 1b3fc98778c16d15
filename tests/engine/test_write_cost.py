"""What a write costs, in things that can be counted: statements, transactions, files synced to disk."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.conftest import MakeWorkspace

from notewright import disk_sync
from notewright.disk_sync import Sync
from notewright.engine.indexing import filing
from notewright.engine.move import move
from notewright.engine.workspace import Workspace
from notewright.engine.write import create, edit_note
from notewright.errors import Unavailable
from notewright.notes.edits.edit import Append
from notewright.notes.model import Note
from notewright.notes.parse.parser import parse
from notewright.notes.path import NotePath
from notewright.stores.folder import paths

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


def test_an_append_is_two_transactions_of_the_ledger_and_one_of_the_index(ws: Workspace) -> None:
    found = statements(ws, lambda: edit_note(ws, LOG, [Append("line 4\n")]))
    assert found["ledger"][1] == "begin immediate" and found["ledger"].count("commit") == 1
    assert found["ledger"][-1].startswith("update change")  # commits by itself
    assert found["index"].count("commit") == 1
    assert len(found["ledger"]) <= 9
    assert len(found["index"]) <= 10


def test_a_new_note_is_closed_with_the_time_of_its_birth_without_a_question(ws: Workspace) -> None:
    found = statements(ws, lambda: create(ws, NotePath("f/New.md"), b"# New\n\nline 4\n"))
    assert len(found["ledger"]) <= 10
    assert not [sql for sql in found["ledger"][1:] if sql.startswith("select")]
    assert len(found["index"]) <= 18


def test_an_append_leaves_what_it_did_not_change_in_the_index_alone(ws: Workspace) -> None:
    found = statements(ws, lambda: edit_note(ws, LOG, [Append("line 5\n")]))["index"]
    assert not [sql for sql in found if sql.startswith(("insert into names", "insert into tags", "delete from files"))]
    assert not [sql for sql in found if "vocabulary" in sql]


def order(ws: Workspace, monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> list[str]:
    """What is begun to be synced ("+"), known to be synced, parsed, given a name or committed, in this order."""
    found, real_rename, real_begin, real_wait = list[str](), paths._rename, Sync.__init__, Sync.wait
    names: dict[int, str] = {}  # of what is being synced

    def begin(sync: Sync, file: int, **what: Any) -> None:
        names[id(sync)] = Path(os.readlink(f"/proc/self/fd/{file}")).name.removesuffix("-wal").split("-")[0]
        found.append(f"+{names[id(sync)]}")
        real_begin(sync, file, **what)

    def wait(sync: Sync) -> None:
        real_wait(sync)
        found.append(names[id(sync)])

    def rename(*args: Any) -> None:
        real_rename(*args)
        found.append("named")

    def parsed(*args: Any) -> Note:
        found.append("parsed")
        return parse(*args)

    monkeypatch.setattr(filing, "parse", parsed)
    monkeypatch.setattr(Sync, "__init__", begin)
    monkeypatch.setattr(Sync, "wait", wait)
    monkeypatch.setattr(paths, "_rename", rename)
    parts = {"recorded": ws.ledger._db, "indexed": ws.index._connections._writer[1].db}  # type: ignore[attr-defined]
    for name, db in parts.items():
        db.set_commit_hook(lambda name=name: bool(found.append(name)))  # False: go on
    act()
    for db in parts.values():
        db.set_commit_hook(None)
    monkeypatch.undo()
    return found


@pytest.mark.parametrize("asynchronous", [True, False])
def test_the_row_and_the_bytes_are_synced_together_while_the_note_is_parsed_then_the_name_the_folder_and_the_end(
    ws: Workspace, monkeypatch: pytest.MonkeyPatch, asynchronous: bool
) -> None:
    for act in (
        lambda: edit_note(ws, LOG, [Append("more\n")]),
        lambda: create(ws, NotePath("f/New.md"), b"new\n"),
    ):
        monkeypatch.setattr(disk_sync, "_has_aio", asynchronous)
        done = order(ws, monkeypatch, act)
        assert done == [
            "+.notewright", "recorded", "+ledger.db", "parsed", "ledger.db", ".notewright",
            "named", "+f", "indexed", "f", "recorded",
        ]  # fmt: skip


def test_a_rename_lays_every_note_before_it_names_the_first_and_syncs_each_folder_once(
    ws: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = order(ws, monkeypatch, lambda: move(ws, NotePath("Target.md"), "f/Other.md"))
    root = Path(ws.store.full_path(LOG)).parent.parent.name
    done = [one for one in done if one != "parsed"]
    assert done[:3] == ["recorded", "+ledger.db", "ledger.db"]
    assert done[3:45] == ["+.notewright", ".notewright"] * 21  # the moved note, and those that link to it
    assert done[45:67] == ["named"] * 22  # and what is taken out of the old name
    assert done[67] == "indexed"
    assert sorted(done[68:70]) == sorted([f"+{root}", "+f"]) and sorted(done[70:72]) == sorted([root, "f"])
    assert done[72:] == ["recorded"]


@contextmanager
def failing(monkeypatch: pytest.MonkeyPatch, number: int) -> Iterator[None]:
    """This one of the syncs that are waited for fails."""

    def wait(sync: Sync) -> None:
        real(sync)
        waited.append(sync)
        if len(waited) == number:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    real, waited = Sync.wait, list[Sync]()
    with monkeypatch.context() as patch:
        patch.setattr(Sync, "wait", wait)
        yield


def test_a_change_whose_row_or_bytes_could_not_be_synced_is_refused_and_does_not_happen_after_all(
    ws: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = ws.store.read(LOG).data
    for number in (1, 2):  # the row, the bytes
        with failing(monkeypatch, number), pytest.raises(Unavailable):
            edit_note(ws, LOG, [Append("refused\n")])
        assert ws.ledger.find_unfinished() == []
        edit_note(ws, LOG, [Append("next\n")])
    assert ws.store.read(LOG).data == before + b"next\nnext\n"
    assert not [name for name in os.listdir(ws.store.full_path(NotePath("f"))) if name.startswith(".")]


def test_a_folder_that_could_not_be_synced_is_told_with_the_change_and_the_next_write_completes_it(
    ws: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    with failing(monkeypatch, 3), pytest.raises(Unavailable) as told:  # row and bytes are on disk, the folder is not
        edit_note(ws, LOG, [Append("in doubt\n")])
    (open_,) = ws.ledger.find_unfinished()
    assert told.value.details["change"] == open_.id
    edit_note(ws, LOG, [Append("next\n")])
    assert ws.ledger.find_unfinished() == []
    assert ws.store.read(LOG).data.endswith(b"in doubt\nnext\n")
