"""What every request and WebSocket passes before anybody looks at it: whose name it calls us by, which page sent it."""

import re
import socket
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from notewright.config.load import Config
from notewright.server import request_context

WELL_KNOWN = "/.well-known/oauth-protected-resource"  # documents that pages of other origins may read
LOOPBACK = ("127.0.0.1", "localhost", "::1")
SAFE = ("GET", "HEAD", "OPTIONS")  # methods that change nothing
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^][\s:/?#@\\]+?))\.?(?::\d{1,5})?", re.IGNORECASE | re.ASCII)


class HostCheck:
    """Refuses what a web page could send here behind its user's back: strange Host names and strange Origins.

    Everything is refused, on every route there is or will be, unless it comes from our own page, from an origin that
    the owner named, or from no page at all.
    """

    def __init__(self, app: ASGIApp, config: Config) -> None:
        public, host, own = urlsplit(config["http.public_url"] or ""), config["http.host"], socket.gethostname()
        names = (*LOOPBACK, *config["http.hosts"], public.hostname, host, own, f"{own}.local")
        self._app = app
        self._addresses = host not in LOOPBACK  # no page can bind those to us behind its user's back, as it can a name
        self._hosts = frozenset(name.lower() for name in names if name)
        self._origins = frozenset(origin.lower().rstrip("/") for origin in config["http.origins"])
        self._public = public.netloc.lower()  # where browsers find our own page, if not at the Host that they name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = self._refusal(scope) if scope["type"] in ("http", "websocket") else None
        if refused is None:
            return await self._app(scope, receive, send)
        reason, status, words = refused
        request_context.refuse(reason)
        closing = {"Connection": "close"} if status == 400 else {}  # where the next request begins is not certain
        await JSONResponse({"error": words}, status, closing)(scope, receive, send)

    def _refusal(self, scope: Scope) -> tuple[str, int, str] | None:
        headers = Headers(scope=scope)
        if "transfer-encoding" in headers and "content-length" in headers:
            return "malformed", 400, "this request has two lengths"
        host = ", ".join(headers.getlist("host")).strip().lower()
        if not self._is_ours(_host_name(host)):
            return "host", 421, "this server does not answer to that Host name"
        origin = ", ".join(headers.getlist("origin")).lower() if "origin" in headers else None
        public = scope.get("method") in SAFE and scope["path"].startswith(WELL_KNOWN)
        if origin is None or public or origin.rstrip("/") in self._origins:
            return None
        scheme, _, place = origin.partition("://")  # a page is ours only if its port is: others are other people's
        ours = scheme in ("http", "https") and place != "" and place in (host, self._public)
        return None if ours else ("origin", 403, "this server does not answer pages of that Origin")

    def _is_ours(self, name: str) -> bool:
        return name in self._hosts or (self._addresses and _is_address(name))


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _host_name(host: str) -> str:
    """`[::1]:8000` is `::1`, `LocalHost:80` is `localhost`; "" for what is no name and port."""
    found = _HOST.fullmatch(host.strip())
    return (found[1] or found[2]).lower() if found else ""
