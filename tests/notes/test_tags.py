"""Tags: in text and in properties."""

import pytest

from notewright.notes.model import tag_key
from notewright.notes.parse.parser import parse
from notewright.notes.parse.tags import is_tag
from notewright.notes.path import NotePath


def tags(text: str) -> list[str]:
    return [tag.name for tag in parse(NotePath("a.md"), text).tags]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("#a #b/c #d-e #f_g", ["a", "b/c", "d-e", "f_g"]),
        ("#y1984 #1984 #1/2", ["y1984"]),
        ("#日本語 #😀 #étiquette #שלום", ["日本語", "😀", "étiquette", "שלום"]),
        ("#a.b #c, #d; #e) #f!", ["a", "c", "d", "e", "f"]),
        ("(#a) *#b* #c,#d", ["a", "b", "c", "d"]),
        ("x#a &#39; a/#b ##c", []),
        ("句子。#a", []),
        ("\\#a \\\\ #b", ["b"]),
        ("https://x.y/#a https://x.y?(#b", []),
        ("<https://x.y/ #a> <i title='#b'>", ["a"]),
        ("[[a#b]] [c](#d) [e](f.md#g)", []),
        ("`#a` <!-- #b --> %% #c %%", ["c"]),
        ("# a #b\n#c", ["b", "c"]),
        ("- [ ] #a\n- #b\n> #c", ["a", "b", "c"]),
        ("$ #a $", ["a"]),
        ("# \n#", []),
    ],
)
def test_tags_in_text(text, found):
    assert tags(text) == found


@pytest.mark.parametrize(
    ("yaml", "found"),
    [
        ("tags: [a, b/c]", ["a", "b/c"]),
        ("tags:\n  - a\n  - '#b'", ["a", "b"]),
        ("tags: a", ["a"]),
        ("tags: a, b c", ["a", "b", "c"]),
        ("tags: '#a #b'", ["a", "b"]),
        ("Tags: [a]", ["a"]),
        ("tags:", []),
        ("tags: ~", []),
        ("tags: true", []),
        ("tags: [{a: b}, [c], d]", ["d"]),
        ("tags: [2024, x]", ["2024", "x"]),
        ("tag: a", []),
        ("note: '#a'", []),
    ],
)
def test_tags_in_properties(yaml, found):
    assert tags(f"---\n{yaml}\n---\n") == found


def test_tags_in_properties_stand_where_they_are_written():
    text = "---\nnote: tea\ntags:\n  - a\n  - tea\n---\n#a"
    read = parse(NotePath("a.md"), text).tags
    assert [(tag.line, text[tag.start : tag.end]) for tag in read] == [(4, "a"), (5, "tea"), (7, "a")]


def test_a_tag_written_with_escapes_has_an_empty_span():
    (tag,) = parse(NotePath("a.md"), '---\ntags: ["\\x41"]\n---\n').tags
    assert (tag.name, tag.end - tag.start) == ("A", 0)


def test_two_spellings_of_a_tag_share_a_key():
    assert tag_key("#Tea/Green") == tag_key("tea/green") != tag_key("tea")


def test_a_name_is_a_tag_when_it_has_one_character_that_is_no_digit():
    assert [is_tag(name) for name in ("a", "1a", "1", "a b", "", "a/b")] == [True, True, False, False, False, True]
