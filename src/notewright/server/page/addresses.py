"""Where each thing is on the page. Names of notes are any text: every one of them is quoted here and nowhere else."""

from urllib.parse import quote, urlencode, urlsplit

from notewright.engine import Workspace


def workspace_url(ws: Workspace, *rest: str, **query: object) -> str:
    """`/w/<id>/…`; of the query only what is said."""
    said = {name: value for name, value in query.items() if value not in (None, "", False)}
    address = "/".join(("/w", quote(ws.id, safe=""), *(quote(part, safe="/") for part in rest)))
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
    return f"/?{urlencode(said)}" if said else "/"


def own_path(raw: str) -> str:
    """A place of ours to go on to, as somebody else's link may name it; the start for everything else."""
    if not raw.startswith("/") or raw.startswith("//") or "\\" in raw or any(ord(letter) < 33 for letter in raw):
        return "/"
    try:
        parts = urlsplit(raw)
    except ValueError:
        return "/"
    return "/" if parts.scheme or parts.netloc or parts.path.startswith(("//", "/sign-")) else raw
