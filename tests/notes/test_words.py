"""Words for finding, and the sentences round links."""

import pytest

from notewright.notes.mentions import find_mentions
from notewright.notes.parse.parser import parse
from notewright.notes.path import NotePath
from notewright.notes.words import drop_question_frame, index_words, query_words


def test_cjk_runs_become_overlapping_pairs_and_the_rest_stays():
    assert index_words("plain text") == "plain text"
    assert index_words("Straße") == "Straße"
    assert index_words("知识管理").split() == ["知识", "识管", "管理"]
    assert index_words("用Obsidian写").split() == ["用", "Obsidian", "写"]
    assert index_words("カタカナと한국어").split() == ["カタ", "タカ", "カナ", "ナと", "と한", "한국", "국어"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The tea, the TEA!", ["the", "tea"]),
        ("snake_case don't", ["snake", "case", "don", "t"]),
        ("知识管理 notes", ["知识", "识管", "管理", "notes"]),
        ("用Obsidian", ["用", "obsidian"]),
        ("Привет, café", ["привет", "café"]),
        ("", []),
    ],
)
def test_a_question_is_cut_as_the_index_is(text, words):
    assert query_words(text) == words
    assert set(words) <= set(query_words(index_words(text)))


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("What do my notes say about Green Tea?", ["green", "tea"]),
        ("What do my notes say about 油猴脚本？", ["油猴", "猴脚", "脚本"]),
        ("what do my notes say", ["what", "do", "my", "notes", "say"]),
        ("What is there?", ["what", "is", "there"]),
    ],
)
def test_the_frame_of_a_question_is_dropped(question, words):
    assert drop_question_frame(question) == words


def sentences(text: str) -> list[tuple[str, str]]:
    return [(mention.link.target, mention.sentence) for mention in find_mentions(parse(NotePath("a.md"), text))]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Start. See [[a|the A]] now. End.", [("a", "See the A now.")]),
        ("One [[a]] and [[b#c]].", [("a", "One a and b > c."), ("b", "One a and b > c.")]),
        ("**Bold** [x](b.md) at\nthe [site](http://x.y/z). More.", [("b.md", "Bold x at the site.")]),
        ("- [ ] do [[a]]\n- other", [("a", "do a")]),
        ("| [[a\\|b]] | c |\n|---|---|\n| d | [[e]] |", [("a", "| b | c |"), ("e", "| d | e |")]),
        ("第一句。看[[甲]]吧。第三句。", [("甲", "看甲吧。")]),
        ("Dr. Who [[a]] e.g. this.", [("a", "Who a e.g. this.")]),
        ('---\nup: "[[t]]"\n---\ntext', []),
        ("# See [[a]]\n\ntext", [("a", "See a")]),
    ],
)
def test_a_mention_is_the_sentence_round_a_link(text, found):
    assert sentences(text) == found


def test_a_sentence_without_end_is_cut_round_the_link():
    ((_, sentence),) = sentences("word " * 10_000 + "[[a]]" + " word" * 10_000)
    assert len(sentence) < 1_000
    assert " a " in sentence
