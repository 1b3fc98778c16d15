"""Renames: which links follow, which stay, and how they are written."""

import json

import pytest

from notewright.errors import Exists, Invalid, NotFound
from notewright.notes.links.relabel import rename_heading, rename_tag
from notewright.notes.links.rename import RewrittenFile, affected_keys, plan_moves, plan_rename
from notewright.notes.links.resolve import InMemoryNames, link_key
from notewright.notes.parse.parser import parse
from notewright.notes.path import NotePath


def renamed(files: dict[str, str], old: str, new: str) -> dict[str, str]:
    paths = [NotePath(path) for path in files]
    moves = plan_moves(old, new, paths)
    notes = [parse(path, files[path]) for path in paths if path.is_note]
    others = {path: files[path] for path in paths if not path.is_note}
    planned = plan_rename(moves, InMemoryNames(paths), notes, others)
    return {moves.get(path, path): files[path] for path in paths} | {each.after: each.text for each in planned}


def line(text: str, old: str, new: str, *others: str, source: str = "x.md") -> str:
    """What becomes of one note's text."""
    files = {old: "", source: text} | dict.fromkeys(others, "")
    return renamed(files, old, new)[source]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("[[Old]]", "[[New]]"),
        ("![[Old]]", "![[New]]"),
        ("[[ Old ]]", "[[ New ]]"),
        ("[[Old.md]]", "[[New.md]]"),
        ("[[a/Old]]", "[[a/New]]"),
        ("[[/a/Old]]", "[[/a/New]]"),
        ("[[./a/Old]]", "[[./a/New]]"),
        ("[[old#H|text]]", "[[New#H|text]]"),
        ("[[Old#^id]]", "[[New#^id]]"),
        ("[[Old|Old]]", "[[New|New]]"),
        ("[[Old| Old ]]", "[[New| New ]]"),
        ("| [[Old\\|t]] |\n|-|\n", "| [[New\\|t]] |\n|-|\n"),
        ("[t](Old.md)", "[t](New.md)"),
        ("[t](a/Old.md#H)", "[t](a/New.md#H)"),
        ("[t](<a/Old.md>)", "[t](<a/New.md>)"),
        ('[t](Old "title")', '[t](New "title")'),
        ("![Old](a/Old.md)", "![New](a/New.md)"),
        ("[t][l]\n\n[l]: Old.md", "[t][l]\n\n[l]: New.md"),
        ("[l][] [L]\n\n[l]: a/Old.md#H 'Old'", "[l][] [L]\n\n[l]: a/New.md#H 'Old'"),
        ("![t][l]\n\n[l]: <a/Old.md>", "![t][l]\n\n[l]: <a/New.md>"),
        ("[Old][l] [l]\n\n[l]: Old.md", "[New][l] [l]\n\n[l]: New.md"),
        ("[Old] [Old][]\n\n[old]: Old.md", "[Old] [Old][]\n\n[old]: New.md"),
        ("[l]\r\n\r\n> [l]:\r\n>   Old.md\r\n", "[l]\r\n\r\n> [l]:\r\n>   New.md\r\n"),
        ("[l]\n\n[l]: Old.md\n[l]: Old.md", "[l]\n\n[l]: New.md\n[l]: Old.md"),
        ("[l]\n\n```\n[l]: Old.md\n```", "[l]\n\n```\n[l]: Old.md\n```"),
        ("x[^1]\n\n[^1]: Old.md", "x[^1]\n\n[^1]: Old.md"),
        ("`[[Old]]` \\[\\[Old]]", "`[[Old]]` \\[\\[Old]]"),
        ("```\n[[Old]]\n```", "```\n[[Old]]\n```"),
        ("%% [[Old]] %%", "%% [[New]] %%"),
        ("[[Older]] Old [[#Old]]", "[[Older]] Old [[#Old]]"),
        ("a\r\n[[Old]]\r\nb", "a\r\n[[New]]\r\nb"),
        ("\ufeff[[Old]]", "\ufeff[[New]]"),
        ("---\nup: '[[Old]]'\n---\n", "---\nup: '[[New]]'\n---\n"),
    ],
)
def test_a_link_keeps_the_form_it_was_written_in(before: str, after: str) -> None:
    assert line(before, "a/Old.md", "a/New.md") == after


def test_blanks_are_encoded_in_markdown_links_and_nothing_else() -> None:
    assert line("[t](Old.md)", "a/Old.md", "a/Né w (1).md") == "[t](Né%20w%20(1).md)"
    assert line("[t](<Old.md>)", "a/Old.md", "a/Ne w.md") == "[t](<Ne w.md>)"
    assert line("[t](Old.md)", "Old.md", "C#.md") == "[t](C%23.md)"
    assert line("[t](Old.md)", "Old.md", "50%20.md") == "[t](50%2520.md)"
    assert line("[t](Old.md)", "Old.md", "a(.md") == "[t](a%28.md)"


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("New (1)", "New%20(1)"),
        ("a(b(c))d", "a(b(c))d"),
        ("(a)(b)", "(a)(b)"),
        ("a)b(c", "a%29b%28c"),
        ("a(b", "a%28b"),
        ("a)", "a%29"),
        ("((a)", "%28%28a%29"),
        ("a(b(c(d)))", "a%28b%28c%28d%29%29%29"),
    ],
)
def test_parentheses_in_a_new_name_stay_while_they_are_in_pairs(name: str, written: str) -> None:
    assert line("[t](Old.md) e", "Old.md", f"{name}.md") == f"[t]({written}.md) e"
    assert line("[t][l] e\n\n[l]: Old.md", "Old.md", f"{name}.md") == f"[t][l] e\n\n[l]: {written}.md"
    assert line("[t](<Old.md>)", "Old.md", f"{name}.md") == f"[t](<{name}.md>)"


def test_a_moved_notes_own_definitions_still_lead_where_they_led() -> None:
    files = {"a.md": "[x][] ![p]\n\n[x]: x.md\n[p]: pic.png 'P'\n", "x.md": "", "pic.png": ""}
    assert renamed(files, "a", "deep/a")["deep/a.md"] == files["a.md"]
    files = {"s/a.md": "[x][] [y]\n\n[x]: ./x.md\n[y]: <../y.md>\n", "s/x.md": "", "y.md": ""}
    assert renamed(files, "s/a", "a")["a.md"] == "[x][] [y]\n\n[x]: ./s/x.md\n[y]: <./y.md>\n"


def test_each_use_of_a_definition_counts_as_a_link_that_followed() -> None:
    paths = [NotePath("Old.md"), NotePath("x.md")]
    text = "[l] [t][l] [l][]\n\n[l]: Old.md\n"
    (one,) = plan_rename(plan_moves("Old", "New", paths), InMemoryNames(paths), [parse(paths[1], text)])
    assert (one.links, one.text) == (3, "[l] [t][l] [l][]\n\n[l]: New.md\n")


def test_quotes_in_a_name_are_escaped_in_properties() -> None:
    assert line("---\nup: '[[Old]]'\n---\n", "Old.md", "It's.md") == "---\nup: '[[It''s]]'\n---\n"
    assert line("---\nup: '[[It''s]]'\n---\n", "It's.md", "Old.md") == "---\nup: '[[Old]]'\n---\n"


def test_a_bare_name_stays_bare_while_it_is_unique() -> None:
    assert line("[[Old]]", "a/Old.md", "b/Old.md") == "[[Old]]"
    assert line("[[Old]] [[New]]", "a/Old.md", "a/New.md", "c/New.md") == "[[a/New]] [[c/New]]"
    assert line("[[Old]]", "a/Old.md", "a/New.md", "b/New.png") == "[[New]]"


def test_a_link_whose_namesake_vanishes_stays_with_what_it_meant() -> None:
    files = {"Tea.md": "", "long/Tea.md": "", "x.md": "[[Tea]] [[long/Tea]]"}
    assert renamed(files, "Tea.md", "Milk.md")["x.md"] == "[[Milk]] [[long/Tea]]"


def test_a_link_that_would_now_lead_elsewhere_is_pinned() -> None:
    files = {"deep/down/Tea.md": "", "y.md": "", "x.md": "[[Tea]] [t](Tea.md)"}
    assert renamed(files, "y.md", "Tea.md")["x.md"] == "[[deep/down/Tea]] [t](deep/down/Tea.md)"


def test_the_moved_notes_own_links_still_lead_where_they_led() -> None:
    files = {"a/Old.md": "[m](./Peer.md) [[Peer]] [[../b/Far]] [s](sub/In.md)", "a/Peer.md": ""}
    files |= {"b/Far.md": "", "a/sub/In.md": ""}
    after = renamed(files, "a/Old.md", "c/d/Old.md")["c/d/Old.md"]
    assert after == "[m](../../a/Peer.md) [[Peer]] [[../../b/Far]] [s](sub/In.md)"


def test_a_note_that_goes_to_a_folder_with_a_namesake_keeps_its_meaning() -> None:
    files = {"a/Old.md": "[[Tea]]", "a/Tea.md": "", "b/Tea.md": ""}
    assert renamed(files, "a/Old.md", "b/Old.md")["b/Old.md"] == "[[a/Tea]]"


def test_a_folder_moves_with_all_links_to_what_is_in_it() -> None:
    files = {"a/b/N.md": "[[a/b/pic.png]] [[M]]", "a/b/pic.png": "", "M.md": "[[a/b/N]] ![x](a/b/pic.png) [[N]]"}
    after = renamed(files, "a/b", "c")
    assert after == {"c/N.md": "[[c/pic.png]] [[M]]", "c/pic.png": "", "M.md": "[[c/N]] ![x](c/pic.png) [[N]]"}


def test_a_change_of_case_is_a_rename() -> None:
    assert line("[[readme]] [[README]]", "readme.md", "Readme.md") == "[[Readme]] [[Readme]]"


def test_a_folder_that_changes_its_case_takes_links_with_paths_along() -> None:
    text = "[[sub/b]] [[b]] [x](sub/b.md) [[./sub/b]]"
    assert renamed({"a.md": text, "sub/b.md": ""}, "sub", "Sub")["a.md"] == text.replace("sub", "Sub")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("# '[[Old]]'\nup: '[[Old]]'", "# '[[Old]]'\nup: '[[New]]'"),
        ("up: '[[Old]]' # '[[Old]]'\nx: '[[Old]]'", "up: '[[New]]' # '[[Old]]'\nx: '[[New]]'"),
        ("'[[Old]]': x\nup: '[[Old]]'", "'[[Old]]': x\nup: '[[New]]'"),
        ("a: text '[[Old]]'\nup: '[[Old]]'", "a: text '[[Old]]'\nup: '[[New]]'"),
        ("a: |\n  text\n  [[Old]]\n  text\nup: '[[Old]]'", "a: |\n  text\n  [[Old]]\n  text\nup: '[[New]]'"),
        ("a: [[Old]]\nup: ['[[Old]]', \"[[Old|x]]\"]", "a: [[Old]]\nup: ['[[New]]', \"[[New|x]]\"]"),
        ("a: &x '[[Old]]'\nb: *x # '[[Old]]'", "a: &x '[[New]]'\nb: *x # '[[Old]]'"),
        ("a: {{x}} '[[Old]]'\nup: '[[Old]]'", "a: {{x}} '[[Old]]'\nup: '[[New]]'"),
        ('up: "[[\\x4fld#a|\\x4fld]]"', 'up: "[[New#a|\\x4fld]]"'),
        ('up: "[[\\x4fld\\x23a]]"', 'up: "[[\\x4fld\\x23a]]"'),
        ("up: '[[a/\n  Old]]'", "up: '[[a/\n  Old]]'"),
    ],
)
def test_a_link_in_properties_is_told_from_other_text_there(before: str, after: str) -> None:
    assert line(f"---\n{before}\n---\n", "Old.md", "New.md") == f"---\n{after}\n---\n"


def test_a_link_follows_that_is_folded_or_spelled_with_escapes() -> None:
    before = "---\na: 'x'\nup: '[[A name that goes\n    on]]'\n\"b\": \"[[A name that\\x20goes on]]\"\n---\n"
    after = "---\na: 'x'\nup: '[[New]]'\n\"b\": \"[[New]]\"\n---\n"
    for ending in ("\n", "\r\n"):
        text, wanted = before.replace("\n", ending), after.replace("\n", ending)
        assert line(text, "A name that goes on.md", "New.md") == wanted


def test_one_link_in_both_kinds_of_quotes_is_two_links() -> None:
    before = "---\nup: ['[[It''s|It''s]]', \"[[It's]]\"]\n---\n"
    assert line(before, "It's.md", "New.md") == "---\nup: ['[[New|New]]', \"[[New]]\"]\n---\n"


@pytest.mark.parametrize("quote", ["'", '"'])
def test_a_display_text_in_quotes_takes_a_name_with_quotes(quote: str) -> None:
    text = f"---\nup: {quote}[[Old|Old]]{quote}\n---\n"
    written = f"a{quote}b" if quote == '"' else "a''b"
    written = written.replace('"', '\\"')
    assert line(text, "Old.md", f"a{quote}b.md") == f"---\nup: {quote}[[{written}|{written}]]{quote}\n---\n"


def test_a_broken_link_is_left_alone() -> None:
    assert line("[[New]]", "Old.md", "New.md") == "[[New]]"


@pytest.mark.parametrize("written", ["a/Old.md", "\\u0061/Old.md", "a\\/Old.md"])
def test_a_path_in_a_canvas_follows_however_it_is_escaped(written: str) -> None:
    canvas = '{"nodes":[{"type":"file","file":"%s"},{"file":"b.png"}]}'
    after = renamed({"a/Old.md": "", "b.png": "", "c.canvas": canvas % written}, "a/Old.md", "a/New.md")
    assert after["c.canvas"] == canvas % "a/New.md"


def test_a_canvas_that_does_not_hold_what_moves_is_not_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    board = (
        '{"nodes":[{"id":"n0","type":"file","file":"x/Other.md","x":0},{"id":"n1","type":"file","file":"a/Old.mdx"}]}'
    )
    canvases = {f"boards/{number}.canvas": board for number in range(50)}
    taken, loads = [], json.loads
    monkeypatch.setattr(json, "loads", lambda text: taken.append(text) or loads(text))
    after = renamed({"a/Old.md": "", "x/Other.md": "", "b.md": "[[Old]]"} | canvases, "a/Old.md", "a/New.md")
    assert after["b.md"] == "[[New]]" and after["boards/7.canvas"] == board
    assert taken == []


def test_canvases_and_bases_follow() -> None:
    canvas = '{"nodes":[{"file":"a/Old.md"},{"type":"text","text":"see [[Old]] \\u00e9"},{"text":"a/Older.md"}]}'
    base = "views:\n  - file: a/Old.md\n    other: 'a/Old.md' # a/Old.md\n    list: [a/Old.md, b]\n    no: xa/Old.md\n"
    after = renamed({"a/Old.md": "", "c.canvas": canvas, "d.base": base}, "a/Old.md", "a/New.md")
    assert after["c.canvas"] == canvas.replace("a/Old.md", "a/New.md").replace("[[Old]]", "[[New]]")
    assert after["d.base"] == (
        "views:\n  - file: a/New.md\n    other: 'a/New.md' # a/Old.md\n    list: [a/New.md, b]\n    no: xa/Old.md\n"
    )


def test_a_name_no_link_can_be_written_to_is_refused() -> None:
    with pytest.raises(Invalid):
        line("[[Old]]", "Old.md", "C#.md", "C.md")


def test_what_is_not_there_or_in_the_way_is_said() -> None:
    with pytest.raises(NotFound):
        renamed({"x.md": ""}, "Old.md", "New.md")
    with pytest.raises(Exists):
        renamed({"Old.md": "", "new.md": ""}, "Old.md", "New.md")
    with pytest.raises(Invalid):
        renamed({"a/x.md": ""}, "a", "a/b")
    with pytest.raises(Invalid):
        renamed({"a.md": ""}, "a", "../b")
    assert renamed({"a.md": "1"}, "a", "b/") == {"b/a.md": "1"}


def test_only_notes_with_a_touched_key_can_change() -> None:
    keys = affected_keys({NotePath("a/Old.md"): NotePath("b/New.md")})
    assert keys == {"old.md", "old", "new.md", "new"}
    assert link_key("x/NEW.md") in keys


# ---- inside notes -------------------------------------------------------------------------------------


def texts(planned: tuple[RewrittenFile, ...]) -> dict[str, str]:
    return {each.after: each.text for each in planned}


def test_a_heading_takes_its_links_along() -> None:
    files = {
        "a.md": "# Old one\n## Sub\n[[#Old one]] [[#Old one#Sub|x]]\n",
        "b.md": "[[a#old one]] [x](a.md#Old%20one) ![[a#Other]] [[b#Old one]]",
    }
    notes = {path: parse(NotePath(path), text) for path, text in files.items()}
    names = InMemoryNames(map(NotePath, files))
    after = texts(rename_heading(notes["a.md"], "Old one", "New: one", names, notes.values()))
    assert after == {
        "a.md": "# New: one\n## Sub\n[[#New one]] [[#New one#Sub|x]]\n",
        "b.md": "[[a#New one]] [x](a.md#New%20one) ![[a#Other]] [[b#Old one]]",
    }


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("[t][l]\n\n[l]: a.md#Old%20one 't'\n", "[t][l]\n\n[l]: a.md#New%20(one) 't'\n"),
        ("[l] [l][]\n\n[l]: <a.md#old one>\n", "[l] [l][]\n\n[l]: <a.md#New (one)>\n"),
        ("[l]\n\n[l]: a.md#Old%20one#Sub", "[l]\n\n[l]: a.md#New%20(one)#Sub"),
    ],
)
def test_a_definition_that_leads_to_a_heading_follows_it(before: str, after: str) -> None:
    note, other = parse(NotePath("a.md"), "# Old one\n## Sub\n"), parse(NotePath("b.md"), before)
    planned = rename_heading(note, "Old one", "New (one)", InMemoryNames([note.path, other.path]), [note, other])
    assert texts(planned)["b.md"] == after


def test_a_heading_that_would_take_anothers_links_is_told_apart() -> None:
    note = parse(NotePath("a.md"), "# A\n## X\n# B\n## Y\n[[#Y]]\n")
    after = texts(rename_heading(note, "X", "Y", InMemoryNames([note.path]), [note]))
    assert after["a.md"] == "# A\n## Y\n# B\n## Y\n[[#B#Y]]\n"
    twins = parse(NotePath("a.md"), "# X\n# Y\n[[#Y]]\n")
    with pytest.raises(Exists):
        rename_heading(twins, "X", "Y", InMemoryNames([twins.path]), [twins])


@pytest.mark.parametrize("new", ["", "  ", "two\nlines"])
def test_a_heading_is_one_line_of_text(new: str) -> None:
    note = parse(NotePath("a.md"), "# A\n")
    with pytest.raises(Invalid):
        rename_heading(note, "A", new, InMemoryNames([note.path]), [note])


def test_a_tag_takes_its_children_along() -> None:
    note = parse(NotePath("a.md"), "---\ntags: [Old, old/x, older]\n---\n#old #OLD/y #older `#old`\n")
    after = "---\ntags: [new, new/x, older]\n---\n#new #new/y #older `#old`\n"
    assert texts(rename_tag([note], "#old", "new")) == {"a.md": after}
    only = "---\ntags: [new, old/x, older]\n---\n#new #OLD/y #older `#old`\n"
    assert texts(rename_tag([note], "old", "new", nested=False)) == {"a.md": only}


def test_a_heading_is_followed_by_the_link_in_a_property_not_by_a_comment() -> None:
    notes = [parse(NotePath("a.md"), "# Old\n"), parse(NotePath("b.md"), "---\n# '[[a#Old]]'\nup: '[[a#Old]]'\n---\n")]
    planned = rename_heading(notes[0], "Old", "New", InMemoryNames(note.path for note in notes), notes)
    assert texts(planned)["b.md"] == "---\n# '[[a#Old]]'\nup: '[[a#New]]'\n---\n"


def test_a_property_stays_readable_where_a_bar_is_written_with_backslashes() -> None:
    notes = [parse(NotePath("a.md"), "# Old\n"), parse(NotePath("b.md"), '---\nup: "[[a#Old\\\\|x]]"\n---\n')]
    planned = rename_heading(notes[0], "Old", "New", InMemoryNames(note.path for note in notes), notes)
    assert texts(planned)["b.md"] == '---\nup: "[[a#New\\\\|x]]"\n---\n'


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("tags: # old\n  - old", "tags: # old\n  - new"),
        ("tags: [a, # old\n  'old']", "tags: [a, # old\n  'new']"),
        ("tags: ['a #b', old]", "tags: ['a #b', new]"),
        ("tags: [a, 'b]c', \"d\\\"]\", it's, old] # old", "tags: [a, 'b]c', \"d\\\"]\", it's, new] # old"),
        ("tags: &old [old]\nx: *old", "tags: &old [new]\nx: *old"),
        ("other:\n  tags: [old]\ntags: [old]", "other:\n  tags: [old]\ntags: [new]"),
        ("note: |\n  tags: old\nTags: old", "note: |\n  tags: old\nTags: new"),
        ('{"tags":["n\\u00e9", "old"], "x": "né old"}', '{"tags":["n\\u00e9", "new"], "x": "né old"}'),
        (
            "tags:\n- 'n\u00e9'\n- \"\\u6f22\"\n- old\nx: \u6f22 old",
            "tags:\n- 'n\u00e9'\n- \"\\u6f22\"\n- new\nx: \u6f22 old",
        ),
    ],
)
def test_a_tag_in_properties_is_told_from_other_text_there(before: str, after: str) -> None:
    note = parse(NotePath("a.md"), f"---\n{before}\n---\n")
    assert texts(rename_tag([note], "old", "new")) == {"a.md": f"---\n{after}\n---\n"}


@pytest.mark.parametrize("new", ["new tag", "old", "123", "", "a#b"])
def test_a_tag_must_be_a_new_tag(new: str) -> None:
    with pytest.raises(Invalid):
        rename_tag([], "old", new)
