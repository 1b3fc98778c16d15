"""MCP over streamable HTTP: every surface at once, for the whole library or bound to one workspace.

The SDK's transport is stateless: each POST stands for itself, so that two requests with one id on one session never get
each other's answers. What a dialect needs of sessions is minted, checked and ended here, at the edge.
"""

import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from notewright.config.load import Config
from notewright.config.settings import normalize_surface
from notewright.engine.library import Library, Principal
from notewright.errors import Limited, Problem
from notewright.mcp import sdk_server, wire_format
from notewright.mcp.dispatch import ClientConnection
from notewright.mcp.jsonrpc import client_name, flaw_in, is_message, request_id
from notewright.mcp.subscriptions import ChangeStreams
from notewright.mcp.thread_pool import ThreadPool
from notewright.server import request_context
from notewright.server.auth.authenticate import (
    VISITOR,
    Authenticate,
    AuthSettings,
    GuardedRoute,
    GuardedSocket,
    Narrow,
    Visitor,
    address_of,
    base_path,
)
from notewright.server.auth.revalidate import Revalidation
from notewright.server.concurrency_limits import ConcurrencyLimits
from notewright.server.fast_path import FastPathCalls
from notewright.server.host_check import HostCheck
from notewright.server.listen.trusted_proxies import Proxies
from notewright.server.ops.operations import Operations
from notewright.server.request_body import DisconnectWatch, RequestBody, Turn, again, nothing_more, read_body
from notewright.server.request_log import RequestLog
from notewright.server.sessions import Sessions
from notewright.surfaces.base import INVALID_PARAMS, INVALID_REQUEST, RpcError, Session, Surface, rate_limited

SESSION = "mcp-session-id"
MEDIA_TYPES = (b"content-type", b"accept")  # headers in which case means nothing
CALLER = "notewright.caller"  # where in the ASGI scope
STAYS = "notewright.stays"  # and where
NO_HEADER = RpcError(INVALID_REQUEST, "Missing mcp-session-id header", status=400)
NO_SESSION = RpcError(INVALID_REQUEST, "Session not found", status=404)


def app(
    library: Library,
    surfaces: Sequence[Surface],
    config: Config,
    entry: AuthSettings,
    *,
    sessions: Sessions,
    operations: Operations,
    workers: ThreadPool,
    turns: ConcurrencyLimits,
    more: Sequence[GuardedRoute | GuardedSocket] = (),
    leave: Callable[[], None] = lambda: None,
    lifespan: Callable[[Starlette], contextlib.AbstractAsyncContextManager[None]],
) -> Starlette:
    """The HTTP map of the surfaces: `/mcp/<surface>`, `/w/<workspace>/mcp/<surface>`, the aliases; and of operations.

    `more` are the routes of others. `state.leave`, called on the event loop, ends the requests that would not end by
    themselves; it calls `leave`.
    """
    streams, most = ChangeStreams(), config["http.max_request_bytes"]
    staying = Revalidation(library, entry.registry, workers)

    def serve(surface: Surface) -> _Served:
        server = sdk_server.build([surface], _caller, workers, streams, push=False, counts=operations)
        return _Served(surface, sessions, turns, FastPathCalls(surface, workers, operations), server, most)

    served = {surface.name: serve(surface) for surface in surfaces}

    def to(path: str, surface: str | None = None) -> GuardedRoute:
        endpoint = _Endpoint(library, served, staying, surface)
        return GuardedRoute(path, endpoint, need="read", most_bytes=most)

    routes: list[BaseRoute] = [
        to("/mcp/{surface}"),  # this and the next two are nearly all there is
        to("/mcp", "notes"),
        to("/w/{workspace}/mcp/{surface}"),
        *operations.routes(workers),
        *more,
        to("/{workspace}/mcp", "cairn"),  # a name of anything: the last to be tried
    ]

    def leaving() -> None:
        streams.close()
        leave()

    site = Starlette(routes=routes, lifespan=lifespan, middleware=_middleware(config, entry, routes, operations))
    site.router.redirect_slashes = False
    site.router.default = _other_spelling(routes, base_path(entry.public_url))
    site.state.leave = leaving
    return site


def _middleware(
    config: Config, entry: AuthSettings, routes: Sequence[BaseRoute], operations: Operations
) -> list[Middleware]:
    """What a request passes on its way in; and for pages of the origins that the owner named, what their browser asks
    for before it sends one."""
    pages = Middleware(
        CORSMiddleware,
        allow_origins=config["http.origins"],
        allow_methods=("POST", "DELETE"),
        allow_headers=("*",),
        expose_headers=(SESSION, "www-authenticate", "retry-after"),
        allow_private_network=True,
    )
    trusted = Proxies(config["http.trusted_proxies"])
    proxies = Middleware(ProxyHeadersMiddleware, trusted_hosts=trusted.names)
    return [
        Middleware(RequestLog, operations.finished, trusted),
        *([proxies] if trusted.names else []),
        Middleware(HostCheck, config),
        *([pages] if config["http.origins"] else []),
        Middleware(Authenticate, entry, routes),
    ]


def _other_spelling(routes: Sequence[BaseRoute], below: str) -> ASGIApp:
    """What answers a request for which there is no route: a slash too many or too few leads to the one that was meant.

    Starlette's own redirect names the host and path it was asked by, which behind a proxy are not those of the client;
    `below` is the path that clients have to put before ours.
    """

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            return await JSONResponse({"error": "Not Found"}, 404)(scope, receive, send)
        path: str = scope["path"]
        meant = path.rstrip("/") if path.endswith("/") else f"{path}/"
        there = not meant.startswith("//") and len(meant) > 1
        if not there or all(route.matches({**scope, "path": meant})[0] == Match.NONE for route in routes):
            raise HTTPException(404)
        query = scope.get("query_string", b"").decode("latin-1")
        await RedirectResponse(below + quote(meant) + (f"?{query}" if query else ""))(scope, receive, send)

    return answer


@dataclass(frozen=True, slots=True)
class _Endpoint:
    """Finds the surface and the workspace that a path names. What is not there and what is not seen look the same."""

    _library: Library
    _served: dict[str, "_Served"]
    _staying: Revalidation
    _surface: str | None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        named = scope["path_params"]
        visitor: Visitor = scope[VISITOR]
        surface = self._surface or normalize_surface(named["surface"])
        served = self._served.get(surface)
        library: Library | None = visitor.principal.library(self._library)
        try:
            if "workspace" in named:
                library = await self._bound(visitor.principal, named["workspace"])
        except Problem as problem:  # it could not be opened
            return await JSONResponse({"error": str(problem)}, 503)(scope, receive, send)
        if served is None or library is None:
            missing = "Workspace not found" if library is None else "Surface not found"
            request_context.refuse("hidden")
            await JSONResponse({"error": missing}, 404)(scope, receive, send)
        elif not visitor.principal.uses(surface):
            raise Narrow(scope, f"This token is not for the surface {surface}", f"surface:{surface}")
        else:
            scope[STAYS] = self._staying.check(scope, visitor.principal, library)
            await served.answer(library, visitor.principal.user, scope, receive, send)

    async def _bound(self, who: Principal, workspace_id: str) -> Library | None:
        workspaces = await self._staying.workers.run(who.library(self._library).workspaces)
        return next((Library.of([workspace]) for workspace in workspaces if workspace.id == workspace_id), None)


@dataclass(frozen=True, slots=True)
class _Served:
    """One surface over HTTP."""

    _surface: Surface
    _sessions: Sessions
    _turns: ConcurrencyLimits
    _quick: FastPathCalls
    _server: Server[Any]
    _most_bytes: int

    async def answer(self, library: Library, user: str, scope: Scope, receive: Receive, send: Send) -> None:
        # httptools leaves blanks around header values: the SDK compares them, and media types letter by letter
        headers = [
            (name, value.strip(b" \t").lower() if name in MEDIA_TYPES else value.strip(b" \t"))
            for name, value in scope["headers"]
        ]
        scope = {**scope, "headers": headers}
        turn, asked = self._turns.turn(user or address_of(scope), counted=not self._surface.counts), None
        try:
            async with contextlib.AsyncExitStack() as place:
                asked = await read_body(scope, receive, turn, place)
                await self._answer(asked, turn, library, user, scope, receive, send)
        except Limited as problem:
            request_context.refuse("rate")
            error = rate_limited(problem, f"Rate limit exceeded: {problem}")
            await _refusal(error, request_id(asked.message) if asked else None)(scope, receive, send)

    async def _answer(
        self, asked: RequestBody, turn: Turn, library: Library, user: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        sessions_of = f"{self._surface.name} {user}"  # an id is good for who got it
        if scope["method"] != "POST":
            return await self._other(scope["method"], sessions_of, Headers(scope=scope))(scope, receive, send)
        if flaw := flaw_in(asked.message):
            flawed = RpcError(INVALID_PARAMS, flaw, status=400 if asked.modern else 200)
            return await _refusal(flawed, request_id(asked.message))(scope, receive, send)
        session, minted = self._session(asked, sessions_of)
        if isinstance(session, Response):
            return await session(scope, receive, send)
        reply = _Reply(send, request_id(asked.message), {SESSION: minted} if minted else {})
        gone = threading.Event()
        scope[CALLER] = caller = ClientConnection(library, session, "http", user, gone, reply.refuse, scope[STAYS])
        if asked.method == "subscriptions/listen":  # does not end, so it takes no turn
            return await self._ask_sdk(scope, again(asked.body, receive), reply.send)
        async with contextlib.nullcontext() if asked.in_turn else turn:
            call = None if asked.modern else self._quick.takes(asked.message, asked.headers)
            if call is None and self._surface.sse and _takes_streams(scope):
                return await self._ask_sdk(scope, again(asked.body, receive), reply.send)
            with DisconnectWatch(receive, gone):  # the SDK looks after that only while it streams
                if call is None:
                    return await self._ask_sdk(scope, again(asked.body, nothing_more), reply.send, json=True)
                response = await self._quick.answer(call, caller)
                await response(scope, receive, send)

    async def _ask_sdk(self, scope: Scope, receive: Receive, send: Send, *, json: bool = False) -> None:
        """Its manager has no state: each request has its own, and the application nothing that begins and ends."""
        most = self._most_bytes
        manager = StreamableHTTPSessionManager(
            self._server, stateless=True, json_response=json, max_request_body_size=most
        )
        async with manager.run():
            await manager.handle_request(scope, receive, send)

    def _other(self, method: str, sessions_of: str, headers: Headers) -> Response:
        """Not a POST."""
        if method != "DELETE":
            return JSONResponse({"error": "use POST"}, 405, {"Allow": "POST, DELETE"})
        token = headers.get(SESSION)
        if token is None:
            return _refusal(NO_HEADER)
        return Response(status_code=204) if self._sessions.end(sessions_of, token) else _refusal(NO_SESSION)

    def _session(self, asked: RequestBody, scope: str) -> tuple[Session | Response, str | None]:
        """The session a request belongs to, with its id if it is new; or why there is none."""
        name = client_name(asked.message if isinstance(asked.message, dict) else {})
        token, request = asked.headers.get(SESSION), request_id(asked.message)
        if asked.modern:
            return (self._sessions.of_client(scope, name) if name else Session()), None
        if asked.message is not None and not is_message(asked.message):
            return _refusal(RpcError(INVALID_REQUEST, "Invalid Request", status=400), request), None
        if asked.method == "initialize":
            minted = self._sessions.open(scope, name)
            return self._sessions.find(scope, minted) or Session(name), minted
        found = self._sessions.find(scope, token) if token is not None else None
        if found is None and token is not None and (self._required or self._sessions.ours(scope, token)):
            return _refusal(NO_SESSION, request), None
        if found is None and self._required:
            return _refusal(NO_HEADER, request), None
        if found is not None and asked.method == "notifications/initialized":
            found.initialized = True
        return found or Session(), None

    @property
    def _required(self) -> bool:
        return self._surface.sessions == "required"


def _caller(context: ServerRequestContext[Any, Any]) -> ClientConnection:
    caller = context.request.scope[CALLER] if context.request is not None else None
    assert isinstance(caller, ClientConnection)
    return caller


def _refusal(error: RpcError, request: int | str | None = None) -> Response:
    told = wire_format.error(error.code, error.message, error.data)
    return JSONResponse({"jsonrpc": "2.0", "id": request, "error": told}, error.status or 200, error.headers)


def _takes_streams(scope: Scope) -> bool:
    """Whether the client said it understands event streams; one that said nothing at all gets plain JSON."""
    accept = Headers(scope=scope).get("accept")
    if accept is None:
        scope["headers"] = [*scope["headers"], (b"accept", b"application/json")]
        return False
    return "text/event-stream" in accept or "*/*" in accept


@dataclass(slots=True)
class _Reply:
    """Lets a refusal choose the status: the first line waits until there is something to say."""

    out: Send
    request: int | str | None
    headers: dict[str, str]
    refused: RpcError | None = None
    start: Message | None = None
    done: bool = False

    def refuse(self, error: RpcError) -> None:
        self.refused = error

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            added = [(name.encode(), value.encode()) for name, value in self.headers.items()]
            self.start = {**message, "headers": [*message["headers"], *added]}
        elif self.refused is not None and self.start is not None:
            self.start, self.done = None, True
            await _refusal(self.refused, self.request)({"type": "http"}, nothing_more, self.out)
        elif not self.done:
            if self.start is not None:
                await self.out(self.start)
                self.start = None
            await self.out(message)
