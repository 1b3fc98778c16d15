"""Taking back every kind of change, byte for byte, and doing it again."""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from tests.conftest import MakeWorkspace
from tests.engine.proving import differences

from notewright.engine.changes.history import undo, undo_since
from notewright.engine.daily import append_daily
from notewright.engine.dialects.cairn import patch_stamped, write_stamped
from notewright.engine.dialects.octarine import replace_with_copy
from notewright.engine.move import delete_marked, move, rename_heading, rename_tag
from notewright.engine.workspace import Workspace
from notewright.engine.write import change_path, change_text, create, delete, edit_note, overwrite, put
from notewright.errors import Conflict, NotFound
from notewright.ledger.base import Actor, ChangeQuery
from notewright.notes.edits.edit import Append
from notewright.notes.edits.properties import SetProperty
from notewright.notes.links.resolve import OBSIDIAN
from notewright.notes.path import NotePath

NOTES: dict[str, str | bytes] = {
    "Tea.md": '\ufeff---\r\ntags: [hot, drink]\r\nstatus: "draft"  # soon\r\n---\r\n# Tea\r\n\r\nLeaves. ^leaf\r\n',
    "Coffee.md": "See [[Tea#Tea]], [[Tea#^leaf]] and ![[pic.png]]. #drink\n",
    "Folder/Inner.md": "up [[../Tea]] and [here](../Coffee.md)\n",
    "Folder/deep/Other.md": "[[Inner]]\n\n",
    "pic.png": b"\x89PNG\x00\xff",
    "Board.canvas": '{"nodes":[{"type":"file","file":"Tea.md"}]}',
    ".obsidian/daily-notes.json": '{"folder": "Days"}',
}
TEA, COFFEE, NEW = NotePath("Tea.md"), NotePath("Coffee.md"), NotePath("Made/new/New.md")
DAY = date(2026, 5, 4)


def write(ws: Workspace) -> None:
    seen = ws.store.read(TEA).version
    overwrite(ws, TEA, b"all new\n", seen=seen)


KINDS: dict[str, Callable[[Workspace], object]] = {
    "create": lambda ws: create(ws, NEW, b"new\n"),
    "create an attachment": lambda ws: create(ws, NotePath("a/b.bin"), b"\x00\xff"),
    "overwrite": write,
    "put": lambda ws: put(ws, TEA, b"last writer\n"),
    "edit": lambda ws: edit_note(ws, TEA, [Append("more")]),
    "several edits": lambda ws: edit_note(ws, TEA, [Append("more"), SetProperty("status", "done")]),
    "a property": lambda ws: edit_note(ws, COFFEE, [SetProperty("kind", ["a", "b"])]),
    "delete to the trash": lambda ws: delete(ws, TEA),
    "delete an attachment": lambda ws: delete(ws, NotePath("pic.png")),
    "delete for good": lambda ws: delete(ws, TEA, trash=False),
    "delete with marks": lambda ws: delete_marked(ws, TEA, lambda target: f"{target} (gone)", policy=OBSIDIAN),
    "move a note": lambda ws: move(ws, TEA, "Drinks/Green tea"),
    "change only the case": lambda ws: move(ws, TEA, "TEA"),
    "move a folder": lambda ws: move(ws, NotePath("Folder"), "Elsewhere/Folder"),
    "move an attachment": lambda ws: move(ws, NotePath("pic.png"), "Pictures/"),
    "relocate": lambda ws: change_path(ws, TEA, NotePath("Away/Tea.md"), lambda text: f"{text}moved\n"),
    "a heading": lambda ws: rename_heading(ws, TEA, "Tea", "Green tea"),
    "a tag": lambda ws: rename_tag(ws, "drink", "beverage"),
    "a daily note": lambda ws: append_daily(ws, DAY, "- did it"),
    "a copy kept beside": lambda ws: replace_with_copy(ws, TEA, b"new\n", overwrite=True, make_folders=True),
    "a stamped note": lambda ws: write_stamped(ws, NEW, "text\n", tags=["x"], aliases=["y"]),
    "a stamped patch": lambda ws: patch_stamped(ws, COFFEE, Append("more")),
}


def everything(folder: Path) -> dict[str, bytes | None]:
    """Every file with its bytes and every folder, what is hidden included."""
    found = sorted(folder.rglob("*"))
    return {path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else None for path in found}


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_done_is_undone_and_done_again_byte_for_byte(
    workspace: MakeWorkspace, tmp_path: Path, kind: str
) -> None:
    ws = workspace(NOTES)
    before = everything(tmp_path / "Main")
    KINDS[kind](ws)
    after = everything(tmp_path / "Main")
    assert after != before
    last = ws.ledger.find_changes(ChangeQuery(limit=1))[0].id
    undone = undo(ws, last)
    assert everything(tmp_path / "Main") == before
    assert undone.done and undone.done.id
    again = undo(ws, undone.done.id)
    assert everything(tmp_path / "Main") == after
    assert again.done and again.done.id
    undo(ws, last)
    assert everything(tmp_path / "Main") == before
    assert differences(ws) == {}


FOREIGN = b"\x00 wholly another thing\n"


@pytest.mark.parametrize("kind", KINDS)
def test_an_undo_never_loses_what_somebody_wrote_since(workspace: MakeWorkspace, tmp_path: Path, kind: str) -> None:
    """Somebody rewrites every file of the change: those bytes stay, under the old name or the new."""
    ws = workspace(NOTES)
    KINDS[kind](ws)
    last = ws.ledger.find_changes(ChangeQuery(limit=1))[0]
    rewritten = [step.path for step in last.steps if step.after is not None] or [last.steps[0].path]
    for path in rewritten:
        (tmp_path / "Main" / path).write_bytes(FOREIGN)
    settle(tmp_path)
    before = everything(tmp_path / "Main")
    try:
        undo(ws, last.id)
    except Conflict as refused:
        assert "outside Notewright" in refused.message or "nothing of that is left" in refused.message
        assert everything(tmp_path / "Main") == before
        assert len(ws.ledger.find_changes(ChangeQuery())) == 1 and ws.ledger.find_unfinished() == []
    after = [data for data in everything(tmp_path / "Main").values() if data is not None]
    assert sum(FOREIGN in data for data in after) == len(rewritten)


def test_an_outside_edit_elsewhere_in_the_note_stays_when_a_move_is_undone(
    workspace: MakeWorkspace, tmp_path: Path
) -> None:
    ws = workspace({"Old.md": "one\ntwo\nthree\n", "L.md": "first\n\nsee [[Old]]\n\nlast\n"})
    moved = move(ws, NotePath("Old.md"), "New").change_id
    assert moved
    (tmp_path / "Main" / "L.md").write_text("FIRST\n\nsee [[New]]\n\nlast\nmore\n")
    (tmp_path / "Main" / "New.md").write_text("one\ntwo and a half\nthree\n")
    settle(tmp_path)
    undo(ws, moved)
    assert everything(tmp_path / "Main") == {
        "L.md": b"FIRST\n\nsee [[Old]]\n\nlast\nmore\n", "Old.md": b"one\ntwo and a half\nthree\n",
    }  # fmt: skip


def test_an_outside_edit_at_the_same_place_refuses_the_undo_and_is_named(
    workspace: MakeWorkspace, tmp_path: Path
) -> None:
    ws = workspace({"A.md": "one\ntwo\nthree\n", "B.md": "b\n"})
    done = change_text(ws, NotePath("A.md"), lambda text: text.replace("two", "2")).change_id
    assert done
    (tmp_path / "Main" / "A.md").write_text("one\nzwei\nthree\n")
    settle(tmp_path)
    with pytest.raises(Conflict, match=r"A\.md was changed since at the same place, outside Notewright"):
        undo(ws, done)
    assert (tmp_path / "Main" / "A.md").read_text() == "one\nzwei\nthree\n"


def settle(place: Path) -> None:
    """As if nobody had written for a while: a note that is being written is waited for."""
    for file in (place / "Main").rglob("*"):
        if file.is_file():
            os.utime(file, (1_700_000_000, 1_700_000_000))


def test_everything_of_one_client_goes_and_the_work_of_another_stays(workspace: MakeWorkspace, tmp_path: Path) -> None:
    ws = workspace(NOTES)
    ann, bob = ws.by(Actor("u", "ann", "notes", "x")), ws.by(Actor("u", "bob", "notes", "x"))
    bobs = NotePath("Bob.md")
    create(bob, bobs, b"one\n\ntwo\n\nthree\n")
    with_bob = everything(tmp_path / "Main")
    change_text(ann, bobs, lambda text: text.replace("one", "ann was here"))
    move(ann, TEA, "Chai")
    delete(ann, NotePath("pic.png"))
    change_text(bob, bobs, lambda text: text + "\nbob again\n")
    append_daily(ann, DAY, "ann's day")
    undone = undo_since(ws, 0, client="ann")
    assert len(undone.changes) == 4
    assert everything(tmp_path / "Main") == {**with_bob, "Bob.md": b"one\n\ntwo\n\nthree\n\nbob again\n"}
    with pytest.raises(NotFound):
        undo_since(ws, 0, client="ann")


def test_undoing_since_a_time_leaves_what_was_before(workspace: MakeWorkspace, tmp_path: Path) -> None:
    ws = workspace({"A.md": "a\n"})
    now = time.time()
    for ago in (300, 200, 100):
        edit_note(replace(ws, clock=lambda ago=ago: now - ago), NotePath("A.md"), [Append(f"{ago} ago")])
    undo_since(ws, now - 200)
    assert (tmp_path / "Main" / "A.md").read_text() == "a\n300 ago"
