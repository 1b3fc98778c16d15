"""stdio through the SDK: for the 2026 era, and for what `fast_path.py` leaves to it."""

from typing import Any

import anyio
import mcp_types as wire
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from mcp.server import Server
from mcp.server.runner import serve_dual_era_loop, serve_loop
from mcp.shared.message import SessionMessage

from notewright.mcp.jsonrpc import Message, has_envelope
from notewright.mcp.stdio.fast_path import FastPath
from notewright.mcp.stdio.server import SdkInbox
from notewright.mcp.stdio.writer import LineWriter
from notewright.surfaces.base import INVALID_REQUEST

HANDSHAKE_ID = "notewright:greeting"  # under which a handshake that was made without the SDK is replayed to it


async def serve(server: Server[Any], opening: Message, inbox: SdkInbox, out: LineWriter, fast_path: FastPath) -> None:
    """Serve from the opening request until the input ends and every request is answered."""
    reader, writer = _SdkReadStream(inbox, out, [*_replayed_handshake(fast_path), opening]), _SdkWriteStream(out)
    modern = fast_path.handshake is None and opening["method"] != "initialize" and has_envelope(opening)
    loop = serve_dual_era_loop if modern else serve_loop  # the latter has one stream less to pass
    async with server.lifespan(server) as state:
        await loop(server, reader, writer, lifespan_state=state)


def _replayed_handshake(fast_path: FastPath) -> list[Message]:
    if fast_path.handshake is None:
        return []
    return [fast_path.handshake | {"id": HANDSHAKE_ID}, {"jsonrpc": "2.0", "method": "notifications/initialized"}]


class _SdkReadStream(ObjectReceiveStream[SessionMessage]):
    """The inbox as the SDK's read stream."""

    def __init__(self, inbox: SdkInbox, out: LineWriter, before: list[Message]) -> None:
        self._inbox = inbox
        self._out = out
        self._before = before

    async def receive(self) -> SessionMessage:
        while True:
            given = self._before.pop(0) if self._before else await self._inbox.receive()
            if given is None:
                raise anyio.EndOfStream
            try:
                return SessionMessage(wire.jsonrpc_message_adapter.validate_python(given, by_name=False))
            except ValueError:
                self._out.refuse(given.get("id"), INVALID_REQUEST, "Invalid Request")

    async def aclose(self) -> None:
        """The input is not ours to close."""


class _SdkWriteStream(ObjectSendStream[SessionMessage]):
    """The client as the SDK's write stream."""

    def __init__(self, out: LineWriter) -> None:
        self._out = out

    async def send(self, item: SessionMessage, /) -> None:
        message = item.message
        answered = message.id if isinstance(message, wire.JSONRPCResponse | wire.JSONRPCError) else None
        if answered == HANDSHAKE_ID:
            return
        self._out.write(message.model_dump(by_alias=True, exclude_unset=True))
        if answered is not None:
            self._out.mark_answered(answered)
        if self._out.broken:
            raise anyio.BrokenResourceError

    async def aclose(self) -> None:
        """Nor is the output."""
