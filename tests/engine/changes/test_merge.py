"""A change of ours and somebody else's text."""

import pytest

from notewright.engine.changes.merge import has_change, has_lost_place, merge_change, without_change


@pytest.mark.parametrize(
    ("before", "after", "theirs", "together"),
    [
        ("a\nb\n", "a\nB\n", "top\na\nb\n", "top\na\nB\n"),  # at different places
        ("see [[Old]] now\n", "see [[New]] now\n", "please see [[Old]] now\n", "please see [[New]] now\n"),
        ("a\n", "a\nours\n", "a\nours\ntheirs\n", "a\nours\ntheirs\n"),  # it is in there already
        ("end\n", "end\nours\n", "END\nours\n", "END\nours\n"),
        ("a\nours\n", "a\n", "A\n", "A\n"),  # it is out of there already
        ("end\n", "end ours\n", "start ours\n", "start ours\n"),
        ("a\nlast\n", "a\nlast\nours\n", "a\nother", "a\nother\nours\n"),  # two lines do not become one
        ("a\r\nlast\r\n", "a\r\nlast\r\nours\r\n", "a\r\nother", "a\r\nother\r\nours\r\n"),
        ("one\n", "two\n", "three\n", None),
        ("a\n", "a\nours\n", "a\ntheirs\n", None),
    ],
)
def test_a_change_is_in_the_merged_text_once(before: str, after: str, theirs: str, together: str | None) -> None:
    found = merge_change(before.encode(), after.encode(), theirs.encode())
    assert (None if found is None else found.decode()) == together


def test_what_is_not_text_is_not_merged() -> None:
    assert merge_change(b"a\n", b"b\n", b"\xff\n") is None


def test_a_place_is_gone_when_neither_the_old_words_nor_ours_are_there() -> None:
    before, after = b"see [[Old]]\n", b"see [[New]]\n"
    assert has_lost_place(before, after, b"something else\n")
    assert not has_lost_place(before, after, b"see [[Old|it]]\n")
    assert not has_lost_place(before, after, b"see [[New|it]]\n")
    assert not has_lost_place(b"a\n", b"a\nours\n", b"b\n"), "what only adds has its place anywhere"
    assert has_lost_place(before, after, b"see, and see again\n"), "words that our change leaves alone say nothing"


@pytest.mark.parametrize(
    ("before", "after", "theirs", "there"),
    [
        ("a\n", "a\nours\n", "b\nours\n", True),
        ("a\n", "a\nours\n", "b\n", False),
        ("see [[Old]]\n", "see [[New]]\n", "really see [[New]] now\n", True),  # only the words say
        ("see [[Old]]\n", "see [[New]]\n", "really see [[Old]] now\n", False),
        ("a b\n", "b a\n", "top\nb a\n", True),  # only the lines say
        ("a b\n", "b a\n", "top\na b\n", False),
        ("one\n", "two\n", "three\n", None),
        ("x\n", "x\nx\n", "x\nx y\n", None),  # lines say no, words say yes
    ],
)
def test_lines_and_words_say_whether_a_change_is_in_a_text(
    before: str, after: str, theirs: str, there: bool | None
) -> None:
    assert has_change(before.encode(), after.encode(), theirs.encode()) is there


def test_a_change_is_taken_back_only_where_it_is_certain_what_is_left() -> None:
    assert without_change(b"a\nb\n", b"A\nb\n", b"A\nB\n") == b"a\nB\n"
    assert without_change(b"a\nb\nc\n", b"A\nb\nc\n", b"a\nb\nC\n") == b"a\nb\nC\n", "it was taken back by hand"
    assert without_change(b"text\n", b"x\n", b"x\nx\n") is None, "which one was the text?"
    assert without_change(b"a\n", b"b\n", b"\xff\n") is None
