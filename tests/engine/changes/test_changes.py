"""Change sets: all of it or none, durable, and nobody else's bytes lost."""

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from tests.engine.parts import NoIndex, drop, memory_workspace, put, renaming, texts, version, write
from tests.memory_store import Disk, MemoryStore

from notewright.engine.changes import machine
from notewright.engine.changes.commit import commit, commit_latest, edit, recover
from notewright.engine.changes.history import undo
from notewright.engine.changes.machine import FileGoal, route
from notewright.engine.changes.plan import Plan, Put
from notewright.engine.workspace import Workspace
from notewright.engine.write import overwrite
from notewright.errors import Conflict, Exists, Forbidden, Internal, NoSpace, NotFound, NotText
from notewright.ledger.base import Change, ChangeQuery, Step
from notewright.ledger.sqlite import SqliteLedger
from notewright.notes.path import NotePath
from notewright.stores.base import OpId, Stored, Swap, version_of
from notewright.stores.folder.store import FolderStore

A, B, C = NotePath("A.md"), NotePath("B.md"), NotePath("C.md")


class Killed(BaseException):
    """The process is gone."""


def interrupted(
    notes: dict[str, str], at: tuple[str, str], act: Callable[[MemoryStore], None], disk: Disk | None = None
) -> Workspace:
    """A workspace in which `act` happens once, when the store does `at` (what, path)."""
    waiting = [at]

    def step(what: str, path: str) -> None:
        if waiting and (what, path) == waiting[0]:
            waiting.clear()
            act(store)

    store = MemoryStore(disk or Disk(), step=step)
    for path, text in notes.items():
        store.put(path, text.encode())
    return memory_workspace(store)


def killed(notes: dict[str, str], at: tuple[str, str], plan: Callable[[Workspace], Plan]) -> Workspace:
    """What a process leaves that was killed there, seen by the next one."""

    def die(store: MemoryStore) -> None:
        raise Killed

    ws = interrupted(notes, at, die)
    with pytest.raises(Killed):
        commit(ws, plan(ws))
    store = cast(MemoryStore, ws.store)
    store.die()
    return memory_workspace(MemoryStore(store.disk), ws.ledger)


RENAME = {"Old.md": "the note\n", "L1.md": "see [[Old]]\n", "L2.md": "and [[Old]]\nmore\n"}
RENAMED = {"New.md": "the note\n", "L1.md": "see [[New]]\n", "L2.md": "and [[New]]\nmore\n"}


def rename(ws: Workspace) -> Plan:
    return renaming(ws, "Old.md", "New.md")


def test_a_commit_writes_creates_deletes_and_is_in_the_history() -> None:
    ws = memory_workspace()
    write(ws, A="a\n", B="b\n")
    done = commit(ws, Plan((put(ws, "A.md", "a2\n"), drop(ws, "B.md"), put(ws, "C.md", "c\n")), "three things"))
    assert texts(ws) == {"A.md": "a2\n", "C.md": "c\n"}
    assert done.versions == {A: version_of(b"a2\n"), B: None, C: version_of(b"c\n")}
    (change,) = ws.ledger.find_changes(ChangeQuery())
    assert (change.id, change.summary, change.actor.client) == (done.id, "three things", "desk")
    assert [step.path for step in change.steps] == ["C.md", "A.md", "B.md"], "creates, writes, deletes"
    assert cast(NoIndex, ws.index).told == ["C.md", "A.md", "B.md"]


def test_an_id_is_one_word_of_at_least_six_letters_and_digits() -> None:
    ws = memory_workspace()
    ids = {commit(ws, Plan((put(ws, f"{number}.md", "x"),), "")).id or "" for number in range(50)}
    assert len(ids) == 50
    assert all(re.fullmatch("[a-z0-9]{6,}", name) for name in ids)


@pytest.mark.parametrize("seen", [False, True])
def test_a_file_that_is_not_as_it_was_seen_refuses_the_whole_plan(seen: bool) -> None:
    ws = memory_workspace()
    write(ws, A="something else\n")
    old = ws.store.read(A) if seen else None
    write(ws, A="a\n")
    with pytest.raises(Conflict if seen else Exists) as refused:
        commit(ws, Plan((put(ws, "B.md", "b\n"), Put(A, b"mine\n", old)), ""))
    assert refused.value.details["path"] == "A.md"
    assert texts(ws) == {"A.md": "a\n"}
    assert ws.ledger.find_changes(ChangeQuery()) == [] == ws.ledger.find_unfinished()


def test_what_is_so_already_is_no_change() -> None:
    ws = memory_workspace()
    write(ws, A="a\n")
    done = commit(ws, Plan((put(ws, "A.md", "a\n"),), ""))
    assert done.id is None
    assert done.versions == {A: version_of(b"a\n")}
    assert ws.ledger.find_changes(ChangeQuery()) == []


def test_a_plan_that_names_a_file_twice_is_refused() -> None:
    ws = memory_workspace()
    with pytest.raises(Internal):
        commit(ws, Plan((put(ws, "A.md", "a"), put(ws, "A.md", "b")), ""))


def test_a_moved_note_keeps_no_bytes_in_the_ledger_but_a_trashed_one_does() -> None:
    ws = memory_workspace()
    write(ws, Old="precious\n", Bin="rubbish\n")
    commit(ws, rename(ws))
    assert ws.ledger.blob(version_of(b"precious\n")) is None
    commit(ws, Plan((Put(NotePath(".trash/Bin.md"), None, None, NotePath("Bin.md")), drop(ws, "Bin.md")), ""))
    assert ws.ledger.blob(version_of(b"rubbish\n")) == b"rubbish\n"
    assert texts(ws, hidden=True) == {"New.md": "precious\n", ".trash/Bin.md": "rubbish\n"}


def test_a_full_disk_refuses_the_whole_change_set_and_leaves_nothing_behind() -> None:
    ws = memory_workspace(MemoryStore(Disk(capacity=40)))
    write(ws, A="a\n", B="b\n")
    before = texts(ws)
    with pytest.raises(NoSpace):
        commit(ws, Plan((put(ws, "A.md", "x" * 30), put(ws, "B.md", "y" * 30)), ""))
    assert texts(ws) == before
    assert ws.ledger.find_unfinished() == []
    assert cast(MemoryStore, ws.store).disk.beside == {}


def test_a_folder_made_for_a_change_that_was_taken_back_is_removed() -> None:
    def interfere(store: MemoryStore) -> None:
        store.put("A.md", b"theirs\n")

    ws = interrupted({"A.md": "a\n"}, ("written", "deep/er/N.md"), interfere)
    with pytest.raises(Conflict):
        commit(ws, Plan((put(ws, "deep/er/N.md", "n"), put(ws, "A.md", "mine\n")), ""))
    assert texts(ws) == {"A.md": "theirs\n"}
    assert cast(MemoryStore, ws.store).disk.folders == set()


def test_an_editor_that_saves_elsewhere_in_a_note_while_we_apply_is_merged() -> None:
    ws = interrupted(RENAME, ("written", "L1.md"), lambda store: store.put("L2.md", b"and [[Old]]\nmore\nTHEIRS\n"))
    done = commit(ws, rename(ws))
    assert texts(ws) == {**RENAMED, "L2.md": "and [[New]]\nmore\nTHEIRS\n"}
    assert done.merged == ("L2.md",)


def test_an_editor_that_saves_the_same_place_while_we_apply_takes_the_whole_change_back() -> None:
    ws = interrupted(RENAME, ("written", "L1.md"), lambda store: store.put("L2.md", b"nothing to see\n"))
    with pytest.raises(Conflict):
        commit(ws, rename(ws))
    assert texts(ws) == {**RENAME, "L2.md": "nothing to see\n"}
    assert ws.ledger.find_changes(ChangeQuery()) == [] == ws.ledger.find_unfinished()


def test_a_note_edited_while_it_is_moved_away_stays_with_the_edit() -> None:
    ws = interrupted(RENAME, ("written", "L2.md"), lambda store: store.put("Old.md", b"the note, edited\n"))
    with pytest.raises(Conflict):
        commit(ws, rename(ws))
    assert texts(ws) == {**RENAME, "Old.md": "the note, edited\n"}


def test_where_neither_way_is_open_nothing_more_is_deleted_and_no_bytes_are_lost() -> None:
    def interfere(store: MemoryStore) -> None:
        store.put("New.md", b"edited under its new name\n")
        store.put("Old.md", b"edited under its old name\n")

    ws = interrupted(RENAME, ("written", "L2.md"), interfere)
    done = commit(ws, rename(ws))
    both = {"New.md": "edited under its new name\n", "Old.md": "edited under its old name\n"}
    assert texts(ws) == {**RENAMED, **both}
    assert done.kept == ("Old.md",)
    assert "Old.md" not in [step.path for step in ws.ledger.find_changes(ChangeQuery())[0].steps]


@pytest.mark.parametrize("what", ["staged", "write", "written", "delete", "deleted", "settle", "settled"])
def test_the_next_process_finishes_a_rename_killed_anywhere_after_it_was_recorded(what: str) -> None:
    path = {"delete": "Old.md", "deleted": "Old.md", "settle": "", "settled": ""}.get(what, "L1.md")
    ws = killed(RENAME, (what, path), rename)
    recover(ws)
    assert texts(ws) == RENAMED
    assert [change.summary for change in ws.ledger.find_changes(ChangeQuery())] == ["moved Old.md to New.md"]
    assert ws.ledger.find_unfinished() == []
    assert cast(MemoryStore, ws.store).disk.beside == {}


def test_a_commit_first_finishes_what_a_dead_process_left() -> None:
    ws = killed(RENAME, ("written", "L1.md"), rename)
    commit(ws, Plan((put(ws, "X.md", "x\n"),), "later"))
    assert texts(ws) == {**RENAMED, "X.md": "x\n"}
    assert [change.summary for change in ws.ledger.find_changes(ChangeQuery())] == ["later", "moved Old.md to New.md"]


def test_recovery_merges_what_an_editor_saved_meanwhile() -> None:
    ws = killed(RENAME, ("written", "L1.md"), rename)
    write(ws, L1="top\nsee [[New]]\n", L2="and [[Old]]\nmore\nend\n")
    recover(ws)
    assert texts(ws) == {**RENAMED, "L1.md": "top\nsee [[New]]\n", "L2.md": "and [[New]]\nmore\nend\n"}


def test_recovery_takes_everything_back_where_an_editor_wrote_to_the_same_place() -> None:
    ws = killed(RENAME, ("written", "L1.md"), rename)
    write(ws, L1="see [[New]]\nand more\n", L2="other words\n")
    recover(ws)
    assert texts(ws) == {**RENAME, "L1.md": "see [[Old]]\nand more\n", "L2.md": "other words\n"}
    assert ws.ledger.find_changes(ChangeQuery()) == []


def test_a_note_that_somebody_made_under_the_new_name_is_left_alone() -> None:
    ws = killed(RENAME, ("write", "New.md"), rename)
    write(ws, New="somebody's own\n")
    recover(ws)
    assert texts(ws) == {**RENAME, "New.md": "somebody's own\n"}


def test_an_append_that_was_written_and_then_edited_is_still_in_the_history() -> None:
    ws = killed({"A.md": "a\n"}, ("settle", ""), lambda ws: Plan((put(ws, "A.md", "a\nours\n"),), "appended"))
    write(ws, A="a\nours\ntheirs\n")
    recover(ws)
    assert texts(ws) == {"A.md": "a\nours\ntheirs\n"}
    assert [change.summary for change in ws.ledger.find_changes(ChangeQuery())] == ["appended"]


def test_a_file_that_may_not_be_written_takes_the_whole_change_back() -> None:
    class Guarded(MemoryStore):
        def swap(self, swap: Swap, *, op: OpId, hidden: bool = False) -> Stored | None:
            if swap.path == "L2.md":
                raise Forbidden("not this one", path=swap.path)
            return super().swap(swap, op=op, hidden=hidden)

    ws = memory_workspace(Guarded())
    for path, text in RENAME.items():
        write(ws, **{path[:-3]: text})
    with pytest.raises(Forbidden):
        commit(ws, rename(ws))
    assert texts(ws) == RENAME


def test_going_back_goes_in_the_opposite_order() -> None:
    before, after = version_of(b"b"), version_of(b"a")
    steps = tuple(Step(NotePath(f"{name}.md"), before, after) for name in "xyz")
    store = MemoryStore()
    for name, data in (("x.md", b"a"), ("y.md", b"a"), ("z.md", b"foreign")):
        store.put(name, data)
    files = {step.path: store.read(step.path) for step in steps}
    way = route(steps, files, {before: b"b", after: b"a"})
    assert way.state == "taken_back"
    assert [(step.path, end) for step, end in way.goals] == [
        ("z.md", FileGoal(b"foreign")), ("y.md", FileGoal(b"b")), ("x.md", FileGoal(b"b")),
    ]  # fmt: skip


def test_every_effect_has_its_deed() -> None:
    assert set(machine.Effect.__args__) == {
        machine.Record, machine.Stage, machine.Read, machine.AskApplied, machine.Recall, machine.Write, machine.Respell,
        machine.Settle, machine.Sweep, machine.IndexFiles, machine.Close,
    }  # fmt: skip


def test_an_edit_changes_the_text_and_tells_both() -> None:
    ws = memory_workspace()
    write(ws, A="a\r\n")
    edited = edit(ws, A, lambda text: text + "b\r\n", summary="appended")
    assert (edited.before, edited.after, edited.version) == ("a\r\n", "a\r\nb\r\n", version(ws, "A.md"))
    assert [change.id for change in ws.ledger.find_changes(ChangeQuery())] == [edited.change_id]


def test_an_edit_that_changes_nothing_is_no_change() -> None:
    ws = memory_workspace()
    write(ws, A="a\n")
    assert edit(ws, A, str, summary="").change_id is None
    assert ws.ledger.find_changes(ChangeQuery()) == []


def test_an_edit_of_what_is_not_text_or_not_there_is_refused() -> None:
    ws = memory_workspace()
    cast(MemoryStore, ws.store).put("A.md", b"\xff\xfe")
    with pytest.raises(NotText):
        edit(ws, A, str.upper, summary="")
    with pytest.raises(NotFound):
        edit(ws, B, str.upper, summary="")


def test_an_edit_with_an_old_version_is_applied_again_or_refused() -> None:
    ws = memory_workspace()
    write(ws, A="a\n")
    seen = version(ws, "A.md")
    write(ws, A="a\nmore\n")
    with pytest.raises(Conflict) as refused:
        edit(ws, A, lambda text: text + "b\n", summary="", seen=seen, again=False)
    assert refused.value.details["current"] == version(ws, "A.md")
    edit(ws, A, lambda text: text + "b\n", summary="", seen=seen[:12])
    assert texts(ws) == {"A.md": "a\nmore\nb\n"}


def test_an_edit_interrupted_by_an_editor_is_applied_to_the_new_text() -> None:
    ws = interrupted({"A.md": "a\n"}, ("write", "A.md"), lambda store: store.put("A.md", b"theirs\n"))
    edit(ws, A, lambda text: text + "ours\n", summary="")
    assert texts(ws) == {"A.md": "theirs\nours\n"}
    assert len(ws.ledger.find_changes(ChangeQuery())) == 1


def test_a_plan_made_anew_is_made_of_what_is_there_now() -> None:
    ws = interrupted({"A.md": "a\n"}, ("write", "A.md"), lambda store: store.put("A.md", b"theirs\n"))
    commit_latest(ws, lambda: (Plan((put(ws, "A.md", texts(ws)["A.md"].upper()),), ""), None))
    assert texts(ws) == {"A.md": "THEIRS\n"}


@pytest.mark.parametrize("kind", ["memory", "folder"])
def test_twenty_threads_appending_to_one_note_lose_nothing(kind: str, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    ws = (
        memory_workspace()
        if kind == "memory"
        else memory_workspace(FolderStore(notes), SqliteLedger.open(tmp_path / "state"))
    )
    commit(ws, Plan((Put(A, b"", None),), "made"))

    def work(number: int) -> None:
        for count in range(3):
            edit(ws, A, lambda text, line=f"{number}-{count}\n": text + line, summary="")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = ws.store.read(A).data.decode().splitlines()
    ws.store.close()
    ws.ledger.close()
    assert len(lines) == 60
    assert set(lines) == {f"{number}-{count}" for number in range(20) for count in range(3)}


def test_who_listens_is_told_of_a_change_set_when_it_is_done() -> None:
    heard: list[tuple[str, Change]] = []
    ws = memory_workspace(on_change=lambda ws, change: heard.append((ws.id, change)))
    write(ws, B="b\n")
    done = commit(ws, Plan((put(ws, "A.md", "a\n"), drop(ws, "B.md")), "both"))
    ((where, change),) = heard
    assert (where, change.id, change.state, change.actor) == ("desk", done.id, "done", ws.actor)
    assert [(step.path, step.after is None) for step in change.steps] == [(A, False), (B, True)]


def test_who_listens_is_told_of_what_a_dead_process_had_begun() -> None:
    heard: list[Change] = []
    left = killed(RENAME, ("write", "L1.md"), lambda ws: renaming(ws, "Old.md", "New.md"))
    ws = memory_workspace(left.store, left.ledger, on_change=lambda ws, change: heard.append(change))
    recover(ws)
    assert [change.id for change in heard] == [change.id for change in ws.ledger.find_changes(ChangeQuery())]
    recover(ws)
    assert len(heard) == 1


def test_nobody_is_told_of_what_did_not_happen() -> None:
    heard: list[Change] = []
    ws = memory_workspace(on_change=lambda ws, change: heard.append(change))
    write(ws, A="old\n")
    old = ws.store.read(A)
    write(ws, A="a\n")
    commit(ws, Plan((put(ws, "A.md", "a\n"),), "nothing new"))
    with pytest.raises(Conflict):
        commit(ws, Plan((Put(A, b"b\n", old),), "too late"))
    assert heard == []


def test_a_listener_that_fails_fails_no_change() -> None:
    def fail(ws: Workspace, change: Change) -> None:
        raise OSError("no room")

    ws = memory_workspace(on_change=fail)
    assert commit(ws, Plan((put(ws, "A.md", "a\n"),), "made")).id
    assert texts(ws) == {"A.md": "a\n"}


MERGING = "one\ntwo\nthree\nfour\nfive\n"


def test_a_store_that_merges_takes_an_edit_of_an_older_text() -> None:
    ws = memory_workspace(MemoryStore(Disk(merges=True)))
    write(ws, A=MERGING)
    shown = version(ws, "A.md")
    edit(ws, A, lambda text: text.replace("five", "FIVE"), summary="somebody else")
    edited = edit(ws, A, lambda text: text.replace("one", "ONE"), summary="", seen=shown[:12], again=False)
    assert texts(ws) == {"A.md": "ONE\ntwo\nthree\nfour\nFIVE\n"}
    assert (edited.before, edited.after) == (MERGING.replace("five", "FIVE"), texts(ws)["A.md"])
    undo(ws, edited.change_id or "")
    assert texts(ws) == {"A.md": MERGING.replace("five", "FIVE")}


def test_a_store_that_merges_takes_a_whole_older_text() -> None:
    ws = memory_workspace(MemoryStore(Disk(merges=True)))
    write(ws, A=MERGING)
    shown = version(ws, "A.md")
    edit(ws, A, lambda text: text.replace("five", "FIVE"), summary="somebody else")
    overwrite(ws, A, MERGING.replace("one", "ONE").encode(), seen=shown)
    assert texts(ws) == {"A.md": "ONE\ntwo\nthree\nfour\nFIVE\n"}
    with pytest.raises(Conflict):
        overwrite(ws, A, MERGING.replace("five", "5").encode(), seen=shown)
    with pytest.raises(Conflict):
        overwrite(ws, A, b"x", seen="0" * 12)


def test_a_store_that_merges_takes_what_somebody_types_during_a_write() -> None:
    """What is answered is the text of both."""

    def typing(store: MemoryStore) -> None:
        store.put("A.md", MERGING.replace("five", "FIVE").encode())

    ws = interrupted({"A.md": MERGING}, ("write", "A.md"), typing, Disk(merges=True))
    edited = edit(ws, A, lambda text: text.replace("one", "ONE"), summary="", again=False)
    assert (edited.after, edited.version) == ("ONE\ntwo\nthree\nfour\nFIVE\n", version(ws, "A.md"))
    assert texts(ws) == {"A.md": edited.after}
    undo(ws, edited.change_id or "")
    assert texts(ws) == {"A.md": MERGING.replace("five", "FIVE")}

    ws = interrupted({"A.md": MERGING, "B.md": "b\n"}, ("write", "A.md"), typing, Disk(merges=True))
    steps = put(ws, "A.md", MERGING.replace("one", "ONE")), put(ws, "B.md", "B\n")
    assert commit(ws, Plan(steps, "both")).merged == (A,)


def test_inside_a_group_nothing_is_assumed_of_a_step_that_somebody_wrote_over() -> None:
    """Two notes are created; the second is there, and at the first somebody else has saved."""
    after = version_of(b"a")
    steps = tuple(Step(NotePath(f"{name}.md"), None, after) for name in "xy")
    store = MemoryStore()
    store.put("x.md", b"foreign")
    store.put("y.md", b"a")
    files = {step.path: store.read(step.path) for step in steps}
    assert route(steps, files, {after: b"a"}).state == "done", "in order the first was made before the second"
    apart = route(steps, files, {after: b"a"}, in_order=False)
    assert apart.kept == (steps[0].path,), "it may never have been ours"
    told = route(steps, files, {after: b"a"}, in_order=False, applied=[steps[0].path])
    assert (told.state, told.kept) == ("done", ()), "the store knows that it was"
