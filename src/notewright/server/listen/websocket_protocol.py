"""uvicorn's WebSocket protocol, with limits. Loaded where WebSockets are served: it needs `websockets`, which is not
always installed.

uvicorn's pings end a connection whose client is silent, but not one that is being closed while its client reads
nothing: what is still to be sent would wait for ever.
"""

from collections.abc import Callable
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from notewright.server.listen.bounded_protocol import LINGER_SECONDS, MORE_THAN_SENT, ConnectionLimits


class BoundedWebSocket(WebSocketsSansIOProtocol):
    limits: ConnectionLimits
    closed: Callable[[], None]
    _ended = False  # what still arrives is discarded
    _stuck_since: float | None = None
    _stuck_at = 0
    _resumed = 0  # times

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.closed = lambda: None

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.closed()

    def data_received(self, data: bytes) -> None:
        if self._ended:
            return
        super().data_received(data)
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            self._end()  # more or longer headers than `websockets` takes: its answer is one that uvicorn never sends

    def handle_parser_exception(self) -> None:
        """What arrived is no WebSocket frame, or too large."""
        close = self.conn.close_sent
        assert close is not None
        self.queue.put_nowait({"type": "websocket.disconnect", "code": close.code, "reason": close.reason})
        self._end()

    def _end(self) -> None:
        """Send what is to be sent, and discard for a moment what still arrives: closed at once, the client would see a
        reset in place of our words."""
        self._ended = self.close_sent = True
        self.transport.write(b"".join(self.conn.data_to_send()))
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()
        self.close_timer = self.loop.call_later(LINGER_SECONDS, self.transport.close)

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and self.close_sent:
            self.handshake_complete = True  # it was refused, for which uvicorn would log an error each time

    def resume_writing(self) -> None:
        super().resume_writing()
        self._resumed += 1

    def check_timeout(self, now: float) -> None:
        """Disconnect a client that reads nothing of what waits for it."""
        waiting = self.transport.get_write_buffer_size()
        # It read something if writing was resumed, however much waits since.
        moved = self._resumed * MORE_THAN_SENT - waiting
        if not waiting or moved > self._stuck_at or self._stuck_since is None:
            self._stuck_since, self._stuck_at = (now if waiting else None), moved
        elif now - self._stuck_since >= self.limits.seconds("rest" if self.transport.is_closing() else "reader"):
            self.transport.abort()
