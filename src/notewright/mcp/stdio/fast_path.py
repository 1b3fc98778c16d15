"""The handshake, the list of tools and their calls on stdio in the 2025 era, answered in the thread that read them.

This is what nearly every client asks for, and all of it is simple. The SDK takes a second to load and passes a tool
call through two models, several coroutines and streams, which is ten times the work of a small call itself. Only
messages of exactly the expected form are answered here; all others, and the 2026 era, go through the SDK and get the
same answers.
"""

from collections.abc import Callable, Sequence
from functools import partial

from notewright.mcp import wire_format
from notewright.mcp.dispatch import ClientConnection, ToolCalls, ToolRequest, shape_outcome, throttle_progress
from notewright.mcp.jsonrpc import Message, short_name
from notewright.mcp.stdio.leader_follower import Work
from notewright.mcp.stdio.writer import LineWriter
from notewright.surfaces.base import Report, Surface, no_report


class FastPath:
    """Answers one client. `on_handshake` is called after the answer to `initialize`: slow work may begin then."""

    def __init__(
        self,
        connection: ClientConnection,
        surfaces: Sequence[Surface],
        out: LineWriter,
        on_handshake: Callable[[], object],
    ) -> None:
        self._connection = connection
        self._tools = ToolCalls(surfaces)
        self._surfaces = surfaces
        self._out = out
        self._on_handshake = on_handshake
        self._running: dict[int | str, ToolRequest] = {}
        self._sdk_is_used = False  # a request went to it, which then must see everything
        self.handshake: Message | None = None  # the `initialize` that was answered here

    def take(self, message: Message) -> Work | bool:
        """The work of a call; True for a message that is dealt with already; False for one that the SDK must get."""
        match message:
            case {"method": "tools/call"}:
                if self.handshake and (request := ToolRequest.parse(message)):
                    self._running[request.id] = request
                    self._out.unanswered.add(request.id)
                    return partial(self._call, request)
            case {
                "method": "initialize",
                "id": request_id,
                "params": {
                    "protocolVersion": str(version),
                    "capabilities": {},
                    "clientInfo": {"name": str(name), "version": str()},
                },
            } if not self._sdk_is_used:
                self._connection.session.client = short_name(name)
                self.handshake = message
                self._out.answer(request_id, {"result": wire_format.handshake(self._surfaces, version)})
                self._on_handshake()
                return True
            case {"method": "tools/list", "id": request_id} if self.handshake and not message.get("params"):
                tools = [tool for _, tool in self._tools.known.values()]
                self._out.answer(request_id, {"result": wire_format.tools(tools)})
                return True
            case {"method": "ping", "id": request_id} if self.handshake:
                self._out.answer(request_id, {"result": {}})
                return True
            case {"method": "notifications/initialized"}:
                self._connection.session.initialized = True
            case {"method": "notifications/cancelled", "params": {"requestId": int() | str() as request_id}}:
                if request_id in self._running:
                    self._running[request_id].is_cancelled = True
                    return True
        self._sdk_is_used = self._sdk_is_used or "id" in message
        return False

    def _call(self, request: ToolRequest) -> Callable[[], None]:
        report = self._reporter(request) if request.meta else no_report
        cancelled = partial(getattr, request, "is_cancelled")
        outcome = self._tools.call(self._connection, request.tool, request.args, cancelled, report)
        if self._running.get(request.id) is request:
            del self._running[request.id]
        return partial(self._out.answer, request.id, None if request.is_cancelled else shape_outcome(outcome))

    def _reporter(self, request: ToolRequest) -> Report:
        token = request.meta.get("progressToken")
        if type(token) not in (int, str):
            return no_report

        def notify(done: float, total: float | None, message: str | None) -> None:
            if not request.is_cancelled:
                self._out.notify("notifications/progress", wire_format.progress(token, done, total, message))

        return throttle_progress(notify)
