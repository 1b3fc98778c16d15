"""The editor of a live note. What is typed goes by WebSocket (`server/live`): this page only says to which document.

By its id, not by the path: where the note is renamed the editor stays with it, and a note that takes its place is never
mixed with what was typed into the first.
"""

from starlette.responses import Response

from notewright.errors import NotFound, Problem
from notewright.notes.path import NotePath
from notewright.web.addresses import document_url, edit_url, note_url
from notewright.web.frame import PageRequest
from notewright.web.pages.browse import crumbs, find_file, is_file

NOBODY = "you on this machine"  # a visitor whom no sign-in names


def may_edit(asked: PageRequest, path: NotePath) -> bool:
    """Whether the page offers it: the workspace is live, and this visitor may write there."""
    try:
        asked.ws.access.may_write(path)
    except Problem:
        return False
    return asked.ws.live is not None


def edit(asked: PageRequest) -> Response:
    """An open editor asks again with `?document=ID`, and is sent after its note where that was renamed."""
    ws, known = asked.ws, asked.query.get("document")
    live = None if ws.live is None else asked.site.hosts
    moved = asked.wait_for(live.names(ws, [known])).paths.get(known) if live is not None and known else None
    path = moved if moved is not None and is_file(ws, moved) else find_file(ws, asked.params["path"])
    if path != asked.params["path"]:
        return asked.go(edit_url(ws, path))
    if not path.is_note:
        raise NotFound(f"{path} is no note", hint="only notes are edited here", what="note", path=path)
    ws.access.may_write(path)
    if live is None:
        hint = "serve its folder as live:FOLDER, and its notes have an Edit button"
        said = f"the notes of {ws.name} are not live, so that they cannot be edited here"
        raise NotFound(said, hint=hint, what="page")
    document = asked.wait_for(live.call(ws, "id_of", path, ws.actor)).decode()
    principal = asked.guest.principal
    return asked.page(
        "edit.html",
        here="notes",
        ws=ws,
        path=path,
        crumbs=list(crumbs(ws, path.folder)),
        document=document,
        live=document_url(document),
        done=note_url(ws, path),
        name=NOBODY if principal.kind == "local" else principal.user,
    )
