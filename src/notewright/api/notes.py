"""Reading notes: listing, one of them, searching, links, and what is wrong with them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from notewright.api import schemas
from notewright.api.operation import Operation
from notewright.api.request import ApiRequest, CursorPage, stamp
from notewright.api.schemas import given, many, number, text, told
from notewright.engine.check import check
from notewright.engine.find.links import ResolvedLink
from notewright.engine.find.links import links as links_of
from notewright.engine.find.search import parse_query, search
from notewright.engine.read import Reading, created, entry_at, listing, read
from notewright.engine.workspace import Workspace
from notewright.errors import Indexing, NotFound, TooLarge
from notewright.index.base import Filed, Hit, Selection
from notewright.notes.path import NotePath

BACKLINKS = 100
MOST_LINKS = 1000  # each way
MOST_FINDINGS = 1000


def list_notes(asked: ApiRequest) -> dict[str, Any]:
    ws, page, prefix = asked.workspace(), CursorPage.of(asked, 100), asked.query.get("prefix", "")
    sees = ws.access.sees
    selection = Selection(
        folder=prefix.rpartition("/")[0],
        holding=(prefix,) if prefix else (),
        visible=(lambda path: path.startswith(prefix) and sees(path)) if prefix else sees,
        limit=page.limit,
        offset=page.offset,
    )
    found, total = listing(ws, selection)
    more = page.offset + len(found) < total
    return {"notes": [_listed(filed) for filed in found], "total": total, "cursor": page.next(more)}


def _listed(filed: Filed) -> dict[str, Any]:
    return {
        "path": filed.path,
        "title": filed.title,
        "version": filed.version,
        "size": filed.size,
        "modified": stamp(filed.modified_ns / 1e9),
    }


def read_note(asked: ApiRequest) -> dict[str, Any]:
    ws, path = asked.workspace(), _note_path(asked)
    size, most = entry_at(ws, path).size, ws.limits.note_bytes
    if size > most:
        raise TooLarge(f"{path} is larger than {most} bytes", hint="export.zip has it", size=size, limit=most)
    reading = read(ws, path)
    backlinks, cut = _backlinks(ws, path)
    return {**_note(ws, reading), "backlinks": backlinks, "backlinks_cut": cut}


def _note_path(asked: ApiRequest) -> NotePath:
    path = NotePath.parse(asked.named["path"])
    if not path.is_note:
        raise NotFound(f"{path} is not a note", hint="notes end in .md; export.zip has every file", path=path)
    return path


def _note(ws: Workspace, reading: Reading) -> dict[str, Any]:
    note = reading.note
    entry = reading.entry
    return {
        "path": reading.path,
        "version": reading.version,
        "text": reading.text,
        "exact": reading.exact,
        "size": reading.size,
        "created": stamp(created(ws, [entry])[reading.path]),
        "modified": stamp(reading.modified),
        "properties": plain(note.frontmatter.properties),
        "headings": [{"text": one.text, "level": one.level, "line": one.line} for one in note.headings],
        "tags": list(dict.fromkeys(tag.name for tag in note.tags)),
    }


def _backlinks(ws: Workspace, path: NotePath) -> tuple[list[dict[str, Any]] | None, bool]:
    """Reading a note never waits for an index that is being built."""
    try:
        found = links_of(replace(ws, limits=replace(ws.limits, index_seconds=0.0)), path, "in").incoming
    except Indexing:
        return None, False
    told = [{"path": link.source, "line": link.line, "text": link.sentence.shown} for link in found[:BACKLINKS]]
    return told, len(found) > BACKLINKS


def plain(value: Any, depth: int = 0) -> Any:
    """A property as JSON can say it: what YAML knows and JSON does not is said in words."""
    if isinstance(value, Mapping) and depth < 50:
        return {str(key): plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple) and depth < 50:
        return [plain(item, depth + 1) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, str | bool | int | float) else str(value)


def search_notes(asked: ApiRequest) -> dict[str, Any]:
    ws, words = asked.workspace(), asked.query["q"]
    query = replace(parse_query(words), limit=asked.query.get("limit", 10))
    found = search(ws, query)
    return {
        "query": words,
        "total": found.total,
        "with_all": found.with_all,
        "cut": found.cut,
        "hits": [_hit(hit) for hit in found.items],
        "nearest": list(found.nearest),
    }


def _hit(hit: Hit) -> dict[str, Any]:
    """Without its score: that tells how often a word stands in notes the caller may not see."""
    return {
        "path": hit.path,
        "title": hit.title,
        "heading": hit.heading,
        "line": hit.line,
        "snippet": hit.snippet,
        "modified": stamp(hit.modified_ns / 1e9),
    }


def note_links(asked: ApiRequest) -> dict[str, Any]:
    ws, path = asked.workspace(), _note_path(asked)
    entry_at(ws, path)
    report = links_of(ws, path)
    return {
        "path": path,
        "incoming": _links(report.incoming),
        "outgoing": _links(report.outgoing),
        "cut": max(len(report.incoming), len(report.outgoing)) > MOST_LINKS,
    }


def _links(links: Sequence[ResolvedLink]) -> list[dict[str, Any]]:
    return [
        {
            "source": link.source,
            "line": link.line,
            "path": link.path,
            "target": link.target + link.subpath,
            "kind": link.kind,
            "status": link.status,
            "text": link.sentence.shown,
        }
        for link in links[:MOST_LINKS]
    ]


def check_notes(asked: ApiRequest) -> dict[str, Any]:
    found = check(asked.workspace())
    findings = [
        {"kind": one.kind, "path": one.path, "line": one.line, "message": one.message} for one in found[:MOST_FINDINGS]
    ]
    return {"total": len(found), "cut": len(found) > MOST_FINDINGS, "findings": findings}


HERE = "/api/v1/workspaces/{id}"
OPERATIONS = (
    Operation(
        "GET",
        f"{HERE}/notes",
        "read",
        "The notes, by path",
        list_notes,
        told(notes=many(schemas.LISTED), total=number(), cursor=schemas.NEXT),
        given(
            prefix=text("Only paths that begin so, as in Projects/", most=4096),
            limit=number("At most so many; 100 without it", least=1, most=1000),
            cursor=schemas.CURSOR,
        ),
    ),
    Operation("GET", f"{HERE}/notes/{{path:path}}", "read", "One note, by its path", read_note, schemas.NOTE),
    Operation(
        "GET",
        f"{HERE}/search",
        "read",
        "Notes by words, the best sections first",
        search_notes,
        told(
            query=text(most=schemas.WHOLE),
            total=number("Notes that hold any of the words"),
            with_all=number("Notes that hold all of them"),
            cut=schemas.flag("There are more"),
            hits=many(schemas.HIT),
            nearest=many(text(most=100_000), "Spellings and names, where nothing was found"),
        ),
        given(
            "q",
            q=text('Words, "phrases", -word, tag:x, path:x, [key:value]', most=4000, least=1),
            limit=number("At most so many; 10 without it", least=1, most=100),
        ),
    ),
    Operation(
        "GET",
        f"{HERE}/links/{{path:path}}",
        "read",
        "Links to and from a note",
        note_links,
        told(
            path=schemas.PATH,
            incoming=many(schemas.LINK),
            outgoing=many(schemas.LINK),
            cut=schemas.flag(f"Of one kind there are more than {MOST_LINKS}"),
        ),
    ),
    Operation(
        "GET",
        f"{HERE}/check",
        "read",
        "Broken links, names that do not travel, broken frontmatter",
        check_notes,
        told(total=number(), cut=schemas.flag(), findings=many(schemas.FINDING)),
    ),
)
