"""Sections, and which heading is meant."""

import pytest

from notewright.notes.parse.headings import HeadingRule, find_section, heading_key, list_sections
from notewright.notes.parse.parser import parse
from notewright.notes.path import NotePath

GUIDE = """# Guide

## Start

### First step

one

## Later

### First step

two

# C# basics & more

## See [[Other|that]]
"""


def line(text: str, wanted: str, rule: HeadingRule = HeadingRule.OBSIDIAN) -> int | None:
    section = find_section(parse(NotePath("a.md"), text), wanted, rule)
    return section.heading.line if section else None


def test_a_section_runs_to_the_next_heading_of_the_same_or_a_higher_level():
    read = parse(NotePath("a.md"), GUIDE)
    found = [(section.heading.text, section.heading.line, section.end_line) for section in list_sections(read)]
    assert found == [
        ("Guide", 1, 15),
        ("Start", 3, 9),
        ("First step", 5, 9),
        ("Later", 9, 15),
        ("First step", 11, 15),
        ("C# basics & more", 15, 18),
        ("See [[Other|that]]", 17, 18),
    ]
    start = list_sections(read)[1]
    assert GUIDE[start.start : start.body] == "## Start\n"
    assert GUIDE[start.body : start.end] == "\n### First step\n\none\n\n"


@pytest.mark.parametrize("text", ["# a\nb", "# a\nb\n", "# a\r\nb\r\n"])
def test_the_last_section_ends_after_the_last_line(text):
    (section,) = list_sections(parse(NotePath("a.md"), text))
    assert (section.end, section.end_line) == (len(text), 3)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("Start", 3),
        ("#start", 3),
        ("First step", 5),
        ("#First  STEP", 5),
        ("#Later#First step", 11),
        ("Later > First step", 11),
        ("#Guide#First step", 5),
        ("Guide > Later > First step", 11),
        ("#C# basics & more", 15),
        ("C basics more", 15),
        ("#See Other that", 17),
        ("See that", 17),
        ("Missing", None),
        ("Start > Later", None),
        ("", None),
        ("#", None),
    ],
)
def test_obsidians_rule_ignores_case_and_special_characters_and_follows_chains(wanted, found):
    assert line(GUIDE, wanted) == found


@pytest.mark.parametrize(
    ("wanted", "found"),
    [("tea", 3), ("TEA", 1), ("Tea", 2), ("tEA", 1), ("## tea", 3), ("tea ##", 3), (" Tea ", 2), ("coffee", None)],
)
def test_exact_text_goes_before_other_case(wanted, found):
    assert line("# TEA\n# Tea\n## tea\n", wanted, HeadingRule.EXACT_THEN_FOLDED) == found


@pytest.mark.parametrize(
    ("wanted", "found"), [("Intro", 1), ("## Intro", 2), ("# Intro", 1), ("### Intro", None), ("intro", None)]
)
def test_the_exact_rule_takes_a_level(wanted, found):
    assert line("# Intro\n## Intro\n", wanted, HeadingRule.EXACT) == found


def test_a_heading_key_forgets_marks_blanks_and_case():
    assert heading_key("A:  **Big** [Deal]!") == heading_key("a big deal") == "a big deal"
    assert heading_key("Cafe\u0301") == heading_key("café")
