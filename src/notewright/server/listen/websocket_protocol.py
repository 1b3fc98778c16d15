"""uvicorn's WebSocket protocol, with bounds. Loaded where WebSockets are served: not everybody has `websockets`,
which it needs.

uvicorn's pings end a connection whose client is silent, but not one that is being closed while its client reads
nothing: what is to be said first would wait for ever.
"""

from collections.abc import Callable
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from notewright.server.listen.bounded_protocol import LINGER_SECONDS, MORE_THAN_SENT, ConnectionLimits


class BoundedWebSocket(WebSocketsSansIOProtocol):
    limits: ConnectionLimits
    left: Callable[[], None]
    _over = False  # nothing that comes is listened to any more
    _stuck_since: float | None = None
    _stuck_at = 0
    _resumed = 0  # times

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.left = lambda: None

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.left()

    def data_received(self, data: bytes) -> None:
        if self._over:
            return
        super().data_received(data)
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            self._end()  # more or longer headers than `websockets` takes: it has an answer, which uvicorn never sends

    def handle_parser_exception(self) -> None:
        """What came is no WebSocket, or too much of it."""
        told = self.conn.close_sent
        assert told is not None
        self.queue.put_nowait({"type": "websocket.disconnect", "code": told.code, "reason": told.reason})
        self._end()

    def _end(self) -> None:
        """The client is told, and for a moment what it still sends is thrown away: closed at once, it would see a reset
        in place of our words."""
        self._over = self.close_sent = True
        self.transport.write(b"".join(self.conn.data_to_send()))
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()
        self.close_timer = self.loop.call_later(LINGER_SECONDS, self.transport.close)

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and self.close_sent:
            self.handshake_complete = True  # it was refused, of which uvicorn would write an error for every stranger

    def resume_writing(self) -> None:
        super().resume_writing()
        self._resumed += 1

    def look(self, now: float) -> None:
        """A client that takes nothing of what waits for it is disconnected."""
        waiting = self.transport.get_write_buffer_size()
        # It took something if we could go on, however much waits since.
        moved = self._resumed * MORE_THAN_SENT - waiting
        if not waiting or moved > self._stuck_at or self._stuck_since is None:
            self._stuck_since, self._stuck_at = (now if waiting else None), moved
        elif now - self._stuck_since >= self.limits.seconds("rest" if self.transport.is_closing() else "reader"):
            self.transport.abort()
