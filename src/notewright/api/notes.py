"""Reading notes: listing, one of them, searching, links, and what is wrong with them."""

from dataclasses import replace
from typing import Any

from notewright.api import schemas
from notewright.api.operation import OperationTable
from notewright.api.request import ApiRequest, CursorPage
from notewright.api.schemas import fill, given, many, number, text, told
from notewright.engine.check import check
from notewright.engine.find.links import links as links_of
from notewright.engine.find.search import parse_query, search
from notewright.engine.read import created, entry_at, listing, read
from notewright.engine.workspace import Workspace
from notewright.errors import Indexing, NotFound, TooLarge
from notewright.index.base import Selection
from notewright.notes.path import NotePath
from notewright.notes.times import format_utc
from notewright.surfaces.schema import flag

MAX_BACKLINKS = 100
MAX_LINKS = 1000  # each way
MAX_FINDINGS = 1000
HERE = "/api/v1/workspaces/{id}"
operations = OperationTable()
_WHICH = given(
    prefix=text("Only paths that begin so, as in Projects/", most=4096),
    limit=number("At most so many; 100 without it", least=1, most=1000),
    cursor=schemas.CURSOR,
)
_PAGE = told(notes=many(schemas.LISTED_NOTE), total=number(), cursor=schemas.NEXT)


@operations.add(f"GET {HERE}/notes", "read", "The notes, by path", _PAGE, _WHICH)
def list_notes(asked: ApiRequest) -> dict[str, Any]:
    ws, page, prefix = asked.workspace(), CursorPage.of(asked, 100), asked.query.get("prefix", "")
    selection = Selection(
        folder=prefix.rpartition("/")[0],
        holding=(prefix,) if prefix else (),
        visible=ws.access.visibility._replace(under=prefix),
        limit=page.limit,
        offset=page.offset,
    )
    found, total = listing(ws, selection)
    notes = [fill(schemas.LISTED_NOTE, filed, modified=format_utc(filed.modified_ns / 1e9)) for filed in found]
    return {"notes": notes, "total": total, "cursor": page.next(page.offset + len(found) < total)}


@operations.add(f"GET {HERE}/notes/{{path:path}}", "read", "One note, by its path", schemas.NOTE)
def read_note(asked: ApiRequest) -> dict[str, Any]:
    ws, path = asked.workspace(), _note_path(asked)
    size, most = entry_at(ws, path).size, ws.limits.note_bytes
    if size > most:
        raise TooLarge(f"{path} is larger than {most} bytes", hint="export.zip has it", size=size, limit=most)
    reading = read(ws, path)
    backlinks, cut = _backlinks(ws, path)
    return fill(
        schemas.NOTE,
        reading,
        created=format_utc(created(ws, [reading.entry])[reading.path]),
        modified=format_utc(reading.modified),
        properties=reading.note.frontmatter.properties,
        headings=[fill(schemas.HEADING, one) for one in reading.note.headings],
        tags=list(dict.fromkeys(tag.name for tag in reading.note.tags)),
        backlinks=backlinks,
        backlinks_cut=cut,
    )


def _note_path(asked: ApiRequest) -> NotePath:
    path = NotePath.parse(asked.named["path"])
    if not path.is_note:
        raise NotFound(f"{path} is not a note", hint="notes end in .md; export.zip has every file", path=path)
    return path


def _backlinks(ws: Workspace, path: NotePath) -> tuple[list[dict[str, Any]] | None, bool]:
    """Reading a note never waits for an index that is being built."""
    try:
        found = links_of(replace(ws, limits=replace(ws.limits, index_seconds=0.0)), path, "in").incoming
    except Indexing:
        return None, False
    first = [
        fill(schemas.BACKLINK, one, path=one.source, text=one.sentence.with_ellipses) for one in found[:MAX_BACKLINKS]
    ]
    return first, len(found) > MAX_BACKLINKS


_FOUND = told(
    query=text(most=schemas.WHOLE),
    total=number("Notes that hold any of the words"),
    with_all=number("Notes that hold all of them"),
    cut=flag("There are more"),
    hits=many(schemas.HIT),
    nearest=many(text(most=100_000), "Spellings and names, where nothing was found"),
)
_WORDS = given(
    "q",
    q=text('Words, "phrases", -word, tag:x, path:x, [key:value]', most=4000, least=1),
    limit=number("At most so many; 10 without it", least=1, most=100),
)


@operations.add(f"GET {HERE}/search", "read", "Notes by words, the best sections first", _FOUND, _WORDS)
def search_notes(asked: ApiRequest) -> dict[str, Any]:
    """Hits are without their scores: those tell how often a word stands in notes the caller may not see."""
    ws, words = asked.workspace(), asked.query["q"]
    found = search(ws, replace(parse_query(words), limit=asked.query.get("limit", 10)))
    hits = [fill(schemas.HIT, hit, modified=format_utc(hit.modified_ns / 1e9)) for hit in found.items]
    return fill(_FOUND, found, query=words, hits=hits)


_BOTH_WAYS = told(
    path=schemas.PATH,
    incoming=many(schemas.LINK),
    outgoing=many(schemas.LINK),
    cut=flag(f"Of one kind there are more than {MAX_LINKS}"),
)


@operations.add(f"GET {HERE}/links/{{path:path}}", "read", "Links to and from a note", _BOTH_WAYS)
def note_links(asked: ApiRequest) -> dict[str, Any]:
    ws, path = asked.workspace(), _note_path(asked)
    entry_at(ws, path)
    report = links_of(ws, path)
    return {
        "path": path,
        "incoming": [link.record() for link in report.incoming[:MAX_LINKS]],
        "outgoing": [link.record() for link in report.outgoing[:MAX_LINKS]],
        "cut": max(len(report.incoming), len(report.outgoing)) > MAX_LINKS,
    }


_FINDINGS = told(total=number(), cut=flag(), findings=many(schemas.FINDING))


@operations.add(f"GET {HERE}/check", "read", "Broken links, names that do not travel, broken frontmatter", _FINDINGS)
def check_notes(asked: ApiRequest) -> dict[str, Any]:
    found = check(asked.workspace())
    findings = [fill(schemas.FINDING, one) for one in found[:MAX_FINDINGS]]
    return {"total": len(found), "cut": len(found) > MAX_FINDINGS, "findings": findings}
