"""The lists a ranking is made of: the best notes, sections and linking sentences for the words of a question.

Common words cost most and tell least. So the rarest words choose who is looked at, and all words then count.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import apsw

from notewright.index.ranking import (
    MENTION,
    NOTE,
    OTHER_NAME,
    SECTION,
    Evidence,
    Places,
    best_section,
    fused,
    rarity,
    spread,
    usual_length,
)
from notewright.index.schema import ALIAS, ALIASED, BODY, MARK, NAME, TITLE, TITLED, Connection
from notewright.index.vocabulary import Term
from notewright.notes import NotePath, PlainNames, name_keys, path_key, resolve

DEPTH = 100  # of each list: the best hundred change nothing, the best thirty cost a point
SPREADING = 60  # so many of the best share with their neighbours
FEW_ROWS = 3_000  # rows that choosing by rare words may bring, and a fiftieth of the notes
CHUNK = 200
LONGEST_NAME = 10  # words of a question that are looked up as one name

Accepts = Callable[[Sequence[int]], set[int]]  # which of these notes may be answered


@dataclass(slots=True)
class Found:
    """What was found, best first: scores, and for each note the number of its best section."""

    scores: dict[int, float]
    sections: dict[int, int]
    narrowed: bool  # only the rarest words chose; others might bring more


@dataclass(slots=True)
class _Kind:
    """One way to read the words: as written, or in all forms of their stems."""

    terms: Sequence[Term]
    stemmed: bool
    rarities: list[float]
    expression: str
    sentences: str  # the same question to the linking sentences: those are short, the rare words do
    notes: dict[int, float] = field(default_factory=dict)
    places: dict[int, Places] = field(default_factory=dict)
    named: dict[int, float] = field(default_factory=dict)
    aliased: list[int] = field(default_factory=list)


def found_by(
    con: Connection, terms: Sequence[Term], question: str, total: int, accepts: Accepts, *, depth: int = DEPTH,
    narrow: bool = True,
) -> Found:  # fmt: skip
    """The recipe. `terms` are words that are in some note; `total` is the number of notes."""
    chosen, others = _split(terms, total) if narrow else (list(terms), [])
    kinds = [_kind(chosen, others, total, stemmed=False)]
    if any(len(term.forms) > 1 for term in terms):
        kinds.append(_kind(chosen, others, total, stemmed=True))
    evidence: list[Evidence] = []
    sections: dict[int, int] = {}
    for kind in kinds:
        share = 2 / len(kinds)  # where no word has other forms, both ways are one
        _fill(con, kind, accepts, depth)
        best = _best_sections(con, kind)
        sections.update({note: which for note, (_, which) in best.items() if which or note not in sections})
        evidence += [
            Evidence(NOTE * share, kind.notes),
            Evidence(SECTION * share, {note: score for note, (score, _) in best.items()}),
            Evidence(MENTION * share, _mentions(con, kind, accepts, depth)),
        ]
    evidence.append(Evidence(1.0, _names(con, kinds[-1], question, total, accepts)))
    scores = _spread(con, fused(evidence), accepts)
    ordered = sorted(scores.items(), key=lambda entry: -entry[1])
    return Found(dict(ordered), sections, bool(others))


def _split(terms: Sequence[Term], total: int) -> tuple[list[Term], list[Term]]:
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


def _kind(chosen: list[Term], others: list[Term], total: int, *, stemmed: bool) -> _Kind:
    expression = _any(chosen)
    if others:
        expression = f'({expression}) AND ("{MARK}" OR {_any(others)})'
    # The words in the order FTS5 numbers them, the mark among them.
    terms = [*chosen, Term(MARK, (MARK,), total, total), *others] if others else chosen
    counts = [term.notes if stemmed else term.written for term in terms]
    return _Kind(terms, stemmed, [rarity(total, count) for count in counts], expression, _any(chosen))


def _any(terms: Iterable[Term]) -> str:
    return " OR ".join(f'"{term.word}"' for term in terms)


# ---- notes and their sections -------------------------------------------------------------------------

_BEST = "select rowid, -rank, places(words) from words where words match ? order by rank"
_BEST_SAID = "select rowid, -rank from said where said match ? order by rank"


def _asked(con: Connection, kind: _Kind) -> None:
    con.variants = {term.word: term.forms for term in kind.terms if len(term.forms) > 1} if kind.stemmed else {}


def _fill(con: Connection, kind: _Kind, accepts: Accepts, depth: int) -> None:
    """The best notes, with the places of the words and the names that are whole in the question."""
    _asked(con, kind)
    con.places = {}
    rows = con.rows(_BEST, (kind.expression,))
    for accepted in _accepted(rows, accepts, depth):
        for note, score in accepted:
            kind.notes[note] = score
            kind.places[note], covered, aliased = con.places.pop(note)
            if covered:
                kind.named[note] = sum(
                    rare for rare, times in zip(kind.rarities, kind.places[note].title, strict=True) if times
                )
            if aliased:
                kind.aliased.append(note)
        con.places = {}


def _accepted(rows: Iterator[tuple[object, ...]], accepts: Accepts, depth: int) -> Iterator[list[tuple[int, float]]]:
    """The best rows that may be answered, so many. Rows come best first and are read only as far as needed."""
    left, size = depth, depth
    while left > 0:
        chunk = [(row[0], row[1]) for _, row in zip(range(size), rows, strict=False)]
        if not chunk:
            return
        allowed = accepts([note for note, _ in chunk])  # type: ignore[misc]
        taken = [row for row in chunk if row[0] in allowed][:left]
        left -= len(taken)
        size = CHUNK
        yield taken  # type: ignore[misc]


def note_places(con: Connection) -> Callable[..., None]:
    """The function `places` of SQL: keeps where the words stand in the row FTS5 is at."""

    def places(api: apsw.FTS5ExtensionApi, *_: object) -> None:
        offsets, body, title = api.phrase_column_offsets, [], []
        in_title, aliased = 0, False
        for number in range(api.phrase_count):
            columns = api.phrase_columns(number)
            body.append(offsets(number, BODY) if BODY in columns else ())
            times = len(offsets(number, TITLE)) if TITLE in columns else 0
            title.append(times)
            in_title += times
            aliased = aliased or ALIAS in columns
        covered = in_title > 0 and in_title >= api.column_size(TITLE)
        con.places[api.rowid] = (Places(body, title), covered, aliased)

    return places


def _best_sections(con: Connection, kind: _Kind) -> dict[int, tuple[float, int]]:
    starts = {
        note: [int(place) for place in str(text).split(",")]
        for note, text in con.rows(
            "select id, sections from texts where id in (select value from json_each(?))",
            (json.dumps(list(kind.notes)),),
        )
    }
    usual = usual_length(starts.values())
    return {
        note: best_section(places, starts[note], kind.rarities, usual)
        for note, places in kind.places.items()
        if note in starts
    }


# ---- linking sentences --------------------------------------------------------------------------------

_TARGETS = f"""
select l.said, l.source, l.target, f.path, n.file from json_each(?) e
  join links l on l.id >= e.value and l.id < e.value + 40 and l.said = e.value
  join files f on f.id = l.source
  left join names n on n.key = l.key || '.md' and n.kind = '{NAME}'"""


def _mentions(con: Connection, kind: _Kind, accepts: Accepts, depth: int) -> dict[int, float]:
    """The best sentence in which another note links to each. What a note that may not be seen says is not said."""
    _asked(con, kind)
    best: dict[int, float] = {}
    left, rows = depth, con.rows(_BEST_SAID, (kind.sentences,))
    while left > 0:
        chunk = {said: score for _, (said, score) in zip(range(depth), rows, strict=False)}
        if not chunk:
            break
        links = _links_of(con, list(chunk), accepts)
        left -= len(links)
        for said, written in links.items():
            for target in _meant(con, written):
                best[target] = max(best.get(target, 0.0), chunk[said])
    allowed = accepts(list(best))
    return {note: score for note, score in best.items() if note in allowed}


_Written = tuple[int, int, str, str, int | None]  # said, source, target, the source's path, a note of that name


def _links_of(con: Connection, sentences: list[int], accepts: Accepts) -> dict[int, list[_Written]]:
    """The links of these sentences, of those that may be seen."""
    found: defaultdict[int, list[_Written]] = defaultdict(list)
    for row in con.rows(_TARGETS, (json.dumps(sentences),)):
        found[row[0]].append(row)
    allowed = accepts([rows[0][1] for rows in found.values()])
    return {said: rows for said, rows in found.items() if rows[0][1] in allowed}


def _meant(con: Connection, rows: list[_Written]) -> set[int]:
    """The notes these links lead to, without their source."""
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
    marks = ",".join("?" * len(files))
    paths = {
        NotePath(path): note for note, path in con.rows(f"select id, path from files where id in ({marks})", files)
    }
    by_name: defaultdict[str, list[NotePath]] = defaultdict(list)
    for path in paths:
        for key in name_keys(path):
            by_name[key].append(path)
    chosen = resolve(target, source, PlainNames(by_name, {}, {}, {}))
    return {paths[chosen]} if chosen is not None else set()


# ---- names --------------------------------------------------------------------------------------------


def _names(con: Connection, kind: _Kind, question: str, total: int, accepts: Accepts) -> dict[int, float]:
    """Notes whose whole name is in the question, each with how much the words of that name tell."""
    told = {form: rare for term, rare in zip(kind.terms, kind.rarities, strict=True) for form in term.forms}
    found = dict(kind.named)

    def weigh(note: int, name: str, share: float) -> None:
        words = {told.get(word) for word in con.cut(name)}
        if words and None not in words:
            found[note] = max(found.get(note, 0.0), share * sum(rare for rare in words if rare is not None))

    for note, key, named in _called(con, question):
        weigh(note, key.removesuffix(".md") if named == NAME else key, 1.0 if named == NAME else OTHER_NAME)
    for note, key in _keys_of(con, kind.aliased):
        weigh(note, key, OTHER_NAME)
    allowed = accepts(list(found))
    return {note: score for note, score in found.items() if note in allowed}


def _called(con: Connection, question: str) -> Iterator[tuple[int, str, str]]:
    """Notes named by a run of words of the question."""
    words = [word.strip("?.,;:!\"'()[]“”‘’") for word in question.split()][:40]
    runs = {
        path_key(" ".join(words[start:end]))
        for start in range(len(words))
        for end in range(start + 1, min(len(words), start + LONGEST_NAME) + 1)
    }
    keys = json.dumps([key for run in runs if run for key in (run, run + ".md")])
    yield from con.rows(
        f"""select file, key, kind from names where key in (select value from json_each(?))
        and (kind in ('{ALIASED}', '{TITLED}') or (kind = '{NAME}' and key like '%.md')) limit 500""",
        (keys,),
    )


def _keys_of(con: Connection, notes: list[int]) -> Iterator[tuple[int, str]]:
    if notes:
        yield from con.rows(
            f"""select file, key from names where file in (select value from json_each(?))
            and kind in ('{ALIASED}', '{TITLED}')""",
            (json.dumps(notes),),
        )


# ---- neighbours ---------------------------------------------------------------------------------------

_EDGES = f"""
select distinct l.source, n.file from links l join names n on n.key = l.key || '.md' and n.kind = '{NAME}'
  where l.source in (select value from json_each(?)) and n.file != l.source"""
_DEGREE = f"""
select e.value, (select count(distinct key) from links where source = e.value),
  (select count(distinct l.source) from names n join links l on l.key = substr(n.key, 1, length(n.key) - 3)
    where n.file = e.value and n.kind = '{NAME}')
  from json_each(?) e"""


def _spread(con: Connection, scores: Mapping[int, float], accepts: Accepts) -> dict[int, float]:
    best = sorted(scores, key=lambda note: -scores[note])[:SPREADING]
    near: defaultdict[int, set[int]] = defaultdict(set)
    for source, target in con.rows(_EDGES, (json.dumps(best),)):
        near[source].add(target)
        near[target].add(source)
    strangers = [note for note in near if note not in scores]
    allowed = accepts(strangers) if strangers else set()
    near = defaultdict(set, {note: others for note, others in near.items() if note in scores or note in allowed})
    degrees = {note: out + toward for note, out, toward in con.rows(_DEGREE, (json.dumps(list(near)),))}
    return spread(scores, near, degrees)
