"""Which notes can hold a piece of text, by the words of the index alone: so that few texts are searched.

A piece is cut into words as notes are. A word in the middle of a piece is a whole word of the note; one at its edge
may be part of a longer word, so all words of the vocabulary that hold it there will do. Case and accents are folded
by the tokenizer itself; characters that a pattern takes as equal and the tokenizer does not are made equal on both
sides, or break the piece. No note with a match may ever be left out; a few too many do no harm.
"""

import json
import unicodedata
from collections.abc import Callable, Sequence
from functools import lru_cache

from notewright.index.base import Body, Needles, Visibility
from notewright.index.sqlite.schema import NOTHING, Connection, plain_tokenizer
from notewright.index.sqlite.vocabulary import Vocabulary, words_with
from notewright.notes.path import NotePath
from notewright.notes.words import index_words

SHARE = 10  # narrowing pays when fewer than one in so many notes are left
MOST_WORDS = 400  # of the vocabulary for one piece of a word; more would not narrow


def candidates(
    con: Connection, vocabulary: Vocabulary, needles: Needles, folder: str, visible: Visibility
) -> list[int]:
    """The notes worth a look, by path. The condition says nothing but paths, so that only their index is read."""
    con.variants = {}
    where, values, sees = "f.path like '%.md'", list[object](), visible.test
    narrowed = _narrowed(con, vocabulary, needles)
    if narrowed is not None:
        where, values = where + " and f.id in (select value from json_each(?))", [json.dumps(narrowed)]
    if folder:
        where, values = where + " and f.path >= ? and f.path < ?", [*values, folder + "/", folder + "0"]
    rows = con.rows(f"select f.id, f.path from files f where {where} order by f.path", values)
    return [note for note, path in rows if sees is None or sees(path)]


def read_bodies(con: Connection, notes: Sequence[int]) -> list[Body]:
    """In this order, without sorting: to sort, SQLite would copy every text."""
    rows = con.rows(
        """select f.path, cast(t.text as blob), f.modified, f.size from json_each(?) e
        cross join files f on f.id = e.value cross join texts t on t.id = e.value""",
        (json.dumps(notes),),
    )
    return [Body(NotePath(path), data, modified, size) for path, data, modified, size in rows]


def _narrowed(con: Connection, vocabulary: Vocabulary, needles: Needles) -> list[int] | None:
    """The notes that can match, None when that would be too many to pay."""
    groups = [group for group in needles.groups if group]
    if not groups:
        return None
    joined = vocabulary.joined(con)
    equal = vocabulary.joined_equalized(equalities()[0])
    conditions = []
    for group in groups:
        members = [_member(con, joined, equal, piece) for piece in group]
        known = [member for member in members if member is not None]
        if len(known) == len(members):
            conditions.append("(" + ") OR (".join(known) + ")")
    if not conditions:
        return None
    most = vocabulary.notes(con) // SHARE + 20
    expression = "(" + ") AND (".join(conditions) + ")"
    rows = con.rows("select rowid from words where words match ? limit ?", (expression, most + 1))
    notes = [note for (note,) in rows]
    return notes if len(notes) <= most else None


def _member(con: Connection, joined: str, equal: str, piece: str) -> str | None:
    """An expression for the notes that can hold `piece`; None when any note can."""
    conditions = []
    for wanted in pieces_of_words(con, piece):
        words = words_with(joined, wanted, MOST_WORDS + 1, equal)
        if len(words) > MOST_WORDS:
            continue
        if not words:
            return NOTHING
        conditions.append(" OR ".join(f'"{word}"' for word in words))
    return "(" + ") AND (".join(conditions) + ")" if conditions else None


def pieces_of_words(con: Connection, piece: str) -> list[str]:
    """What the words of a note with `piece` in it must hold; a line end stands for the edge of a word."""
    found: list[str] = []
    for part in _parts(piece):
        runs = _runs(part)
        for number, (cjk, run) in enumerate(runs):
            first, last = number == 0, number == len(runs) - 1
            found += _pairs(con, run, first or last) if cjk else _words(con, run, first, last)
    equals, _ = equalities()
    return list(dict.fromkeys(word.translate(equals) for word in found))


def _parts(piece: str) -> list[str]:
    """The piece cut at characters that stand for others in a way the index does not know."""
    _, alone = equalities()
    parts = [""]
    for char in piece:
        if char in alone or unicodedata.category(char) == "Cn":  # not known to Python: who knows what equals it
            parts.append("")
        else:
            parts[-1] += char
    return parts


def _runs(part: str) -> list[tuple[bool, str]]:
    """Runs that are cut into pairs, and what is between them: the index parts one from the other."""
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


def _pairs(con: Connection, run: str, edge: bool) -> list[str]:
    """Every pair is a word of its own. A single character at the edge may be either half of one."""
    if len(run) == 1 and edge:
        return con.tokenize(run)
    pairs = [run[at : at + 2] for at in range(len(run) - 1)] or [run]
    return [f"\n{word}\n" for pair in pairs for word in con.tokenize(pair)]


def _words(con: Connection, run: str, first: bool, last: bool) -> list[str]:
    """Words of other scripts. Only the first and the last of a part can be parts of longer ones."""
    tokens = con.tokenize_with_places(run)
    found = []
    for number, (start, end, word) in enumerate(tokens):
        begins = first and number == 0 and not _parted(con, run[:start])
        ends = last and number == len(tokens) - 1 and not _parted(con, run[end:])
        found.append(("" if begins else "\n") + word + ("" if ends else "\n"))
    return found


def _parted(con: Connection, text: str) -> bool:
    """Something in here surely ends a word."""
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
def equalities() -> tuple[dict[int, str], frozenset[str]]:
    """What to make equal in folded words, and the characters that must break a piece: some of their equals are
    letters to the tokenizer and some are not."""
    fold = plain_tokenizer()
    equals: dict[int, str] = {}
    alone: set[str] = set()
    for family in _families():
        folded = {_fold(fold, char) for char in family}
        if len(folded) > 1 and folded & {"", None}:
            alone |= family
        elif len(folded) > 1:
            chosen = min(word for word in folded if word)
            equals.update({ord(word): chosen for word in folded if word and word != chosen})
    return equals, frozenset(alone)


def _families() -> list[set[str]]:
    """Characters that are one but for case, however many steps it takes."""
    family: dict[str, set[str]] = {}
    pairs = [(char, other) for low, high in _CASED for char in map(chr, range(low, high))
             for other in (char.lower(), char.upper(), char.casefold(), char.title()) if len(other) == 1]  # fmt: skip
    for one, other in [*pairs, *((pair[0], pair[1]) for pair in _NEWER)]:
        joined = family.get(one, {one}) | family.get(other, {other})
        for char in joined:
            family[char] = joined
    return [members for char, members in family.items() if char == min(members)]


def _fold(cut: Callable[[str], list[str]], char: str) -> str | None:
    """What the tokenizer makes of a character within a word; None when it ends the word."""
    tokens = cut(f"a{char}a")
    return tokens[0][1:-1] if len(tokens) == 1 else None
