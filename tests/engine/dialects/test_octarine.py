"""Files as they lie in their folders."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.conftest import MakeWorkspace
from tests.engine.parts import memory_workspace
from tests.memory_store import MemoryStore

from notewright.engine.access import Access
from notewright.engine.dialects.octarine import fetch_copy, make_copy_name, parse_copy_name, replace_with_copy, walk
from notewright.engine.move import move
from notewright.engine.workspace import Workspace
from notewright.engine.write import delete
from notewright.errors import NotFound
from notewright.notes.path import NotePath

HIDE = ("Private/**", "**/Secret*")


@pytest.mark.slow
def test_folders_deeper_than_python_recurses_are_walked() -> None:
    store = MemoryStore()
    store.put("d/" * 1100 + "a.md", b"")
    walked = list(walk(memory_workspace(store), "", recursive=True))
    assert len(walked) == 1101 and walked[-1].path.endswith("/d/a.md")


# ---- copies -------------------------------------------------------------------------------------------


def overwritten(ws: Workspace, path: str, text: str = "new\n") -> NotePath:
    """A copy of what was there."""
    done = replace_with_copy(ws, NotePath(path), text.encode(), overwrite=True, make_folders=True)
    assert done.backup is not None
    return done.backup


def guest_of(ws: Workspace) -> Workspace:
    return replace(ws, access=Access(hide=HIDE))


def listed(ws: Workspace, folder: str = "") -> list[str]:
    return sorted(entry.path for entry in walk(ws, folder, recursive=True, hidden=True))


@pytest.mark.parametrize("path", ["a.md", "d/e/Tea.2023.md", "README", "x.tar.gz", "日本.md", "a b-1.md"])
@pytest.mark.parametrize("number", [0, 3])
def test_the_name_of_a_copy_tells_its_note_and_its_time(path: str, number: int) -> None:
    assert parse_copy_name(make_copy_name(NotePath(path), 1_700_000_000.7, number)) == (path, 1_700_000_000)


@pytest.mark.parametrize(
    "path", [".backups/a.md", ".backups/a.2023-99-99T00-00-00.md", "a.2023-11-14T22-13-20.md", ".trash/a.md"]
)
def test_other_names_tell_no_note(path: str) -> None:
    assert parse_copy_name(NotePath(path)) is None


def test_a_copy_whose_name_was_cut_could_be_of_several_notes() -> None:
    place = make_copy_name(NotePath("é" * 200 + ".md"), 1_700_000_000)
    assert len(place.name.encode()) <= 255 and parse_copy_name(place) is None


def test_the_copies_of_a_hidden_note_are_hidden_and_those_of_others_are_not(workspace: MakeWorkspace) -> None:
    ws = workspace(dict.fromkeys(("Secret.md", "Open/Secret plan.md", "Open/Tea.md", "Private/P.md"), "old\n"))
    copies = [overwritten(ws, f"{path}.md") for path in ("Secret", "Open/Secret plan", "Open/Tea", "Private/P")]
    guest, (seen,) = guest_of(ws), [copy for copy in copies if "Tea" in copy]
    assert listed(guest) == ["Open", "Open/.backups", seen, "Open/Tea.md"]
    assert set(copies) <= set(listed(ws))
    assert fetch_copy(guest, seen).data == b"old\n"
    for copy in set(copies) - {seen}:
        with pytest.raises(NotFound):
            fetch_copy(guest, copy)
    with pytest.raises(NotFound):
        listed(guest, ".backups")


@pytest.mark.parametrize("to", ["Private/Tea.md", "Secret tea.md"])
def test_a_copy_goes_into_hiding_with_its_note(workspace: MakeWorkspace, to: str) -> None:
    ws = workspace({"Open/Tea.md": "old\n"})
    copy, guest = overwritten(ws, "Open/Tea.md"), guest_of(ws)
    assert fetch_copy(guest, copy).data == b"old\n"
    move(ws, NotePath("Open/Tea.md"), "Open/Green.md")
    assert fetch_copy(guest, copy).data == b"old\n"
    move(ws, NotePath("Open/Green.md"), to)
    with pytest.raises(NotFound):
        fetch_copy(guest, copy)
    assert "Open/.backups" not in listed(guest) and copy in listed(ws)


def test_the_copy_of_a_deleted_note_stays_as_it_was_hidden_or_not(workspace: MakeWorkspace) -> None:
    ws = workspace({"Open/Tea.md": "old\n", "Secret.md": "old\n"})
    seen, hidden, guest = overwritten(ws, "Open/Tea.md"), overwritten(ws, "Secret.md"), guest_of(ws)
    delete(ws, NotePath("Open/Tea.md"))
    delete(ws, NotePath("Secret.md"))
    assert fetch_copy(guest, seen).data == b"old\n"
    with pytest.raises(NotFound):
        fetch_copy(guest, hidden)
    assert listed(guest) == [".trash", ".trash/Tea.md", "Open", "Open/.backups", seen]


def test_a_copy_of_nobody_knows_what_is_hidden_from_those_from_whom_something_is() -> None:
    store = MemoryStore()
    names = (".backups/Gone.2023-11-14T22-13-20.md", ".backups/a.md", ".trash/Tea.md", ".trash/Deep/Tea.md")
    for name in ("Tea.md", ".obsidian/app.json", *names):
        store.put(name, b"x")
    ws = memory_workspace(store)
    assert set(names) <= set(listed(ws))
    assert listed(guest_of(ws)) == [".obsidian", ".obsidian/app.json", "Tea.md"]
    for name in names[:2]:
        with pytest.raises(NotFound):
            fetch_copy(guest_of(ws), NotePath(name))


def test_what_took_the_place_of_a_deleted_note_in_the_trash_is_not_that_note(
    workspace: MakeWorkspace, tmp_path: Path
) -> None:
    ws = workspace({"Tea.md": "old\n"})
    delete(ws, NotePath("Tea.md"))
    assert listed(guest_of(ws)) == [".trash", ".trash/Tea.md"]
    (tmp_path / "Main/.trash/Tea.md").write_text("of somebody else\n")
    assert listed(guest_of(ws)) == []
