"""Edits: what each one does, and what it leaves alone."""

import time
from typing import Any

import pytest

from notewright.errors import Ambiguous, Invalid, NotFound
from notewright.notes.edits import edit as edits_module
from notewright.notes.edits import properties as properties_module
from notewright.notes.edits import sections as sectionedits_module
from notewright.notes.edits.edit import (
    Append,
    Edit,
    InsertAtLine,
    InsertBesideText,
    Prepend,
    Replace,
    ReplaceBody,
    apply,
    apply_all,
    line_number,
    may_apply_again,
)
from notewright.notes.edits.merge import merge
from notewright.notes.edits.properties import AddTag, RemoveProperty, RemoveTag, SetProperty
from notewright.notes.edits.sections import (
    AppendToSection,
    DeleteSection,
    PrependToSection,
    ReplaceSection,
)
from notewright.notes.edits.splices import Splice, apply_splices
from notewright.notes.edits.yaml import yaml_block
from notewright.notes.parse.headings import HeadingRule
from notewright.notes.parse.parser import parse
from notewright.notes.path import NotePath

DOC = "# A\none\n\n## B\ntwo\n\n\n# C\nthree"


@pytest.mark.parametrize(
    ("text", "edit", "after"),
    [
        ("", Append("x"), "x"),
        ("a", Append("x"), "a\nx"),
        ("a\n", Append("x"), "a\nx"),
        ("a\r\nb", Append("x"), "a\r\nb\r\nx"),
        ("a", Append("x", separator="\n\n"), "a\n\nx"),
        ("a\r\n", Append("x", separator="\n\n"), "a\r\n\r\n\r\nx"),
        ("", Append("x", separator="\n\n"), "\n\nx"),
        ("---\na: 1\n---\n", Append("x", apart=True), "---\na: 1\n---\n\nx"),
        ("---\na: 1\n---", Append("x", apart=True), "---\na: 1\n---\n\nx"),
        ("---\na: 1\n---\n\nb", Append("x", apart=True), "---\na: 1\n---\n\nb\nx"),
        ("b", Prepend("x"), "x\nb"),
        ("\ufeffb", Prepend("x"), "\ufeffx\nb"),
        ("---\na: 1\n---\nb", Prepend("x"), "---\na: 1\n---\nx\nb"),
        ("---\na: 1\n---\n\nb", Prepend("x\n"), "---\na: 1\n---\n\nx\nb"),
        ("---\na: 1\n---\n", Prepend("x", apart=True), "---\na: 1\n---\n\nx\n"),
        ("---\na: 1\n---\nb\nb", ReplaceBody("x"), "---\na: 1\n---\nx"),
        ("b", ReplaceBody("x"), "x"),
        ("a\nb\nc", InsertAtLine(2, "x"), "a\nx\nb\nc"),
        ("a\nb\nc", InsertAtLine(3, "x", after=True), "a\nb\nc\nx"),
        ("a\r\nb\r\n", InsertAtLine(2, "x", after=True), "a\r\nb\r\nx\r\n"),
        ("a\n  b \nc", InsertBesideText("b", "x"), "a\nx\n  b \nc"),
        ("a\nb", InsertBesideText(" b", "x", after=True), "a\nb\nx"),
        ("---\nb\n---\nb\n", InsertBesideText("b", "x"), "---\nb\n---\nx\nb\n"),
    ],
)
def test_text_goes_where_it_was_asked_to(text: str, edit: Edit, after: str) -> None:
    assert apply(text, edit) == after


@pytest.mark.parametrize(
    ("edit", "after"),
    [
        (ReplaceSection("B", "new"), "# A\none\n\n## B\nnew\n\n\n# C\nthree"),
        (ReplaceSection("A", "new\n\n"), "# A\nnew\n\n# C\nthree"),
        (ReplaceSection("C", "new"), "# A\none\n\n## B\ntwo\n\n\n# C\nnew"),
        (ReplaceSection("B", ""), "# A\none\n\n## B\n\n\n# C\nthree"),
        (AppendToSection("A", "end"), "# A\none\n\n## B\ntwo\nend\n\n\n# C\nthree"),
        (AppendToSection("C", "end"), DOC + "\nend"),
        (AppendToSection("Z", "end", create=2), DOC + "\n\n## Z\nend\n"),
        (PrependToSection("A", "first"), "# A\nfirst\none\n\n## B\ntwo\n\n\n# C\nthree"),
        (DeleteSection("A"), "# C\nthree"),
        (DeleteSection("B"), "# A\none\n\n# C\nthree"),
        (AppendToSection("## B", "end", HeadingRule.EXACT), "# A\none\n\n## B\ntwo\nend\n\n\n# C\nthree"),
    ],
)
def test_sections_keep_the_blank_lines_before_the_next_heading(edit: Edit, after: str) -> None:
    assert apply(DOC, edit) == after


def test_appending_to_a_section_splits_no_list() -> None:
    assert apply("# Intro\nHello\n# Other\nWorld", AppendToSection("Intro", "More")) == (
        "# Intro\nHello\nMore\n# Other\nWorld"
    )


def test_a_section_at_the_end_of_a_note_without_a_last_line_end() -> None:
    assert apply("# A", AppendToSection("A", "x")) == "# A\nx"
    assert apply("# A", ReplaceSection("A", "x")) == "# A\nx"
    assert apply("# A\r\nb\r\n", AppendToSection("A", "x")) == "# A\r\nb\r\nx\r\n"


def test_a_missing_section_names_the_nearest_headings() -> None:
    with pytest.raises(NotFound) as caught:
        apply("# Water\n# Milk\n", DeleteSection("Watr"), NotePath("tea.md"))
    assert caught.value.details["what"] == "section"
    assert caught.value.details["nearest"][0] == "Water"
    assert "tea.md" in str(caught.value)


def test_a_headings_match_follows_the_rule_asked_for() -> None:
    assert apply("# intro\nx\n", AppendToSection("Intro", "y")) == "# intro\nx\ny\n"
    with pytest.raises(NotFound):
        apply("# intro\nx\n", AppendToSection("Intro", "y", HeadingRule.EXACT))


# ---- replace ------------------------------------------------------------------------------------------


def test_a_replacement_is_literal() -> None:
    assert apply("a $x b", Replace("$x", r"\1 $& \g<0>")) == r"a \1 $& \g<0> b"


def test_a_text_found_twice_is_ambiguous_and_says_where() -> None:
    with pytest.raises(Ambiguous) as caught:
        apply("aaa\nb\naa", Replace("aa", "x"))
    assert caught.value.details["count"] == 3
    assert caught.value.details["lines"] == [1, 3]


def test_lines_of_a_text_found_often_are_counted_in_one_walk() -> None:
    def found_on(text: str, old: str) -> list[int]:
        with pytest.raises(Ambiguous) as caught:
            apply(text, Replace(old, "x"))
        lines: list[int] = caught.value.details["lines"]
        return lines

    assert found_on("a\r\na\r\n\r\na\ra\n\ra\r\n", "a") == [1, 2, 4, 5, 7]
    assert found_on("a\r\n\r\na\r\n", "\n") == [line_number("a\r\n\r\na\r\n", place) for place in (2, 4, 7)]
    began = time.process_time()
    assert len(found_on(("a" + "\r\n" * 5_000) * 1_001, "a")) == 1_000
    assert time.process_time() - began < 5  # 10 MB; from the top for each place it takes a minute


def test_the_first_or_all_may_be_asked_for() -> None:
    assert apply("aaa a", Replace("a", "b", "first")) == "baa a"
    assert apply("aaaa", Replace("aa", "b", "all")) == "bb"


def test_the_frontmatter_can_be_left_alone() -> None:
    text = "---\nx: word\n---\nbody word"
    assert apply(text, Replace("word", "w", body=True)) == "---\nx: word\n---\nbody w"
    with pytest.raises(NotFound):
        apply("---\nx: word\n---\nbody", Replace("word", "w", body=True))


def test_an_empty_text_to_replace_is_refused() -> None:
    with pytest.raises(Invalid):
        apply("x", Replace("", "y"))


def test_lines_are_found_in_a_note_with_windows_line_ends() -> None:
    assert apply("a\r\nb\r\nc", Replace("a\nb", "x\ny")) == "x\r\ny\r\nc"


# ---- lines of the note as read ------------------------------------------------------------------------


def test_line_numbers_are_those_of_the_note_as_read() -> None:
    edits = [Prepend("zero"), InsertAtLine(2, "x"), InsertAtLine(2, "y"), InsertAtLine(2, "z", after=True)]
    assert apply_all("a\nb\nc", edits) == "zero\na\nx\ny\nb\nz\nc"


def test_a_line_that_an_earlier_edit_replaced_is_gone() -> None:
    edits = [Replace("a\nb\nc", "x"), InsertAtLine(2, "y")]
    with pytest.raises(Invalid):
        apply_all("a\nb\nc\nd", edits)


@pytest.mark.parametrize("line", [0, -1, 4])
def test_a_line_that_is_not_there_is_not_found(line: int) -> None:
    with pytest.raises(NotFound):
        apply("a\nb\nc\n", InsertAtLine(line, "x"))


SAFE_AGAIN = {
    Append("x"): True,
    Prepend("x"): True,
    InsertBesideText("a", "x"): True,
    SetProperty("k", 1): True,
    RemoveProperty("k"): True,
    AddTag("t"): True,
    RemoveTag("t"): True,
    AppendToSection("A", "x"): True,
    PrependToSection("A", "x"): True,
    ReplaceSection("A", "x"): True,
    DeleteSection("A"): True,
    InsertAtLine(1, "x"): False,
    ReplaceBody("x"): False,
}


@pytest.mark.parametrize(("edit", "safe"), SAFE_AGAIN.items(), ids=lambda value: type(value).__name__)
def test_only_edits_that_mean_the_same_may_be_applied_to_a_newer_text(edit: Edit, safe: bool) -> None:
    assert may_apply_again(edit, "# A\na\n") is safe


def test_every_edit_is_said_to_be_safe_again_or_not() -> None:
    named = {type(edit).__name__ for edit in SAFE_AGAIN} | {"Replace"}
    there = [
        value
        for module in (edits_module, properties_module, sectionedits_module)
        for value in vars(module).values()
        if isinstance(value, type)
    ]
    assert {kind.__name__ for kind in there if hasattr(kind, "splices") and kind is not Edit} == named


def test_a_replacement_is_safe_again_where_its_text_is_there_once() -> None:
    assert may_apply_again(Replace("a", "b", "all"), "xax")
    assert not may_apply_again(Replace("a", "b"), "aa")
    assert not may_apply_again(Replace("a", "b"), "x")


def test_splices_that_overlap_are_a_mistake() -> None:
    assert apply_splices("abc", [Splice(1, 2, "x"), Splice(2, 2, "y"), Splice(0, 1, "")]) == "xyc"
    with pytest.raises(ValueError, match="overlap"):
        apply_splices("abc", [Splice(0, 2, "x"), Splice(1, 3, "y")])


# ---- properties ---------------------------------------------------------------------------------------

FRONT = """---
# about
title: 'It''s'   # kept
tags:
  - one
  - "two"  # kept

list: [a, "b, c"]
text: |
  x: y
  - z
created: 2024-01-01
---
Body
"""


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("title", "plain", "title: plain"),
        ("title", "a: b", 'title: "a: b"'),
        ("new", 3, "new: 3"),
        ("new", True, "new: true"),
        ("new", None, "new:"),
        ("new", "true", 'new: "true"'),
        ("new", "007", 'new: "007"'),
        ("new", "2024-01-01", "new: 2024-01-01"),
        ("new", "[[Link]]", 'new: "[[Link]]"'),
        ("new", "#x", 'new: "#x"'),
        ("new", [], "new: []"),
        ("new", ["a", "b, c"], "new:\n  - a\n  - b, c"),
        ("list", ["a", "b, c"], 'list: [a, "b, c"]'),
        ("new", {"a": 1, "b": ["x"]}, "new:\n  a: 1\n  b: [x]"),
        ("text", "one", "text: one"),
        ("odd key: x", 1, '"odd key: x": 1'),
        ("new", "line\nbreak", 'new: "line\\nbreak"'),
        ("new", 1.5, "new: 1.5"),
    ],
)
def test_a_property_is_written_so_that_it_reads_back(key: str, value: Any, line: str) -> None:
    after = apply(FRONT, SetProperty(key, value))
    assert line + "\n" in after
    assert parse(NotePath("n.md"), after).frontmatter.properties[key] == value


def test_only_the_lines_of_the_key_change() -> None:
    after = apply(FRONT, SetProperty("list", "x"))
    assert after == FRONT.replace('list: [a, "b, c"]', "list: x")
    assert apply(FRONT, RemoveProperty("text")) == FRONT.replace("text: |\n  x: y\n  - z\n", "")
    assert apply(FRONT, RemoveProperty("nothing")) == FRONT


def test_a_block_is_made_where_there_is_none() -> None:
    assert apply("Body", SetProperty("a", 1)) == "---\na: 1\n---\nBody"
    assert apply("Body", SetProperty("a", 1, apart=True)) == "---\na: 1\n---\n\nBody"
    assert apply("\ufeffa\r\nb", SetProperty("a", [1])) == "\ufeff---\r\na:\r\n  - 1\r\n---\r\na\r\nb"
    assert apply("", SetProperty("a", 1)) == "---\na: 1\n---\n"


def test_lists_come_in_three_styles() -> None:
    assert apply("", SetProperty("tags", ["x"], "flow")) == "---\ntags: [x]\n---\n"
    assert apply("", SetProperty("tags", ["x"], "flush")) == "---\ntags:\n- x\n---\n"
    assert yaml_block({"tags": ["vc"], "n": 1}, "flush") == "---\ntags:\n- vc\nn: 1\n---\n"
    assert yaml_block({}) == ""


@pytest.mark.parametrize("edit", [SetProperty("a", 1), RemoveProperty("a"), AddTag("x"), RemoveTag("x")])
def test_a_broken_frontmatter_is_never_rewritten(edit: Edit) -> None:
    with pytest.raises(Invalid):
        apply("---\na: [1\nb: }\n---\nBody", edit)


def test_json_properties_stay_json() -> None:
    text = '---\n{"a": 1, "b": [2]}\n---\n'
    assert apply(text, SetProperty("a", "x")) == '---\n{"a": "x", "b": [2]}\n---\n'
    assert apply(text, SetProperty("c", True)) == '---\n{"a": 1, "b": [2], "c": true}\n---\n'
    assert apply(text, RemoveProperty("a")) == '---\n{"b": [2]}\n---\n'
    assert apply(text, RemoveProperty("b")) == '---\n{"a": 1}\n---\n'


def test_a_tag_is_added_once_in_the_style_of_the_others() -> None:
    assert apply(FRONT, AddTag("three")) == FRONT.replace('"two"  # kept\n', '"two"  # kept\n  - three\n')
    assert apply(FRONT, AddTag("ONE")) == FRONT
    assert apply("---\ntags: [a, 'b']\n---\n", AddTag("c")) == "---\ntags: [a, 'b', c]\n---\n"
    assert apply("---\ntags: a\n---\n", AddTag("c")) == "---\ntags:\n  - a\n  - c\n---\n"
    assert apply("---\ntags:\n---\n", AddTag("c")) == "---\ntags:\n  - c\n---\n"
    assert apply("x", AddTag("c", "flush")) == "---\ntags:\n- c\n---\nx"


def test_case_may_matter_for_tags() -> None:
    assert apply("---\ntags:\n- a\n---\n", AddTag("A", ignore_case=False)) == "---\ntags:\n- a\n- A\n---\n"
    assert apply("---\ntags:\n- a\n---\n", RemoveTag("A", ignore_case=False)) == "---\ntags:\n- a\n---\n"


def test_a_tag_is_taken_away_and_the_others_stay_as_written() -> None:
    assert apply(FRONT, RemoveTag("#One")) == FRONT.replace("  - one\n", "")
    assert apply("---\ntags: [a, b]\n---\n", RemoveTag("a")) == "---\ntags: [b]\n---\n"
    assert apply("---\ntags: [a]\n---\n", RemoveTag("a")) == "---\ntags: []\n---\n"
    assert apply("---\nx: 1\n---\n", RemoveTag("a")) == "---\nx: 1\n---\n"


# ---- merge --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "merged"),
    [
        ("a\nb\nc\n", "A\nb\nc\n", "a\nb\nC\n", "A\nb\nC\n"),
        ("a\nx\n", "a\n", "a\nx\ny\n", "a\ny\n"),
        ("a\nx", "a", "a\nx\ny", "a\ny"),
        ("one cat\n", "one dog\n", "one cat here\n", "one dog here\n"),
        ("a\r\nb\r\n", "a\r\nB\r\n", "A\r\nb\r\n", "A\r\nB\r\n"),
        ("a\n", "a\nx\n", "a\ny\n", None),
        ("a cat\n", "a dog\n", "a cow\n", None),
        ("1\n2\n3\n", "1\n3\n", "1\nx\n3\n", None),
        ("1\n2\n3\n", "1\n3\n", "1\n3\n", "1\n3\n"),
        ("x\na\nx\na\nx\n", "n\na\nx\na\nx\n", "x\na\nx\na\nm\n", "n\na\nx\na\nm\n"),  # lines that repeat
        ("x\nt\n", "x\nx\nt\n", "y\nt\n", None),  # before or after the new one?
        ("p\n\nq\n", "p\n\nnew\n\nq\n", "P\n\nq\n", "P\n\nnew\n\nq\n"),  # of two blank lines one is new
    ],
)
def test_two_changes_are_put_together_where_they_do_not_overlap(
    base: str, ours: str, theirs: str, merged: str | None
) -> None:
    assert merge(base, ours, theirs) == merged
    assert merge(base, theirs, ours) == merged
