"""A note to read: rendered, with its properties, the links both ways and its history."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from notewright.engine.changes.history import list_changes
from notewright.engine.find.links import ResolvedLink, resolver
from notewright.engine.find.links import links as links_of
from notewright.engine.read import Reading, exists, locate, read
from notewright.engine.workspace import Workspace, with_timeout
from notewright.errors import Indexing, NotFound
from notewright.ledger.base import Past
from notewright.notes.links.resolve import Meaning
from notewright.notes.model import Link
from notewright.notes.path import NotePath, path_problem
from notewright.web.addresses import file_url, folder_url, note_url
from notewright.web.frame import PageRequest
from notewright.web.markdown import LinkTargets, TooSlow, anchor, rendered
from notewright.web.pages.activity import ActivityRow
from notewright.web.pages.browse import crumbs

MOST_BYTES = 1_000_000  # of a note that is rendered; of a larger one so many letters are shown as they are
MOST_LINKS = 200
MOST_PROPERTIES = 200
MOST_LETTERS = 500  # of a property
PAST_ROWS = 10
PATIENCE = 2.0  # seconds for the index


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a property: words, and where they lead."""

    words: str
    url: str | None = None
    broken: bool = False


@dataclass(frozen=True, slots=True)
class NoteLinks:
    """What the index knows of a note, as far as it is ready."""

    incoming: tuple[ResolvedLink, ...] = ()
    outgoing: tuple[ResolvedLink, ...] = ()
    ready: bool = True


def note(asked: PageRequest) -> Response:
    ws = asked.ws
    try:
        path = _named(ws, asked.params["path"])
    except NotFound as problem:
        if "folder" in problem.details:
            return asked.go(folder_url(ws, problem.details["folder"]))
        raise
    if not path.is_note:
        return asked.go(file_url(ws, path))
    if path != asked.params["path"]:
        return asked.go(note_url(ws, path))
    reading = read(ws, path)
    around = _around(ws, path)
    large = reading.size > MOST_BYTES
    found = None if large else reading.note
    resolve = _resolver(ws, path, [link.target for link in found.links] if found else [], around.ready)
    body = None if found is None else _rendered(reading, LinkTargets(resolve, _notes(ws), _files(ws)))
    return asked.page(
        "note.html",
        here="notes",
        ws=ws,
        path=path,
        title=found.title if found else path.stem,
        title_id=anchor(f"#{found.title}")[1:] if found else "",
        crumbs=list(crumbs(ws, path.folder)),
        reading=reading,
        large=large,
        body=body,
        plain=reading.text.removeprefix("\ufeff")[:MOST_BYTES] if body is None else None,
        cut=body is None and len(reading.text) > MOST_BYTES,
        problem=found.frontmatter.problem if found else None,
        properties=list(_properties(found.frontmatter.properties, found.links, _ways(ws, resolve))) if found else [],
        around=around,
        most=MOST_LINKS,
        past=[ActivityRow(ws, change) for change in list_changes(ws, Past(path=path, limit=PAST_ROWS))],
    )


def _named(ws: Workspace, raw: str) -> NotePath:
    """The file at this path, or the one note that bears this name."""
    if not path_problem(raw) and ws.access.sees(raw) and exists(ws, NotePath(raw)):
        return NotePath(raw)
    if path_problem(raw):
        raise NotFound("there is no such note", hint="search may find it", what="note")
    return locate(with_timeout(ws, PATIENCE), raw)


def _notes(ws: Workspace) -> Callable[[NotePath], str]:
    return lambda path: note_url(ws, path)


def _files(ws: Workspace) -> Callable[[NotePath], str]:
    return lambda path: file_url(ws, path)


def _around(ws: Workspace, path: NotePath) -> NoteLinks:
    quick = with_timeout(ws, PATIENCE)
    try:
        report = links_of(quick, path)
        return NoteLinks(report.incoming, report.outgoing)
    except Indexing:
        return NoteLinks(ready=False)


def _resolver(ws: Workspace, path: NotePath, targets: list[str], ready: bool) -> Callable[[str], Meaning]:
    """What a link of this note means; nothing while the index does not know."""
    if not ready:
        return lambda target: Meaning(None, (), False)
    means = resolver(ws, expected=targets)
    return lambda target: means(target, path)


def _rendered(reading: Reading, ways: LinkTargets) -> str | None:
    try:
        return rendered(reading.note, ways)
    except TooSlow:
        return None


# ---- properties ---------------------------------------------------------------------------------------


def _ways(ws: Workspace, resolve: Callable[[str], Meaning]) -> Callable[[Link], Piece]:
    ways = LinkTargets(resolve, _notes(ws), _files(ws))

    def piece(link: Link) -> Piece:
        address, _ = ways.address(link.target, link.subpath)
        return Piece(link.display or f"{link.target}{link.subpath}", address, broken=address is None)

    return piece


def _properties(
    values: Mapping[str, Any], links: tuple[Link, ...], led: Callable[[Link], Piece]
) -> Iterator[tuple[str, list[Piece]]]:
    """Each property with its parts; a part that is a link leads where the link does."""
    by_key = {link.key: link for link in links if link.key is not None}
    for name, value in list(values.items())[:MOST_PROPERTIES]:
        parts = value if isinstance(value, list) else [value]
        keys = [f"{name}.{number}" for number in range(len(parts))] if isinstance(value, list) else [name]
        pieces = [
            led(by_key[key]) if key in by_key else Piece(_said(part)) for key, part in zip(keys, parts, strict=True)
        ]
        yield str(name), pieces[:MOST_LINKS]


def _said(value: Any) -> str:
    """A value in words; what has parts of its own as JSON."""
    if value is None:
        return ""
    said = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return said if len(said) <= MOST_LETTERS else f"{said[:MOST_LETTERS]} … ({len(said) - MOST_LETTERS:,} more letters)"
