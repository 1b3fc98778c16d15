"""Lines to the client, from any thread."""

import asyncio
import os
import select
import threading
from collections.abc import Callable
from typing import Any

import pydantic_core

CHUNK_BYTES = 4096  # a pipe that can be written to takes so much without blocking
MAX_UNREAD_BYTES = 16 << 20  # by the client; then we read no more from it


class LineWriter:
    """Writes at once while the client keeps up, else in order as soon as it reads; whole lines, and never waits."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)
        self._unread = bytearray()  # by the client
        self._room = threading.Event()
        self._room.set()
        self.is_full = False  # too much is unread: read nothing more before `wait_for_room`
        self.broken = False  # the client has closed its end
        self.unanswered: set[Any] = set()  # ids of requests
        self.on_answered: Callable[[], None] | None = None  # called for every answer, once the last is waited for

    def answer(self, request: Any, outcome: dict[str, Any] | None) -> None:
        """Send the result or error of a request; None where the client has cancelled it."""
        if outcome is not None:
            self.write({"jsonrpc": "2.0", "id": request, **outcome})
        self.mark_answered(request)

    def refuse(self, request: Any, code: int, message: str) -> None:
        self.answer(request, {"error": {"code": code, "message": message}})

    def notify(self, method: str, params: dict[str, Any]) -> None:
        self.write({"jsonrpc": "2.0", "method": method, "params": params})

    def mark_answered(self, request: Any) -> None:
        """The request has its answer, or needs none."""
        self.unanswered.discard(request)
        if self.on_answered is not None:
            self.on_answered()

    def write(self, message: dict[str, Any]) -> None:
        try:
            line = pydantic_core.to_json(message)
        except ValueError:  # text that is not Unicode, in a place where we did not look
            fault = {"code": -32603, "message": "The answer could not be written"}
            line = pydantic_core.to_json({"jsonrpc": "2.0", "id": message.get("id"), "error": fault})
        with self._lock:
            is_behind = bool(self._unread)
            self._unread += line + b"\n"
            if not is_behind and not self._write_some():
                self._loop.call_soon_threadsafe(self._loop.add_writer, self._fd, self._on_writable)
            if len(self._unread) > MAX_UNREAD_BYTES:
                self.is_full = True
                self._room.clear()

    def wait_for_room(self) -> None:
        """Block while the client does not read its answers."""
        self._room.wait()

    def _on_writable(self) -> None:
        with self._lock:
            if self._write_some():
                self._loop.remove_writer(self._fd)
                self.is_full = False
                self._room.set()

    def _write_some(self) -> bool:
        """Write what can be written without blocking; whether that was everything."""
        try:
            while self._unread:
                if not self._poll.poll(0):
                    return False
                del self._unread[: os.write(self._fd, self._unread[:CHUNK_BYTES])]
        except BlockingIOError:
            return False
        except OSError:
            self._unread.clear()
            self.broken = True
        return True

    async def flush(self, seconds: float) -> None:
        """Send what the client has not read yet, if it reads it soon."""
        deadline = self._loop.time() + seconds
        while self._unread and self._loop.time() < deadline:
            await asyncio.sleep(0.01)
