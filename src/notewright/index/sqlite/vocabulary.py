"""The words the index knows: their forms by stem, how many notes have them, and spellings near to one."""

import json
import re
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from notewright.index.sqlite.schema import Connection
from notewright.lazy_dataclass import NamedTuple
from notewright.notes.words import index_words

MOST_FORMS = 100  # of one word
MOST_COMPARED = 8  # words that others are compared with
MOST_SCANNED, MOST_TAKEN = 500, 10  # words alike: looked at for each run of letters, and taken for each word
SHORT = 5  # letters of a word in which one slip may leave no run of three
MAX_NOTES_TOGETHER = 2_000  # notes that words may be in together, and a fifth of all
MOST_PAIRS = 30  # for a single CJK character, which stands in many
_LATIN = re.compile(r"[a-z]+")


class QueryWord(NamedTuple):
    """A word of a question: its forms in the notes, and in how many notes they are."""

    word: str
    forms: tuple[str, ...]
    written: int  # notes with the word as written
    notes: int  # notes with any form, as an upper bound


def find_stems(con: Connection, words: list[str]) -> list[str]:
    """The stem of each word; a word that is cut or lost on the way is its own."""
    found = con.stems("\n".join(words))
    if len(found) == len(words):
        return found
    return [" ".join(con.stems(word)) or word for word in words]


def count_notes_with(con: Connection, word: str) -> int:
    return con.number("select doc from terms where term=?", (word,))


class Vocabulary:
    """What is remembered of one generation's words between questions."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, tuple[int, int]] = {}  # word: (notes, serial)
        self._notes = (0, -1)
        self._joined, self._upto = "\n", 0
        self._equal = ""

    def terms(self, con: Connection, words: Iterable[str]) -> list[QueryWord]:
        """The words of a question that are anywhere, cut and folded as the index has them."""
        serial, notes = self._state(con)
        tokens = list(dict.fromkeys(con.tokenize(index_words("\n".join(words)))))
        stemmed = self._stemmed(con, [token for token in tokens if _LATIN.match(token)])
        found = [self._term(con, token, stemmed, serial, notes) for token in tokens]
        return [term for term in found if term.notes]

    def notes(self, con: Connection) -> int:
        """How many notes there are."""
        return self._state(con)[1]

    def _state(self, con: Connection) -> tuple[int, int]:
        serial = con.number("select value from meta where key='serial'")
        if self._notes[1] != serial:
            self._notes = (con.number("select count(*) from files where note=1"), serial)
        return serial, self._notes[0]

    def _term(
        self, con: Connection, token: str, stemmed: Mapping[str, list[str]], serial: int, notes: int
    ) -> QueryWord:
        written = self._count(con, token, serial, notes)
        if len(token) == 1 and not token.isascii():
            forms = tuple(dict.fromkeys((token, *words_with(self.joined(con), token, MOST_PAIRS))))
        else:
            forms = tuple(sorted({token, *stemmed.get(token, ())}))
        every = written if forms == (token,) else sum(self._count(con, form, serial, notes) for form in forms)
        return QueryWord(token, forms, written, max(written, min(every, notes)))

    def _stemmed(self, con: Connection, tokens: list[str]) -> dict[str, list[str]]:
        """For each of these words the words of the notes that have its stem."""
        stems = dict(zip(tokens, find_stems(con, tokens), strict=True))
        sql = """with asked as materialized (select value from json_each(?))
            select stem, word from vocabulary where stem in asked union all
            select word, word from vocabulary where word in asked and stem is null order by word"""
        found: defaultdict[str, list[str]] = defaultdict(list)
        for stem, word in con.table("stem, word", sql, (json.dumps(list(stems.values())),)):
            found[stem].append(word)
        return {token: found[stem][:MOST_FORMS] for token, stem in stems.items()}

    def _count(self, con: Connection, word: str, serial: int, notes: int) -> int:
        """In how many notes a word is; in a big vault a figure a few changes old will do, unless it was none."""
        known = self._counts.get(word)
        if known is not None and known[0] and 0 <= serial - known[1] <= notes // 500:
            return known[0]
        count = count_notes_with(con, word)
        with self._lock:
            if len(self._counts) > 50_000:
                self._counts.clear()
            self._counts[word] = (count, serial)
        return count

    def rarest_of(self, con: Connection, words: Mapping[str, float]) -> list[str]:
        """Those of most worth, and of these the rarest, while they are in few notes together; one at least."""
        serial, notes = self._state(con)
        room, found = MAX_NOTES_TOGETHER + notes // 5, list[str]()
        ordered = sorted((-worth, self._count(con, word, serial, notes), word) for word, worth in words.items())
        for _, count, word in ordered:
            if count <= room or not found:
                room -= count
                found.append(word)
        return found

    # ---- parts of words -------------------------------------------------------------------------------

    def joined(self, con: Connection) -> str:
        """Every word on a line of its own: one substring scan finds the words that hold a piece."""
        with self._lock:
            sql = "select word, id from vocabulary where id>? order by id"
            words, last = con.rows(f"select group_concat(word, char(10)), max(id) from ({sql})", (self._upto,)).get
            if last is not None:
                self._joined += f"{words}\n"
                self._upto = last
            return self._joined

    def joined_equalized(self, equals: Mapping[int, str]) -> str:
        """`joined` with these characters exchanged, each word where it was."""
        with self._lock:
            if len(self._equal) != len(self._joined):
                self._equal += self._joined[len(self._equal) :].translate(equals)
            return self._equal


def words_with(joined: str, piece: str, most: int, equal: str = "") -> list[str]:
    """The lines of `joined` that hold `piece`, at most so many; line ends in it are the ends of a word. It is looked
    for in `equal`, if given: the same lines with some characters exchanged."""
    found: list[str] = []
    searched = equal or joined
    at = searched.find(piece)
    inner = 1 if piece.startswith("\n") else 0
    while at >= 0 and len(found) < most:
        start, end = searched.rfind("\n", 0, at + inner) + 1, searched.find("\n", at + inner)
        found.append(joined[start:end])
        at = searched.find(piece, end)
    return found


def runs_of_three(text: str) -> list[str]:
    """Its runs of three letters, all of it where it is shorter."""
    return list(dict.fromkeys(text[at : at + 3] for at in range(max(1, len(text) - 2))))


def words_like(con: Connection, vocabulary: Vocabulary, text: str) -> list[str]:
    """Words of the notes that share most runs of three letters with one of these, or are one slip away from a short
    one: the most alike, and of these the rarest, while they are in few notes together."""
    joined, found = vocabulary.joined(con), dict[str, float]()
    for word in con.tokenize(index_words(text))[:MOST_COMPARED]:
        runs = runs_of_three(word)
        shared = Counter(alike for run in runs for alike in words_with(joined, run, MOST_SCANNED))
        if len(word) <= SHORT:
            shared.update(dict.fromkeys(known_words(con, _words_one_slip_away(word)), len(runs)))
        best = sorted(shared, key=lambda alike: (-shared[alike], abs(len(alike) - len(word)), alike))[:MOST_TAKEN]
        for alike in best:
            found[alike] = max(found.get(alike, 0.0), 1.0 if alike == word else 0.9 * shared[alike] / len(runs))
    return vocabulary.rarest_of(con, found)


def known_words(con: Connection, words: Sequence[str]) -> list[str]:
    """Those of these that are in some note."""
    sql = "select word from vocabulary where word in (select value from json_each(?))"
    return [word for (word,) in con.rows(sql, (json.dumps(words),))]


def suggest_spellings(con: Connection, vocabulary: Vocabulary, words: Sequence[str], most: int = 5) -> list[str]:
    """Words of the notes that are spelled almost like these."""
    found: dict[str, None] = {}
    tokens = [token for word in words for token in con.tokenize(word)]
    for word in tokens[:MOST_COMPARED]:
        close = sorted(known_words(con, _words_one_slip_away(word)), key=lambda form: -count_notes_with(con, form))
        if not close and len(word) > 3:
            from difflib import get_close_matches

            alike = words_with(vocabulary.joined(con), "\n" + word[:3], 2_000)
            close = get_close_matches(word, alike, n=3, cutoff=0.7)
        found.update(dict.fromkeys(close[:3]))
    return list(found)[:most]


def _words_one_slip_away(word: str) -> list[str]:
    """Every word one slip of the keyboard away."""
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    cuts = [(word[:at], word[at:]) for at in range(len(word) + 1)][:24]
    dropped = [left + right[1:] for left, right in cuts if right]
    swapped = [left + right[1] + right[0] + right[2:] for left, right in cuts if len(right) > 1]
    changed = [left + letter + right[1:] for left, right in cuts if right for letter in letters]
    added = [left + letter + right for left, right in cuts for letter in letters]
    return [near for near in {*dropped, *swapped, *changed, *added} if near and near != word]
