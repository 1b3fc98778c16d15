"""The notes around a note, by Cairn's rules for links."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from notewright.engine.dialects.cairn import list_note_summaries
from notewright.engine.find.graph import find_links_from, find_links_to, find_neighbourhood
from notewright.engine.workspace import Workspace
from notewright.engine.write import delete
from notewright.errors import NotFound
from notewright.index.base import Selection
from notewright.notes.links.resolve import CAIRN
from notewright.notes.path import NotePath

MakeWorkspace = Callable[..., Workspace]


@pytest.mark.parametrize("vault", ["quartz-docs", "tasks-docs", "kepano-obsidian"])
def test_a_note_that_links_to_another_is_among_those_that_link_to_it(
    workspace: MakeWorkspace, shared: Path, tmp_path: Path, vault: str
) -> None:
    shutil.copytree(shared / "vaults" / vault, tmp_path / "Vault")
    ws = workspace(name="Vault")
    paths = [card.path for card in list_note_summaries(ws, Selection())[0]]
    out = {(path, link.path) for path in paths for link in find_links_from(ws, path, CAIRN) if link.status != "broken"}
    back = {(link.source, path) for path in paths for link in find_links_to(ws, path, CAIRN)}
    assert out == back and len(out) > 50


def test_every_link_that_leads_nowhere_is_found_under_the_path_it_is_known_by(
    workspace: MakeWorkspace, shared: Path, tmp_path: Path
) -> None:
    shutil.copytree(shared / "vaults" / "kepano-obsidian", tmp_path / "Vault")
    ws = workspace(name="Vault")
    paths = [card.path for card in list_note_summaries(ws, Selection())[0]]
    nowhere = [
        (path, link.path) for path in paths for link in find_links_from(ws, path, CAIRN) if link.status == "broken"
    ]
    assert len(nowhere) > 50
    for source, path in nowhere:
        assert path is not None and source in [link.source for link in find_links_to(ws, path, CAIRN)]


def test_a_note_deleted_long_ago_is_forgotten_and_later_ones_are_not(
    workspace: MakeWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("notewright.engine.find.graph.MAX_DELETED", 2)
    notes = {f"n{number}.md": f"---\naliases: [A{number}]\n---\n" for number in range(3)}
    ws = workspace({**notes, "x.md": "[[A0]] [[A1]] [[A2]]"})
    for path in notes:
        delete(ws, NotePath(path), trash=False)
        find_links_from(ws, NotePath("x.md"), CAIRN)
    assert [link.path for link in find_links_from(ws, NotePath("x.md"), CAIRN)] == ["A0.md", "n1.md", "n2.md"]


def test_nothing_is_around_what_nobody_knows(workspace: MakeWorkspace) -> None:
    ws = workspace({"a.md": "[[b]]"})
    assert find_neighbourhood(ws, NotePath("b.md"), CAIRN).incoming[0].path == "a.md"
    with pytest.raises(NotFound):
        find_neighbourhood(ws, NotePath("c.md"), CAIRN)
