"""The handshake, the list of tools and their calls on stdio in the 2025 era, done by the thread that read them.

This is what nearly every client asks for, and all of it is simple. The SDK takes a second to load and a tool call
through two models, several coroutines and streams, which is ten times the work of a small call itself. Only messages
pass here that are exactly what they seem; all others, and the 2026 era, take the long way through the SDK and get the
same answers.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from notewright.ledger.base import Actor
from notewright.mcp import wire_format
from notewright.mcp.connection import ClientConnection, Report, now_and_then, unheard
from notewright.mcp.jsonrpc import ENVELOPE, Message, short_name
from notewright.mcp.stdio.leader_follower import Work
from notewright.mcp.stdio.writer import LineWriter
from notewright.surfaces.base import INTERNAL_ERROR, Call, Cancelled, RpcError, Surface, together
from notewright.surfaces.perform import perform

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Asked:
    """A call that takes the lane."""

    request: int | str
    tool: str
    args: dict[str, Any]
    token: int | str | None  # of those who want to know how far it is
    given_up: bool = False

    def stopped(self) -> bool:
        return self.given_up


class FastPath:
    """One client's way in. `began` is told when the client has been greeted: what takes long may begin now."""

    def __init__(
        self, caller: ClientConnection, surfaces: Sequence[Surface], out: LineWriter, began: Callable[[], None]
    ) -> None:
        self._caller = caller
        self._first = surfaces[0]
        self._tools = together(surfaces)
        self._offer = wire_format.Offer.of(surfaces)
        self._out = out
        self._began = began
        self._running: dict[int | str, _Asked] = {}
        self._passed_by = False  # a request went the long way
        self.greeting: Message | None = None  # the `initialize` that was answered here

    def take(self, message: Message) -> Work | bool:
        """The work of a call; True for what is done with already; False for what must go the long way."""
        match message:
            case {"method": "tools/call"}:
                if self.greeting and (work := self._call(message)):
                    return work
            case {"method": "initialize"}:
                if self._greet(message):
                    return True
            case {"method": "tools/list", "id": request} if self.greeting and not message.get("params"):
                self._out.answer(request, {"result": wire_format.tools([tool for _, tool in self._tools.values()])})
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
                self._out.answer(request, {"result": wire_format.handshake(self._offer, version)})
                self._began()
                return True
        return False

    def _call(self, message: Message) -> Work | None:
        match message:
            case {"id": request, "params": {"name": str(tool), **rest}}:
                args, meta = rest.get("arguments", {}), rest.get("_meta", {})
            case _:
                return None
        if not isinstance(args, dict) or not isinstance(meta, dict) or ENVELOPE in meta:
            return None
        asked = self._running[request] = _Asked(request, tool, args, meta.get("progressToken"))
        self._out.unanswered.add(request)
        return partial(self._do, asked)

    def _do(self, asked: _Asked) -> Callable[[], None]:
        outcome = self._outcome(asked)
        if self._running.get(asked.request) is asked:
            del self._running[asked.request]
        return partial(self._out.answer, asked.request, None if asked.given_up else outcome)

    def _outcome(self, asked: _Asked) -> dict[str, Any] | None:
        caller = self._caller
        surface = self._tools[asked.tool][0] if asked.tool in self._tools else self._first
        actor = Actor(caller.user, caller.session.client, surface.name, asked.tool)
        call = Call(caller.library, actor, caller.session, caller.transport, asked.stopped, self._report(asked))
        try:
            if surface.handshake and not caller.session.initialized:
                raise RpcError(INTERNAL_ERROR, wire_format.NOT_INITIALIZED)
            return {"result": wire_format.result(perform(surface, call, asked.tool, asked.args))}
        except Cancelled:
            return None
        except RpcError as error:
            return {"error": wire_format.error(error.code, error.message, error.data)}
        except BaseException:
            log.exception("%s failed", asked.tool)
            return {"error": wire_format.error(INTERNAL_ERROR, "Internal error")}

    def _report(self, asked: _Asked) -> Report:
        if type(asked.token) not in (int, str):
            return unheard

        def tell(done: float, total: float | None, message: str | None) -> None:
            if not asked.given_up:
                self._out.notify("notifications/progress", wire_format.progress(asked.token, done, total, message))

        return now_and_then(tell)
