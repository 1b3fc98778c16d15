"""From surfaces to an MCP server: one `mcp` low-level Server over the tools, prompts and resources of some surfaces.

The SDK speaks the protocol in both eras; what a call means is `surfaces.perform`, in a worker thread. Nothing but an
MCPError may leave a handler: the SDK would put the text of any other exception on the wire.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import mcp_types as wire
from mcp.server import Server
from mcp.server.caching import CACHEABLE_METHODS, CacheHint
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from notewright.errors import Invalid, NotFound, Problem
from notewright.ledger.base import Actor
from notewright.mcp import wire_format
from notewright.mcp.connection import ClientConnection, Report, now_and_then, unheard
from notewright.mcp.jsonrpc import short_name
from notewright.mcp.subscriptions import ChangeStreams, Subscriptions
from notewright.mcp.thread_pool import ThreadPool
from notewright.mcp.wire_format import Shape
from notewright.surfaces.base import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    RESOURCE_NOT_FOUND,
    Call,
    Cancelled,
    Prompt,
    Resources,
    RpcError,
    Surface,
    together,
)
from notewright.surfaces.perform import perform

log = logging.getLogger(__name__)
T = TypeVar("T")
Context = ServerRequestContext[Any, Any]

COMPLETE = {"resultType": "complete"}  # asked for by the 2026 era; the SDK leaves it out of the 2025 era's answers


Callers = Callable[[Context], ClientConnection]


class Counts(Protocol):
    """Who counts calls. `tool` is the name of a tool there is, `unknown`, or the method of another kind of call;
    `outcome` is `ok`, a code of `errors`, `protocol` for a refusal that has none, or `cancelled`."""

    def began(self) -> None: ...

    def ended(self, surface: str, tool: str, outcome: str, seconds: float) -> None: ...


def build(
    surfaces: Sequence[Surface],
    caller_of: Callers,
    workers: ThreadPool,
    streams: ChangeStreams,
    *,
    push: bool,
    counts: Counts | None = None,
) -> Server[Any]:
    """A server of these surfaces at once; Invalid if two claim one tool name.

    `push`: the wire can carry notifications at any time, so `resources/subscribe` of the 2025 era is served.
    """
    desk, offer = ToolCalls(caller_of, workers, counts), wire_format.Offer.of(surfaces)
    tools, prompts, shelf = _Tools(desk, surfaces), _Prompts(desk, surfaces), _Shelf(desk, surfaces, streams)
    handlers: dict[str, Any] = {"on_list_tools": tools.list, "on_call_tool": tools.call}
    if offer.prompts:
        handlers |= {"on_list_prompts": prompts.list, "on_get_prompt": prompts.get}
    if offer.resources:
        handlers |= {"on_list_resources": shelf.list, "on_list_resource_templates": shelf.templates}
        handlers |= {"on_read_resource": shelf.read, "on_subscriptions_listen": shelf.listen}
    if offer.resources and push:
        handlers |= {"on_subscribe_resource": shelf.subscribe, "on_unsubscribe_resource": shelf.unsubscribe}
    if offer.completions:
        handlers["on_completion"] = _Completion(prompts, shelf).complete
    hints: dict[Any, CacheHint] = dict.fromkeys(CACHEABLE_METHODS, CacheHint())  # the 2026 era wants them
    server: Server[Any] = Server(
        wire_format.SERVER["name"],
        version=wire_format.SERVER["version"],
        instructions=offer.instructions or None,
        get_tool_input_schema=tools.schema,
        cache_hints=hints,
        **handlers,
    )
    server.middleware.clear()  # the SDK's tracing: nobody listens, and it costs an eighth of a call
    server.add_notification_handler("notifications/initialized", wire.NotificationParams, desk.initialized)
    return server


class ToolCalls:
    """Where calls are taken: who calls, in which thread it is done, how a refusal leaves, and who counts it."""

    def __init__(self, caller_of: Callers, workers: ThreadPool, counts: Counts | None = None) -> None:
        self.caller_of = caller_of
        self._workers = workers
        self._counts = counts

    async def initialized(self, context: Context, params: wire.NotificationParams) -> None:
        self.caller_of(context).session.initialized = True

    async def run(
        self, context: Context, surface: str, tool: str, work: Callable[[Call], T], *, known: bool = False
    ) -> T:
        """`work` in a worker thread, counted. Raises MCPError and nothing else. `known`: there is such a tool."""
        if self._counts is None or not surface:
            return await self._run(context, surface, tool, work, _Ending())
        label = tool if known else "unknown" if context.method == "tools/call" else context.method
        ending, began = _Ending(), time.perf_counter()
        self._counts.began()
        try:
            return await self._run(context, surface, tool, work, ending)
        except asyncio.CancelledError:
            ending.code = "cancelled"
            raise
        except MCPError:
            ending.code = ending.code or "protocol"
            raise
        finally:
            self._counts.ended(surface, label, ending.code or "ok", time.perf_counter() - began)

    async def _run(self, context: Context, surface: str, tool: str, work: Callable[[Call], T], ending: "_Ending") -> T:
        caller = self.caller_of(context)
        stop = caller.gone or threading.Event()
        actor = Actor(caller.user, _client(context, caller), surface, tool)
        report = _reporter(context)
        call = Call(caller.library, actor, caller.session, caller.transport, stop.is_set, report, ending.refused)
        try:
            return await self._workers.run(work, call)
        except asyncio.CancelledError:
            stop.set()
            raise
        except (RpcError, Problem) as error:
            if isinstance(error, Problem):
                ending.refused(error)
            raise self._refusal(caller, error) from None
        except (Exception, Cancelled) as error:
            ending.code = "cancelled" if isinstance(error, Cancelled) else "internal"
            log.error("%s failed", tool or context.method, exc_info=error)
            raise MCPError(INTERNAL_ERROR, "Internal error") from None

    def _refusal(self, caller: ClientConnection, error: RpcError | Problem) -> MCPError:
        if isinstance(error, Problem):
            code = {NotFound.code: RESOURCE_NOT_FOUND, Invalid.code: INVALID_PARAMS}.get(error.code, INTERNAL_ERROR)
            return MCPError(code, str(error))
        if error.status is not None and caller.refuse is not None:
            caller.refuse(error)
        return MCPError(error.code, error.message, error.data)


class _Ending:
    """How a call ended: the code of the problem that stood in its way."""

    __slots__ = ("code",)

    def __init__(self) -> None:
        self.code = ""

    def refused(self, problem: Problem) -> None:
        self.code = problem.code


def _client(context: Context, caller: ClientConnection) -> str:
    """The client's own name: of this connection or request, else what its session was opened with."""
    params = context.session.client_params
    return short_name(params.client_info.name) if params is not None else caller.session.client


def _modern(context: Context) -> bool:
    return context.protocol_version in MODERN_PROTOCOL_VERSIONS


def _reporter(context: Context) -> Report:
    """Tells progress from a worker thread, in order with the answer; nothing if nobody asked."""
    if context.meta is None or context.meta.get("progress_token") is None:
        return unheard
    loop = asyncio.get_running_loop()

    def tell(done: float, total: float | None, message: str | None) -> None:
        told = context.session.report_progress(done, total, message)
        try:
            asyncio.run_coroutine_threadsafe(told, loop).result(timeout=1)
        except (RuntimeError, TimeoutError):  # the loop has ended, or the client does not read
            told.close()

    return now_and_then(tell)


class _Tools:
    def __init__(self, desk: ToolCalls, surfaces: Sequence[Surface]) -> None:
        self._desk = desk
        self._first = surfaces[0]
        self._known = together(surfaces)
        self._listing = wire_format.tools([tool for _, tool in self._known.values()]) | COMPLETE

    def schema(self, name: str) -> Mapping[str, Any] | None:
        """Without this the SDK lists every tool before every 2026-era call over HTTP."""
        return self._known[name][1].schema if name in self._known else None

    async def list(self, context: Context, params: Any) -> Shape:
        return self._listing

    async def call(self, context: Context, params: wire.CallToolRequestParams) -> Shape:
        name, args = params.name, params.arguments or {}
        known = name in self._known
        surface = self._known[name][0] if known else self._first
        if surface.handshake:
            self._shaken_hands(context)
        answer = await self._desk.run(
            context, surface.name, name, lambda call: perform(surface, call, name, args), known=known
        )
        return wire_format.result(answer) | COMPLETE

    def _shaken_hands(self, context: Context) -> None:
        if _modern(context) or self._desk.caller_of(context).session.initialized:
            return
        raise MCPError(INTERNAL_ERROR, wire_format.NOT_INITIALIZED)


class _Prompts:
    def __init__(self, desk: ToolCalls, surfaces: Sequence[Surface]) -> None:
        self.desk = desk
        self.known = {prompt.name: (surface, prompt) for surface in surfaces for prompt in surface.prompts}

    async def list(self, context: Context, params: Any) -> Shape:
        return wire_format.prompts([prompt for _, prompt in self.known.values()]) | COMPLETE

    async def get(self, context: Context, params: wire.GetPromptRequestParams) -> Shape:
        surface, prompt = self.named(params.name)
        given = params.arguments or {}
        missing = [blank.name for blank in prompt.arguments if blank.required and not given.get(blank.name)]
        if missing:
            raise MCPError(INVALID_PARAMS, f"Missing required argument: {missing[0]}")
        text = await self.desk.run(context, surface.name, prompt.name, lambda call: prompt.render(call, given))
        return wire_format.prompted(prompt, text) | COMPLETE

    def named(self, name: str) -> tuple[Surface, Prompt]:
        if name not in self.known:
            raise MCPError(INVALID_PARAMS, f"Unknown prompt: {name}")
        return self.known[name]


class _Shelf:
    """The resources of all surfaces that have some. Two surfaces may share a scheme; the first that has it answers."""

    def __init__(self, desk: ToolCalls, surfaces: Sequence[Surface], streams: ChangeStreams) -> None:
        self.desk = desk
        self._streams = streams
        self.kinds: list[tuple[str, Resources]] = [(s.name, s.resources) for s in surfaces if s.resources is not None]

    async def list(self, context: Context, params: wire.PaginatedRequestParams) -> Shape:
        """Page by page; when one surface's are all told, the cursor goes on to the next surface's."""
        number, inner = _shelf_place(params.cursor, len(self.kinds))
        surface, kind = self.kinds[number]
        found, after = await self.desk.run(context, surface, "", lambda call: kind.list(call, inner))
        if after is None and number + 1 < len(self.kinds):
            number, after = number + 1, ""
        cursor = None if after is None else f"{number}:{after}"
        return wire_format.resources(found, cursor) | COMPLETE

    async def templates(self, context: Context, params: Any) -> Shape:
        return wire_format.templates([one for _, kind in self.kinds for one in kind.templates]) | COMPLETE

    async def read(self, context: Context, params: wire.ReadResourceRequestParams) -> Shape:
        uri = str(params.uri)
        for surface, kind in self.kinds:
            try:
                found = await self.desk.run(context, surface, "", lambda call, kind=kind: kind.read(call, uri))  # type: ignore[misc]
                return wire_format.contents(found) | COMPLETE
            except MCPError as error:
                if error.code != RESOURCE_NOT_FOUND:
                    raise
        code = INVALID_PARAMS if _modern(context) else RESOURCE_NOT_FOUND  # the 2026 era has no code of its own for it
        raise MCPError(code, "Resource not found", {"uri": uri})

    async def listen(
        self, context: Context, params: wire.SubscriptionsListenRequestParams
    ) -> wire.SubscriptionsListenResult:
        caller = self.desk.caller_of(context)
        await self.desk.run(context, "", "", lambda call: call.workspaces)  # the library is open from here on
        kinds = [kind for _, kind in self.kinds]
        return await self._streams.listen(context, params, caller.library, kinds, caller.stays)

    async def subscribe(self, context: Context, params: wire.SubscribeRequestParams) -> wire.EmptyResult:
        await self.desk.run(context, "", "", lambda call: call.workspaces)
        self._watch(context).add(str(params.uri))
        return wire.EmptyResult()

    async def unsubscribe(self, context: Context, params: wire.UnsubscribeRequestParams) -> wire.EmptyResult:
        self._watch(context).drop(str(params.uri))
        return wire.EmptyResult()

    def _watch(self, context: Context) -> Subscriptions:
        caller = self.desk.caller_of(context)
        with caller.session.lock:
            if "watch" not in caller.session.values:
                kinds = [kind for _, kind in self.kinds]
                caller.session.values["watch"] = Subscriptions(
                    caller.library, kinds, context.session.send_resource_updated
                )
            watch = caller.session.values["watch"]
        assert isinstance(watch, Subscriptions)
        return watch


def _shelf_place(cursor: str | None, kinds: int) -> tuple[int, str | None]:
    if cursor is None:
        return 0, None
    number, _, inner = cursor.partition(":")
    if not number.isdecimal() or int(number) >= kinds:
        raise MCPError(INVALID_PARAMS, "Invalid cursor")
    return int(number), inner or None


class _Completion:
    def __init__(self, prompts: _Prompts, shelf: _Shelf) -> None:
        self._prompts = prompts
        self._shelf = shelf

    async def complete(self, context: Context, params: wire.CompleteRequestParams) -> Shape:
        argument, begun = params.argument.name, params.argument.value
        if isinstance(params.ref, wire.PromptReference):
            found = await self._prompt(context, params.ref.name, argument, begun)
        else:
            found = await self._template(context, params.ref.uri, argument, begun)
        return wire_format.completion(found) | COMPLETE

    async def _prompt(self, context: Context, name: str, argument: str, begun: str) -> Sequence[str]:
        surface, prompt = self._prompts.named(name)
        complete = prompt.complete
        if complete is None:
            return []
        return await self._prompts.desk.run(context, surface.name, name, lambda call: complete(call, argument, begun))

    async def _template(self, context: Context, uri: str, argument: str, begun: str) -> Sequence[str]:
        for surface, kind in self._shelf.kinds:
            if uri in (template.uri for template in kind.templates):
                return await self._shelf.desk.run(
                    context,
                    surface,
                    "",
                    lambda call, kind=kind: kind.complete(call, uri, argument, begun),  # type: ignore[misc]
                )
        raise MCPError(INVALID_PARAMS, f"Unknown resource template: {uri}")
