"""Links: what is one, and what its parts are."""

import pytest

from notewright.notes.links.syntax import link_display_text
from notewright.notes.model import Link
from notewright.notes.parse.parser import parse
from notewright.notes.path import NotePath


def links(text: str) -> list[Link]:
    return list(parse(NotePath("a.md"), text).links)


def one(text: str) -> tuple[str, str, str, str | None]:
    (link,) = links(text)
    return link.kind, link.target, link.subpath, link.display


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("[[a]]", ("wikilink", "a", "", None)),
        ("![[a.png|100]]", ("embed", "a.png", "", "100")),
        ("[[ a b # c | d ]]", ("wikilink", "a b", "# c", "d")),
        ("[[#h]]", ("wikilink", "", "#h", None)),
        ("[[a#b#c]]", ("wikilink", "a", "#b#c", None)),
        ("[[a#^id|x]]", ("wikilink", "a", "#^id", "x")),
        ("[[a||b]]", ("wikilink", "a", "", "|b")),
        ("[[|]]", ("wikilink", "|", "", None)),
        ("[[|x]]", ("wikilink", "|x", "", None)),
        ("[[a\\|b]]", ("wikilink", "a", "", "b")),
        ("[[a]b]]", ("wikilink", "a]b", "", None)),
        ("[[a [b]]", ("wikilink", "a [b", "", None)),
        ("[[[a]]]", ("wikilink", "a", "", None)),
        ("[[a [[b]] c]]", ("wikilink", "b", "", None)),
        ("[[a`b`c]]", ("wikilink", "a`b`c", "", None)),
        ("[[https://x.y]]", ("wikilink", "https://x.y", "", None)),
        ("[[a%20b]]", ("wikilink", "a%20b", "", None)),
        ("\\![[a]]", ("wikilink", "a", "", None)),
        ("[t](b.md)", ("markdown", "b.md", "", "t")),
        ("![t](b.png)", ("markdown-embed", "b.png", "", "t")),
        ("[t](a%20b.md#c%20d)", ("markdown", "a b.md", "#c d", "t")),
        ("[t](<a b.md>)", ("markdown", "a b.md", "", "t")),
        ("[t](b 'title')", ("markdown", "b", "", "t")),
        ("[t]( b )", ("markdown", "b", "", "t")),
        ('[t](b\n  "title")', ("markdown", "b", "", "t")),
        ("[t](a(b)c)", ("markdown", "a(b)c", "", "t")),
        ("[t](a\\)b)", ("markdown", "a)b", "", "t")),
        ("[t](a&amp;b)", ("markdown", "a&b", "", "t")),
        ("[t](R&D.md)", ("markdown", "R&D.md", "", "t")),
        ("[t](#h)", ("markdown", "", "#h", "t")),
        ("[a [b] c](d)", ("markdown", "d", "", "a [b] c")),
        ("[](d)", ("markdown", "d", "", "")),
        ("[a](b%23c.md)", ("markdown", "b#c.md", "", "a")),
    ],
)
def test_a_link_has_these_parts(text, parts):
    assert one(text) == parts


@pytest.mark.parametrize(
    "text",
    [
        "[[]]",
        "[[ ]]",
        "[[a\nb]]",
        "[[a",
        "\\[[a]]",
        "[\\[a]]",
        "`[[a]]`",
        "``[[a]] ` ``",
        "<!-- [[a]] -->",
        "<a title='[[b]]'>",
        "<?[[a]]?>",
        "[t](https://x.y)",
        "[t](mailto:a@b.c)",
        "[t](//x.y/z)",
        "[t]()",
        "[t](a b.md)",
        "[t](a(b)",
        "[t][ref]",
        "[^1]",
        "[t] (a)",
        "$[[1, 2], [3, 4]]$",
        "$$\n[[a]]\n$$",
        "`a [[b` c]]",
    ],
)
def test_these_are_no_links(text):
    assert links(text) == []


def test_links_hold_no_links_but_images_may():
    assert [link.target for link in links("[a [[b]] c](d)")] == ["b"]
    assert [link.target for link in links("[a [b](c) d](e)")] == ["c"]
    assert [link.target for link in links("[![a](b.png)](c.md)")] == ["c.md", "b.png"]
    assert [link.target for link in links("[![[b.png]]](c.md)")] == ["c.md", "b.png"]


def test_money_is_no_mathematics():
    assert [link.target for link in links("from $5 [[a]] to $10 [[b]]")] == ["a", "b"]


def test_an_unclosed_code_span_hides_nothing():
    assert [link.target for link in links("a ` b [[c]]\n\n` [[d]]")] == ["c", "d"]


@pytest.mark.parametrize(
    ("yaml", "found"),
    [
        ('a: "[[x]]"', [("a", "x")]),
        ("a: '[[x#y|z]]'", [("a", "x")]),
        ('a:\n  - "[[x]]"\n  - text\n  - "[[y]]"', [("a.0", "x"), ("a.2", "y")]),
        ('a: ["[[x]]", "[[y]]"]', [("a.0", "x"), ("a.1", "y")]),
        ('a:\n  b: "[[x]]"', [("a.b", "x")]),
        ("a: [[x]]", []),
        ('a: "see [[x]]"', []),
        ('a: "![[x]]"', []),
    ],
)
def test_links_in_properties_are_whole_quoted_values(yaml, found):
    assert [(link.key, link.target) for link in links(f"---\n{yaml}\n---\n")] == found


def test_equal_links_in_properties_stand_where_they_are_written():
    text = '---\na: "[[x]]"\nb: "[[x]]"\n---\n'
    assert [(link.key, link.line, text[link.start : link.end]) for link in links(text)] == [
        ("a", 2, "[[x]]"),
        ("b", 3, "[[x]]"),
    ]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("[t][l]\n\n[l]: b.md", ("markdown", "b.md", "", "t")),
        ("[l][]\n\n[l]: b.md", ("markdown", "b.md", "", "l")),
        ("[l]\n\n[l]: b.md", ("markdown", "b.md", "", "l")),
        ("![t][l]\n\n[l]: b.png", ("markdown-embed", "b.png", "", "t")),
        ("![l]\n\n[l]: b.png", ("markdown-embed", "b.png", "", "l")),
        ("[t][l]\n\n[l]: <a b.md#c d> 'title'", ("markdown", "a b.md", "#c d", "t")),
        ('[t][l]\n\n[l]:\n  a%20b.md\n  "title"\n', ("markdown", "a b.md", "", "t")),
        ("[l]: b.md\n\n[t][l]", ("markdown", "b.md", "", "t")),
        ("[t][L  \n m]\n\n[l M]: b.md", ("markdown", "b.md", "", "t")),
        ("[ẞ]\n\n[SS]: b.md", ("markdown", "b.md", "", "ẞ")),
        ("[l]\n\n[l]: first.md\n[l]: second.md", ("markdown", "first.md", "", "l")),
        ("[l]\n\n> [l]: b.md", ("markdown", "b.md", "", "l")),
        ("- [t][l]\n\n  [l]: b.md", ("markdown", "b.md", "", "t")),
        ("# [l]\n[l]: b.md", ("markdown", "b.md", "", "l")),
        ("[l](no link)\n\n[l]: b.md", ("markdown", "b.md", "", "l")),
        ("[l][ ]\n\n[l]: b.md", ("markdown", "b.md", "", "l")),
        ("[a][l][m]\n\n[a]: a.md\n[m]: b.md", ("markdown", "b.md", "", "l")),
        ("[t][a\\]b]\n\n[a\\]b]: b.md", ("markdown", "b.md", "", "t")),
        ("[l]\n\n[l]: #h", ("markdown", "", "#h", "l")),
        ("| [t][l] |\n|---|\n\n[l]: b.md", ("markdown", "b.md", "", "t")),
        ("[l]: b.md\nabc [l]", ("markdown", "b.md", "", "l")),
    ],
)
def test_a_link_by_reference_leads_where_the_definition_of_its_label_says(text, parts):
    assert one(text) == parts


@pytest.mark.parametrize(
    "text",
    [
        "[l]: b.md",  # a definition nobody uses
        "[t][m]\n\n[l]: b.md",
        "[l][m]\n\n[l]: b.md",  # followed by a label, it is no shortcut
        "[l]\n\n[l]: https://x.y\n[l]: b.md",  # the first counts, though it leads elsewhere
        "[l]\n\n```\n[l]: b.md\n```",
        "[l]\n\n    [l]: b.md",
        "[l]\n\n<div>\n[l]: b.md\n</div>",
        "[l]\n\ntext\n[l]: b.md",  # cannot interrupt a paragraph
        "text[^1]\n\n[^1]: b.md",
        "`[l]` \\[l]\n\n[l]: b.md",
        "[l]\n\n[l]: b.md 'title' more",
        "[l]\n\n[l]: <b.md",
        "[l]\n\n[l]: <>",
        "[a[l]b][]\n\n[a[l]b]: b.md",
        f"[{'l' * 1000}]\n\n[{'l' * 1000}]: b.md",
        "- [x] done\n\n[x]: b.md",  # the box of a task
    ],
)
def test_what_has_no_definition_is_no_link(text):
    assert links(text) == []


def test_a_link_by_reference_stands_where_it_is_used_and_its_target_in_the_definition():
    text = "a\r\n> b [t][l] c\r\n> [l][]\r\n\r\n> [l]:\r\n> <b c.md#d> 'e'\r\n"
    found = links(text)
    assert [(link.line, text[link.start : link.end]) for link in found] == [(2, "[t][l]"), (3, "[l][]")]
    assert {text[link.target_start : link.target_end] for link in found} == {"b c.md"}


def test_uses_of_one_definition_repeat_no_more_than_the_note_is_long():
    long = "a" * 4_000
    found = links("[l] " * 100_000 + f"\n\n[l]: {long}")
    assert found and sum(len(link.target) for link in found) <= 410_000


@pytest.mark.parametrize(
    ("text", "shown"),
    [("[[a]]", "a"), ("[[a#b#c]]", "a > b > c"), ("[[#b]]", "b"), ("[[a#^id]]", "a > ^id"), ("[[a|b]]", "b")],
)
def test_a_link_shows_its_text_or_its_path(text, shown):
    assert link_display_text(links(text)[0]) == shown
