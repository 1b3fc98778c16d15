"""Routes of live documents: WebSockets by id and by path, and the document and file calls of the relay's protocol.

These routes are open to `Authenticate`, as only `LiveAuthenticator` knows document tokens: each of them authenticates
its caller first, and answers as if what is hidden from them did not exist. The files of `/f` are those of the
workspace: a file has the id that the folder document gives it, and a version of it is named by its SHA-256.
"""

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from notewright.engine.read import fetch, stat_file
from notewright.engine.workspace import Workspace
from notewright.engine.write import put
from notewright.errors import Conflict, Forbidden, Invalid, NotFound, Problem, TooLarge
from notewright.ledger.base import Actor
from notewright.notes.path import NotePath
from notewright.server.auth.authenticate import AuthRefusal, GuardedRoute, OpenSocket, base_url, refusal_response
from notewright.server.listen.uvicorn_server import MAX_FRAME_BYTES
from notewright.server.live.access import (
    DEFAULT_TOKEN_SECONDS,
    DocumentNames,
    LiveAuthenticator,
    LiveCaller,
    no_such_document,
)
from notewright.server.live.connections import LiveConnections
from notewright.server.live.forwarding import LiveHosts
from notewright.server.request_body import json_object
from notewright.server.site_context import SiteContext
from notewright.stores.base import Stored
from notewright.surfaces.http_status import STATUS

PRIVATE = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}
DOWNLOAD = PRIVATE | {"Content-Disposition": "attachment", "Content-Security-Policy": "sandbox; default-src 'none'"}
FILE_URL_SECONDS = 300  # for which the URL of a file is valid
Endpoint = Callable[[Request, LiveCaller], Awaitable[Response]]


class LiveSite:
    """The endpoints. `close` ends all connections."""

    def __init__(self, site: SiteContext, hosts: LiveHosts) -> None:
        self._site, self._hosts = site, hosts
        self._authenticator = LiveAuthenticator(site.registry)
        self._connections = LiveConnections(site, hosts, self._authenticator)
        self.close = self._connections.close

    def routes(self) -> list[GuardedRoute | OpenSocket]:
        return [
            OpenSocket("/d/{doc_id}/ws/{again}", self),
            OpenSocket("/doc/ws/{doc_id}", self),
            OpenSocket("/w/{workspace}/live/{path:path}", self),
            GuardedRoute("/ready", _ready, need="open", methods=["GET"]),
            self._route("/doc/new", self._new, "POST"),
            self._route("/doc/{doc_id}/auth", self._auth, "POST"),
            self._route("/d/{doc_id}/as-update", self._as_update, "GET"),
            self._route("/d/{doc_id}/update", self._update, "POST"),
            self._route("/f/{doc_id}/upload-url", self._upload_url, "POST"),
            self._route("/f/{doc_id}/download-url", self._download_url, "GET"),
            self._route("/f/{doc_id}/upload", self._upload, "PUT"),
            self._route("/f/{doc_id}/download", self._download, "GET"),
            self._route("/f/{doc_id}/history", self._history, "GET"),
            self._route("/f/{doc_id}", self._head, "HEAD"),
        ]

    def _route(self, path: str, respond: Endpoint, method: str) -> GuardedRoute:
        async def endpoint(request: Request) -> Response:
            caller = await self._authenticator.authenticate(request.scope)
            if isinstance(caller, AuthRefusal):
                return refusal_response(request.scope, caller)
            try:
                async with self._site.concurrency.slot(caller.principal.user or caller.visitor.address):
                    return await respond(request, caller)
            except Problem as problem:
                return JSONResponse({"error": str(problem)}, STATUS[problem.code], PRIVATE)

        most = self._site.config["http.max_request_bytes"]
        most = most if method == "PUT" else min(most, MAX_FRAME_BYTES)
        return GuardedRoute(path, endpoint, need="open", methods=[method], most_bytes=most)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a WebSocket."""
        await self._connections.serve(scope, receive, send, self._find_document)

    async def _find_document(self, params: Mapping[str, str], shown: Sequence[Workspace]) -> tuple[Workspace, str]:
        """The workspace and id of the document that a URL names, by id or by path."""
        if "path" not in params:
            doc_id = params["doc_id"]  # clients append the id to the URL they were given, which holds it already
            if params.get("again", doc_id) != doc_id:
                raise no_such_document(hint="both ids in the address must be the same")
            return (await self._find_workspace(shown, doc_id))[0], doc_id
        path = NotePath.parse(params["path"])
        ws = next((one for one in shown if one.id == params["workspace"] and one.live is not None), None)
        if ws is None:
            raise no_such_document()
        if (await self._site.workers.run(stat_file, ws, path)).kind != "file":
            raise Invalid(f"{path} cannot be live: it is no file of its own", what="path")  # never through a link
        return ws, (await self._hosts.call(ws, "id_of", path, Actor())).decode()

    # ---- documents ----

    async def _new(self, request: Request, caller: LiveCaller) -> Response:
        """Make a document without a path; the folder document gives it one later."""
        asked = (await _read_json(request)).get("docId")
        if asked is not None and not isinstance(asked, str):
            raise Invalid("docId is no text", what="docId")
        shown = await self._visible_workspaces(caller)
        if not shown:
            raise NotFound("there is no live workspace", what="workspace")
        ws = shown[0] if asked is None else (await self._find_workspace(shown, asked))[0]
        scope = (await self._hosts.fetch_names(ws, ())).scope
        token = caller.token
        if not ws.access.writes_all or (token is not None and not (token.write and token.scope == scope)):
            raise Forbidden("making documents is not allowed", by="rule")
        return JSONResponse({"docId": (await self._hosts.call(ws, "new", asked or "", caller.actor)).decode()})

    async def _auth(self, request: Request, caller: LiveCaller) -> Response:
        """Issue a token for a document or, with `"scope": "folder"`, for all of its folder that the caller may see."""
        doc_id = request.path_params["doc_id"]
        body = await _read_json(request)
        asked, seconds = body.get("authorization") or "full", body.get("validForSeconds")
        if asked not in ("full", "read-only") or body.get("scope") not in (None, "folder"):
            raise Invalid("authorization is full or read-only", what="authorization")
        seconds = DEFAULT_TOKEN_SECONDS if seconds is None else seconds
        if isinstance(seconds, bool) or not isinstance(seconds, int) or seconds <= 0:
            raise Invalid("validForSeconds is a number of seconds", what="validForSeconds")
        ws, writes = await self._find_readable(caller, doc_id)
        await self._hosts.call(ws, "exists", doc_id, caller.actor)
        opens = doc_id
        if body.get("scope") == "folder":
            opens, writes = (await self._hosts.fetch_names(ws, ())).scope, not ws.access.read_only
            if caller.token is not None and caller.token.scope != opens:
                raise Forbidden("this token is for one document", by="rule")
            writes = writes and (caller.token is None or caller.token.write)
        write = writes and asked == "full"
        token = self._authenticator.issue_token(request.scope, caller, opens, write, seconds)
        base = f"{base_url(request.scope, self._site.auth.public_url)}/d/{doc_id}"
        answer = {"url": f"ws{base.removeprefix('http')}/ws", "baseUrl": base, "docId": doc_id, "token": token}
        return JSONResponse(answer | {"authorization": "full" if write else "read-only"}, headers=PRIVATE)

    async def _as_update(self, request: Request, caller: LiveCaller) -> Response:
        doc_id = request.path_params["doc_id"]
        ws, _ = await self._find_readable(caller, doc_id)
        state = await self._hosts.call(ws, "state", doc_id, caller.actor)
        return Response(state, headers=PRIVATE, media_type="application/octet-stream")

    async def _update(self, request: Request, caller: LiveCaller) -> Response:
        """Apply an update; answered when it is on disk."""
        doc_id = request.path_params["doc_id"]
        ws = await self._find_writable(caller, doc_id)
        await self._hosts.call(ws, "update", doc_id, caller.actor, await request.body())
        return Response(headers=PRIVATE)

    async def _find_readable(self, caller: LiveCaller, doc_id: str) -> tuple[Workspace, bool]:
        """The workspace of a document, and whether the caller may change it."""
        ws, names = await self._find_workspace(await self._visible_workspaces(caller), doc_id)
        return ws, caller.may_write(ws.access, doc_id, names)

    async def _find_writable(self, caller: LiveCaller, doc_id: str) -> Workspace:
        """The workspace of a document that the caller may change."""
        ws, writes = await self._find_readable(caller, doc_id)
        if not writes:
            raise Forbidden("you may read this document, not change it", by="rule")
        return ws

    async def _visible_workspaces(self, caller: LiveCaller) -> list[Workspace]:
        """The live workspaces that the caller may see."""
        shown = caller.principal.narrow_library(self._site.library)
        return [ws for ws in await self._site.workers.run(shown.workspaces) if ws.live is not None]

    async def _find_workspace(self, shown: Sequence[Workspace], doc_id: str) -> tuple[Workspace, DocumentNames]:
        """The workspace of a document, by its id; an id that a client made up belongs to the first workspace."""
        known = [(ws, await self._hosts.fetch_names(ws, [doc_id])) for ws in shown if ws.live is not None]
        for ws, names in known:
            if names.may_hold(doc_id):
                return ws, names
        if not known:
            raise no_such_document()
        return known[0]

    # ---- files ----

    async def _upload_url(self, request: Request, caller: LiveCaller) -> Response:
        await self._find_writable(caller, request.path_params["doc_id"])
        return JSONResponse({"uploadUrl": self._file_url(request, caller, "upload", write=True)}, headers=PRIVATE)

    async def _download_url(self, request: Request, caller: LiveCaller) -> Response:
        await self._read_file(request, caller)
        return JSONResponse({"downloadUrl": self._file_url(request, caller, "download", write=False)}, headers=PRIVATE)

    def _file_url(self, request: Request, caller: LiveCaller, what: str, *, write: bool) -> str:
        doc_id, sha256 = request.path_params["doc_id"], _requested_hash(request)
        token = self._authenticator.issue_token(request.scope, caller, doc_id, write, FILE_URL_SECONDS)
        query = urlencode(({"hash": sha256} if sha256 else {}) | {"token": token})
        return f"{base_url(request.scope, self._site.auth.public_url)}/f/{doc_id}/{what}?{query}"

    async def _upload(self, request: Request, caller: LiveCaller) -> Response:
        doc_id, sha256 = request.path_params["doc_id"], _requested_hash(request)
        ws = await self._find_writable(caller, doc_id)
        data = await request.body()
        if len(data) > ws.limits.note_bytes:
            raise TooLarge("this file is too large", size=len(data), limit=ws.limits.note_bytes)
        if sha256 and hashlib.sha256(data).hexdigest() != sha256:
            raise Conflict("these bytes are not those of that hash")
        await self._site.workers.run(put, ws.by(caller.actor), await self._path_of(ws, doc_id), data)
        return Response(headers=PRIVATE)

    async def _download(self, request: Request, caller: LiveCaller) -> Response:
        stored = await self._read_file(request, caller)
        return Response(stored.data, headers=DOWNLOAD, media_type="application/octet-stream")

    async def _history(self, request: Request, caller: LiveCaller) -> Response:
        stored = await self._read_file(request, caller)
        modified = stored.entry.modified_ns // 1_000_000
        files = [{"hash": stored.version, "size": len(stored.data), "createdAt": modified}]
        return JSONResponse({"files": files}, headers=PRIVATE)

    async def _head(self, request: Request, caller: LiveCaller) -> Response:
        await self._read_file(request, caller)
        return Response(headers=PRIVATE)

    async def _read_file(self, request: Request, caller: LiveCaller) -> Stored:
        """The file; NotFound if it is not the version that was asked for."""
        doc_id, sha256 = request.path_params["doc_id"], _requested_hash(request)
        ws, _ = await self._find_readable(caller, doc_id)
        stored = await self._site.workers.run(fetch, ws, await self._path_of(ws, doc_id))
        if sha256 and stored.version != sha256:
            raise NotFound("there is no such file", what="file")
        return stored

    async def _path_of(self, ws: Workspace, doc_id: str) -> NotePath:
        path = (await self._hosts.fetch_names(ws, [doc_id])).paths[doc_id]
        if path is None:
            raise NotFound("this document has no path yet", hint="name it in the folder document first", what="file")
        return path


def _requested_hash(request: Request) -> str | None:
    given = request.query_params.get("hash")
    if given is not None and (len(given) != 64 or not set(given.lower()) <= set("0123456789abcdef")):
        raise Invalid("a hash is a SHA-256 in hexadecimal digits", what="hash")
    return given.lower() if given else None


async def _read_json(request: Request) -> dict[str, Any]:
    """The JSON object of the body; {} for an empty body."""
    raw = await request.body()
    return json_object(raw) if raw.strip() else {}


async def _ready(_: Request) -> Response:
    return JSONResponse({"ok": True})
