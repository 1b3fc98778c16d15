"""The fast path for tool calls over HTTP in the 2025 era that want nothing but their answer.

They are nearly all there is. The SDK takes such a call through models, streams and an event stream of one event, which
is several times the work of a small call itself. Only requests that need nothing else take this path; all others, those
that ask for progress, and the 2026 era go through the SDK and get the same answers.
"""

from functools import partial
from typing import Any

import pydantic_core
from starlette.datastructures import Headers
from starlette.responses import Response

from notewright.mcp import wire_format
from notewright.mcp.dispatch import (
    CallOutcome,
    ClientConnection,
    Counts,
    ToolCalls,
    ToolRequest,
    run_counted,
    shape_outcome,
)
from notewright.mcp.thread_pool import ThreadPool
from notewright.surfaces.base import Answer, Surface
from notewright.surfaces.perform import find_json_flaw

# Tools that read notes from their store; all other tools that change nothing use the index alone.
STORE_READING_TOOLS = frozenset(
    {"read", "context", "cairn_read", "cairn_links", "read_note", "read_section", "get_headings", "get_links"}
    | {"get_note_metadata", "octarine_read_note", "octarine_list_notes"}
)


class FastPathCalls:
    """The tools of one surface."""

    def __init__(self, surface: Surface, workers: ThreadPool, counts: Counts) -> None:
        self._surface = surface.name
        self._tools = ToolCalls([surface])
        self._read_only = frozenset(tool.name for tool in surface.tools if tool.annotations.get("readOnlyHint"))
        self._workers = workers
        self._counts = counts
        self._store_is_slow: bool | None = None  # some notes are fetched by request; None until one was read

    @staticmethod
    def match(message: Any, headers: Headers) -> ToolRequest | None:
        """The call in a message, if there is nothing about it that the SDK would have to look at."""
        request = ToolRequest.parse(message)
        accept = headers.get("accept", "*/*")
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if request is None or kind != "application/json" or not ("application/json" in accept or "*/*" in accept):
            return None
        # With a flaw in its arguments the SDK would call it no JSON.
        if "progressToken" in request.meta and find_json_flaw(request.args) is None:
            return None
        version = headers.get("mcp-protocol-version", wire_format.VERSIONS[0])
        return request if version in wire_format.VERSIONS else None

    async def answer(self, request: ToolRequest, connection: ClientConnection) -> Response:
        """Make the call in a worker thread, and count it."""
        # A write may wait long, and so may a tool that fetches a note from a service.
        from_store = request.tool in STORE_READING_TOOLS
        is_brief = request.tool in self._read_only and (not from_store or self._store_is_slow is False)
        run = self._workers.run_brief if is_brief else self._workers.run
        tool = request.tool if request.tool in self._tools.known else "unknown"
        outcome = await run_counted(run, partial(self._respond, request, connection), self._counts, self._surface, tool)
        return outcome.value or _response(request, CallOutcome(error=outcome.error))

    def _respond(self, request: ToolRequest, connection: ClientConnection) -> CallOutcome[Response]:
        cancelled = bool if connection.gone is None else connection.gone.is_set
        outcome = self._tools.call(connection, request.tool, request.args, cancelled)
        if request.tool in STORE_READING_TOOLS and not outcome.code and not self._store_is_slow:
            self._store_is_slow = not all(ws.store.has_folders for ws in connection.library.workspaces())
        return CallOutcome(_response(request, outcome), code=outcome.code)


def _response(request: ToolRequest, outcome: CallOutcome[Answer]) -> Response:
    body = pydantic_core.to_json({"jsonrpc": "2.0", "id": request.id, **shape_outcome(outcome)})
    error = outcome.error
    status, headers = (error.status or 200, error.headers) if error is not None else (200, None)
    return Response(body, status, headers, media_type="application/json")
