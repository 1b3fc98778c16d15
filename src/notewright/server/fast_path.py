"""Calls of tools over HTTP in the 2025 era that want nothing but their answer.

They are nearly all there is. The SDK takes such a call through models, streams and an event stream of one event, which
is several times the work of a small call itself. Only requests pass here that are exactly what they seem; all others,
those that want to hear of progress, and the 2026 era take the long way and get the same answers.
"""

import asyncio
import logging
import threading
import time
from dataclasses import dataclass
from typing import Any

import pydantic_core
from starlette.datastructures import Headers
from starlette.responses import Response

from notewright.errors import Problem
from notewright.ledger.base import Actor
from notewright.mcp import wire_format
from notewright.mcp.connection import ClientConnection
from notewright.mcp.jsonrpc import ENVELOPE
from notewright.mcp.sdk_server import Counts
from notewright.mcp.thread_pool import ThreadPool
from notewright.surfaces.base import INTERNAL_ERROR, Call, Cancelled, RpcError, Surface
from notewright.surfaces.perform import flaw_of, perform

log = logging.getLogger(__name__)


@dataclass(slots=True)
class FastPathCall:
    """A call that can be answered here, and how it ended: the code of the problem that stood in its way."""

    request: int | str
    tool: str
    args: dict[str, Any]
    code: str = ""

    def refused(self, problem: Problem) -> None:
        self.code = problem.code


class FastPathCalls:
    """The tools of one surface."""

    def __init__(self, surface: Surface, workers: ThreadPool, counts: Counts) -> None:
        self._surface = surface
        self._names = frozenset(tool.name for tool in surface.tools)
        self._looks = frozenset(tool.name for tool in surface.tools if tool.annotations.get("readOnlyHint"))
        self._workers = workers
        self._counts = counts

    @staticmethod
    def takes(message: Any, headers: Headers) -> FastPathCall | None:
        """The call, if there is nothing about it that the SDK would have to look at."""
        match message:
            case {"method": "tools/call", "id": int() | str() as request, "params": {"name": str(tool), **rest}}:
                args, meta = rest.get("arguments", {}), rest.get("_meta", {})
            case _:
                return None
        if not isinstance(args, dict) or not isinstance(meta, dict) or ENVELOPE in meta:
            return None
        if "progressToken" in meta and flaw_of(args) is None:  # else the SDK would call it no JSON
            return None
        if headers.get("mcp-protocol-version", wire_format.VERSIONS[0]) not in wire_format.VERSIONS or not _plain(
            headers
        ):
            return None
        return FastPathCall(request, tool, args)

    async def answer(self, asked: FastPathCall, caller: ClientConnection) -> Response:
        """Counted, in a worker thread."""
        began = time.perf_counter()
        self._counts.began()
        try:
            doing = self._workers.run_brief if asked.tool in self._looks else self._workers.run  # a write may wait long
            return await doing(self._answer, asked, caller)
        except asyncio.CancelledError:
            asked.code = "cancelled"
            raise
        except Problem as problem:  # too many at once
            asked.refused(problem)
            return _error(asked, RpcError(INTERNAL_ERROR, str(problem)))
        finally:
            tool = asked.tool if asked.tool in self._names else "unknown"
            self._counts.ended(self._surface.name, tool, asked.code or "ok", time.perf_counter() - began)

    def _answer(self, asked: FastPathCall, caller: ClientConnection) -> Response:
        stop = caller.gone or threading.Event()
        actor = Actor(caller.user, caller.session.client, self._surface.name, asked.tool)
        call = Call(caller.library, actor, caller.session, caller.transport, stop.is_set, refused=asked.refused)
        try:
            if self._surface.handshake and not caller.session.initialized:
                raise RpcError(INTERNAL_ERROR, wire_format.NOT_INITIALIZED)
            return _told(asked, {"result": wire_format.result(perform(self._surface, call, asked.tool, asked.args))})
        except RpcError as error:
            asked.code = asked.code or "protocol"
            return _error(asked, error)
        except (Exception, Cancelled) as error:
            asked.code = "cancelled" if isinstance(error, Cancelled) else "internal"
            if not isinstance(error, Cancelled):
                log.error("%s failed", asked.tool, exc_info=error)
            return _error(asked, RpcError(INTERNAL_ERROR, "Internal error"))


def _plain(headers: Headers) -> bool:
    """JSON is sent and taken."""
    accept = headers.get("accept", "*/*")
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "application/json" and ("application/json" in accept or "*/*" in accept)


def _error(asked: FastPathCall, error: RpcError) -> Response:
    told = {"error": wire_format.error(error.code, error.message, error.data)}
    return _told(asked, told, error.status or 200, error.headers)


def _told(
    asked: FastPathCall, told: dict[str, Any], status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    body = pydantic_core.to_json({"jsonrpc": "2.0", "id": asked.request, **told})
    return Response(body, status, headers, media_type="application/json")
