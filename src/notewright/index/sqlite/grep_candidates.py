"""Finds the notes that can contain a piece of text, by the words of the index alone: so that few texts are searched.

A piece is tokenized as notes are. A word in the middle of a piece is a whole word of the note; one at its edge may be
part of a longer word, so every word of the vocabulary that contains it there counts. Case and accents are folded by the
tokenizer itself; characters that are equal to a pattern but not to the tokenizer are made equal on both sides, or the
piece is split at them. No note with a match may ever be left out; a few too many do no harm.
"""

import json
import unicodedata
from collections.abc import Callable, Sequence
from functools import lru_cache

from notewright.index.base import Body, Needles, Visibility
from notewright.index.sqlite.schema import NOTHING, Connection, make_plain_tokenizer
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
    equalized = vocabulary.read_equalized_lines(find_equalities()[0])
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
    equals, _ = find_equalities()
    return list(dict.fromkeys(word.translate(equals) for word in found))


def _split_at_unsure_characters(piece: str) -> list[str]:
    """Split a piece at characters that equal others in a way the index does not know."""
    _, alone = find_equalities()
    parts = [""]
    for char in piece:
        if char in alone or unicodedata.category(char) == "Cn":  # unassigned in Python's Unicode: it may equal anything
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

# Where characters have case; all others are equal to themselves alone. A test looks at every character there is.
_CASED = (
    (0x41, 0x5B), (0x61, 0x7B), (0xB5, 0x590), (0x10A0, 0x1100), (0x13A0, 0x1400), (0x1C80, 0x1CC0), (0x1D00, 0x2000),
    (0x2100, 0x2190), (0x24B6, 0x24EA), (0x2C00, 0x2E00), (0xA640, 0xA800), (0xAB30, 0xABC0), (0xFB00, 0xFB18),
    (0xFF21, 0xFF5B), (0x10400, 0x10600), (0x10C80, 0x10D90), (0x118A0, 0x118E0), (0x16E40, 0x16EE0),
    (0x1E900, 0x1E960),
)  # fmt: skip
_NEWER = (  # equal since a later Unicode than Python's, or in some engines only
    "\u019b\ua7dc", "\u0264\ua7cb", "\u0277\ua7dd", "\u027c\ua7e2", "\xdf\U0001df95", "\u0390\u1fd3", "\u03b0\u1fe3",
    "\ufb05\ufb06", "\ua7d3\ua7d2", "\ua7d5\ua7d4", "\uab4b\uab6c", "\uab4c\uab6d", "\u0130i",
    "\u0131i",
)  # fmt: skip


@lru_cache(maxsize=1)
def find_equalities() -> tuple[dict[int, str], frozenset[str]]:
    """The characters to replace in folded words so that equals are the same, and the characters at which to split a
    piece: the tokenizer takes some of their equals for letters and some not."""
    fold = make_plain_tokenizer()
    equals: dict[int, str] = {}
    alone: set[str] = set()
    for family in _list_case_families():
        folded = {_fold_character(fold, char) for char in family}
        if len(folded) > 1 and folded & {"", None}:
            alone |= family
        elif len(folded) > 1:
            chosen = min(word for word in folded if word)
            equals.update({ord(word): chosen for word in folded if word and word != chosen})
    return equals, frozenset(alone)


def _list_case_families() -> list[set[str]]:
    """Sets of characters that are equal but for case, directly or through others."""
    family: dict[str, set[str]] = {}
    pairs = [(char, other) for low, high in _CASED for char in map(chr, range(low, high))
             for other in (char.lower(), char.upper(), char.casefold(), char.title()) if len(other) == 1]  # fmt: skip
    for char, other in [*pairs, *((pair[0], pair[1]) for pair in _NEWER)]:
        members = family.get(char, {char}) | family.get(other, {other})
        family.update(dict.fromkeys(members, members))
    return [members for char, members in family.items() if char == min(members)]


def _fold_character(cut: Callable[[str], list[str]], char: str) -> str | None:
    """What the tokenizer folds a character inside a word to; None if it ends the word."""
    tokens = cut(f"a{char}a")
    return tokens[0][1:-1] if len(tokens) == 1 else None
