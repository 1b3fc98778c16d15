"""uvicorn's HTTP protocol (httptools), with bounds: how large a head may be, and how long a client may keep us waiting.

What a client owes us is looked at from outside, about once a second, by what has come since: no timer is set and
cleared for a request. A refusal is written only where no answer is under way, and the connection is kept for a moment
while what still comes is thrown away: closed at once, the client would see a reset in place of our words.
"""

import asyncio
import http
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

PIECE_BYTES = 8 << 10  # that the parser is given at a time, so that a head cannot come through whole, however large
MAX_PIPELINED = 8  # requests that may come before the first is answered
LINGER_SECONDS = 1.0
MORE_THAN_SENT = 1 << 50  # more bytes than anybody sends

Part = Literal["head", "body", ""]
Waits = Literal["head", "body", "rest", "idle", "reader", ""]


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What a client may keep us waiting for. A body, and an answer, must move by `least` bytes in their time."""

    connections: int = 1000
    head_bytes: int = 32 << 10
    head_seconds: float = 10
    body_seconds: float = 20
    rest_seconds: float = 5  # for a body nobody reads any more
    idle_seconds: float = 75
    reader_seconds: float = 60
    least: int = 8 << 10

    def seconds(self, waits: Waits) -> float:
        return float(getattr(self, f"{waits}_seconds", "inf"))

    @property
    def every(self) -> float:
        """How often to look."""
        return min(1.0, self.head_seconds / 4, self.body_seconds / 4, self.idle_seconds / 4, self.rest_seconds / 4)


class Bounded(HttpToolsProtocol):
    """A connection with a client."""

    limits: ConnectionLimits
    left: Callable[[], None]  # told when the connection has gone
    refused: Callable[[int], None]  # told the status of each refusal
    no_room: bool  # this client is to be told so, and is gone in a moment
    ws_protocol_class: Any

    _refused = False
    _upgraded = False  # to a WebSocket, which has the transport now
    _received = 0  # bytes
    _resumed = 0  # times
    _part: Part = ""  # of a request, of which we have something but not all
    _head = 0  # bytes of a head that has not come whole
    _body_seen = False  # something of a body, in the last piece
    _running: Any = None  # the request that is being answered, or was last; `cycle` is the one that came last
    _state: tuple[Waits, object] = ("", None)
    _since = 0.0
    _then = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.no_room:
            self.refuse(503, "Too many connections", "retry-after: 1\r\n")

    def data_received(self, data: bytes) -> None:
        for start in range(0, len(data), PIECE_BYTES):
            if self._upgraded:  # nothing may be sent before the handshake is answered, and uvicorn would lose it
                self.transport.abort()
            if self._refused or self.transport.is_closing():
                return
            piece, self._body_seen = data[start : start + PIECE_BYTES], False
            super().data_received(piece)
            self._received += len(piece)
            is_trailer = self._part == "body" and not self._body_seen
            self._head = self._head + len(piece) if self._part == "head" or is_trailer else 0
            # A piece may have begun with the end of something else.
            if self._head > self.limits.head_bytes + PIECE_BYTES:
                self.refuse(431, "The head of the request is too large")

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._notify_disconnect()
        self.left()

    def handle_websocket_upgrade(self) -> None:
        """The connection goes on as a WebSocket, which is counted and looked after in our place. Not while an answer
        is under way, into which the handshake would be written."""
        if self._refused or self.no_room:
            return
        if self.cycle is not None and not self.cycle.response_complete:
            return self.refuse(400, "A handshake may not be sent ahead")
        made = self.ws_protocol_class  # ours (`websocket_protocol.py`)

        def taken_over(**given: Any) -> Any:
            socket = made(**given)
            socket.limits, socket.left = self.limits, self.left
            return socket

        self.ws_protocol_class, self._upgraded = taken_over, True
        super().handle_websocket_upgrade()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._resumed += 1

    def send_400_response(self, msg: str) -> None:
        self.refuse(400, msg)

    def refuse(self, status: int, words: str, header: str = "") -> None:
        """End the connection with an answer of our own, if none is under way."""
        if self._refused or self.transport.is_closing():
            return
        self._refused = True
        self.refused(status)
        begun = self._notify_disconnect()
        if not begun:
            head = f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}\r\ncontent-type: text/plain; charset=utf-8\r\n"
            head += f"content-length: {len(words)}\r\n{header}connection: close\r\n\r\n"
            self.transport.write((head + words).encode("ascii"))
        if begun or not self.transport.can_write_eof():
            self.transport.close()
            return
        self.flow.resume_reading()
        self.transport.write_eof()
        self.loop.call_later(LINGER_SECONDS, self.transport.abort)

    @property
    def idle_since(self) -> float | None:
        """When we noticed that nothing was left to do here, if that is so."""
        return self._since if self._state == ("idle", self.cycle) and self._waits() == "idle" else None

    def _notify_disconnect(self) -> bool:
        """Tell the application that its client has gone; whether it was in the middle of an answer."""
        running = self._running
        if running is None or running.response_complete:
            return False
        running.disconnected = True
        running.message_event.set()
        return bool(running.response_started)

    def look(self, now: float) -> None:
        """Has the client kept us waiting for too long?"""
        waits = self._waits()
        if waits == "" and self.flow.read_paused:
            self.flow.resume_reading()  # uvicorn stops when somebody sends ahead, and would not see that they have gone
        state = waits, self.cycle
        moved = self._received
        if waits == "reader":
            moved = self._resumed * MORE_THAN_SENT - self.transport.get_write_buffer_size()
        if state == self._state and now - self._since >= self.limits.seconds(waits) and not self._moves(waits, moved):
            self._give_up(waits)
        elif state != self._state or now - self._since >= self.limits.seconds(waits):
            self._state, self._since, self._then = state, now, moved

    def _moves(self, waits: Waits, moved: int) -> bool:
        if waits == "body" and self.flow.read_paused:
            return True  # it is we who do not read
        return waits in ("body", "reader") and moved - self._then >= self.limits.least

    def _waits(self) -> Waits:
        if self.transport.get_write_buffer_size():
            return "reader"
        part, answering = self._part, self.cycle is not None and not self.cycle.response_complete
        if self.cycle is None:
            return "head"
        if part == "body":
            return "body" if answering else "rest"
        return "" if answering else "head" if part == "head" else "idle"

    def _give_up(self, waits: Waits) -> None:
        if waits == "reader":
            self.transport.abort()
        elif waits == "body" or (waits == "head" and self._part == "head"):
            self.refuse(408, "The request did not come in time")
        else:
            self.transport.close()

    # What the parser and uvicorn call

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._running = cycle  # uvicorn forgets it when the next request comes, and would not tell it of the end
        super()._start_asgi_task(cycle, app)

    def on_message_begin(self) -> None:
        self._part, self._head = "head", 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._part == "head":  # uvicorn takes what comes behind a body for headers, which no proxy looks at
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._part = "body"
        if self._head + PIECE_BYTES > self.limits.head_bytes and self._size_of_head() > self.limits.head_bytes:
            self.refuse(431, "The head of the request is too large")
        if self._refused or len(self.pipeline) >= MAX_PIPELINED:
            raise _Enough  # ends the parser too
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._body_seen = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._part = ""
        super().on_message_complete()

    def _size_of_head(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)


class _Enough(Exception):
    """This client is not listened to any longer."""
