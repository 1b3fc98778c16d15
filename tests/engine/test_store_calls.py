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
from notewright.engine.move import move
from notewright.engine.read import read
from notewright.engine.workspace import Workspace
from notewright.engine.write import create, delete, edit_note, new_path, overwrite
from notewright.notes.edits.edit import Append
from notewright.notes.path import NotePath

ONE_EACH = ("entries", "children", "stat", "read", "write", "delete")


class Counted:
    """A store, and how many requests its calls are: one for each file or folder that is named."""

    def __init__(self, store: Any) -> None:
        self._store = store
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
def at_most(ws: Workspace, most: int) -> Iterator[Workspace]:
    counted = Counted(ws.store)
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
        assert move(counted, NotePath("Target.md"), "f/g/Other").links == 50
    assert "[[Other]]" in read(ws, NotePath("f/7.md")).text


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


def requests_of(ws: Workspace) -> Counter[str]:
    return cast(Counted, ws.store).requests
