"""What was done, and taking it back."""

import random
import time
from contextlib import suppress
from dataclasses import replace
from typing import cast

import pytest
from tests.engine.parts import drop, memory_workspace, put, renaming, texts, write
from tests.memory_store import MemoryStore

from notewright.engine.access import Access
from notewright.engine.changes.commit import commit, edit
from notewright.engine.changes.history import diff_change, list_changes, preview_undo, undo, undo_since
from notewright.engine.changes.plan import Plan, Put
from notewright.engine.workspace import Workspace
from notewright.errors import Conflict, Forbidden, NotFound, Problem
from notewright.ledger.base import Actor, ChangeQuery
from notewright.notes.path import NotePath


def did(ws: Workspace, *steps: object, summary: str = "did") -> str:
    name = commit(ws, Plan(cast(tuple[Put, ...], steps), summary)).id
    assert name
    return name


def append(ws: Workspace, path: str, line: str) -> str:
    name = edit(ws, NotePath(path), lambda text: f"{text}{line}\n", summary=f"appended {line}").change_id
    assert name
    return name


def move(ws: Workspace, old: str, new: str) -> str:
    name = commit(ws, renaming(ws, old, new)).id
    assert name
    return name


def test_undoing_a_write_an_edit_and_a_delete_gives_the_bytes_back() -> None:
    ws = memory_workspace()
    write(ws, A="a\n", B="b\n")
    before = texts(ws)
    name = did(ws, put(ws, "A.md", "a2\n"), drop(ws, "B.md"), put(ws, "new/C.md", "c\n"))
    undo(ws, name)
    assert texts(ws) == before
    assert cast(MemoryStore, ws.store).disk.folders == set(), "the folder made for it is gone too"


def test_undoing_an_undo_does_it_again() -> None:
    ws = memory_workspace()
    write(ws, A="a\n")
    name = did(ws, put(ws, "A.md", "a2\n"))
    undone = undo(ws, name)
    assert undone.done and undone.done.id
    with pytest.raises(Conflict, match=undone.done.id):
        undo(ws, name)
    undo(ws, undone.done.id)
    assert texts(ws) == {"A.md": "a2\n"}
    undo(ws, name)
    assert texts(ws) == {"A.md": "a\n"}


def test_a_dry_run_shows_the_plan_and_changes_nothing() -> None:
    ws = memory_workspace()
    write(ws, A="a\n")
    name = did(ws, put(ws, "A.md", "a2\n"))
    shown = undo(ws, name, dry_run=True)
    assert shown.done is None
    assert shown.plan.steps == (Put(NotePath("A.md"), b"a\n", ws.store.read(NotePath("A.md"))),)
    assert texts(ws) == {"A.md": "a2\n"}
    assert len(ws.ledger.find_changes(ChangeQuery())) == 1


def test_later_changes_elsewhere_in_the_note_stay() -> None:
    ws = memory_workspace()
    write(ws, A="one\ntwo\nthree\n")
    name = append(ws, "A.md", "ours")
    write(ws, A="ONE\ntwo\nthree\nours\ntheirs\n")
    undo(ws, name)
    assert texts(ws) == {"A.md": "ONE\ntwo\nthree\ntheirs\n"}


def test_a_dry_run_can_be_looked_at_file_by_file() -> None:
    ws = memory_workspace()
    write(ws, A="a\nb\n", B="b\n", C="c\n")
    name = did(ws, put(ws, "A.md", "a2\nb\n"), drop(ws, "B.md"), put(ws, "N.md", "-- new\n"))
    moved = move(ws, "C.md", "D.md")
    told = {each.path: (each.kind, each.lines) for each in preview_undo(ws, undo(ws, name, dry_run=True))}
    assert told == {
        "A.md": ("changed", ("@@ -1,2 +1,2 @@", "-a2", "+a", " b")),
        "B.md": ("created", ("@@ -0,0 +1 @@", "+b")),
        "N.md": ("deleted", ("@@ -1 +0,0 @@", "--- new")),
    }
    (back,) = preview_undo(ws, undo(ws, moved, dry_run=True))
    assert (back.path, back.kind, back.source, back.lines) == ("C.md", "moved", "D.md", ())


def test_what_a_dry_run_does_to_hidden_notes_is_not_told() -> None:
    ws = memory_workspace()
    write(ws, A="a\n", Secret="b\n")
    name = did(ws, put(ws, "A.md", "a2\n"), drop(ws, "Secret.md"))
    undone = undo(ws, name, dry_run=True)
    narrow = replace(ws, access=Access(hide=("Secret*",)))
    assert [each.path for each in preview_undo(narrow, undone)] == ["A.md"]


def test_a_line_that_looks_like_the_head_of_a_diff_is_shown() -> None:
    ws = memory_workspace()
    write(ws, A="-- old\n")
    name = did(ws, put(ws, "A.md", "++ new\n"))
    assert diff_change(ws, name)[0].lines == ("@@ -1 +1 @@", "--- old", "+++ new")


def test_a_later_change_at_the_same_place_stands_in_the_way_and_is_named() -> None:
    ws = memory_workspace()
    write(ws, A="one\n")
    first = did(ws, put(ws, "A.md", "two\n"))
    second = did(ws.by(Actor("bob", "phone")), put(ws, "A.md", "three\n"))
    with pytest.raises(
        Conflict, match=f"A.md was changed since at the same place by phone .change {second}."
    ) as refused:
        undo(ws, first)
    (obstacle,) = refused.value.details["obstacles"]
    assert (obstacle.path, obstacle.change_id) == ("A.md", second)
    assert texts(ws) == {"A.md": "three\n"}


def test_a_change_from_outside_that_stands_in_the_way_is_said_to_be_that() -> None:
    ws = memory_workspace()
    name = did(ws, put(ws, "A.md", "new\n"))
    write(ws, A="new\nand more\n")
    with pytest.raises(Conflict, match="outside Notewright"):
        undo(ws, name)
    assert texts(ws) == {"A.md": "new\nand more\n"}


def test_what_stands_in_the_way_of_one_file_keeps_all_of_them() -> None:
    ws = memory_workspace()
    write(ws, A="a\n", B="b\n")
    name = did(ws, put(ws, "A.md", "a2\n"), put(ws, "B.md", "b2\n"))
    write(ws, B="b3\n")
    with pytest.raises(Conflict):
        undo(ws, name)
    assert texts(ws) == {"A.md": "a2\n", "B.md": "b3\n"}


def test_undoing_a_move_brings_links_back_and_keeps_what_came_into_the_note() -> None:
    ws = memory_workspace()
    write(ws, Old="the note\n", L="see [[Old]]\n")
    name = move(ws, "Old.md", "New.md")
    write(ws, New="the note\nand more\n", L="top\nsee [[New]]\n")
    undo(ws, name)
    assert texts(ws) == {"Old.md": "the note\nand more\n", "L.md": "top\nsee [[Old]]\n"}


def test_undoing_a_move_whose_old_name_is_taken_is_refused() -> None:
    ws = memory_workspace()
    write(ws, Old="the note\n")
    name = move(ws, "Old.md", "New.md")
    write(ws, Old="somebody's\n")
    with pytest.raises(Conflict, match=r"Old\.md is there again"):
        undo(ws, name)


def test_an_edit_is_undone_where_the_note_is_now() -> None:
    ws = memory_workspace()
    write(ws, Old="one\n")
    name = append(ws, "Old.md", "two")
    move(ws, "Old.md", "New.md")
    undo(ws, name)
    assert texts(ws) == {"New.md": "one\n"}


def test_undoing_the_creation_of_a_note_that_was_moved_names_the_move() -> None:
    ws = memory_workspace()
    name = did(ws, put(ws, "Old.md", "one\n"))
    moved = move(ws, "Old.md", "New.md")
    with pytest.raises(Conflict, match=moved):
        undo(ws, name)


def test_a_deleted_note_comes_back_from_the_trash_and_from_an_emptied_one() -> None:
    ws = memory_workspace()
    write(ws, A="a\n", B="b\n")
    names = [
        did(ws, Put(NotePath(f".trash/{note}"), None, None, NotePath(note)), drop(ws, note))
        for note in ("A.md", "B.md")
    ]
    cast(MemoryStore, ws.store).put(".trash/B.md", None)
    for name in names:
        undo(ws, name)
    assert texts(ws, hidden=True) == {"A.md": "a\n", "B.md": "b\n"}


def test_everything_of_one_client_since_a_time_is_taken_back_at_once() -> None:
    now = [100.0]
    ws = memory_workspace(clock=lambda: now[0])
    write(ws, A="a\n", B="b\n")
    early = append(ws, "A.md", "early")
    now[0] = 200.0
    append(ws, "A.md", "one")
    append(ws.by(Actor("ann", "phone")), "A.md", "from the phone")
    move(ws, "B.md", "C.md")
    append(ws, "C.md", "two")
    undone = undo_since(ws, 200.0, client="desk")
    assert texts(ws) == {"A.md": "a\nearly\nfrom the phone\n", "B.md": "b\n"}
    assert len(undone.changes) == 3
    newest, *_, oldest = ws.ledger.find_changes(ChangeQuery())
    assert set(newest.undoes) == {change.id for change in undone.changes}
    assert oldest.id == early and oldest.undone_by is None
    assert newest.id
    undo(ws, newest.id)
    assert texts(ws) == {"A.md": "a\nearly\none\nfrom the phone\n", "C.md": "b\ntwo\n"}


def test_what_was_undone_already_is_left_out_of_undoing_since() -> None:
    ws = memory_workspace()
    write(ws, A="a\n")
    first = append(ws, "A.md", "one")
    undo(ws, first)
    append(ws, "A.md", "two")
    assert len(undo_since(ws, 0, client="desk").changes) == 1
    assert texts(ws) == {"A.md": "a\n"}
    with pytest.raises(NotFound):
        undo_since(ws, 0, client="desk")


def test_undoing_a_change_of_many_notes_that_were_moved_together_reads_that_move_once() -> None:
    ws, count = memory_workspace(), 600
    made = did(ws, *(put(ws, f"In/{number}.md", f"{number}\n") for number in range(count)))
    old = [NotePath(f"In/{number}.md") for number in range(count)]
    moved = [Put(NotePath(f"Out/{path.name}"), None, None, path) for path in old]
    did(ws, *moved, *(drop(ws, path) for path in old))
    began = time.process_time()
    with pytest.raises(Conflict):
        undo(ws, made)
    assert time.process_time() - began < 3  # 0.2 s, and 6 if the long change is read for each note


def test_a_change_that_somebody_else_made_again_is_taken_back() -> None:
    ws = memory_workspace()
    write(ws, A="a\n")
    first = append(ws, "A.md", "one")
    undone = undo(ws, first)
    assert undone.done and undone.done.id
    undo(ws.by(Actor("ann", "phone")), undone.done.id)
    assert [change.id for change in undo_since(ws, 0.0, client="desk").changes] == [first]
    assert texts(ws) == {"A.md": "a\n"}


def test_an_undo_with_a_later_change_of_its_note_is_taken_back_with_what_it_undid() -> None:
    ws = memory_workspace()
    write(ws, A="a\n", B="b\n")
    before = texts(ws)
    first = append(ws, "A.md", "one")
    undone = undo(ws, first)
    drop_id = did(ws, drop(ws, "A.md"))
    moved = move(ws, "B.md", "A.md")
    assert undone.done and undone.done.id
    again = undo(ws, undone.done.id)
    after = texts(ws)
    assert again.done and again.done.id
    everything = undo_since(ws, 0.0)
    assert [change.id for change in everything.changes] == [again.done.id, moved, drop_id, undone.done.id, first]
    assert texts(ws) == before
    assert {change.undone_by for change in everything.changes} == {None, again.done.id}, "as it was until then"
    newest, *others = list_changes(ws, ChangeQuery())
    assert {change.undone_by for change in others} == {newest.id}
    undo(ws, newest.id)
    assert texts(ws) == after
    stand = {change.id: change.undone_by for change in list_changes(ws, ChangeQuery())}
    assert (stand[first], stand[undone.done.id], stand[again.done.id]) == (None, again.done.id, None)


@pytest.mark.parametrize("seed", range(40))
def test_undoing_all_there_is_brings_every_byte_back_and_undoing_that_makes_it_again(seed: int) -> None:
    ws, chance = memory_workspace(), random.Random(seed)
    write(ws, A="a\n\nx [[B]]\n", B="b [[A]]\n", C="c [[A]] [[B]]\n")
    before = texts(ws, hidden=True)
    for number in range(14):
        with suppress(Problem, KeyError):  # KeyError: of a step that makes no change
            change_at_random(ws, chance, number)
    after = texts(ws, hidden=True)
    if after == before:  # everything is undone already
        return
    undone = undo_since(ws, 0.0)
    assert texts(ws, hidden=True) == before
    assert undone.done and undone.done.id
    undo(ws, undone.done.id)
    assert texts(ws, hidden=True) == after


def change_at_random(ws: Workspace, chance: random.Random, number: int) -> None:
    note, other = chance.choice([*texts(ws), "None.md"]), f"{chance.choice('ABCDE')}.md"
    match chance.choice(("append", "append", "edit", "move", "move", "drop", "write", "undo", "undo")):
        case "append":
            append(ws, note, f"line {number}")
        case "edit":
            edit(ws, NotePath(note), lambda text: text.replace("line", "row", 1) + f"{number}\n", summary="edited")
        case "move" if other not in texts(ws):
            move(ws, note, other)
        case "drop":
            did(ws, drop(ws, note))
        case "write":
            did(ws, put(ws, other, f"new {number}\n"))
        case "undo" if recent := list_changes(ws, ChangeQuery(limit=6)):
            undo(ws, chance.choice(recent).id)


def test_a_change_that_is_not_there_names_the_nearest() -> None:
    ws = memory_workspace()
    name = did(ws, put(ws, "A.md", "a"))
    with pytest.raises(NotFound) as refused:
        undo(ws, name[:-1] + "?")
    assert refused.value.details == {"what": "change", "nearest": [name]}


def test_the_past_of_a_note_follows_its_moves() -> None:
    ws = memory_workspace()
    write(ws, Old="a\n")
    first = append(ws, "Old.md", "one")
    moved = move(ws, "Old.md", "New.md")
    did(ws, put(ws, "Old.md", "another note of that name\n"))
    last = append(ws, "New.md", "two")
    assert [change.id for change in list_changes(ws, ChangeQuery(path="New.md"))] == [last, moved, first]
    assert [change.id for change in list_changes(ws, ChangeQuery(path="New.md", limit=1, offset=1))] == [moved]


def test_hidden_notes_are_absent_from_the_past_and_out_of_reach_of_undo() -> None:
    ws = memory_workspace()
    write(ws, Old="note\n", L="[[Old]]\n")
    cast(MemoryStore, ws.store).put("Private/P.md", b"[[Old]]\n")
    secret = did(ws, put(ws, "Private/P.md", "[[Old]] secret\n"), summary="edited Private/P.md")
    moved = move(ws, "Old.md", "New.md")
    guest = replace(ws, access=Access(hide=("Private/**",)))
    (seen,) = list_changes(guest, ChangeQuery())
    assert [step.path for step in seen.steps] == ["New.md", "L.md", "Old.md"]
    with pytest.raises(NotFound):
        undo(guest, secret)
    undo(guest, moved)
    assert texts(ws) == {"Old.md": "note\n", "L.md": "[[Old]]\n", "Private/P.md": "[[Old]] secret\n"}


def test_the_past_of_a_hidden_note_is_that_of_one_that_never_was() -> None:
    ws = memory_workspace()
    cast(MemoryStore, ws.store).put("Private/P.md", b"[[Old]]\n")
    cast(MemoryStore, ws.store).put("Open/Secret.md", b"[[Old]]\n")
    write(ws, Old="note\n")
    move(ws, "Old.md", "New.md")  # rewrites links of the hidden
    guest = replace(ws, access=Access(hide=("Private/**", "**/Secret.md")))
    assert (
        len(list_changes(ws, ChangeQuery(path="Private/P.md"))) == len(list_changes(ws, ChangeQuery(path="Open"))) == 1
    )
    for path in ("Private/P.md", "Private", "Open/Secret.md", "Open", "Private/Nothing.md"):
        assert list_changes(guest, ChangeQuery(path=path)) == [], path


def test_the_past_of_a_note_ends_where_it_came_out_of_hiding() -> None:
    ws = memory_workspace()
    cast(MemoryStore, ws.store).put("Private/P.md", b"[[Old]]\n")
    write(ws, Old="note\n")
    move(ws, "Old.md", "New.md")
    out = move(ws, "Private/P.md", "P.md")
    guest = replace(ws, access=Access(hide=("Private/**",)))
    assert [change.id for change in list_changes(guest, ChangeQuery(path="P.md"))] == [out]
    assert len(list_changes(ws, ChangeQuery(path="P.md"))) == 2


def test_an_undo_does_not_tell_how_many_hidden_changes_it_took_back() -> None:
    ws = memory_workspace()
    seen = did(ws, put(ws, "Open.md", "a"))
    hidden = did(ws, put(ws, "Private/P.md", "b"))
    undo_since(ws, 0.0)
    guest = replace(ws, access=Access(hide=("Private/**",)))
    assert set(list_changes(ws, ChangeQuery())[0].undoes) == {hidden, seen}
    assert (list_changes(guest, ChangeQuery())[0].undoes, list_changes(guest, ChangeQuery())[0].summary) == (
        (seen,),
        "changed Open.md",
    )


def test_who_may_not_see_all_of_a_change_is_not_told_what_else_is_in_it() -> None:
    ws = memory_workspace()
    both = did(ws, put(ws, "Open.md", "a"), put(ws, "Private/Zanzibar.md", "b"))
    guest = replace(ws, access=Access(hide=("Private/**",)))
    with pytest.raises(Forbidden) as refused:
        undo(guest, both)
    assert "Zanzibar" not in str(refused.value) + repr(refused.value.details)
    assert "Zanzibar" not in repr(list_changes(guest, ChangeQuery())) + repr(diff_change(guest, both))


def test_a_summary_does_not_name_a_hidden_folder() -> None:
    ws = memory_workspace()
    write(ws, **{"Open/Sub/A": "a\n", "Open/Sub/B": "b\n"})
    gone = did(
        ws,
        *(put(ws, f"Private/Zanzibar/{name}.md", name) for name in "AB"),
        *(drop(ws, f"Open/Sub/{name}.md") for name in "AB"),
        summary="moved Open/Sub to Private/Zanzibar",
    )
    guest = replace(ws, access=Access(hide=("Private/**",)))
    assert [change.summary for change in list_changes(guest, ChangeQuery()) if change.id == gone] == [
        "changed Open/Sub/A.md, Open/Sub/B.md"
    ]
    assert list_changes(ws, ChangeQuery())[0].summary == "moved Open/Sub to Private/Zanzibar"


def test_undo_needs_the_right_to_write_there() -> None:
    ws = memory_workspace()
    name = did(ws, put(ws, "A.md", "a\n"))
    with pytest.raises(Forbidden):
        undo(replace(ws, access=Access(write_under=("Inbox/**",))), name)


def test_a_change_is_shown_as_a_bounded_diff_file_by_file() -> None:
    ws = memory_workspace()
    write(ws, Old="note\n", L="top\n[[Old]]\n")
    moved = diff_change(ws, move(ws, "Old.md", "New.md"))
    assert [(each.path, each.kind, each.source) for each in moved] == [
        ("New.md", "moved", "Old.md"), ("L.md", "changed", None),
    ]  # fmt: skip
    assert moved[1].lines == ("@@ -1,2 +1,2 @@", " top", "-[[Old]]", "+[[New]]")
    (long,) = diff_change(ws, did(ws, put(ws, "Long.md", "x\n" * 50)), max_lines=10)
    assert (len(long.lines), long.cut, long.kind) == (10, True, "created")


def test_purged_bytes_cannot_be_undone_and_that_is_said() -> None:
    ws = memory_workspace()
    write(ws, A="secret\n")
    name = did(ws, put(ws, "A.md", "clean\n"))
    ws.ledger.purge("A.md")
    with pytest.raises(Conflict, match="no longer kept"):
        undo(ws, name)
    (difference,) = diff_change(ws, name)
    assert "no longer kept" in difference.why
