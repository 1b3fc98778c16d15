"""Searching: from the words a person typed to ranked sections."""

from dataclasses import replace

from notewright.engine.workspace import Workspace, by_whole_index
from notewright.index import Hits, Query, everything
from notewright.notes import parse_terms, query_words

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
    return by_whole_index(ws, lambda: ws.index.search(replace(query, visible=sees)))
