"""The outermost layer of HTTP: gives every request an id, and reports it once when it is over."""

import logging
import re
import secrets
import time
from collections.abc import Callable

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from notewright.server.request_context import CURRENT_REQUEST, RequestContext

log = logging.getLogger(__name__)
ID_HEADER = b"x-request-id"
NO_SNIFFING = (b"x-content-type-options", b"nosniff")
CLIENT_GONE = 499  # the status of a request whose client left before an answer
_ID = re.compile(rb"[A-Za-z0-9-]{1,64}")
_HANDSHAKE_STATUS = {"websocket.accept": 101, "websocket.close": 403}


class RequestLog:
    """Calls `finished` for every request. An id is taken from a request only if a trusted proxy sent it."""

    def __init__(
        self, app: ASGIApp, finished: Callable[[RequestContext], None], trusted: Callable[[str], bool]
    ) -> None:
        self._app, self._finished, self._trusted = app, finished, trusted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return await self._app(scope, receive, send)
        context = RequestContext(self._request_id(scope), scope)
        id_header = (ID_HEADER, context.id.encode())

        async def observed_send(message: Message) -> None:
            kind: str = message["type"]
            if kind in ("http.response.start", "websocket.http.response.start"):
                context.status = message["status"]
                message = {**message, "headers": [*message.get("headers", ()), id_header, NO_SNIFFING]}
            elif kind in ("http.response.body", "websocket.http.response.body"):
                context.size += len(message.get("body", b""))
            elif kind == "websocket.send":
                context.size += len(message.get("bytes") or b"")
            elif kind in _HANDSHAKE_STATUS and not context.status:
                context.status = _HANDSHAKE_STATUS[kind]
            await send(message)

        started = time.perf_counter()
        reset_token = CURRENT_REQUEST.set(context)
        try:
            await self._app(scope, receive, observed_send)
        except Exception:  # our fault: the log has all of it, the client only the id to look for there
            log.exception("a request failed")
            if context.status:
                raise  # half an answer is out: the server cuts the connection
            error = {"error": "internal", "error_description": "something went wrong here", "request": context.id}
            await JSONResponse(error, 500)(scope, receive, observed_send)
        finally:
            context.status = context.status or CLIENT_GONE
            context.seconds = time.perf_counter() - started
            context.route = getattr(scope.get("route"), "path", "")
            self._finished(context)
            CURRENT_REQUEST.reset(reset_token)

    def _request_id(self, scope: Scope) -> str:
        client = scope.get("client")
        for name, value in scope["headers"]:
            if name == ID_HEADER and client and self._trusted(client[0]) and _ID.fullmatch(value):
                return str(value, "ascii")
        return secrets.token_hex(8)
