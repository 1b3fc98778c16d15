"""Links: what is one, and what its parts are."""

import pytest

from notewright.notes import Link, NotePath, parse, shown_text


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
    ("text", "shown"),
    [("[[a]]", "a"), ("[[a#b#c]]", "a > b > c"), ("[[#b]]", "b"), ("[[a#^id]]", "a > ^id"), ("[[a|b]]", "b")],
)
def test_a_link_shows_its_text_or_its_path(text, shown):
    assert shown_text(links(text)[0]) == shown
