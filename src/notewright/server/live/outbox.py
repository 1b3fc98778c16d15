"""Frames on their way to one client, within bounds: whoever reads too slowly is closed, and nobody waits for it."""

import asyncio
from collections import deque

MAX_WAITING_BYTES = 8 << 20
TOO_SLOW = 1013  # close codes: try again later
GOING = 1001  # the client has gone, nobody is to be told
RESTARTED = 1012, "the server starts again"  # come again


class Outbox:
    """On the event loop alone. What was put before the end is sent before it, except to who is too slow."""

    def __init__(self) -> None:
        self._frames: deque[bytes] = deque()
        self._bytes = 0
        self._changed = asyncio.Event()
        self.code: int | None = None  # why it was closed
        self.reason = ""

    @property
    def closed(self) -> bool:
        return self.code is not None

    def put(self, frame: bytes) -> None:
        if self.closed:
            return
        if self._frames and self._bytes + len(frame) > MAX_WAITING_BYTES:
            self._frames.clear()
            return self.close(TOO_SLOW, "you read too slowly")
        self._frames.append(frame)
        self._bytes += len(frame)
        self._changed.set()

    def close(self, code: int, reason: str) -> None:
        """The first reason counts."""
        if not self.closed:
            self.code, self.reason = code, reason
            self._changed.set()

    async def next(self) -> bytes | None:
        """The next frame; None at the end."""
        while not self._frames:
            if self.closed:
                return None
            self._changed.clear()
            await self._changed.wait()
        frame = self._frames.popleft()
        self._bytes -= len(frame)
        return frame
