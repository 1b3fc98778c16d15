"""While a large note is not indexed yet, every surface answers and says so."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from notewright.app import compose
from notewright.config.load import Config
from notewright.engine.indexing import filing, indexer
from notewright.engine.indexing.filing import LARGE_BYTES
from notewright.engine.library import Library
from notewright.engine.workspace import Workspace
from notewright.surfaces.base import Call
from notewright.surfaces.perform import perform

VAULT = {"Tea.md": "green leaves [[Ink]]\n", "Ink.md": "black\n", "Big.md": "word [[Tea]] " * (LARGE_BYTES // 13 + 1)}
SAID = "Still indexing; not indexed yet: Big.md. What they say may be missing here."
FINDING: dict[str, tuple[str, dict[str, Any]]] = {
    "notes": ("search", {"query": "leaves"}),
    "cairn": ("cairn_search", {"query": "leaves"}),
    "lens": ("get_links", {"file_path": "Main/Tea.md"}),
    "obsidian": ("search_notes", {"query": "leaves"}),
    "octarine": ("octarine_list_notes", {"workspace": "Main"}),
    "second_brain": ("grep", {"pattern": "leaves"}),
}


@pytest.fixture
def unread(workspace, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workspace]:
    """A workspace with a large note that is not read before the test is over."""
    over = threading.Event()

    def hold(*args: object) -> list[object]:
        over.wait(60)
        return []

    monkeypatch.setattr(indexer, "file_large", hold)
    monkeypatch.setattr(filing, "GRACE_SECONDS", 0.05)
    ws = workspace(VAULT)
    ws.follower.wait(60)
    yield ws
    over.set()


@pytest.mark.parametrize("name", FINDING)
def test_what_is_found_comes_with_what_is_not_indexed_yet(name: str, unread: Workspace) -> None:
    surface = compose.load_surface(name, Config((), "", ""))
    tool, args = FINDING[name]
    answer = perform(surface, Call(Library.of((unread,))), tool, args)
    assert not answer.is_error, answer.text
    assert answer.blocks[-1] == SAID
    assert len(answer.blocks) > 1


def test_a_change_is_answered_as_ever(unread: Workspace) -> None:
    surface = compose.load_surface("notes", Config((), "", ""))
    answer = perform(surface, Call(Library.of((unread,))), "write", {"path": "New", "content": "fresh\n"})
    assert len(answer.blocks) == 1
    found = perform(surface, Call(Library.of((unread,))), "search", {"query": "fresh"})
    assert "New.md" in found.text


@pytest.mark.parametrize(
    ("name", "tool", "args"),
    [
        ("notes", "move", {"from": "Tea", "to": "Coffee"}),
        ("obsidian", "rename_note", {"old_name": "Tea", "new_name": "Coffee"}),
    ],
)
def test_a_rename_is_refused_with_the_notes_it_waits_for(
    name: str, tool: str, args: dict[str, str], unread: Workspace
) -> None:
    surface = compose.load_surface(name, Config((), "", ""))
    answer = perform(surface, Call(Library.of((unread,))), tool, args)
    assert answer.is_error
    assert "still indexing (2 of 3" in answer.text
    assert "Big.md" in answer.text
