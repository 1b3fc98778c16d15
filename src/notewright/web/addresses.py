"""The URLs of the page. A note's name may be any text: all of them are quoted here and nowhere else.

A proxy may serve us below a path of its own (that of `http.public_url`), which it strips from requests: our routes do
not have it, and the URLs that a browser gets do.
"""

import gzip
import hashlib
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from urllib.parse import quote, urlencode, urlsplit

from starlette.requests import Request
from starlette.responses import Response

from notewright.engine.workspace import Workspace

BASE_PATH: ContextVar[str] = ContextVar(
    "base_path", default=""
)  # the path of public_url, for the request that is answered


def url_of(path: str) -> str:
    """The URL of one of our routes, for a browser."""
    return BASE_PATH.get() + path


def workspace_url(ws: Workspace, *rest: str, **query: object) -> str:
    """`/w/<id>/…`; empty values are left out of the query."""
    given = {name: value for name, value in query.items() if value not in (None, "", False)}
    address = "/".join((url_of("/w"), quote(ws.id, safe=""), *(quote(part, safe="/") for part in rest)))
    return (address if rest else address + "/") + (f"?{urlencode(given)}" if given else "")


def note_url(ws: Workspace, path: str) -> str:
    return workspace_url(ws, "notes", path)


def document_url(doc_id: str) -> str:
    """The address at which a WebSocket to a live document is opened."""
    return url_of(f"/d/{quote(doc_id, safe='')}/ws/{quote(doc_id, safe='')}")


def file_url(ws: Workspace, path: str) -> str:
    return workspace_url(ws, "files", path)


def change_url(ws: Workspace, change_id: str) -> str:
    return workspace_url(ws, "changes", change_id)


def activity_url(**query: object) -> str:
    given = {name: value for name, value in query.items() if value not in (None, "")}
    return url_of(f"/?{urlencode(given)}" if given else "/")


def safe_local_path(raw: str) -> str:
    """A route of ours that a foreign link may ask us to redirect to; `/` for anything else."""
    if not raw.startswith("/") or raw.startswith("//") or "\\" in raw or any(ord(letter) < 33 for letter in raw):
        return "/"
    try:
        parts = urlsplit(raw)
    except ValueError:
        return "/"
    return "/" if parts.scheme or parts.netloc or parts.path.startswith(("//", "/sign-")) else raw


FOLDER = Path(__file__).parent / "static"
KINDS = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
_FILES = {file.name: file.read_bytes() for file in FOLDER.iterdir() if file.suffix in KINDS}
_MARKS = {name: hashlib.sha256(data).hexdigest()[:12] for name, data in _FILES.items()}


def asset_url(name: str) -> str:
    """The URL of a static file, with a hash of its content, so that it can be cached for good."""
    return url_of(f"/static/{name}?v={_MARKS[name]}")


async def asset(request: Request) -> Response:
    name = request.path_params["name"]
    data = _FILES.get(name)
    if data is None:
        return Response("Not found", 404, {"Cache-Control": "no-store"}, "text/plain")
    known = request.query_params.get("v") == _MARKS[name]
    small = "gzip" in request.headers.get("accept-encoding", "")
    headers = {
        "Cache-Control": "public, max-age=31536000, immutable" if known else "no-cache",
        "ETag": f'"{_MARKS[name]}{"-gzip" if small else ""}"',
        "Vary": "Accept-Encoding",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Content-Security-Policy": "default-src 'none'",
    }
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    if small:
        headers["Content-Encoding"] = "gzip"
    return Response(_compressed(name) if small else data, headers=headers, media_type=KINDS[Path(name).suffix])


@cache
def _compressed(name: str) -> bytes:
    """The editor is 420 kB, and a third of it compressed."""
    return gzip.compress(_FILES[name], mtime=0)
