"""A note to read: rendered, with its properties, the links both ways and its history; its editor, where it is live; and
files as they are."""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from notewright.engine.changes.history import list_changes
from notewright.engine.dialects.octarine import find_size
from notewright.engine.find.links import LinkReport, resolver
from notewright.engine.find.links import links as links_of
from notewright.engine.read import fetch, read
from notewright.engine.workspace import Workspace, with_timeout
from notewright.errors import Indexing, NotFound, Problem, TooLarge
from notewright.ledger.base import ChangeQuery
from notewright.notes.links.resolve import Resolution
from notewright.notes.model import Link, Note
from notewright.notes.path import NotePath, path_problem
from notewright.web.addresses import document_url, file_url, note_url, workspace_url
from notewright.web.frame import PageRequest
from notewright.web.markdown import LinkTargets, TooSlow, anchor, render_note
from notewright.web.pages.activity import ActivityRow
from notewright.web.pages.browse import INDEX_SECONDS, crumbs, find_file, is_file

MAX_BYTES = 1_000_000  # of a note that is rendered; of a larger one so many letters are shown as they are
MAX_LINKS = 200
MAX_PROPERTIES = 200
MAX_CHARS = 500  # of a property
PAST_ROWS = 10
MAX_FILE_BYTES = 100_000_000  # of a file that is sent
NOBODY = "you on this machine"  # a visitor whom no sign-in names


Piece = tuple[str, str | None, bool]  # a part of a property: words, where they lead, whether they should and do not


def note(request: PageRequest) -> Response:
    ws = request.ws
    try:
        path = find_file(ws, request.params["path"])
    except NotFound as problem:
        if "folder" in problem.details:
            return request.redirect(workspace_url(ws, folder=problem.details["folder"]))
        raise
    if not path.is_note:
        return request.redirect(file_url(ws, path))
    if path != request.params["path"]:
        return request.redirect(note_url(ws, path))
    reading = read(ws, path)
    around, ready = _links_around(ws, path)
    large = reading.size > MAX_BYTES
    found = None if large else reading.note
    resolve = _resolver(ws, path, [link.target for link in found.links] if found else [], ready)
    targets = LinkTargets(resolve, partial(note_url, ws), partial(file_url, ws))
    body = None
    if found is not None:
        with suppress(TooSlow):
            body = render_note(found, targets)
    return request.page(
        "note.html",
        path=path,
        title=found.title if found else path.stem,
        title_id=anchor(f"#{found.title}")[1:] if found else "",
        crumbs=list(crumbs(ws, path.folder)),
        reading=reading,
        may_edit=reading.exact and may_edit(request, path),
        large=large,
        body=body,
        plain=reading.text.removeprefix("\ufeff")[:MAX_BYTES] if body is None else None,
        cut=body is None and len(reading.text) > MAX_BYTES,
        problem=found.frontmatter.problem if found else None,
        properties=list(_properties(found, targets)) if found else [],
        around=around,
        ready=ready,
        most=MAX_LINKS,
        past=[ActivityRow(ws, change) for change in list_changes(ws, ChangeQuery(path=path, limit=PAST_ROWS))],
    )


def _links_around(ws: Workspace, path: NotePath) -> tuple[LinkReport, bool]:
    """The links from and to a note, and whether the index was ready."""
    try:
        return links_of(with_timeout(ws, INDEX_SECONDS), path), True
    except Indexing:
        return LinkReport(path, (), ()), False


def _resolver(ws: Workspace, path: NotePath, targets: list[str], ready: bool) -> Callable[[str], Resolution]:
    """A function that resolves links of this note; all are broken while the index is not ready."""
    if not ready:
        return lambda target: Resolution(None, False)
    means = resolver(ws, expected=targets)
    return lambda target: means(target, path)


# ---- properties ---------------------------------------------------------------------------------------


def _properties(note: Note, targets: LinkTargets) -> Iterator[tuple[str, list[Piece]]]:
    """Each property with its parts, links resolved."""
    by_key = {link.key: link for link in note.links if link.key is not None}
    for name, value in list(note.frontmatter.properties.items())[:MAX_PROPERTIES]:
        listed = isinstance(value, list)
        parts = {f"{name}.{at}": part for at, part in enumerate(value)} if listed else {name: value}
        pieces = [
            _link_piece(by_key[key], targets) if key in by_key else (_format_value(part), None, False)
            for key, part in parts.items()
        ]
        yield str(name), pieces[:MAX_LINKS]


def _link_piece(link: Link, targets: LinkTargets) -> Piece:
    address, _ = targets.address(link.target, link.subpath)
    return link.display or f"{link.target}{link.subpath}", address, address is None


def _format_value(value: Any) -> str:
    """A value as text; lists and objects as JSON."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]} … ({len(text) - MAX_CHARS:,} more letters)"


# ---- files --------------------------------------------------------------------------------------------


def image_type(data: bytes) -> str | None:
    """The media type of an image, by its bytes and not its name. Not of SVG, which can run scripts."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return "image/avif" if data[4:12] in (b"ftypavif", b"ftypavis") else None


def file(request: PageRequest) -> Response:
    raw = request.params["path"]
    if path_problem(raw):
        raise NotFound("there is no such file", what="file")
    path = NotePath(raw)
    count = find_size(request.ws, path)
    if count > MAX_FILE_BYTES:
        raise TooLarge(f"{path} has {count:,} bytes, too many to send", size=count, limit=MAX_FILE_BYTES, path=path)
    stored = fetch(request.ws, path)
    kind = image_type(stored.data)
    headers = {
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "Content-Disposition": f"{'inline' if kind else 'attachment'}; filename*=UTF-8''{quote(path.name, safe='')}",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "private, no-cache",
        "ETag": f'"{stored.version[:32]}"',
    }
    if request.http.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    return Response(stored.data, headers=headers, media_type=kind or "application/octet-stream")


# ---- the editor of a live note ------------------------------------------------------------------------

# What is typed goes over a WebSocket (`server/live`): this page only names the document, by its id and not by its path:
# the editor follows a note that is renamed, and what was typed never gets into another note that takes its path.


def may_edit(request: PageRequest, path: NotePath) -> bool:
    """Whether the note can be edited here: the workspace is live, and this visitor may write there."""
    try:
        request.ws.access.may_write(path)
    except Problem:
        return False
    return request.ws.live is not None


def edit(request: PageRequest) -> Response:
    """The editor. An open one reloads with `?document=ID`, and is redirected if its note was renamed."""
    ws, known = request.ws, request.query.get("document")
    live = None if ws.live is None else request.site.hosts
    moved = request.run_in_loop(live.fetch_names(ws, [known])).paths.get(known) if live is not None and known else None
    path = moved if moved is not None and is_file(ws, moved) else find_file(ws, request.params["path"])
    if path != request.params["path"]:
        return request.redirect(workspace_url(ws, "edit", path))
    if not path.is_note:
        raise NotFound(f"{path} is no note", hint="only notes are edited here", what="note", path=path)
    ws.access.may_write(path)
    if live is None:
        hint = "serve its folder as live:FOLDER, and its notes have an Edit button"
        message = f"the notes of {ws.name} are not live, so that they cannot be edited here"
        raise NotFound(message, hint=hint, what="page")
    document = request.run_in_loop(live.call(ws, "id_of", path, ws.actor)).decode()
    principal = request.signed_in.principal
    return request.page(
        "edit.html",
        path=path,
        crumbs=list(crumbs(ws, path.folder)),
        document=document,
        live=document_url(document),
        done=note_url(ws, path),
        name=NOBODY if principal.kind == "local" else principal.user,
    )
