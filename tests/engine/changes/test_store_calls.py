"""How often the engine asks the store: on a bucket each of these is a request over the network."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import pytest
from tests.conftest import MakeWorkspace

from notewright.engine.changes.history import undo
from notewright.engine.indexing.filing import read_many_for_index
from notewright.engine.library import Library
from notewright.engine.move import move
from notewright.engine.read import read
from notewright.engine.workspace import Workspace
from notewright.engine.write import create, delete, edit_note, new_path, overwrite
from notewright.errors import Exists, NotFound
from notewright.ledger.base import Actor
from notewright.notes.edits.edit import Append
from notewright.notes.path import NotePath
from notewright.surfaces.base import Call, Session, Surface
from notewright.surfaces.cairn import tools as cairn
from notewright.surfaces.lens import tools as lens
from notewright.surfaces.notes import tools as notes
from notewright.surfaces.obsidian import tools as obsidian
from notewright.surfaces.octarine import tools as octarine
from notewright.surfaces.perform import perform
from notewright.surfaces.second_brain import tools as second_brain

ONE_EACH = ("entries", "children", "stat", "read", "write", "delete")


class Counted:
    """A store, and how many requests its calls are: one for each file or folder that is named."""

    def __init__(self, store: Any, has_folders: bool) -> None:
        self._store, self.has_folders = store, has_folders
        self.requests: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._store, name)
        if name in ONE_EACH:
            return self._counting(name, real, lambda args: 1)
        return self._counting(name, real, lambda args: len(args[0])) if name.endswith("_many") else real

    def _counting(self, name: str, real: Callable[..., Any], weight: Callable[[Any], int]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            self.requests[name] += weight(args)
            return real(*args, **options)

        return call


@pytest.fixture
def ws(workspace: MakeWorkspace) -> Workspace:
    links = {f"f/{number}.md": f"see [[Target]], {number}\n" for number in range(50)}
    made = workspace({"Target.md": "# Target\n", "f/g/Deep.md": "# Deep\n", **links})
    made.follower.wait(20)
    return made


@contextmanager
def at_most(ws: Workspace, most: int, *, has_folders: bool = True) -> Iterator[Workspace]:
    counted = Counted(ws.store, has_folders)
    yield replace(ws, store=cast(Any, counted))
    assert counted.requests.total() <= most, dict(counted.requests)


def test_a_read_asks_once(ws: Workspace) -> None:
    with at_most(ws, 1) as counted:
        read(counted, NotePath("Target.md"))


def test_an_append_reads_and_writes(ws: Workspace) -> None:
    with at_most(ws, 2) as counted:
        edit_note(counted, NotePath("f/g/Deep.md"), [Append("more")])


def test_replacing_what_was_read_reads_and_writes(ws: Workspace) -> None:
    seen = read(ws, NotePath("Target.md")).version
    with at_most(ws, 2) as counted:
        overwrite(counted, NotePath("Target.md"), b"new", seen=seen)


@pytest.mark.parametrize("path", ["New.md", "f/g/New.md"])
def test_a_new_note_asks_for_its_folder_and_its_name_and_writes(ws: Workspace, path: str) -> None:
    with at_most(ws, 3) as counted:
        create(counted, new_path(counted, path), b"new")


def test_a_rename_reads_and_writes_each_linking_note_once(ws: Workspace) -> None:
    with at_most(ws, 2 * 50 + 10) as counted:
        assert move(counted, NotePath("Target.md"), "f/g/Other").count == 50
    assert "[[Other]]" in read(ws, NotePath("f/7.md")).text


def test_a_folder_that_moves_looks_once_for_each_folder_of_its_new_name(ws: Workspace) -> None:
    with at_most(ws, 51 * 4 + 15) as counted:
        move(counted, NotePath("f"), "new/deep")
    assert requests_of(counted)["children"] == 3  # of the two that move, and of the one that "new" would be in


def test_deleting_into_the_trash_asks_little(ws: Workspace) -> None:
    with at_most(ws, 6) as counted:
        delete(counted, NotePath("f/g/Deep.md"))


def test_an_undo_reads_all_notes_at_once(ws: Workspace) -> None:
    moved = move(ws, NotePath("Target.md"), "f/g/Other").change_id
    with at_most(ws, 2 * 50 + 10) as counted:
        undo(counted, moved or "")
    assert requests_of(counted)["read"] == 0
    assert "[[Target]]" in read(ws, NotePath("f/7.md")).text


def test_the_index_is_filled_by_batches_of_reads(ws: Workspace) -> None:
    with at_most(ws, 52) as counted:
        assert len(list(read_many_for_index(counted.store, ws.store.entries()))) == 52
    assert requests_of(counted)["read"] == 0


READS = [
    (notes.SURFACE, "read", {"path": "Target"}),
    (notes.SURFACE, "read", {"path": "deep"}),
    (second_brain.surface(), "read", {"path": "Target.md"}),
    (octarine.surface(), "octarine_read_note", {"workspace": "Main", "note_path": "Target.md"}),
    (cairn.SURFACE, "cairn_read", {"path": "Target"}),
    (lens.SURFACE, "read", {"file_path": "Main/Target.md"}),
    (obsidian.SURFACE, "read_note", {"name": "Target"}),
    (obsidian.SURFACE, "read_note", {"name": "Deep"}),
]
EDITS = [
    (notes.SURFACE, "edit", {"path": "f/g/Deep.md", "edits": [{"append": "more"}]}),
    (second_brain.surface(), "edit", {"path": "Target.md", "old_str": "Target", "new_str": "Goal"}),
    (cairn.SURFACE, "cairn_patch", {"path": "f/g/Deep", "op": "append", "content": "more"}),
    (obsidian.SURFACE, "append_note", {"name": "Deep", "text": "more"}),
    (obsidian.SURFACE, "replace_text", {"name": "Target", "old_text": "Target", "new_text": "Goal"}),
]


CREATES = [(notes.SURFACE, "write", {"path": "f/g/New.md", "content": "new"})]


@pytest.mark.parametrize(
    ("surface", "tool", "args", "most"), [(*one, 1) for one in READS + CREATES] + [(*one, 2) for one in EDITS]
)
def test_a_tool_finds_its_note_without_asking_where_asking_is_a_request(
    ws: Workspace, surface: Surface, tool: str, args: dict[str, Any], most: int
) -> None:
    with at_most(ws, most, has_folders=False) as counted:
        call = Call(Library.of([counted]), Actor("ann", "desk", surface.name, tool), Session())
        answer = perform(surface, call, tool, args)
    assert not answer.is_error, answer.text


def test_a_note_that_only_the_index_still_knows_is_missing(ws: Workspace) -> None:
    gone = Counted(ws.store, has_folders=False)
    gone.read = lambda path, **options: ws.store.read(NotePath("Nowhere.md"))  # type: ignore[attr-defined]
    with pytest.raises(NotFound, match=r"there is no Target\.md"):
        read(replace(ws, store=cast(Any, gone)), NotePath("Target.md"))


@pytest.mark.parametrize("path", ["New.md", "f/g/New.md", "new/folder/New.md"])
def test_a_new_note_where_folders_are_none_is_written_and_no_more(ws: Workspace, path: str) -> None:
    with at_most(ws, 1, has_folders=False) as counted:
        create(counted, new_path(counted, path), b"new")


@pytest.mark.parametrize(("path", "twin"), [("F/New.md", "f"), ("f/G/New.md", "f/g"), ("target.md", "Target.md")])
def test_a_twin_is_found_by_the_index_where_folders_are_none(ws: Workspace, path: str, twin: str) -> None:
    with at_most(ws, 1, has_folders=False) as counted, pytest.raises(Exists) as refused:
        new_path(counted, path)
    assert refused.value.details["path"] == twin


def requests_of(ws: Workspace) -> Counter[str]:
    return cast(Counted, ws.store).requests
