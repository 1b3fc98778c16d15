"""The editor of a live note. What is typed goes by WebSocket (`server/live`): this page only says which document."""

from starlette.responses import Response

from notewright.errors import NotFound, Problem
from notewright.notes.path import NotePath
from notewright.web.addresses import edit_url, live_url, note_url
from notewright.web.frame import PageRequest
from notewright.web.pages.browse import crumbs
from notewright.web.pages.find_file import find_file

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
    ws = asked.ws
    live, moved = ws.live, None
    if live is not None and (known := asked.query.get("document")):
        moved = live.path_of(known)
    path = moved if moved is not None and ws.access.sees(moved) else find_file(ws, asked.params["path"])
    if path != asked.params["path"]:
        return asked.go(edit_url(ws, path))
    if not path.is_note:
        raise NotFound(f"{path} is no note", hint="only notes are edited here", what="note", path=path)
    ws.access.may_write(path)
    if live is None:
        hint = "serve its folder as live:FOLDER, and its notes have an Edit button"
        raise NotFound(
            f"the notes of {ws.name} are not live, so that they cannot be edited here", hint=hint, what="page"
        )
    visitor = asked.guest
    return asked.page(
        "edit.html",
        here="notes",
        ws=ws,
        path=path,
        crumbs=list(crumbs(ws, path.folder)),
        document=live.id_of(path),
        live=live_url(ws, path),
        done=note_url(ws, path),
        name=NOBODY if visitor.principal.kind == "local" else visitor.principal.user,
    )
