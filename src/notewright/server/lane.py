"""Plain tool calls of the 2025 era on stdio, done by the thread that read them.

The SDK takes a tool call through two models, several coroutines and streams, which is ten times the work of a small
call itself. Only calls pass here that are exactly what they seem: after the handshake, in the form of the protocol,
without a wish for progress. All others take the long way and get the same answer.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import mcp_types as wire

from notewright.engine import Actor
from notewright.server import shapes
from notewright.server.crew import Work
from notewright.server.mcp import Caller
from notewright.surfaces import INTERNAL_ERROR, Call, Cancelled, RpcError, Surface, perform, together

log = logging.getLogger(__name__)

Tell = Callable[[Any, dict[str, Any] | None], None]  # (request id, result or error; None: it was given up)
LONG_WAY = ("progressToken", wire.PROTOCOL_VERSION_META_KEY)


@dataclass(slots=True)
class _Plain:
    """A call that takes the lane."""

    request: int | str
    tool: str
    args: dict[str, Any]
    given_up: bool = False

    def stopped(self) -> bool:
        return self.given_up


class Lane:
    """Learns from the passing messages when calls may begin and which were given up."""

    def __init__(self, caller: Caller, surfaces: Sequence[Surface], unanswered: set[Any], tell: Tell) -> None:
        self._caller = caller
        self._first = surfaces[0]
        self._tools = together(surfaces)
        self._unanswered = unanswered
        self._tell = tell
        self._opening: Any = None
        self._open = False
        self._running: dict[Any, _Plain] = {}

    def take(self, message: dict[str, Any]) -> Work | None:
        """The work of a plain call. Everything else is only looked at."""
        method = message.get("method")
        if method == "tools/call":
            plain = self._plain(message)
            return partial(self._do, plain) if plain is not None else None
        if method == "initialize":
            self._opening = message.get("id")
            self._caller.session.client = _client_name(message)
        elif method == "notifications/initialized":
            self._open = self._caller.session.initialized = True
        elif method == "notifications/cancelled":
            self._give_up(message.get("params"))
        return None

    def _plain(self, message: dict[str, Any]) -> _Plain | None:
        if not self._open or self._opening in self._unanswered:  # no answer overtakes that to `initialize`
            return None
        match message:
            case {"jsonrpc": "2.0", "id": int() | str() as request, "params": {"name": str(tool), **rest}}:
                args, meta = rest.get("arguments", {}), rest.get("_meta", {})
            case _:
                return None
        if isinstance(request, bool) or not isinstance(args, dict) or not isinstance(meta, dict):
            return None
        if any(key in meta for key in LONG_WAY):
            return None
        plain = self._running[request] = _Plain(request, tool, args)
        self._unanswered.add(request)
        return plain

    def _give_up(self, params: Any) -> None:
        request = params.get("requestId") if isinstance(params, dict) else None
        if isinstance(request, int | str) and request in self._running:
            self._running[request].given_up = True

    def _do(self, plain: _Plain) -> Callable[[], None]:
        outcome = self._outcome(plain)
        if self._running.get(plain.request) is plain:
            del self._running[plain.request]
        return partial(self._tell, plain.request, None if plain.given_up else outcome)

    def _outcome(self, plain: _Plain) -> dict[str, Any] | None:
        caller = self._caller
        surface = self._tools[plain.tool][0] if plain.tool in self._tools else self._first
        actor = Actor(caller.user, caller.session.client, surface.name, plain.tool)
        call = Call(caller.library, actor, caller.session, caller.transport, plain.stopped)
        try:
            return {"result": shapes.result(perform(surface, call, plain.tool, plain.args))}
        except Cancelled:
            return None
        except RpcError as error:
            return _error(error.code, error.message, error.data)
        except BaseException:
            log.exception("%s failed", plain.tool)
            return _error(INTERNAL_ERROR, "Internal error")


def _error(code: int, message: str, data: Any = None) -> dict[str, Any]:
    return {"error": {"code": code, "message": message} | ({} if data is None else {"data": data})}


def _client_name(message: dict[str, Any]) -> str:
    match message:
        case {"params": {"clientInfo": {"name": str(name)}}}:
            return name
    return ""
