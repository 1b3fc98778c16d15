"""What is shown of a long text: around a place, or from its beginning, cut at sentence ends."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notewright.notes.excerpts import (
    MAX_LINE_CHARS,
    MAX_PLACE_CHARS,
    MAX_SENTENCE_CHARS,
    Excerpt,
    excerpt_line,
    shorten_text,
    shorten_to_sentence,
)


def around(text: str, place: str) -> Excerpt:
    start = text.index(place)
    return shorten_to_sentence(excerpt_line(text, start, start + len(place)))


def test_a_short_line_is_shown_whole() -> None:
    assert around("one\n  - see [[Tea]] first\nthree", "[[Tea]]").with_marks == "- see [[Tea]] first"


def test_of_a_long_line_the_sentence_around_the_link_is_shown() -> None:
    filler = "This sentence says nothing about it at all, and says so at length. " * 6
    shown = around(f"{filler}Water comes before [[Tea]] here. {filler}", "[[Tea]]")
    assert shown.with_marks == "…Water comes before «[[Tea]]» here.…"


def test_chinese_sentences_end_without_blanks() -> None:
    filler = "这是一个很长的句子没有说任何关于它的事情。" * 30
    assert around(f"{filler}先烧水再泡[[茶]]喝。{filler}", "[[茶]]").with_marks == "…先烧水再泡«[[茶]]»喝。…"


def test_of_a_long_sentence_the_words_around_the_link_are_shown() -> None:
    shown = around("before " * 200 + "[[Tea]]" + " after" * 200, "[[Tea]]")
    assert shown.with_marks.startswith("…before ") and shown.with_marks.endswith(" after…")
    assert "before «[[Tea]]» after" in shown.with_marks and len(shown.text) <= MAX_SENTENCE_CHARS


def test_a_full_stop_inside_a_link_does_not_cut_it() -> None:
    link = "[[Dr. Who. Or. What]]"
    assert f"«{link}»" in around("x " * 300 + link + " y" * 300, link).with_marks


def test_a_link_over_two_lines_is_shown_on_one() -> None:
    assert (
        around("- see [the\ntea](Tea.md) now\nnext", "[the\ntea](Tea.md)").with_marks == "- see [the tea](Tea.md) now"
    )


def test_a_link_longer_than_what_is_shown_is_whole_up_to_a_bound() -> None:
    long, endless = f"[{'a' * 600}](Tea.md)", f"[{'a' * 10_000}](Tea.md)"
    assert around(f"see {long} now", long).with_ellipses == f"…{long}…"
    assert len(around(endless, endless).with_ellipses) <= MAX_PLACE_CHARS + 2


@given(
    st.text("ab. \n!。[]", max_size=900), st.text("x. ", min_size=1, max_size=60), st.text("ab. \n!。[]", max_size=900)
)
def test_the_place_is_always_whole_and_the_rest_bounded(before: str, place: str, after: str) -> None:
    line = excerpt_line(before + place + after, len(before), len(before) + len(place))
    assert len(line.text) <= MAX_LINE_CHARS
    for shown in (line, shorten_to_sentence(line)):
        assert shown.text[shown.start : shown.end] == place and "\n" not in shown.text
    assert len(shorten_to_sentence(line).text) <= MAX_SENTENCE_CHARS


@pytest.mark.parametrize("size", [8_000_000])
def test_one_line_of_many_megabytes_costs_no_more_than_a_short_one(size: int) -> None:
    hostile = "!" * size + "[[Tea]]" + "!" * size
    began = time.process_time()
    for _ in range(1_000):
        shorten_to_sentence(excerpt_line(hostile, size, size + 7))
    assert time.process_time() - began < 5  # a millisecond each would be 1 s; one pass over the line each 10 s


def test_a_beginning_ends_with_a_sentence_or_a_line() -> None:
    assert shorten_text("One sentence here. Another one there. A third that does not fit.", 45) == (
        "One sentence here. Another one there."
    )
    assert shorten_text("- one item here\n- another item\n- a third", 32) == "- one item here\n- another item"
    assert shorten_text("一句话在这里。另一句话在那里。第三句话放不下了。", 16) == "一句话在这里。另一句话在那里。"


@given(st.text("ab. \n!。", max_size=300), st.integers(1, 200))
def test_a_beginning_fits_and_is_what_the_text_begins_with(text: str, most: int) -> None:
    shown = shorten_text(text, most)
    assert len(shown) <= most and text.startswith(shown)


@given(st.text("ab", min_size=1, max_size=8), st.integers(40, 400))
def test_a_beginning_fills_most_of_the_room_whatever_the_text(word: str, most: int) -> None:
    for text in (f"{word} " * 200, word * 200, f"{word}. {word.upper()} " * 100):
        assert len(shorten_text(text, most)) >= min(most * 0.7, len(text.rstrip())) - 1
