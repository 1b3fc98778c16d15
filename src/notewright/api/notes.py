"""Reading notes: listing, one of them, searching, links, and what is wrong with them."""

from dataclasses import replace
from typing import Any

from notewright.api import schemas
from notewright.api.operation import OperationTable
from notewright.api.request import ApiRequest, page_of
from notewright.api.schemas import array, fill, number, returns, takes, text
from notewright.engine.check import check
from notewright.engine.find.links import links as links_of
from notewright.engine.find.search import parse_query, search
from notewright.engine.read import find_creation_times, list_files, read, stat_file
from notewright.errors import Indexing, NotFound, TooLarge
from notewright.index.base import Selection
from notewright.notes.path import NotePath
from notewright.notes.times import format_utc
from notewright.surfaces.schema import flag

MAX_BACKLINKS = 100
MAX_LINKS = 1000  # each way
MAX_FINDINGS = 1000
operations = OperationTable("/api/v1/workspaces/{id}")
_FILTERS = takes(
    prefix=text("Only paths that begin so, as in Projects/", most=4096),
    limit=number("At most so many; 100 without it", least=1, most=1000),
    cursor=schemas.CURSOR,
)
_NOTES_PAGE = returns(notes=array(schemas.LISTED_NOTE), total=number(), cursor=schemas.NEXT)


@operations.add("GET /notes", "read", "The notes, by path", _NOTES_PAGE, _FILTERS)
def list_notes(request: ApiRequest) -> dict[str, Any]:
    ws, prefix = request.workspace(), request.query.get("prefix", "")
    page = page_of(request, 100, request.query.get("cursor", ""))
    selection = Selection(
        folder=prefix.rpartition("/")[0],
        holding=(prefix,) if prefix else (),
        visible=ws.access.visibility._replace(under=prefix),
        limit=page.limit,
        offset=page.offset,
    )
    found, total = list_files(ws, selection)
    notes = [fill(schemas.LISTED_NOTE, filed, modified=format_utc(filed.modified_ns / 1e9)) for filed in found]
    is_last = page.offset + len(found) >= total
    return {"notes": notes, "total": total, "cursor": None if is_last else page.cursor(page.limit)}


@operations.add("GET /notes/{path:path}", "read", "One note, by its path", schemas.NOTE)
def read_note(request: ApiRequest) -> dict[str, Any]:
    ws, path = request.workspace(), _note_path(request)
    size, most = stat_file(ws, path).size, ws.limits.note_bytes
    if size > most:
        raise TooLarge(f"{path} is larger than {most} bytes", hint="export.zip has it", size=size, limit=most)
    reading = read(ws, path)
    try:  # without waiting for an index that is being built
        linking = links_of(replace(ws, limits=replace(ws.limits, index_seconds=0.0)), path, "in").incoming
    except Indexing:
        backlinks, cut = None, False
    else:
        backlinks, cut = linking[:MAX_BACKLINKS], len(linking) > MAX_BACKLINKS
    return fill(
        schemas.NOTE,
        reading,
        created=format_utc(find_creation_times(ws, [reading.entry])[reading.path]),
        modified=format_utc(reading.modified),
        properties=reading.note.frontmatter.properties,
        headings=[fill(schemas.HEADING, heading) for heading in reading.note.headings],
        tags=list(dict.fromkeys(tag.name for tag in reading.note.tags)),
        backlinks=backlinks
        and [fill(schemas.BACKLINK, link, path=link.source, text=link.sentence.with_ellipses) for link in backlinks],
        backlinks_cut=cut,
    )


def _note_path(request: ApiRequest) -> NotePath:
    path = NotePath.parse(request.path_params["path"])
    if not path.is_note:
        raise NotFound(f"{path} is not a note", hint="notes end in .md; export.zip has every file", path=path)
    return path


_SEARCH_RESULT = returns(
    query=text(most=schemas.MAX_INTEGER),
    total=number("Notes that hold any of the words, counted up to 1,000"),
    with_all=number("Notes that hold all of them, counted up to 1,000"),
    cut=flag("There are more"),
    hits=array(schemas.HIT),
    nearest=array(text(most=100_000), "Spellings and names, where nothing was found"),
)
_SEARCH_QUERY = takes(
    "q",
    q=text('Words, "phrases", -word, tag:x, path:x, [key:value]', most=4000, least=1),
    limit=number("At most so many; 10 without it", least=1, most=100),
)


@operations.add("GET /search", "read", "Notes by words, the best sections first", _SEARCH_RESULT, _SEARCH_QUERY)
def search_notes(request: ApiRequest) -> dict[str, Any]:
    """Hits come without their scores: those tell how often a word is in notes the caller may not see."""
    ws, words = request.workspace(), request.query["q"]
    found = search(ws, parse_query(words, limit=request.query.get("limit", 10)))
    hits = [fill(schemas.HIT, hit, modified=format_utc(hit.modified_ns / 1e9)) for hit in found.items]
    return fill(_SEARCH_RESULT, found, query=words, hits=hits)


_LINKS = returns(
    path=schemas.PATH,
    incoming=array(schemas.LINK),
    outgoing=array(schemas.LINK),
    cut=flag(f"Of one kind there are more than {MAX_LINKS}"),
)


@operations.add("GET /links/{path:path}", "read", "Links to and from a note", _LINKS)
def note_links(request: ApiRequest) -> dict[str, Any]:
    ws, path = request.workspace(), _note_path(request)
    stat_file(ws, path)
    report = links_of(ws, path)
    return {
        "path": path,
        "incoming": [link.record() for link in report.incoming[:MAX_LINKS]],
        "outgoing": [link.record() for link in report.outgoing[:MAX_LINKS]],
        "cut": max(len(report.incoming), len(report.outgoing)) > MAX_LINKS,
    }


_FINDINGS = returns(total=number(), cut=flag(), findings=array(schemas.FINDING))


@operations.add("GET /check", "read", "Broken links, names that do not travel, broken frontmatter", _FINDINGS)
def check_notes(request: ApiRequest) -> dict[str, Any]:
    found = check(request.workspace())
    findings = [fill(schemas.FINDING, finding) for finding in found[:MAX_FINDINGS]]
    return {"total": len(found), "cut": len(found) > MAX_FINDINGS, "findings": findings}
