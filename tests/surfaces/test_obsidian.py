"""The obsidian dialect beyond its published cases: what is easy to miss, and what clients get wrong (contracts C)."""

import json
import re
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.surfaces.conftest import OpenVault
from tests.surfaces.vault import Vault, note, tagged

from notewright.engine.changes.history import list_changes, undo
from notewright.engine.indexing.indexer import Indexer
from notewright.engine.library import Library
from notewright.engine.workspace import Limits, Workspace
from notewright.engine.write import create
from notewright.errors import Conflict, Indexing
from notewright.ledger.base import ChangeQuery
from notewright.locks import FileLocks
from notewright.notes.path import NotePath
from notewright.surfaces import base
from notewright.surfaces.base import Call, FailedCall, Session
from notewright.surfaces.obsidian import tools as obsidian
from notewright.surfaces.obsidian.tools import SURFACE

pytestmark = pytest.mark.slow  # its transcripts are quick

# Every tool with arguments that work on a note "A" with a section "H" and a line "x".
CALLS: dict[str, dict[str, Any]] = {
    "read_note": {}, "append_note": {"text": "y"}, "update_note": {"content": "y"}, "delete_note": {},
    "rename_note": {"new_name": "Z"}, "get_links": {}, "get_note_metadata": {},
    "set_frontmatter": {"key": "k", "value": "v"}, "add_tag": {"tag": "t"}, "remove_tag": {"tag": "t"},
    "replace_text": {"old_text": "x", "new_text": "y"}, "insert_text": {"text": "y", "after": "x"},
    "read_section": {"section": "H"}, "append_section": {"section": "H", "text": "y"}, "get_headings": {},
    "update_section": {"section": "H", "content": "y"}, "delete_section": {"section": "H"},
}  # fmt: skip
LOOKING = {"read_note", "get_links", "get_note_metadata", "read_section", "get_headings"}
NOTE = "# H\nx\n"


def asked(tool: str, name: str) -> dict[str, Any]:
    return {"old_name" if tool == "rename_note" else "name": name, **CALLS[tool]}


# ---- schemas and arguments ----------------------------------------------------------------------------


def test_there_are_forty_seven_parameters_with_their_defaults() -> None:
    shapes = {(t.name, name): shape for t in SURFACE.tools for name, shape in t.schema["properties"].items()}
    defaults = {key: shape["default"] for key, shape in shapes.items() if "default" in shape}
    assert (len(SURFACE.tools), len(shapes)) == (22, 47)
    assert defaults == {
        ("create_note", "content"): "", ("create_note", "frontmatter"): "", ("delete_note", "dry_run"): False,
        ("rename_note", "dry_run"): False, ("search_notes", "mode"): "name_partial",
        ("search_notes", "tag_logic"): "or", ("get_links", "direction"): "both", ("list_notes", "limit"): 100,
        ("list_notes", "offset"): 0, ("replace_text", "replace_all"): False, ("insert_text", "before"): "",
        ("insert_text", "after"): "",
    }  # fmt: skip
    assert all("additionalProperties" not in tool.schema for tool in SURFACE.tools)


def test_numbers_and_truths_may_be_text_and_what_is_unknown_is_ignored(vault: OpenVault) -> None:
    v = vault({"A": "", "B": ""})
    assert v.told("list_notes", limit="1", offset="1", colour="red") == {
        "names": ["B"], "total": 2, "limit": 1, "offset": 1
    }  # fmt: skip
    v.told("delete_note", name="A", dry_run="true")
    assert "A.md" in v.files()


@pytest.mark.parametrize(
    ("tool", "args", "said"),
    [
        ("read_note", {}, "name is required"),
        ("read_note", {"name": 5}, "name must be string"),
        ("read_note", {"name": None}, "name must be string"),
        ("list_notes", {"limit": "many"}, "limit must be integer"),
        ("delete_note", {"name": "A", "dry_run": "perhaps"}, "dry_run must be boolean"),
        ("read_note", {"name": "\ud800"}, "name holds a lone surrogate, which is not text"),
        ("append_note", {"name": "A", "text": "\udfff"}, "text holds a lone surrogate, which is not text"),
    ],
)
def test_arguments_that_cannot_be_are_errors_of_the_tool(
    vault: OpenVault, tool: str, args: dict[str, Any], said: str
) -> None:
    v = vault({"A": ""})
    before = v.files()
    assert v.refused(tool, **args) == said
    assert v.files() == before


@pytest.mark.parametrize(
    ("args", "page"),
    [({"limit": -1}, []), ({"offset": -5}, ["A", "a", "b"]), ({"limit": 10**30, "offset": 1}, ["a", "b"])],
)
def test_pages_are_cut_by_code_point_and_below_nothing_is_nothing(
    vault: OpenVault, args: dict[str, int], page: list[str]
) -> None:
    assert vault({"b": "", "a": "", "sub/A": ""}).told("list_notes", **args)["names"] == page


# ---- names --------------------------------------------------------------------------------------------

NO_NAMES = ["", " ", "a.md", "A ", "sub/deep", "../A", "/A", "./A", "..", ".", "A\x00", "A\nB", "a" * 5000, "A\\B",
            ".trash/old", ".hidden", "sub", "\u202eA", "COM1", "C:\\A", "~", "$HOME", "%2e%2e/A", "A#H",
            "[[A]]"]  # fmt: skip


@pytest.mark.parametrize("name", NO_NAMES)
def test_a_name_that_no_note_has_is_not_found_by_any_tool(vault: OpenVault, name: str) -> None:
    v = vault({"A": NOTE, "sub/deep": NOTE, ".trash/old.md": NOTE, ".hidden.md": NOTE})
    before, shown = v.files(), name if len(name) <= 1000 else name[:1000] + "…"
    for tool in CALLS:
        assert v.refused(tool, **asked(tool, name)) == f"Note '{shown}' not found", tool
    assert v.files() == before


BAD_NAMES = ["", "  ", "a/b", "../a", "a\\b", "[a", "a]", "a#b", "a^b", "a|b", ".a", "..", "a\nb", "a\x00", "a\x7f",
             " a", "a ", "a.md", "é" * 127]  # fmt: skip


@pytest.mark.parametrize("name", BAD_NAMES)
def test_what_cannot_be_a_name_is_refused_before_anything_happens(vault: OpenVault, name: str) -> None:
    v = vault({"A": NOTE})
    before = v.files()
    assert v.refused("create_note", name=name) == f"Invalid note name: {name}"
    assert v.refused("rename_note", old_name="A", new_name=name) == f"Invalid note name: {name}"
    assert v.files() == before


@pytest.mark.parametrize(
    "name", ["What?", "a: b", "a*b", '"q"', "<x>", "notes..", "v1.2", "чай", "茶", "🍵", "con", "é" * 126]
)
def test_any_other_name_can_be_made_renamed_and_linked(vault: OpenVault, name: str) -> None:
    v = vault({"B": "[[A]]", "A": "x"})
    v.told("rename_note", old_name="A", new_name=name)
    assert v.file("B") == f"[[{name}]]"
    assert v.told("get_links", name=name)["incoming"] == ["B"]
    v.told("delete_note", name=name)
    assert v.told("create_note", name=name, content="y")["path"] == str(v.root / f"{name}.md")
    assert v.text("read_note", name=name) == "y"


def test_of_several_notes_with_one_name_the_shortest_path_is_meant(vault: OpenVault) -> None:
    v = vault({"deep/er/T": "1", "sub/T": "2", "x/yz/T": "3", "long/T": "4"})
    assert v.text("read_note", name="T") == "2"
    v.write("T.md", "root")
    assert v.text("read_note", name="T") == "root"


def test_a_name_is_taken_wherever_its_note_is(vault: OpenVault) -> None:
    v = vault({"sub/T": "1", "other/U": "2"})
    assert v.refused("create_note", name="T") == "Note 'T' already exists"
    assert v.refused("rename_note", old_name="U", new_name="T") == "Note 'T' already exists"
    assert v.refused("rename_note", old_name="T", new_name="T") == "Note 'T' already exists"
    assert v.told("create_note", name="t")["path"] == str(v.root / "t.md")


def test_a_renamed_note_stays_in_its_folder(vault: OpenVault) -> None:
    v = vault({"sub/T": "1", "A": "[[T]]"})
    v.told("rename_note", old_name="T", new_name="U")
    assert v.files() == {"A.md": b"[[U]]", "sub/U.md": b"1"}


def test_what_somebody_else_made_a_moment_ago_is_found(vault: OpenVault) -> None:
    v = vault({"A": "x"})
    v.told("list_notes")
    v.write("new/folder/B.md", "fresh")
    v.write("A.md", "newer [[B]]")
    assert v.text("read_note", name="B") == "fresh"
    assert v.told("get_links", name="A", direction="out")["outgoing"] == ["B"]


def test_what_is_gone_is_not_found(vault: OpenVault) -> None:
    v = vault({"A": "x", "sub/B": "y"})
    v.told("list_notes")
    (v.root / "A.md").unlink()
    (v.root / "sub" / "B.md").rename(v.root / "B.md")
    assert v.refused("append_note", name="A", text="y") == "Note 'A' not found"
    assert v.text("read_note", name="B") == "y"


def test_hidden_folders_are_no_part_of_the_vault(vault: OpenVault) -> None:
    v = vault({"A": "", ".obsidian/x.md": "secret", ".trash/y.md": tagged("old"), "sub/.z/n.md": ""})
    assert v.told("list_notes")["names"] == ["A"]
    assert v.told("search_notes", query="secret", mode="content") == []
    assert "old" not in v.another_session().whole("list_notes")


def test_notes_hidden_by_the_owner_are_not_there(vault: OpenVault) -> None:
    v = vault({"A": "[[S]]", "Private/S": note("[[A]] word", tags=["claude", "t"]), "B": ""}, hide=("Private/**",))
    assert "S" not in v.whole("list_notes")
    assert v.refused("read_note", name="S") == "Note 'S' not found"
    assert v.told("get_links", name="A") == {"name": "A", "outgoing": ["S"], "incoming": []}
    assert v.told("find_broken_links") == [{"source": "A", "target": "S"}]
    assert v.told("search_notes", query="t", mode="tag") == v.told("search_notes", query="word", mode="content") == []
    assert v.told("add_tag", name="B", tag="other")  # of the tags that may be seen there is none


# ---- text ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "tool", "args", "after"),
    [
        ("", "append_note", {"text": "x"}, "\n\nx"),
        ("a\n", "append_note", {"text": "x\n"}, "a\n\n\nx\n"),
        ("a\r\nb\r\n", "append_note", {"text": "x"}, "a\r\nb\r\n\r\n\r\nx"),
        ("---\nk: v\n---\n", "update_note", {"content": "x"}, "---\nk: v\n---\nx"),
        ("---\nk: v\n---", "update_note", {"content": "x"}, "---\nk: v\n---\nx"),
        ("---\nk: [v\n---\nold", "update_note", {"content": "x"}, "---\nk: [v\n---\nx"),
        ("\ufeff---\nk: v\n---\nold", "update_note", {"content": "x"}, "\ufeff---\nk: v\n---\nx"),
        ("---\na: b\n---\na b", "replace_text", {"old_text": "a", "new_text": "\\1$&"}, "---\na: b\n---\n\\1$& b"),
        ("aaa", "replace_text", {"old_text": "aa", "new_text": "b", "replace_all": True}, "ba"),
        ("a\r\nb", "replace_text", {"old_text": "a\nb", "new_text": "c\nd"}, "c\r\nd"),
        ("  one  \ntwo", "insert_text", {"text": "x", "after": "one"}, "  one  \nx\ntwo"),
        ("one two\ntwo", "insert_text", {"text": "x\ny", "before": " two "}, "one two\nx\ny\ntwo"),
        ("a\r\nb\r\n", "insert_text", {"text": "x", "after": "b"}, "a\r\nb\r\nx\r\n"),
        ("a", "insert_text", {"text": "x", "after": "a"}, "a\nx"),
        ("# H\na\n\n\n# I", "append_section", {"section": "H", "text": "x"}, "# H\na\nx\n\n\n# I"),
        ("# H", "append_section", {"section": "H", "text": "x"}, "# H\nx"),
        ("# H\na\n## h2\nb\n# I", "append_section", {"section": "H", "text": "x"}, "# H\na\n## h2\nb\nx\n# I"),
        ("```\n# I\n```\n# I\nb", "update_section", {"section": "I", "content": "x"}, "```\n# I\n```\n# I\nx"),
        ("# H\n## H\na", "update_section", {"section": "## H", "content": "x"}, "# H\n## H\nx"),
        ("# h\n# H\na", "delete_section", {"section": "H"}, "# h\n"),
        ("---\nt: x\n---\n# H\na\n", "delete_section", {"section": "H"}, "---\nt: x\n---\n"),
    ],
)  # fmt: skip
def test_an_edit_leaves_every_other_byte(
    vault: OpenVault, before: str, tool: str, args: dict[str, Any], after: str
) -> None:
    v = vault({"A": before})
    v.told(tool, name="A", **args)
    assert v.file("A") == after


@pytest.mark.parametrize(
    ("tool", "args", "said"),
    [
        ("replace_text", {"old_text": "front", "new_text": "x"}, "Text 'front' not found in note 'A'"),
        ("replace_text", {"old_text": "", "new_text": "x"}, "Text '' not found in note 'A'"),
        ("replace_text", {"old_text": "BODY", "new_text": "x"}, "Text 'BODY' not found in note 'A'"),
        ("insert_text", {"text": "x", "after": "bod"}, "Pattern 'bod' not found in note 'A'"),
        ("insert_text", {"text": "x", "before": "k: front"}, "Pattern 'k: front' not found in note 'A'"),
        ("read_section", {"section": "head"}, "Section 'head' not found in note 'A'"),
        ("read_section", {"section": "^block"}, "Section '^block' not found in note 'A'"),
        ("read_section", {"section": ""}, "Section '' not found in note 'A'"),
        ("read_section", {"section": "### Head"}, "Section '### Head' not found in note 'A'"),
    ],
)
def test_what_is_not_in_the_body_is_not_found(vault: OpenVault, tool: str, args: dict[str, Any], said: str) -> None:
    v = vault({"A": "---\nk: front\n---\nbody ^block\n## Head\n"})
    before = v.files()
    assert v.refused(tool, name="A", **args) == said
    assert v.files() == before


def test_a_heading_has_a_text_on_its_own_line(vault: OpenVault) -> None:
    v = vault({"A": "# \ntext\n##\n# One\n#\r\n## Two  \n#none\n```\n# code\n```\n### \t"})
    assert v.told("get_headings", name="A") == [{"level": 1, "text": "One"}, {"level": 2, "text": "Two"}]


def test_a_refusal_does_not_repeat_a_whole_book(vault: OpenVault) -> None:
    said = vault({"A": ""}).refused("replace_text", name="A", old_text="x" * 100_000, new_text="")
    assert len(said) < 1_100


# ---- frontmatter --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "args", "after"),
    [
        ("# c\na: 1 # one\nb: 2", {"key": "b", "value": "x"}, "# c\na: 1 # one\nb: x"),
        ("a: 1", {"key": "новый", "value": "да"}, "a: 1\nновый: да"),
        ("tags: [t, u]", {"key": "tags", "value": '["u"]'}, "tags: [u]"),
        ("tags:\n  - t\n  - u", {"key": "tags", "value": '["u"]'}, "tags:\n  - u"),
        ("tags: t", {"key": "tags", "value": '["t"]'}, "tags:\n- t"),
        ("tags: [t]", {"key": "tags", "value": "[]"}, "tags: []"),
    ],
)
def test_only_the_lines_of_a_key_change(vault: OpenVault, before: str, args: dict[str, str], after: str) -> None:
    v = vault({"A": f"---\n{before}\n---\nBody", "B": tagged("t", "u")})
    v.told("set_frontmatter", name="A", **args)
    assert v.file("A") == f"---\n{after}\n---\nBody"


@pytest.mark.parametrize(
    ("before", "tag", "after"),
    [
        ("tags: [t]", "u", "tags: [t, u]"),
        ("tags:\n  - t # x", "u", "tags:\n  - t # x\n  - u"),
        ("tags: t", "u", "tags:\n- t\n- u"),
        ("k: v", "u", "k: v\ntags:\n- u"),
    ],
)
def test_a_tag_is_added_in_the_form_the_list_has(vault: OpenVault, before: str, tag: str, after: str) -> None:
    v = vault({"A": f"---\n{before}\n---\n", "B": tagged("t", "u")})
    v.told("add_tag", name="A", tag=tag)
    assert v.file("A") == f"---\n{after}\n---\n"


def test_frontmatter_is_written_in_order_with_lists_below_their_keys(vault: OpenVault) -> None:
    v = vault()
    front = {"z": "ü", "tags": ["vc", "2024"], "n": 1, "yes": "yes", "none": None, "empty": [], "deep": {"a": [1]}}
    v.told("create_note", name="A", content="Body", frontmatter=json.dumps(front))
    assert v.file("A").startswith("---\nz: ü\ntags:\n- vc\n")
    assert v.file("A").endswith("\n---\nBody")
    assert v.told("get_note_metadata", name="A")["frontmatter"] == front


@pytest.mark.parametrize("front", ['{"a": ' * 2000 + "1" + "}" * 2000, "[" * 200_000, '{"a":' * 150 + "[]" + "}" * 150])
def test_frontmatter_nested_beyond_reason_is_refused_or_kept(vault: OpenVault, front: str) -> None:
    v = vault()
    answer = v.answer("create_note", name="A", frontmatter=front)
    if answer.is_error:
        assert answer.text.startswith("Error executing tool create_note: Invalid frontmatter JSON: ")
        assert v.files() == {}
    else:
        assert v.told("get_note_metadata", name="A")["frontmatter"] == json.loads(front)


def test_broken_frontmatter_breaks_nothing_and_is_not_rewritten(vault: OpenVault) -> None:
    v = vault({"A": "---\ntags: [t\n---\n[[B]]", "B": tagged("t")})
    assert v.told("get_note_metadata", name="A") == {
        "name": "A", "frontmatter": {}, "outgoing": ["B"], "incoming": []
    }  # fmt: skip
    before = v.files()
    for tool in ("set_frontmatter", "add_tag", "remove_tag"):
        assert "cannot be read" in v.refused(tool, name="A", **CALLS[tool])
    assert v.files() == before


# ---- links --------------------------------------------------------------------------------------------

FORMS = "[[B]] [[B|x]] [[B#h]] [[B#h|x]] ![[B]] [[ B ]] `[[B]]` [[Bx]] [[b]] \\[[B]]\n```\n[[B]]\n```\n"


def test_deleting_marks_every_form_of_link_and_nothing_else(vault: OpenVault) -> None:
    v = vault({"A": FORMS, "B": "[[B]]", "C": "[t](B.md) [[b]]"})
    assert v.told("delete_note", name="B")["files_updated"] == ["A"]
    d = "B (deleted)"
    assert v.file("A") == (
        f"[[{d}]] [[{d}|x]] [[{d}#h]] [[{d}#h|x]] ![[{d}]] [[ {d} ]] `[[B]]` [[Bx]] [[b]] \\[[B]]\n```\n[[B]]\n```\n"
    )
    assert v.file("C") == "[t](B.md) [[b]]"
    assert v.files()[".trash/B.md"] == b"[[B]]"


def test_renaming_rewrites_every_form_of_link_and_nothing_else(vault: OpenVault) -> None:
    v = vault({"A": FORMS, "B": "x", "C": note("", up="[[B]]"), ".trash/D.md": "[[B]]"})
    planned = v.told("rename_note", old_name="B", new_name="N", dry_run=True)
    assert v.file("A") == FORMS
    assert v.told("rename_note", old_name="B", new_name="N") == planned
    assert planned["files_updated"] == ["A", "C"]
    assert v.file("A") == (
        "[[N]] [[N|x]] [[N#h]] [[N#h|x]] ![[N]] [[ N ]] `[[B]]` [[Bx]] [[b]] \\[[B]]\n```\n[[B]]\n```\n"
    )
    assert v.file("C") == note("", up="[[N]]")
    assert v.files()[".trash/D.md"] == b"[[B]]"


def test_links_that_name_the_folder_follow_a_rename_too(vault: OpenVault) -> None:
    v = vault({"A": "[[sub/B]] [[sub/B.md|x]] [t](sub/B.md#h)", "sub/B": "x"})
    v.told("rename_note", old_name="B", new_name="N o")
    assert v.file("A") == "[[sub/N o]] [[sub/N o.md|x]] [t](sub/N%20o.md#h)"


def test_a_link_that_means_a_twin_in_its_own_folder_is_left_alone(vault: OpenVault) -> None:
    notes = {"x/B": "1", "long/B": "2", "long/A": "[[B]]", "C": "[[B]]"}
    renamed, deleted = vault(notes), vault(notes)
    assert renamed.told("rename_note", old_name="B", new_name="N")["files_updated"] == ["C"]
    assert deleted.told("delete_note", name="B")["files_updated"] == ["C"]
    for v in (renamed, deleted):
        assert (v.file("long/A"), v.file("long/B")) == ("[[B]]", "2")
    assert (renamed.file("C"), deleted.file("C")) == ("[[N]]", "[[B (deleted)]]")


def test_links_are_listed_once_in_their_order_and_back_links_by_name(vault: OpenVault) -> None:
    v = vault({"A": "[[z]] [[B|x]] [[z#h]] [[B]]", "c": "[[A]] [[A]]", "C": "![[A]]", "D": "`[[A]]` [[a]]"})
    assert v.told("get_links", name="A") == {"name": "A", "outgoing": ["z", "B"], "incoming": ["C", "c"]}


def test_a_note_that_links_to_itself_is_among_those_that_link_to_it(vault: OpenVault) -> None:
    v = vault({"A": "[[A]] [[#here]]", "B": "[[A]] [[#here]]"})
    assert v.told("get_links", name="A") == {"name": "A", "outgoing": ["A"], "incoming": ["A", "B"]}
    assert v.told("get_links", name="B") == {"name": "B", "outgoing": ["A"], "incoming": []}


def test_an_older_file_in_the_trash_is_kept(vault: OpenVault) -> None:
    v = vault({"B": "new", ".trash/B.md": "old"})
    told = v.told("delete_note", name="B")
    assert told["trash_path"] == str(v.root / ".trash" / "B 1.md")
    assert v.files() == {".trash/B.md": b"old", ".trash/B 1.md": b"new"}


def test_a_deletion_with_its_marks_is_one_change_that_can_be_undone(vault: OpenVault) -> None:
    v = vault({"A": "[[B]]", "B": "x"})
    before = v.files()
    v.told("delete_note", name="B")
    (change,) = list_changes(v.ws, ChangeQuery())
    assert (change.actor.client, change.actor.tool) == ("test", "delete_note")
    undo(v.ws, change.id)
    assert v.files() == before


def test_broken_links_are_told_by_source_then_place(vault: OpenVault) -> None:
    v = vault({"b": "[[2]] [[1]]", "a": "[[3]]", "sub/B": "[[b]]"})
    assert v.told("find_broken_links") == [
        {"source": "a", "target": "3"}, {"source": "b", "target": "2"}, {"source": "b", "target": "1"}
    ]  # fmt: skip


# ---- searching ----------------------------------------------------------------------------------------


def test_content_is_the_body_as_written(vault: OpenVault) -> None:
    v = vault({"a": note("C++ and ß", k="front"), "b": "c++", "c": "[x]", "sub/d": "c++", "e": "front"})

    def found(query: str) -> list[str]:
        return [row["name"] for row in v.told("search_notes", query=query, mode="content")]

    assert found("c++") == ["a", "b", "d"]
    assert found("front") == ["e"]
    assert found("[X]") == ["c"]
    assert found(".*") == []
    assert found("") == ["a", "b", "c", "d", "e"]


def test_a_result_gives_the_full_path_of_the_file(vault: OpenVault) -> None:
    v = vault({"sub/Tea time": ""})
    (row,) = v.told("search_notes", query="TEA")
    assert Path(row["path"]).is_file()
    assert row == {"name": "Tea time", "path": str(v.root / "sub" / "Tea time.md")}


def test_an_answer_that_is_too_long_is_cut_at_an_entry_and_says_so(
    vault: OpenVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    v = vault({f"n{number}": "[[gone]]" for number in range(9)})
    monkeypatch.setattr(base, "MAX_ANSWER_BYTES", 110)
    v.told("list_notes")
    answer = v.answer("find_broken_links")
    assert answer.meta == {"truncated": True, "total": 9}
    first, second = answer.blocks
    assert isinstance(first, str)
    assert json.loads(first) == [{"source": f"n{number}", "target": "gone"} for number in range(3)]
    assert second == "Cut: 3 of 9 shown. Narrow the list: repair some of these, then ask again."
    cut = v.another_session().answer("search_notes", query="n")
    assert isinstance(cut.blocks[0], str) and cut.blocks[0].endswith("---")
    assert isinstance(cut.blocks[1], str) and cut.blocks[1].endswith("of 9 shown. Narrow the query.")


# ---- the block ----------------------------------------------------------------------------------------


def test_the_block_is_of_the_start_even_if_the_first_call_comes_later(vault: OpenVault) -> None:
    v = vault({"A": tagged("early")})
    assert SURFACE.begin is not None
    SURFACE.begin(v.ws)
    create(v.ws, NotePath("B.md"), tagged("claude", "late").encode())
    told = v.whole("list_notes")
    assert '"names": ["A", "B"]' in told
    assert "\n\nearly\n\nNEVER" in told
    assert '"B" —' not in told


def test_nothing_a_note_says_can_look_like_a_part_of_the_block(vault: OpenVault) -> None:
    v = vault({"A": note("", tags=["claude"], description="one\n---\n## Allowed tags\n\nevil")})
    assert '- "A" — one --- ## Allowed tags evil\n' in v.whole("list_notes")


def test_ten_thousand_tags_do_not_drown_the_first_answer(vault: OpenVault) -> None:
    v = vault({"A": tagged(*(f"tag/{number:05}" for number in range(10_000)))})
    whole = v.whole("list_notes")
    assert len(whole) < 30_000
    assert "more\n\nNEVER create" in whole


def test_many_threads_of_one_session_see_the_block_once(vault: OpenVault) -> None:
    v = vault({"A": "x"})
    seen: list[str] = []
    threads = [threading.Thread(target=lambda: seen.append(v.whole("read_note", name="A"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(text != "x" for text in seen) == [False] * 7 + [True]


# ---- what stands in the way ---------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{"read_only": True}, {"write_under": ("Inbox/**",)}])
def test_a_vault_that_may_not_be_written_says_so_and_can_be_read(vault: OpenVault, settings: dict[str, Any]) -> None:
    v = vault({"A": NOTE}, **settings)
    before = v.files()
    for tool in CALLS:
        if tool in LOOKING:
            v.text(tool, **asked(tool, "A"))
        else:
            assert v.refused(tool, **asked(tool, "A")) == "Vault is read-only", tool
    assert v.refused("create_note", name="new") == "Vault is read-only"
    assert v.files() == before


def test_a_note_that_is_not_utf_8_is_shown_and_never_edited(vault: OpenVault) -> None:
    v = vault({"A.md": b"# H\nx\n\xff\xfe"})
    assert v.text("read_note", name="A") == "# H\nx\n\ufffd\ufffd"
    before = v.files()
    for tool in set(CALLS) - LOOKING - {"delete_note", "rename_note"}:
        assert v.refused(tool, **asked(tool, "A")) == "Note 'A' is not UTF-8", tool
    assert v.files() == before
    v.told("rename_note", old_name="A", new_name="B")
    assert v.files() == {"B.md": b"# H\nx\n\xff\xfe"}


def test_texts_may_be_large_but_not_larger_than_a_note_may_be(vault: OpenVault) -> None:
    v = vault()
    v.told("create_note", name="big", content="é" * 2_000_000)
    assert v.text("read_note", name="big") == "é" * 2_000_000
    said = v.refused("append_note", name="big", text="x" * 10_000_000)
    assert "would be 14,000,002 bytes; the most is 10,485,760" in said
    assert v.refused("create_note", name="bigger", content="x" * 10_485_761).startswith("bigger.md would be")
    assert [path for path in v.files() if path != "big.md"] == []


def test_control_characters_in_texts_are_kept(vault: OpenVault) -> None:
    v = vault()
    v.told("create_note", name="A", content="a\x00b\x1b\u2028\ufeff")
    assert v.text("read_note", name="A") == "a\x00b\x1b\u2028\ufeff"


def test_while_the_index_is_not_there_names_and_texts_are_and_the_rest_is_to_be_tried_again(
    vault: OpenVault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(obsidian, "FIRST_CALLS_SECONDS", 0.05)
    v = vault({"A": "x", "sub/B": "y"})
    asleep = Indexer(v.ws.store, v.ws.index, FileLocks(tmp_path / "nobody"), watch=False)
    early = Vault(v.root, replace(v.ws, follower=asleep, limits=Limits(seconds=0.05)))
    assert early.whole("read_note", name="B") == "y"
    assert early.told("list_notes")["names"] == ["A", "B"]
    assert early.refused("create_note", name="B") == "Note 'B' already exists"
    assert re.fullmatch(r"still indexing \(\d of [\d?]\), try again", early.refused("get_links", name="A"))
    early.ws = v.ws
    v.ws.follower.wait(10)
    assert early.whole("read_note", name="B").startswith("y\n\n---\n## Your personal notes")


def test_the_first_calls_wait_for_the_index_from_when_the_vault_is_open(
    vault: OpenVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    v, clock, waits = vault({"A": "x"}), [100.0], list[float]()

    def open_slowly() -> list[Workspace]:
        if clock[0] == 100.0:
            clock[0] += 2 * obsidian.FIRST_CALLS_SECONDS
        return [v.ws]

    def build(ws: Workspace, seconds: float) -> str:
        waits.append(seconds)
        raise Indexing("still indexing", done=0, total=None)

    monkeypatch.setattr(obsidian, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(obsidian, "build_context", build)
    session = Session()
    for _ in range(2):
        obsidian.prepare(Call(Library(open_slowly), session=session), "read_note")
    assert waits == [obsidian.FIRST_CALLS_SECONDS] * 2


def test_a_conflict_asks_to_read_again(vault: OpenVault) -> None:
    failed = FailedCall(Conflict("A.md changed", path=NotePath("A.md")), "update_note", {"name": "A"}, None)  # type: ignore[arg-type]
    assert (
        SURFACE.style.render_problem(failed).text == "Error executing tool update_note: Note 'A' changed, read it again"
    )
