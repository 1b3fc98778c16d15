"""A small MCP client on stdio for measuring, and two servers to compare with: an echo, and a tool that does nothing."""

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PYTHON = sys.executable
NOTEWRIGHT = str(Path(sys.executable).with_name("notewright"))


class Refused(Exception):
    """The server answered with an error."""


class Client:
    """One server process and the line to it."""

    def __init__(self, *command: str, env: Mapping[str, str] | None = None) -> None:
        self.began = time.perf_counter()
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0, env=env
        )
        assert self.process.stdin and self.process.stdout
        self._into, self._out = self.process.stdin, self.process.stdout
        self._rest = b""
        self._last = 0
        self.start_ms = 0.0

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self._into.close()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._out.close()

    def handshake(self) -> "Client":
        """Initialize; `start_ms` is then the time from the start of the process to the answer."""
        about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
        self.request("initialize", about)
        self.start_ms = (time.perf_counter() - self.began) * 1000
        self._write({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return self

    def send(self, method: str, params: dict[str, Any]) -> int:
        self._last += 1
        self._write({"jsonrpc": "2.0", "id": self._last, "method": method, "params": params})
        return self._last

    def receive(self) -> dict[str, Any]:
        """The next answer; what the server says of its own accord is passed over."""
        while True:
            while b"\n" not in self._rest:
                piece = self._out.read(1 << 16)
                if not piece:
                    raise Refused("the server ended")
                self._rest += piece
            line, self._rest = self._rest.split(b"\n", 1)
            message: dict[str, Any] = json.loads(line)
            if "id" in message and "method" not in message:
                return message

    def request(self, method: str, params: dict[str, Any]) -> Any:
        self.send(method, params)
        answer = self.receive()
        if "error" in answer:
            raise Refused(answer["error"]["message"])
        return answer["result"]

    def call(self, tool: str, **arguments: Any) -> str:
        """The text of a tool's answer; Refused where it is an error."""
        result = self.request("tools/call", {"name": tool, "arguments": arguments})
        text: str = result["content"][0]["text"]
        if result.get("isError"):
            raise Refused(text)
        return text

    def _write(self, message: dict[str, Any]) -> None:
        self._into.write(json.dumps(message, ensure_ascii=False).encode() + b"\n")


def echo() -> None:
    """Answer every line with the id it bears: what the pipe and the JSON cost."""
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" in message:
            answer = {"jsonrpc": "2.0", "id": message["id"], "result": {"content": [{"type": "text", "text": "ok"}]}}
            sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
            sys.stdout.buffer.flush()


def noop() -> None:
    """Our own server with one tool that does nothing."""
    from notewright.app.compose import serve_stdio
    from notewright.surfaces.base import Surface, Tool
    from notewright.surfaces.notes.tools import SURFACE

    def nothing_to_open() -> Any:
        raise FileNotFoundError("the tool that does nothing has no notes")

    tool = Tool("noop", "Does nothing.", {"type": "object"}, lambda call, args: "ok")
    serve_stdio(nothing_to_open, [Surface("noop", "", (tool,), SURFACE.style)])


if __name__ == "__main__":
    {"echo": echo, "noop": noop}[sys.argv[1]]()
