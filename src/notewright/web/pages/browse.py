"""The pages of workspaces, folders and search; and finding the file that a URL names."""

from collections.abc import Iterator

from starlette.responses import Response

from notewright.api.workspaces import count_notes
from notewright.engine.find.search import Hit, describe_counts, parse_query
from notewright.engine.find.search import search as search_notes
from notewright.engine.read import exists, find_folder, list_files, list_folder, locate
from notewright.engine.workspace import Workspace, with_timeout
from notewright.errors import NotFound
from notewright.index.base import Selection
from notewright.notes.path import NotePath, path_problem
from notewright.web.addresses import workspace_url
from notewright.web.frame import PageRequest

PAGE_ENTRIES = 200
PAGE_HITS = 20
LAST_PAGE = 500
MAX_QUERY_CHARS = 1_000  # letters of a search
INDEX_SECONDS = 2.0  # that a page waits for the index


def workspaces(request: PageRequest) -> Response:
    """The list of workspaces; if there is only one, a redirect to its notes."""
    seen = request.library.workspaces()
    if len(seen) == 1:
        return request.redirect(workspace_url(seen[0]))
    return request.page("workspaces.html", workspaces=[(ws, count_notes(with_timeout(ws, 0.5))) for ws in seen])


def page_number(request: PageRequest) -> int:
    raw = request.query.get("page", "")
    return min(int(raw), LAST_PAGE) if raw.isascii() and raw.isdecimal() and len(raw) < 9 and int(raw) else 1


def folder(request: PageRequest) -> Response:
    """A page of a folder: folders first, then notes and other files."""
    ws, page = request.ws, page_number(request)
    here = find_folder(ws, request.query.get("folder", ""))
    folders = list_folder(ws, here, limit=1).folders
    start, end = (page - 1) * PAGE_ENTRIES, page * PAGE_ENTRIES
    offset, limit = max(start - len(folders), 0), max(end - max(start, len(folders)), 0)
    chosen = Selection(
        folder=here, recursive=False, notes_only=False, sort="path", limit=max(limit, 1), offset=offset,
        visible=ws.access.visibility,
    )  # fmt: skip
    files, total = list_files(ws, chosen)
    return request.page(
        "folder.html",
        folder=here,
        crumbs=list(crumbs(ws, here)),
        folders=[(path, path.rpartition("/")[2], count) for path, count in folders[start:end]],
        files=files if limit else [],
        total=len(folders) + total,
        newer=_page_url(ws, page - 1, folder=here) if page > 1 else None,
        older=_page_url(ws, page + 1, folder=here) if len(folders) + total > end and page < LAST_PAGE else None,
    )


def _page_url(ws: Workspace, page: int, *rest: str, **query: str) -> str:
    return workspace_url(ws, *rest, **query, page=page if page > 1 else None)


def crumbs(ws: Workspace, path: str) -> Iterator[tuple[str, str]]:
    """The names and URLs of the folders above a path, the workspace first."""
    yield ws.name, workspace_url(ws)
    names = path.split("/") if path else []
    for number, name in enumerate(names, 1):
        yield name, workspace_url(ws, folder="/".join(names[:number]))


# ---- one file -----------------------------------------------------------------------------------------


def is_file(ws: Workspace, raw: str) -> bool:
    """Whether this is the path of a file that the caller may see."""
    return not path_problem(raw) and ws.access.sees(raw) and exists(ws, NotePath(raw))


def find_file(ws: Workspace, raw: str) -> NotePath:
    """The file at this path, or the only note of this name."""
    if is_file(ws, raw):
        return NotePath(raw)
    if path_problem(raw):
        raise NotFound("there is no such note", hint="search may find it", what="note")
    return locate(with_timeout(ws, INDEX_SECONDS), raw)


# ---- searching ----------------------------------------------------------------------------------------


def search(request: PageRequest) -> Response:
    ws, page = request.ws, page_number(request)
    words = request.query.get("q", "").strip()[:MAX_QUERY_CHARS]
    if not words:
        return request.page("search.html", words="", hits=None, found=[], newer=None, older=None)
    query = parse_query(words, limit=PAGE_HITS, offset=(page - 1) * PAGE_HITS)
    hits = search_notes(ws, query)
    return request.page(
        "search.html",
        words=words,
        hits=hits,
        counts=describe_counts(hits),
        found=[(hit, list(_split_at_matches(hit))) for hit in hits.items],
        newer=_page_url(ws, page - 1, "search", q=words) if page > 1 else None,
        older=_page_url(ws, page + 1, "search", q=words) if hits.cut and page < LAST_PAGE else None,
    )


def _split_at_matches(hit: Hit) -> Iterator[tuple[str, bool]]:
    """The snippet in parts, each with whether it is a match."""
    place = 0
    for start, end in hit.marks:
        yield hit.snippet[place:start], False
        yield hit.snippet[start:end], True
        place = end
    yield hit.snippet[place:], False
