"""The obsidian dialect's published cases, TC1 to TC68, and its invariants, each under its number (contracts C)."""

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.surfaces.conftest import OpenVault
from tests.surfaces.vault import note, tagged

from notewright.surfaces.obsidian import change as obsidian_change
from notewright.surfaces.obsidian import tools as obsidian
from notewright.surfaces.obsidian.tools import SURFACE, TOOLS

pytestmark = pytest.mark.slow  # its transcripts are quick

LINKED = {"A": "See [[B]].", "B": "Hello"}
SECTIONS = "# Intro\nHello\n# Other\nWorld"
TAGS = {"one": tagged("vc"), "two": tagged("Person")}
THREE = {"a": tagged("vc"), "b": tagged("project"), "c": tagged("vc", "project")}


def names(rows: list[dict[str, str]]) -> list[str]:
    return [row["name"] for row in rows]


# ---- whole notes --------------------------------------------------------------------------------------


def test_tc1_read_note(vault: OpenVault) -> None:
    assert vault({"test": "Hello"}).text("read_note", name="test") == "Hello"


def test_tc2_read_note_not_found(vault: OpenVault) -> None:
    assert vault().refused("read_note", name="nonexistent") == "Note 'nonexistent' not found"


def test_tc3_create_note_basic(vault: OpenVault) -> None:
    v = vault()
    assert v.told("create_note", name="test", content="Hello") == {"name": "test", "path": str(v.root / "test.md")}
    assert v.file("test") == "Hello"


def test_tc4_create_note_with_frontmatter(vault: OpenVault) -> None:
    v = vault()
    v.told("create_note", name="test", frontmatter='{"tags": ["vc"]}')
    assert v.file("test") == "---\ntags:\n- vc\n---\n"


def test_tc5_append_note(vault: OpenVault) -> None:
    v = vault({"test": "Line1"})
    assert v.told("append_note", name="test", text="Line2") == {"name": "test", "status": "appended"}
    assert v.file("test") == "Line1\n\nLine2"


def test_tc6_update_note(vault: OpenVault) -> None:
    v = vault({"test": "---\ntags: [a]  # mine\n---\nOld"})
    assert v.told("update_note", name="test", content="New") == {"name": "test", "status": "updated"}
    assert v.file("test") == "---\ntags: [a]  # mine\n---\nNew"


def test_tc7_delete_note(vault: OpenVault) -> None:
    v = vault(LINKED)
    trash = str(v.root / ".trash" / "B.md")
    assert v.told("delete_note", name="B") == {"name": "B", "trash_path": trash, "files_updated": ["A"]}
    assert v.files() == {".trash/B.md": b"Hello", "A.md": b"See [[B (deleted)]]."}


def test_tc8_delete_note_dry_run(vault: OpenVault) -> None:
    v = vault(LINKED)
    before = v.files()
    planned = v.told("delete_note", name="B", dry_run=True)
    assert planned == {"name": "B", "trash_path": str(v.root / ".trash" / "B.md"), "files_updated": ["A"]}
    assert v.files() == before
    assert v.told("delete_note", name="B") == planned


def test_tc9_rename_note(vault: OpenVault) -> None:
    v = vault(LINKED)
    done = v.told("rename_note", old_name="B", new_name="B_new")
    assert done == {"old_name": "B", "new_name": "B_new", "files_updated": ["A"]}
    assert v.files() == {"A.md": b"See [[B_new]].", "B_new.md": b"Hello"}


# ---- finding ------------------------------------------------------------------------------------------


def test_tc10_search_notes(vault: OpenVault) -> None:
    v = vault({"alpha": "", "beta": ""})
    assert v.told("search_notes", query="alph") == [{"name": "alpha", "path": str(v.root / "alpha.md")}]


def test_tc11_search_notes_by_tag(vault: OpenVault) -> None:
    v = vault({"test": tagged("vc/project"), "other": tagged("vcx")})
    assert names(v.told("search_notes", query="vc", mode="tag")) == ["test"]


def test_tc12_get_links(vault: OpenVault) -> None:
    v = vault({"A": "[[B]]", "B": "", "C": "[[A]]"})
    assert v.told("get_links", name="A", direction="both") == {"name": "A", "outgoing": ["B"], "incoming": ["C"]}


def test_tc14_set_frontmatter(vault: OpenVault) -> None:
    v = vault({"test": "Body"})
    done = v.told("set_frontmatter", name="test", key="status", value="done")
    assert done == {"name": "test", "key": "status", "value": "done"}
    assert v.file("test") == "---\nstatus: done\n---\nBody"


@pytest.mark.parametrize(
    ("case", "notes", "args", "page"),
    [
        ("tc15", ["alpha", "beta", "gamma"], {"limit": 2, "offset": 0}, (["alpha", "beta"], 3, 2, 0)),
        ("tc16", [], {}, ([], 0, 100, 0)),
        ("tc16a", ["alpha", "beta", "gamma"], {"limit": 2, "offset": 2}, (["gamma"], 3, 2, 2)),
    ],
    ids=["tc15", "tc16", "tc16a"],
)
def test_tc15_tc16_tc16a_list_notes(
    vault: OpenVault, case: str, notes: list[str], args: dict[str, int], page: tuple[Any, ...]
) -> None:
    told = vault(dict.fromkeys(notes, "")).text("list_notes", **args)
    assert told == json.dumps(dict(zip(("names", "total", "limit", "offset"), page, strict=True)))


# ---- the block ----------------------------------------------------------------------------------------

RULES = {"My Rules": note("x", tags=["claude"], description="Read before writing text"), "test": "Hello"}


def test_tc17_context_in_the_first_result(vault: OpenVault) -> None:
    whole = vault(RULES).whole("list_notes")
    assert '\n\n---\n## Your personal notes\n\n- "My Rules" — Read before writing text\n' in whole
    assert whole.endswith("\n---")


def test_tc18_no_context_in_the_second_result(vault: OpenVault) -> None:
    v = vault(RULES)
    v.whole("list_notes")
    assert v.whole("read_note", name="test") == "Hello"


def test_tc19_a_hint_where_no_note_is_for_the_client(vault: OpenVault) -> None:
    whole = vault({"test": "Hello"}).whole("read_note", name="test")
    assert "## Your personal notes\n\nNo personal notes found. Create notes with tag 'claude'" in whole


@pytest.mark.parametrize("description", [None, "", "  "])
def test_tc20_a_note_without_description(vault: OpenVault, description: str | None) -> None:
    properties = {} if description is None else {"description": description}
    whole = vault({"No Desc": note(tags=["claude"], **properties)}).whole("list_notes")
    assert "- \"No Desc\" — ⚠️ No description. Claude, please add a 'description' field" in whole


def test_tc21_two_vaults_in_one_process_share_nothing(vault: OpenVault) -> None:
    one, other = vault({"here": tagged("one")}), vault({"there": tagged("two")})
    assert (one.told("list_notes")["names"], other.told("list_notes")["names"]) == (["here"], ["there"])
    assert "\n\ntwo\n\n" in other.another_session().whole("list_notes")


def test_tc22_the_block_and_the_tools_see_the_same_vault(vault: OpenVault) -> None:
    v = vault({"one": tagged("vc")})
    assert "## Allowed tags\n\nvc\n" in v.whole("search_notes", query="vc", mode="tag")


def test_tc23_tag_policy(vault: OpenVault) -> None:
    whole = vault({"a": tagged("vc", "vc/project"), "b": tagged("Person")}).whole("list_notes")
    assert "## Allowed tags\n\nPerson, vc, vc/project\n\nNEVER create new tags without explicit user" in whole


def test_tc24_tag_policy_of_an_empty_vault(vault: OpenVault) -> None:
    assert "## Allowed tags\n\nNo tags in vault yet.\n" in vault().whole("list_notes")


def test_tc25_each_tag_once(vault: OpenVault) -> None:
    whole = vault({"a": tagged("vc"), "b": tagged("vc")}).whole("list_notes")
    assert whole.partition("## Allowed tags")[2].count("vc") == 1


def test_tc26_instructions_hold_nothing_of_the_vault(vault: OpenVault) -> None:
    before = SURFACE.instructions
    v = vault({**RULES, "CLAUDE": "SECRET RULE"})
    v.whole("list_notes")
    assert SURFACE.instructions == before
    assert "My Rules" not in before and "SECRET" not in before and "CLAUDE.md" not in before


def test_tc27_claude_md_is_an_ordinary_note(vault: OpenVault) -> None:
    v = vault({"CLAUDE": "SECRET RULE"})
    assert "SECRET" not in v.whole("list_notes")
    assert v.text("read_note", name="CLAUDE") == "SECRET RULE"


def test_tc28_an_empty_vault_has_a_block_too(vault: OpenVault) -> None:
    assert vault().whole("find_broken_links") == (
        "[]\n\n---\n## Your personal notes\n\n"
        "No personal notes found. Create notes with tag 'claude' to use auto-context.\n\n"
        "## Allowed tags\n\nNo tags in vault yet.\n\n"
        "NEVER create new tags without explicit user permission.\n---"
    )


# ---- text ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("replace_all", "count", "after"), [(False, 1, "baz bar foo"), (True, 2, "baz bar baz")], ids=["tc29", "tc30"]
)
def test_tc29_tc30_invariant_23_replace_text(vault: OpenVault, replace_all: bool, count: int, after: str) -> None:
    v = vault({"test": "foo bar foo"})
    told = v.text("replace_text", name="test", old_text="foo", new_text="baz", replace_all=replace_all)
    assert told == f'{{"name": "test", "replaced": {count}}}'
    assert v.file("test") == after


def test_tc31_replace_text_not_found(vault: OpenVault) -> None:
    said = vault({"test": "hello"}).refused("replace_text", name="test", old_text="xyz", new_text="abc")
    assert said == "Text 'xyz' not found in note 'test'"


@pytest.mark.parametrize(("where", "pattern"), [("after", "line1"), ("before", "line2")], ids=["tc32", "tc33"])
def test_tc32_tc33_insert_text(vault: OpenVault, where: str, pattern: str) -> None:
    v = vault({"test": "line1\nline2"})
    told = v.text("insert_text", name="test", text="inserted", **{where: pattern})
    assert told == f'{{"name": "test", "position": "{where}", "pattern": "{pattern}"}}'
    assert v.file("test") == "line1\ninserted\nline2"


@pytest.mark.parametrize("places", [{"before": "a", "after": "b"}, {}, {"before": "", "after": ""}])
def test_tc34_tc35_invariant_24_insert_text_wants_one_place(vault: OpenVault, places: dict[str, str]) -> None:
    said = vault({"test": "a\nb"}).refused("insert_text", name="test", text="x", **places)
    assert said == "Exactly one of 'before' or 'after' must be provided"


# ---- sections -----------------------------------------------------------------------------------------


def test_tc36_read_section(vault: OpenVault) -> None:
    assert vault({"test": SECTIONS}).text("read_section", name="test", section="Intro") == "Hello"


def test_tc38_append_section(vault: OpenVault) -> None:
    v = vault({"test": SECTIONS})
    told = v.text("append_section", name="test", section="Intro", text="More")
    assert told == '{"name": "test", "section": "Intro", "status": "appended"}'
    assert v.file("test") == "# Intro\nHello\nMore\n# Other\nWorld"


@pytest.mark.parametrize(
    ("tool", "more"),
    [
        ("read_section", {}),
        ("append_section", {"text": "x"}),
        ("update_section", {"content": "x"}),
        ("delete_section", {}),
    ],
    ids=["tc37", "append", "tc63", "tc65"],
)
def test_tc37_tc63_tc65_section_not_found(vault: OpenVault, tool: str, more: dict[str, str]) -> None:
    v = vault({"test": SECTIONS})
    assert v.refused(tool, name="test", section="Missing", **more) == "Section 'Missing' not found in note 'test'"
    assert v.file("test") == SECTIONS


RULED = "## Intro\nHello\n---\nMore\n\n> ## quoted\n\nTitle\n=====\nend\n## Other\nKeep"


def test_a_section_ends_only_at_a_heading_that_get_headings_lists(vault: OpenVault) -> None:
    v = vault({"test": RULED})
    assert v.text("get_headings", name="test") == '[{"level": 2, "text": "Intro"}, {"level": 2, "text": "Other"}]'
    inside = RULED.partition("Intro\n")[2].partition("\n## Other")[0]
    assert v.text("read_section", name="test", section="Intro") == inside
    assert v.refused("read_section", name="test", section="Title") == "Section 'Title' not found in note 'test'"
    v.told("append_section", name="test", section="Intro", text="last")
    assert v.text("read_note", name="test") == RULED.replace("end\n", "end\nlast\n")
    v.told("update_section", name="test", section="Intro", content="new")
    assert v.text("read_note", name="test") == "## Intro\nnew\n## Other\nKeep"
    v.told("delete_section", name="test", section="Intro")
    assert v.text("read_note", name="test") == "## Other\nKeep"


def test_tc60_get_headings(vault: OpenVault) -> None:
    told = vault({"test": "# Intro\nText\n## Details\nMore\n### Sub"}).text("get_headings", name="test")
    assert told == ('[{"level": 1, "text": "Intro"}, {"level": 2, "text": "Details"}, {"level": 3, "text": "Sub"}]')


def test_tc61_get_headings_of_plain_text(vault: OpenVault) -> None:
    assert vault({"test": "Just plain text"}).text("get_headings", name="test") == "[]"


def test_tc62_update_section(vault: OpenVault) -> None:
    v = vault({"test": "# Intro\nOld content\n# Other\nKeep"})
    told = v.text("update_section", name="test", section="Intro", content="New content")
    assert told == '{"name": "test", "section": "Intro", "status": "updated"}'
    assert v.file("test") == "# Intro\nNew content\n# Other\nKeep"


def test_tc64_delete_section(vault: OpenVault) -> None:
    v = vault({"test": "# Intro\nContent\n# Other\nKeep"})
    told = v.text("delete_section", name="test", section="Intro")
    assert told == '{"name": "test", "section": "Intro", "status": "deleted"}'
    assert v.file("test") == "# Other\nKeep"


# ---- tags ---------------------------------------------------------------------------------------------


def test_tc39_create_note_with_a_tag_that_is_not_there(vault: OpenVault) -> None:
    v = vault(TAGS)
    assert v.refused("create_note", name="new", frontmatter='{"tags": ["vc", "career"]}') == (
        "Tags not in allowed list: ['career']. Allowed: ['Person', 'vc']. Ask user before creating new tags."
    )
    assert "new.md" not in v.files()


def test_tc40_create_note_with_a_tag_that_is_there(vault: OpenVault) -> None:
    v = vault(TAGS)
    v.told("create_note", name="new", content="Body", frontmatter='{"tags": ["vc"]}')
    assert v.file("new") == "---\ntags:\n- vc\n---\nBody"


def test_tc41_set_frontmatter_checks_tags(vault: OpenVault) -> None:
    said = vault({**TAGS, "test": ""}).refused("set_frontmatter", name="test", key="tags", value='["vc", "unknown"]')
    assert said.startswith("Tags not in allowed list: ['unknown']. Allowed: ['Person', 'vc'].")


def test_tc42_set_frontmatter_checks_no_other_key(vault: OpenVault) -> None:
    v = vault({**TAGS, "test": ""})
    v.told("set_frontmatter", name="test", key="status", value="unknown")
    assert v.file("test") == "---\nstatus: unknown\n---\n"


def test_tc43_create_note_with_json_that_is_none(vault: OpenVault) -> None:
    said = vault().refused("create_note", name="test", frontmatter="{invalid json}")
    assert said.startswith("Invalid frontmatter JSON: Expecting property name")


REFUSED_WORDS = [
    ("tc44", "search_notes", {"query": "a", "mode": "invalid"},
     "Invalid search mode: invalid. Valid: name, name_partial, content, tag"),
    ("tc45", "get_links", {"name": "a", "direction": "invalid"}, "Invalid direction: invalid. Valid: in, out, both"),
    ("tc56", "search_notes", {"query": "vc", "mode": "tag", "tag_logic": "invalid"},
     "Invalid tag_logic: invalid. Valid: and, or"),
]  # fmt: skip


@pytest.mark.parametrize(("case", "tool", "args", "said"), REFUSED_WORDS, ids=[row[0] for row in REFUSED_WORDS])
def test_tc44_tc45_tc56_a_word_that_is_none_of_the_valid(
    vault: OpenVault, case: str, tool: str, args: dict[str, str], said: str
) -> None:
    assert vault(THREE).refused(tool, **args) == said


PERSON = "Tag 'Person' is for people notes only. Note name must start with '@' (e.g. '@John Doe')."
CLAUDE = (
    "Tag 'claude' marks instructions for Claude AI. "
    "Requires 'description' field in frontmatter explaining when to read the note."
)


def test_tc46_person_needs_an_at(vault: OpenVault) -> None:
    v = vault({"test": tagged("vc"), "other": tagged("Person")})
    assert v.refused("add_tag", name="test", tag="Person") == PERSON


def test_tc47_person_on_an_at_note(vault: OpenVault) -> None:
    v = vault({"@John": tagged(), "other": tagged("Person")})
    assert v.text("add_tag", name="@John", tag="Person") == '{"name": "@John", "tags": ["Person"]}'


def test_tc48_claude_needs_a_description(vault: OpenVault) -> None:
    v = vault({"test": tagged(), "other": tagged("claude")})
    assert v.refused("add_tag", name="test", tag="claude") == CLAUDE


def test_tc49_claude_with_a_description(vault: OpenVault) -> None:
    v = vault({"test": note(description="My rules"), "other": tagged("claude")})
    assert v.told("add_tag", name="test", tag="claude") == {"name": "test", "tags": ["claude"]}
    assert v.file("test") == '---\ndescription: "My rules"\ntags:\n- claude\n---\n'


def test_tc50_remove_tag(vault: OpenVault) -> None:
    v = vault({"test": tagged("vc", "project")})
    told = v.text("remove_tag", name="test", tag="vc")
    assert told == '{"name": "test", "tags": ["project"], "removed": true}'
    assert v.told("get_note_metadata", name="test")["frontmatter"] == {"tags": ["project"]}


def test_a_text_of_several_tags_becomes_a_list_as_others_are_written(vault: OpenVault) -> None:
    v = vault({"test": "---\ntags: vc, project\n---\nBody", "flow": "---\ntags: [vc,project] # two\n---\nBody"})
    assert v.told("remove_tag", name="test", tag="vc")["tags"] == ["project"]
    assert v.text("read_note", name="test") == "---\ntags:\n- project\n---\nBody"
    v.told("remove_tag", name="flow", tag="vc")
    assert v.text("read_note", name="flow") == "---\ntags: [project]\n---\nBody"


def test_tc51_remove_tag_that_is_not_there(vault: OpenVault) -> None:
    v = vault({"test": tagged("vc")})
    told = v.told("remove_tag", name="test", tag="project")
    assert told == {"name": "test", "tags": ["vc"], "removed": False}
    assert v.file("test") == tagged("vc")


def test_tc52_create_a_person_without_an_at(vault: OpenVault) -> None:
    v = vault({"other": tagged("Person")})
    assert v.refused("create_note", name="John", frontmatter='{"tags": ["Person"]}') == PERSON


def test_tc53_create_a_person(vault: OpenVault) -> None:
    v = vault({"other": tagged("Person")})
    assert v.told("create_note", name="@John", frontmatter='{"tags": ["Person"]}')["name"] == "@John"


@pytest.mark.parametrize(("logic", "found"), [("or", ["a", "b", "c"]), ("and", ["c"])], ids=["tc54", "tc55"])
def test_tc54_tc55_search_by_several_tags(vault: OpenVault, logic: str, found: list[str]) -> None:
    assert names(vault(THREE).told("search_notes", query="vc,project", mode="tag", tag_logic=logic)) == found


def test_tc57_search_by_tag_finds_children(vault: OpenVault) -> None:
    v = vault({"a": tagged("vc/project"), "b": tagged("vc/idea")})
    assert names(v.told("search_notes", query="vc", mode="tag")) == ["a", "b"]


# ---- links and metadata -------------------------------------------------------------------------------


def test_tc58_get_note_metadata(vault: OpenVault) -> None:
    told = vault({"A": tagged("vc", body="[[B]]"), "C": "[[A]]"}).text("get_note_metadata", name="A")
    assert told == '{"name": "A", "frontmatter": {"tags": ["vc"]}, "outgoing": ["B"], "incoming": ["C"]}'


def test_tc59_get_note_metadata_not_found(vault: OpenVault) -> None:
    assert vault().refused("get_note_metadata", name="nonexistent") == "Note 'nonexistent' not found"


def test_tc66_find_broken_links(vault: OpenVault) -> None:
    told = vault({"A": "[[B]] and [[Missing]]", "B": ""}).text("find_broken_links")
    assert told == '[{"source": "A", "target": "Missing"}]'


def test_tc67_find_no_broken_links(vault: OpenVault) -> None:
    assert vault({"A": "[[B]]", "B": ""}).text("find_broken_links") == "[]"


def test_tc68_get_help(vault: OpenVault) -> None:
    told = vault().told("get_help")
    assert [row["name"] for row in told] == [tool.name for tool in SURFACE.tools]
    assert all(list(row) == ["name", "params", "description"] and row["description"] for row in told)


# ---- invariants that no case above shows --------------------------------------------------------------


def test_invariant_1_and_27_tools_only_translate() -> None:
    """No tool is long enough to hold a decision, and none looks past the engine."""
    for tool in TOOLS:
        assert len(inspect.getsource(tool.run).splitlines()) <= 15, tool.name
    for module in (obsidian, obsidian_change):
        assert ".store" not in inspect.getsource(module) and ".index" not in inspect.getsource(module)


def test_invariant_2_json_keeps_letters_and_separators(vault: OpenVault) -> None:
    v = vault({"чай": "[[зелёный]]"})
    assert v.text("get_links", name="чай") == '{"name": "чай", "outgoing": ["зелёный"], "incoming": []}'


def test_invariant_3_a_problem_is_an_error_of_the_tool(vault: OpenVault) -> None:
    answer = vault().answer("read_note", name="x")
    assert (answer.is_error, answer.text) == (True, "Error executing tool read_note: Note 'x' not found")


@pytest.mark.parametrize("given", ["[1]", '"text"', "1", "null", "true"])
def test_invariant_4_frontmatter_is_an_object(vault: OpenVault, given: str) -> None:
    said = vault().refused("create_note", name="test", frontmatter=given)
    assert said == "Invalid frontmatter JSON: expected an object"


def test_invariant_4_no_frontmatter_is_no_block(vault: OpenVault) -> None:
    v = vault()
    v.told("create_note", name="one", content="x", frontmatter="")
    v.told("create_note", name="two", content="x", frontmatter="{}")
    assert (v.file("one"), v.file("two")) == ("x", "x")


@pytest.mark.parametrize(
    ("mode", "query", "found"),
    [("name", "Alpha", ["Alpha"]), ("name", "alpha", []), ("name_partial", "LPH", ["Alpha", "alphabet"]),
     ("content", "GREEN", ["Alpha"]), ("tag", "tea", ["alphabet"])],
)  # fmt: skip
def test_invariant_5_four_ways_to_search(vault: OpenVault, mode: str, query: str, found: list[str]) -> None:
    v = vault({"Alpha": note("green", status="tea"), "alphabet": tagged("tea"), "beta": ""})
    assert names(v.told("search_notes", query=query, mode=mode)) == found


@pytest.mark.parametrize(
    ("direction", "outgoing", "incoming"), [("in", [], ["C"]), ("out", ["B"], []), ("both", ["B"], ["C"])]
)
def test_invariant_6_three_directions(
    vault: OpenVault, direction: str, outgoing: list[str], incoming: list[str]
) -> None:
    told = vault({"A": "[[B]]", "C": "[[A]]"}).told("get_links", name="A", direction=direction)
    assert told == {"name": "A", "outgoing": outgoing, "incoming": incoming}


ALL = """
read_note create_note append_note update_note delete_note rename_note search_notes get_links get_note_metadata
set_frontmatter add_tag remove_tag list_notes replace_text insert_text read_section append_section get_headings
update_section delete_section find_broken_links get_help
"""


def test_invariant_9_and_47_these_tools_and_no_others() -> None:
    assert [tool.name for tool in SURFACE.tools] == ALL.split()


OBS_MCP = [sys.executable, "-c", "from notewright.cli.main import obs_mcp; obs_mcp()"]
HELLO = {"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


def wired(tmp_path: Path, **variables: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "OBSIDIAN_VAULT_PATH"}
    return {**kept, "XDG_STATE_HOME": str(tmp_path / "s"), "XDG_CACHE_HOME": str(tmp_path / "c"), **variables}


def test_invariant_7_the_server_speaks_on_stdio(tmp_path: Path) -> None:
    (tmp_path / "vault").mkdir()
    (tmp_path / "vault" / "A.md").write_text("Hello")
    asked = [
        {"id": 1, "method": "initialize", "params": HELLO},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/list"},
        {"id": 3, "method": "tools/call", "params": {"name": "read_note", "arguments": {"name": "A"}}},
        {"id": 4, "method": "tools/call", "params": {"name": "read_note", "arguments": {"name": "B"}}},
    ]
    lines = "".join(json.dumps({"jsonrpc": "2.0", **one}) + "\n" for one in asked)
    variables = wired(tmp_path, OBSIDIAN_VAULT_PATH=str(tmp_path / "vault"))
    done = subprocess.run(OBS_MCP, input=lines, env=variables, capture_output=True, text=True, timeout=30, check=True)
    answers = {answer["id"]: answer["result"] for answer in map(json.loads, done.stdout.splitlines())}
    assert answers[1]["instructions"] == SURFACE.instructions
    assert len(answers[2]["tools"]) == 22
    assert answers[3]["content"][0]["text"].startswith("Hello\n\n---\n## Your personal notes")
    missing = {"type": "text", "text": "Error executing tool read_note: Note 'B' not found"}
    assert answers[4] == {"content": [missing], "isError": True}


def test_invariant_8_without_a_vault_nothing_starts(tmp_path: Path) -> None:
    done = subprocess.run(OBS_MCP, env=wired(tmp_path), capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (1, "", "OBSIDIAN_VAULT_PATH not set")


@pytest.mark.parametrize("value", ["5", "true", "null", "[1]", "2026-02-24", "a: b", "", "# x", "two\nlines"])
def test_invariant_10_a_value_is_kept_as_text(vault: OpenVault, value: str) -> None:
    v = vault({"test": "Body"})
    assert v.told("set_frontmatter", name="test", key="k", value=value)["value"] == value
    assert v.told("get_note_metadata", name="test")["frontmatter"] == {"k": value}


def test_invariant_11_a_change_is_seen_by_the_next_call(vault: OpenVault) -> None:
    v = vault({"A": ""})
    v.told("create_note", name="B", content="[[A]]")
    assert v.told("get_links", name="A")["incoming"] == ["B"]


def test_invariant_12_two_sessions_have_their_own_flag(vault: OpenVault) -> None:
    v = vault({"A": "x"})
    assert v.whole("read_note", name="A") != "x"
    assert v.another_session().whole("read_note", name="A") != "x"


def test_invariant_13_the_block_is_in_no_instructions() -> None:
    assert "Allowed tags" not in SURFACE.instructions and "personal notes" not in SURFACE.instructions


def test_invariant_14_15_only_the_tag_claude_in_frontmatter_counts(vault: OpenVault) -> None:
    v = vault({"a": "#claude", "b": tagged("Claude"), "c": tagged("claude/x"), "d": tagged("claude")})
    block = v.whole("list_notes").partition("## Your personal notes")[2]
    assert [line for line in block.splitlines() if line.startswith("- ")] == [
        "- \"d\" — ⚠️ No description. Claude, please add a 'description' field to this note's frontmatter "
        "explaining when to read it."
    ]


def test_invariant_16_17_18_20_22_the_block_follows_whatever_tool_is_first(vault: OpenVault) -> None:
    v = vault({"A": "# H\nx [[B]]", "B": ""})
    calls: dict[str, dict[str, Any]] = {
        "read_note": {"name": "A"}, "search_notes": {"query": "a"}, "get_links": {"name": "A"},
        "get_note_metadata": {"name": "A"}, "list_notes": {}, "read_section": {"name": "A", "section": "H"},
        "get_headings": {"name": "A"}, "find_broken_links": {}, "get_help": {},
        "delete_note": {"name": "B", "dry_run": True}, "append_note": {"name": "A", "text": "y"},
    }  # fmt: skip
    for tool, args in calls.items():
        session = v.another_session()
        first, second = session.whole(tool, **args), session.whole(tool, **args)
        assert first.endswith("\n\nNEVER create new tags without explicit user permission.\n---"), tool
        assert second.count("---") == 0, tool


def test_invariant_18_a_refusal_does_not_use_the_block_up(vault: OpenVault) -> None:
    v = vault({"A": "x"})
    v.refused("read_note", name="nope")
    v.refused("read_note")
    assert v.whole("read_note", name="A").startswith("x\n\n---\n## Your personal notes")


def test_invariant_19_the_block_is_made_once(vault: OpenVault) -> None:
    v = vault({"A": tagged("vc")})
    first = v.whole("list_notes").partition("\n\n---\n")[2]
    v.told("remove_tag", name="A", tag="vc")
    v.told("create_note", name="B", frontmatter='{"tags": ["new"]}')
    assert v.another_session().whole("list_notes").partition("\n\n---\n")[2] == first


def test_invariant_19_the_first_call_is_not_in_the_block(vault: OpenVault) -> None:
    whole = vault().whole("create_note", name="A", frontmatter='{"tags": ["fresh"]}')
    assert "No tags in vault yet." in whole


def test_invariant_21_a_rule_is_a_note_with_the_tag(vault: OpenVault) -> None:
    whole = vault({**RULES, "CLAUDE": "x"}).whole("list_notes")
    assert [line for line in whole.splitlines() if line.startswith("- ")] == ['- "My Rules" — Read before writing text']


def test_invariant_25_26_a_pattern_and_a_section_are_plain(vault: OpenVault) -> None:
    v = vault({"test": "# A\n a.c \n"})
    v.told("insert_text", name="test", text="x", after="a.c", before="")
    assert v.text("read_section", name="test", section="A") == "a.c \nx"


def test_invariant_28_names_alone_a_hundred_at_a_time(vault: OpenVault) -> None:
    v = vault({f"n{number:03}": "" for number in range(101)})
    told = v.told("list_notes")
    assert (len(told["names"]), told["total"], told["names"][-1]) == (100, 101, "n099")


def test_invariant_29_tags_are_collected_at_the_call(vault: OpenVault) -> None:
    v = vault({"A": tagged("vc"), "B": ""})
    assert "['x']" in v.refused("add_tag", name="B", tag="x")
    v.told("remove_tag", name="A", tag="vc")
    assert v.told("add_tag", name="B", tag="x") == {"name": "B", "tags": ["x"]}  # no tags at all: the first is free
    assert v.refused("add_tag", name="A", tag="vc") == (
        "Tags not in allowed list: ['vc']. Allowed: ['x']. Ask user before creating new tags."
    )


def test_invariant_30_tags_given_as_text_are_one_tag(vault: OpenVault) -> None:
    v = vault(TAGS)
    assert "['career']" in v.refused("create_note", name="new", frontmatter='{"tags": "career"}')
    assert v.told("create_note", name="new", frontmatter='{"tags": "vc"}')


@pytest.mark.parametrize("value", ["vc", '"vc"', '{"vc": 1}', "null", "[1]", "[[]]", "[" * 100_000])
def test_invariant_31_tags_are_a_json_list(vault: OpenVault, value: str) -> None:
    said = vault(TAGS).refused("set_frontmatter", name="one", key="tags", value=value)
    assert said == """tags must be a JSON list, e.g. '["tag1", "tag2"]'"""


def test_invariant_31_the_list_is_told_and_written(vault: OpenVault) -> None:
    v = vault({**TAGS, "test": "Body"})
    assert v.told("set_frontmatter", name="test", key="tags", value='["vc"]')["value"] == ["vc"]
    assert v.file("test") == "---\ntags:\n- vc\n---\nBody"


def test_invariant_32_the_allowed_list_comes_before_the_rules(vault: OpenVault) -> None:
    said = vault({"one": tagged("vc")}).refused("create_note", name="John", frontmatter='{"tags": ["Person"]}')
    assert said.startswith("Tags not in allowed list: ['Person']")


def test_invariant_32_set_frontmatter_knows_no_rules(vault: OpenVault) -> None:
    told = vault(TAGS).told("set_frontmatter", name="one", key="tags", value='["Person"]')
    assert told["value"] == ["Person"]


@pytest.mark.parametrize("properties", [{}, {"description": ""}, {"description": None}])
def test_invariant_33_34_the_rules_explain_themselves(vault: OpenVault, properties: dict[str, Any]) -> None:
    v = vault({"x": tagged("claude")})
    front = json.dumps({"tags": ["claude"], **properties})
    assert v.refused("create_note", name="new", frontmatter=front) == CLAUDE


def test_invariant_35_a_tag_that_is_there_is_not_checked(vault: OpenVault) -> None:
    v = vault({"John": tagged("Person", "vc")})
    before = v.files()
    assert v.told("add_tag", name="John", tag="Person") == {"name": "John", "tags": ["Person", "vc"]}
    assert v.files() == before


def test_invariant_36_37_removing_checks_nothing(vault: OpenVault) -> None:
    v = vault({"John": tagged("Person")})
    assert v.told("remove_tag", name="John", tag="Person") == {"name": "John", "tags": [], "removed": True}


def test_invariant_38_39_queries_are_trimmed_and_may_be_empty(vault: OpenVault) -> None:
    v = vault({**THREE, "plain": ""})
    assert names(v.told("search_notes", query=" vc , ,project ", mode="tag", tag_logic="and")) == ["c"]
    assert v.told("search_notes", query=" , ", mode="tag", tag_logic="or") == []
    assert names(v.told("search_notes", query="", mode="tag", tag_logic="and")) == ["a", "b", "c", "plain"]
    assert names(v.told("search_notes", query="plain", tag_logic="nonsense")) == ["plain"]


def test_invariant_40_case_counts_and_text_does_not(vault: OpenVault) -> None:
    v = vault({"a": tagged("VC"), "b": "#vc", "c": tagged("vc/x"), "d": tagged("vcx")})
    assert names(v.told("search_notes", query="vc", mode="tag")) == ["c"]


def test_invariant_41_metadata_can_hold_anything_yaml_can(vault: OpenVault) -> None:
    v = vault({"A": "---\ndate: 2026-02-24\nat: 2026-02-24T10:00:00Z\nn: 1.5\nyes: no\nempty:\n---\n[[B]] [[B]]"})
    assert v.told("get_note_metadata", name="A") == {
        "name": "A",
        "frontmatter": {"date": "2026-02-24", "at": "2026-02-24T10:00:00Z", "n": 1.5, "yes": "no", "empty": None},
        "outgoing": ["B"],
        "incoming": [],
    }


def test_invariant_42_headings_are_lines_of_their_own(vault: OpenVault) -> None:
    v = vault({"t": note("# A\n#tag\n```\n# code\n```\n> # quoted\n## B ##\nText\n====\n", x="# front")})
    assert v.told("get_headings", name="t") == [{"level": 1, "text": "A"}, {"level": 2, "text": "B"}]


def test_invariant_43_44_45_a_section_holds_its_sub_sections(vault: OpenVault) -> None:
    v = vault({"t": "# A\nx\n## B\ny\n### C\nz\n# D\nw"})
    assert v.text("read_section", name="t", section="A") == "x\n## B\ny\n### C\nz"
    v.told("update_section", name="t", section="## B", content="new")
    assert v.file("t") == "# A\nx\n## B\nnew\n# D\nw"
    v.told("delete_section", name="t", section="A")
    assert v.file("t") == "# D\nw"
    assert v.refused("delete_section", name="t", section="## D") == "Section '## D' not found in note 't'"


def test_invariant_46_only_links_that_are_links_can_be_broken(vault: OpenVault) -> None:
    v = vault({"A": "`[[code]]` [[B#Nowhere]] [[B|shown]] [[#Here]] ![[pic.png]] [[gone|x]] [[gone]] [t](no.md)",
               "B": "", "pic.png": b"\x89"})  # fmt: skip
    assert v.told("find_broken_links") == [{"source": "A", "target": "gone"}]


def test_invariant_48_help_says_what_every_tool_takes(vault: OpenVault) -> None:
    params = {row["name"]: row["params"] for row in vault().told("get_help")}
    assert params["read_note"] == "name: str"
    assert params["create_note"] == 'name: str, content: str = "", frontmatter: str = ""'
    assert params["rename_note"] == "old_name: str, new_name: str, dry_run: bool = False"
    assert params["list_notes"] == "limit: int = 100, offset: int = 0"
    assert params["get_help"] == ""
