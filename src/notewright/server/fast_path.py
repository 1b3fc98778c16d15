"""Calls of tools over HTTP in the 2025 era that want nothing but their answer.

They are nearly all there is. The SDK takes such a call through models, streams and an event stream of one event, which
is several times the work of a small call itself. Only requests pass here that are exactly what they seem; all others,
those that want to hear of progress, and the 2026 era take the long way and get the same answers.
"""

from functools import partial
from typing import Any

import pydantic_core
from starlette.datastructures import Headers
from starlette.responses import Response

from notewright.mcp import wire_format
from notewright.mcp.dispatch import CallOutcome, ClientConnection, Counts, ToolCalls, ToolRequest, answer, in_worker
from notewright.mcp.thread_pool import ThreadPool
from notewright.surfaces.base import Answer, Surface
from notewright.surfaces.perform import flaw_of

# Tools that read notes where they lie; all others that change nothing ask the index alone.
FETCHING = frozenset(
    {"read", "context", "cairn_read", "cairn_links", "read_note", "read_section", "get_headings", "get_links"}
    | {"get_note_metadata", "octarine_read_note", "octarine_list_notes"}
)


class FastPathCalls:
    """The tools of one surface."""

    def __init__(self, surface: Surface, workers: ThreadPool, counts: Counts) -> None:
        self._surface = surface.name
        self._tools = ToolCalls([surface])
        self._looks = frozenset(tool.name for tool in surface.tools if tool.annotations.get("readOnlyHint"))
        self._workers = workers
        self._counts = counts
        self._fetched = self._waits = False  # a note was fetched; some are fetched by request, and that is not brief

    @staticmethod
    def takes(message: Any, headers: Headers) -> ToolRequest | None:
        """The call, if there is nothing about it that the SDK would have to look at."""
        asked = ToolRequest.of(message)
        if asked is None or not _plain(headers):
            return None
        if "progressToken" in asked.meta and flaw_of(asked.args) is None:  # else the SDK would call it no JSON
            return None
        version = headers.get("mcp-protocol-version", wire_format.VERSIONS[0])
        return asked if version in wire_format.VERSIONS else None

    async def answer(self, asked: ToolRequest, caller: ClientConnection) -> Response:
        """Counted, in a worker thread."""
        doing = self._workers.run_brief if self._is_brief(asked.tool) else self._workers.run
        tool = asked.tool if asked.tool in self._tools.known else "unknown"
        outcome = await in_worker(doing, partial(self._respond, asked, caller), self._counts, self._surface, tool)
        return outcome.value or _response(asked, CallOutcome(error=outcome.error))

    def _is_brief(self, tool: str) -> bool:
        """A write may wait long, and so may whoever asks a service for a note."""
        return tool in self._looks and (tool not in FETCHING or (self._fetched and not self._waits))

    def _respond(self, asked: ToolRequest, caller: ClientConnection) -> CallOutcome[Response]:
        cancelled = bool if caller.gone is None else caller.gone.is_set
        outcome = self._tools.call(caller, asked.tool, asked.args, cancelled)
        if asked.tool in FETCHING and not outcome.code and not self._waits:
            self._waits = not all(ws.store.has_folders for ws in caller.library.workspaces())
            self._fetched = True
        return CallOutcome(_response(asked, outcome), code=outcome.code)


def _response(asked: ToolRequest, outcome: CallOutcome[Answer]) -> Response:
    body = pydantic_core.to_json({"jsonrpc": "2.0", "id": asked.request, **answer(outcome)})
    error = outcome.error
    status, headers = (error.status or 200, error.headers) if error is not None else (200, None)
    return Response(body, status, headers, media_type="application/json")


def _plain(headers: Headers) -> bool:
    """JSON is sent and taken."""
    accept = headers.get("accept", "*/*")
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "application/json" and ("application/json" in accept or "*/*" in accept)
