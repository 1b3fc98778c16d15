"""Parts that tests of the index put together: filings of texts, and indexes to put them in."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from notewright.index.base import Filing, Index, Query
from notewright.index.sqlite.index import SqliteIndex
from notewright.notes.parse.parser import parse
from notewright.notes.path import NotePath
from notewright.notes.words import query_words


def filing(path: str, text: str | None = None, *, modified: int = 1_000, stamp: str = "") -> Filing:
    """A file as a store would hand it over; without text an attachment."""
    place = NotePath(path)
    if text is None:
        return Filing(place, stamp or "s", "", 3, modified, None)
    data = text.encode()
    version = hashlib.sha256(data).hexdigest()
    return Filing(place, stamp or version[:8], version, len(data), modified, parse(place, text))


def file(index: Index, texts: Mapping[str, str | None]) -> None:
    index.file(filing(path, text) for path, text in texts.items())


def sqlite_index(folder: Path, texts: Mapping[str, str | None] | None = None) -> SqliteIndex:
    index = SqliteIndex.open(folder)
    file(index, texts or {})
    return index


def asked(question: str, **conditions: object) -> Query:
    return Query(tuple(query_words(question)), question, **conditions)  # type: ignore[arg-type]


def paths(index: Index, question: str = "", **conditions: object) -> list[str]:
    """The paths a search answers, best first."""
    return [hit.path for hit in index.search(asked(question, **conditions)).items]
