"""uvicorn's HTTP protocol (httptools), with limits: on the size of a head, and on how long a client may make us wait.

Timeouts are checked from outside, about once a second, by what has arrived since: no timer is set and cleared for a
request. A refusal is written only where no answer is under way, and the connection lingers for a moment while what
still arrives is discarded: closed at once, the client would see a reset in place of our words.
"""

import asyncio
import http
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

PIECE_BYTES = 8 << 10  # given to the parser at a time, so that a head cannot come through whole, however large
MAX_PIPELINED = 8  # requests that may come before the first is answered
LINGER_SECONDS = 1.0
MORE_THAN_SENT = 1 << 50  # more bytes than anybody sends

Part = Literal["head", "body", ""]
Wait = Literal["head", "body", "rest", "idle", "reader", ""]  # what we wait for; its limit is `<wait>_seconds`


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """How long a client may make us wait. A body, and an answer, must move by `progress_bytes` in their time."""

    connections: int = 1000
    head_bytes: int = 32 << 10
    head_seconds: float = 10
    body_seconds: float = 20
    rest_seconds: float = 5  # for a body that the application no longer reads
    idle_seconds: float = 75
    reader_seconds: float = 60
    progress_bytes: int = 8 << 10

    def seconds(self, wait: Wait) -> float:
        return float(getattr(self, f"{wait}_seconds", "inf"))

    @property
    def check_seconds(self) -> float:
        """Between two checks of the timeouts."""
        return min(1.0, self.head_seconds / 4, self.body_seconds / 4, self.idle_seconds / 4, self.rest_seconds / 4)


class BoundedHttp(HttpToolsProtocol):
    """A connection with a client."""

    limits: ConnectionLimits
    closed: Callable[[], None]  # called when the connection has gone
    refused: Callable[[int], None]  # called with the status of each refusal
    is_surplus: bool  # one too many: it is answered so, and closed in a moment
    ws_protocol_class: Any

    _refused = False
    _upgraded = False  # to a WebSocket, which has the transport now
    _received = 0  # bytes
    _resumed = 0  # times
    _part: Part = ""  # of a request that has partly arrived
    _head = 0  # bytes of a head that has not arrived whole
    _body_seen = False  # in the last piece
    _running: Any = None  # the request that is being answered, or was last; `cycle` is the one that came last
    _state: tuple[Wait, object] = ("", None)
    _since = 0.0
    _moved_before = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.is_surplus:
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
        self.closed()

    def handle_websocket_upgrade(self) -> None:
        """Go on as a WebSocket, which counts and has limits in our place. Not while an answer is under way, into which
        the handshake would be written."""
        if self._refused or self.is_surplus:
            return
        if self.cycle is not None and not self.cycle.response_complete:
            return self.refuse(400, "A handshake may not be sent ahead")
        websocket_class = self.ws_protocol_class  # ours (`websocket_protocol.py`)

        def make_websocket(**options: Any) -> Any:
            websocket = websocket_class(**options)
            websocket.limits, websocket.closed = self.limits, self.closed
            return websocket

        self.ws_protocol_class, self._upgraded = make_websocket, True
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
        answer_begun = self._notify_disconnect()
        if not answer_begun:
            head = f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}\r\ncontent-type: text/plain; charset=utf-8\r\n"
            head += f"content-length: {len(words)}\r\n{header}connection: close\r\n\r\n"
            self.transport.write((head + words).encode("ascii"))
        if answer_begun or not self.transport.can_write_eof():
            self.transport.close()
            return
        self.flow.resume_reading()
        self.transport.write_eof()
        self.loop.call_later(LINGER_SECONDS, self.transport.abort)

    @property
    def idle_since(self) -> float | None:
        """When a check found that nothing was left to do here, if that is still so."""
        return self._since if self._state == ("idle", self.cycle) and self._current_wait() == "idle" else None

    def _notify_disconnect(self) -> bool:
        """Tell the application that its client has gone; whether it was in the middle of an answer."""
        running = self._running
        if running is None or running.response_complete:
            return False
        running.disconnected = True
        running.message_event.set()
        return bool(running.response_started)

    def check_timeout(self, now: float) -> None:
        """End the connection if its client has made us wait for too long."""
        wait = self._current_wait()
        if wait == "" and self.flow.read_paused:
            self.flow.resume_reading()  # uvicorn stops reading when a client sends ahead, and would not see it leave
        state, late = (wait, self.cycle), now - self._since >= self.limits.seconds(wait)
        moved = self._received
        if wait == "reader":
            moved = self._resumed * MORE_THAN_SENT - self.transport.get_write_buffer_size()
        is_moving = wait in ("body", "reader") and moved - self._moved_before >= self.limits.progress_bytes
        we_paused = wait == "body" and self.flow.read_paused  # it is we who do not read
        if state == self._state and late and not is_moving and not we_paused:
            if wait == "reader":
                self.transport.abort()
            elif wait == "body" or (wait == "head" and self._part == "head"):
                self.refuse(408, "The request did not come in time")
            else:
                self.transport.close()
        elif state != self._state or late:
            self._state, self._since, self._moved_before = state, now, moved

    def _current_wait(self) -> Wait:
        if self.transport.get_write_buffer_size():
            return "reader"
        part, answering = self._part, self.cycle is not None and not self.cycle.response_complete
        if self.cycle is None:
            return "head"
        if part == "body":
            return "body" if answering else "rest"
        return "" if answering else "head" if part == "head" else "idle"

    # What the parser and uvicorn call

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._running = cycle  # uvicorn forgets it when the next request comes, and would not tell it of the end
        super()._start_asgi_task(cycle, app)

    def on_message_begin(self) -> None:
        self._part, self._head = "head", 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._part == "head":  # uvicorn takes trailers for headers, which no proxy looks at
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._part = "body"
        most = self.limits.head_bytes
        sizes = (len(name) + len(value) + 4 for name, value in self.headers)
        if self._head + PIECE_BYTES > most and len(self.url) + sum(sizes) > most:
            self.refuse(431, "The head of the request is too large")
        if self._refused or len(self.pipeline) >= MAX_PIPELINED:
            raise _StopParsing
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._body_seen = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._part = ""
        super().on_message_complete()


class _StopParsing(Exception):
    """Stops the parser: what this client still sends is not parsed."""
