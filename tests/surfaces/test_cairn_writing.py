"""Cairn's writing and patching, word for word (contracts A1, A2)."""

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.surfaces.cairn_agent import JAMIE, NOON, PARTS, STAMP, OpenAgent

from notewright import errors
from notewright.engine.library import Library
from notewright.notes.path import NotePath
from notewright.surfaces.base import Call, FailedCall
from notewright.surfaces.cairn.tools import SURFACE

pytestmark = pytest.mark.slow  # its transcripts are quick


# ---- writing ------------------------------------------------------------------------------------------


def test_a_new_note_gets_its_times_and_the_content_as_given(cairn: OpenAgent) -> None:
    agent = cairn().at(NOON)
    assert agent.said("write", path="a/b", content="# Hi\r\n [[x]]  ") == (
        '{"path":"a/b","created":true,"links_found":1}'
    )
    assert agent.file("a/b") == (
        "---\r\ncreated: 2026-02-24T12:00:00Z\r\nmodified: 2026-02-24T12:00:00Z\r\n---\r\n\r\n# Hi\r\n [[x]]  "
    )


def test_writing_again_keeps_created_and_renews_modified(cairn: OpenAgent) -> None:
    agent = cairn()
    agent.at(NOON).json("write", path="a", content="one")
    assert agent.at(NOON + 60).json("write", path="a", content="two") == {
        "path": "a",
        "created": False,
        "links_found": 0,
    }
    assert agent.file("a") == "---\ncreated: 2026-02-24T12:00:00Z\nmodified: 2026-02-24T12:01:00Z\n---\n\ntwo"


def test_what_was_read_can_be_written_back(cairn: OpenAgent) -> None:
    agent = cairn({"b": "[[a]]"}).at(NOON)
    agent.json("write", path="a", content=JAMIE)
    before = agent.file("a")
    agent.json("write", path="a", content=agent.said("read", path="a"))
    assert agent.file("a") == before
    agent.json("write", path="a", content=agent.said("read", path="a", metadata_only=True))
    assert "backlinks" not in agent.file("a")


def test_tags_and_aliases_join_those_of_the_content(cairn: OpenAgent) -> None:
    agent = cairn()
    content = "---\ntags:\n  - a # why\n  - B\naliases: [One]\n---\nx"
    agent.json("write", path="n", content=content, tags=["b", "#c", "", "c"], aliases=["Two", "one", " "])
    assert agent.file("n").startswith("---\ntags:\n  - a # why\n  - B\n  - c\naliases: [One, Two]\ncreated: ")


def test_tags_and_aliases_without_frontmatter_make_one(cairn: OpenAgent) -> None:
    agent = cairn()
    agent.json("write", path="n", content="x", tags=["a", "b c"], aliases=["One: two"])
    assert re.fullmatch(
        f'---\ntags: \\[a, b c\\]\naliases: \\["One: two"\\]\ncreated: {STAMP}\nmodified: {STAMP}\n---\n\nx',
        agent.file("n"),
    )


def test_a_blank_line_sets_the_body_apart_from_a_frontmatter_that_we_write_into(cairn: OpenAgent) -> None:
    agent = cairn({"old": "---\na: 1\n---\nbody"}).at(NOON)
    times = "created: 2026-02-24T12:00:00Z\nmodified: 2026-02-24T12:00:00Z\n"
    for body, written in (("body", "\nbody"), ("\nbody", "\nbody"), ("", ""), ("\n\nbody", "\n\nbody")):
        agent.json("write", path="n", content=f"---\ntitle: N\n---\n{body}")
        assert agent.file("n") == f"---\ntitle: N\n{times}---\n{written}"
    agent.json("write", path="crlf", content="---\r\ntitle: N\r\n---\r\nbody\r\n")
    assert agent.file("crlf").endswith("---\r\n\r\nbody\r\n")
    agent.json("write", path="old", content="---\na: 2\n---\nnew")
    assert agent.file("old") == "---\na: 2\n---\nnew"


def test_links_in_the_body_outside_code_are_counted(cairn: OpenAgent) -> None:
    content = "---\nup: '[[no]]'\n---\n[[a]] [[a|b]] ![[a#c]] `[[no]]`\n```\n[[no]]\n```\n[no](no.md) \\[[no]]\n"
    assert cairn().json("write", path="n", content=content)["links_found"] == 3


def test_a_note_that_was_there_gets_no_stamps(cairn: OpenAgent) -> None:
    agent = cairn({"a": "old"})
    assert agent.json("write", path="a", content="new")["created"] is False
    assert agent.file("a") == "new"


def test_a_key_that_is_there_is_kept_up_to_date(cairn: OpenAgent) -> None:
    agent = cairn({"a": "---\nmodified: then\n---\nold"}).at(NOON)
    agent.json("write", path="a", content="new")
    assert agent.file("a") == "---\nmodified: 2026-02-24T12:00:00Z\n---\n\nnew"


def test_broken_frontmatter_is_written_as_given_and_never_stamped(cairn: OpenAgent) -> None:
    agent, text = cairn(), "---\ntags: [a\n---\nbody"
    agent.json("write", path="a", content=text)
    assert agent.file("a") == text
    assert agent.refused("write", path="a", content=text, tags=["t"]).startswith("validation_error: ")
    agent.json("patch", path="a", op="append", content="more")
    assert agent.file("a") == text + "\nmore"


def test_a_note_of_more_than_a_mebibyte_is_refused(cairn: OpenAgent) -> None:
    agent = cairn({"big": "x" * 1_100_000})
    assert agent.json("write", path="a", content="é" * 524_288)["created"] is True
    refused = agent.refused("write", path="b", content="é" * 524_288 + "x")
    assert refused == "validation_error: Note 'b' would be larger than 1,048,576 bytes"
    assert agent.refused("patch", path="big", op="append", content="y").startswith("validation_error: ")
    assert agent.json("write", path="big", content="y" * 1_090_000)["created"] is False  # it gets smaller
    assert not (agent.root / "b.md").exists()


def test_an_alias_of_another_note_is_refused_before_anything_is_written(cairn: OpenAgent) -> None:
    agent = cairn({"people/jamie": "---\naliases: [JW]\n---\n", "b": "old"})
    said = "alias_conflict: alias 'jw' is already claimed by 'people/jamie'"
    assert agent.refused("write", path="a", content="x", aliases=["Fine", "jw"]) == said
    assert agent.refused("write", path="b", content="---\naliases: jw\n---\n") == said
    assert not (agent.root / "a.md").exists() and agent.file("b") == "old"


def test_a_patch_that_adds_a_claimed_alias_changes_nothing(cairn: OpenAgent) -> None:
    text = "---\naliases: [Mine]\n---\nx"
    agent = cairn({"a": "---\naliases: [JW]\n---\n", "b": text})
    refused = agent.refused("patch", path="b", op="replace", find="[Mine]", content="[Mine, JW]")
    assert refused == "alias_conflict: alias 'JW' is already claimed by 'a'"
    assert agent.file("b") == text


def test_twins_that_were_there_before_do_not_stand_in_the_way(cairn: OpenAgent) -> None:
    text = "---\naliases: [JW]\n---\nx"
    agent = cairn({"a": text, "b": text})
    assert agent.json("patch", path="b", op="append", content="y")["bytes_added"] == 2
    assert agent.json("write", path="b", content=text + "z")["created"] is False


def test_a_note_may_give_its_alias_up_to_another(cairn: OpenAgent) -> None:
    agent = cairn({"a": "---\naliases: [JW]\n---\n"})
    agent.json("write", path="a", content="none")
    assert agent.json("write", path="b", content="x", aliases=["JW"])["created"] is True


def test_one_of_many_who_claim_an_alias_at_once_gets_it(cairn: OpenAgent) -> None:
    agent = cairn()
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: agent("write", path=f"n{n}", content="x", aliases=["Only"]), range(8)))
    assert sorted(answer.is_error for answer in answers) == [False] + [True] * 7
    assert all(answer.text.startswith("alias_conflict: ") for answer in answers if answer.is_error)


@pytest.mark.parametrize("path", ["con", "a:b", "x/nul.txt", "a?", "end./x"])
def test_a_new_name_that_does_not_work_everywhere_is_refused(cairn: OpenAgent, path: str) -> None:
    assert cairn().refused("write", path=path, content="x").startswith(f"validation_error: Invalid path '{path}': ")


def test_a_line_or_a_quote_is_no_heading_at_which_a_section_ends(cairn: OpenAgent) -> None:
    text = "## Meetings\ntalked\n---\n\n> ## quoted\n\nTitle\n=====\nend\n\n## Later\n"
    agent = cairn({"Plan": text})
    agent.json("patch", path="Plan", op="append_section", section="meetings", content="last")
    assert (agent.root / "Plan.md").read_text() == text.replace("end\n", "end\nlast\n")
    assert agent.body(path="Plan", section="Meetings").endswith("end\nlast\n\n")
    assert "Section 'Title' not found" in agent.refused("read", path="Plan", section="Title")


@pytest.mark.parametrize("folder", ["e\u0301te\u0301", "What is life?", "a: b"])
def test_a_new_note_goes_into_a_folder_of_any_name(cairn: OpenAgent, folder: str) -> None:
    agent = cairn({f"{folder}/Old": ""})
    assert agent.json("write", path=f"{folder}/New", content="x") == {
        "path": f"{folder}/New",
        "created": True,
        "links_found": 0,
    }
    assert agent.refused("write", path=f"{folder}/Why?", content="x").startswith("validation_error: Invalid path")


def test_a_name_in_another_spelling_is_a_conflict(cairn: OpenAgent) -> None:
    assert cairn({"Jamie": "x"}).refused("write", path="jamie", content="y").startswith("conflict: 'Jamie' is there")


# ---- patching -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "op", "content", "after", "added"),
    [
        ("one", "append", "two", "one\ntwo", 4),
        ("one\n", "append", "two\n", "one\ntwo\n", 4),
        ("", "append", "two", "two", 3),
        ("one\n", "prepend", "two", "two\none\n", 4),
        ("one\n", "prepend", "zwölf\n", "zwölf\none\n", 7),
    ],
)
def test_append_and_prepend_put_a_line_end_between(
    cairn: OpenAgent, body: str, op: str, content: str, after: str, added: int
) -> None:
    front = "---\ntype: t # kept\n---\n"
    agent = cairn({"a": front + ("\n" + body if body else ""), "b": body})
    for path, head in (("a", front + "\n"), ("b", "")):
        assert agent.json("patch", path=path, op=op, content=content) == {"path": path, "op": op, "bytes_added": added}
        assert agent.file(path) == head + after


def test_line_ends_that_are_added_are_the_notes_own(cairn: OpenAgent) -> None:
    agent = cairn({"a": "one\r\ntwo"})
    assert agent.json("patch", path="a", op="append", content="three")["bytes_added"] == 7
    assert agent.file("a") == "one\r\ntwo\r\nthree"


def test_appending_to_a_section_goes_below_its_last_line_and_keeps_the_blank_ones(cairn: OpenAgent) -> None:
    agent = cairn({"a": PARTS})
    agent.json("patch", path="a", op="append_section", section="meetings", content="- three")
    assert agent.file("a") == PARTS.replace("- two\n", "- two\n- three\n")


def test_prepending_to_a_section_goes_directly_below_its_heading(cairn: OpenAgent) -> None:
    agent = cairn({"a": PARTS})
    added = agent.json("patch", path="a", op="prepend_section", section="Meetings", content="- zero")["bytes_added"]
    assert (agent.file("a"), added) == (PARTS.replace("## Meetings\n", "## Meetings\n- zero\n"), 7)


def test_replacing_takes_the_whole_file_and_nothing_in_the_content_is_special(cairn: OpenAgent) -> None:
    agent = cairn({"a": "---\ntype: old\n---\n\nbody\n"})
    said = agent.json("patch", path="a", op="replace", find="type: old", content=r"type: '$& \1'")
    assert said == {"path": "a", "op": "replace", "bytes_added": 4}
    assert agent.file("a") == "---\ntype: '$& \\1'\n---\n\nbody\n"
    assert agent.json("patch", path="a", op="replace", find="\nbody", content="")["bytes_added"] == -5


def test_a_patch_renews_modified_and_does_not_count_it(cairn: OpenAgent) -> None:
    agent = cairn()
    agent.at(NOON).json("write", path="a", content="one")
    assert agent.at(NOON + 60).json("patch", path="a", op="replace", find="one", content="two")["bytes_added"] == 0
    assert agent.file("a") == "---\ncreated: 2026-02-24T12:00:00Z\nmodified: 2026-02-24T12:01:00Z\n---\n\ntwo"


def test_a_patch_leaves_every_other_byte_alone(cairn: OpenAgent) -> None:
    text = "\ufeff---\r\n# why\r\nquoted: 'x'   \r\nbacklinks: mine\r\n---\r\nbody  \r\n"
    agent = cairn({"a": text})
    agent.json("patch", path="a", op="append", content="end")
    assert agent.file("a") == text + "end"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({"op": "replace", "content": "x"}, "'replace' requires 'find' parameter"),
        ({"op": "replace", "content": "x", "find": ""}, "'replace' requires 'find' parameter"),
        ({"op": "append_section", "content": "x"}, "'append_section' requires 'section' parameter"),
        ({"op": "prepend_section", "content": "x", "section": " "}, "'prepend_section' requires 'section' parameter"),
        ({"op": "replace", "content": "x", "find": "nope"}, "'find' text not found in note 'n/a'"),
        ({"op": "replace", "content": "x", "find": "aa"}, "'find' text appears 2 times in note 'n/a' (ambiguous)"),
        ({"op": "append_section", "content": "x", "section": "S"}, "Section 'S' not found in note 'n/a'"),
        ({"op": "prepend_section", "content": "x", "section": "S"}, "Section 'S' not found in note 'n/a'"),
    ],
)
def test_a_patch_that_cannot_be_is_refused_in_these_words(cairn: OpenAgent, args: dict[str, Any], said: str) -> None:
    agent = cairn({"n/a": "aaa"})
    assert agent.refused("patch", path="n/a", **args) == f"validation_error: {said}"
    assert agent.file("n/a") == "aaa"


@pytest.mark.parametrize("op", ["append", "prepend", "append_section"])
def test_a_patch_of_a_missing_note_makes_none(cairn: OpenAgent, op: str) -> None:
    agent = cairn()
    refused = agent.refused("patch", path="x/nope", op=op, content="y", section="S")
    assert refused == "not_found: Note 'x/nope' does not exist"
    assert not (agent.root / "x").exists()


def test_a_conflict_says_to_read_again(cairn: OpenAgent) -> None:
    problem = errors.Conflict("a.md changed", path=NotePath("x/a.md"), current="1")
    failed = FailedCall(problem, "cairn_patch", {}, Call(Library.of([cairn().ws])))
    assert SURFACE.style.render_problem(failed).text == "conflict: Note 'x/a' changed, read it again"
