"""Properties: where they stand, what they say, and what is refused."""

import pytest

from notewright.notes.model import Frontmatter
from notewright.notes.parse.parser import parse
from notewright.notes.path import NotePath


def front(inner: str) -> Frontmatter:
    return parse(NotePath("a.md"), f"---\n{inner}\n---\nBody\n").frontmatter


@pytest.mark.parametrize(
    ("yaml", "properties"),
    [
        ("a: text\nb: 1\nc: 1.5\nd: true\ne:\nf: ~", {"a": "text", "b": 1, "c": 1.5, "d": True, "e": None, "f": None}),
        (
            "a: 2024-01-02\nb: 2024-01-02T03:04:05Z\nc: 12:30",
            {"a": "2024-01-02", "b": "2024-01-02T03:04:05Z", "c": "12:30"},
        ),
        ("a: yes\nb: no\nc: on", {"a": "yes", "b": "no", "c": "on"}),
        ("a: 09\nb: 007\nc: 0\nd: 0.5", {"a": "09", "b": "007", "c": 0, "d": 0.5}),
        ("a: 0o17\nb: 0x1F\nc: 1e3", {"a": 15, "b": 31, "c": 1000.0}),
        ("a: {{date}}\nb: {{time}} {{x}}\nc:\n  - {{y}}\nd: {e: f}", None),
        ("a: .inf\nb: -.inf\nc: .nan", {"a": ".inf", "b": "-.inf", "c": ".nan"}),
        ("a: |\n  x\n  y\nb: >\n  x\n  y", {"a": "x\ny\n", "b": "x y\n"}),
        ("a: &x 1\nb: *x", {"a": 1, "b": 1}),
        ("7: a\ntrue: b\n~: c\n[d]: e", {"7": "a", "true": "b", "null": "c", '["d"]': "e"}),
        ("a: !mine b", {"a": "b"}),
        ("a: [[x]]", {"a": [["x"]]}),
        ('{"a": [1, {"b": null}]}', {"a": [1, {"b": None}]}),
        ('{"\\ud800": "x\\udc00"}', {"\ufffd": "x\ufffd"}),
        ("# only a comment", {}),
        ("", {}),
    ],
)
def test_properties_are_yaml_1_2_with_dates_as_text(yaml, properties):
    read = front(yaml)
    if properties is None:
        properties = {"a": "{{date}}", "b": "{{time}} {{x}}", "c": ["{{y}}"], "d": {"e": "f"}}
    assert (read.properties, read.problem) == (properties, None)


LONG = "12345678901234567890"  # more than a number of YAML's readers holds


@pytest.mark.parametrize(
    ("yaml", "properties"),
    [
        (f"a: {LONG}", {"a": LONG}),
        (f"a: [{LONG}, -{LONG}]", {"a": [LONG, f"-{LONG}"]}),
        ("a: 1234567890123456789\nb: 0", {"a": 1234567890123456789, "b": 0}),
        ('a: 09 # note\nb: +09\n"c d": 09', {"a": "09", "b": "+09", "c d": "09"}),
        ("09: a\n9: 09:30", {"09": "a", "9": "09:30"}),
        ("a: [09, x, {b: 010}]", {"a": ["09", "x", {"b": "010"}]}),
        ("a:\n  09\nb:\n- 09 # note", {"a": "09", "b": ["09"]}),
        ('"a": {{x}}\nb: [{{y}}, z]', {"a": "{{x}}", "b": ["{{y}}", "z"]}),
    ],
)
def test_a_number_that_would_lose_digits_and_a_template_mark_stay_text_wherever_they_stand(yaml, properties):
    assert front(yaml).properties == properties


@pytest.mark.parametrize(
    ("yaml", "properties"),
    [
        ("a: |-\n  {{x}}\n  09\n  b: 09\nc: 09", {"a": "{{x}}\n09\nb: 09", "c": "09"}),
        ("a: x\n  09\n  [09]", {"a": "x 09 [09]"}),
        ("a: 'x\n  b: 09\n  y'\nc: 09", {"a": "x b: 09 y", "c": "09"}),
        ('a: "x\n  b: 09\n  y"', {"a": "x b: 09 y"}),
    ],
)
def test_lines_within_a_text_of_several_lines_stay_as_they_are(yaml, properties):
    read = front(yaml)
    assert (read.properties, read.problem) == (properties, None)


@pytest.mark.parametrize(
    "yaml",
    ["a: b: c", "- a\n- b", "text", "a: [", "a: 'x", "a:\n  - b\n - c", "a: 1\na: 2", "a: \x00b", "a: b\n...\nc: d"],
)
def test_what_cannot_be_read_is_reported_and_the_body_stays(yaml):
    read = parse(NotePath("a.md"), f"---\n{yaml}\n---\n# H\n")
    assert read.frontmatter.present
    assert read.frontmatter.problem
    assert read.frontmatter.properties == {}
    assert read.body == "# H\n"
    assert [heading.line for heading in read.headings] == [yaml.count("\n") + 4]


def test_the_block_stands_between_its_fences():
    text = "---  \na: 1\n--- \nBody\n"
    read = parse(NotePath("a.md"), text).frontmatter
    assert text[read.start : read.end] == "---  \na: 1\n--- \n"
    assert text[read.inner_start : read.inner_end] == "a: 1\n"


@pytest.mark.parametrize(
    "text",
    ["", "a\n---\nb: 1\n---\n", "----\na: 1\n----\n", "---\na: 1\n", " ---\na: 1\n---\n", "***\na: 1\n***\n", "---"],
)
def test_only_two_fences_at_the_very_start_make_a_block(text):
    read = parse(NotePath("a.md"), text).frontmatter
    assert (read.present, read.start, read.end) == (False, 0, 0)


def test_an_empty_block_is_a_block():
    read = parse(NotePath("a.md"), "---\n---\nBody").frontmatter
    assert (read.present, read.end, read.properties, read.problem) == (True, 8, {}, None)


def laughs(levels: int) -> str:
    lines = ['a0: &a0 ["ha", "ha"]']
    lines += [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]" for level in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    "yaml",
    [
        laughs(9),
        "? " * 100_000,
        "- " * 100_000,
        ": " * 100_000,
        "a: " + "[" * 100_000,
        "a: " + "{" * 100_000,
        "\n".join(" " * depth + "a:" for depth in range(1_000)),
        "\n".join(" " * depth + "- ? a" for depth in range(1_000)),
        "a: " + "x" * 2_000_000,
    ],
    ids=["laughs", "keys", "items", "values", "flow lists", "flow maps", "blocks", "mixed", "long"],
)
def test_a_bomb_is_refused(yaml):
    assert front(yaml).problem


def test_a_few_aliases_are_fine():
    assert front("a: &x [1, 2]\nb: [*x, *x, *x]\nc: *x").properties["b"] == [[1, 2]] * 3


def test_stars_and_ampersands_in_text_are_no_aliases():
    text = "a: |\n" + "  R&D *stars* * bullets &\n" * 200
    assert front(text).problem is None
