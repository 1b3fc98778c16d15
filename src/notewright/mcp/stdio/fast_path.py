"""The handshake, the list of tools and their calls on stdio in the 2025 era, done by the thread that read them.

This is what nearly every client asks for, and all of it is simple. The SDK takes a second to load and a tool call
through two models, several coroutines and streams, which is ten times the work of a small call itself. Only messages
pass here that are exactly what they seem; all others, and the 2026 era, take the long way through the SDK and get the
same answers.
"""

from collections.abc import Callable, Sequence
from functools import partial

from notewright.mcp import wire_format
from notewright.mcp.dispatch import ClientConnection, ToolCalls, ToolRequest, answer, seldom
from notewright.mcp.jsonrpc import Message, short_name
from notewright.mcp.stdio.leader_follower import Work
from notewright.mcp.stdio.writer import LineWriter
from notewright.surfaces.base import Report, Surface, no_report


class FastPath:
    """One client's way in. `began` is told when the client has been greeted: what takes long may begin now."""

    def __init__(
        self, caller: ClientConnection, surfaces: Sequence[Surface], out: LineWriter, began: Callable[[], object]
    ) -> None:
        self._caller = caller
        self._tools = ToolCalls(surfaces)
        self._surfaces = surfaces
        self._out = out
        self._began = began
        self._running: dict[int | str, ToolRequest] = {}
        self._passed_by = False  # a request went the long way
        self.greeting: Message | None = None  # the `initialize` that was answered here

    def take(self, message: Message) -> Work | bool:
        """The work of a call; True for what is done with already; False for what must go the long way."""
        match message:
            case {"method": "tools/call"}:
                if self.greeting and (asked := ToolRequest.of(message)):
                    self._running[asked.request] = asked
                    self._out.unanswered.add(asked.request)
                    return partial(self._do, asked)
            case {"method": "initialize"}:
                if self._greet(message):
                    return True
            case {"method": "tools/list", "id": request} if self.greeting and not message.get("params"):
                self._out.answer(
                    request, {"result": wire_format.tools([tool for _, tool in self._tools.known.values()])}
                )
                return True
            case {"method": "ping", "id": request} if self.greeting:
                self._out.answer(request, {"result": {}})
                return True
            case {"method": "notifications/initialized"}:
                self._caller.session.initialized = True
            case {"method": "notifications/cancelled", "params": {"requestId": int() | str() as request}}:
                if request in self._running:
                    self._running[request].given_up = True
                    return True
        self._passed_by = self._passed_by or "id" in message
        return False

    def _greet(self, message: Message) -> bool:
        """Answered here, unless the client has begun to talk to the SDK, which then must hear everything."""
        match message:
            case _ if self._passed_by:
                return False
            case {
                "id": request,
                "params": {
                    "protocolVersion": str(version),
                    "capabilities": {},
                    "clientInfo": {"name": str(name), "version": str()},
                },
            }:
                self._caller.session.client = short_name(name)
                self.greeting = message
                self._out.answer(request, {"result": wire_format.handshake(self._surfaces, version)})
                self._began()
                return True
        return False

    def _do(self, asked: ToolRequest) -> Callable[[], None]:
        report = self._report(asked) if asked.meta else no_report
        outcome = self._tools.call(self._caller, asked.tool, asked.args, partial(getattr, asked, "given_up"), report)
        if self._running.get(asked.request) is asked:
            del self._running[asked.request]
        return partial(self._out.answer, asked.request, None if asked.given_up else answer(outcome))

    def _report(self, asked: ToolRequest) -> Report:
        token = asked.meta.get("progressToken")
        if type(token) not in (int, str):
            return no_report

        def tell(done: float, total: float | None, message: str | None) -> None:
            if not asked.given_up:
                self._out.notify("notifications/progress", wire_format.progress(token, done, total, message))

        return seldom(tell)
