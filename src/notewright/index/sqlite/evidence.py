"""The lists a ranking is made of: the best notes, sections and linking sentences for the words of a question.

Common words cost most and tell least. So the rarest words choose who is looked at, and all words then count.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from typing import Any

import apsw

from notewright.index.ranking import (
    MENTION,
    NOTE,
    OTHER_NAME,
    SAID,
    SECTION,
    TAGGED,
    Evidence,
    Occurrences,
    best_sections,
    damp_unmatched,
    fuse,
    mention_scores,
    name_rarity,
    rarity,
    spread,
)
from notewright.index.sqlite.schema import ALIAS, ALIASED, BODY, MARK, NAME, TAG, TITLE, TITLED, Connection
from notewright.index.sqlite.vocabulary import QueryWord
from notewright.notes.links.resolve import names_of, resolve
from notewright.notes.path import NotePath, path_key
from notewright.notes.words import index_words

DEPTH = 100  # of each list: the best hundred change nothing, the best thirty cost a point
SPREADING = 30  # so many of the best share with their neighbours
STRANGERS = 10  # so many notes without any of the words may come in by their neighbours
FEW_ROWS = 2_000  # rows that choosing by rare words may bring, and a fiftieth of the notes
MOST_WORDS = 48  # of a question that are looked for, the rarest: a page of text is a question too
LONGEST_NAME = 10  # words of a question that are looked up as one name

Accepts = Callable[[Sequence[int]], set[int]]  # which of these notes may be answered


@dataclass(slots=True)
class SectionMatches:
    """What was found, best first: scores, and for each note the number of its best section."""

    scores: dict[int, float]
    sections: dict[int, int]
    narrowed: bool  # only the rarest words chose; others might bring more


@dataclass(slots=True)
class _Kind:
    """One way to read the words: as written, or in all forms of their stems. Words are numbered as FTS5 does."""

    terms: Sequence[QueryWord]
    stemmed: bool
    having: list[int]
    expression: str
    sentences: str  # the same question to the linking sentences: those are short, the rare words do
    notes: dict[int, float] = field(default_factory=dict)
    found: dict[int, Occurrences] = field(default_factory=dict)
    covered: list[int] = field(default_factory=list)  # notes whose whole title is in the question
    aliased: list[int] = field(default_factory=list)  # notes with a word of it in an alias
    starts: dict[int, list[int]] = field(default_factory=dict)


def found_by(
    con: Connection,
    terms: Sequence[QueryWord],
    question: str,
    total: int,
    accepts: Accepts,
    *,
    depth: int = DEPTH,
    narrow: bool = True,
) -> SectionMatches:
    """The recipe. `terms` are words that are in some note; `total` is the number of notes."""
    if len(terms) > MOST_WORDS:
        terms = sorted(terms, key=lambda term: term.notes)[:MOST_WORDS]
    chosen, others = _split(terms, total) if narrow else (list(terms), [])
    everywhere = narrow and chosen[0].notes > FEW_ROWS + total // 4
    kinds = [_kind(chosen, others, total, stemmed=False, named=everywhere)]
    if any(len(term.forms) > 1 for term in (*chosen, *others)):
        kinds.append(_kind(chosen, others, total, stemmed=True, named=everywhere))
    evidence: list[Evidence] = []
    sections: dict[int, int] = {}
    for kind in kinds:
        share = 2 / len(kinds)  # where no word has other forms, both ways are one
        _fill(con, kind, accepts, depth)
        best = best_sections(kind.found, kind.starts, total, kind.having)
        sections.update({note: which for note, (_, which) in best.items()})
        evidence += [
            Evidence(NOTE * share, kind.notes),
            Evidence(SECTION * share, {note: score for note, (score, _) in best.items()}),
        ]
    evidence += _mentions(con, kinds[-1], total, accepts, depth)
    evidence.append(Evidence(1.0, _names(con, kinds[-1], question, total, accepts)))
    evidence.append(Evidence(TAGGED, _tagged(kinds[-1], total)))
    scores = _spread(con, fuse(evidence), accepts)
    ordered = sorted(scores.items(), key=lambda entry: -entry[1])
    return SectionMatches(dict(ordered), sections, len(chosen) < len(terms) or everywhere)


def _split(terms: Sequence[QueryWord], total: int) -> tuple[list[QueryWord], list[QueryWord]]:
    """Words that choose, the rarest; and the others, without those in half of all notes, which tell nothing."""
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


def _kind(chosen: list[QueryWord], others: list[QueryWord], total: int, *, stemmed: bool, named: bool) -> _Kind:
    """The question to FTS5. `named`: words that are nearly everywhere are looked for in names and headings alone."""
    expression, terms = _any(chosen), list(chosen)
    if named:
        expression = f"{{title alias head tag}} : ({expression})"
    if others:
        expression = f'({expression}) AND ("{MARK}" OR {_any(others)})'
        terms += [QueryWord(MARK, (MARK,), total, total), *others]
    having = [term.notes if stemmed else term.written for term in terms]
    return _Kind(terms, stemmed, having, expression, _any(chosen))


def _any(terms: Iterable[QueryWord]) -> str:
    return " OR ".join(f'"{term.word}"' for term in terms)


# ---- notes and their sections -------------------------------------------------------------------------

_BEST = "select rowid, -rank as score, places(words) as noted from words where words match ? order by rank limit ?"
_STARTS = "select id, sections from texts where id in (select value from json_each(?))"


def _asked(con: Connection, kind: _Kind) -> None:
    con.variants = {term.word: term.forms for term in kind.terms if len(term.forms) > 1} if kind.stemmed else {}


def _fill(con: Connection, kind: _Kind, accepts: Accepts, depth: int) -> None:
    """The best notes, with the places of the words and where their sections start."""
    _asked(con, kind)
    for note, score in _best(con, _BEST, kind.expression, accepts, depth):
        kind.notes[note] = score
        kind.found[note], covered, aliased = con.noted[note]
        if covered:
            kind.covered.append(note)
        if aliased:
            kind.aliased.append(note)
    con.noted = {}
    kind.starts = _starts(con, kind.notes)


def _best(con: Connection, sql: str, expression: str, accepts: Accepts, depth: int) -> list[tuple[int, float]]:
    """The best rows that may be answered, so many if there are; what SQL noted of them is there."""
    limit = depth
    while True:
        con.noted = {}
        rows = con.table("rowid, score, noted", sql, (expression, limit))
        allowed = accepts([row for row, _, _ in rows])
        if len(rows) < limit or len(allowed) >= depth:
            return [(row, score) for row, score, _ in rows if row in allowed][:depth]
        limit *= 4


def _starts(con: Connection, notes: Iterable[int]) -> dict[int, list[int]]:
    rows = con.table("id, sections", _STARTS, (json.dumps(list(notes)),))
    return {note: list(map(int, starts.split(","))) for note, starts in rows}


def noting_places(con: Connection) -> Callable[..., None]:
    """The function `places` of SQL: keeps where the words stand in the row FTS5 is at."""

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
        con.noted[api.rowid] = (Occurrences(body, title, tuple(tagged)), covered, aliased)

    return places


# ---- linking sentences --------------------------------------------------------------------------------

_BEST_SAID = "select rowid, -rank as score, counts(said) as noted from said where said match ? order by rank limit ?"
_TARGETS = f"""
select l.said, l.source, l.target, f.path, n.file as meant from json_each(?) e
  join links l on l.id >= e.value and l.id < e.value + 40 and l.said = e.value
  join files f on f.id = l.source
  left join names n on n.key = l.key || '.md' and n.kind = '{NAME}'"""


def noting_counts(con: Connection) -> Callable[..., None]:
    """The function `counts` of SQL: keeps how often each word is in the row FTS5 is at."""

    def counts(api: apsw.FTS5ExtensionApi, *_: object) -> None:
        offsets = api.phrase_column_offsets
        present = (word for word in range(api.phrase_count) if api.phrase_columns(word))
        con.noted[api.rowid] = {word: len(offsets(word, 0)) for word in present}

    return counts


def _mentions(con: Connection, kind: _Kind, total: int, accepts: Accepts, depth: int) -> list[Evidence]:
    """The best sentence in which another note links to each, and what all these sentences say of it. What a note
    that may not be seen says is not said."""
    _asked(con, kind)
    best: dict[int, float] = {}
    said_to: defaultdict[int, dict[int, int]] = defaultdict(dict)
    links: dict[int, list[_Written]] = {}

    def seen(sentences: Sequence[int]) -> set[int]:
        links.update(_links_of(con, [said for said in sentences if said not in links], accepts))
        return links.keys() & set(sentences)

    for said, score in _best(con, _BEST_SAID, kind.sentences, seen, depth):
        for target in _meant(con, links[said]):
            best[target] = max(best.get(target, 0.0), score)
            words = said_to[target]
            for word, times in con.noted[said].items():
                words[word] = words.get(word, 0) + times
    con.noted = {}
    allowed = accepts(list(best))
    told = {note: words for note, words in said_to.items() if note in allowed}
    lengths = {note: starts[-1] for note, starts in (kind.starts | _starts(con, told)).items()}
    rarities = [rarity(total, count) for count in kind.having]
    scores = {note: score for note, score in best.items() if note in allowed}
    return [
        Evidence(MENTION, damp_unmatched(scores, kind.notes)),
        Evidence(SAID, damp_unmatched(mention_scores(told, kind.found, lengths, rarities), kind.notes)),
    ]


_Written = list[Any]  # said, source, target, the source's path, a note of that name or None


def _links_of(con: Connection, sentences: list[int], accepts: Accepts) -> dict[int, list[_Written]]:
    """The links of these sentences, of those that may be seen."""
    found: defaultdict[int, list[_Written]] = defaultdict(list)
    for row in con.table("said, source, target, path, meant", _TARGETS, (json.dumps(sentences),)):
        found[row[0]].append(row)
    allowed = accepts([rows[0][1] for rows in found.values()])
    return {said: rows for said, rows in found.items() if rows[0][1] in allowed}


def _meant(con: Connection, rows: list[_Written]) -> set[int]:
    """The notes these links lead to, without their source."""
    if len(rows) == 1:
        return {rows[0][4]} - {rows[0][1]} if rows[0][4] is not None else set()
    candidates: defaultdict[str, list[int]] = defaultdict(list)
    for _, _, target, _, file in rows:
        if file is not None:
            candidates[target].append(file)
    source, source_path = rows[0][1], NotePath(rows[0][3])
    meant: set[int] = set()
    for target, files in candidates.items():
        meant |= set(files) if len(files) == 1 else _resolved(con, target, source_path, files)
    return meant - {source}


def _resolved(con: Connection, target: str, source: NotePath, files: list[int]) -> set[int]:
    """Of several notes of one name the one the link means."""
    rows = con.rows("select id, path from files where id in (select value from json_each(?))", (json.dumps(files),))
    paths = {NotePath(path): note for note, path in rows}
    chosen = resolve(target, source, names_of(paths))
    return {paths[chosen]} if chosen is not None else set()


# ---- names --------------------------------------------------------------------------------------------


def _names(con: Connection, kind: _Kind, question: str, total: int, accepts: Accepts) -> dict[int, float]:
    """Notes whose whole name is in the question, each with how much the words of that name tell."""
    rarities = [name_rarity(total, count) for count in kind.having]
    told = {form: rare for term, rare in zip(kind.terms, rarities, strict=True) for form in term.forms}
    found = {note: sum(rarities[word] for word in kind.found[note].title) for note in kind.covered}

    def weigh(note: int, name: str, share: float) -> None:
        words = {told.get(word) for word in con.cut(index_words(name))}
        if words and None not in words:
            found[note] = max(found.get(note, 0.0), share * sum(rare for rare in words if rare is not None))

    for note, key, named in _called(con, question):
        weigh(note, key.removesuffix(".md") if named == NAME else key, 1.0 if named == NAME else OTHER_NAME)
    for note, key in _keys_of(con, kind.aliased):
        weigh(note, key, OTHER_NAME)
    allowed = accepts(list(found))
    return {note: score for note, score in found.items() if note in allowed}


def _called(con: Connection, question: str) -> list[list[Any]]:
    """Notes named by a run of words of the question."""
    words = [word.strip("?.,;:!\"'()[]“”‘’") for word in question.split()][:40]
    runs = {
        path_key(" ".join(words[start:end]))
        for start in range(len(words))
        for end in range(start + 1, min(len(words), start + LONGEST_NAME) + 1)
    }
    keys = json.dumps([key for run in runs if run for key in (run, run + ".md")])
    return con.table(
        "file, key, kind",
        f"""select file, key, kind from names where key in (select value from json_each(?))
        and (kind in ('{ALIASED}', '{TITLED}') or (kind = '{NAME}' and key like '%.md')) limit 500""",
        (keys,),
    )


def _keys_of(con: Connection, notes: list[int]) -> list[list[Any]]:
    if not notes:
        return []
    sql = f"""select file, key from names where file in (select value from json_each(?))
        and kind in ('{ALIASED}', '{TITLED}')"""
    return con.table("file, key", sql, (json.dumps(notes),))


# ---- tags ---------------------------------------------------------------------------------------------


def _tagged(kind: _Kind, total: int) -> dict[int, float]:
    """Notes tagged with words of the question: how much these tell, as far as the question is about nothing else."""
    rarities = [rarity(total, count) for count in kind.having]
    whole = sum(rarities)
    told = {note: sum(rarities[word] for word in found.tags) for note, found in kind.found.items() if found.tags}
    return {note: much * (much / whole) ** 2 for note, much in told.items()}


# ---- neighbours ---------------------------------------------------------------------------------------

_EDGES = f"""
select distinct l.source, n.file from links l join names n on n.key = l.key || '.md' and n.kind = '{NAME}'
  where l.source in (select value from json_each(?)) and n.file != l.source"""
_DEGREE = f"""
select e.value as note, (select count(*) from links where source = e.value) + (
  select count(*) from names n join links l on l.key = substr(n.key, 1, length(n.key) - 3)
    where n.file = e.value and n.kind = '{NAME}') as degree
  from json_each(?) e"""


def _spread(con: Connection, scores: Mapping[int, float], accepts: Accepts) -> dict[int, float]:
    """The best share with their neighbours. Of those that have none of the words the nearest few may come in."""
    best = nlargest(SPREADING, scores, key=scores.__getitem__)
    edges = {(source, target) for source, target in con.table("source, file", _EDGES, (json.dumps(best),))}
    given: defaultdict[int, float] = defaultdict(float)
    for source, target in edges:
        if source < target or (target, source) not in edges:  # two that link to each other are neighbours once
            given[target] += scores[source]
            given[source] += scores.get(target, 0.0)
    strangers = nlargest(STRANGERS * 4, (note for note in given if note not in scores), key=given.__getitem__)
    allowed = accepts(strangers)
    kept = [*(note for note in best if note in given), *[note for note in strangers if note in allowed][:STRANGERS]]
    degrees: dict[int, int] = dict(con.table("note, degree", _DEGREE, (json.dumps(kept),)))
    return spread(scores, {note: given[note] for note in kept}, degrees)
