"""What a caller may not see is in no answer, and what it may not write stays as it is."""

import json
from collections.abc import Callable
from dataclasses import asdict, is_dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from notewright.engine.access import Access
from notewright.engine.changes.history import list_changes, undo
from notewright.engine.check import check, mentions
from notewright.engine.daily import append_daily
from notewright.engine.dialects.octarine import fetch_copy, walk
from notewright.engine.find.context import pack_for_words
from notewright.engine.find.grep import Find, Grep, find_notes_containing, find_text, grep
from notewright.engine.find.links import incoming, outgoing
from notewright.engine.find.search import parse_query, search
from notewright.engine.move import move
from notewright.engine.read import find_nearest_paths, list_files, list_folder, locate, read
from notewright.engine.workspace import Workspace
from notewright.engine.write import change_path, create, delete, edit_note, put
from notewright.errors import Forbidden, Invalid, NotFound, Problem, ReadOnly, TooLarge
from notewright.index.base import Query, Selection
from notewright.ledger.base import Actor, ChangeQuery
from notewright.notes.path import NotePath

SECRET = "Zanzibar"
OPEN = NotePath("Open.md")


@pytest.fixture
def ws(workspace) -> Workspace:
    made = workspace(
        {
            "Open.md": "Tea. See [[Hidden]] and [[Private/Zanzibar plan]].\n\n#tea\n",
            "Other.md": "[[Open]] mentions tea\n",
            "Private/Hidden.md": "---\naliases: [Zanzibar alias]\ntags: [zanzibar]\n---\nTea at Zanzibar [[Open]]\n",
            "Private/Zanzibar plan.md": "# Zanzibar\nOpen the tea\n",
            ".obsidian/zanzibar.md": "Tea in Zanzibar\n",
            ".git/config": "Zanzibar",
        },
        hide=("Private/**",),
    )
    unhidden = replace(made, access=Access())
    edit_note(unhidden, NotePath("Private/Hidden.md"), [engine_append("more Zanzibar\n")])
    return made


def engine_append(text: str) -> Any:
    from notewright.notes.edits.edit import Append

    return Append(text)


def said(answer: Any) -> str:
    """Everything an answer says, as text."""
    return json.dumps(answer, default=lambda value: asdict(value) if is_dataclass(value) else str(value))


@pytest.mark.parametrize("pattern", ["Private", "Private/", "/Private", "./Private/", "/Private/**", "Private/**"])
def test_a_folder_is_hidden_whole_however_its_pattern_is_written(pattern: str) -> None:
    access = Access(hide=(pattern,))
    assert not any(access.sees(path) for path in ("Private", "Private/A.md", "Private/Deep/B.md"))
    assert all(access.sees(path) for path in ("Privateer.md", "Not/Private.md", "private/A.md"))


@pytest.mark.parametrize("pattern", ["", "/", "**", "**/"])
def test_a_pattern_of_nothing_in_particular_hides_everything(pattern: str) -> None:
    assert not any(Access(hide=(pattern,)).sees(path) for path in ("A.md", "Deep/B.md"))


QUESTIONS: dict[str, Callable[[Workspace], Any]] = {
    "search": lambda ws: search(ws, parse_query("tea zanzibar")),
    "search by tag": lambda ws: search(ws, Query(tags=("zanzibar",))),
    "grep": lambda ws: grep(ws, Grep("tea")),
    "grep of files": lambda ws: grep(ws, Grep("tea|config", dialect="python-like", files=True)),
    "find": lambda ws: find_text(ws, Find("tea")),
    "containing": lambda ws: find_notes_containing(ws, "tea"),
    "listing": lambda ws: list_files(ws, Selection(notes_only=False, visible=ws.access.visibility)),
    "folder": lambda ws: list_folder(ws, ""),
    "glob": lambda ws: list_folder(ws, "", glob="**"),
    "walk": lambda ws: list(walk(ws, "", recursive=True)),
    "links in": lambda ws: incoming(ws, OPEN),
    "mentions": lambda ws: mentions(ws, OPEN),
    "context": lambda ws: [(one.path, one.text) for one in pack_for_words([ws], "tea", 4000).passages],
    "check": lambda ws: [finding for finding in check(ws) if finding.path != "Open.md"],
    "history": lambda ws: list_changes(ws, ChangeQuery()),
    "nearest": lambda ws: find_nearest_paths(ws, "Zanzibar plam.md"),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_nothing_hidden_is_in_any_answer(ws: Workspace, question: str) -> None:
    told = said(QUESTIONS[question](ws)).replace("[[Private/Zanzibar plan]]", "")  # what a visible note itself says
    assert "Private" not in told and "Hidden.md" not in told and "plan.md" not in told and ".git" not in told
    assert SECRET not in told


def test_a_link_to_a_hidden_note_leads_nowhere(ws: Workspace) -> None:
    assert [link.status for link in outgoing(ws, OPEN)] == ["broken", "broken"]


@pytest.mark.parametrize("name", ["Hidden", "Private/Hidden", "Zanzibar alias", ".git/config", ".obsidian/zanzibar"])
def test_a_hidden_note_cannot_be_named(ws: Workspace, name: str) -> None:
    with pytest.raises(NotFound) as refused:
        locate(ws, name)
    assert "Private/" not in str(refused.value).replace(name, "")


@pytest.mark.parametrize("path", ["Private/Hidden.md", ".git/config", ".obsidian/zanzibar.md"])
def test_a_hidden_file_cannot_be_read(ws: Workspace, path: str) -> None:
    with pytest.raises(NotFound):
        read(ws, NotePath(path))


@pytest.mark.parametrize("path", ["Private/New.md", "Private/Hidden.md", ".git/hook", "a/.b/c.md"])
def test_nothing_is_written_where_it_may_not(ws: Workspace, path: str) -> None:
    with pytest.raises(Problem) as refused:
        put(ws, NotePath(path), b"x")
    assert isinstance(refused.value, Forbidden | NotFound | Invalid)


def test_a_read_only_workspace_takes_no_change(workspace) -> None:
    ws = workspace({"A.md": "x\n"}, read_only=True)
    for change in (
        lambda: create(ws, NotePath("B.md"), b""),
        lambda: put(ws, NotePath("A.md"), b""),
        lambda: delete(ws, NotePath("A.md")),
        lambda: edit_note(ws, NotePath("A.md"), [engine_append("y")]),
        lambda: move(ws, NotePath("A.md"), "B"),
        lambda: change_path(ws, NotePath("A.md"), NotePath("B.md")),
        lambda: append_daily(ws, date(2026, 1, 1), "x", None),
    ):
        with pytest.raises(ReadOnly):
            change()
    assert read(ws, NotePath("A.md")).text == "x\n"


def test_writing_is_allowed_under_named_folders_alone(workspace) -> None:
    ws = workspace({"A.md": "x\n"}, write_under=("Inbox/**",))
    assert create(ws, NotePath("Inbox/B.md"), b"").created
    with pytest.raises(Forbidden, match="Inbox"):
        create(ws, NotePath("B.md"), b"")


def test_a_note_over_the_limit_is_refused(workspace) -> None:
    ws = workspace({"A.md": "x\n"}, max_file_size=10)
    with pytest.raises(TooLarge):
        put(ws, NotePath("A.md"), b"x" * 11)
    with pytest.raises(TooLarge):
        edit_note(ws, NotePath("A.md"), [engine_append("y" * 10)])


def test_odd_files_in_hidden_folders_are_not_reported(workspace) -> None:
    ws = workspace({"Open.md": "tea\n", "Private/back\\slash.md": "x\n"}, hide=("Private/**",))
    assert [finding for finding in check(ws) if "slash" in finding.path] == []


def test_rules_of_the_workspace_and_of_the_caller_both_hold() -> None:
    both = Access(hide=("a/**",), write_under=("w/**",)).narrowed(Access(hide=("b/**",), write_under=("w/x/**",)))
    assert (both.sees("a/1.md"), both.sees("b/1.md"), both.sees("c.md")) == (False, False, True)
    both.may_write(NotePath("w/x/1.md"))
    with pytest.raises(Forbidden):
        both.may_write(NotePath("w/1.md"))


@pytest.mark.parametrize("owner", [True, False])
@pytest.mark.parametrize("caller", [True, False])
def test_rules_are_read_only_where_either_of_them_is(owner: bool, caller: bool) -> None:
    both = Access(read_only=owner, hide=("a/**",)).narrowed(Access(read_only=caller, hide=("b/**",)))
    assert both.read_only is (owner or caller)
    assert not both.sees(NotePath("a/x.md")) and not both.sees(NotePath("b/x.md")) and both.sees(NotePath("c/x.md"))


def test_another_client_cannot_undo_what_it_may_not_see(ws: Workspace) -> None:
    hidden = replace(ws, access=Access())
    change = list_changes(hidden, ChangeQuery())[0]
    with pytest.raises(NotFound):
        undo(ws.by(Actor("u", "c")), change.id)


def test_a_symbolic_link_does_not_lead_around_the_rules(workspace, tmp_path: Path) -> None:
    (tmp_path / "Main").mkdir()
    (tmp_path / "Main" / "way").symlink_to("Private")
    (tmp_path / "Main" / "direct.md").symlink_to("Private/S.md")
    (tmp_path / "Main" / "open.md").symlink_to("A.md")
    ws = workspace({"A.md": "a\n", "Private/S.md": "secret\n"}, hide=("Private/**",))
    assert read(ws, NotePath("open.md")).text == "a\n"
    for path in ("direct.md", "way/S.md"):
        with pytest.raises(NotFound):
            read(ws, NotePath(path))
        with pytest.raises(NotFound):
            fetch_copy(ws, NotePath(path))
    assert sorted(entry.path for entry in walk(ws, "", recursive=True)) == ["A.md", "open.md"]
    with pytest.raises(NotFound):
        list(walk(ws, "way", recursive=False))


def test_a_symlink_to_the_root_is_no_note_where_something_is_hidden(workspace, tmp_path: Path) -> None:
    ws = workspace({"a.md": "hi\n", "Private/x.md": "x\n"}, hide=("Private/**",))
    (tmp_path / "Main" / "top").symlink_to(".")
    with pytest.raises(NotFound):
        read(ws, NotePath("top"))
