"""Narrowing never leaves out a note that matches."""

import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest
import re2
import regex
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.index.parts import file, filing, sqlite_index

from notewright.index.base import Needles
from notewright.index.sqlite.grep_candidates import EQUALIZER, UNSURE
from notewright.index.sqlite.index import SqliteIndex
from notewright.index.sqlite.schema import create_index

# Letters that meet in odd ways: accents, combining marks, CJK and its radicals, several cases of one letter,
# letters newer than the tokenizer, signs that part words and signs that do not.
LETTERS = "abcsSkKiIıİſKßẞéÉe\u0301\u0345ιΙσςΣµμвВᲀаАꭰᎠ茶学习⺀かが\u3099ー_-.#/ \n'’\u200b０Ａａ①Ⅷﬁ🦄"
TEXTS = st.text(st.sampled_from(LETTERS), max_size=40)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqliteIndex]:
    made = sqlite_index(tmp_path_factory.mktemp("index"))
    yield made
    made.close()


def looked_at(index: SqliteIndex, *groups: tuple[str, ...]) -> set[str]:
    return {body.path for batch in index.bodies(Needles(groups)) for body in batch}


@settings(max_examples=300, deadline=None)
@example(text="αᾳβ", start=0, end=3, fold=str.upper)
@given(
    text=TEXTS,
    start=st.integers(0, 39),
    end=st.integers(0, 40),
    fold=st.sampled_from((str, str.lower, str.upper, str.title, str.swapcase)),
)
def test_a_note_that_holds_a_piece_is_always_looked_at(
    index: SqliteIndex, text: str, start: int, end: int, fold: type[str]
) -> None:
    """Whatever a pattern with case ignored takes as equal, the narrowed search must look at."""
    piece = fold(text[start:end])
    index.file(drop=[path for path, _ in index.stamps()], filings=[])
    file(index, {"A.md": text, "B.md": "other words"})
    if piece and regex.search(regex.escape(piece), text, regex.IGNORECASE):
        assert "A.md" in looked_at(index, (piece,))


@settings(max_examples=100, deadline=None)
@given(
    texts=st.lists(TEXTS, max_size=8), groups=st.lists(st.lists(TEXTS.filter(bool), min_size=1, max_size=2), max_size=2)
)
def test_narrowing_agrees_with_a_plain_scan(index: SqliteIndex, texts: list[str], groups: list[list[str]]) -> None:
    notes = {f"{number}.md": text for number, text in enumerate(texts)}
    index.file(drop=[path for path, _ in index.stamps()], filings=[])
    file(index, notes)
    scanned = {path for path, text in notes.items() if all(any(piece in text for piece in group) for group in groups)}
    assert scanned <= looked_at(index, *map(tuple, groups))


def test_few_notes_are_looked_at_for_a_rare_piece(tmp_path: Path) -> None:
    texts: dict[str, str | None] = {f"{number}.md": f"common words number{number}" for number in range(300)}
    index = sqlite_index(tmp_path / "index", texts)
    assert looked_at(index, ("x77 ",)) == set()
    assert looked_at(index, ("mber77",)) == {"77.md"}
    assert looked_at(index, ("words number12",)) == {"12.md", *(f"12{digit}.md" for digit in range(10))}
    assert len(looked_at(index, ("common",))) == 300
    assert looked_at(index, ("absent", "ber7")) == {"7.md", *(f"7{digit}.md" for digit in range(10))}
    index.close()


def test_words_learned_a_moment_ago_are_known(tmp_path: Path) -> None:
    first = sqlite_index(tmp_path / "index", {f"{number}.md": "plain" for number in range(300)})
    assert looked_at(first, ("zepp",)) == set()
    second = SqliteIndex(tmp_path / "index")
    file(second, {"New.md": "A zeppelin."})
    assert looked_at(first, ("zepp",)) == {"New.md"}
    first.close()
    second.close()


def test_words_of_an_index_that_was_swapped_out_are_not_taken_for_those_of_the_new_one(tmp_path: Path) -> None:
    index = sqlite_index(tmp_path / "index", {f"{number}.md": f"plain{number}" for number in range(300)})
    old = index._connections._acquire(index._connections.generations.ensure_current())
    with index.rebuild(300) as new:
        new.file(filing(f"{number}.md", f"zeppelin{number}") for number in range(300))
        new.finish()
        new.swap(lambda touched: [])
    index._words(old).read_lines(old)  # a question that began before the swap
    assert looked_at(index, ("pelin77",)) == {"77.md"}
    old.close()
    index.close()


@pytest.mark.slow
def test_every_pair_of_characters_that_patterns_take_as_equal_is_known(tmp_path: Path) -> None:
    """All of Unicode that has case in either engine that patterns run in."""
    cased = "".join(char for char in map(chr, range(1, sys.maxunicode + 1)) if regex.match(r"[\p{Cased}\p{M}]", char))
    cut = create_index(tmp_path / "index.db").tokenize

    def made(char: str) -> str:
        return "".join(cut(f"a{char}a")).translate(EQUALIZER)

    options = re2.Options()
    options.case_sensitive = False
    assert len(cased) > 4_000
    for char in cased:
        same = {*regex.findall(char, cased, regex.IGNORECASE), *re2.compile(char, options).findall(cased)}
        known = char in UNSURE or unicodedata.category(char) == "Cn"
        assert known or {made(other) for other in same} == {made(char)}, (hex(ord(char)), same)
