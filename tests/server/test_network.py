"""The real command beyond this machine: closed to strangers, told of changes while it runs."""

import contextlib
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.conftest import write_files
from tests.server.lines import NOTEWRIGHT
from tests.waiting import until

from notewright.accounts.sqlite import SqliteAccounts
from notewright.app import compose
from notewright.config.load import CommandLine, load
from notewright.errors import Invalid

pytestmark = pytest.mark.slow

HEADERS = {"accept": "application/json"}


class Running:
    """`notewright serve` over HTTP in a place with notes, a state directory and a configuration file."""

    def __init__(self, place: Path, process: "subprocess.Popen[str]", address: str) -> None:
        self.place, self.process, self.address = place, process, address

    def ask(self, path: str = "/mcp", token: str = "", **call: Any) -> httpx2.Response:
        asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call or {"name": "list", "arguments": {}}}
        told = HEADERS | ({"authorization": f"Bearer {token}"} if token else {})
        return httpx2.post(self.address + path, json=asked, headers=told, timeout=20)

    def write(self, name: str) -> str:
        answer = self.ask(name="write", arguments={"path": name, "content": "text"}).json()
        return str(answer["result"]["content"][0]["text"])

    def workers(self) -> set[int]:
        listed = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return set(map(int, listed))

    def reload(self) -> None:
        self.process.send_signal(signal.SIGHUP)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write_files(tmp_path / "notes", {"Tea.md": "Tea.", "Private/Key.md": "Key."})
    (tmp_path / "c.toml").write_text('[workspaces.Main]\nlocation = "notes"\n')
    return tmp_path


def token(place: Path, *words: str) -> str:
    done = subprocess.run(
        [NOTEWRIGHT, "token", *words, "--state", str(place / "state")], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@contextlib.contextmanager
def serving(place: Path, *words: str, host: str = "127.0.0.1") -> Iterator[Running]:
    command = [NOTEWRIGHT, "serve", "--config", str(place / "c.toml"), "--state", str(place / "state")]
    with (place / "log").open("w") as log:
        process = subprocess.Popen([*command, "--http", f"{host}:0", *words], stderr=log, text=True, cwd=place)
    try:
        until(lambda: re.search(r":\d+/mcp/notes", (place / "log").read_text()) is not None)
        port = re.search(r":(\d+)/mcp/notes", (place / "log").read_text())
        assert port is not None
        running = Running(place, process, f"http://127.0.0.1:{port[1]}")
        until(lambda: httpx2.get(f"{running.address}/readyz", timeout=20).status_code == 200)
        yield running
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        (["--http", "0.0.0.0:0"], ""),
        (["--http", "[::]:0"], ""),
        (["--http", "0"], '[http]\nhosts = ["notes.example.com"]\n'),
        (["--http", "0"], '[http]\npublic_url = "https://notes.example.com"\n'),
        (["--http", "0"], '[http]\ntrusted_proxies = ["127.0.0.1"]\n'),
    ],
)
def test_nothing_is_open_to_others_before_there_is_a_token(place: Path, words: list[str], settings: str) -> None:
    (place / "c.toml").write_text((place / "c.toml").read_text() + settings)
    command = [NOTEWRIGHT, "serve", "--config", str(place / "c.toml"), "--state", str(place / "state"), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.returncode == 1
    assert f"notewright token add NAME --state {place / 'state'}" in done.stderr


def test_the_names_of_this_machine_are_ours_and_those_of_others_are_not(place: Path) -> None:
    good = token(place, "add", "phone")
    with serving(place, host="0.0.0.0") as server:
        port, name = server.address.rpartition(":")[2], socket.gethostname()
        ours = (
            f"localhost:{port}",
            f"{name}:{port}",
            f"{name}.local:{port}",
            f"192.0.2.7:{port}",
            f"[2001:db8::7]:{port}",
        )
        for host, status in [*((one, 200) for one in ours), ("evil.example", 421), (f"{name}.evil.example", 421)]:
            told = {"host": host, "authorization": f"Bearer {good}"}
            assert httpx2.get(server.address + "/api/v1/me", headers=told).status_code == status, host


def test_a_token_that_is_over_opens_nothing(place: Path) -> None:
    token(place, "add", "phone")
    token(place, "revoke", "phone")
    command = [NOTEWRIGHT, "serve", str(place / "notes"), "--state", str(place / "state"), "--http", "0.0.0.0:0"]
    assert "notewright token add" in subprocess.run(command, capture_output=True, text=True, timeout=30).stderr


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ("0.0.0.0", "would open your notes to everyone who can reach this machine"),
        ("192.0.2.7", "would open your notes to everyone who can reach this machine"),
        ("127.0.0.2", "is not 127.0.0.1, localhost or ::1, where no access token is needed"),
        ("127.255.0.1", "is not 127.0.0.1, localhost or ::1, where no access token is needed"),
    ],
)
def test_an_address_that_needs_a_token_is_refused_for_what_it_is(place: Path, host: str, words: str) -> None:
    config = load(
        CommandLine((str(place / "notes"),), flags={"http.host": host, "http.port": 0}), environ={}, folder=str(place)
    )
    with contextlib.closing(SqliteAccounts.in_memory()) as registry, pytest.raises(Invalid) as refused:
        compose.require_authentication(config, registry)
    assert str(refused.value).startswith(f"--http {host}:0 {words}. make an access token first: notewright token add")


@pytest.mark.parametrize("workers", ["1", "2"])
def test_tokens_hold_at_once_in_a_running_server(place: Path, workers: str) -> None:
    first = token(place, "add", "phone")
    with serving(place, "--workers", workers, host="0.0.0.0") as server:
        assert server.ask().status_code == 401
        assert all(server.ask(token=first).status_code == 200 for _ in range(6))
        second = token(place, "add", "other", "--hide", "Private/**")
        assert all("Private" not in server.ask(token=second).text for _ in range(6))
        assert "Private" in server.ask(token=first).text
        token(place, "revoke", "phone")
        token(place, "revoke", "other")
        answers = [server.ask(token=one) for one in (first, second) * 4]
        assert {answer.status_code for answer in answers} == {401}
        assert all("invalid_token" in answer.headers["www-authenticate"] for answer in answers)


def test_this_machine_is_open_until_the_first_token_and_never_again(place: Path) -> None:
    with serving(place) as server:
        assert server.ask().status_code == 200
        token(place, "add", "phone")
        assert server.ask().status_code == 401
        token(place, "revoke", "phone")
        assert server.ask().status_code == 401


@pytest.mark.parametrize("workers", ["1", "2"])
def test_the_configuration_is_read_again_on_sighup(place: Path, workers: str) -> None:
    with serving(place, "--workers", workers) as server:
        assert server.write("A").startswith("Created")
        (place / "c.toml").write_text('[workspaces.Main]\nlocation = "notes"\nread_only = true\nhide = ["Tea.md"]\n')
        server.reload()
        until(lambda: (place / "log").read_text().count("was read again") == int(workers))
        assert all(server.write(f"B{number}").startswith("read_only") for number in range(8))
        assert all("Tea" not in server.ask().text for _ in range(8))
        (place / "c.toml").write_text("[workspaces.Main\n")
        server.reload()
        until(lambda: (place / "log").read_text().count("stays as it was") == int(workers))
        assert all(server.write("C").startswith("read_only") for _ in range(8))


def test_a_worker_that_takes_the_place_of_another_has_the_new_configuration(place: Path) -> None:
    with serving(place, "--workers", "2") as server:
        (place / "c.toml").write_text('[workspaces.Main]\nlocation = "notes"\nread_only = true\n')
        server.reload()
        until(lambda: all(server.write("B").startswith("read_only") for _ in range(8)))
        before = server.workers()
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        until(lambda: len(server.workers()) == 2 and not server.workers() & before)
        until(lambda: _tried(server) != "")
        assert all(server.write("B").startswith("read_only") for _ in range(8))


def _tried(server: Running) -> str:
    """What writing is answered with; nothing while nobody is at the door."""
    try:
        return server.write("B")
    except httpx2.TransportError:
        return ""
