"""MCP over streamable HTTP: every surface, for the whole library or bound to one workspace.

The SDK's transport is stateless: each POST stands for itself, so that two requests with one id on one session never get
each other's answers. The sessions that a dialect needs are made, checked and ended here.
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

from notewright.config.settings import normalize_surface
from notewright.engine.library import Library, Principal
from notewright.errors import Limited, Problem
from notewright.mcp import sdk_server, wire_format
from notewright.mcp.dispatch import ClientConnection
from notewright.mcp.jsonrpc import client_name, find_flaw, is_message, request_id
from notewright.mcp.subscriptions import ChangeStreams
from notewright.server.auth.authenticate import (
    VISITOR,
    Authenticate,
    GuardedRoute,
    InsufficientScope,
    OpenSocket,
    Visitor,
    base_path,
    client_address,
)
from notewright.server.fast_path import FastPathCalls
from notewright.server.host_check import HostCheck, TrustedProxies
from notewright.server.request_body import (
    CallSlot,
    RequestBody,
    read_body,
    receive_nothing,
    replay_body,
    watch_disconnect,
)
from notewright.server.request_context import note_refusal
from notewright.server.request_log import RequestLog
from notewright.server.site_context import SiteContext
from notewright.surfaces.base import INVALID_PARAMS, INVALID_REQUEST, RpcError, Session, Surface, rate_limited_error

SESSION_HEADER = "mcp-session-id"
MEDIA_TYPE_HEADERS = (b"content-type", b"accept")  # in which case means nothing
CONNECTION = "notewright.caller"  # the key of the ASGI scope
NO_HEADER = RpcError(INVALID_REQUEST, "Missing mcp-session-id header", status=400)
NO_SESSION = RpcError(INVALID_REQUEST, "Session not found", status=404)


def build_app(
    site: SiteContext,
    surfaces: Sequence[Surface],
    *,
    more_routes: Sequence[GuardedRoute | OpenSocket],
    end_streams: Callable[[], None],
    lifespan: Callable[[Starlette], contextlib.AbstractAsyncContextManager[None]],
) -> Starlette:
    """The HTTP application: the surfaces at `/mcp/<surface>`, `/w/<workspace>/mcp/<surface>` and their aliases, the
    routes of `site.operations`, and more.

    `state.end_streams`, called on the event loop, ends the requests that would not end by themselves; it calls
    `end_streams`.
    """
    config, workers, operations, streams = site.config, site.workers, site.operations, ChangeStreams()

    def serve(surface: Surface) -> _SurfaceEndpoint:
        server = sdk_server.build([surface], _get_connection, workers, streams, push=False, counts=operations)
        return _SurfaceEndpoint(surface, site, FastPathCalls(surface, workers, operations), server)

    served = {surface.name: serve(surface) for surface in surfaces}

    def route(path: str, surface: str | None = None) -> GuardedRoute:
        most = config["http.max_request_bytes"]
        return GuardedRoute(path, _Endpoint(site, served, surface), need="read", most_bytes=most)

    routes: list[BaseRoute] = [
        route("/mcp/{surface}"),  # nearly all requests come to this one and the next two
        route("/mcp", "notes"),
        route("/w/{workspace}/mcp/{surface}"),
        *operations.routes(workers),
        *more_routes,
        route("/{workspace}/mcp", "cairn"),  # matches any name, so it is the last to be tried
    ]
    proxies = TrustedProxies(config["http.trusted_proxies"])
    middleware = [
        Middleware(RequestLog, operations.record_request, proxies),
        *([Middleware(ProxyHeadersMiddleware, trusted_hosts=proxies.names)] if proxies.names else []),
        Middleware(HostCheck, config),
    ]
    if config["http.origins"]:  # answers the preflight requests of pages from those origins
        middleware += [
            Middleware(
                CORSMiddleware,
                allow_origins=config["http.origins"],
                allow_methods=("POST", "DELETE"),
                allow_headers=("*",),
                expose_headers=(SESSION_HEADER, "www-authenticate", "retry-after"),
                allow_private_network=True,
            )
        ]

    def end_all_streams() -> None:
        streams.close()
        end_streams()

    app = Starlette(
        routes=routes, lifespan=lifespan, middleware=[*middleware, Middleware(Authenticate, site.auth, routes)]
    )
    app.router.redirect_slashes = False
    app.router.default = _redirect_other_slash(routes, base_path(site.auth.public_url))
    app.state.end_streams = end_all_streams
    return app


def _redirect_other_slash(routes: Sequence[BaseRoute], prefix: str) -> ASGIApp:
    """Answers a request for which there is no route: one slash too many or too few is redirected, all else is 404.

    Starlette's own redirect names the host and path of the request, which behind a proxy are not those of the client;
    `prefix` is the path that clients have to put before ours.
    """

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            return await JSONResponse({"error": "Not Found"}, 404)(scope, receive, send)
        path: str = scope["path"]
        other = path.rstrip("/") if path.endswith("/") else f"{path}/"
        is_local = not other.startswith("//") and len(other) > 1
        if not is_local or all(route.matches({**scope, "path": other})[0] == Match.NONE for route in routes):
            raise HTTPException(404)
        query = scope.get("query_string", b"").decode("latin-1")
        await RedirectResponse(prefix + quote(other) + (f"?{query}" if query else ""))(scope, receive, send)

    return answer


@dataclass(frozen=True, slots=True)
class _Endpoint:
    """Finds the surface and the workspace that a path names. Missing and hidden ones get the same answer."""

    _site: SiteContext
    _served: dict[str, "_SurfaceEndpoint"]
    _surface: str | None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        params = scope["path_params"]
        visitor: Visitor = scope[VISITOR]
        surface = self._surface or normalize_surface(params["surface"])
        endpoint = self._served.get(surface)
        seen = visitor.principal.narrow_library(self._site.library)
        library: Library | None = seen
        if "workspace" in params:
            try:
                workspaces = await self._site.workers.run(seen.workspaces)
            except Problem as problem:  # it could not be opened
                return await JSONResponse({"error": str(problem)}, 503)(scope, receive, send)
            library = next((Library.of([ws]) for ws in workspaces if ws.id == params["workspace"]), None)
        if endpoint is None or library is None:
            missing = "Workspace not found" if library is None else "Surface not found"
            note_refusal("hidden")
            await JSONResponse({"error": missing}, 404)(scope, receive, send)
        elif not visitor.principal.uses(surface):
            raise InsufficientScope(scope, f"This token is not for the surface {surface}", f"surface:{surface}")
        else:
            await endpoint.answer(library, scope, receive, send)


@dataclass(frozen=True, slots=True)
class _SurfaceEndpoint:
    """One surface over HTTP."""

    _surface: Surface
    _site: SiteContext
    _fast_path: FastPathCalls
    _server: Server[Any]

    async def answer(self, library: Library, scope: Scope, receive: Receive, send: Send) -> None:
        # httptools leaves blanks around header values: the SDK compares them, and media types letter by letter
        headers = [
            (name, value.strip(b" \t").lower() if name in MEDIA_TYPE_HEADERS else value.strip(b" \t"))
            for name, value in scope["headers"]
        ]
        scope = {**scope, "headers": headers}
        caller = scope[VISITOR].principal.user or client_address(scope)
        slot, post = self._site.concurrency.slot(caller, counted=not self._surface.has_own_limits), None
        try:
            async with contextlib.AsyncExitStack() as stack:
                post = await read_body(scope, receive, slot, stack)
                await self._answer(post, slot, library, scope, receive, send)
        except Limited as problem:
            error = rate_limited_error(problem, f"Rate limit exceeded: {problem}")
            await _error_response(error, request_id(post.message) if post else None)(scope, receive, send)

    async def _answer(
        self, post: RequestBody, slot: CallSlot, library: Library, scope: Scope, receive: Receive, send: Send
    ) -> None:
        who: Principal = scope[VISITOR].principal
        session_scope = f"{self._surface.name} {who.user}"  # an id is good for the user it was made for
        if scope["method"] != "POST":
            return await self._answer_delete(session_scope, scope)(scope, receive, send)
        if flaw := find_flaw(post.message):
            error = RpcError(INVALID_PARAMS, flaw, status=400 if post.modern else 200)
            return await _error_response(error, request_id(post.message))(scope, receive, send)
        session, new_id = self._find_session(post, session_scope)
        if isinstance(session, RpcError):
            return await _error_response(session, request_id(post.message))(scope, receive, send)
        reply = _DeferredReply(send, request_id(post.message), {SESSION_HEADER: new_id} if new_id else {})
        gone = threading.Event()
        scope[CONNECTION] = connection = ClientConnection(
            library, session, "http", who.user, gone, reply.refuse, self._site.make_check(scope, who, library)
        )
        if post.method == "subscriptions/listen":  # does not end, so it takes no slot
            return await self._ask_sdk(scope, replay_body(post.body, receive), reply.send)
        async with contextlib.nullcontext() if post.has_slot else slot:
            call = None if post.modern else self._fast_path.match(post.message, post.headers)
            if call is None and self._surface.sse and _accepts_streams(scope):
                return await self._ask_sdk(scope, replay_body(post.body, receive), reply.send)
            with watch_disconnect(receive, gone):  # the SDK looks after that only while it streams
                if call is None:
                    return await self._ask_sdk(scope, replay_body(post.body, receive_nothing), reply.send, json=True)
                response = await self._fast_path.answer(call, connection)
                await response(scope, receive, send)

    async def _ask_sdk(self, scope: Scope, receive: Receive, send: Send, *, json: bool = False) -> None:
        """Let the SDK answer. Each request has a stateless manager of its own: the application itself then has nothing
        that begins and ends."""
        manager = StreamableHTTPSessionManager(
            self._server,
            stateless=True,
            json_response=json,
            max_request_body_size=self._site.config["http.max_request_bytes"],
        )
        async with manager.run():
            await manager.handle_request(scope, receive, send)

    def _answer_delete(self, session_scope: str, scope: Scope) -> Response:
        """End the session; 405 for all other methods than POST."""
        if scope["method"] != "DELETE":
            return JSONResponse({"error": "use POST"}, 405, {"Allow": "POST, DELETE"})
        token = Headers(scope=scope).get(SESSION_HEADER)
        if token is None:
            return _error_response(NO_HEADER)
        return (
            Response(status_code=204) if self._site.sessions.end(session_scope, token) else _error_response(NO_SESSION)
        )

    def _find_session(self, post: RequestBody, scope: str) -> tuple[Session | RpcError, str | None]:
        """The session a request belongs to, with its id if it is new; or why there is none."""
        name = client_name(post.message if isinstance(post.message, dict) else {})
        token, required = post.headers.get(SESSION_HEADER), self._surface.sessions == "required"
        if post.modern:
            return (self._site.sessions.find_by_client(scope, name) if name else Session()), None
        if post.message is not None and not is_message(post.message):
            return RpcError(INVALID_REQUEST, "Invalid Request", status=400), None
        if post.method == "initialize":
            new_id = self._site.sessions.open(scope, name)
            return self._site.sessions.find(scope, new_id) or Session(name), new_id
        found = self._site.sessions.find(scope, token) if token is not None else None
        if found is None and token is not None and (required or self._site.sessions.is_ours(scope, token)):
            return NO_SESSION, None
        if found is None and required:
            return NO_HEADER, None
        if found is not None and post.method == "notifications/initialized":
            found.initialized = True
        return found or Session(), None


def _get_connection(context: ServerRequestContext[Any, Any]) -> ClientConnection:
    connection = context.request.scope[CONNECTION] if context.request is not None else None
    assert isinstance(connection, ClientConnection)
    return connection


def _error_response(error: RpcError, request: int | str | None = None) -> Response:
    members = wire_format.error(error.code, error.message, error.data)
    return JSONResponse({"jsonrpc": "2.0", "id": request, "error": members}, error.status or 200, error.headers)


def _accepts_streams(scope: Scope) -> bool:
    """Whether the client understands event streams; one that sends no Accept header gets plain JSON."""
    accept = Headers(scope=scope).get("accept")
    if accept is None:
        scope["headers"] = [*scope["headers"], (b"accept", b"application/json")]
        return False
    return "text/event-stream" in accept or "*/*" in accept


@dataclass(slots=True)
class _DeferredReply:
    """Holds back the start of the SDK's answer until its first body, so that a refusal can still choose the status."""

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
            await _error_response(self.refused, self.request)({"type": "http"}, receive_nothing, self.out)
        elif not self.done:
            if self.start is not None:
                await self.out(self.start)
                self.start = None
            await self.out(message)
