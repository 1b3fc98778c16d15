"""`notes`, changing: write, edit, properties, move, delete, daily (contracts G)."""

import json
import re
from typing import Any

import pytest
from tests.surfaces.notes_desk import VERSION, MakeDesk

LIST = "# List\n\n## Open\n\n- alpha\n- beta\n\n### Later\n\n- gamma\n\n\n## Done\n\n- omega\n"


# ---- write --------------------------------------------------------------------------------------------


def test_a_new_note_is_made_with_its_folders(make: MakeDesk) -> None:
    desk = make()
    answer = desk.said("write", path="Ideas/Tea", content="# Tea\r\n")
    assert re.fullmatch(r'Created Ideas/Tea\.md · version [0-9a-f]{12}\nUndo: undo\(change="\w{6,}"\)', answer)
    assert desk.raw("Ideas/Tea.md") == b"# Tea\r\n"
    assert desk.version("Ideas/Tea") == VERSION.findall(answer)[0]


def test_with_its_version_it_is_overwritten(make: MakeDesk) -> None:
    desk = make({"Tea.md": "old"})
    answer = desk.said("write", path="tea.md", content="new", version=desk.version("Tea"))
    assert answer.startswith("Overwrote Tea.md · version ")
    assert desk.text("Tea.md") == "new"
    again = desk.said("write", path="Tea", content="new", version=VERSION.findall(answer)[0])
    assert again.endswith("\nNothing changed.")


def test_an_old_version_is_a_conflict_that_shows_what_changed(make: MakeDesk) -> None:
    desk = make({"Tea.md": "one\ntwo\nthree\n"})
    version = desk.version("Tea")
    desk.another().done("edit", path="Tea", edits=[{"replace": "two", "with": "2"}])
    said = desk.refused("write", path="Tea", content="mine", version=version)
    assert said.split("\n") == [
        f"conflict: Tea.md changed since version {version}: it is now {desk.version('Tea')}."
        " Read it again, then repeat the change. What changed:",
        "@@ -1,3 +1,3 @@",
        " one",
        "-two",
        "+2",
        " three",
    ]


def test_what_an_editor_changed_since_it_was_read_is_shown_too(make: MakeDesk) -> None:
    desk = make({"Tea.md": "one\ntwo\n"})
    version = desk.version("Tea")
    desk.outside("Tea.md", "one\nTWO\n")
    assert "\n-two\n+TWO" in desk.refused("write", path="Tea", content="mine", version=version)
    said = desk.another().refused("write", path="Tea", content="mine", version=version)
    assert said.endswith("Read it again, then repeat the change.")
    assert desk.text("Tea.md") == "one\nTWO\n"


@pytest.mark.parametrize(
    "path",
    [
        *("a:b", "a*b", "what?", 'say "x"', "a<b", "a>b", "a|b", "a\\b", "CON", "com1", "x/aux.txt", "e./x", "e /x"),
        *(".hidden", "a/.b", "a/../b", "a//b", "a\x00b", "a\nb", "x" * 251, "é" * 130, "", "/", "Folder/"),
    ],
)
def test_a_name_that_does_not_work_everywhere_is_invalid(make: MakeDesk, path: str) -> None:
    desk = make()
    assert desk.refused("write", path=path, content="x").startswith("invalid: ")
    assert list(desk.root.iterdir()) == []


def test_a_name_is_normalised_and_a_twin_is_refused_by_its_name(make: MakeDesk) -> None:
    desk = make({"Café.md": "", "Ideas/A.md": ""})
    assert desk.said("write", path="Cafe\u0301 2", content="").startswith("Created Café 2.md")
    twin = " is there already, the same name in another spelling. Use "
    assert desk.refused("write", path="cafe\u0301", content="") == f"exists: Café.md{twin}Café.md."
    assert desk.refused("write", path="ideas/a", content="") == f"exists: Ideas/A.md{twin}Ideas/A.md."
    assert desk.refused("write", path="IDEAS/New", content="") == f"exists: Ideas{twin}Ideas/New.md."


@pytest.mark.parametrize("folder", ["e\u0301te\u0301", "What is life?", "a: b/Q1.", "x/con"])
def test_a_folder_that_is_there_may_have_any_name(make: MakeDesk, folder: str) -> None:
    desk = make({f"{folder}/Old.md": "[[Tea]]", "Tea.md": "tea", "x/con/Cha?.md": ""})
    assert desk.said("write", path=f"{folder}/New", content="new").startswith(f"Created {folder}/New.md · ")
    assert desk.said("write", path=f"{folder}/deeper/New", content="").startswith(f"Created {folder}/deeper/New.md · ")
    assert desk.refused("write", path=f"{folder}/Why?", content="").startswith("invalid: ")
    assert desk.refused("write", path=f"{folder}/New", content="").startswith(f"exists: {folder}/New.md is there")
    assert desk.said("move", **{"from": "Tea", "to": f"{folder}/"}).startswith(f"Moved Tea.md to {folder}/Tea.md; ")
    assert desk.refused("move", **{"from": "Tea", "to": f"{folder}/Tea?"}).startswith("invalid: ")


def test_a_note_that_is_too_large_is_refused(make: MakeDesk) -> None:
    desk = make({"Tea.md": "x" * 90}, max_file_size=100)
    assert desk.refused("write", path="New", content="y" * 101).startswith("too_large: New.md would be 101 bytes; ")
    assert desk.refused("edit", path="Tea", edits=[{"append": "é" * 10}]).startswith("too_large: ")
    assert not desk.there("New.md")


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
def test_each_edit_changes_what_it_says_and_nothing_else(make: MakeDesk, edit: dict[str, Any], after: str) -> None:
    for end in ("\n", "\r\n"):
        desk = make({"List.md": ("\ufeff" if end != "\n" else "") + LIST.replace("\n", end)})
        answer = desk.said("edit", path="List", edits=[edit])
        assert desk.raw("List.md").decode().removeprefix("\ufeff") == after.replace("\n", end)
        assert answer.startswith("Edited List.md · version ")
        assert f"version {desk.version('List')}\n@@ " in answer or edit == {"after": 15, "insert": "last"}


def test_fifty_edits_happen_all_or_none(make: MakeDesk) -> None:
    desk = make({"A.md": "0\n"})
    desk.done("edit", path="A", edits=[{"append": f"{number}\n"} for number in range(1, 51)])
    whole = "".join(f"{number}\n" for number in range(51))
    assert desk.text("A.md") == whole
    last_fails = [*({"append": "x\n"} for _ in range(49)), {"replace": "nowhere", "with": ""}]
    assert desk.refused("edit", path="A", edits=last_fails).startswith("not_found: the text to replace is not in A.md.")
    assert desk.text("A.md") == whole


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
def test_an_edit_that_cannot_be_is_refused(make: MakeDesk, edit: dict[str, Any], said: str) -> None:
    desk = make({"List.md": LIST})
    assert desk.refused("edit", path="List", edits=[edit]).startswith(said)
    assert desk.text("List.md") == LIST


def test_an_edit_that_changes_nothing_says_so(make: MakeDesk) -> None:
    desk = make({"A.md": "x"})
    said = desk.said("edit", path="A", edits=[{"replace": "x", "with": "x"}])
    assert said == f"A.md already says that · version {desk.version('A')}\nNothing changed."
    assert desk.said("history").startswith("No changes")


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
def test_an_edit_of_an_old_version_is_made_where_that_is_safe(make: MakeDesk, edit: dict[str, Any]) -> None:
    desk = make({"List.md": LIST})
    version = desk.version("List")
    desk.another().done("edit", path="List", edits=[{"replace": "alpha", "with": "1"}])
    desk.done("edit", path="List", edits=[edit], version=version)
    assert "- 1\n" in desk.text("List.md")


UNSAFE: list[list[dict[str, Any]]] = [
    [{"before": 1, "insert": "x"}],
    [{"append": "x"}, {"after": 2, "insert": "x"}],
    [{"replace": "alpha", "with": "x"}],
    [{"replace": "beta", "with": "x", "all": True}],
    [{"section": "Later", "append": "x"}],
]


@pytest.mark.parametrize("edits", UNSAFE, ids=map(json.dumps, UNSAFE))
def test_other_edits_of_an_old_version_are_a_conflict(make: MakeDesk, edits: list[dict[str, Any]]) -> None:
    desk = make({"List.md": LIST})
    version = desk.version("List")
    other = [{"replace": "alpha", "with": "beta"}, {"replace": "### Later\n", "with": ""}]
    desk.another().done("edit", path="List", edits=other)
    now = desk.text("List.md")
    said = desk.refused("edit", path="List", edits=edits, version=version)
    assert said.startswith(f"conflict: List.md changed since version {version}: it is now ")
    assert "\n-- alpha\n+- beta\n" in said
    assert desk.text("List.md") == now


def test_a_text_that_an_edit_before_puts_in_may_be_replaced_in_an_old_version(make: MakeDesk) -> None:
    desk = make({"A.md": "a\n"})
    version = desk.version("A")
    desk.another().done("edit", path="A", edits=[{"append": "b\n"}])
    desk.done("edit", path="A", edits=[{"append": "TODO"}, {"replace": "TODO", "with": "c"}], version=version)
    assert desk.text("A.md") == "a\nb\nc"


def test_a_long_diff_is_cut_at_forty_lines(make: MakeDesk) -> None:
    desk = make({"A.md": ""})
    answer = desk.said("edit", path="A", edits=[{"append": "line\n" * 500}]).split("\n")
    assert len(answer) == 1 + 40 + 1 + 1
    assert re.fullmatch(r"\[\d+ more lines of diff\]", answer[-2])


def test_a_note_that_is_not_utf_8_is_never_edited(make: MakeDesk) -> None:
    desk = make({"Old.md": b"caf\xe9\n", "Link.md": "[[Old]]"})
    for tool, args in (
        ("edit", {"edits": [{"append": "x"}]}),
        ("properties", {"set": {"a": 1}}),
        ("properties", {"add_tags": ["x"]}),
    ):
        assert desk.refused(tool, path="Old", **args) == (
            "invalid: Old.md is not UTF-8 text, so it is not edited. Convert it first."
        )
    desk.done("move", **{"from": "Old", "to": "New"})
    assert desk.raw("New.md") == b"caf\xe9\n"
    assert desk.text("Link.md") == "[[New]]"


# ---- properties ---------------------------------------------------------------------------------------

FRONT = "---\n# a comment\ntitle: 'Tea'   # kept\ntags: [a, B]\ndate: 2026-11-02\n---\nbody\n"


def test_properties_alone_shows_them(make: MakeDesk) -> None:
    desk = make({"A.md": FRONT, "Bare.md": "text"})
    head, *lines = desk.said("properties", path="A").split("\n")
    assert head == f"A.md · version {desk.version('A')} · 3 properties"
    assert lines == ["title: Tea", 'tags: ["a", "B"]', "date: 2026-11-02"]
    assert desk.said("properties", path="Bare").endswith(" · 0 properties")


def test_a_tag_that_is_there_in_another_case_is_there(make: MakeDesk) -> None:
    desk = make({"A.md": FRONT})
    assert desk.said("properties", path="A", add_tags=["A", "b"]).endswith("Nothing changed.")
    desk.done("properties", path="A", remove_tags=["b"])
    assert "tags: [a]\n" in desk.text("A.md")


def test_broken_frontmatter_is_invalid_and_stays(make: MakeDesk) -> None:
    broken = "---\na: [1\n---\nbody\n"
    desk = make({"A.md": broken})
    for args in ({}, {"set": {"x": 1}}, {"remove": ["a"]}, {"add_tags": ["t"]}):
        assert desk.refused("properties", path="A", **args).startswith("invalid: ")
    assert desk.text("A.md") == broken


@pytest.mark.parametrize(
    "key", ["a: b", "a\nb", "", "  ", "#x", "- x", "---", "é", "a b", "null", '"', "&a", "*a", "!t"]
)
def test_a_strange_key_is_written_so_that_it_is_read_again_or_refused(make: MakeDesk, key: str) -> None:
    desk = make({"A.md": FRONT})
    answer = desk("properties", path="A", set={key: "value"})
    if answer.is_error:
        assert answer.text.startswith("invalid: ")
        assert desk.text("A.md") == FRONT
    else:
        assert f"\n{' '.join(key.split(chr(10)))}: value" in desk.said("properties", path="A")
        assert "title: Tea\n" in desk.said("properties", path="A")


@pytest.mark.parametrize("value", ["x: y", "a\nb", "", "null", "#x", "- x", "2026-11-02", [], {}, [1, "a"], {"k": [1]}])
def test_a_strange_value_is_read_again_as_it_was_set(make: MakeDesk, value: Any) -> None:
    desk = make({"A.md": FRONT})
    desk.done("properties", path="A", set={"key": value})
    shown = value if isinstance(value, str) and "\n" not in value else json.dumps(value, ensure_ascii=False)
    assert desk.said("properties", path="A").endswith(f"\nkey: {shown}")


# ---- move ---------------------------------------------------------------------------------------------


def test_moving_a_note_takes_every_link_along(make: MakeDesk) -> None:
    desk = make(
        {
            "Tea.md": "self [[#Steps]] [rel](./Water.md) [[Water]]\n# Steps\n",
            "Water.md": "---\nup: '[[Tea]]'\n---\n[[Tea]] ![[tea.md#Steps|steps]] [md](Tea.md) `[[Tea]]` [[Tea|Tea]]\n",
            "Board.canvas": '{"nodes":[{"type":"file","file":"Tea.md"}]}',
        }
    )
    answer = desk.said("move", **{"from": "Tea", "to": "Drinks/Green tea"}).split("\n")
    assert answer[0] == "Moved Tea.md to Drinks/Green tea.md; 7 links in 3 files followed."
    assert answer[1:-1] == ["Board.canvas: 1 link", "Drinks/Green tea.md: 1 link", "Water.md: 5 links"]
    assert desk.text("Water.md") == (
        "---\nup: '[[Green tea]]'\n---\n"
        "[[Green tea]] ![[Green tea.md#Steps|steps]] [md](Green%20tea.md) `[[Tea]]` [[Green tea|Green tea]]\n"
    )
    assert desk.text("Drinks/Green tea.md") == "self [[#Steps]] [rel](../Water.md) [[Water]]\n# Steps\n"
    assert json.loads(desk.text("Board.canvas"))["nodes"][0]["file"] == "Drinks/Green tea.md"


def test_a_folder_and_an_attachment_move_too(make: MakeDesk) -> None:
    desk = make({"a/b/C.md": "[[D]] ![[p.png]]", "a/D.md": "[[a/b/C]]", "p.png": b"1", "E.md": "[x](./a/D.md) [[D]]"})
    assert desk.said("move", **{"from": "a", "to": "old/"}).startswith("Moved a to old/a; ")
    assert desk.text("E.md") == "[x](./old/a/D.md) [[D]]"
    assert " 0 broken" not in desk.said("links", path="D") and "broken" not in desk.said("links", path="old/a/D")
    assert not desk.there("a")
    assert desk.said("move", **{"from": "p.png", "to": "pics/q"}).startswith("Moved p.png to pics/q.png; 1 link ")
    assert desk.text("old/a/b/C.md") == "[[D]] ![[q.png]]"


def test_a_folder_is_meant_by_its_slash_where_a_note_bears_its_name(make: MakeDesk) -> None:
    desk = make({"a.md": "note", "a/b.md": "inside"})
    desk.done("move", **{"from": "a/", "to": "z/"})
    assert desk.text("z/a/b.md") == "inside"
    desk.done("move", **{"from": "a", "to": "z/"})
    assert desk.text("z/a.md") == "note"
    desk.done("move", **{"from": "z/a", "to": "/"})
    assert desk.text("a.md") == "note"


def test_a_bare_name_becomes_the_path_where_it_would_be_ambiguous(make: MakeDesk) -> None:
    desk = make({"x/Tea.md": "", "y/Cha.md": "", "z/A.md": "[[Tea]] [[Cha]]"})
    desk.done("move", **{"from": "Tea", "to": "x/Cha"})
    assert desk.text("z/A.md") == "[[x/Cha]] [[y/Cha]]" or desk.text("z/A.md") == "[[x/Cha|Tea]] [[y/Cha]]"


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
def test_a_move_that_cannot_be_is_refused(make: MakeDesk, old: str, new: str, said: str) -> None:
    desk = make({"Tea.md": "", "Cha.md": "", "f/x.md": ""})
    assert desk.refused("move", **{"from": old, "to": new}).startswith(said)
    assert desk.there("Tea.md")


def test_a_new_name_is_normalised_in_a_move_too(make: MakeDesk) -> None:
    desk = make({"Tea.md": "", "A.md": "[[Tea]]", "Café/x.md": ""})
    desk.done("move", **{"from": "Tea", "to": "Cafe\u0301/The\u0301"})
    assert desk.there("Café/Thé.md")
    assert desk.text("A.md") == "[[Thé]]"


def test_names_that_move_along_are_not_judged(make: MakeDesk) -> None:
    desk = make(
        {"Box/What?.md": "[[Cafe\u0301]]", "Box/a: b/Cafe\u0301.md": "", "Who?.md": "", "A.md": "[[Box/What?]]"}
    )
    desk.done("move", **{"from": "Box", "to": "Crate/Inner"})
    assert desk.there("Crate/Inner/a: b/Cafe\u0301.md")
    assert desk.text("A.md") == "[[Crate/Inner/What?]]"
    desk.done("move", **{"from": "Who?", "to": "Crate/"})
    assert desk.there("Crate/Who?.md")
    assert desk.refused("move", **{"from": "Crate", "to": "What?"}).startswith("invalid: ")
    assert desk.refused("move", **{"from": "Crate/Inner/What?", "to": "Why?"}).startswith("invalid: ")
    assert desk.refused("move", **{"from": "Crate/Inner/What?", "to": "Why?/"}).startswith("invalid: ")


def test_a_tag_is_renamed_through_move_with_those_below_it(make: MakeDesk) -> None:
    desk = make({"A.md": "---\ntags: [old]\n---\n#Old/sub #older\n", "B.md": "#old #new\n", "C.md": "old"})
    asked = {"from": "#old", "to": "#new"}
    planned = desk.said("move", **asked, dry_run=True)
    assert planned == "Would rename #old to #new; 3 tags in 2 files.\nA.md: 2 tags\nB.md: 1 tag"
    assert desk.text("B.md") == "#old #new\n"
    answer = desk.said("move", **asked).split("\n")
    assert answer[:-1] == planned.replace("Would rename", "Renamed").split("\n")
    assert desk.text("A.md") == "---\ntags: [new]\n---\n#new/sub #older\n"
    assert desk.text("B.md") == "#new #new\n"
    assert desk.said("history").count("\n") == 1
    desk.said("undo", change=answer[-1].split('"')[1])
    assert desk.text("A.md") == "---\ntags: [old]\n---\n#Old/sub #older\n" and desk.text("B.md") == "#old #new\n"


def test_a_heading_is_renamed_through_move_with_the_links_to_it(make: MakeDesk) -> None:
    text = "# Tea\n## Old words\n[[#Old words]]\n"
    for to in ("New words", "#New words", "Tea#New words"):
        desk = make({"Tea.md": text, "A.md": "[[Tea#Old words|x]] [y](Tea.md#Old%20words)\n[[Tea]]\n"})
        asked = {"from": "Tea#Old words", "to": to}
        planned = desk.said("move", **asked, dry_run=True)
        assert desk.text("Tea.md") == text
        answer = desk.said("move", **asked).split("\n")
        assert answer[:-1] == planned.replace("Would rename", "Renamed").split("\n")
        assert answer[0] == "Renamed the heading “Old words” of Tea.md to “New words”; 3 links in 2 files."
        assert answer[1:3] == ["A.md: 2 links", "Tea.md: 1 link"]
        assert desk.text("Tea.md") == "# Tea\n## New words\n[[#New words]]\n"
        assert desk.text("A.md") == "[[Tea#New words|x]] [y](Tea.md#New%20words)\n[[Tea]]\n"
        desk.said("undo", change=answer[-1].split('"')[1])
        assert desk.text("Tea.md") == text


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
def test_a_tag_or_heading_that_is_not_there_names_near_ones(make: MakeDesk, old: str, new: str, said: str) -> None:
    desk = make({"Tea.md": "# Water\n#tea #cup\n"})
    assert desk.refused("move", **{"from": old, "to": new}).startswith(said)
    assert desk.text("Tea.md") == "# Water\n#tea #cup\n"


def test_a_file_with_a_number_sign_in_its_name_still_moves(make: MakeDesk) -> None:
    desk = make({"C#.md": "# C# basics\n", "#old.md": "x", "A.md": "#old"})
    desk.done("move", **{"from": "C#", "to": "D#"})
    assert desk.there("D#.md")
    desk.done("move", **{"from": "#old.md", "to": "new"})
    assert desk.there("new.md") and desk.text("A.md") == "#old"


def test_a_new_heading_may_hold_a_number_sign(make: MakeDesk) -> None:
    desk = make({"C.md": "# Intro\n"})
    desk.done("move", **{"from": "C#Intro", "to": "C# basics"})
    assert desk.text("C.md") == "# C# basics\n"


def test_tags_in_hidden_notes_stay_and_a_tag_only_they_have_is_not_there(make: MakeDesk) -> None:
    files = {"Private/P.md": "#old #secret", "A.md": "#old", "B.md": "[[A#H]]"}
    desk = make(files, hide=("Private/**",))
    assert "1 tag in 1 file" in desk.said("move", **{"from": "#old", "to": "#new"})
    assert desk.text("Private/P.md") == "#old #secret"
    there = desk.refused("move", **{"from": "#secret", "to": "#x"})
    assert there.replace("secret", "no-such") == desk.refused("move", **{"from": "#no-such", "to": "#x"})


def test_a_tag_in_a_note_that_may_not_be_written_is_not_renamed_at_all(make: MakeDesk) -> None:
    desk = make({"In/A.md": "#old\n# H\n", "Out/B.md": "#old [[A#H]]\n# H\n"}, write_under=("In/**",))
    assert desk.refused("move", **{"from": "#old", "to": "#new"}).startswith("forbidden: writing to Out/B.md ")
    assert desk.text("In/A.md") == "#old\n# H\n"
    assert desk.refused("move", **{"from": "B#H", "to": "x"}).startswith("forbidden: ")
    desk.done("move", **{"from": "A#H", "to": "x"})  # links follow wherever they stand
    assert desk.text("Out/B.md") == "#old [[A#x]]\n# H\n"


def test_a_tag_of_several_workspaces_is_named_with_its_workspace(make: MakeDesk) -> None:
    desk = make(Work={"A.md": "#old #only"}, Home={"B.md": "#old"})
    asked = {"from": "#old", "to": "#new"}
    assert desk.refused("move", **asked).startswith("ambiguous: #old is a tag in 2 workspaces: Work/#old, Home/#old. ")
    assert "Work/A.md: 1 tag" in desk.said("move", **{"from": "Work/#old", "to": "Work/#new"})
    assert desk.text("A.md") == "#new #only"
    assert "Work/A.md: 1 tag" in desk.said("move", **{"from": "#only", "to": "#one"})
    assert "Work/#one" in desk.refused("move", **{"from": "#onn", "to": "#x"})


def test_only_the_case_of_a_name_may_change(make: MakeDesk) -> None:
    desk = make({"tea.md": "", "A.md": "[[tea]]"})
    desk.done("move", **{"from": "tea", "to": "Tea"})
    assert desk.text("A.md") == "[[Tea]]"


# ---- delete -------------------------------------------------------------------------------------------


def test_a_deleted_note_is_in_the_trash_and_those_that_link_to_it_are_named(make: MakeDesk) -> None:
    desk = make({"Tea.md": "1", "A.md": "[[Tea]]", "B.md": "[[tea|x]]", "x/Tea 2.md": "2"})
    answer = desk.said("delete", path="Tea").split("\n")
    assert answer[:-1] == ["Deleted Tea.md (to .trash/Tea.md); 2 notes link to it:", "A.md", "B.md"]
    assert desk.text(".trash/Tea.md") == "1"
    assert not desk.there("Tea.md")
    assert "[[Tea]]" in desk.text("A.md")
    desk.done("write", path="Tea", content="again")
    assert desk.said("delete", path="Tea").startswith("Deleted Tea.md (to .trash/Tea 1.md); 2 notes link to it:")
    assert desk.text(".trash/Tea.md") == "1"
    assert desk.said("delete", path="Tea 2").startswith("Deleted x/Tea 2.md (to .trash/Tea 2.md); no note links to it.")


def test_a_folder_is_not_deleted(make: MakeDesk) -> None:
    desk = make({"f/A.md": "x"})
    assert desk.refused("delete", path="f").startswith("invalid: f is a folder; notes and attachments are deleted. ")
    assert desk.refused("delete", path="g").startswith("not_found: there is no g. ")


# ---- daily --------------------------------------------------------------------------------------------

NOON = 1793620800.0  # 2026-11-02T12:00:00Z


def test_appending_makes_the_note_and_the_section(make: MakeDesk) -> None:
    desk = make({"A.md": ""}, clock=lambda: NOON)
    answer = desk.said("daily", append="- tea", section="Log")
    assert answer.startswith("Created daily/2026-11-02.md · version ")
    assert desk.text("daily/2026-11-02.md") == "## Log\n- tea\n"
    desk.done("daily", append="- more", section="log")
    desk.done("daily", append="- new", section="Ideas")
    desk.done("daily", append="last", date="2026-11-02")
    assert desk.text("daily/2026-11-02.md") == "## Log\n- tea\n- more\n\n## Ideas\n- new\nlast"
    assert desk.said("daily", section="Ideas").partition("\n")[2] == "## Ideas\n- new\nlast"
    assert desk.said("daily", date="2026-11-02").startswith("daily/2026-11-02.md · version ")


def test_today_is_in_the_timezone_of_the_workspace(make: MakeDesk) -> None:
    desk = make({"A.md": ""}, timezone="Pacific/Auckland", clock=lambda: NOON)
    assert "(daily/2026-11-03.md)" in desk.refused("daily")


def test_folder_format_and_template_are_those_of_obsidian(make: MakeDesk) -> None:
    settings = {"folder": "Journal/Days", "format": "YYYY/MM-DD dddd", "template": "Templates/Day"}
    desk = make(
        {
            ".obsidian/daily-notes.json": json.dumps(settings),
            "Templates/Day.md": "# {{title}}\n{{date}} {{time}} {{date:dddd}}\n\n## Log\n\n## Notes\n",
        },
        clock=lambda: NOON,
    )
    desk.done("daily", append="- tea", section="Log")
    assert desk.text("Journal/Days/2026/11-02 Monday.md") == (
        "# 11-02 Monday\n2026-11-02 12:00 Monday\n\n## Log\n- tea\n\n## Notes\n"
    )
    desk.done("daily", append="x", date="2024-02-29")
    assert desk.text("Journal/Days/2024/02-29 Thursday.md").startswith("# 02-29 Thursday\n2024-02-29 12:00 Thursday\n")


def test_a_folder_that_is_there_in_another_case_is_used(make: MakeDesk) -> None:
    desk = make({"Daily/2026-11-01.md": "x"}, clock=lambda: NOON)
    assert desk.said("daily", append="x").startswith("Created Daily/2026-11-02.md ")


@pytest.mark.parametrize("date", ["2026-11-31", "11/02/2026", "", "20261102", "Today", "2026-11-02 ", "x" * 10_000])
def test_a_date_that_is_none_is_invalid(make: MakeDesk, date: str) -> None:
    said = make({"A.md": ""}).refused("daily", date=date, append="x")
    assert said.startswith("invalid: ")
    assert said.endswith(" is not a date. Write it as YYYY-MM-DD.")


@pytest.mark.parametrize(
    "settings", ["", "[]", "{", '{"folder": "../out"}', '{"folder": ".git"}', '{"template": "../../etc/passwd"}']
)
def test_strange_settings_break_nothing(make: MakeDesk, settings: str) -> None:
    desk = make({".obsidian/daily-notes.json": settings}, clock=lambda: NOON)
    answer = desk("daily", append="x")
    if answer.is_error:
        assert answer.text.startswith(("invalid: ", "forbidden: "))
    assert {path.name for path in desk.root.rglob("*.md")} <= {"2026-11-02.md"}
    assert not (desk.root.parent / "out").exists()


@pytest.mark.parametrize("path", ["Tea ", " Tea", "Tea\u00a0", "Tea .md", "Drinks/Tea ", "Drinks /Tea"])
def test_a_new_name_has_no_blanks_around_it(make: MakeDesk, path: str) -> None:
    desk = make({"Tea.md": "mine\n", "Drinks/Tea.md": "mine too\n"})
    version = desk.version("Tea")
    assert desk.refused("write", path=path, content="x").startswith("invalid: ")
    assert desk.refused("write", path=path, content="x", version=version).split(":")[0] in ("invalid", "conflict")
    assert [(desk.root / name).read_text() for name in ("Tea.md", "Drinks/Tea.md")] == ["mine\n", "mine too\n"]
    assert sorted(file.name for file in desk.root.rglob("*")) == ["Drinks", "Tea.md", "Tea.md"]
