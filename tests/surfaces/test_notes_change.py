"""`notes`, changing: write, edit, properties, move, delete, daily (contracts G)."""

import json
import re
from typing import Any

import pytest
from tests.surfaces.notes_agent import VERSION, MakeAgent

LIST = "# List\n\n## Open\n\n- alpha\n- beta\n\n### Later\n\n- gamma\n\n\n## Done\n\n- omega\n"


# ---- write --------------------------------------------------------------------------------------------


def test_a_new_note_is_made_with_its_folders(make: MakeAgent) -> None:
    agent = make()
    answer = agent.said("write", path="Ideas/Tea", content="# Tea\r\n")
    assert re.fullmatch(r'Created Ideas/Tea\.md · version [0-9a-f]{12}\nUndo: undo\(change="\w{6,}"\)', answer)
    assert agent.raw("Ideas/Tea.md") == b"# Tea\r\n"
    assert agent.version("Ideas/Tea") == VERSION.findall(answer)[0]


def test_with_its_version_it_is_overwritten(make: MakeAgent) -> None:
    agent = make({"Tea.md": "old"})
    answer = agent.said("write", path="tea.md", content="new", version=agent.version("Tea"))
    assert answer.startswith("Overwrote Tea.md · version ")
    assert agent.text("Tea.md") == "new"
    again = agent.said("write", path="Tea", content="new", version=VERSION.findall(answer)[0])
    assert again.endswith("\nNothing changed.")


def test_an_old_version_is_a_conflict_that_shows_what_changed(make: MakeAgent) -> None:
    agent = make({"Tea.md": "one\ntwo\nthree\n"})
    version = agent.version("Tea")
    agent.another().done("edit", path="Tea", edits=[{"replace": "two", "with": "2"}])
    said = agent.refused("write", path="Tea", content="mine", version=version)
    assert said.split("\n") == [
        f"conflict: Tea.md changed since version {version}: it is now {agent.version('Tea')}."
        " Read it again, then repeat the change. What changed:",
        "@@ -1,3 +1,3 @@",
        " one",
        "-two",
        "+2",
        " three",
    ]


def test_what_an_editor_changed_since_it_was_read_is_shown_too(make: MakeAgent) -> None:
    agent = make({"Tea.md": "one\ntwo\n"})
    version = agent.version("Tea")
    agent.outside("Tea.md", "one\nTWO\n")
    assert "\n-two\n+TWO" in agent.refused("write", path="Tea", content="mine", version=version)
    said = agent.another().refused("write", path="Tea", content="mine", version=version)
    assert said.endswith("Read it again, then repeat the change.")
    assert agent.text("Tea.md") == "one\nTWO\n"


@pytest.mark.parametrize(
    "path",
    [
        *("a:b", "a*b", "what?", 'say "x"', "a<b", "a>b", "a|b", "a\\b", "CON", "com1", "x/aux.txt", "e./x", "e /x"),
        *(".hidden", "a/.b", "a/../b", "a//b", "a\x00b", "a\nb", "x" * 251, "é" * 130, "", "/", "Folder/"),
    ],
)
def test_a_name_that_does_not_work_everywhere_is_invalid(make: MakeAgent, path: str) -> None:
    agent = make()
    assert agent.refused("write", path=path, content="x").startswith("invalid: ")
    assert list(agent.root.iterdir()) == []


def test_a_name_is_normalised_and_a_twin_is_refused_by_its_name(make: MakeAgent) -> None:
    agent = make({"Café.md": "", "Ideas/A.md": ""})
    assert agent.said("write", path="Cafe\u0301 2", content="").startswith("Created Café 2.md")
    twin = " is there already, the same name in another spelling. Use "
    assert agent.refused("write", path="cafe\u0301", content="") == f"exists: Café.md{twin}Café.md."
    assert agent.refused("write", path="ideas/a", content="") == f"exists: Ideas/A.md{twin}Ideas/A.md."
    assert agent.refused("write", path="IDEAS/New", content="") == f"exists: Ideas{twin}Ideas/New.md."


@pytest.mark.parametrize("folder", ["e\u0301te\u0301", "What is life?", "a: b/Q1.", "x/con"])
def test_a_folder_that_is_there_may_have_any_name(make: MakeAgent, folder: str) -> None:
    agent = make({f"{folder}/Old.md": "[[Tea]]", "Tea.md": "tea", "x/con/Cha?.md": ""})
    assert agent.said("write", path=f"{folder}/New", content="new").startswith(f"Created {folder}/New.md · ")
    assert agent.said("write", path=f"{folder}/deeper/New", content="").startswith(f"Created {folder}/deeper/New.md · ")
    assert agent.refused("write", path=f"{folder}/Why?", content="").startswith("invalid: ")
    assert agent.refused("write", path=f"{folder}/New", content="").startswith(f"exists: {folder}/New.md is there")
    assert agent.said("move", **{"from": "Tea", "to": f"{folder}/"}).startswith(f"Moved Tea.md to {folder}/Tea.md; ")
    assert agent.refused("move", **{"from": "Tea", "to": f"{folder}/Tea?"}).startswith("invalid: ")


def test_a_note_that_is_too_large_is_refused(make: MakeAgent) -> None:
    agent = make({"Tea.md": "x" * 90}, max_file_size=100)
    assert agent.refused("write", path="New", content="y" * 101).startswith("too_large: New.md would be 101 bytes; ")
    assert agent.refused("edit", path="Tea", edits=[{"append": "é" * 10}]).startswith("too_large: ")
    assert not agent.there("New.md")


# ---- edit ---------------------------------------------------------------------------------------------

EDITS: list[tuple[dict[str, Any], str]] = [
    ({"replace": "beta", "with": "2"}, LIST.replace("beta", "2")),
    ({"replace": "- ", "with": "* ", "all": True}, LIST.replace("- ", "* ")),
    ({"replace": "omega", "with": ""}, LIST.replace("omega", "")),
    ({"replace": "alpha", "with": r"\1 $& \g<0>"}, LIST.replace("alpha", r"\1 $& \g<0>")),
    ({"append": "end"}, LIST + "end"),
    ({"prepend": "top"}, "top\n" + LIST),
    ({"section": "Done", "append": "- nil"}, LIST + "- nil\n"),
    ({"section": "Open", "append": "- four"}, LIST.replace("- gamma\n", "- gamma\n- four\n")),
    ({"section": "Open", "prepend": "Now:"}, LIST.replace("## Open\n", "## Open\nNow:\n")),
    ({"section": "Open > Later", "with": "nothing"}, LIST.replace("\n\n- gamma\n", "\nnothing\n")),
    ({"section": "Open", "with": "gone"}, "# List\n\n## Open\ngone\n\n\n## Done\n\n- omega\n"),
    ({"section": "Done", "delete": True}, LIST[: LIST.index("## Done")]),
    ({"before": 1, "insert": "first"}, "first\n" + LIST),
    ({"after": 5, "insert": "- one and a half"}, LIST.replace("- alpha\n", "- alpha\n- one and a half\n")),
    ({"after": 15, "insert": "last"}, LIST + "last\n"),
    ({"replace": "alpha", "with": "1", "all": False, "delete": False}, LIST.replace("alpha", "1")),
]


@pytest.mark.parametrize(("edit", "after"), EDITS, ids=[json.dumps(edit) for edit, _ in EDITS])
def test_each_edit_changes_what_it_says_and_nothing_else(make: MakeAgent, edit: dict[str, Any], after: str) -> None:
    for end in ("\n", "\r\n"):
        agent = make({"List.md": ("\ufeff" if end != "\n" else "") + LIST.replace("\n", end)})
        answer = agent.said("edit", path="List", edits=[edit])
        assert agent.raw("List.md").decode().removeprefix("\ufeff") == after.replace("\n", end)
        assert answer.startswith("Edited List.md · version ")
        assert f"version {agent.version('List')}\n@@ " in answer or edit == {"after": 15, "insert": "last"}


def test_fifty_edits_happen_all_or_none(make: MakeAgent) -> None:
    agent = make({"A.md": "0\n"})
    agent.done("edit", path="A", edits=[{"append": f"{number}\n"} for number in range(1, 51)])
    whole = "".join(f"{number}\n" for number in range(51))
    assert agent.text("A.md") == whole
    last_fails = [*({"append": "x\n"} for _ in range(49)), {"replace": "nowhere", "with": ""}]
    assert agent.refused("edit", path="A", edits=last_fails).startswith(
        "not_found: the text to replace is not in A.md."
    )
    assert agent.text("A.md") == whole


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (
            {"replace": "- ", "with": "x"},
            "ambiguous: the text to replace is 4 times in List.md, on lines 5, 6, 10, 15. ",
        ),
        ({"replace": "nope", "with": "x"}, "not_found: the text to replace is not in List.md. Read the note and copy "),
        ({"replace": "", "with": "x"}, "invalid: the text to replace is empty. "),
        ({"section": "Opne", "append": "x"}, "not_found: no section 'Opne' in List.md. Headings here: Open, "),
        ({"before": 99, "insert": "x"}, "not_found: there is no line 99. Lines count from 1 to 15."),
        ({"replace": "alpha"}, "invalid: edit 1 has replace. Use one of {replace, with, all?}, "),
        ({"append": "x", "prepend": "y"}, "invalid: edit 1 has append, prepend. "),
        ({"section": "Open", "delete": False}, "invalid: edit 1 has section. "),
        ({"section": "^id", "append": "x"}, "invalid: edit 1 names a block, "),
        ({}, "invalid: "),
    ],
)
def test_an_edit_that_cannot_be_is_refused(make: MakeAgent, edit: dict[str, Any], said: str) -> None:
    agent = make({"List.md": LIST})
    assert agent.refused("edit", path="List", edits=[edit]).startswith(said)
    assert agent.text("List.md") == LIST


def test_an_edit_that_changes_nothing_says_so(make: MakeAgent) -> None:
    agent = make({"A.md": "x"})
    said = agent.said("edit", path="A", edits=[{"replace": "x", "with": "x"}])
    assert said == f"A.md already says that · version {agent.version('A')}\nNothing changed."
    assert agent.said("history").startswith("No changes")


SAFE: list[dict[str, Any]] = [
    {"append": "x"},
    {"prepend": "x"},
    {"section": "Done", "append": "x"},
    {"section": "Done", "prepend": "x"},
    {"section": "Done", "with": "x"},
    {"section": "Done", "delete": True},
    {"replace": "omega", "with": "x"},
]


@pytest.mark.parametrize("edit", SAFE, ids=map(json.dumps, SAFE))
def test_an_edit_of_an_old_version_is_made_where_that_is_safe(make: MakeAgent, edit: dict[str, Any]) -> None:
    agent = make({"List.md": LIST})
    version = agent.version("List")
    agent.another().done("edit", path="List", edits=[{"replace": "alpha", "with": "1"}])
    agent.done("edit", path="List", edits=[edit], version=version)
    assert "- 1\n" in agent.text("List.md")


UNSAFE: list[list[dict[str, Any]]] = [
    [{"before": 1, "insert": "x"}],
    [{"append": "x"}, {"after": 2, "insert": "x"}],
    [{"replace": "alpha", "with": "x"}],
    [{"replace": "beta", "with": "x", "all": True}],
    [{"section": "Later", "append": "x"}],
]


@pytest.mark.parametrize("edits", UNSAFE, ids=map(json.dumps, UNSAFE))
def test_other_edits_of_an_old_version_are_a_conflict(make: MakeAgent, edits: list[dict[str, Any]]) -> None:
    agent = make({"List.md": LIST})
    version = agent.version("List")
    other = [{"replace": "alpha", "with": "beta"}, {"replace": "### Later\n", "with": ""}]
    agent.another().done("edit", path="List", edits=other)
    now = agent.text("List.md")
    said = agent.refused("edit", path="List", edits=edits, version=version)
    assert said.startswith(f"conflict: List.md changed since version {version}: it is now ")
    assert "\n-- alpha\n+- beta\n" in said
    assert agent.text("List.md") == now


def test_a_text_that_an_edit_before_puts_in_may_be_replaced_in_an_old_version(make: MakeAgent) -> None:
    agent = make({"A.md": "a\n"})
    version = agent.version("A")
    agent.another().done("edit", path="A", edits=[{"append": "b\n"}])
    agent.done("edit", path="A", edits=[{"append": "TODO"}, {"replace": "TODO", "with": "c"}], version=version)
    assert agent.text("A.md") == "a\nb\nc"


def test_a_long_diff_is_cut_at_forty_lines(make: MakeAgent) -> None:
    agent = make({"A.md": ""})
    answer = agent.said("edit", path="A", edits=[{"append": "line\n" * 500}]).split("\n")
    assert len(answer) == 1 + 40 + 1 + 1
    assert re.fullmatch(r"\[\d+ more lines of diff\]", answer[-2])


def test_a_note_that_is_not_utf_8_is_never_edited(make: MakeAgent) -> None:
    agent = make({"Old.md": b"caf\xe9\n", "Link.md": "[[Old]]"})
    for tool, args in (
        ("edit", {"edits": [{"append": "x"}]}),
        ("properties", {"set": {"a": 1}}),
        ("properties", {"add_tags": ["x"]}),
    ):
        assert agent.refused(tool, path="Old", **args) == (
            "invalid: Old.md is not UTF-8 text, so it is not edited. Convert it first."
        )
    agent.done("move", **{"from": "Old", "to": "New"})
    assert agent.raw("New.md") == b"caf\xe9\n"
    assert agent.text("Link.md") == "[[New]]"


# ---- properties ---------------------------------------------------------------------------------------

FRONT = "---\n# a comment\ntitle: 'Tea'   # kept\ntags: [a, B]\ndate: 2026-11-02\n---\nbody\n"


def test_properties_alone_shows_them(make: MakeAgent) -> None:
    agent = make({"A.md": FRONT, "Bare.md": "text"})
    head, *lines = agent.said("properties", path="A").split("\n")
    assert head == f"A.md · version {agent.version('A')} · 3 properties"
    assert lines == ["title: Tea", 'tags: ["a", "B"]', "date: 2026-11-02"]
    assert agent.said("properties", path="Bare").endswith(" · 0 properties")


def test_a_tag_that_is_there_in_another_case_is_there(make: MakeAgent) -> None:
    agent = make({"A.md": FRONT})
    assert agent.said("properties", path="A", add_tags=["A", "b"]).endswith("Nothing changed.")
    agent.done("properties", path="A", remove_tags=["b"])
    assert "tags: [a]\n" in agent.text("A.md")
    agent.done("properties", path="A", add_tags=["#c"])
    assert "tags: [a, c]\n" in agent.text("A.md")


def test_broken_frontmatter_is_invalid_and_stays(make: MakeAgent) -> None:
    broken = "---\na: [1\n---\nbody\n"
    agent = make({"A.md": broken})
    for args in ({}, {"set": {"x": 1}}, {"remove": ["a"]}, {"add_tags": ["t"]}):
        assert agent.refused("properties", path="A", **args).startswith("invalid: ")
    assert agent.text("A.md") == broken


@pytest.mark.parametrize(
    "key", ["a: b", "a\nb", "", "  ", "#x", "- x", "---", "é", "a b", "null", '"', "&a", "*a", "!t"]
)
def test_a_strange_key_is_written_so_that_it_is_read_again_or_refused(make: MakeAgent, key: str) -> None:
    agent = make({"A.md": FRONT})
    answer = agent("properties", path="A", set={key: "value"})
    if answer.is_error:
        assert answer.text.startswith("invalid: ")
        assert agent.text("A.md") == FRONT
    else:
        assert f"\n{' '.join(key.split(chr(10)))}: value" in agent.said("properties", path="A")
        assert "title: Tea\n" in agent.said("properties", path="A")


@pytest.mark.parametrize("value", ["x: y", "a\nb", "", "null", "#x", "- x", "2026-11-02", [], {}, [1, "a"], {"k": [1]}])
def test_a_strange_value_is_read_again_as_it_was_set(make: MakeAgent, value: Any) -> None:
    agent = make({"A.md": FRONT})
    agent.done("properties", path="A", set={"key": value})
    shown = value if isinstance(value, str) and "\n" not in value else json.dumps(value, ensure_ascii=False)
    assert agent.said("properties", path="A").endswith(f"\nkey: {shown}")


# ---- move ---------------------------------------------------------------------------------------------


def test_moving_a_note_takes_every_link_along(make: MakeAgent) -> None:
    agent = make(
        {
            "Tea.md": "self [[#Steps]] [rel](./Water.md) [[Water]]\n# Steps\n",
            "Water.md": "---\nup: '[[Tea]]'\n---\n[[Tea]] ![[tea.md#Steps|steps]] [md](Tea.md) `[[Tea]]` [[Tea|Tea]]\n",
            "Board.canvas": '{"nodes":[{"type":"file","file":"Tea.md"}]}',
        }
    )
    answer = agent.said("move", **{"from": "Tea", "to": "Drinks/Green tea"}).split("\n")
    assert answer[0] == "Moved Tea.md to Drinks/Green tea.md; 7 links in 3 files followed."
    assert answer[1:-1] == ["Board.canvas: 1 link", "Drinks/Green tea.md: 1 link", "Water.md: 5 links"]
    assert agent.text("Water.md") == (
        "---\nup: '[[Green tea]]'\n---\n"
        "[[Green tea]] ![[Green tea.md#Steps|steps]] [md](Green%20tea.md) `[[Tea]]` [[Green tea|Green tea]]\n"
    )
    assert agent.text("Drinks/Green tea.md") == "self [[#Steps]] [rel](../Water.md) [[Water]]\n# Steps\n"
    assert json.loads(agent.text("Board.canvas"))["nodes"][0]["file"] == "Drinks/Green tea.md"


def test_a_folder_and_an_attachment_move_too(make: MakeAgent) -> None:
    agent = make({"a/b/C.md": "[[D]] ![[p.png]]", "a/D.md": "[[a/b/C]]", "p.png": b"1", "E.md": "[x](./a/D.md) [[D]]"})
    assert agent.said("move", **{"from": "a", "to": "old/"}).startswith("Moved a to old/a; ")
    assert agent.text("E.md") == "[x](./old/a/D.md) [[D]]"
    assert " 0 broken" not in agent.said("links", path="D") and "broken" not in agent.said("links", path="old/a/D")
    assert not agent.there("a")
    assert agent.said("move", **{"from": "p.png", "to": "pics/q"}).startswith("Moved p.png to pics/q.png; 1 link ")
    assert agent.text("old/a/b/C.md") == "[[D]] ![[q.png]]"


def test_a_folder_is_meant_by_its_slash_where_a_note_bears_its_name(make: MakeAgent) -> None:
    agent = make({"a.md": "note", "a/b.md": "inside"})
    agent.done("move", **{"from": "a/", "to": "z/"})
    assert agent.text("z/a/b.md") == "inside"
    agent.done("move", **{"from": "a", "to": "z/"})
    assert agent.text("z/a.md") == "note"
    agent.done("move", **{"from": "z/a", "to": "/"})
    assert agent.text("a.md") == "note"


def test_a_bare_name_becomes_the_path_where_it_would_be_ambiguous(make: MakeAgent) -> None:
    agent = make({"x/Tea.md": "", "y/Cha.md": "", "z/A.md": "[[Tea]] [[Cha]]"})
    agent.done("move", **{"from": "Tea", "to": "x/Cha"})
    assert agent.text("z/A.md") == "[[x/Cha]] [[y/Cha]]" or agent.text("z/A.md") == "[[x/Cha|Tea]] [[y/Cha]]"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("Tea", "Cha", "exists: Cha.md is there already. "),
        ("Tea", "cha", "exists: Cha.md is there already, the same name in another spelling. "),
        ("Tea", "A:B", "invalid: "),
        ("Tea", "../x", "invalid: "),
        ("Tea", ".x/", "invalid: "),
        ("Tea", "Tea", "invalid: Tea.md is there already. "),
        ("Teapot", "x", "not_found: there is no Teapot. Nearest: Tea.md"),
        ("f", "f/g", "invalid: "),
        ("f/", "f/", "invalid: "),
        ("nothing/", "x", "not_found: there is no folder nothing. "),
        ("/", "x", "invalid: "),
    ],
)
def test_a_move_that_cannot_be_is_refused(make: MakeAgent, old: str, new: str, said: str) -> None:
    agent = make({"Tea.md": "", "Cha.md": "", "f/x.md": ""})
    assert agent.refused("move", **{"from": old, "to": new}).startswith(said)
    assert agent.there("Tea.md")


def test_a_new_name_is_normalised_in_a_move_too(make: MakeAgent) -> None:
    agent = make({"Tea.md": "", "A.md": "[[Tea]]", "Café/x.md": ""})
    agent.done("move", **{"from": "Tea", "to": "Cafe\u0301/The\u0301"})
    assert agent.there("Café/Thé.md")
    assert agent.text("A.md") == "[[Thé]]"


def test_names_that_move_along_are_not_judged(make: MakeAgent) -> None:
    agent = make(
        {"Box/What?.md": "[[Cafe\u0301]]", "Box/a: b/Cafe\u0301.md": "", "Who?.md": "", "A.md": "[[Box/What?]]"}
    )
    agent.done("move", **{"from": "Box", "to": "Crate/Inner"})
    assert agent.there("Crate/Inner/a: b/Cafe\u0301.md")
    assert agent.text("A.md") == "[[Crate/Inner/What?]]"
    agent.done("move", **{"from": "Who?", "to": "Crate/"})
    assert agent.there("Crate/Who?.md")
    assert agent.refused("move", **{"from": "Crate", "to": "What?"}).startswith("invalid: ")
    assert agent.refused("move", **{"from": "Crate/Inner/What?", "to": "Why?"}).startswith("invalid: ")
    assert agent.refused("move", **{"from": "Crate/Inner/What?", "to": "Why?/"}).startswith("invalid: ")


def test_a_tag_is_renamed_through_move_with_those_below_it(make: MakeAgent) -> None:
    agent = make({"A.md": "---\ntags: [old]\n---\n#Old/sub #older\n", "B.md": "#old #new\n", "C.md": "old"})
    asked = {"from": "#old", "to": "#new"}
    planned = agent.said("move", **asked, dry_run=True)
    assert planned == "Would rename #old to #new; 3 tags in 2 files.\nA.md: 2 tags\nB.md: 1 tag"
    assert agent.text("B.md") == "#old #new\n"
    answer = agent.said("move", **asked).split("\n")
    assert answer[:-1] == planned.replace("Would rename", "Renamed").split("\n")
    assert agent.text("A.md") == "---\ntags: [new]\n---\n#new/sub #older\n"
    assert agent.text("B.md") == "#new #new\n"
    assert agent.said("history").count("\n") == 1
    agent.said("undo", change=answer[-1].split('"')[1])
    assert agent.text("A.md") == "---\ntags: [old]\n---\n#Old/sub #older\n" and agent.text("B.md") == "#old #new\n"


def test_a_heading_is_renamed_through_move_with_the_links_to_it(make: MakeAgent) -> None:
    text = "# Tea\n## Old words\n[[#Old words]]\n"
    for to in ("New words", "#New words", "Tea#New words"):
        agent = make({"Tea.md": text, "A.md": "[[Tea#Old words|x]] [y](Tea.md#Old%20words)\n[[Tea]]\n"})
        asked = {"from": "Tea#Old words", "to": to}
        planned = agent.said("move", **asked, dry_run=True)
        assert agent.text("Tea.md") == text
        answer = agent.said("move", **asked).split("\n")
        assert answer[:-1] == planned.replace("Would rename", "Renamed").split("\n")
        assert answer[0] == "Renamed the heading “Old words” of Tea.md to “New words”; 3 links in 2 files."
        assert answer[1:3] == ["A.md: 2 links", "Tea.md: 1 link"]
        assert agent.text("Tea.md") == "# Tea\n## New words\n[[#New words]]\n"
        assert agent.text("A.md") == "[[Tea#New words|x]] [y](Tea.md#New%20words)\n[[Tea]]\n"
        agent.said("undo", change=answer[-1].split('"')[1])
        assert agent.text("Tea.md") == text


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("#tee", "#x", "not_found: no note has the tag #tee. Nearest: #tea"),
        ("#tea", "#", "invalid: "),
        ("#tea", "#a b", "invalid: "),
        ("#tea", "#tea", "invalid: "),
        ("#", "#x", "not_found: "),
        ("Tea#Watr", "x", "not_found: no section 'Watr' in Tea.md. Headings here: Water"),
        ("Tea#Water", "", "invalid: "),
        ("Tea#Water", "two\nlines", "invalid: "),
        ("Teapot#Water", "x", "not_found: there is no Teapot. Nearest: Tea.md"),
        ("#" * 5000, "x", "invalid: "),
        ("Tea#" + "x" * 5000, "x", "invalid: "),
    ],
)
def test_a_tag_or_heading_that_is_not_there_names_near_ones(make: MakeAgent, old: str, new: str, said: str) -> None:
    agent = make({"Tea.md": "# Water\n#tea #cup\n"})
    assert agent.refused("move", **{"from": old, "to": new}).startswith(said)
    assert agent.text("Tea.md") == "# Water\n#tea #cup\n"


def test_a_file_with_a_number_sign_in_its_name_still_moves(make: MakeAgent) -> None:
    agent = make({"C#.md": "# C# basics\n", "#old.md": "x", "A.md": "#old"})
    agent.done("move", **{"from": "C#", "to": "D#"})
    assert agent.there("D#.md")
    agent.done("move", **{"from": "#old.md", "to": "new"})
    assert agent.there("new.md") and agent.text("A.md") == "#old"


def test_a_new_heading_may_hold_a_number_sign(make: MakeAgent) -> None:
    agent = make({"C.md": "# Intro\n"})
    agent.done("move", **{"from": "C#Intro", "to": "C# basics"})
    assert agent.text("C.md") == "# C# basics\n"


def test_tags_in_hidden_notes_stay_and_a_tag_only_they_have_is_not_there(make: MakeAgent) -> None:
    files = {"Private/P.md": "#old #secret", "A.md": "#old", "B.md": "[[A#H]]"}
    agent = make(files, hide=("Private/**",))
    assert "1 tag in 1 file" in agent.said("move", **{"from": "#old", "to": "#new"})
    assert agent.text("Private/P.md") == "#old #secret"
    there = agent.refused("move", **{"from": "#secret", "to": "#x"})
    assert there.replace("secret", "no-such") == agent.refused("move", **{"from": "#no-such", "to": "#x"})


def test_a_tag_in_a_note_that_may_not_be_written_is_not_renamed_at_all(make: MakeAgent) -> None:
    agent = make({"In/A.md": "#old\n# H\n", "Out/B.md": "#old [[A#H]]\n# H\n"}, write_under=("In/**",))
    assert agent.refused("move", **{"from": "#old", "to": "#new"}).startswith("forbidden: writing to Out/B.md ")
    assert agent.text("In/A.md") == "#old\n# H\n"
    assert agent.refused("move", **{"from": "B#H", "to": "x"}).startswith("forbidden: ")
    agent.done("move", **{"from": "A#H", "to": "x"})  # links follow wherever they stand
    assert agent.text("Out/B.md") == "#old [[A#x]]\n# H\n"


def test_a_tag_of_several_workspaces_is_named_with_its_workspace(make: MakeAgent) -> None:
    agent = make(Work={"A.md": "#old #only"}, Home={"B.md": "#old"})
    asked = {"from": "#old", "to": "#new"}
    assert agent.refused("move", **asked).startswith("ambiguous: #old is a tag in 2 workspaces: Work/#old, Home/#old. ")
    assert "Work/A.md: 1 tag" in agent.said("move", **{"from": "Work/#old", "to": "Work/#new"})
    assert agent.text("A.md") == "#new #only"
    assert "Work/A.md: 1 tag" in agent.said("move", **{"from": "#only", "to": "#one"})
    assert "Work/#one" in agent.refused("move", **{"from": "#onn", "to": "#x"})


def test_only_the_case_of_a_name_may_change(make: MakeAgent) -> None:
    agent = make({"tea.md": "", "A.md": "[[tea]]"})
    agent.done("move", **{"from": "tea", "to": "Tea"})
    assert agent.text("A.md") == "[[Tea]]"


# ---- delete -------------------------------------------------------------------------------------------


def test_a_deleted_note_is_in_the_trash_and_those_that_link_to_it_are_named(make: MakeAgent) -> None:
    agent = make({"Tea.md": "1", "A.md": "[[Tea]]", "B.md": "[[tea|x]]", "x/Tea 2.md": "2"})
    answer = agent.said("delete", path="Tea").split("\n")
    assert answer[:-1] == ["Deleted Tea.md (to .trash/Tea.md); 2 notes link to it:", "A.md", "B.md"]
    assert agent.text(".trash/Tea.md") == "1"
    assert not agent.there("Tea.md")
    assert "[[Tea]]" in agent.text("A.md")
    agent.done("write", path="Tea", content="again")
    assert agent.said("delete", path="Tea").startswith("Deleted Tea.md (to .trash/Tea 1.md); 2 notes link to it:")
    assert agent.text(".trash/Tea.md") == "1"
    assert agent.said("delete", path="Tea 2").startswith(
        "Deleted x/Tea 2.md (to .trash/Tea 2.md); no note links to it."
    )


def test_a_folder_is_not_deleted(make: MakeAgent) -> None:
    agent = make({"f/A.md": "x"})
    assert agent.refused("delete", path="f").startswith("invalid: f is a folder; notes and attachments are deleted. ")
    assert agent.refused("delete", path="g").startswith("not_found: there is no g. ")


# ---- daily --------------------------------------------------------------------------------------------

NOON = 1793620800.0  # 2026-11-02T12:00:00Z


def test_appending_makes_the_note_and_the_section(make: MakeAgent) -> None:
    agent = make({"A.md": ""}, clock=lambda: NOON)
    answer = agent.said("daily", append="- tea", section="Log")
    assert answer.startswith("Created daily/2026-11-02.md · version ")
    assert agent.text("daily/2026-11-02.md") == "## Log\n- tea\n"
    agent.done("daily", append="- more", section="log")
    agent.done("daily", append="- new", section="Ideas")
    agent.done("daily", append="last", date="2026-11-02")
    assert agent.text("daily/2026-11-02.md") == "## Log\n- tea\n- more\n\n## Ideas\n- new\nlast"
    assert agent.said("daily", section="Ideas").partition("\n")[2] == "## Ideas\n- new\nlast"
    assert agent.said("daily", date="2026-11-02").startswith("daily/2026-11-02.md · version ")


def test_today_is_in_the_timezone_of_the_workspace(make: MakeAgent) -> None:
    agent = make({"A.md": ""}, timezone="Pacific/Auckland", clock=lambda: NOON)
    assert "(daily/2026-11-03.md)" in agent.refused("daily")


def test_folder_format_and_template_are_those_of_obsidian(make: MakeAgent) -> None:
    settings = {"folder": "Journal/Days", "format": "YYYY/MM-DD dddd", "template": "Templates/Day"}
    agent = make(
        {
            ".obsidian/daily-notes.json": json.dumps(settings),
            "Templates/Day.md": "# {{title}}\n{{date}} {{time}} {{date:dddd}}\n\n## Log\n\n## Notes\n",
        },
        clock=lambda: NOON,
    )
    agent.done("daily", append="- tea", section="Log")
    assert agent.text("Journal/Days/2026/11-02 Monday.md") == (
        "# 11-02 Monday\n2026-11-02 12:00 Monday\n\n## Log\n- tea\n\n## Notes\n"
    )
    agent.done("daily", append="x", date="2024-02-29")
    assert agent.text("Journal/Days/2024/02-29 Thursday.md").startswith("# 02-29 Thursday\n2024-02-29 12:00 Thursday\n")


def test_a_folder_that_is_there_in_another_case_is_used(make: MakeAgent) -> None:
    agent = make({"Daily/2026-11-01.md": "x"}, clock=lambda: NOON)
    assert agent.said("daily", append="x").startswith("Created Daily/2026-11-02.md ")


@pytest.mark.parametrize("date", ["2026-11-31", "11/02/2026", "", "20261102", "Today", "2026-11-02 ", "x" * 10_000])
def test_a_date_that_is_none_is_invalid(make: MakeAgent, date: str) -> None:
    said = make({"A.md": ""}).refused("daily", date=date, append="x")
    assert said.startswith("invalid: ")
    assert said.endswith(" is not a date. Write it as YYYY-MM-DD.")


@pytest.mark.parametrize(
    "settings", ["", "[]", "{", '{"folder": "../out"}', '{"folder": ".git"}', '{"template": "../../etc/passwd"}']
)
def test_strange_settings_break_nothing(make: MakeAgent, settings: str) -> None:
    agent = make({".obsidian/daily-notes.json": settings}, clock=lambda: NOON)
    answer = agent("daily", append="x")
    if answer.is_error:
        assert answer.text.startswith(("invalid: ", "forbidden: "))
    assert {path.name for path in agent.root.rglob("*.md")} <= {"2026-11-02.md"}
    assert not (agent.root.parent / "out").exists()


@pytest.mark.parametrize("path", ["Tea ", " Tea", "Tea\u00a0", "Tea .md", "Drinks/Tea ", "Drinks /Tea"])
def test_a_new_name_has_no_blanks_around_it(make: MakeAgent, path: str) -> None:
    agent = make({"Tea.md": "mine\n", "Drinks/Tea.md": "mine too\n"})
    version = agent.version("Tea")
    assert agent.refused("write", path=path, content="x").startswith("invalid: ")
    assert agent.refused("write", path=path, content="x", version=version).split(":")[0] in ("invalid", "conflict")
    assert [(agent.root / name).read_text() for name in ("Tea.md", "Drinks/Tea.md")] == ["mine\n", "mine too\n"]
    assert sorted(file.name for file in agent.root.rglob("*")) == ["Drinks", "Tea.md", "Tea.md"]


@pytest.mark.parametrize("depth", [440, 600, 1_900])
def test_a_path_of_very_many_folders_is_answered(make: MakeAgent, depth: int) -> None:
    agent, path = make({"A.md": "a\n"}), "a/" * depth + "b\u0301"
    if depth < 450:
        agent.done("write", path=path, content="deep\n")
    else:
        assert "longer than 900 bytes" in agent.refused("write", path=path, content="deep\n")
        assert agent.refused("move", **{"from": "A", "to": path}).startswith("invalid")
