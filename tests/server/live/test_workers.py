"""Several processes behind one address: clients of one document meet, whichever process they came to."""

import asyncio
import contextlib
import http.client
import json
import os
import re
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.conftest import write_files
from tests.server.lines import NOTEWRIGHT
from tests.server.live.parts import LiveClient, LiveServer
from tests.waiting import until
from websockets.exceptions import ConnectionClosed, InvalidHandshake
from websockets.sync.client import connect

from notewright.app import compose_http
from notewright.cli.main import main
from notewright.config.load import Config
from notewright.errors import Unavailable

pytestmark = pytest.mark.slow
NOTES = {"Tea.md": "Steep it.\n", "Broth.md": "Salt.\n"}


@dataclass
class Team:
    process: "subprocess.Popen[bytes]"
    port: int
    place: Path

    def workers(self) -> list[int]:
        listed = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return sorted(map(int, listed))

    def host(self) -> int | None:
        """The worker that has the live documents."""
        return next((pid for pid in self.workers() if any(file.endswith("live.lock") for file in _open(pid))), None)

    def worker_of(self, wire: socket.socket) -> int:
        """The worker that a client is connected to."""
        mine = f"{wire.getsockname()[1]:04X}"
        lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        inode = next(one[9] for one in lines if one[1].endswith(f":{self.port:04X}") and one[2].endswith(f":{mine}"))
        return next(pid for pid in self.workers() if f"socket:[{inode}]" in _open(pid))

    @contextlib.contextmanager
    def client(self, note: str = "Tea.md", worker: int | None = None, workspace: str = "notes") -> Iterator[LiveClient]:
        """A client, at any worker or at this one: tried until it is so."""
        end = time.monotonic() + 60
        while (found := self._try(f"/w/{workspace}/live/{note}", worker)) is None:
            assert time.monotonic() < end, "nobody answers"
            time.sleep(0.02)
        client, open_wire = found
        with open_wire:
            yield client

    def _try(self, path: str, worker: int | None) -> tuple[LiveClient, contextlib.ExitStack] | None:
        address = f"ws://127.0.0.1:{self.port}{path}"
        with (
            contextlib.suppress(OSError, InvalidHandshake, ConnectionClosed, StopIteration),
            contextlib.ExitStack() as stack,
        ):
            wire = stack.enter_context(connect(address, compression=None, ping_interval=None, close_timeout=1))
            client = LiveClient(wire)
            if (worker is None or self.worker_of(wire.socket) == worker) and client.until(lambda: client.synced):
                return client, stack.pop_all()
        return None

    @contextlib.contextmanager
    def tools(self, worker: int, session: dict[str, str]) -> Iterator["Tools"]:
        """Calls of one session that this worker answers."""
        while True:
            line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
            line.request("GET", "/ready")
            line.getresponse().read()
            if self.worker_of(line.sock) == worker:
                break
            line.close()
        with contextlib.closing(line):
            yield Tools(line, session)

    def ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        answer = LiveServer(self.port, None, self.place).ask(method, path, body)  # type: ignore[arg-type]
        assert answer.status == 200, answer.status
        return bytes(answer.data)  # type: ignore[attr-defined]


@dataclass
class Tools:
    """Calls of `second_brain`, whose tools name no version, over one connection."""

    line: http.client.HTTPConnection
    session: dict[str, str]

    def __call__(self, tool: str, **args: str) -> str:
        if not self.session:
            about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}}
            self._post({"id": 0, "method": "initialize", "params": about})
            self._post({"method": "notifications/initialized"})
        told = self._post({"id": 1, "method": "tools/call", "params": {"name": tool, "arguments": args}})
        return str(json.loads(told)["result"]["content"][0]["text"])

    def _post(self, message: dict[str, object]) -> bytes:
        head = {"accept": "application/json", "content-type": "application/json"} | self.session
        self.line.request("POST", "/mcp/second_brain", json.dumps({"jsonrpc": "2.0"} | message), head)
        answer = self.line.getresponse()
        if session := answer.headers.get("mcp-session-id"):
            self.session["mcp-session-id"] = session
        return answer.read()


def _open(pid: int) -> list[str]:
    found = []
    with contextlib.suppress(OSError):
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                found.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
    return found


@contextlib.contextmanager
def served(place: Path, workers: int = 2, port: int = 0, kind: str = "live:") -> Iterator[Team]:
    if not (place / "notes").exists():
        write_files(place / "notes", NOTES)
    command = [
        NOTEWRIGHT,
        "serve",
        f"notes={kind}{place / 'notes'}",
        "--state",
        str(place / "state"),
        "--http",
        str(port),
    ]
    environment = {**os.environ, "NOTEWRIGHT_HTTP_WORKERS": str(workers)}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, env=environment)
    try:
        assert process.stderr is not None
        told = next((line.decode() for line in process.stderr if b"/mcp/notes" in line), "")
        address = re.search(r"http://[\d.]+:(\d+)", told)
        assert address, "nothing is served"
        yield Team(process, int(address[1]), place)
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(15)
        process.kill()
        process.communicate()


def test_clients_at_different_workers_meet_and_survive_the_one_that_dies(tmp_path: Path) -> None:
    place = tmp_path / ("long-" * 20) / ("name-" * 20)  # longer than the address of a socket may be
    place.mkdir(parents=True)
    with served(place) as team:
        until(lambda: len(team.workers()) == 2 and team.host() is not None, 30)
        host = team.host()
        other = next(pid for pid in team.workers() if pid != host)
        with team.client(worker=host) as ann, team.client(worker=other) as bob:
            ann.type("From Ann 🍵.\n")
            bob.type("From Bob.\n")
            assert ann.has("From Bob.") and bob.has("From Ann 🍵.")
            ann.tell(11, 1, {"user": {"name": "Ann"}})
            assert bob.until(lambda: 11 in bob.states)
            bob.ask_status(b"\x01")
            assert bob.until(lambda: bob.acked)
            (socket_file,) = (place / "state").rglob("live.sock")
            assert stat.S_IMODE(socket_file.stat().st_mode) == 0o600
            assert host is not None
            os.kill(host, signal.SIGKILL)
            assert bob.closed()[0] == 1012, "a forwarded client is told to come again"
        until(lambda: team.host() not in (None, host), 30)  # the next process takes over
        with team.client() as ann, team.client() as bob:
            assert "From Bob." in str(ann.text), "what was acknowledged is there"
            assert str(ann.text).count("Steep it.") == 1
            ann.type("After.\n")
            assert bob.has("After.")
            team.process.send_signal(signal.SIGHUP)
            assert ann.closed()[0] == bob.closed()[0] == 1012, "the configuration is read again"
        with team.client() as ann:
            assert ann.has("After.")
    assert "After." in (place / "notes" / "Tea.md").read_text(), "what was typed is in the file at the end"


def test_a_tool_at_any_worker_changes_the_text_that_its_session_was_last_shown(tmp_path: Path) -> None:
    with served(tmp_path) as team:
        until(lambda: len(team.workers()) == 2 and team.host() is not None, 30)
        host = team.host() or 0
        other = next(pid for pid in team.workers() if pid != host)
        file, session = tmp_path / "notes" / "Tea.md", dict[str, str]()
        with team.client() as ann, team.tools(host, session) as at_host, team.tools(other, session) as at_other:
            readers = (at_other, "one"), (at_host, "two")
            for tools, word in readers:
                before = tools("read", path="Tea.md")
                ann.type(f"Typed {word}.\n")
                until(lambda: f"Typed {word}." in file.read_text(), 20)  # noqa: B023
                at_other("write", path="Tea.md", content=f"Written {word}.\n{before}")
                assert ann.has(f"Written {word}.")
                at_other("write", path="Tea.md", content=f"Again {word}.\n{before}")
                assert ann.has(f"Again {word}.")
                until(lambda: file.read_text() == str(ann.text), 20)
        assert "Written" not in str(ann.text), "the second text is one without it"
        for word in ("Typed one.", "Typed two.", "Again one.", "Again two.", "Steep it."):
            assert str(ann.text).count(word) == 1, word


def test_the_first_live_workspace_is_there_as_soon_as_it_is_added(tmp_path: Path) -> None:
    write_files(tmp_path / "more", NOTES)
    with served(tmp_path, workers=1, kind="") as team:
        assert team._try("/w/more/live/Tea.md", None) is None
        assert main(["workspace", "add", f"more=live:{tmp_path / 'more'}", "--state", str(tmp_path / "state")]) == 0
        with team.client(workspace="more") as ann:
            assert str(ann.text) == NOTES["Tea.md"]


def test_the_look_out_for_the_first_live_workspace_goes_on_after_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(compose_http, "LIVE_POLL_SECONDS", 0.01)
    write_files(tmp_path / "more", NOTES)
    tries: list[int] = []

    async def look_out(site: compose_http.Site) -> None:
        served = asyncio.Event()

        async def renew() -> None:
            tries.append(len(tries))
            if len(tries) < 3:
                raise Unavailable("the disk is not there")
            served.set()

        site.replace_app = renew
        async with asyncio.timeout(30):
            await site._wait_for_live()
        assert served.is_set()

    with compose_http.Site(Config((), str(tmp_path / "state"), str(tmp_path / "cache"))) as site:
        assert main(["workspace", "add", f"more=live:{tmp_path / 'more'}", "--state", str(tmp_path)]) == 0
        asyncio.run(look_out(site))
    assert tries == [0, 1, 2] and caplog.text.count("cannot be served yet") == 2


def test_a_server_that_is_killed_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    with served(tmp_path, workers=1) as team, team.client() as ann:
        for number in range(20):
            ann.type(f"word{number} ")
        ann.ask_status(b"\x01")
        assert ann.until(lambda: ann.acked)
        team.process.kill()
        before = ann.doc
    with served(tmp_path, workers=1, port=team.port) as team, team.client() as again:
        assert [f"word{number}" for number in range(20)] == re.findall(r"word\d+", str(again.text))
        assert str(again.text).count("Steep it.") == 1
        with team.client() as returned:  # with what it had
            returned.doc.apply_update(before.get_update())
            assert str(returned.text) == str(again.text)
