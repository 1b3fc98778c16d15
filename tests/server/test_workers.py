"""Two workers of the real command: what they count and remember, they count and remember together."""

import contextlib
import os
import re
import signal
import ssl
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.conftest import write_files
from tests.server.lines import HELLO, NOTEWRIGHT
from tests.server.listener import certificate
from tests.waiting import until

pytestmark = pytest.mark.slow

PER_MINUTE = 40
SETTINGS = f'[http]\nworkers = 2\ncalls_per_minute = {PER_MINUTE}\n[workspaces.Main]\nlocation = "notes"\n'
READS = {  # a call that reads, on each surface without limits of its own
    "notes": ("read", {"path": "Tea"}),
    "cairn": ("read_note", {"path": "Tea.md"}),
    "lens": ("read", {"file_path": "/Main/Tea.md"}),
    "obsidian": ("read_note", {"name": "Tea"}),
}


@dataclass
class Served:
    process: "subprocess.Popen[bytes]"
    address: str
    verify: Any = True

    def workers(self) -> list[int]:
        listed = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return sorted(map(int, listed))

    def connections(self) -> list[int]:
        """How many sockets each worker has open."""
        return [sum(_is_socket(pid, fd) for fd in os.listdir(f"/proc/{pid}/fd")) for pid in self.workers()]

    @contextlib.contextmanager
    def clients(self, count: int = 6) -> Iterator[list[httpx2.Client]]:
        """Each with a lasting connection, some to the one worker and some to the other."""
        for _ in range(100):
            before = self.connections()
            with contextlib.ExitStack() as stack:
                made = [stack.enter_context(self.client()) for _ in range(count)]
                if self._spread(made, before):
                    yield made
                    return
            time.sleep(0.1)  # one of them is only beginning
        raise AssertionError("one worker does not take part")

    def _spread(self, clients: list[httpx2.Client], before: list[int]) -> bool:
        try:
            for client in clients:
                assert client.get("/healthz").status_code == 200
        except httpx2.ConnectError:  # a worker that still shows its old certificate
            return False
        return all(now > then for now, then in zip(self.connections(), before, strict=True))

    def client(self) -> httpx2.Client:
        headers = {"accept": "application/json"}
        return httpx2.Client(base_url=self.address, headers=headers, timeout=30, verify=self.verify)


def _is_socket(pid: int, fd: str) -> bool:
    try:
        return os.readlink(f"/proc/{pid}/fd/{fd}").startswith("socket:")
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def serving(place: Path, settings: str = SETTINGS, verify: Any = True) -> Iterator[Served]:
    write_files(place / "notes", {"Tea.md": "# Tea\n", "_agent.md": "---\ntags: [a]\n---\n"})
    (place / "c.toml").write_text(settings)
    command = [NOTEWRIGHT, "serve", "--config", str(place / "c.toml"), "--state", str(place / "state"), "--http", "0"]
    with (place / "log").open("w") as log:
        process = subprocess.Popen(command, stderr=log, cwd=place)
    try:
        until(lambda: "/mcp/notes" in (place / "log").read_text(), 30)
        found = re.search(r"(https?)://[\w.]+(:\d+)/mcp/notes", (place / "log").read_text())
        assert found is not None
        served = Served(process, f"{found[1]}://localhost{found[2]}", verify)
        until(lambda: _ready(served), 60)
        yield served
        process.send_signal(signal.SIGTERM)
        assert process.wait(40) == 0
    finally:
        process.kill()
        process.wait()


def _ready(served: Served) -> bool:
    """Both workers are: the one that answers and the one that we see listening."""
    try:
        for _ in range(6):
            if httpx2.get(f"{served.address}/readyz", timeout=20, verify=served.verify).status_code != 200:
                return False
    except httpx2.HTTPError:
        return False
    return len(served.workers()) == 2


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path) as running:
        yield running


def rpc(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def call(client: httpx2.Client, surface: str, tool: str, args: dict[str, Any], session: str = "") -> httpx2.Response:
    headers = {"mcp-session-id": session} if session else {}
    return client.post(f"/mcp/{surface}", json=rpc("tools/call", {"name": tool, "arguments": args}), headers=headers)


def greeted(client: httpx2.Client, surface: str) -> str:
    session = client.post(f"/mcp/{surface}", json=rpc("initialize", HELLO)).headers["mcp-session-id"]
    client.post(
        f"/mcp/{surface}",
        json={"jsonrpc": "2.0", "method": "notifications/initialized"},
        headers={"mcp-session-id": session},
    )
    return session


def test_calls_per_minute_are_counted_by_both_workers_together(served: Served) -> None:
    """On four surfaces at once: they share what a user may do."""
    statuses: Counter[int] = Counter()
    lock = threading.Lock()
    refusals: list[httpx2.Response] = []

    def hammer(client: httpx2.Client, surface: str) -> None:
        for _ in range(PER_MINUTE // 2):
            answer = call(client, surface, *READS[surface], session if surface == "lens" else "")
            with lock:
                statuses[answer.status_code] += 1
                refusals.extend([answer] if answer.status_code == 429 else [])

    with served.clients(8) as clients:
        session = greeted(clients[0], "lens")  # two requests, which count
        pairs = zip(clients, [*READS, *READS], strict=True)
        threads = [threading.Thread(target=hammer, args=pair) for pair in pairs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert statuses == {200: PER_MINUTE - 2, 429: 4 * PER_MINUTE - (PER_MINUTE - 2)}
    told = refusals[0].json()
    wait = told["error"]["data"]["retryAfter"]
    assert told["id"] == 1 and told["error"]["code"] == -32004
    assert told["error"]["data"] == {"retryAfter": wait, "limit": PER_MINUTE, "window": "minute"}
    assert refusals[0].headers["retry-after"] == str(wait) and 1 <= wait <= 60


def test_second_brain_lets_a_hundred_calls_a_minute_through_whoever_answers(served: Served) -> None:
    with served.clients() as clients:
        session = greeted(clients[0], "second_brain")
        answers = [
            call(clients[number % 6], "second_brain", "read", {"path": "Tea.md"}, session) for number in range(110)
        ]
    assert [answer.status_code for answer in answers] == [200] * 100 + [429] * 10
    told = answers[-1].json()["error"]
    assert told["code"] == -32004 and told["data"]["limit"] == 100 and told["data"]["window"] == "minute"


def test_octarine_keeps_its_envelope(served: Served) -> None:
    with served.clients() as clients:
        answers = [
            call(clients[number % 6], "octarine", "octarine_search_notes", {"workspace": "Main", "query": "Tea"})
            for number in range(60)
        ]
    assert {answer.status_code for answer in answers} == {200}
    refused = ["RATE_LIMIT_EXCEEDED" in answer.text for answer in answers]
    assert refused == [False] * 50 + [True] * 10
    assert answers[-1].json()["result"]["isError"]


def test_what_was_said_once_is_said_once_by_both_workers(served: Served) -> None:
    with served.clients() as clients:
        session = greeted(clients[0], "obsidian")
        texts = [call(client, "obsidian", "read_note", {"name": "Tea"}, session).text for client in clients * 2]
    assert [text.count("---") > 0 for text in texts] == [True] + [False] * 11


def test_a_killed_worker_is_replaced_and_counts_and_sessions_are_kept(served: Served) -> None:
    with served.clients() as clients:
        session = greeted(clients[0], "second_brain")
        for number in range(60):
            assert call(clients[number % 6], "second_brain", "read", {"path": "Tea.md"}, session).status_code == 200
    before = served.workers()
    os.kill(before[0], signal.SIGKILL)
    until(lambda: len(served.workers()) == 2 and served.workers() != before, 30)
    until(lambda: _ready(served), 60)
    with served.clients() as clients:
        answers = [
            call(clients[number % 6], "second_brain", "read", {"path": "Tea.md"}, session) for number in range(50)
        ]
    assert [answer.status_code for answer in answers] == [200] * 40 + [429] * 10


def test_both_workers_speak_https_and_show_a_renewed_certificate(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    settings = SETTINGS.replace("[http]\n", f'[http]\ntls_cert = "{cert}"\ntls_key = "{key}"\n')
    trusting = ssl.create_default_context(cafile=cert)
    with serving(tmp_path, settings, trusting) as served:
        assert served.address.startswith("https://")
        with served.clients() as clients:
            assert call(clients[0], "notes", "read", {"path": "Tea"}).status_code == 200
        certificate(tmp_path)
        served.process.send_signal(signal.SIGHUP)
        served.verify = ssl.create_default_context(cafile=cert)
        until(lambda: _ready(served), 30)
        with served.clients() as clients:
            assert call(clients[0], "notes", "read", {"path": "Tea"}).status_code == 200


WRITES = {  # a new note, on surfaces that make one by its name
    "notes": ("write", lambda name: {"path": f"{name}.md", "content": "x"}),
    "obsidian": ("create_note", lambda name: {"name": name, "content": "x"}),
    "second_brain": ("write", lambda name: {"path": f"{name}.md", "content": "x"}),
    "cairn": ("cairn_write", lambda name: {"path": name, "content": "x"}),
}


@pytest.mark.parametrize("surface", WRITES)
def test_twenty_writes_at_once_to_both_workers_do_not_pass_the_quota(tmp_path: Path, surface: str) -> None:
    settings = '[http]\nworkers = 2\n[workspaces.Main]\nlocation = "notes"\nquota_files = 12\n'
    write_files(tmp_path / "notes", {f"There {number}.md": "x" for number in range(5)})  # seven with those of `serving`
    tool, args = WRITES[surface]
    with serving(tmp_path, settings) as served, served.clients(4) as clients:
        session = greeted(clients[0], surface) if surface == "second_brain" else ""

        def write(number: int) -> bool:
            answer = call(clients[number % 4], surface, tool, args(f"New {number}"), session).json()
            return not answer["result"].get("isError", False)

        with ThreadPoolExecutor(20) as pool:
            assert sum(pool.map(write, range(20))) == 5
    assert len(list((tmp_path / "notes").glob("*.md"))) == 12
