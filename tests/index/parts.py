"""Parts that tests of the index put together: filings of texts, and indexes to put them in."""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from notewright.engine.find.search import find
from notewright.index.base import Filing, Index, Query
from notewright.index.sqlite.index import SqliteIndex
from notewright.index.sqlite.schema import Connection
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
    index = SqliteIndex(folder)
    file(index, texts or {})
    return index


def facts(index: Index) -> dict[str, dict[str, list[Any]]]:
    """For each path all that is stored of it, without the numbers that depend on the order of filing."""
    return cast(SqliteIndex, index).ask(lambda con: dict(_stored(con)))


def _stored(con: Connection) -> Iterator[tuple[str, dict[str, list[Any]]]]:
    for file, path in list(con.rows("select id, path from files order by path")):
        tags = con.rows("select key, name from tags where file=? order by rowid", (file,))
        yield (
            str(path),
            {
                "file": [row[1:] for row in con.rows("select * from files where id=?", (file,))],
                "text": [row[1:] for row in con.rows("select * from texts where id=?", (file,))],
                "names": sorted(con.rows("select kind, key from names where file=?", (file,))),
                "tags": [tuple(row) for row in tags],
                "links": [row[2:11] for row in con.rows("select * from links where source=? order by id", (file,))],
            },
        )


def asked(question: str, **conditions: object) -> Query:
    return Query(tuple(query_words(question)), question=question, **conditions)  # type: ignore[arg-type]


def paths(index: Index, question: str = "", **conditions: object) -> list[str]:
    """The paths a search answers, best first."""
    return [hit.path for hit in find(index, asked(question, **conditions)).items]
