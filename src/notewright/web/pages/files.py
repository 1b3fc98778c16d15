"""Files of a workspace as they are. Pictures are shown; everything else can only be taken away."""

from urllib.parse import quote

from starlette.responses import Response

from notewright.engine.dialects.octarine import size_of
from notewright.engine.read import fetch
from notewright.errors import NotFound, TooLarge
from notewright.notes.path import NotePath, path_problem
from notewright.web.frame import PageRequest

MOST_BYTES = 100_000_000


def picture_kind(data: bytes) -> str | None:
    """What the bytes are, whatever the name says. SVG is none of them: it is a document that can run things."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return "image/avif" if data[4:12] in (b"ftypavif", b"ftypavis") else None


def file(asked: PageRequest) -> Response:
    raw = asked.params["path"]
    if path_problem(raw):
        raise NotFound("there is no such file", what="file")
    path = NotePath(raw)
    count = size_of(asked.ws, path)
    if count > MOST_BYTES:
        raise TooLarge(f"{path} has {count:,} bytes, too many to send", size=count, limit=MOST_BYTES, path=path)
    stored = fetch(asked.ws, path)
    kind = picture_kind(stored.data)
    headers = {
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "Content-Disposition": f"{'inline' if kind else 'attachment'}; filename*=UTF-8''{quote(path.name, safe='')}",
        "X-Content-Type-Options": "nosniff",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "private, no-cache",
        "ETag": f'"{stored.version[:32]}"',
    }
    if asked.request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    return Response(stored.data, headers=headers, media_type=kind or "application/octet-stream")
