"""Runs one call, from whichever transport, and returns its outcome.

The fast path of stdio, that of HTTP and the SDK's handlers parse a request, run it here, and send the outcome.
"""

import logging
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, Protocol, TypeVar

from notewright.engine.library import Library
from notewright.errors import Invalid, NotFound, Problem
from notewright.ledger.base import Actor
from notewright.mcp import wire_format
from notewright.mcp.jsonrpc import ENVELOPE
from notewright.surfaces.base import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    RESOURCE_NOT_FOUND,
    Answer,
    Call,
    Cancelled,
    Report,
    RpcError,
    Session,
    Surface,
    Transport,
    merge_tools,
    no_report,
)
from notewright.surfaces.perform import perform

log = logging.getLogger(__name__)
T = TypeVar("T")
PROGRESS_SECONDS = 0.1  # between two notifications of progress
PROBLEM_CODES = {NotFound.code: RESOURCE_NOT_FOUND, Invalid.code: INVALID_PARAMS}  # all others: INTERNAL_ERROR


@dataclass(frozen=True, slots=True)
class ClientConnection:
    """One client: who it is and what it may use."""

    library: Library
    session: Session
    transport: Transport
    user: str = ""
    gone: threading.Event | None = None  # set when the client disconnects before its answer
    refuse: Callable[[RpcError], None] | None = None  # called for an error that has its own HTTP status
    stays: Callable[[], Awaitable[bool]] | None = None  # whether the client may still read its event stream


class Counts(Protocol):
    """Counts calls. `tool` is the name of a tool there is, `unknown`, or the method of another kind of call;
    `outcome` is `ok`, a code of `errors`, `protocol` for a refusal that has none, or `cancelled`."""

    def record_start(self) -> None: ...

    def record_end(self, surface: str, tool: str, outcome: str, seconds: float) -> None: ...


@dataclass(slots=True)
class CallOutcome(Generic[T]):
    """What a call returned, or the error to send; and the code of the problem where there was one."""

    value: T | None = None
    error: RpcError | None = None
    code: str = ""

    def record_refusal(self, problem: Problem) -> None:
        self.code = problem.code

    @classmethod
    def from_problem(cls, problem: Problem) -> "CallOutcome[T]":
        error = RpcError(PROBLEM_CODES.get(problem.code, INTERNAL_ERROR), str(problem))
        return cls(error=error, code=problem.code)


_make_actor = lru_cache(maxsize=1_024)(Actor)  # the same for every call of a tool


def run(
    connection: ClientConnection,
    actor: Actor,
    work: Callable[[Call], T],
    cancelled: Callable[[], bool],
    report: Report = no_report,
) -> CallOutcome[T]:
    """The outcome of `work`. Raises nothing: an unexpected error is logged and sent as an internal error."""
    outcome: CallOutcome[T] = CallOutcome()  # CallOutcome[T]() would take a microsecond longer
    refused = outcome.record_refusal
    call = Call(connection.library, actor, connection.session, connection.transport, cancelled, report, refused)
    try:
        outcome.value = work(call)
    except RpcError as error:
        outcome.error, outcome.code = error, outcome.code or "protocol"
    except Problem as problem:
        return CallOutcome.from_problem(problem)
    except BaseException as error:  # a panic inside a compiled library is no Exception
        outcome.error = RpcError(INTERNAL_ERROR, "Internal error")
        outcome.code = "cancelled" if isinstance(error, Cancelled) else "internal"
        if not isinstance(error, Cancelled):
            log.error("%s failed", actor.tool or actor.surface, exc_info=error)
    return outcome


class ToolCalls:
    """The tools of some surfaces, to be called by name; Invalid if two claim one name."""

    def __init__(self, surfaces: Sequence[Surface]) -> None:
        self._first = surfaces[0]
        self.known = merge_tools(surfaces)

    def surface(self, tool: str) -> Surface:
        """The surface that has the tool, else the first one, which reports that there is no such tool."""
        return self.known[tool][0] if tool in self.known else self._first

    def call(
        self,
        connection: ClientConnection,
        tool: str,
        args: dict[str, Any],
        cancelled: Callable[[], bool],
        report: Report = no_report,
        *,
        client: str | None = None,
        initialized: bool = False,
    ) -> CallOutcome[Answer]:
        """`client`: its own name, where the session does not know it; `initialized`: this era has no handshake."""
        surface, session = self.surface(tool), connection.session
        actor = _make_actor(connection.user, session.client if client is None else client, surface.name, tool)
        if surface.handshake and not initialized and not session.initialized:
            return CallOutcome(error=RpcError(INTERNAL_ERROR, wire_format.NOT_INITIALIZED), code="protocol")
        return run(connection, actor, lambda call: perform(surface, call, tool, args), cancelled, report)


def shape_outcome(outcome: CallOutcome[Answer]) -> wire_format.Shape:
    """The result or the error, as it stands in a response."""
    if outcome.value is not None:
        return {"result": wire_format.result(outcome.value)}
    assert outcome.error is not None
    return {"error": wire_format.error(outcome.error.code, outcome.error.message, outcome.error.data)}


@dataclass(slots=True)
class ToolRequest:
    """A `tools/call` of the 2025 era in its plain form."""

    id: int | str
    tool: str
    args: dict[str, Any]
    meta: dict[str, Any]
    is_cancelled: bool = False

    @classmethod
    def parse(cls, message: Any) -> "ToolRequest | None":
        """The request, or None for a message that the SDK has to handle."""
        match message:
            case {"method": "tools/call", "id": int() | str() as request, "params": {"name": str(tool), **rest}}:
                args, meta = rest.get("arguments", {}), rest.get("_meta", {})
                if isinstance(args, dict) and isinstance(meta, dict) and ENVELOPE not in meta:
                    return cls(request, tool, args, meta)
        return None


async def run_counted(
    run_in_thread: Callable[[Callable[[], CallOutcome[T]]], Awaitable[CallOutcome[T]]],
    work: Callable[[], CallOutcome[T]],
    counts: Counts | None,
    surface: str,
    tool: str,
) -> CallOutcome[T]:
    """The outcome of `work` in a worker thread, counted."""
    start = time.perf_counter()
    outcome: CallOutcome[T] = CallOutcome(code="cancelled")
    if counts is not None:
        counts.record_start()
    try:
        outcome = await run_in_thread(work)
    except Problem as problem:  # too many at once
        outcome = CallOutcome.from_problem(problem)
    finally:
        if counts is not None:
            counts.record_end(surface, tool, outcome.code or "ok", time.perf_counter() - start)
    return outcome


def throttle_progress(report: Report) -> Report:
    """`report`, but called at most every PROGRESS_SECONDS; the last step is always reported."""
    last = 0.0

    def report_throttled(done: float, total: float | None, message: str | None) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= PROGRESS_SECONDS or done == total:
            last = now
            report(done, total, message)

    return report_throttled
