"""What an operation of the API is, and its route. Routes and the OpenAPI document are made of one list of these."""

import json
import re
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeVar, cast

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import compile_path
from starlette.types import Receive, Scope, Send

from notewright.api import schemas
from notewright.api.request import ApiRequest, SiteContext, body_of, media_type, query_of
from notewright.api.schemas import Schema
from notewright.errors import Forbidden, Invalid, Problem
from notewright.server.auth.authenticate import (
    SMALL_BODY_BYTES,
    GuardedRoute,
    InsufficientScope,
    Need,
    Visitor,
    get_visitor,
)
from notewright.surfaces.base import BadArgument
from notewright.surfaces.http_status import STATUS
from notewright.surfaces.perform import as_problem

Pieces = Iterator[bytes]
Run = TypeVar("Run", bound=Callable[[ApiRequest], Any])

RETRY_SECONDS = {"busy": 1, "indexing": 2, "unavailable": 5}  # after which it is worth another try
CODES = {403: "forbidden", 404: "not_found", 413: "too_large"}  # of what the web framework refuses; else invalid
ALWAYS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
IN_MEMORY = 1 << 20  # bytes of an upload; what is larger goes to disk
ZIPPED = ("application/zip", "application/x-zip-compressed", "application/octet-stream")
HEADER, FORM = "x-notewright", "x-csrf-token"


@dataclass(frozen=True)
class Operation:
    """One thing that can be asked for. `run` may block: it runs in a thread, and returns the document to answer."""

    method: str
    path: str
    need: Need
    summary: str
    run: Callable[[ApiRequest], Any]
    answer: Schema | None  # None: a zip file, and `run` gives its pieces
    query: Schema
    body: Schema | None = None  # None: none is taken
    status: int = 200
    uploads: bool = False  # the body is a zip file
    anybody: bool = False  # also for tokens that are narrowed to surfaces

    @property
    def name(self) -> str:
        """As it stands in the history, and in OpenAPI."""
        return self.run.__name__

    @property
    def plain_path(self) -> str:
        """Without what the framework wants to know of its parts."""
        return re.sub(r"\{(\w+):\w+\}", r"{\1}", self.path)


class OperationTable(list[Operation]):
    """Those of one module: each stands above the function that does it."""

    def add(
        self,
        address: str,
        need: Need,
        summary: str,
        answer: Schema | None,
        query: Schema = schemas.NOTHING,
        **more: Any,
    ) -> Callable[[Run], Run]:
        """Offer the function below at an address like `GET /api/v1/me`."""
        method, path = address.split()

        def put(run: Run) -> Run:
            self.append(Operation(method, path, need, summary, run, answer, query, **more))
            return run

        return put


# ---- answers ------------------------------------------------------------------------------------------


def json_response(document: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """One JSON document that nobody keeps. What is not text becomes a question mark."""
    body = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8", "replace")
    return Response(body, status, {**ALWAYS, **(headers or {})}, "application/json")


def refused(problem: Problem) -> Response:
    headers = {}
    if problem.code in RETRY_SECONDS or problem.code == "limited":
        seconds = problem.details.get("retry_after", RETRY_SECONDS.get(problem.code, 1))
        headers["Retry-After"] = str(max(1, round(seconds)))
    hint = problem.hint
    if isinstance(problem, BadArgument) and problem.fault == "unknown":
        hint = f"known are {', '.join(problem.expected)}" if problem.expected else "none is taken here"
    return _refusal(STATUS[problem.code], problem.code, problem.message, hint, headers)


def refused_by_the_web(error: HTTPException) -> Response:
    return _refusal(error.status_code, CODES.get(error.status_code, "invalid"), error.detail, "", error.headers or {})


def _refusal(status: int, code: str, message: str, hint: str, headers: Mapping[str, str]) -> Response:
    return json_response({"error": {"code": code, "message": message, "hint": hint}}, status, headers)


# ---- routes -------------------------------------------------------------------------------------------


class ApiRoute(GuardedRoute):
    """A route that refuses in the API's own form."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().handle(scope, receive, send)
        except HTTPException as error:  # the route itself refused: nothing was sent yet
            await refused_by_the_web(error)(scope, receive, send)


class OperationRoute(ApiRoute):
    """Where one operation is offered."""

    def __init__(self, operation: Operation, site: SiteContext) -> None:
        most = site.config["http.max_request_bytes"] if operation.uploads else SMALL_BODY_BYTES
        super().__init__(operation.path, self._answer, need=operation.need, methods=[operation.method], most_bytes=most)
        self.operation = operation
        self._site, self._workers = site, site.workers

    async def _answer(self, request: Request) -> Response:
        try:
            visitor = get_visitor(request)
            self._refuse(visitor, request)
            async with self._site.turns.slot(visitor.principal.user or visitor.address):
                return await self._perform(visitor, request)
        except HTTPException as error:
            return refused_by_the_web(error)
        except ClientDisconnect:
            return Response(status_code=400)
        except Exception as error:
            return refused(as_problem(error, self.operation.name))

    def _refuse(self, visitor: Visitor, request: Request) -> None:
        if not self.operation.anybody and not visitor.principal.uses("api"):
            raise InsufficientScope(request.scope, "This token is not for the surface api", "surface:api")
        if request.method not in ("GET", "HEAD") and not self._is_meant(visitor, request):
            hint = f"send the header {HEADER}: 1"
            raise Forbidden("a page of somebody else could have sent this", hint=hint, by="rule")

    def _is_meant(self, visitor: Visitor, request: Request) -> bool:
        """Whether a browser cannot have sent it by itself: it adds cookies, and its place on this machine, to what any
        page asks it to send, but no page of somebody else can add a header or a form's token."""
        if visitor.via == "bearer" or HEADER in request.headers:
            return True
        if self._site.cookies.check(visitor.csrf_subject or "local", request.headers.get(FORM, "")):
            return True
        return visitor.via == "local" and request.headers.get("sec-fetch-site", "none") in ("none", "same-origin")

    async def _perform(self, visitor: Visitor, request: Request) -> Response:
        one = self.operation
        query, named = query_of(request, one.query), dict(request.path_params)
        if one.uploads:
            with tempfile.SpooledTemporaryFile(IN_MEMORY, dir=self._site.scratch) as file:
                upload = cast(BinaryIO, file)
                await self._take_in(request, upload)
                asked = ApiRequest(self._site, visitor, one.name, named, query, upload=upload)
                return json_response(await self._workers.run(one.run, asked), one.status)
        body = await body_of(request, one.body)
        answer = await self._workers.run(one.run, ApiRequest(self._site, visitor, one.name, named, query, body))
        if one.answer is not None:
            return json_response(answer, one.status)
        return await self._stream(answer, f"{named['id']}.zip", request.method == "HEAD")

    async def _take_in(self, request: Request, file: BinaryIO) -> None:
        if media_type(request) not in ZIPPED:
            raise Invalid("the body must be a zip file", hint=f"send it with Content-Type: {ZIPPED[0]}", what="body")
        async for piece in request.stream():
            await self._workers.run(file.write, piece)
        file.seek(0)

    async def _stream(self, pieces: Pieces, name: str, only_head: bool) -> Response:
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


class NotFoundRoute(ApiRoute):
    """What is asked for below `/api` and is not there, or not in this way."""

    def __init__(self, path: str, table: Sequence[Operation]) -> None:
        every = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
        super().__init__(path, self._answer, need="read", methods=every)
        self._known = [(compile_path(one.path)[0], one.method) for one in table]

    async def _answer(self, request: Request) -> Response:
        methods = sorted({method for pattern, method in self._known if pattern.match(request.scope["path"])})
        if methods:
            allowed = {"Allow": ", ".join(methods)}
            return refused_by_the_web(HTTPException(405, f"use {' or '.join(methods)} here", allowed))
        known = "GET /api/v1/openapi.json tells what there is"
        return refused_by_the_web(HTTPException(404, f"there is nothing here; {known}"))
