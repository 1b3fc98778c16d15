"""The outermost layer of HTTP: every request gets an id, and is told of once when it is over."""

import logging
import re
import secrets
import time
from collections.abc import Callable

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from notewright.server.request_context import NOW, RequestContext

log = logging.getLogger(__name__)
HEADER = b"x-request-id"
PLAIN = (b"x-content-type-options", b"nosniff")  # nobody guesses what an answer is: it says so itself
_GIVEN = re.compile(rb"[A-Za-z0-9-]{1,64}")
_HANDSHAKE = {"websocket.accept": 101, "websocket.close": 403}  # how it was answered
_GONE = 499  # nobody waits for the answer any more


class RequestLog:
    """Calls `finished` for every request. An id is taken from a request only if a trusted proxy sent it."""

    def __init__(
        self, app: ASGIApp, finished: Callable[[RequestContext], None], trusted: Callable[[str], bool]
    ) -> None:
        self._app, self._finished, self._trusted = app, finished, trusted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return await self._app(scope, receive, send)
        visit = RequestContext(self._id(scope), scope)
        given = (HEADER, visit.id.encode())

        async def sent(message: Message) -> None:
            kind: str = message["type"]
            if kind in ("http.response.start", "websocket.http.response.start"):
                visit.status = message["status"]
                told = [*message.get("headers", ()), given]
                message = {**message, "headers": told if PLAIN in told else [*told, PLAIN]}
            elif kind in ("http.response.body", "websocket.http.response.body"):
                visit.size += len(message.get("body", b""))
            elif kind == "websocket.send":
                visit.size += len(message.get("bytes") or b"")
            elif kind in _HANDSHAKE and not visit.status:
                visit.status = _HANDSHAKE[kind]
            await send(message)

        began = time.perf_counter()
        before = NOW.set(visit)
        try:
            await self._app(scope, receive, sent)
        except Exception:
            await self._failed(visit, scope, receive, sent)
        finally:
            visit.status = visit.status or _GONE
            visit.seconds = time.perf_counter() - began
            visit.route = getattr(scope.get("route"), "path", "")
            self._finished(visit)
            NOW.reset(before)

    def _id(self, scope: Scope) -> str:
        client = scope.get("client")
        for name, value in scope["headers"]:
            if name == HEADER and client and self._trusted(client[0]) and _GIVEN.fullmatch(value):
                return str(value, "ascii")
        return secrets.token_hex(8)

    async def _failed(self, visit: RequestContext, scope: Scope, receive: Receive, send: Send) -> None:
        """Our fault: whole in the log, and to the client no more than where to look for it."""
        log.exception("a request failed")
        if visit.status:
            raise  # half an answer is out: the server cuts the connection
        told = {"error": "internal", "error_description": "something went wrong here", "request": visit.id}
        await JSONResponse(told, 500)(scope, receive, send)
