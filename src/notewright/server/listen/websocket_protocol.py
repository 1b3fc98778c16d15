"""uvicorn's WebSocket protocol, with bounds. Loaded where WebSockets are served: not everybody has `websockets`,
which it needs.

uvicorn's pings end a connection whose client is silent, but not one that is being closed while its client reads
nothing: what is to be said first would wait for ever.
"""

from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from notewright.server.listen.bounded_protocol import BoundedSocket


class BoundedWebSocket(WebSocketsSansIOProtocol, BoundedSocket):
    _stuck_since: float | None = None
    _stuck_at = 0

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.left = lambda: None

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.left()

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and self.close_sent:
            self.handshake_complete = True  # it was refused, of which uvicorn would write an error for every stranger

    def look(self, now: float) -> None:
        """A client that takes nothing of what waits for it is shown out."""
        waiting = self.transport.get_write_buffer_size()
        if not waiting or waiting < self._stuck_at or self._stuck_since is None:
            self._stuck_since, self._stuck_at = (now if waiting else None), waiting
        elif now - self._stuck_since >= self.limits.seconds("rest" if self.transport.is_closing() else "reader"):
            self.transport.abort()
