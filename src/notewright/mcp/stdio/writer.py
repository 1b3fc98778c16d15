"""Lines to the client, from any thread."""

import asyncio
import os
import select
import threading
from collections.abc import Callable
from typing import Any

import pydantic_core

CHUNK = 4096  # a pipe that can be written to takes so much without blocking
LATE = 16 << 20  # bytes the client has not read yet, before we read no more from it


class LineWriter:
    """Writes at once while the client keeps up, else in order as soon as it reads; whole lines, and never waits."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)
        self._late = bytearray()  # what the client has not read yet
        self._room = threading.Event()
        self._room.set()
        self.is_full = False  # too much is unread: read nothing more before `wait_for_room`
        self.broken = False  # nobody reads any more
        self.unanswered: set[Any] = set()  # ids of requests
        self.settled: Callable[[], None] | None = None  # told of every answer, once somebody waits for the last

    def answer(self, request: Any, outcome: dict[str, Any] | None) -> None:
        """The result or error of a request; None: nobody wants to know any more."""
        if outcome is not None:
            self.write({"jsonrpc": "2.0", "id": request, **outcome})
        self.settle(request)

    def refuse(self, request: Any, code: int, message: str) -> None:
        self.answer(request, {"error": {"code": code, "message": message}})

    def notify(self, method: str, params: dict[str, Any]) -> None:
        self.write({"jsonrpc": "2.0", "method": method, "params": params})

    def settle(self, request: Any) -> None:
        """It has been answered, or need not be."""
        self.unanswered.discard(request)
        if self.settled is not None:
            self.settled()

    def write(self, message: dict[str, Any]) -> None:
        try:
            line = pydantic_core.to_json(message)
        except ValueError:  # text that is not Unicode, in a place where we did not look
            fault = {"code": -32603, "message": "The answer could not be written"}
            line = pydantic_core.to_json({"jsonrpc": "2.0", "id": message.get("id"), "error": fault})
        with self._lock:
            behind = bool(self._late)
            self._late += line + b"\n"
            if not behind and not self._written():
                self._loop.call_soon_threadsafe(self._loop.add_writer, self._fd, self._writable)
            if len(self._late) > LATE:
                self.is_full = True
                self._room.clear()

    def wait_for_room(self) -> None:
        """Block while the client does not read its answers."""
        self._room.wait()

    def _writable(self) -> None:
        with self._lock:
            if self._written():
                self._loop.remove_writer(self._fd)
                self.is_full = False
                self._room.set()

    def _written(self) -> bool:
        """Write what can be written without waiting; whether that was everything."""
        try:
            while self._late:
                if not self._poll.poll(0):
                    return False
                del self._late[: os.write(self._fd, self._late[:CHUNK])]
        except BlockingIOError:
            return False
        except OSError:
            self._late.clear()
            self.broken = True
        return True

    async def flushed(self, seconds: float) -> None:
        """What is late is still sent, if the client reads it soon."""
        deadline = self._loop.time() + seconds
        while self._late and self._loop.time() < deadline:
            await asyncio.sleep(0.01)
