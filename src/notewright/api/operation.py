"""An operation of the API, and its route. Routes and the OpenAPI document are made from one list of operations."""

import json
import os
import re
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, TypeVar, cast

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import compile_path
from starlette.types import Receive, Scope, Send

from notewright.api import schemas
from notewright.api.request import ApiRequest, body_of, media_type, query_of
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
from notewright.server.site_context import SiteContext
from notewright.surfaces.base import BadArgument
from notewright.surfaces.http_status import STATUS
from notewright.surfaces.perform import to_problem

Pieces = Iterator[bytes]
Run = TypeVar("Run", bound=Callable[[ApiRequest], Any])

RETRY_SECONDS = {"busy": 1, "indexing": 2, "unavailable": 5}  # the Retry-After of each code
CODES = {403: "forbidden", 404: "not_found", 413: "too_large"}  # of the framework's refusals; else invalid
HEADERS = {"Cache-Control": "no-store"}
MAX_UPLOAD_BYTES_IN_MEMORY = 1 << 20  # a larger upload goes to disk
ZIP_TYPES = ("application/zip", "application/x-zip-compressed", "application/octet-stream")
INTENT_HEADER, CSRF_HEADER = "x-notewright", "x-csrf-token"


@dataclass(frozen=True)
class Operation:
    """One operation. `run` may block: it runs in a thread, and returns the document to answer with."""

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
    any_token: bool = False  # also for tokens that are narrowed to surfaces

    @property
    def name(self) -> str:
        """Its name in the history, and in OpenAPI."""
        return self.run.__name__

    @property
    def plain_path(self) -> str:
        """The path without the types of its parameters."""
        return re.sub(r"\{(\w+):\w+\}", r"{\1}", self.path)


class OperationTable(list[Operation]):
    """The operations of one module, each declared above its function."""

    def __init__(self, prefix: str = "") -> None:
        super().__init__()
        self._prefix = prefix  # of every path

    def add(
        self,
        address: str,
        need: Need,
        summary: str,
        answer: Schema | None,
        query: Schema = schemas.NOTHING,
        **more: Any,
    ) -> Callable[[Run], Run]:
        """Register the function below at an address like `GET /api/v1/me`."""
        method, _, path = address.partition(" ")

        def register(run: Run) -> Run:
            self.append(Operation(method, self._prefix + path, need, summary, run, answer, query, **more))
            return run

        return register


def json_response(document: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """One JSON document that no cache keeps. What is not text becomes a question mark."""
    body = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8", "replace")
    return Response(body, status, {**HEADERS, **(headers or {})}, "application/json")


def problem_response(problem: Problem) -> Response:
    headers = {}
    if problem.code in RETRY_SECONDS or problem.code == "limited":
        seconds = problem.details.get("retry_after", RETRY_SECONDS.get(problem.code, 1))
        headers["Retry-After"] = str(max(1, round(seconds)))
    hint = problem.hint
    if isinstance(problem, BadArgument) and problem.fault == "unknown":
        hint = f"known are {', '.join(problem.expected)}" if problem.expected else "none is taken here"
    return _error_response(STATUS[problem.code], problem.code, problem.message, hint, headers)


def http_error_response(error: HTTPException) -> Response:
    code = CODES.get(error.status_code, "invalid")
    return _error_response(error.status_code, code, error.detail, "", error.headers or {})


def _error_response(status: int, code: str, message: str, hint: str, headers: Mapping[str, str]) -> Response:
    return json_response({"error": {"code": code, "message": message, "hint": hint}}, status, headers)


class ApiRoute(GuardedRoute):
    """A route that refuses in the API's own form."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().handle(scope, receive, send)
        except HTTPException as error:  # the route itself refused: nothing was sent yet
            await http_error_response(error)(scope, receive, send)


class OperationRoute(ApiRoute):
    """The route of one operation."""

    def __init__(self, operation: Operation, site: SiteContext) -> None:
        most = site.config["http.max_request_bytes"] if operation.uploads else SMALL_BODY_BYTES
        super().__init__(operation.path, self._answer, need=operation.need, methods=[operation.method], most_bytes=most)
        self.operation = operation
        self._site, self._workers = site, site.workers

    async def _answer(self, request: Request) -> Response:
        try:
            visitor = get_visitor(request)
            if not self.operation.any_token and not visitor.principal.uses("api"):
                raise InsufficientScope(request.scope, "This token is not for the surface api", "surface:api")
            if request.method not in ("GET", "HEAD") and not self._is_intended(visitor, request):
                hint = f"send the header {INTENT_HEADER}: 1"
                raise Forbidden("a page of somebody else could have sent this", hint=hint, by="rule")
            async with self._site.concurrency.slot(visitor.principal.user or visitor.address):
                return await self._perform(visitor, request)
        except HTTPException as error:
            return http_error_response(error)
        except ClientDisconnect:
            return Response(status_code=400)
        except Exception as error:
            return problem_response(to_problem(error, self.operation.name))

    def _is_intended(self, visitor: Visitor, request: Request) -> bool:
        """Whether a page of somebody else cannot have made the browser send this: a browser adds its cookies, and its
        place on this machine, to what any page asks it to send, but such a page cannot add a header or a form's
        token."""
        if visitor.via == "bearer" or INTENT_HEADER in request.headers:
            return True
        if self._site.auth.cookies.check(visitor.csrf_subject or "local", request.headers.get(CSRF_HEADER, "")):
            return True
        return visitor.via == "local" and request.headers.get("sec-fetch-site", "none") in ("none", "same-origin")

    async def _perform(self, visitor: Visitor, request: Request) -> Response:
        operation, run = self.operation, self._workers.run
        query, params = query_of(request, operation.query), dict(request.path_params)
        checked = ApiRequest(self._site, visitor, operation.name, params, query)
        if operation.uploads:
            cache = self._site.config.cache  # private, and on a disk with room for the notes' index
            folder = cache if cache and os.path.isdir(cache) else None
            with tempfile.SpooledTemporaryFile(MAX_UPLOAD_BYTES_IN_MEMORY, dir=folder) as file:
                upload = cast(BinaryIO, file)
                if media_type(request) not in ZIP_TYPES:
                    hint = f"send it with Content-Type: {ZIP_TYPES[0]}"
                    raise Invalid("the body must be a zip file", hint=hint, what="body")
                async for piece in request.stream():
                    await run(upload.write, piece)
                upload.seek(0)
                return json_response(await run(operation.run, replace(checked, upload=upload)), operation.status)
        body = await body_of(request, operation.body)
        answer = await run(operation.run, replace(checked, body=body))
        if operation.answer is not None:
            return json_response(answer, operation.status)
        return await self._stream(answer, f"{params['id']}.zip", request.method == "HEAD")

    async def _stream(self, pieces: Pieces, name: str, only_head: bool) -> Response:
        """The zip file. An error before the first piece is still answered in words; later the connection breaks off."""
        headers = {**HEADERS, "Content-Disposition": f'attachment; filename="{name}"'}
        if only_head:
            return Response(media_type="application/zip", headers=headers)
        first = await self._workers.run(next, pieces, b"")

        async def stream() -> AsyncIterator[bytes]:
            piece = first
            while piece:
                yield piece
                piece = await self._workers.run(next, pieces, b"")

        return StreamingResponse(stream(), media_type="application/zip", headers=headers)


class NotFoundRoute(ApiRoute):
    """Answers what is below `/api` and does not exist, or not for this method."""

    def __init__(self, path: str, table: Sequence[Operation]) -> None:
        every = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
        super().__init__(path, self._answer, need="read", methods=every)
        self._methods = [(compile_path(operation.path)[0], operation.method) for operation in table]

    async def _answer(self, request: Request) -> Response:
        methods = sorted({method for pattern, method in self._methods if pattern.match(request.scope["path"])})
        if methods:
            allowed = {"Allow": ", ".join(methods)}
            return http_error_response(HTTPException(405, f"use {' or '.join(methods)} here", allowed))
        known = "GET /api/v1/openapi.json tells what there is"
        return http_error_response(HTTPException(404, f"there is nothing here; {known}"))
