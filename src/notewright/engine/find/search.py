"""Searching: from the words a person typed to ranked sections."""

from dataclasses import replace

from notewright.engine.workspace import Workspace, by_whole_index
from notewright.index.base import Hits, Query, everything
from notewright.notes.query import parse_terms
from notewright.notes.words import query_words

SENTENCE = 5  # so many words beside a phrase are a sentence that quotes something, not a search for the quotation
LONGEST = 4_000  # characters of a question; what comes after them is not looked for


def parse_query(text: str) -> Query:
    """The search language: words, "phrases", -word, tag:x, path:x, [key:value], each also with a dash in front."""
    terms = parse_terms(text[:LONGEST])
    return Query(
        words=tuple(query_words(" ".join(terms.words))),
        question=" ".join(terms.words),
        phrases=terms.phrases,
        without=terms.without,
        tags=terms.tags,
        without_tags=terms.without_tags,
        paths=terms.paths,
        without_paths=terms.without_paths,
        properties=terms.properties,
        without_properties=terms.without_properties,
    )


def search(ws: Workspace, query: Query) -> Hits:
    """Ranked notes, each with its best section, as far as this reader may see."""
    sees = ws.access.sees if ws.access.hide else everything  # asking about each path costs as much as ranking
    asked = replace(query, visible=sees)
    return by_whole_index(ws, lambda: _search(ws, asked))


def _search(ws: Workspace, query: Query) -> Hits:
    found = ws.index.search(query)
    if not query.phrases or len(found.items) >= query.limit or not _is_sentence(query):
        return found
    loosely = ws.index.search(replace(query, phrases=()))
    first = {hit.path for hit in found.items}
    more = [hit for hit in loosely.items if hit.path not in first][: query.limit - len(found.items)]
    return replace(loosely, items=(*found.items, *more))


def _is_sentence(query: Query) -> bool:
    quoted = {word for phrase in query.phrases for word in query_words(phrase)}
    return query.offset == 0 and len(set(query.words) - quoted) >= SENTENCE
