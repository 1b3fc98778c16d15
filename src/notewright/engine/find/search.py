"""Searching: from the words a person typed to ranked sections."""

from collections.abc import Iterable, Sequence
from heapq import nlargest

from notewright.engine.find import ranking
from notewright.engine.find.snippets import cut_section_snippet, to_words
from notewright.engine.indexing.ready import snapshot
from notewright.engine.workspace import Workspace
from notewright.index.base import EVERYTHING, MAX_COUNTED, Index, Query, SearchEvidence
from notewright.lazy_dataclass import NamedTuple, replace
from notewright.notes.path import NotePath
from notewright.notes.query import parse_terms
from notewright.notes.words import query_words

SENTENCE_WORDS = 5  # so many words beside a phrase are a sentence that quotes something, not a search for the quotation
MAX_QUESTION_CHARS = 4_000  # characters of a question; what comes after them is not looked for
DEPTH = 100  # of each list of evidence: the best hundred change nothing, the best thirty cost a point
MAX_SHARING_NOTES = 30  # the best notes, which share their scores with their neighbours
MAX_UNMATCHED_NOTES = 10  # notes without any of the words that may come in by their neighbours


class Hit(NamedTuple):
    path: NotePath
    title: str
    score: float
    modified_ns: int
    heading: str | None  # the best section's; None above the first heading
    line: int  # first line of that section
    snippet: str  # the best lines of that section, whitespace folded
    marks: tuple[tuple[int, int], ...] = ()  # where in the snippet the words are


class Hits(NamedTuple):
    items: tuple[Hit, ...]
    total: int  # notes that hold any of the words and meet the conditions
    with_all: int  # notes that hold them all
    cut: bool
    nearest: tuple[str, ...] = ()  # spellings and names, when nothing was found
    is_bounded: bool = False  # counting ended at MAX_COUNTED


def describe_counts(*found: Hits) -> tuple[str, str]:
    """The sums of `total` and of `with_all` as text, `1,000 or more` where counting ended."""
    any_of, all_of = [hits.total for hits in found], [hits.with_all for hits in found]
    return _describe_sum(found, any_of), _describe_sum(found, all_of)


def _describe_sum(found: Sequence[Hits], counts: Sequence[int]) -> str:
    is_least = any(hits.is_bounded and count >= MAX_COUNTED for hits, count in zip(found, counts, strict=True))
    return f"{sum(counts):,}" + (" or more" if is_least else "")


def parse_query(
    text: str,
    *,
    folder: str = "",
    tags: Iterable[str] = (),
    since: float | None = None,
    limit: int = 10,
    offset: int = 0,
) -> Query:
    """The search language: words, "phrases", -word, tag:x, path:x, [key:value], each also with a dash in front.

    `folder`, `tags` (with or without `#`) and `since`, when a note was modified, are conditions beside those."""
    terms = parse_terms(text[:MAX_QUESTION_CHARS])
    question = " ".join(terms.words)
    more_tags = tuple(tag.removeprefix("#") for tag in tags)
    parsed = vars(terms) | {"words": tuple(query_words(question)), "question": question, "tags": terms.tags + more_tags}
    since_ns = None if since is None else int(since * 1e9)
    return Query(**parsed, folder=folder, since_ns=since_ns, limit=limit, offset=offset)


def search(ws: Workspace, query: Query) -> Hits:
    """Ranked notes, each with its best section, as far as this reader may see."""
    asked = replace(query, visible=ws.access.visibility)
    return snapshot(ws, lambda: _search(ws.index, asked))


def _search(index: Index, query: Query) -> Hits:
    found = find(index, query)
    if not query.phrases or len(found.items) >= query.limit or not _is_sentence(query):
        return found
    loosely = find(index, replace(query, phrases=()))
    first = {hit.path for hit in found.items}
    more = [hit for hit in loosely.items if hit.path not in first][: query.limit - len(found.items)]
    return loosely._replace(items=(*found.items, *more))


def _is_sentence(query: Query) -> bool:
    quoted = {word for phrase in query.phrases for word in query_words(phrase)}
    return query.offset == 0 and len(set(query.words) - quoted) >= SENTENCE_WORDS


def find(index: Index, query: Query) -> Hits:
    """Ranked by any of the words; every condition holds for every hit. Conditions alone: the newest first."""
    end, depth = query.offset + query.limit, DEPTH
    while depth <= end:
        depth *= 4  # in steps, so that pages of one search come from one ranking
    with index.snapshot():
        evidence = index.evidence(query, depth)
        if not evidence.by_words:
            count, page = len(evidence.newest), [(note, 0.0) for note in evidence.newest[query.offset : end]]
            hits = _hits(index, page, {}, evidence.forms)
            return Hits(hits, count, count, count > end, evidence.nearest)
        found = _ranked(index, query, evidence)
        if evidence.narrowed and len(found.scores) <= end:
            evidence = index.evidence(query, depth, narrow=False)
            found = _ranked(index, query, evidence)
        ordered = sorted(found.scores.items(), key=lambda entry: -entry[1])
        hits = _hits(index, ordered[query.offset : end], found.sections, evidence.forms)
    total, is_bounded = max(evidence.any_of, len(ordered)), evidence.any_of >= MAX_COUNTED
    return Hits(hits, total, evidence.all_of, len(ordered) > end, is_bounded=is_bounded)


def _ranked(index: Index, query: Query, evidence: SearchEvidence) -> ranking.Ranking:
    """Rank by all evidence. The best share with their neighbours; a few of these come in without any of the words."""
    scores, sections = ranking.rank(evidence)
    best = nlargest(MAX_SHARING_NOTES, scores, key=scores.__getitem__)
    given = ranking.score_neighbours(scores, index.neighbours(best))
    met, every = evidence.meets, evidence.meets is None and query.visible == EVERYTHING
    most = MAX_UNMATCHED_NOTES if every else MAX_UNMATCHED_NOTES * 4
    unmatched = nlargest(most, (note for note in given if note not in scores), key=given.__getitem__)
    unmatched = [note for note in unmatched if met is None or note in met]
    linked = [note for note in best if note in given]
    candidates = {note: given[note] for note in (*linked, *unmatched)}
    if every:  # a note too low for the page needs no degree; else only visible notes have one
        low = ranking.find_unreachable(scores, candidates, max(query.offset + query.limit, ranking.PAGE_HITS))
        degrees = index.degrees([note for note in candidates if note not in low])
    else:
        degrees = index.degrees(list(candidates), query.visible)
    shown = unmatched if every else [note for note in unmatched if note in degrees]
    kept = [*linked, *shown[:MAX_UNMATCHED_NOTES]]
    after = ranking.add_shares(scores, {note: given[note] for note in kept}, degrees)
    return ranking.Ranking(ranking.raise_whole_matches(after, evidence.whole), sections)


def _hits(
    index: Index, page: Sequence[tuple[int, float]], sections: dict[int, int], forms: Sequence[str]
) -> tuple[Hit, ...]:
    words = to_words(forms)
    notes = index.notes([note for note, _ in page])
    hits = []
    for number, score in page:
        if note := notes.get(number):
            heading, line, text, marks = cut_section_snippet(note, sections.get(number, 0), words)
            hits.append(Hit(note.path, note.title, score, note.modified_ns, heading, line, text, marks))
    return tuple(hits)
