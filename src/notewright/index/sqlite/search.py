"""One search: conditions, the ranking, and the best section of each note to show."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from notewright.index.base import Hit, Hits, Query, everything
from notewright.index.snippets import pattern_of, snippet
from notewright.index.sqlite.evidence import DEPTH, Accepts, SectionMatches, found_by
from notewright.index.sqlite.queries import names_like, stored_headings
from notewright.index.sqlite.schema import Connection
from notewright.index.sqlite.vocabulary import QueryWord, Vocabulary, near_spellings
from notewright.notes.parse.tags import tag_key
from notewright.notes.path import NotePath, path_key
from notewright.notes.query import has_property
from notewright.notes.words import drop_frame, index_words

COUNTED = 1_000  # totals are counted up to here
NEAREST = 5
LONGEST_NAME = 100  # characters of a word or name that others are compared with


def search(con: Connection, vocabulary: Vocabulary, query: Query) -> Hits:
    """Ranked by any of the words; every condition holds for every hit."""
    con.variants = {}  # of the question before; conditions mean words as written
    words = drop_frame(query.question) if query.question else list(query.words)
    allowed = _allowed(con, query)
    accepts = _acceptance(con, query, allowed)
    terms = vocabulary.terms(con, words)
    if not terms:
        return _unranked(con, vocabulary, query, accepts, words, allowed)
    total = vocabulary.notes(con)
    depth = _depth(query)
    found = found_by(con, terms, query.question, total, accepts, depth=depth)
    if found.narrowed and len(found.scores) < query.offset + query.limit + 1:
        found = found_by(con, terms, query.question, total, accepts, depth=depth, narrow=False)
    page = list(found.scores.items())[query.offset : query.offset + query.limit + 1]
    forms = [form for term in terms for form in term.forms] + _phrase_words(con, query)
    items = tuple(_hits(con, page[: query.limit], found, forms))
    any_of, all_of = _counts(con, terms, words, accepts, vocabulary)
    return Hits(items, max(any_of, len(found.scores)), all_of, len(page) > query.limit)


def _depth(query: Query) -> int:
    """As deep as the page lies, in steps, so that pages of one search come from one ranking."""
    depth = DEPTH
    while depth < query.offset + query.limit + 1:
        depth *= 4
    return depth


# ---- conditions ---------------------------------------------------------------------------------------


def _allowed(con: Connection, query: Query) -> frozenset[int] | None:
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


def _acceptance(con: Connection, query: Query, allowed: frozenset[int] | None) -> Accepts:
    """Which notes may be answered: those that meet the conditions and that the reader may see."""
    visible = query.visible
    seen: dict[int, bool] = {}

    def accepts(notes: Sequence[int]) -> set[int]:
        left = set(notes) if allowed is None else allowed.intersection(notes)
        if visible is everything:
            return set(left)
        unknown = [note for note in left if note not in seen]
        if unknown:
            sql = "select id, path from files where id in (select value from json_each(?))"
            rows = con.table("id, path", sql, (json.dumps(unknown),))
            seen.update((note, visible(path)) for note, path in rows)
        return {note for note in left if seen.get(note)}

    return accepts


# ---- hits ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _ShownSection:
    path: str
    title: str
    modified: int
    headings: str
    text: str


def _hits(con: Connection, page: Sequence[tuple[int, float]], found: SectionMatches, forms: Sequence[str]) -> list[Hit]:
    pattern = pattern_of(forms)
    rows = {
        note: _ShownSection(*shown)
        for note, *shown in con.rows(
            """select f.id, f.path, f.title, f.modified, t.headings, t.text from files f join texts t on t.id = f.id
            where f.id in (select value from json_each(?))""",
            (json.dumps([note for note, _ in page]),),
        )
    }
    hits = []
    for note, score in page:
        if note in rows:
            shown = rows[note]
            heading, line, section = _section(shown, found.sections.get(note, 0))
            text, marks = snippet(section, pattern)
            for whole in (_body(shown.text), shown.text):  # a section without words of its own
                text, marks = (text, marks) if text else snippet(whole, pattern)
            hits.append(Hit(NotePath(shown.path), shown.title, score, shown.modified, heading, line, text, marks))
    return hits


def _section(shown: _ShownSection, number: int) -> tuple[str | None, int, str]:
    """Heading, first line and text of the section with this number."""
    headings = [heading for heading in stored_headings(shown.headings) if heading.top]
    number = min(number, len(headings))
    end = headings[number].start if number < len(headings) else len(shown.text)
    if number == 0:
        return None, 1, _body(shown.text[:end])
    heading = headings[number - 1]
    below = shown.text[heading.end : end]
    return heading.text, heading.line, below if below.strip() else shown.text[heading.start : end]


def _body(text: str) -> str:
    """Without the frontmatter, if anything else is there."""
    text = text.removeprefix("\ufeff")
    if text.startswith("---"):
        close = text.find("\n---", 3)
        if close >= 0:
            text = text[text.find("\n", close + 1) + 1 or len(text) :]
    return text


# ---- totals, and nothing found ------------------------------------------------------------------------


def _counts(
    con: Connection, terms: Sequence[QueryWord], words: Sequence[str], accepts: Accepts, vocabulary: Vocabulary
) -> tuple[int, int]:
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


def _unranked(
    con: Connection, vocabulary: Vocabulary, query: Query, accepts: Accepts, words: Sequence[str],
    allowed: frozenset[int] | None,
) -> Hits:  # fmt: skip
    """Conditions alone: the newest first. Words that are nowhere: what is near to them."""
    if words or allowed is None:
        return Hits((), 0, 0, False, _nearest(con, vocabulary, query, words, accepts))
    newest = con.rows(
        "select id from files where id in (select value from json_each(?)) order by modified desc, path",
        (json.dumps(list(allowed)),),
    )
    ordered = [note for (note,) in newest]
    kept = accepts(ordered)
    ordered = [note for note in ordered if note in kept]
    page = [(note, 0.0) for note in ordered[query.offset : query.offset + query.limit + 1]]
    hits = _hits(con, page[: query.limit], SectionMatches({}, {}, False), _phrase_words(con, query))
    return Hits(tuple(hits), len(ordered), len(ordered), len(page) > query.limit)


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
