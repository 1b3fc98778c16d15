"""The style sheet and the scripts: a few small files, the same for everybody, kept by browsers until they change."""

import hashlib
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from notewright.server.page.addresses import at

FOLDER = Path(__file__).parents[1] / "static"
KINDS = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
_FILES = {file.name: file.read_bytes() for file in FOLDER.iterdir() if file.suffix in KINDS}
_MARKS = {name: hashlib.sha256(data).hexdigest()[:12] for name, data in _FILES.items()}


def asset_url(name: str) -> str:
    """With a mark of its content: another content is another address."""
    return at(f"/static/{name}?v={_MARKS[name]}")


async def asset(request: Request) -> Response:
    name = request.path_params["name"]
    data = _FILES.get(name)
    if data is None:
        return Response("Not found", 404, {"Cache-Control": "no-store"}, "text/plain")
    known = request.query_params.get("v") == _MARKS[name]
    headers = {
        "Cache-Control": "public, max-age=31536000, immutable" if known else "no-cache",
        "ETag": f'"{_MARKS[name]}"',
        "X-Content-Type-Options": "nosniff",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Content-Security-Policy": "default-src 'none'",
    }
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    return Response(data, headers=headers, media_type=KINDS[Path(name).suffix])
