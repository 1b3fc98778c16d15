"""A whole note: offsets, lines, line endings, titles."""

import pytest

from notewright.notes.model import Note
from notewright.notes.parse.parser import parse, parse_head
from notewright.notes.path import NotePath


def note(text: str, path: str = "Folder/Name.md") -> Note:
    return parse(NotePath(path), text)


def test_a_note_is_read_into_headings_links_tags_blocks_and_properties():
    read = note('---\ntags: [one]\nup: "[[Top]]"\n---\n# Tea\n\nSee [[Water#Heat|hot]] #two ^cup\n')
    assert [(heading.level, heading.text, heading.line) for heading in read.headings] == [(1, "Tea", 5)]
    assert [(link.kind, link.target, link.subpath, link.display) for link in read.links] == [
        ("frontmatter", "Top", "", None),
        ("wikilink", "Water", "#Heat", "hot"),
    ]
    assert [(tag.name, tag.inline, tag.line) for tag in read.tags] == [("one", False, 2), ("two", True, 7)]
    assert [(block.id, block.start_line, block.end_line) for block in read.blocks] == [("cup", 7, 7)]
    assert read.body == "# Tea\n\nSee [[Water#Heat|hot]] #two ^cup\n"


def test_every_span_covers_what_it_names():
    text = '---\ntags: [one]\nup: "[[Top]]"\n---\n# Tea\n\nSee ![[ Water #Heat|hot]] [x](<a b.md#c>) #two ^cup\n'
    read = note(text)
    assert [text[link.start : link.end] for link in read.links] == [
        "[[Top]]",
        "![[ Water #Heat|hot]]",
        "[x](<a b.md#c>)",
    ]
    assert [text[link.target_start : link.target_end] for link in read.links] == ["Top", "Water", "a b.md"]
    assert [text[tag.start : tag.end] for tag in read.tags] == ["one", "two"]
    assert [text[block.start : block.end] for block in read.blocks] == ["cup"]
    assert text[read.headings[0].start : read.headings[0].end] == "# Tea\n"


@pytest.mark.parametrize("ending", ["\r\n", "\r"])
def test_other_line_endings_give_the_same_values(ending):
    text = "---\na: |\n  x\n  y\ntags:\n  - t\n---\n# H\n\n> q [[l]]\n> ## Sub\n\n- a ^id\n\nset\n---\n"
    plain, other = note(text), note(text.replace("\n", ending))
    assert other.frontmatter.properties == plain.frontmatter.properties == {"a": "x\ny\n", "tags": ["t"]}
    assert [(h.level, h.text, h.line, h.top) for h in other.headings] == [
        (1, "H", 8, True),
        (2, "Sub", 11, False),
        (2, "set", 15, True),
    ]
    assert [(link.target, link.line) for link in other.links] == [("l", 10)]
    assert [(block.id, block.start_line) for block in other.blocks] == [("id", 13)]


def test_mixed_line_endings_keep_lines_and_offsets():
    text = "# a\r\n# b\n# c\r\n"
    assert [(h.text, h.line, text[h.start : h.end]) for h in note(text).headings] == [
        ("a", 1, "# a\r\n"),
        ("b", 2, "# b\n"),
        ("c", 3, "# c\r\n"),
    ]


def test_a_byte_order_mark_is_no_part_of_the_first_line():
    read = note("\ufeff---\ntitle: T\n---\n# H\n")
    assert (read.title, read.frontmatter.start, [h.text for h in read.headings]) == ("T", 1, ["H"])
    assert [h.text for h in note("\ufeff# H\n").headings] == ["H"]


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("---\ntitle: From properties\n---\n# H\n", "From properties"),
        ("---\ntitle: 2024\n---\n", "2024"),
        ("---\ntitle:\n---\n## two\n# H\n", "H"),
        ("```\n# code\n```\n", "Name"),
        ("", "Name"),
    ],
)
def test_the_title_is_the_property_else_the_first_h1_else_the_name(text, title):
    assert note(text).title == title


@pytest.mark.parametrize(
    ("value", "aliases"),
    [
        ("[A, 'B, C']", ("A", "B, C")),
        ("\n  - A\n  - 7\n  -", ("A", "7")),
        ("one", ("one",)),
        ("one, two", ("one", "two")),
        ("", ()),
        ("[[x]]", ()),
    ],
)
def test_aliases_are_a_list_or_text_cut_at_commas(value, aliases):
    assert note(f"---\naliases: {value}\n---\n").aliases == aliases


@pytest.mark.parametrize(
    "text",
    [
        "# Tea\n\n# Water\n",
        "# Tea #\n===\n",
        "\n  \n# *Tea*\r\nmore\n",
        "---\ntype: drink\n---\n\n# Tea\n",
        "---\ntitle: Water\n---\n# Tea\n",
        "#  \n\n# Tea\n",
        "# [[]]\n\n# Tea\n",
        "words\n# Tea\n",
        "    # code\n\n# Tea\n",
        "#tag\n\nTea\n===\n",
        "## Lower\n\n> # Tea\n",
        "```\n# code\n```\n",
        "\ufeff# Tea",
        "",
    ],
)
def test_the_head_alone_says_the_title_and_properties_of_the_whole_note(text):
    read = note(text)
    assert parse_head(read.path, text) == (read.title, read.frontmatter.properties)


def test_paragraphs_say_where_running_text_stands():
    text = "# H\n\none\ntwo\n\n```\ncode\n```\n- item\n\n| a |\n|---|\n| b |\n"
    assert [text[start:end] for start, end in note(text).paragraphs] == [
        "H",
        "one\ntwo",
        "item",
        "| a |",
        "|---|",
        "| b |",
    ]
