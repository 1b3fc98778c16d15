"""Block ids, top-level blocks, list items, slugs."""

import pytest
from tools.note_structure import block_structure, list_items

from notewright.notes.parse.headings import heading_slugs
from notewright.notes.parse.parser import parse
from notewright.notes.path import NotePath


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a ^x", [("x", 1, 1)]),
        ("a\nb ^x-1\n", [("x-1", 1, 2)]),
        ("a\n^x", [("x", 1, 2)]),
        ("a ^with_underscore", []),
        ("a^x", []),
        ("a ^x b", []),
        ("[^1]", []),
        ("- a ^x\n  - b\n- c", [("x", 1, 2)]),
        ("- a\n  - b ^x\n    - c", [("x", 2, 3)]),
        ("- a\n- b\n\n^x", [("x", 1, 2)]),
        ("- a\n- b\n^x", [("x", 1, 3)]),
        ("> a\n> b ^x", [("x", 1, 2)]),
        ("> a\n\n^x", [("x", 1, 1)]),
        ("| a |\n|---|\n| b |\n\n^x", [("x", 1, 3)]),
        ("```\na ^no\n```\n^x", [("x", 1, 3)]),
        ("^x", []),
        ("## H ^x", [("x", 1, 1)]),
    ],
)
def test_a_block_id_names_the_block_it_ends_or_follows(text, found):
    assert [(block.id, block.start_line, block.end_line) for block in parse(NotePath("a.md"), text).blocks] == found


def test_top_level_blocks_have_kinds_and_lines():
    text = "---\na: 1\n---\n# H\n\np\nq\n\n- a\n\n- b\n\n1. c\n\n> [!note]\n> d\n\n> e\n\n"
    text += "```\nf\n```\n<!-- g -->\n\n***\n%%\nh\n%%\n"
    kinds = [(block.kind, block.start_line, block.end_line) for block in block_structure(parse(NotePath("a.md"), text))]
    assert kinds == [
        ("yaml", 1, 3),
        ("heading", 4, 4),
        ("paragraph", 6, 7),
        ("list", 9, 11),
        ("list", 13, 13),
        ("callout", 15, 16),
        ("blockquote", 18, 18),
        ("code", 20, 22),
        ("html", 23, 23),
        ("thematicBreak", 25, 25),
        ("comment", 26, 28),
    ]


def test_list_items_know_their_parents_and_tasks():
    text = "- [ ] a\n    - [x] b\n      more\n- c\n\n- d\n"
    items = list_items(parse(NotePath("a.md"), text))
    assert [(item.line, item.end_line, item.task, item.parent_line) for item in items] == [
        (1, 1, " ", None),
        (2, 3, "x", 1),
        (4, 5, None, None),
        (6, 6, None, None),
    ]


def test_githubs_slugs_are_numbered():
    assert heading_slugs(["A b!", "a b", "A B", "a-b-1", "Café_x"]) == ["a-b", "a-b-1", "a-b-2", "a-b-1-1", "café_x"]
