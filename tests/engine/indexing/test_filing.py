"""From the store into the index, while others write."""

import os
import shutil
from pathlib import Path

import pytest
from tests.tasks.agent import at_work

from notewright.engine.indexing.filing import file_changes, file_unless_written, find_changes, read_for_index
from notewright.engine.workspace import Workspace
from notewright.engine.write import delete, edit_note
from notewright.notes.edits.edit import Append
from notewright.notes.path import NotePath

A, B = NotePath("A.md"), NotePath("B.md")


def stamps(ws: Workspace) -> dict[str, str]:
    return {path: filed.stamp for path in (A, B) if (filed := ws.index.find_file(path))}


def test_a_change_of_ours_in_the_very_moment_of_filing_stays(workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    ws = workspace({"A.md": "old\n"})
    ws.follower.wait(10)
    before, read, lock = stamps(ws), read_for_index(ws.store, ws.store.stat(A)), ws.store.lock

    def lock_late(*args: object, **options: object) -> object:
        monkeypatch.undo()
        edit_note(ws, A, [Append("new\n")])
        return lock()

    monkeypatch.setattr(ws.store, "lock", lock_late)
    file_unless_written(ws.store, ws.index, before, [read])
    assert ws.index.text(A) == "old\nnew\n"


def test_a_file_that_we_deleted_before_the_index_knew_it_does_not_come_back(
    workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ws = workspace({"A.md": "old\n"})
    ws.follower.wait(10)
    ws.follower.close()
    (tmp_path / "Main" / "B.md").write_text("new\n")
    read, lock = read_for_index(ws.store, ws.store.stat(B)), ws.store.lock

    def lock_late(*args: object, **options: object) -> object:
        monkeypatch.undo()
        delete(ws, B)
        return lock()

    monkeypatch.setattr(ws.store, "lock", lock_late)
    file_unless_written(ws.store, ws.index, stamps(ws), [read])
    assert ws.index.find_file(B) is None


def test_what_was_read_before_a_change_of_ours_does_not_come_over_it(workspace) -> None:
    ws = workspace({"A.md": "old\n"})
    ws.follower.wait(10)
    before, read = stamps(ws), read_for_index(ws.store, ws.store.stat(A))
    edit_note(ws, A, [Append("new\n")])
    file_unless_written(ws.store, ws.index, before, [read])
    assert ws.index.text(A) == "old\nnew\n"


def test_what_was_gone_when_it_was_looked_at_and_is_there_again_stays(workspace) -> None:
    ws = workspace({"A.md": "here\n"})
    ws.follower.wait(10)
    file_unless_written(ws.store, ws.index, stamps(ws), (), drop=[A, B])
    assert ws.index.text(A) == "here\n"


def test_what_went_since_it_was_read_is_forgotten(workspace, tmp_path: Path) -> None:
    ws = workspace({"A.md": "here\n"})
    ws.follower.wait(10)
    read = read_for_index(ws.store, ws.store.stat(A))
    os.remove(tmp_path / "Main" / "A.md")
    file_unless_written(ws.store, ws.index, stamps(ws), [read])
    assert ws.index.find_file(A) is None


def test_only_what_differs_is_filed(workspace, tmp_path: Path) -> None:
    ws = workspace({"A.md": "a\n", "B.md": "b\n"})
    ws.follower.wait(10)
    (tmp_path / "Main" / "B.md").write_text("changed\n")
    found = find_changes(ws.store, ws.index, [A, B])
    assert {filed.path for filed in file_changes(ws.store, ws.index, *found)} <= {B}
    assert ws.index.text(B) == "changed\n"


@pytest.mark.slow
def test_a_note_written_while_the_index_is_first_filled_is_found_by_the_next_call(tmp_path: Path) -> None:
    for attempt in range(8):
        place = tmp_path / str(attempt)
        place.mkdir()
        with at_work(place) as agent:
            agent("write", path="Decisions/No sandwiches", content="Bread only.\n")
            agent("edit", path="Start here", edits=[{"append": "[[No sandwiches]]\n"}])
            assert "← Start here.md" in agent("links", path="No sandwiches")
        shutil.rmtree(place)
