"""From a request to an operation and back: everything that holds for all of them stands here."""

import contextlib
import tempfile
from collections.abc import AsyncIterator, Sequence
from typing import BinaryIO, Protocol, cast

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import compile_path
from starlette.types import Receive, Scope, Send

from notewright.errors import Forbidden, Invalid, Problem
from notewright.server.api import problems
from notewright.server.api.asking import Asked, Site, body_of, query_of
from notewright.server.api.table import Operation, Pieces
from notewright.server.gate import Door, Narrow, Visitor, visitor_of
from notewright.server.workers import Workers

SAFE = ("GET", "HEAD")
IN_MEMORY = 1 << 20  # bytes of an upload; what is larger goes to disk
ZIPPED = ("application/zip", "application/x-zip-compressed", "application/octet-stream")
HEADER, FORM = "x-notewright", "x-csrf-token"


class Forms(Protocol):
    """Knows the tokens of our own pages (`server/cookies.py`)."""

    def check(self, visit: str, told: str) -> bool: ...


class Turns(Protocol):
    """Holds callers to their limits (`server/turns.py`)."""

    def turn(self, caller: str, *, counted: bool) -> contextlib.AbstractAsyncContextManager[object]: ...


class ApiDoor(Door):
    """The door of one operation. Every way to say no has one form here."""

    def __init__(
        self, operation: Operation, site: Site, workers: Workers, cookies: Forms | None, turns: Turns | None
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
            await problems.refused_by_the_web(error)(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        try:
            visitor = visitor_of(request)
            self._let_in(visitor, request)
            async with self._turn(visitor):
                return await self._performed(visitor, request)
        except Problem as problem:
            return problems.refused(problem)
        except HTTPException as error:
            return problems.refused_by_the_web(error)
        except ClientDisconnect:
            return Response(status_code=400)
        except Exception as error:
            return problems.failed(error, self.operation.name)

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
                asked = Asked(self._site, visitor, one.name, named, query, upload=upload)
                return problems.answered(await self._workers.run(one.run, asked), one.status)
        body = await body_of(request, one.body)
        given = await self._workers.run(one.run, Asked(self._site, visitor, one.name, named, query, body))
        if one.answer is not None:
            return problems.answered(given, one.status)
        return await self._streamed(given, f"{named['id']}.zip", request.method == "HEAD")

    async def _take_in(self, request: Request, file: BinaryIO) -> None:
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() not in ZIPPED:
            raise Invalid("the body must be a zip file", hint=f"send it with Content-Type: {ZIPPED[0]}", what="body")
        async for piece in request.stream():
            await self._workers.run(file.write, piece)
        file.seek(0)

    async def _streamed(self, pieces: Pieces, name: str, only_head: bool) -> Response:
        """What goes wrong before the first piece is still said in words; later the connection ends without an end."""
        headers = {**problems.ALWAYS, "Content-Disposition": f'attachment; filename="{name}"'}
        if only_head:
            return Response(media_type="application/zip", headers=headers)
        first = await self._workers.run(next, pieces, b"")

        async def all_of_them() -> AsyncIterator[bytes]:
            piece = first
            while piece:
                yield piece
                piece = await self._workers.run(next, pieces, b"")

        return StreamingResponse(all_of_them(), media_type="application/zip", headers=headers)


def _is_meant(visitor: Visitor, request: Request, cookies: Forms | None) -> bool:
    """Whether a browser cannot have sent it by itself: it adds cookies, and its place on this machine, to what any page
    asks it to send, but no page of somebody else can add a header or a form's token."""
    if visitor.via == "bearer" or HEADER in request.headers:
        return True
    if cookies is not None and cookies.check(visitor.visit or "local", request.headers.get(FORM, "")):
        return True
    return visitor.via == "local" and request.headers.get("sec-fetch-site", "none") in ("none", "same-origin")


class Nowhere(Door):
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
            await problems.refused_by_the_web(error)(scope, receive, send)

    def _answer(self, path: str) -> Response:
        methods = sorted({method for pattern, method in self._known if pattern.match(path)})
        if methods:
            allowed = {"Allow": ", ".join(methods)}
            return problems.refused_by_the_web(HTTPException(405, f"use {' or '.join(methods)} here", allowed))
        known = "GET /api/v1/openapi.json tells what there is"
        return problems.refused_by_the_web(HTTPException(404, f"there is nothing here; {known}"))
