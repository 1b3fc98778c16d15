"""Finds the notes that can contain a piece of text, by the words of the index alone: so that few texts are searched.

A piece is tokenized as notes are. A word in the middle of a piece is a whole word of the note; one at its edge may be
part of a longer word, so every word of the vocabulary that contains it there counts. Case and accents are folded by the
tokenizer itself; characters that are equal to a pattern but not to the tokenizer are made equal on both sides, or the
piece is split at them. No note with a match may ever be left out; a few too many do no harm.
"""

import json
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

from notewright.index.base import Body, Needles, Visibility
from notewright.index.sqlite.schema import NOTHING, Connection
from notewright.index.sqlite.vocabulary import Vocabulary, find_words_with
from notewright.notes.path import NotePath
from notewright.notes.words import index_words

NARROWING_SHARE = 10  # narrowing pays when fewer than one note in so many is left
MAX_WORDS_PER_PIECE = 400  # of the vocabulary for one piece of a word; more would not narrow


def find_candidates(
    con: Connection, vocabulary: Vocabulary, needles: Needles, folder: str, visible: Visibility
) -> list[int]:
    """The notes to search, by path. The condition names only paths, so that SQLite reads only their index."""
    con.variants = {}
    where, values, sees = "f.path like '%.md'", list[object](), visible.test
    narrowed = _narrow(con, vocabulary, needles)
    if narrowed is not None:
        where, values = where + " and f.id in (select value from json_each(?))", [json.dumps(narrowed)]
    if folder:
        where, values = where + " and f.path >= ? and f.path < ?", [*values, folder + "/", folder + "0"]
    rows = con.rows(f"select f.id, f.path from files f where {where} order by f.path", values)
    return [note for note, path in rows if sees is None or sees(path)]


def read_bodies(con: Connection, notes: Sequence[int]) -> list[Body]:
    """Read texts in this order, without sorting: to sort, SQLite would copy every text."""
    rows = con.rows(
        """select f.path, cast(t.text as blob), f.modified, f.size from json_each(?) e
        cross join files f on f.id = e.value cross join texts t on t.id = e.value""",
        (json.dumps(notes),),
    )
    return [Body(NotePath(path), data, modified, size) for path, data, modified, size in rows]


def _narrow(con: Connection, vocabulary: Vocabulary, needles: Needles) -> list[int] | None:
    """The notes that can match; None if too many for narrowing to pay."""
    groups = [group for group in needles.groups if group]
    if not groups:
        return None
    lines = vocabulary.read_lines(con)
    equalized = vocabulary.read_equalized_lines(EQUALIZER)
    conditions = []
    for group in groups:
        members = [_make_condition(con, lines, equalized, piece) for piece in group]
        known = [member for member in members if member is not None]
        if len(known) == len(members):
            conditions.append("(" + ") OR (".join(known) + ")")
    if not conditions:
        return None
    most = vocabulary.notes(con) // NARROWING_SHARE + 20
    expression = "(" + ") AND (".join(conditions) + ")"
    rows = con.rows("select rowid from words where words match ? limit ?", (expression, most + 1))
    notes = [note for (note,) in rows]
    return notes if len(notes) <= most else None


def _make_condition(con: Connection, lines: str, equalized: str, piece: str) -> str | None:
    """An FTS5 expression for the notes that can contain `piece`; None if any note can."""
    conditions = []
    for wanted in list_word_pieces(con, piece):
        words = find_words_with(lines, wanted, MAX_WORDS_PER_PIECE + 1, equalized)
        if len(words) > MAX_WORDS_PER_PIECE:
            continue
        if not words:
            return NOTHING
        conditions.append(" OR ".join(f'"{word}"' for word in words))
    return "(" + ") AND (".join(conditions) + ")" if conditions else None


def list_word_pieces(con: Connection, piece: str) -> list[str]:
    """The pieces of words that a note with `piece` must have; a line end in one is the edge of a word."""
    found: list[str] = []
    for part in _split_at_unsure_characters(piece):
        runs = _split_by_script(part)
        for number, (cjk, run) in enumerate(runs):
            first, last = number == 0, number == len(runs) - 1
            found += _list_pairs(con, run, first or last) if cjk else _list_words(con, run, first, last)
    return list(dict.fromkeys(word.translate(EQUALIZER) for word in found))


def _split_at_unsure_characters(piece: str) -> list[str]:
    """Split a piece at characters that equal others in a way the index does not know."""
    parts = [""]
    for char in piece:
        if (
            char in UNSURE or unicodedata.category(char) == "Cn"
        ):  # unassigned in Python's Unicode: it may equal anything
            parts.append("")
        else:
            parts[-1] += char
    return parts


def _split_by_script(part: str) -> list[tuple[bool, str]]:
    """Split into runs of CJK, which are indexed as pairs, and of other characters: the index separates them."""
    runs: list[tuple[bool, str]] = []
    for char in part:
        if runs and runs[-1][0] == _is_cjk(char):
            runs[-1] = (runs[-1][0], runs[-1][1] + char)
        else:
            runs.append((_is_cjk(char), char))
    return runs


@lru_cache(maxsize=8192)
def _is_cjk(char: str) -> bool:
    return index_words(char) != char


def _list_pairs(con: Connection, run: str, edge: bool) -> list[str]:
    """The CJK pairs of a run, each a whole word. A single character at the edge may be either half of a pair."""
    if len(run) == 1 and edge:
        return con.tokenize(run)
    pairs = [run[at : at + 2] for at in range(len(run) - 1)] or [run]
    return [f"\n{word}\n" for pair in pairs for word in con.tokenize(pair)]


def _list_words(con: Connection, run: str, first: bool, last: bool) -> list[str]:
    """The words of other scripts. Only the first and the last of a part can be parts of longer words."""
    tokens = con.tokenize_with_places(run)
    found = []
    for number, (start, end, word) in enumerate(tokens):
        begins = first and number == 0 and not _ends_a_word(con, run[:start])
        ends = last and number == len(tokens) - 1 and not _ends_a_word(con, run[end:])
        found.append(("" if begins else "\n") + word + ("" if ends else "\n"))
    return found


def _ends_a_word(con: Connection, text: str) -> bool:
    """Whether the text certainly separates two words."""
    return len(con.tokenize(f"a{text}a")) > 1


# ---- characters that patterns take as equal -------------------------------------------------------------

UNSURE = frozenset("\u0345\u0399\u03b9\u1fbe")  # equal, but the tokenizer drops the first, a combining iota
_NOT_FOLDED_BY_PYTHON = {  # and what it equals: since a later Unicode, or in some engines only
    0x131: "i", 0x1DF95: "\xdf", 0x1FD3: "\u0390", 0x1FE3: "\u03b0", 0xFB06: "\ufb05", 0xA7CB: "\u0264",
    0xA7D2: "\ua7d3", 0xA7D4: "\ua7d5", 0xA7DC: "\u019b", 0xA7DD: "\u0277", 0xA7E2: "\u027c", 0xAB6C: "\uab4b",
    0xAB6D: "\uab4c",
}  # fmt: skip


class _Equalizer(dict[int, str]):
    """A table for `str.translate`: of characters that are equal but for case each becomes the same one. Computed and
    kept on first use."""

    def __missing__(self, code: int) -> str:
        folded = chr(code).casefold()
        self[code] = folded if len(folded) == 1 else chr(code)
        return self[code]


EQUALIZER = _Equalizer(_NOT_FOLDED_BY_PYTHON)
