"""Where each thing is on the page. Names of notes are any text: every one of them is quoted here and nowhere else.

A proxy may show the server below a path of its own (`http.public_url` names it) and take it away from what it asks us
for: routes are without it, and what a browser is told is with it.
"""

from contextvars import ContextVar
from urllib.parse import quote, urlencode, urlsplit

from notewright.engine import Workspace

BELOW: ContextVar[str] = ContextVar("below", default="")  # the path of public_url, for the request that is answered


def at(path: str) -> str:
    """The address of one of our routes, as a browser knows it."""
    return BELOW.get() + path


def workspace_url(ws: Workspace, *rest: str, **query: object) -> str:
    """`/w/<id>/…`; of the query only what is said."""
    said = {name: value for name, value in query.items() if value not in (None, "", False)}
    address = "/".join((at("/w"), quote(ws.id, safe=""), *(quote(part, safe="/") for part in rest)))
    return (address if rest else address + "/") + (f"?{urlencode(said)}" if said else "")


def note_url(ws: Workspace, path: str) -> str:
    return workspace_url(ws, "notes", path)


def file_url(ws: Workspace, path: str) -> str:
    return workspace_url(ws, "files", path)


def folder_url(ws: Workspace, folder: str) -> str:
    return workspace_url(ws, folder=folder)


def change_url(ws: Workspace, change_id: str) -> str:
    return workspace_url(ws, "changes", change_id)


def activity_url(**query: object) -> str:
    said = {name: value for name, value in query.items() if value not in (None, "")}
    return at(f"/?{urlencode(said)}" if said else "/")


def own_path(raw: str) -> str:
    """A route of ours to go on to, as somebody else's link may name it; the start for everything else."""
    if not raw.startswith("/") or raw.startswith("//") or "\\" in raw or any(ord(letter) < 33 for letter in raw):
        return "/"
    try:
        parts = urlsplit(raw)
    except ValueError:
        return "/"
    return "/" if parts.scheme or parts.netloc or parts.path.startswith(("//", "/sign-")) else raw
