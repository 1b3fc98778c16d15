"""Gathers the evidence for one search from the tables: the notes that meet its conditions, the lists a ranking is made
of (the best notes, sections and linking sentences for the words of a question), and totals.

Common words cost most and weigh least. So the rarest words select the notes, and then all words count in their scores.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import apsw

from notewright.index.base import (
    EVERYTHING,
    FEW_WHOLE,
    MAX_COUNTED,
    NameMatch,
    Occurrences,
    Query,
    SearchEvidence,
    Visibility,
    WordMatches,
)
from notewright.index.sqlite.queries import names_like
from notewright.index.sqlite.schema import (
    ALIAS,
    ALIASED,
    BODY,
    MARK,
    NAME,
    NOTHING,
    TAG,
    TITLE,
    TITLED,
    Connection,
    clamp_ns,
)
from notewright.index.sqlite.vocabulary import QueryWord, Vocabulary, suggest_spellings
from notewright.lazy_dataclass import dataclass, field
from notewright.notes.links.names import Namesakes
from notewright.notes.model import tag_key
from notewright.notes.path import NotePath, path_key
from notewright.notes.query import has_property
from notewright.notes.words import drop_question_frame, index_words

MAX_NEAREST = 5
MAX_NAME_CHARS = 100  # of a word or name that is compared with others
FEW_ROWS = 2_000  # rows that rare words may select, plus a fiftieth of the notes
MAX_WORDS = 48  # of a question, the rarest: a page of text is a question too
MAX_NAMESAKES = 1_000  # of one name that a connection caches
MAX_NAME_WORDS = 10  # words of a question that are looked up as one name

Accepts = Callable[[Sequence[int]], set[int]]  # which of these notes may be answered


def gather_evidence(con: Connection, vocabulary: Vocabulary, query: Query, depth: int, narrow: bool) -> SearchEvidence:
    con.variants = {}  # of the last question; conditions mean words as written
    words = drop_question_frame(query.question) if query.question else list(query.words)
    meets = _notes_meeting_conditions(con, query)
    accepts = _make_acceptance_test(con, query, meets)
    terms, total = vocabulary.find_query_words(con, words), vocabulary.notes(con)
    in_phrases = [token for phrase in query.phrases for token in con.tokenize(index_words(phrase))]
    forms = (*(form for term in terms for form in term.forms), *in_phrases)
    if terms:
        any_of, all_of, few = _count_matches(con, terms, words, accepts)
        found = collect_evidence(con, terms, query.question, total, accepts, depth, narrow, few)
        return found._replace(forms=forms, any_of=any_of, all_of=all_of, meets=meets)
    if words or meets is None:
        return SearchEvidence(total, nearest=_find_nearest(con, vocabulary, query, words, accepts))
    newest = con.rows(
        "select id from files where id in (select value from json_each(?)) order by modified desc, path",
        (json.dumps(list(meets)),),
    )
    kept = accepts(list(meets))
    return SearchEvidence(total, forms=forms, newest=tuple(note for (note,) in newest if note in kept))


# ---- conditions ---------------------------------------------------------------------------------------


def _notes_meeting_conditions(con: Connection, query: Query) -> frozenset[int] | None:
    """The notes that meet the conditions; None for a query without conditions."""
    where, values = ["f.note = 1"], list[object]()
    if query.folder:
        where.append("f.path >= ? and f.path < ?")
        values += [query.folder + "/", query.folder + "0"]
    if query.since_ns is not None:
        where.append("f.modified >= ?")
        values.append(clamp_ns(query.since_ns))
    for tags, holds in ((query.tags, "in"), (query.without_tags, "not in")):
        for key in map(tag_key, tags):
            where.append(f"f.id {holds} (select file from tags where key = ? or (key >= ? and key < ?))")
            values += [key, key + "/", key + "0"]
    for paths, holds in ((query.paths, ""), (query.without_paths, "not ")):
        for path in paths:
            where.append(f"{holds}instr(folded(f.path), ?)")
            values.append(path.casefold())
    for phrases, holds in ((query.phrases, "in"), (query.without, "not in")):
        for phrase in phrases:
            tokens = con.tokenize(index_words(phrase))
            where.append(f"f.id {holds} (select rowid from words where words match ?)")
            values.append(f'"{" ".join(tokens)}"' if tokens else NOTHING)
    by_property = bool(query.properties or query.without_properties)
    if len(where) == 1 and not by_property:
        return None
    ids = [note for (note,) in con.rows("select f.id from files f where " + " and ".join(where), values)]
    if not by_property:
        return frozenset(ids)
    sql = "select e.value, t.properties from json_each(?) e left join texts t on t.id = e.value"
    meeting = set[int]()
    for note, stored in con.rows(sql, (json.dumps(ids),)):
        held = json.loads(stored) if stored else {}
        if all(has_property(held, key, value) for key, value in query.properties) and not any(
            has_property(held, key, value) for key, value in query.without_properties
        ):
            meeting.add(note)
    return frozenset(meeting)


def _make_acceptance_test(con: Connection, query: Query, meets: frozenset[int] | None) -> Accepts:
    """A function that selects the notes that may be answered: they meet the conditions and the reader may see them."""
    if meets is None and query.visible == EVERYTHING:
        return _accept_all
    seen: dict[int, bool] = {}

    def accepts(notes: Sequence[int]) -> set[int]:
        left = set(notes) if meets is None else set(meets.intersection(notes))
        if query.visible == EVERYTHING:
            return left
        unknown = [note for note in left if note not in seen]
        visible = filter_visible(con, unknown, query.visible)
        seen.update((note, note in visible) for note in unknown)
        return {note for note in left if seen[note]}

    return accepts


def _accept_all(notes: Sequence[int]) -> set[int]:
    return set(notes)


# ---- totals, and nothing found ------------------------------------------------------------------------


_MATCHING = "select rowid from words where words match ? limit ?"


def _count_matches(
    con: Connection, terms: Sequence[QueryWord], words: Sequence[str], accepts: Accepts
) -> tuple[int, int, set[int]]:
    """The number of notes with any of the words and with all, each capped at MAX_COUNTED; and the notes with all of
    several words, if they are few."""
    con.variants = {term.word: term.forms for term in terms if len(term.forms) > 1}
    any_of = _count_capped(con, _join_words("OR", terms), accepts)
    tokens = {token for word in words for token in con.tokenize(index_words(word))}
    if tokens - {term.word for term in terms}:
        return any_of, 0, set()
    if len(terms) == 1:
        return any_of, any_of, set()
    having = _find_matching(con, _join_words("AND", sorted(terms, key=lambda term: term.notes)), accepts)
    return any_of, min(len(having), MAX_COUNTED), having if len(having) <= FEW_WHOLE else set()


def _count_capped(con: Connection, expression: str, accepts: Accepts) -> int:
    """Count the notes that match and may be answered, up to MAX_COUNTED."""
    if accepts is _accept_all:
        return con.number(f"select count(*) from ({_MATCHING})", (expression, MAX_COUNTED))
    return min(len(_find_matching(con, expression, accepts)), MAX_COUNTED)


def _find_matching(con: Connection, expression: str, accepts: Accepts) -> set[int]:
    """The notes that match and may be answered; if they are many, at least MAX_COUNTED of them."""
    limit = MAX_COUNTED
    while True:
        rows = con.table("rowid", _MATCHING, (expression, limit))
        found = accepts([note for (note,) in rows])
        if len(rows) < limit or len(found) >= MAX_COUNTED:
            return found
        limit *= 4


def _find_nearest(
    con: Connection, vocabulary: Vocabulary, query: Query, words: Sequence[str], accepts: Accepts
) -> tuple[str, ...]:
    """Spellings and names similar to the words, never of a note the reader may not see."""
    if not words:
        return ()
    near: list[str] = []
    short = [word for word in words if len(word) <= MAX_NAME_CHARS]
    for form in suggest_spellings(con, vocabulary, short, MAX_NEAREST):
        if _count_capped(con, f'"{form}"', accepts):
            near.append(form)
    wanted = path_key(" ".join(words))[:MAX_NAME_CHARS]
    names = names_like(con, vocabulary, wanted, limit=MAX_NEAREST * 10, visible=query.visible)
    return tuple(dict.fromkeys([*near, *(path.stem for path in names[:MAX_NEAREST])]))


# ---- lists for a ranking ------------------------------------------------------------------------------


@dataclass(slots=True)
class _Reading:
    """A query for FTS5, by words as written or all forms of their stems, and its matches; words numbered as there."""

    terms: Sequence[QueryWord]
    stemmed: bool
    expression: str
    sentences: str  # the expression for linking sentences: these are short, so the rare words are enough
    matches: WordMatches
    aliased: list[int] = field(default_factory=list)  # notes with a word of the query in an alias


def collect_evidence(
    con: Connection,
    terms: Sequence[QueryWord],
    question: str,
    total: int,
    accepts: Accepts,
    depth: int,
    narrow: bool,
    few: set[int],
) -> SearchEvidence:
    """Collect the evidence for `terms`, words that are in some note. `total` is the number of notes; `few` are those
    with all of the words, which are found however low they score."""
    word_count = len(terms)
    if word_count > MAX_WORDS:
        terms = sorted(terms, key=lambda term: term.notes)[:MAX_WORDS]
    chosen, others = _split_by_rarity(terms, total) if narrow else (list(terms), [])
    everywhere = narrow and chosen[0].notes > FEW_ROWS + total // 4
    readings = [_to_reading(chosen, others, total, stemmed=False, named=everywhere)]
    if any(len(term.forms) > 1 for term in (*chosen, *others)):
        readings.append(_to_reading(chosen, others, total, stemmed=True, named=everywhere))
    for reading in readings:
        _add_best_notes(con, reading, reading.expression, accepts, depth)
    last = readings[-1]
    if few and not everywhere and len(chosen) + len(others) < word_count:  # words that are everywhere were left out
        few = _find_matching(con, _join_words("AND", last.terms), accepts)
    if few and (everywhere or not few <= last.matches.scores.keys()):
        few = set(_add_best_notes(con, last, _join_words("AND", last.terms), accepts, depth))
    starts: dict[int, list[int]] = {}
    for reading in readings:
        _add_starts(con, reading.matches.scores, starts)
        reading.matches.starts = {note: starts[note] for note in reading.matches.scores}
    return SearchEvidence(
        total,
        tuple(reading.matches for reading in readings),
        *_find_mentions(con, last, accepts, depth, starts),
        tuple(_find_names(con, last, question, accepts)),
        narrowed=len(chosen) < len(terms) or everywhere,
        whole=tuple(few) if len(few) <= FEW_WHOLE else (),
    )


def _split_by_rarity(terms: Sequence[QueryWord], total: int) -> tuple[list[QueryWord], list[QueryWord]]:
    """The rarest words, which select notes; and the others but for those in half of all notes, which weigh nothing."""
    ordered = sorted(terms, key=lambda term: term.notes)
    room = FEW_ROWS + total // 50
    if sum(term.notes for term in ordered) <= room:
        return list(terms), []
    chosen = ordered[:1]
    room -= chosen[0].notes
    for term in ordered[1:]:
        room -= term.notes
        if room < 0:
            break
        chosen.append(term)
    return chosen, [term for term in ordered[len(chosen) :] if term.notes <= total // 2]


def _to_reading(rare: list[QueryWord], others: list[QueryWord], total: int, *, stemmed: bool, named: bool) -> _Reading:
    """Build the query for FTS5. `named`: words in nearly every note are searched in names and headings only."""
    expression, terms = _join_words("OR", rare), list(rare)
    if named:
        expression = f"{{title alias head tag}} : ({expression})"
    if others:
        expression = f'({expression}) AND ("{MARK}" OR {_join_words("OR", others)})'
        terms += [QueryWord(MARK, (MARK,), total, total), *others]
    having = [term.notes if stemmed else term.written for term in terms]
    return _Reading(terms, stemmed, expression, _join_words("OR", rare), WordMatches(having))


def _join_words(operator: str, terms: Iterable[QueryWord]) -> str:
    return f" {operator} ".join(f'"{term.word}"' for term in terms)


# ---- notes and their sections -------------------------------------------------------------------------

# `+rank` lets SQLite itself keep the best: FTS5 would sort all rows with their places, then count and score them again.
_BEST = "select rowid, +rank as score from {0} where {0} match ? order by score limit ?"
_NOTED = "select {1}({0}) as noted from {0} where {0} match ? and +rowid in (select value from json_each(?)) limit -1"
_BEST_NOTES, _PLACES = _BEST.format("words"), _NOTED.format("words", "places")
_STARTS = "select id, sections from texts where id in (select value from json_each(?))"


def _set_variants(con: Connection, reading: _Reading) -> None:
    variants = {term.word: term.forms for term in reading.terms if len(term.forms) > 1}
    con.variants = variants if reading.stemmed else {}


def _add_best_notes(con: Connection, reading: _Reading, expression: str, accepts: Accepts, depth: int) -> list[int]:
    """Add the best notes, with the places of the words, and return them."""
    _set_variants(con, reading)
    matches = reading.matches
    best = _find_best(con, _BEST_NOTES, expression, accepts, depth)
    noted = _capture(con, _PLACES, expression, best)
    for note, score in best.items():
        found, aliased = noted[note]
        if aliased and note not in matches.scores:
            reading.aliased.append(note)
        matches.scores[note], matches.found[note] = score, found
    return list(best)


def _find_best(con: Connection, sql: str, expression: str, accepts: Accepts, depth: int) -> dict[int, float]:
    """The scores of the best `depth` rows that may be answered."""
    limit = depth
    while True:
        rows = con.table("rowid, -score", sql, (expression, limit))
        allowed = accepts([row for row, _ in rows])
        if len(rows) < limit or len(allowed) >= depth:
            return dict([(row, score) for row, score in rows if row in allowed][:depth])
        limit *= 4


def _capture(con: Connection, sql: str, expression: str, rows: Iterable[int]) -> dict[int, Any]:
    """Run a statement whose SQL function captures data of each of these rows, which the expression matches."""
    con.captured = noted = dict[int, Any]()
    con.value(f"select count(noted) from ({sql})", (expression, json.dumps(list(rows))))
    con.captured = {}
    return noted


def _add_starts(con: Connection, notes: Iterable[int], starts: dict[int, list[int]]) -> None:
    """Add where the sections of these notes start, for notes not in `starts` yet."""
    if unknown := [note for note in notes if note not in starts]:
        starts |= dict(con.table("id, json('[' || sections || ']')", _STARTS, (json.dumps(unknown),)))


def make_places_function(con: Connection) -> Callable[..., None]:
    """The SQL function `places`: captures where the words are in the current row of FTS5."""

    def places(api: apsw.FTS5ExtensionApi, *_: object) -> None:
        offsets, columns_of = api.phrase_column_offsets, api.phrase_columns
        body: dict[int, Sequence[int]] = {}
        title: dict[int, int] = {}
        tagged: list[int] = []
        aliased = False
        for word in range(api.phrase_count):
            columns = columns_of(word)
            if BODY in columns:
                body[word] = offsets(word, BODY)
            if TITLE in columns:
                title[word] = len(offsets(word, TITLE))
            if TAG in columns:
                tagged.append(word)
            if ALIAS in columns:
                aliased = True
        covered = bool(title) and sum(title.values()) >= api.column_size(TITLE)
        con.captured[api.rowid] = (Occurrences(body, title, tuple(tagged), covered), aliased)

    return places


# ---- linking sentences --------------------------------------------------------------------------------

_BEST_SENTENCES, _COUNTS = _BEST.format("sentences"), _NOTED.format("sentences", "counts")
# The links of a sentence have consecutive numbers, and the sentence has the number of the first.
_TARGETS = f"""
select l.sentence, l.source, l.target, l.key,
  (select count(*) from (select 1 from names where key = l.key || '.md' and kind = '{NAME}' limit 2)) as named,
  (select min(file) from names where key = l.key || '.md' and kind = '{NAME}') as first
from json_each(?) e
  join links l on l.sentence = e.value and l.id >= e.value and l.id < coalesce((select o.id from links o
    where o.id > e.value and o.id < e.value + 40 and o.sentence is not e.value order by o.id limit 1), e.value + 40)"""
_NAMESAKES = f"""
select f.id, f.path from names n join files f on f.id = n.file where n.key = ? || '.md' and n.kind = '{NAME}'"""


def make_counts_function(con: Connection) -> Callable[..., None]:
    """The SQL function `counts`: captures how often each word is in the current row of FTS5."""

    def counts(api: apsw.FTS5ExtensionApi, *_: object) -> None:
        offsets = api.phrase_column_offsets
        con.captured[api.rowid] = {word: len(found) for word in range(api.phrase_count) if (found := offsets(word, 0))}

    return counts


def _find_mentions(
    con: Connection, reading: _Reading, accepts: Accepts, depth: int, starts: dict[int, list[int]]
) -> tuple[dict[int, float], dict[int, dict[int, int]], dict[int, int]]:
    """For each note the score of the best sentence that links to it, the count of each word in all such sentences, and
    the lengths of notes. Sentences of notes that may not be seen are left out."""
    _set_variants(con, reading)
    best: dict[int, float] = {}
    counts_of: defaultdict[int, dict[int, int]] = defaultdict(dict)
    links: dict[int, list[_WrittenLink]] = {}  # of each sentence

    def accept_sentences(sentences: Sequence[int]) -> set[int]:
        found: defaultdict[int, list[_WrittenLink]] = defaultdict(list)
        unknown = json.dumps([sentence for sentence in sentences if sentence not in links])
        for row in con.table("sentence, source, target, key, named, first", _TARGETS, (unknown,)):
            found[row[0]].append(row)
        allowed = accepts([rows[0][1] for rows in found.values()])
        links.update((sentence, rows) for sentence, rows in found.items() if rows[0][1] in allowed)
        return links.keys() & set(sentences)

    sentences = _find_best(con, _BEST_SENTENCES, reading.sentences, accept_sentences, depth)
    counts = _capture(con, _COUNTS, reading.sentences, sentences)
    for sentence, score in sentences.items():
        for target in _resolve_targets(con, links[sentence]):
            best[target] = max(best.get(target, 0.0), score)
            words = counts_of[target]
            for word, times in counts[sentence].items():
                words[word] = words.get(word, 0) + times
    allowed = accepts(list(best))
    mentioned = {note: words for note, words in counts_of.items() if note in allowed}
    _add_starts(con, mentioned, starts)
    found = reading.matches.scores.keys() | mentioned.keys()
    lengths = {note: starts[note][-1] for note in found if note in starts}  # of a note yet unread nothing is known
    return {note: score for note, score in best.items() if note in allowed}, mentioned, lengths


_WrittenLink = tuple[Any, ...]  # a row of _TARGETS; `named` counts the notes of that name (0, 1, more), `first` is one


def _resolve_targets(con: Connection, rows: list[_WrittenLink]) -> set[int]:
    """The notes these links of one sentence lead to, without its own note."""
    source = rows[0][1]
    if len(rows) == 1 and rows[0][4] < 2:
        return {rows[0][5]} - {source, None}
    candidates: dict[str, tuple[int, int, str]] = {}
    for _, _, target, key, named, first in rows:
        if named:
            candidates[target] = named + candidates.get(target, (0,))[0], first, key
    meant: set[int] = set()
    for target, (named, first, key) in candidates.items():
        meant |= {first} if named == 1 else _resolve_namesake(con, target, source, key)
    return meant - {source}


def _resolve_namesake(con: Connection, target: str, source: int, key: str) -> set[int]:
    """The one of several notes with one name that a link means, as a set."""
    from notewright.notes.links.resolve import InMemoryNames, link_key, resolve

    meant = con.get_cache("meant")
    if (target, source) not in meant:
        namesakes = con.get_cache("namesakes")
        if key in namesakes:
            paths, known = namesakes[key]
        else:
            paths = {NotePath(path): note for note, path in con.table("id, path", _NAMESAKES, (key,))}
            known = Namesakes(paths)
            if len(paths) <= MAX_NAMESAKES:
                namesakes[key] = paths, known
        names = InMemoryNames()
        names.paths_by_key["name", link_key(target.strip())] = known  # cutting out each of hundreds takes 5 ms
        chosen = resolve(target, NotePath(str(con.value("select path from files where id = ?", (source,)))), names)
        meant[target, source] = set() if chosen is None else {paths[chosen]}
    found: set[int] = meant[target, source]
    return found


# ---- names --------------------------------------------------------------------------------------------


def _find_names(con: Connection, reading: _Reading, question: str, accepts: Accepts) -> Iterable[NameMatch]:
    """Notes with a name in the question: as a run of its words, or an alias that holds one of its words."""
    words = [word.strip("?.,;:!\"'()[]“”‘’") for word in question.split()][:40]
    runs = {
        path_key(" ".join(words[start:end]))
        for start in range(len(words))
        for end in range(start + 1, min(len(words), start + MAX_NAME_WORDS) + 1)
    }
    keys = json.dumps([key for run in runs if run for key in (run, run + ".md")])
    other_name = f"kind in ('{ALIASED}', '{TITLED}')"
    sql = f"""select file, key, kind from names where key in (select value from json_each(?))
        and ({other_name} or (kind = '{NAME}' and key like '%.md')) limit 500"""
    named = [
        (note, key.removesuffix(".md") if kind == NAME else key, kind == NAME)
        for note, key, kind in con.table("file, key, kind", sql, (keys,))
    ]
    if reading.aliased:
        sql = f"select file, key from names where file in (select value from json_each(?)) and {other_name}"
        named += [(note, key, False) for note, key in con.table("file, key", sql, (json.dumps(reading.aliased),))]
    allowed = accepts([note for note, _, _ in named])
    numbers = {form: number for number, term in enumerate(reading.terms) for form in term.forms}
    for note, name, is_filename in named:
        found = [numbers.get(word) for word in con.tokenize(index_words(name))] if note in allowed else ()
        known = tuple(word for word in found if word is not None)
        if found and len(known) == len(found):
            yield NameMatch(note, is_filename, known)


# ---- neighbours ---------------------------------------------------------------------------------------

# Each name of a note once: else a name that it links to often is looked up so often, and with each of its namesakes.
_EDGES = f"""
select l.source, n.file from (select distinct source, key from links
    where source in (select value from json_each(?))) l
  cross join names n on n.key = l.key || '.md' and n.kind = '{NAME}' where n.file != l.source"""
_DEGREE = f"""
select e.value as note, (select count(*) from links where source = e.value) + (
  select count(*) from names n join links l on l.key = substr(n.key, 1, length(n.key) - 3)
    where n.file = e.value and n.kind = '{NAME}') as degree
  from json_each(?) e"""


def neighbours(con: Connection, notes: Sequence[int]) -> list[tuple[int, int]]:
    return con.table("source, file", _EDGES, (json.dumps(notes),))


def degrees(con: Connection, notes: Sequence[int], visible: Visibility = EVERYTHING) -> dict[int, int]:
    seen = filter_visible(con, notes, visible)
    return dict(con.table("note, degree", _DEGREE, (json.dumps([note for note in notes if note in seen]),)))


def filter_visible(con: Connection, notes: Sequence[int], visible: Visibility) -> set[int]:
    """The notes among these that the reader may see."""
    sees = visible.test
    if sees is None or not notes:
        return set(notes)
    sql = "select id, path from files where id in (select value from json_each(?))"
    return {note for note, path in con.table("id, path", sql, (json.dumps(list(notes)),)) if sees(path)}
