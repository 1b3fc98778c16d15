"""Real Yjs clients in a Node process: y-websocket and @y-sweet/client, told what to do one line at a time."""

import json
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any

from tests.clients.conftest import HERE, Npm

SECONDS = 30.0


class YjsClients:
    def __init__(self, npm: Npm) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([npm.node, str(HERE / "yjs.mjs")], stdin=pipe, stdout=pipe, cwd=HERE, text=True)

    def __enter__(self) -> "YjsClients":
        return self

    def __exit__(self, *error: object) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()

    def do(self, command: str, **asked: Any) -> Any:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps({"do": command, **asked}) + "\n")
        self.process.stdin.flush()
        watchdog = threading.Timer(SECONDS, self.process.kill)
        watchdog.start()
        try:
            answer = json.loads(self.process.stdout.readline())
        finally:
            watchdog.cancel()
        assert "error" not in answer, answer
        return answer

    def look(self, name: str) -> Any:
        return self.do("look", name=name)

    def until(self, name: str, done: Callable[[Any], Any], seconds: float = SECONDS) -> Any:
        """What a client has as soon as it is as it should be; what it has when the time is up."""
        end = time.monotonic() + seconds
        while not done(seen := self.look(name)) and time.monotonic() < end:
            time.sleep(0.02)
        assert done(seen), seen
        return seen
