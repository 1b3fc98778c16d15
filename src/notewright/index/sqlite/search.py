"""What the tables know for one search: the notes that meet the conditions, evidence for a ranking, and totals."""

import json
from collections.abc import Sequence
from dataclasses import replace

from notewright.index.base import EVERYTHING, Query, SearchEvidence
from notewright.index.sqlite.evidence import Accepts, found_by, visible_notes
from notewright.index.sqlite.queries import names_like
from notewright.index.sqlite.schema import Connection
from notewright.index.sqlite.vocabulary import QueryWord, Vocabulary, near_spellings
from notewright.notes.parse.tags import tag_key
from notewright.notes.path import path_key
from notewright.notes.query import has_property
from notewright.notes.words import drop_frame, index_words

COUNTED = 1_000  # totals are counted up to here
NEAREST = 5
LONGEST_NAME = 100  # characters of a word or name that others are compared with


def gather_evidence(con: Connection, vocabulary: Vocabulary, query: Query, depth: int, narrow: bool) -> SearchEvidence:
    con.variants = {}  # of the question before; conditions mean words as written
    words = drop_frame(query.question) if query.question else list(query.words)
    meets = _meeting(con, query)
    accepts = _acceptance(con, query, meets)
    terms, total = vocabulary.terms(con, words), vocabulary.notes(con)
    forms = (*(form for term in terms for form in term.forms), *_phrase_words(con, query))
    if terms:
        found = found_by(con, terms, query.question, total, accepts, depth, narrow)
        any_of, all_of = _counts(con, terms, words, accepts)
        return replace(found, forms=forms, any_of=any_of, all_of=all_of, meets=meets)
    if words or meets is None:
        return SearchEvidence(total, nearest=_nearest(con, vocabulary, query, words, accepts))
    newest = con.rows(
        "select id from files where id in (select value from json_each(?)) order by modified desc, path",
        (json.dumps(list(meets)),),
    )
    kept = accepts(list(meets))
    return SearchEvidence(total, forms=forms, newest=tuple(note for (note,) in newest if note in kept))


# ---- conditions ---------------------------------------------------------------------------------------


def _meeting(con: Connection, query: Query) -> frozenset[int] | None:
    """The notes that meet the conditions; None when there are none."""
    where, values = _where(con, query)
    if not where:
        return None
    sql = "select f.id from files f where f.note = 1 and " + " and ".join(where)
    ids = [note for (note,) in con.rows(sql, values)]
    return frozenset(_by_properties(con, query, ids))


def _where(con: Connection, query: Query) -> tuple[list[str], list[object]]:
    where: list[str] = []
    values: list[object] = []
    if query.folder:
        where.append("f.path >= ? and f.path < ?")
        values += [query.folder + "/", query.folder + "0"]
    if query.since_ns is not None:
        where.append("f.modified >= ?")
        values.append(query.since_ns)
    for tags, holds in ((query.tags, "in"), (query.without_tags, "not in")):
        for tag in tags:
            key = tag_key(tag)
            where.append(f"f.id {holds} (select file from tags where key = ? or (key >= ? and key < ?))")
            values += [key, key + "/", key + "0"]
    for paths, holds in ((query.paths, ""), (query.without_paths, "not ")):
        for path in paths:
            where.append(f"{holds}instr(folded(f.path), ?)")
            values.append(path.casefold())
    for phrases, holds in ((query.phrases, "in"), (query.without, "not in")):
        for phrase in phrases:
            where.append(f"f.id {holds} (select rowid from words where words match ?)")
            values.append(_phrase(con, phrase))
    if query.properties or query.without_properties:
        where.append("1")
    return where, values


def _phrase(con: Connection, phrase: str) -> str:
    """An expression for words that follow each other; for nothing but signs one that finds nothing."""
    tokens = con.cut(index_words(phrase))
    return '"' + " ".join(tokens) + '"' if tokens else '"\U0010fffc"'


def _phrase_words(con: Connection, query: Query) -> list[str]:
    return [token for phrase in query.phrases for token in con.cut(index_words(phrase))]


def _by_properties(con: Connection, query: Query, ids: list[int]) -> list[int]:
    if not query.properties and not query.without_properties:
        return ids
    kept: list[int] = []
    for note, properties in con.rows(
        "select e.value, t.properties from json_each(?) e left join texts t on t.id = e.value", (json.dumps(ids),)
    ):
        held = json.loads(properties) if properties else {}
        if all(has_property(held, key, value) for key, value in query.properties) and not any(
            has_property(held, key, value) for key, value in query.without_properties
        ):
            kept.append(note)
    return kept


def _acceptance(con: Connection, query: Query, meets: frozenset[int] | None) -> Accepts:
    """Which notes may be answered: those that meet the conditions and that the reader may see."""
    seen: dict[int, bool] = {}

    def accepts(notes: Sequence[int]) -> set[int]:
        left = set(notes) if meets is None else set(meets.intersection(notes))
        if query.visible == EVERYTHING:
            return left
        unknown = [note for note in left if note not in seen]
        visible = visible_notes(con, unknown, query.visible)
        seen.update((note, note in visible) for note in unknown)
        return {note for note in left if seen[note]}

    return accepts


# ---- totals, and nothing found ------------------------------------------------------------------------


def _counts(con: Connection, terms: Sequence[QueryWord], words: Sequence[str], accepts: Accepts) -> tuple[int, int]:
    """(notes with any of the words, notes with all), each up to COUNTED."""
    con.variants = {term.word: term.forms for term in terms if len(term.forms) > 1}
    any_of = _count(con, " OR ".join(f'"{term.word}"' for term in terms), accepts)
    asked = {token for word in words for token in con.cut(index_words(word))}
    if asked - {term.word for term in terms}:
        return any_of, 0
    if len(terms) == 1:
        return any_of, any_of
    rarest_first = sorted(terms, key=lambda term: term.notes)
    return any_of, _count(con, " AND ".join(f'"{term.word}"' for term in rarest_first), accepts)


def _count(con: Connection, expression: str, accepts: Accepts) -> int:
    """How many notes match and may be answered, up to COUNTED."""
    limit = COUNTED
    while True:
        rows = con.table("rowid", "select rowid from words where words match ? limit ?", (expression, limit))
        count = len(accepts([note for (note,) in rows]))
        if len(rows) < limit or count >= COUNTED:
            return min(count, COUNTED)
        limit *= 4


def _nearest(
    con: Connection, vocabulary: Vocabulary, query: Query, words: Sequence[str], accepts: Accepts
) -> tuple[str, ...]:
    """Spellings and names near to the words; never a name that may not be seen."""
    if not words:
        return ()
    near: list[str] = []
    for form in near_spellings(con, vocabulary, [word for word in words if len(word) <= LONGEST_NAME], NEAREST):
        if _count(con, f'"{form}"', accepts):
            near.append(form)
    wanted = path_key(" ".join(words))[:LONGEST_NAME]
    names = names_like(con, wanted, limit=NEAREST * 10, visible=query.visible)
    return tuple(dict.fromkeys([*near, *(path.stem for path in names[:NEAREST])]))
