"""From surfaces to an MCP server: one `mcp` low-level Server over the tools, prompts and resources of some surfaces.

The SDK speaks the protocol in both eras; what a call means is `surfaces.perform`, in a worker thread. Nothing but an
MCPError may leave a handler: the SDK would put the text of any other exception on the wire.
"""

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, cast

import mcp_types as wire
from mcp.server import Server
from mcp.server.caching import CACHEABLE_METHODS, CacheHint
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from notewright.ledger.base import Actor
from notewright.mcp import wire_format
from notewright.mcp.dispatch import (
    CallOutcome,
    ClientConnection,
    Counts,
    ToolCalls,
    run,
    run_counted,
    throttle_progress,
)
from notewright.mcp.jsonrpc import short_name
from notewright.mcp.subscriptions import ChangeStreams, Subscriptions
from notewright.mcp.thread_pool import ThreadPool
from notewright.mcp.wire_format import Shape
from notewright.surfaces.base import (
    INVALID_PARAMS,
    RESOURCE_NOT_FOUND,
    Call,
    Prompt,
    Report,
    Surface,
    no_report,
)

T = TypeVar("T")
Context = ServerRequestContext[Any, Any]

COMPLETE = {"resultType": "complete"}  # asked for by the 2026 era; the SDK leaves it out of the 2025 era's answers
GetConnection = Callable[[Context], ClientConnection]


def build(
    surfaces: Sequence[Surface],
    get_connection: GetConnection,
    workers: ThreadPool,
    streams: ChangeStreams,
    *,
    push: bool,
    counts: Counts | None = None,
) -> Server[Any]:
    """A server of these surfaces at once; Invalid if two claim one tool name.

    `push`: the wire can carry notifications at any time, so `resources/subscribe` of the 2025 era is served.
    """
    able = wire_format.capabilities(surfaces)
    ours = _Handlers(surfaces, get_connection, workers, streams, counts)
    handlers: dict[str, Any] = {"on_list_tools": ours.list_tools, "on_call_tool": ours.call_tool}
    if "prompts" in able:
        handlers |= {"on_list_prompts": ours.list_prompts, "on_get_prompt": ours.get_prompt}
    if "resources" in able:
        handlers |= {"on_list_resources": ours.list_resources, "on_list_resource_templates": ours.list_templates}
        handlers |= {"on_read_resource": ours.read_resource, "on_subscriptions_listen": ours.listen}
        handlers |= {"on_completion": ours.complete}
    if "resources" in able and push:
        handlers |= {"on_subscribe_resource": ours.subscribe, "on_unsubscribe_resource": ours.unsubscribe}
    hints: dict[Any, CacheHint] = dict.fromkeys(CACHEABLE_METHODS, CacheHint())  # the 2026 era wants them
    server: Server[Any] = Server(
        wire_format.SERVER["name"],
        version=wire_format.SERVER["version"],
        instructions=wire_format.instructions(surfaces) or None,
        get_tool_input_schema=ours.schema,
        cache_hints=hints,
        **handlers,
    )
    server.middleware.clear()  # the SDK's tracing is not used, and costs an eighth of a call
    server.add_notification_handler("notifications/initialized", wire.NotificationParams, ours.initialized)
    return server


class _Handlers:
    """The handlers the SDK calls, one for each method of the protocol. They raise MCPError and nothing else."""

    def __init__(
        self,
        surfaces: Sequence[Surface],
        get_connection: GetConnection,
        workers: ThreadPool,
        streams: ChangeStreams,
        counts: Counts | None,
    ) -> None:
        self._get_connection = get_connection
        self._workers = workers
        self._streams = streams
        self._counts = counts
        self._tools = ToolCalls(surfaces)
        self._listing = wire_format.tools([tool for _, tool in self._tools.known.values()]) | COMPLETE
        self._prompts = {prompt.name: (surface.name, prompt) for surface in surfaces for prompt in surface.prompts}
        # Two surfaces may share a scheme; the first that has a resource answers.
        self._kinds = [(one.name, one.resources) for one in surfaces if one.resources is not None]
        self._resources = [kind for _, kind in self._kinds]

    async def initialized(self, context: Context, params: wire.NotificationParams) -> None:
        self._get_connection(context).session.initialized = True

    async def _run(self, context: Context, surface: str, tool: str, work: Callable[[Call], T]) -> T:
        """Run anything but a tool call; without a surface it is not counted."""
        connection = self._get_connection(context)
        actor = Actor(connection.user, _client(context, connection), surface, tool)
        return await self._run_counted(context, partial(run, connection, actor, work), surface, context.method)

    async def _run_counted(
        self, context: Context, begin: Callable[[Callable[[], bool], Report], CallOutcome[T]], surface: str, label: str
    ) -> T:
        connection = self._get_connection(context)
        stop = connection.gone or threading.Event()
        work = partial(begin, stop.is_set, _make_reporter(context))
        try:
            outcome = await run_counted(self._workers.run, work, self._counts if surface else None, surface, label)
        except asyncio.CancelledError:
            stop.set()
            raise
        error = outcome.error
        if error is None:
            return cast(T, outcome.value)
        if error.status is not None and connection.refuse is not None:
            connection.refuse(error)
        raise MCPError(error.code, error.message, error.data)

    # Tools

    def schema(self, name: str) -> Mapping[str, Any] | None:
        """Without this the SDK lists every tool before every 2026-era call over HTTP."""
        return self._tools.known[name][1].schema if name in self._tools.known else None

    async def list_tools(self, context: Context, params: Any) -> Shape:
        return self._listing

    async def call_tool(self, context: Context, params: wire.CallToolRequestParams) -> Shape:
        name, connection = params.name, self._get_connection(context)
        call = partial(
            self._tools.call,
            connection,
            name,
            params.arguments or {},
            client=_client(context, connection),
            initialized=_is_modern(context),
        )
        label = name if name in self._tools.known else "unknown"
        answer = await self._run_counted(context, call, self._tools.surface(name).name, label)
        return wire_format.result(answer) | COMPLETE

    # Prompts

    async def list_prompts(self, context: Context, params: Any) -> Shape:
        return wire_format.prompts([prompt for _, prompt in self._prompts.values()]) | COMPLETE

    async def get_prompt(self, context: Context, params: wire.GetPromptRequestParams) -> Shape:
        surface, prompt = self._prompt(params.name)
        given = params.arguments or {}
        missing = [blank.name for blank in prompt.arguments if blank.required and not given.get(blank.name)]
        if missing:
            raise MCPError(INVALID_PARAMS, f"Missing required argument: {missing[0]}")
        text = await self._run(context, surface, prompt.name, lambda call: prompt.render(call, given))
        return wire_format.prompted(prompt, text) | COMPLETE

    def _prompt(self, name: str) -> tuple[str, Prompt]:
        if name not in self._prompts:
            raise MCPError(INVALID_PARAMS, f"Unknown prompt: {name}")
        return self._prompts[name]

    # Resources

    async def list_resources(self, context: Context, params: wire.PaginatedRequestParams) -> Shape:
        """Page by page; after one surface's last page the cursor goes on to the next surface."""
        number, inner = _parse_cursor(params.cursor, len(self._kinds))
        surface, kind = self._kinds[number]
        found, after = await self._run(context, surface, "", lambda call: kind.list(call, inner))
        if after is None and number + 1 < len(self._kinds):
            number, after = number + 1, ""
        more = {} if after is None else {"nextCursor": f"{number}:{after}"}
        return {"resources": found} | more | COMPLETE

    async def list_templates(self, context: Context, params: Any) -> Shape:
        return {"resourceTemplates": [kind.template for kind in self._resources]} | COMPLETE

    async def read_resource(self, context: Context, params: wire.ReadResourceRequestParams) -> Shape:
        uri = str(params.uri)
        for surface, kind in self._kinds:
            try:
                found = await self._run(context, surface, "", partial(kind.read, uri=uri))
                return {"contents": [found]} | COMPLETE
            except MCPError as error:
                if error.code != RESOURCE_NOT_FOUND:
                    raise
        code = INVALID_PARAMS if _is_modern(context) else RESOURCE_NOT_FOUND  # the 2026 era has no code of its own
        raise MCPError(code, "Resource not found", {"uri": uri})

    async def listen(
        self, context: Context, params: wire.SubscriptionsListenRequestParams
    ) -> wire.SubscriptionsListenResult:
        connection = self._get_connection(context)
        await self._open_workspaces(context)
        return await self._streams.listen(context, params, connection.library, self._resources, connection.stays)

    async def subscribe(self, context: Context, params: wire.SubscribeRequestParams) -> wire.EmptyResult:
        await self._open_workspaces(context)
        self._subscriptions(context).add(str(params.uri))
        return wire.EmptyResult()

    async def unsubscribe(self, context: Context, params: wire.UnsubscribeRequestParams) -> wire.EmptyResult:
        self._subscriptions(context).drop(str(params.uri))
        return wire.EmptyResult()

    async def _open_workspaces(self, context: Context) -> None:
        """Wait for it in a worker thread: afterwards nothing blocks the event loop."""
        await self._run(context, "", "", lambda call: call.workspaces)

    def _subscriptions(self, context: Context) -> Subscriptions:
        connection = self._get_connection(context)
        kept = connection.session.values
        if "watch" not in kept:
            send = context.session.send_resource_updated
            kept["watch"] = Subscriptions(connection.library, self._resources, send)
        watch: Subscriptions = kept["watch"]
        return watch

    # Completion

    async def complete(self, context: Context, params: wire.CompleteRequestParams) -> Shape:
        """Complete paths of resources; the arguments of prompts are free text, which nothing completes."""
        ref, argument = params.ref, params.argument
        if isinstance(ref, wire.PromptReference):
            self._prompt(ref.name)
            return wire_format.completion([]) | COMPLETE
        for surface, kind in self._kinds:
            if ref.uri == kind.template["uriTemplate"]:
                work = partial(kind.complete, argument=argument.name, begun=argument.value)
                return wire_format.completion(await self._run(context, surface, "", work)) | COMPLETE
        raise MCPError(INVALID_PARAMS, f"Unknown resource template: {ref.uri}")


def _parse_cursor(cursor: str | None, kinds: int) -> tuple[int, str | None]:
    if cursor is None:
        return 0, None
    number, _, inner = cursor.partition(":")
    if not number.isdecimal() or int(number) >= kinds:
        raise MCPError(INVALID_PARAMS, "Invalid cursor")
    return int(number), inner or None


def _client(context: Context, connection: ClientConnection) -> str:
    """The client's own name: of this connection or request, else what its session was opened with."""
    params = context.session.client_params
    return short_name(params.client_info.name) if params is not None else connection.session.client


def _is_modern(context: Context) -> bool:
    return context.protocol_version in MODERN_PROTOCOL_VERSIONS


def _make_reporter(context: Context) -> Report:
    """Reports progress from a worker thread, in order with the answer; does nothing if the client did not ask."""
    if context.meta is None or context.meta.get("progress_token") is None:
        return no_report
    loop = asyncio.get_running_loop()

    def report(done: float, total: float | None, message: str | None) -> None:
        sending = context.session.report_progress(done, total, message)
        try:
            asyncio.run_coroutine_threadsafe(sending, loop).result(timeout=1)
        except (RuntimeError, TimeoutError):  # the loop has ended, or the client does not read
            sending.close()

    return throttle_progress(report)
