"""A client that speaks raw lines to a server process."""

import json
import subprocess
import threading
from collections.abc import Sequence
from typing import Any, Self

HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "tester", "version": "1"},
}
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "modern", "version": "1"},
}


class Lines:
    """A server process and a client that speaks raw lines."""

    def __init__(self, command: Sequence[str]) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe)
        self.number = 0

    def send(self, message: dict[str, Any] | bytes) -> None:
        assert self.process.stdin is not None
        line = message if isinstance(message, bytes) else json.dumps(message).encode()
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def ask(self, method: str, params: dict[str, Any] | None = None) -> int:
        self.number += 1
        self.send({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params or {}})
        return self.number

    def tell(self, method: str, params: dict[str, Any] | None = None) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params or {}})

    def hear(self) -> Any:
        assert self.process.stdout is not None
        watchdog = threading.Timer(20, self.process.kill)
        watchdog.start()
        try:
            line = self.process.stdout.readline()
        finally:
            watchdog.cancel()
        assert line, "the server has gone"
        return json.loads(line)

    def answer(self, method: str, params: dict[str, Any] | None = None) -> Any:
        number = self.ask(method, params)
        heard = self.hear()
        assert heard["id"] == number, heard
        return heard

    def greet(self) -> Self:
        self.answer("initialize", HELLO)
        self.tell("notifications/initialized")
        return self

    def call(self, tool: str, **args: Any) -> Any:
        return self.answer("tools/call", {"name": tool, "arguments": args})

    def text(self, tool: str, **args: Any) -> str:
        return str(self.call(tool, **args)["result"]["content"][0]["text"])

    def leave(self) -> tuple[bytes, bytes]:
        """Close the input and wait for the process: what it still said, and what stands on its standard error."""
        try:
            return self.process.communicate(timeout=10)
        finally:
            self.process.kill()
