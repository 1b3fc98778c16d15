"""Server processes to talk to: on stdio by a client that speaks raw lines, and over HTTP."""

import contextlib
import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

NOTEWRIGHT = str(Path(sys.executable).with_name("notewright"))

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
        watchdog = threading.Timer(60, self.process.kill)
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


@contextlib.contextmanager
def over_http(*words: str) -> Iterator[str]:
    """The address of `notewright serve WORDS --http`, until a signal ends it."""
    process = subprocess.Popen([NOTEWRIGHT, "serve", *words, "--http", "0"], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        told = next((line for line in process.stderr if "/mcp/notes" in line), "")
        address = re.search(r"http://[\d.:]+", told)
        assert address, "nothing is served"
        yield address[0]
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate()
