"""The vocabulary of the index: the forms of words by stem, how many notes have them, and similar spellings."""

import json
import re
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from notewright.index.sqlite.schema import Connection
from notewright.lazy_dataclass import NamedTuple
from notewright.notes.words import index_words

MAX_FORMS = 100  # of one word
MAX_COMPARED = 8  # words of a query that are compared with the vocabulary
MAX_SCANNED, MAX_TAKEN = 500, 10  # similar words: scanned for each trigram, and taken for each word
SHORT_WORD_CHARS = 5  # of a word in which one typing error may leave no trigram intact
MAX_NOTES_TOGETHER = 2_000  # notes that similar words may be in together, plus a fifth of all
MAX_PAIRS = 30  # for a single CJK character, which is in many pairs
_LATIN = re.compile(r"[a-z]+")


class QueryWord(NamedTuple):
    """A word of a question: its forms in the notes, and in how many notes they are."""

    word: str
    forms: tuple[str, ...]
    written: int  # notes with the word as written
    notes: int  # notes with any form, as an upper bound


def find_stems(con: Connection, words: list[str]) -> list[str]:
    """The stem of each word; a word that the tokenizer splits or drops is its own stem."""
    found = con.stems("\n".join(words))
    if len(found) == len(words):
        return found
    return [" ".join(con.stems(word)) or word for word in words]


def count_notes_with(con: Connection, word: str) -> int:
    return con.number("select doc from terms where term=?", (word,))


class Vocabulary:
    """Caches what one generation's words are, between questions."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, tuple[int, int]] = {}  # word: (notes, serial)
        self._notes = (0, -1)
        self._lines, self._last_id = "\n", 0
        self._equalized_lines = ""

    def find_query_words(self, con: Connection, words: Iterable[str]) -> list[QueryWord]:
        """The words of a question that are in any note, tokenized and folded as in the index."""
        serial, notes = self._read_state(con)
        tokens = list(dict.fromkeys(con.tokenize(index_words("\n".join(words)))))
        stemmed = self._find_words_by_stem(con, [token for token in tokens if _LATIN.match(token)])
        found = [self._make_query_word(con, token, stemmed, serial, notes) for token in tokens]
        return [term for term in found if term.notes]

    def notes(self, con: Connection) -> int:
        """How many notes there are."""
        return self._read_state(con)[1]

    def _read_state(self, con: Connection) -> tuple[int, int]:
        serial = con.number("select value from meta where key='serial'")
        if self._notes[1] != serial:
            self._notes = (con.number("select count(*) from files where note=1"), serial)
        return serial, self._notes[0]

    def _make_query_word(
        self, con: Connection, token: str, stemmed: Mapping[str, list[str]], serial: int, notes: int
    ) -> QueryWord:
        written = self._count_cached(con, token, serial, notes)
        if len(token) == 1 and not token.isascii():
            forms = tuple(dict.fromkeys((token, *find_words_with(self.read_lines(con), token, MAX_PAIRS))))
        else:
            forms = tuple(sorted({token, *stemmed.get(token, ())}))
        every = written if forms == (token,) else sum(self._count_cached(con, form, serial, notes) for form in forms)
        return QueryWord(token, forms, written, max(written, min(every, notes)))

    def _find_words_by_stem(self, con: Connection, tokens: list[str]) -> dict[str, list[str]]:
        """For each of these words the words of the notes with the same stem."""
        stems = dict(zip(tokens, find_stems(con, tokens), strict=True))
        sql = """with asked as materialized (select value from json_each(?))
            select stem, word from vocabulary where stem in asked union all
            select word, word from vocabulary where word in asked and stem is null order by word"""
        found: defaultdict[str, list[str]] = defaultdict(list)
        for stem, word in con.table("stem, word", sql, (json.dumps(list(stems.values())),)):
            found[stem].append(word)
        return {token: found[stem][:MAX_FORMS] for token, stem in stems.items()}

    def _count_cached(self, con: Connection, word: str, serial: int, notes: int) -> int:
        """Count the notes with a word; in a big vault a count a few changes old is good enough, unless it was 0."""
        known = self._counts.get(word)
        if known is not None and known[0] and 0 <= serial - known[1] <= notes // 500:
            return known[0]
        count = count_notes_with(con, word)
        with self._lock:
            if len(self._counts) > 50_000:
                self._counts.clear()
            self._counts[word] = (count, serial)
        return count

    def choose_rarest(self, con: Connection, words: Mapping[str, float]) -> list[str]:
        """Choose words by worth, then rarity, while they are in few notes together; at least one."""
        serial, notes = self._read_state(con)
        room, found = MAX_NOTES_TOGETHER + notes // 5, list[str]()
        ordered = sorted((-worth, self._count_cached(con, word, serial, notes), word) for word, worth in words.items())
        for _, count, word in ordered:
            if count <= room or not found:
                room -= count
                found.append(word)
        return found

    # ---- parts of words -------------------------------------------------------------------------------

    def read_lines(self, con: Connection) -> str:
        """The vocabulary, one word per line: one substring scan finds the words that contain a piece."""
        with self._lock:
            sql = "select word, id from vocabulary where id>? order by id"
            words, last = con.rows(f"select group_concat(word, char(10)), max(id) from ({sql})", (self._last_id,)).get
            if last is not None:
                self._lines += f"{words}\n"
                self._last_id = last
            return self._lines

    def read_equalized_lines(self, equals: Mapping[int, str]) -> str:
        """The lines of `read_lines` with these characters replaced, each word at the same offset."""
        with self._lock:
            if len(self._equalized_lines) != len(self._lines):
                self._equalized_lines += self._lines[len(self._equalized_lines) :].translate(equals)
            return self._equalized_lines


def find_words_with(lines: str, piece: str, most: int, equalized: str = "") -> list[str]:
    """The lines that contain `piece`, at most so many; a line end in it is the edge of a word. Searches `equalized`
    instead, if given: the same lines with some characters replaced."""
    found: list[str] = []
    searched_lines = equalized or lines
    at = searched_lines.find(piece)
    inner = 1 if piece.startswith("\n") else 0
    while at >= 0 and len(found) < most:
        start, end = searched_lines.rfind("\n", 0, at + inner) + 1, searched_lines.find("\n", at + inner)
        found.append(lines[start:end])
        at = searched_lines.find(piece, end)
    return found


def list_trigrams(text: str) -> list[str]:
    """The trigrams of a text, or all of it where it is shorter."""
    return list(dict.fromkeys(text[at : at + 3] for at in range(max(1, len(text) - 2))))


def find_similar_words(con: Connection, vocabulary: Vocabulary, text: str) -> list[str]:
    """Words of the notes that share most trigrams with one of these, or are one edit away from a short one: the most
    similar, and of these the rarest, while they are in few notes together."""
    lines, found = vocabulary.read_lines(con), dict[str, float]()
    for word in con.tokenize(index_words(text))[:MAX_COMPARED]:
        runs = list_trigrams(word)
        shared = Counter(alike for run in runs for alike in find_words_with(lines, run, MAX_SCANNED))
        if len(word) <= SHORT_WORD_CHARS:
            shared.update(dict.fromkeys(filter_known(con, _list_edits(word)), len(runs)))
        best = sorted(shared, key=lambda alike: (-shared[alike], abs(len(alike) - len(word)), alike))[:MAX_TAKEN]
        for alike in best:
            found[alike] = max(found.get(alike, 0.0), 1.0 if alike == word else 0.9 * shared[alike] / len(runs))
    return vocabulary.choose_rarest(con, found)


def filter_known(con: Connection, words: Sequence[str]) -> list[str]:
    """The words among these that are in some note."""
    sql = "select word from vocabulary where word in (select value from json_each(?))"
    return [word for (word,) in con.rows(sql, (json.dumps(words),))]


def suggest_spellings(con: Connection, vocabulary: Vocabulary, words: Sequence[str], most: int = 5) -> list[str]:
    """Words of the notes that are spelled almost like these, at most so many."""
    found: dict[str, None] = {}
    tokens = [token for word in words for token in con.tokenize(word)]
    for word in tokens[:MAX_COMPARED]:
        close = sorted(filter_known(con, _list_edits(word)), key=lambda form: -count_notes_with(con, form))
        if not close and len(word) > 3:
            from difflib import get_close_matches

            alike = find_words_with(vocabulary.read_lines(con), "\n" + word[:3], 2_000)
            close = get_close_matches(word, alike, n=3, cutoff=0.7)
        found.update(dict.fromkeys(close[:3]))
    return list(found)[:most]


def _list_edits(word: str) -> list[str]:
    """Every word at edit distance one: a letter dropped, changed, added, or two swapped."""
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    cuts = [(word[:at], word[at:]) for at in range(len(word) + 1)][:24]
    dropped = [left + right[1:] for left, right in cuts if right]
    swapped = [left + right[1] + right[0] + right[2:] for left, right in cuts if len(right) > 1]
    changed = [left + letter + right[1:] for left, right in cuts if right for letter in letters]
    added = [left + letter + right for left, right in cuts for letter in letters]
    return [near for near in {*dropped, *swapped, *changed, *added} if near and near != word]
