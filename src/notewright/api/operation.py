"""What an operation of the API is. The routes and the OpenAPI document are made of the same list of these."""

import contextlib
import json
import logging
import re
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Literal, Protocol, cast

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import compile_path
from starlette.types import Receive, Scope, Send

from notewright.api import schemas
from notewright.api.request import ApiContext, ApiRequest, body_of, query_of
from notewright.api.schemas import Schema
from notewright.errors import Forbidden, Internal, Invalid, Problem
from notewright.mcp.thread_pool import ThreadPool
from notewright.server.auth.authenticate import SMALL, GuardedRoute, Narrow, Need, Visitor, visitor_of
from notewright.server.http_status import STATUS
from notewright.surfaces.base import BadArgument

Pieces = Iterator[bytes]


@dataclass(frozen=True)
class Operation:
    """One thing that can be asked for. `run` may block: it runs in a thread, and returns the document to answer."""

    method: Literal["GET", "POST", "PATCH", "DELETE"]
    path: str
    need: Need
    summary: str
    run: Callable[[ApiRequest], Any]
    answer: Schema | None  # None: a zip file, and `run` gives its pieces
    query: Schema = field(default_factory=lambda: schemas.NOTHING)
    body: Schema | None = None  # None: none is taken
    status: int = 200
    uploads: bool = False  # the body is a zip file
    most_bytes: int = SMALL
    anybody: bool = False  # also for tokens that are narrowed to surfaces

    @property
    def name(self) -> str:
        """As it stands in the history, and in OpenAPI."""
        return self.run.__name__.rstrip("_")

    @property
    def plain_path(self) -> str:
        """Without what the framework wants to know of its parts."""
        return re.sub(r"\{(\w+):\w+\}", r"{\1}", self.path)

    @property
    def parts(self) -> list[str]:
        return re.findall(r"\{(\w+)\}", self.plain_path)


log = logging.getLogger(__name__)

AGAIN = {"busy": 1, "indexing": 2, "unavailable": 5}  # seconds after which it is worth another try
CODES = {403: "forbidden", 404: "not_found", 413: "too_large"}  # of what the web framework refuses; else invalid
ALWAYS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


def answered(document: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """One JSON document that nobody keeps. What is not text becomes a question mark."""
    body = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8", "replace")
    return Response(body, status, {**ALWAYS, **(headers or {})}, "application/json")


def refused(problem: Problem) -> Response:
    headers = {}
    if problem.code in AGAIN or problem.code == "limited":
        headers["Retry-After"] = str(max(1, round(problem.details.get("retry_after", AGAIN.get(problem.code, 1)))))
    return _said(STATUS[problem.code], problem.code, problem.message, _hint(problem), headers)


def _hint(problem: Problem) -> str:
    if isinstance(problem, BadArgument) and problem.fault == "unknown":
        return f"known are {', '.join(problem.expected)}" if problem.expected else "none is taken here"
    return problem.hint


def failed(error: Exception, what: str) -> Response:
    """What we did not expect goes to the log whole and to the caller as nothing but our fault."""
    log.error("%s failed", what, exc_info=error)
    return refused(Internal("something went wrong here", hint="it is in the server's log"))


def refused_by_the_web(error: HTTPException) -> Response:
    return _said(error.status_code, CODES.get(error.status_code, "invalid"), error.detail, "", error.headers or {})


def _said(status: int, code: str, message: str, hint: str, headers: Mapping[str, str]) -> Response:
    return answered({"error": {"code": code, "message": message, "hint": hint}}, status, headers)


SAFE = ("GET", "HEAD")
IN_MEMORY = 1 << 20  # bytes of an upload; what is larger goes to disk
ZIPPED = ("application/zip", "application/x-zip-compressed", "application/octet-stream")
HEADER, FORM = "x-notewright", "x-csrf-token"


class FormTokens(Protocol):
    """Knows the tokens of our own pages (`server/auth/browser_session.py`)."""

    def check(self, visit: str, told: str) -> bool: ...


class CallerLimits(Protocol):
    """Holds callers to their limits (`server/concurrency_limits.py`)."""

    def turn(self, caller: str, *, counted: bool) -> contextlib.AbstractAsyncContextManager[object]: ...


class ApiRoute(GuardedRoute):
    """The door of one operation. Every way to say no has one form here."""

    def __init__(
        self,
        operation: Operation,
        site: ApiContext,
        workers: ThreadPool,
        cookies: FormTokens | None,
        turns: CallerLimits | None,
    ) -> None:
        async def endpoint(request: Request) -> Response:
            return await self._answer(request)

        methods = [operation.method]
        super().__init__(
            operation.path, endpoint, need=operation.need, methods=methods, most_bytes=operation.most_bytes
        )
        self.operation = operation
        self._site, self._workers, self._cookies, self._turns = site, workers, cookies, turns

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().handle(scope, receive, send)
        except HTTPException as error:  # the door itself said no: nothing was sent yet
            await refused_by_the_web(error)(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        try:
            visitor = visitor_of(request)
            self._let_in(visitor, request)
            async with self._turn(visitor):
                return await self._performed(visitor, request)
        except Problem as problem:
            return refused(problem)
        except HTTPException as error:
            return refused_by_the_web(error)
        except ClientDisconnect:
            return Response(status_code=400)
        except Exception as error:
            return failed(error, self.operation.name)

    def _turn(self, visitor: Visitor) -> contextlib.AbstractAsyncContextManager[object]:
        if self._turns is None:
            return contextlib.nullcontext()
        return self._turns.turn(visitor.principal.user or visitor.address, counted=True)

    def _let_in(self, visitor: Visitor, request: Request) -> None:
        if not self.operation.anybody and not visitor.principal.uses("api"):
            raise Narrow(request.scope, "This token is not for the surface api", "surface:api")
        if request.method not in SAFE and not _is_meant(visitor, request, self._cookies):
            hint = f"send the header {HEADER}: 1"
            raise Forbidden("a page of somebody else could have sent this", hint=hint, by="rule")

    async def _performed(self, visitor: Visitor, request: Request) -> Response:
        one = self.operation
        query, named = query_of(request, one.query), dict(request.path_params)
        if one.uploads:
            with tempfile.SpooledTemporaryFile(IN_MEMORY, dir=self._site.scratch) as file:
                upload = cast(BinaryIO, file)
                await self._take_in(request, upload)
                asked = ApiRequest(self._site, visitor, one.name, named, query, upload=upload)
                return answered(await self._workers.run(one.run, asked), one.status)
        body = await body_of(request, one.body)
        given = await self._workers.run(one.run, ApiRequest(self._site, visitor, one.name, named, query, body))
        if one.answer is not None:
            return answered(given, one.status)
        return await self._streamed(given, f"{named['id']}.zip", request.method == "HEAD")

    async def _take_in(self, request: Request, file: BinaryIO) -> None:
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() not in ZIPPED:
            raise Invalid("the body must be a zip file", hint=f"send it with Content-Type: {ZIPPED[0]}", what="body")
        async for piece in request.stream():
            await self._workers.run(file.write, piece)
        file.seek(0)

    async def _streamed(self, pieces: Pieces, name: str, only_head: bool) -> Response:
        """What goes wrong before the first piece is still said in words; later the connection ends without an end."""
        headers = {**ALWAYS, "Content-Disposition": f'attachment; filename="{name}"'}
        if only_head:
            return Response(media_type="application/zip", headers=headers)
        first = await self._workers.run(next, pieces, b"")

        async def all_of_them() -> AsyncIterator[bytes]:
            piece = first
            while piece:
                yield piece
                piece = await self._workers.run(next, pieces, b"")

        return StreamingResponse(all_of_them(), media_type="application/zip", headers=headers)


def _is_meant(visitor: Visitor, request: Request, cookies: FormTokens | None) -> bool:
    """Whether a browser cannot have sent it by itself: it adds cookies, and its place on this machine, to what any page
    asks it to send, but no page of somebody else can add a header or a form's token."""
    if visitor.via == "bearer" or HEADER in request.headers:
        return True
    if cookies is not None and cookies.check(visitor.visit or "local", request.headers.get(FORM, "")):
        return True
    return visitor.via == "local" and request.headers.get("sec-fetch-site", "none") in ("none", "same-origin")


class NotFoundRoute(GuardedRoute):
    """What is asked for below `/api` and is not there, or not in this way."""

    def __init__(self, path: str, table: Sequence[Operation]) -> None:
        async def endpoint(request: Request) -> Response:
            return self._answer(request.scope["path"])

        every = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
        super().__init__(path, endpoint, need="read", methods=every)
        self._known = [(compile_path(one.path)[0], one.method) for one in table]

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().handle(scope, receive, send)
        except HTTPException as error:
            await refused_by_the_web(error)(scope, receive, send)

    def _answer(self, path: str) -> Response:
        methods = sorted({method for pattern, method in self._known if pattern.match(path)})
        if methods:
            allowed = {"Allow": ", ".join(methods)}
            return refused_by_the_web(HTTPException(405, f"use {' or '.join(methods)} here", allowed))
        known = "GET /api/v1/openapi.json tells what there is"
        return refused_by_the_web(HTTPException(404, f"there is nothing here; {known}"))
