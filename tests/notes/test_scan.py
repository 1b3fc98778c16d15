"""Block structure: what is a heading, what is code, what holds what."""

import pytest

from notewright.notes.parse.parser import parse
from notewright.notes.path import NotePath


def headings(text: str) -> list[tuple[int, str, int, bool]]:
    return [(h.level, h.text, h.line, h.top) for h in parse(NotePath("a.md"), text).headings]


def links(text: str) -> list[str]:
    return [link.target for link in parse(NotePath("a.md"), text).links]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("# a", [(1, "a", 1, True)]),
        ("####### a", []),
        ("#a", []),
        ("#", [(1, "", 1, True)]),
        ("   ## a ##  ", [(2, "a", 1, True)]),
        ("## a #b", [(2, "a #b", 1, True)]),
        ("# a \\#", [(1, "a \\#", 1, True)]),
        ("    # a", []),
        ("x\n    # a", []),
        ("\t# a", []),
        ("a\nb\n===\nc\n---\n", [(1, "a b", 1, True), (2, "c", 4, True)]),
        ("a\n\n---\n", []),
        ("- a\n---\n", []),
        ("> a\n---\n", []),
        ("> a\nb\n===\n", []),
        ("> # a\n> b\n> ===", [(1, "a", 1, False), (1, "b", 2, False)]),
        ("- # a\n  - ## b", [(1, "a", 1, False), (2, "b", 2, False)]),
        ("1. a\n\n   # b\n", [(1, "b", 3, False)]),
        ("> - a\n>   # b\n# c", [(1, "b", 2, False), (1, "c", 3, True)]),
        ("```\n# a\n```\n# b", [(1, "b", 4, True)]),
        ("~~~~\n# a\n~~~\n~~~~~\n# b", [(1, "b", 5, True)]),
        ("> ```\n> # a\n# b", [(1, "b", 3, True)]),
        ("- ```\n  # a\n\n  # b\n  ```\n# c", [(1, "c", 6, True)]),
        ("```\n# never closed", []),
        ("<div>\n# a\n\n# b", [(1, "b", 4, True)]),
        ("<!--\n# a\n\n-->\n# b", [(1, "b", 5, True)]),
        ("<script>\n\n# a\n</script>\n# b", [(1, "b", 5, True)]),
        ("text\n<span>\n# b", [(1, "b", 3, True)]),
        ("%%\n# a\n%%\n# b", [(1, "b", 4, True)]),
        ("%% x %%\n# a", [(1, "a", 2, True)]),
        ("%%\n# a", [(1, "a", 2, True)]),
        ("[a]: /b\n===\n", []),
        ("[a]: /b 'c'\nd\n===\n", [(1, "d", 1, True)]),
        ("| a | b |\n|---|---|\n| c | d |\n---\n", []),
        ("a | b\n---\n", [(2, "a | b", 1, True)]),
    ],
)
def test_headings_are_those_of_commonmark(text, found):
    assert headings(text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("    [[a]]", []),
        ("a\n    [[b]]", ["b"]),
        ("- a\n\n      [[b]]", []),
        ("- a\n\n    [[b]]", ["b"]),
        ("-\t\t[[a]]", []),
        (">\t\t[[a]]", []),
        ("1. a\n\n\t[[b]]", ["b"]),
        ("> [[a]]\n[[b]]", ["a", "b"]),
        ("<div>[[a]]</div>\n\n[[b]]", ["b"]),
        ("a <b>[[c]]</b>", ["c"]),
        ("%%\n[[a]]\n- [[b]]\n%%", ["a", "b"]),
        ("%%\n```\n[[a]]\n```\n%%\n[[b]]", ["b"]),
        ("[a]: [[b]]\n\n[^1]: [[c]]", ["c"]),
        ("| [[a]] | `b |\n|---|---|\n| c` | [[d]] |", ["a", "d"]),
    ],
)
def test_links_are_found_in_running_text_only(text, found):
    assert links(text) == found


def test_deeper_nesting_than_anyone_writes_is_read_as_text():
    deep = parse(NotePath("a.md"), ">" * 1000 + " # a [[b]]\n# c\n")
    assert [(h.text, h.top) for h in deep.headings] == [("c", True)]
    assert [link.target for link in deep.links] == ["b"]
