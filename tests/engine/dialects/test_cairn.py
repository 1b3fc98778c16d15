"""Notes with times that are ours to keep, and aliases that belong to one note."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notewright.engine.changes.history import find_change, undo
from notewright.engine.dialects.cairn import (
    add_tags_and_aliases,
    body_of,
    patch_or_create,
    patch_stamped,
    set_times,
    write_stamped,
)
from notewright.engine.workspace import Workspace
from notewright.errors import Exists, Invalid, NotFound, Quota, TooLarge
from notewright.notes.edits.edit import Append, Replace, apply, read_frontmatter
from notewright.notes.edits.sections import AppendToSection
from notewright.notes.parse.parser import parse
from notewright.notes.path import NotePath

A = NotePath("a.md")
NOW, LATER = "2026-02-24T12:00:00Z", "2026-02-25T12:00:00Z"
MakeWorkspace = Callable[..., Workspace]


def text(ws: Workspace, path: NotePath = A) -> str:
    return ws.store.read(path).data.decode()


# ---- texts --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "given_text", "after"),
    [
        (None, "x", f"---\ncreated: {NOW}\nmodified: {NOW}\n---\n\nx"),
        (None, "", f"---\ncreated: {NOW}\nmodified: {NOW}\n---\n"),
        (None, "---\ncreated: 1999\n---\nx", f"---\ncreated: 1999\nmodified: {NOW}\n---\nx"),
        ("old", "x", "x"),
        ("old", "---\nmodified: then\n---\nx", f"---\nmodified: {NOW}\n---\nx"),
        ("---\ncreated: 1999\n---\n", "x", "---\ncreated: 1999\n---\n\nx"),
        ("---\ncreated: 1999\n---\n", "---\ncreated: 2001\n---\nx", "---\ncreated: 1999\n---\nx"),
        ("---\ncreated: 1999\n---\n", "---\na: [\n---\nx", "---\na: [\n---\nx"),
        ("---\na: [\ncreated: 1999\n---\n", "x", "x"),
        (None, "---\n- a list\n---\nx", "---\n- a list\n---\nx"),
        (None, '---\n{"a": 1}\n---\n', f'---\n{{"a": 1, "created": "{NOW}", "modified": "{NOW}"}}\n---\n'),
    ],
)
def test_times_go_where_they_belong(before: str | None, given_text: str, after: str) -> None:
    assert set_times(A, given_text, before, NOW) == after


@given(st.text(alphabet="ab-:#[]'\"\n\r \ufeff", max_size=60))
def test_a_stamp_adds_lines_of_its_own_and_leaves_every_other_character(given_text: str) -> None:
    once = set_times(A, given_text, None, NOW)
    assert once.endswith(given_text[read_frontmatter(given_text).end :])
    assert set_times(A, once, once, NOW) == once
    renewed = set_times(A, once, once, LATER)
    assert renewed.replace(LATER, NOW) == once


@given(st.text(alphabet="ab-:#[]'\"\n ", max_size=60))
def test_joining_nothing_changes_nothing_but_backlinks(given_text: str) -> None:
    assert add_tags_and_aliases(A, given_text, (), ()) == given_text


@pytest.mark.parametrize(
    ("content", "tags", "aliases", "after"),
    [
        ("x", ["t", "T", "#u"], ["A", " a ", "B"], "---\ntags: [t, u]\naliases: [A, B]\n---\n\nx"),
        ("---\ntags: x\naliases: A, B\n---\n", ["y"], ["C"], "---\ntags: [x, y]\naliases: [A, B, C]\n---\n"),
        ("---\nTags: []\nAliases:\n- A\n---\n", ["y"], ["C"], "---\nTags: [y]\nAliases:\n- A\n- C\n---\n"),
        ("---\nbacklinks:\n  - path: x\n    context: y\nb: 1\n---\nz", [], [], "---\nb: 1\n---\nz"),
        ("---\nbacklinks: [a]\n---\nz", [], [], "---\n---\nz"),
    ],
)
def test_tags_and_aliases_are_united(content: str, tags: list[str], aliases: list[str], after: str) -> None:
    assert add_tags_and_aliases(A, content, tags, aliases) == after


def test_nothing_is_joined_to_what_cannot_be_read() -> None:
    broken = "---\nbacklinks: [\n---\n"
    assert add_tags_and_aliases(A, broken, (), ()) == broken
    with pytest.raises(Invalid):
        add_tags_and_aliases(A, broken, ["t"], ())


@pytest.mark.parametrize(
    ("whole", "body"),
    [
        ("---\na: 1\n---\n\nx\n", "x\n"),
        ("---\na: 1\n---\nx\n", "x\n"),
        ("---\na: 1\n---\n\n\nx", "\nx"),
        ("---\r\na: 1\r\n---\r\n \t\r\nx", "x"),
        ("---\na: 1\n---", ""),
        ("---\na: [\n---\nx", "---\na: [\n---\nx"),
        ("\ufeffx", "x"),
        ("\n\nx", "\n\nx"),
    ],
)
def test_the_body_begins_below_one_blank_line(whole: str, body: str) -> None:
    assert body_of(whole) == body


# ---- writing ------------------------------------------------------------------------------------------


def test_a_write_is_one_change_that_can_be_undone(workspace: MakeWorkspace) -> None:
    ws = workspace({"a.md": "old"})
    done = write_stamped(ws, A, "new", tags=["t"])
    assert (done.created, text(ws)) == (False, "---\ntags: [t]\n---\n\nnew")
    assert done.change_id and len(find_change(ws, done.change_id).steps) == 1
    undo(ws, done.change_id)
    assert text(ws) == "old"


def test_writing_the_same_again_is_no_change(workspace: MakeWorkspace) -> None:
    ws = replace(workspace(), clock=lambda: 1_771_934_400.0)
    assert write_stamped(ws, A, "x").change_id is not None
    again = write_stamped(ws, A, "x")
    assert (again.change_id, again.created, again.added) == (None, False, 0)


def test_an_edit_that_changes_nothing_is_not_stamped(workspace: MakeWorkspace) -> None:
    ws = workspace({"a.md": "---\nmodified: then\n---\nx"})
    done = patch_stamped(ws, A, Replace("x", "x"))
    assert (done.change_id, done.added) == (None, 0)
    assert text(ws) == "---\nmodified: then\n---\nx"


@pytest.mark.parametrize(("edit", "added"), [(Append("yy", apart=True), 2), (Replace("a: 1", "a: 22"), 1)])
def test_what_is_counted_is_the_body_or_all_of_it_for_a_replacement(
    workspace: MakeWorkspace, edit: Append | Replace, added: int
) -> None:
    assert patch_stamped(workspace({"a.md": "---\na: 1\nmodified: x\n---\n"}), A, edit).added == added


def test_an_alias_of_another_note_is_named_with_its_owner(workspace: MakeWorkspace) -> None:
    ws = workspace({"b.md": "---\naliases: [JW]\n---\n"})
    with pytest.raises(Exists) as refused:
        write_stamped(ws, A, "x", aliases=["jw"])
    assert (refused.value.details["alias"], refused.value.details["path"]) == ("jw", "b.md")
    with pytest.raises(NotFound):
        ws.store.read(A)


def test_an_alias_of_a_note_that_may_not_be_seen_is_free(workspace: MakeWorkspace) -> None:
    ws = workspace({"Private/b.md": "---\naliases: [JW]\n---\n"}, hide=("Private/**",))
    assert write_stamped(ws, A, "x", aliases=["JW"]).created


def test_too_much_is_refused_and_less_than_before_is_not(workspace: MakeWorkspace) -> None:
    ws = workspace({"a.md": "x" * 1_200_000}, quota_files=1)
    with pytest.raises(TooLarge):
        patch_stamped(ws, A, Append("y"))
    assert patch_stamped(ws, A, Replace("x" * 1_199_999, "", which="first")).added == -1_199_999
    with pytest.raises(Quota):
        write_stamped(ws, NotePath("b.md"), "y")


# ---- beginning ----------------------------------------------------------------------------------------


def test_an_edit_of_a_note_that_cannot_be_begun_so_makes_nothing(workspace: MakeWorkspace) -> None:
    ws = workspace()
    with pytest.raises(NotFound) as refused:
        patch_or_create(ws, A, "begun\n", AppendToSection("S", "x"))
    assert refused.value.details["what"] == "section"
    assert list(ws.store.entries()) == []


def test_beginning_without_an_edit_leaves_what_is_there(workspace: MakeWorkspace) -> None:
    ws = workspace({"a.md": "there"})
    assert (patch_or_create(ws, A, "begun", None).created, text(ws)) == (False, "there")
    made = patch_or_create(ws, NotePath("b.md"), "begun", None)
    assert made.created and body_of(text(ws, NotePath("b.md"))) == "begun"


def test_many_who_begin_one_note_at_once_lose_nothing(workspace: MakeWorkspace) -> None:
    ws = workspace()
    with ThreadPoolExecutor(20) as pool:
        done = list(pool.map(lambda n: patch_or_create(ws, A, "", Append(f"line {n}", apart=True)), range(20)))
    assert sorted(body_of(text(ws)).split("\n")) == sorted(f"line {n}" for n in range(20))
    assert sum(one.created for one in done) == 1


@given(st.text(alphabet="# ab\n\r", max_size=40), st.text(alphabet="ab\n", max_size=10))
def test_an_appended_text_is_the_end_of_the_body(before: str, more: str) -> None:
    after = apply(before, Append(more, apart=True))
    assert after.startswith(before) and after.endswith(more)
    assert parse(A, after).text == after
