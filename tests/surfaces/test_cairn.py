"""Cairn's tools for one note, word for word (contracts A): what all share, reading, deleting, days."""

import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.surfaces.cairn_agent import JAMIE, NOON, PARTS, OpenAgent

from notewright import errors
from notewright.engine.changes.history import list_changes, undo
from notewright.engine.library import Library
from notewright.errors import Internal
from notewright.ledger.base import ChangeQuery
from notewright.surfaces.base import Call, FailedCall
from notewright.surfaces.cairn.tools import SURFACE

pytestmark = pytest.mark.slow  # its transcripts are quick


# ---- the surface --------------------------------------------------------------------------------------


def test_every_error_has_a_published_type() -> None:
    types = {"not_found", "validation_error", "alias_conflict", "conflict", "unauthorized", "internal_error"}
    assert set(SURFACE.style.table.values()) <= types


def test_the_tools_have_the_published_shapes() -> None:
    shapes = {tool.name: (list(tool.schema["properties"]), tool.schema.get("required", [])) for tool in SURFACE.tools}
    assert shapes == {
        "cairn_read": (["path", "section", "metadata_only"], ["path"]),
        "cairn_write": (["path", "content", "tags", "aliases"], ["path", "content"]),
        "cairn_patch": (["path", "op", "content", "section", "find"], ["path", "op", "content"]),
        "cairn_delete": (["path"], ["path"]),
        "cairn_search": (
            ["query", "tags", "path_prefix", "backlinks_to", "modified_since", "limit", "cursor"],
            [],
        ),
        "cairn_links": (["path", "depth", "direction"], ["path"]),
        "cairn_daily": (["date", "op", "content", "section"], ["op"]),
        "cairn_list": (["path_prefix", "recursive", "sort", "limit", "cursor"], []),
    }
    assert all("additionalProperties" not in tool.schema for tool in SURFACE.tools)


def test_the_schemas_differ_from_the_published_ones_in_their_descriptions_alone(shared: Path) -> None:
    def bare(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {key: bare(member) for key, member in value.items() if key != "description"}

    seed = next(shared.glob("seeds/000_*.txt")).read_text()
    published = [json.loads(found) for found in re.findall(r"```json\n(\{\s+\"name\".*?)\n```", seed, re.DOTALL)]
    assert {tool["name"]: bare(tool["inputSchema"]) for tool in published} == {
        tool.name: bare(dict(tool.schema)) for tool in SURFACE.tools
    }


@pytest.mark.parametrize(
    ("tool", "args", "said"),
    [
        ("read", {}, "validation_error: path is required"),
        ("read", {"path": 3}, "validation_error: path must be string"),
        ("write", {"path": "a"}, "validation_error: content is required"),
        ("write", {"path": "a", "content": "x", "tags": "t"}, "validation_error: tags must be array"),
        ("patch", {"path": "a", "op": "rub out", "content": ""}, "validation_error: op must be one of append, "),
        ("daily", {"op": "replace", "content": ""}, "validation_error: op must be one of read, append, "),
        ("links", {"path": "a", "depth": 1.5}, "validation_error: depth must be integer"),
    ],
)
def test_wrong_arguments_are_validation_errors(cairn: OpenAgent, tool: str, args: dict[str, Any], said: str) -> None:
    assert cairn().refused(tool, **args).startswith(said)


def test_arguments_nobody_knows_are_ignored(cairn: OpenAgent) -> None:
    assert cairn({"a": "x"}).body(path="a", depth=7) == "x"


def test_what_we_did_not_expect_is_an_internal_error(cairn: OpenAgent) -> None:
    failed = FailedCall(Internal("something went wrong here"), "cairn_read", {}, Call(Library.of([cairn().ws])))
    assert SURFACE.style.render_problem(failed).text == "internal_error: something went wrong here"


def test_an_index_that_is_not_ready_says_how_far_it_is(cairn: OpenAgent) -> None:
    problem = errors.Indexing("wait", done=3, total=9)
    failed = FailedCall(problem, "cairn_read", {}, Call(Library.of([cairn().ws])))
    assert SURFACE.style.render_problem(failed).text == "internal_error: still indexing (3 of 9), try again"


@pytest.mark.parametrize(
    "path", ["", "/", ".md", "a/../b", "..", "a//b", "a\\b", "a\x00b", "a\nb", "./a", "x" * 300, "a/" * 3000 + "b"]
)
def test_a_path_that_cannot_be_is_a_validation_error(cairn: OpenAgent, path: str) -> None:
    agent = cairn()
    for tool, args in (("read", {}), ("write", {"content": "x"}), ("delete", {}), ("links", {})):
        assert agent.refused(tool, path=path, **args).startswith("validation_error: Invalid path ")


@pytest.mark.parametrize("path", ["notes..md", "a..b/c", "...x/y".replace("...", "x..."), "日本/語", "a b/c d"])
def test_dots_within_a_name_blanks_and_any_script_are_legal(cairn: OpenAgent, path: str) -> None:
    agent = cairn()
    assert agent.json("write", path=path, content="x")["created"] is True
    assert agent.body(path=path) == "x"


@pytest.mark.parametrize("path", ["entities/jamie.md", "/entities/jamie", "entities/jamie/", "/entities/jamie.md/"])
def test_an_extension_and_outer_slashes_are_taken_away(cairn: OpenAgent, path: str) -> None:
    agent = cairn({"entities/jamie": JAMIE})
    assert agent.body(path=path) == "# Jamie\n\nCEO.\n"
    assert agent.json("patch", path=path, op="append", content="x")["path"] == "entities/jamie"


BLANKS = ["w/x ", " w/x", "w/x.md ", "w/x .md", "w /x", "w/x\u00a0", "w/x\u3000", "w /x.md", "w./x", "w/x/ "]


@pytest.mark.parametrize("path", BLANKS)
def test_a_path_that_ends_in_a_blank_is_no_other_notes_path(cairn: OpenAgent, path: str) -> None:
    agent = cairn({"w/x": "mine\n"})
    refused = agent.refused("write", path=path, content="yours")
    assert refused.startswith("validation_error: Invalid path ")
    for tool, args in (("read", {}), ("patch", {"op": "append", "content": "yours"}), ("delete", {})):
        assert agent.refused(tool, path=path, **args).startswith("not_found: ")
    assert agent.json("links", path="w/x")["path"] == "w/x"
    assert agent.refused("links", path=path).startswith("not_found: ")
    assert agent.json("list", path_prefix=path)["notes"] == agent.json("search", path_prefix=path)["results"] == []
    assert agent.file("w/x") == "mine\n"


def test_a_note_whose_name_ends_in_a_blank_is_reached_by_it(cairn: OpenAgent) -> None:
    agent = cairn({"w/x": "mine\n", "w/x ": "yours\n"})
    assert agent.body(path="w/x ") == "yours\n"
    agent.json("patch", path="w/x ", op="append", content="more")
    assert agent.json("write", path="w/x ", content="new")["created"] is False
    assert agent.body(path="w/x ") == "new" and agent.file("w/x") == "mine\n"


@pytest.mark.parametrize("path", [".git/config", "a/.hidden", ".obsidian/plugins/x"])
def test_dot_paths_are_out_of_reach(cairn: OpenAgent, path: str) -> None:
    agent = cairn({path: "secret"})
    assert agent.refused("read", path=path) == f"not_found: Note '{path}' does not exist"
    assert agent.refused("write", path=path, content="x").startswith("validation_error: Invalid path ")
    assert agent.refused("patch", path=path, op="append", content="x").startswith("unauthorized: ")
    assert agent.refused("delete", path=path).startswith("unauthorized: ")
    assert agent.file(path) == "secret"


def test_lookup_minds_case(cairn: OpenAgent) -> None:
    assert cairn({"Jamie": "x"}).refused("read", path="jamie") == "not_found: Note 'jamie' does not exist"


def test_a_read_only_workspace_is_unauthorized(cairn: OpenAgent) -> None:
    agent = cairn({"a": "x", "daily/2026-02-24": "y"}, read_only=True)
    for tool, args in (
        ("write", {"path": "a", "content": "z"}),
        ("patch", {"path": "a", "op": "append", "content": "z"}),
        ("delete", {"path": "a"}),
        ("daily", {"op": "append", "content": "z"}),
        ("daily", {"op": "read", "date": "2026-02-25"}),
    ):
        assert agent.refused(tool, **args).startswith("unauthorized: ")
    assert agent.said("daily", op="read", date="2026-02-24").endswith("\n\ny")
    assert agent.file("a") == "x"


def test_what_is_hidden_is_not_there_and_cannot_be_written(cairn: OpenAgent) -> None:
    agent = cairn({"Private/a": "[[b]]", "b": "x"}, hide=("Private/**",), write_under=("In/**",))
    assert agent.refused("read", path="Private/a") == "not_found: Note 'Private/a' does not exist"
    assert agent.refused("links", path="Private/a") == "not_found: Note 'Private/a' does not exist"
    assert agent.shown(path="b")["backlinks"] == "[]"
    assert agent.refused("write", path="Private/a", content="x").startswith(
        "unauthorized: Writing to 'Private/a' is not"
    )
    assert agent.refused("write", path="b", content="x").startswith("unauthorized: Writing to 'b' is not allowed")
    assert agent.json("write", path="In/c", content="x")["created"] is True


@pytest.mark.parametrize("there", [{}, {"daily/2026-02-24": "x"}])
def test_a_hidden_day_is_not_found_whether_it_has_a_note_or_not(cairn: OpenAgent, there: dict[str, str]) -> None:
    agent = cairn(there, hide=("daily/**",))
    assert agent.refused("daily", op="read", date="2026-02-24") == "not_found: Note 'daily/2026-02-24' does not exist"
    refused = agent.refused("daily", op="append", date="2026-02-24", content="y")
    assert refused.startswith("unauthorized: Writing to 'daily/2026-02-24' is not allowed")


# ---- reading ------------------------------------------------------------------------------------------


def test_a_note_is_shown_as_frontmatter_a_blank_line_and_its_body(cairn: OpenAgent) -> None:
    agent = cairn(
        {
            "entities/person/jamie": JAMIE,
            "daily/2026-02-24": "- met [[Jamie Wilson]]\n",
            "projects/brainwaves-v2": "[[entities/person/jamie]]\n",
        },
        times={"entities/person/jamie": 1_771_941_600},
    )
    assert agent.said("read", path="entities/person/jamie") == (
        "---\ntitle: Jamie Wilson\ntype: person\ntags: [co-founder, ceo]\nmodified: 2026-02-24T14:00:00Z\n"
        "backlinks: [daily/2026-02-24, projects/brainwaves-v2]\n---\n\n# Jamie\n\nCEO.\n"
    )


def test_other_stored_keys_stand_between_tags_and_modified(cairn: OpenAgent) -> None:
    stored = (
        "aliases: [A, B]\nrank: 3\nmodified: 2020-01-01T00:00:00Z\ntags:\n  - x\n  - 2024\ncreated: 2019-01-01\ntype: t"
    )
    assert cairn({"a": f"---\n{stored}\n---\nb"}).said("read", path="a") == (
        '---\ntitle: a\ntype: t\ntags: [x, "2024"]\naliases: [A, B]\nrank: 3\ncreated: 2019-01-01\n'
        "modified: 2020-01-01T00:00:00Z\nbacklinks: []\n---\n\nb"
    )


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("---\ntitle: 2026-02-24\n---\n# H\n", "2026-02-24"),
        ("---\ntitle: \n---\n```\n# no\n```\n# First\n# Second\n", "First"),
        ("## Low\n", "last"),
        ("", "last"),
        ("---\ntitle: [broken\n---\n", "last"),
    ],
)
def test_a_title_is_the_property_the_first_heading_or_the_last_segment(cairn: OpenAgent, text: str, title: str) -> None:
    agent = cairn({"some/last": text})
    assert agent.shown(path="some/last")["title"] == title
    assert agent.file("some/last") == text


def test_one_text_as_tags_or_aliases_is_a_list_of_one(cairn: OpenAgent) -> None:
    shown = cairn({"a": "---\ntags: one\naliases: Name\n---\n"}).shown(path="a")
    assert (shown["tags"], shown["aliases"]) == ("[one]", "[Name]")


def test_a_note_without_metadata_has_title_modified_and_backlinks(cairn: OpenAgent) -> None:
    assert list(cairn({"a": "x"}).shown(path="a")) == ["title", "modified", "backlinks"]


def test_broken_frontmatter_is_shown_as_the_text_it_is(cairn: OpenAgent) -> None:
    text = "---\ntags: [a\n---\nbody\n"
    agent = cairn({"a": text})
    assert agent.body(path="a") == text
    assert list(agent.shown(path="a")) == ["title", "modified", "backlinks"]


def test_a_byte_order_mark_and_crlf_do_no_harm(cairn: OpenAgent) -> None:
    agent = cairn({"a": "\ufeff---\r\ntype: t\r\n---\r\n\r\nbody\r\n"})
    assert agent.shown(path="a")["type"] == "t"
    assert agent.body(path="a") == "body\r\n"


def test_text_that_is_not_utf8_is_shown_and_not_edited(cairn: OpenAgent) -> None:
    agent = cairn({"a": b"caf\xe9"})
    assert agent.body(path="a") == "caf\ufffd"
    assert agent.refused("patch", path="a", op="append", content="x") == "validation_error: Note 'a' is not UTF-8"
    assert (agent.root / "a.md").read_bytes() == b"caf\xe9"


@pytest.mark.parametrize(
    ("asked", "body"),
    [
        ("Meetings", "## Meetings\n\n- one\n\n### Deep\n- two\n\n\n"),
        ("Deep", "### Deep\n- two\n\n\n"),
        ("Later", "## Later\nend\n"),
        ("  meetings ", "## Meetings\n\n- one\n\n### Deep\n- two\n\n\n"),
        ("## Deep", "### Deep\n- two\n\n\n"),
        ("#Later ##", "## Later\nend\n"),
    ],
)
def test_a_section_is_shown_with_its_heading_and_all_below_it(cairn: OpenAgent, asked: str, body: str) -> None:
    assert cairn({"a": PARTS}).body(path="a", section=asked) == body


def test_an_exact_heading_comes_before_one_in_another_case(cairn: OpenAgent) -> None:
    agent = cairn({"a": "# notes\n1\n# Notes\n2\n# Notes\n3\n"})
    assert agent.body(path="a", section="Notes") == "# Notes\n2\n"
    assert agent.body(path="a", section="NOTES") == "# notes\n1\n"


def test_headings_in_code_are_no_sections(cairn: OpenAgent) -> None:
    agent = cairn({"a": "```\n# In\n```\n"})
    assert agent.refused("read", path="a", section="In") == "validation_error: Section 'In' not found in note 'a'"


def test_metadata_alone_shows_the_line_of_each_backlink(cairn: OpenAgent) -> None:
    agent = cairn({"jamie": JAMIE, "daily/1": "- Discussed V2.1 launch with [[Jamie]]\n", "z": '[[jamie]]: see: "x"\n'})
    assert agent.said("read", path="jamie", metadata_only=True, section="Nope").endswith(
        "backlinks:\n  - path: daily/1\n    context: Discussed V2.1 launch with [[Jamie]]\n"
        '  - path: z\n    context: "[[jamie]]: see: \\"x\\""\n---'
    )
    assert agent.said("read", path="z", metadata_only=True).endswith("backlinks: []\n---")


# ---- deleting -----------------------------------------------------------------------------------------


def test_a_deleted_note_is_gone_and_can_be_brought_back(cairn: OpenAgent) -> None:
    agent = cairn({"x/old": "text", "b": "[[x/old]]"})
    assert agent.said("delete", path="x/old") == '{"deleted":"x/old"}'
    assert not (agent.root / "x/old.md").exists() and not (agent.root / ".trash").exists()
    assert agent.file("b") == "[[x/old]]"
    assert agent.refused("delete", path="x/old") == "not_found: Note 'x/old' does not exist"
    change = list_changes(agent.ws, ChangeQuery())[0]
    assert (change.actor.surface, change.summary) == ("cairn", "deleted x/old.md")
    undo(agent.ws, change.id)
    assert agent.file("x/old") == "text"


# ---- days ---------------------------------------------------------------------------------------------


def test_reading_a_new_day_makes_its_note(cairn: OpenAgent) -> None:
    agent = cairn().at(NOON)
    times = "created: 2026-02-24T12:00:00Z\nmodified: 2026-02-24T12:00:00Z\n"
    said = agent.said("daily", op="read", date="2026-02-20", section="Nope")
    assert said == f"---\ntitle: 2026-02-20\ntype: daily\ntags: [daily]\n{times}backlinks: []\n---"
    assert agent.file("daily/2026-02-20") == f'---\ntitle: "2026-02-20"\ntype: daily\ntags: [daily]\n{times}---\n'


@pytest.mark.parametrize(("zone", "day"), [("UTC", "2026-02-24"), ("Pacific/Kiritimati", "2026-02-25")])
def test_today_is_the_workspaces_day(cairn: OpenAgent, zone: str, day: str) -> None:
    agent = cairn(timezone=zone).at(NOON)
    assert agent.json("daily", op="append", content="x")["path"] == f"daily/{day}"


def test_a_day_is_begun_and_added_to_in_one_change(cairn: OpenAgent) -> None:
    agent = cairn()
    said = agent.said("daily", op="append", date="2026-02-24", content="- one [[x]]")
    assert said == '{"path":"daily/2026-02-24","op":"append","bytes_added":11}'
    assert agent.stored_body("daily/2026-02-24") == "\n- one [[x]]"
    assert len(list_changes(agent.ws, ChangeQuery())) == 1
    assert agent.json("daily", op="append", date="2026-02-24", content="## S\n")["bytes_added"] == 6
    agent.json("daily", op="append_section", date="2026-02-24", section="S", content="- b")
    agent.json("daily", op="prepend_section", date="2026-02-24", section="S", content="- a")
    assert agent.stored_body("daily/2026-02-24") == "\n- one [[x]]\n## S\n- a\n- b\n"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({"op": "append", "date": "2026-02-30", "content": "x"}, "Invalid date '2026-02-30'"),
        ({"op": "read", "date": "24.2.2026"}, "Invalid date '24.2.2026'"),
        ({"op": "read", "date": "2026-2-4"}, "Invalid date '2026-2-4'"),
        ({"op": "read", "date": "../../etc"}, "Invalid date '../../etc'"),
        ({"op": "append"}, "'append' requires 'content' parameter"),
        ({"op": "append_section", "section": "S"}, "'append_section' requires 'content' parameter"),
        ({"op": "prepend_section", "content": "x"}, "'prepend_section' requires 'section' parameter"),
        (
            {"op": "append_section", "content": "x", "section": "S", "date": "2026-02-24"},
            "Section 'S' not found in note 'daily/2026-02-24'",
        ),
    ],
)
def test_a_day_that_cannot_be_added_to_is_not_begun(cairn: OpenAgent, args: dict[str, Any], said: str) -> None:
    agent = cairn()
    assert agent.refused("daily", **args) == f"validation_error: {said}"
    assert list(agent.root.iterdir()) == []


def test_twenty_who_add_to_one_day_at_once_lose_nothing(cairn: OpenAgent) -> None:
    agent = cairn()
    lines = [f"- line {number}" for number in range(60)]
    with ThreadPoolExecutor(20) as pool:
        said = list(pool.map(lambda line: agent("daily", op="append", date="2026-02-24", content=line), lines))
    assert [answer.text for answer in said if answer.is_error] == []
    assert sorted(agent.stored_body("daily/2026-02-24").split("\n")[1:]) == sorted(lines)


def test_titles_of_days_are_text(cairn: OpenAgent) -> None:
    agent = cairn()
    agent.json("daily", op="append", date="2026-02-24", content="x")
    assert agent.json("list")["notes"][0]["title"] == "2026-02-24"
