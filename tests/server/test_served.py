"""The whole product from outside: `notewright serve` on real folders, over both wires, until it ends."""

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.conftest import write_files
from tests.server.lines import ENVELOPE, HELLO, Lines

NOTEWRIGHT = str(Path(sys.executable).with_name("notewright"))
NOTES = {"Tea.md": "# Tea\n\nSteep it.\n", "Recipes/Bread.md": "See [[Tea]].\n", "Recipes/Broth.md": "Salt.\n"}
BOTH = {"accept": "application/json, text/event-stream"}


class Served(Lines):
    """`notewright serve` on stdio, for the folder `notes` of a place."""

    def __init__(self, place: Path, *words: str) -> None:
        super().__init__([NOTEWRIGHT, "serve", f"Main={place / 'notes'}", "--state", str(place / "state"), *words])

    def ends_in(self) -> float:
        """Seconds until the process has ended by itself."""
        begun = time.monotonic()
        self.process.wait(10)
        took = time.monotonic() - begun
        self.leave()
        return took


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write_files(tmp_path / "notes", NOTES)
    return tmp_path


@contextlib.contextmanager
def over_http(place: Path, *words: str) -> Iterator[httpx2.Client]:
    """`notewright serve --http`, and a client at its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [NOTEWRIGHT, "serve", f"Main={place / 'notes'}", "--state", str(place / "state"), "--http", str(port)]
    process = subprocess.Popen([*command, *words], stderr=subprocess.PIPE)
    try:
        with httpx2.Client(base_url=f"http://127.0.0.1:{port}", headers=BOTH, timeout=20) as client:
            until = time.monotonic() + 30
            while process.poll() is None and time.monotonic() < until:
                with contextlib.suppress(httpx2.TransportError):
                    client.get("/healthz")
                    break
                time.sleep(0.05)
            yield client
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.communicate(timeout=10)
        finally:
            process.kill()


def rpc(method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}


def modern(method: str, params: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    return rpc(method, params | {"_meta": ENVELOPE}), {"mcp-protocol-version": "2026-07-28", "mcp-method": method}


# ---- ending -------------------------------------------------------------------------------------------


def test_an_idle_server_ends_within_a_second_of_its_input(place: Path) -> None:
    server = Served(place).greet()
    assert "Steep it." in server.text("read", path="Tea")
    begun = time.monotonic()
    server.leave()
    assert time.monotonic() - begun < 1
    assert server.process.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_server_ends_within_a_second_of_a_signal(place: Path, number: signal.Signals) -> None:
    server = Served(place).greet()
    assert "Steep it." in server.text("read", path="Tea")
    server.process.send_signal(number)
    assert server.ends_in() < 1
    assert server.process.returncode == 0


def test_what_was_asked_before_the_input_ended_is_answered(place: Path) -> None:
    server = Served(place).greet()
    asked = [server.ask("tools/call", {"name": "write", "arguments": {"path": f"N{n}", "content": "x"}}) for n in "123"]
    out, _ = server.leave()
    assert sorted(json.loads(line)["id"] for line in out.splitlines()) == asked
    assert sorted(path.name for path in (place / "notes").glob("N*.md")) == ["N1.md", "N2.md", "N3.md"]


def test_serving_a_folder_changes_no_byte_in_it(place: Path) -> None:
    def everything() -> dict[str, tuple[bytes, int]]:
        files = (path for path in (place / "notes").rglob("*") if path.is_file())
        return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}

    before = everything()
    server = Served(place).greet()
    server.text("search", query="tea")
    server.text("links", path="Tea")
    server.leave()
    assert everything() == before


@pytest.mark.slow
@pytest.mark.parametrize("wait", [0.0, 0.02, 0.05, 0.1, 0.2])
def test_a_rename_that_was_begun_is_finished_by_this_process_or_the_next(place: Path, wait: float) -> None:
    write_files(place / "notes", {f"L/{number:03}.md": "About [[Tea]].\n" for number in range(150)})
    server = Served(place).greet()
    server.text("search", query="tea")
    server.ask("tools/call", {"name": "move", "arguments": {"from": "Tea", "to": "Drinks/Chai"}})
    time.sleep(wait)
    server.process.kill()
    server.process.communicate()
    following = Served(place).greet()
    listed = following.text("list", glob="**/*.md", limit=500)
    following.leave()
    moved = (place / "notes" / "Drinks" / "Chai.md").exists()
    assert moved is not (place / "notes" / "Tea.md").exists()
    assert ("Drinks/Chai.md" in listed) is moved
    texts = {path.read_text() for path in (place / "notes" / "L").iterdir()}
    assert texts == {"About [[Chai]].\n" if moved else "About [[Tea]].\n"}


# ---- a long call --------------------------------------------------------------------------------------


SLOW = {"pattern": "a[ab ]{60}[0-9]"}  # on text without any order even a linear engine takes its time for this


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """So much text that a pattern nothing can narrow takes several seconds."""
    chance = random.Random(3)
    letters = bytes(b"ab "[number % 3] for number in range(256))
    text = [b"\n".join(chance.randbytes(1000).translate(letters) for _ in range(500)) for _ in range(40)]
    write_files(tmp_path / "notes", {f"{number}.md": text[number] for number in range(40)})
    return tmp_path


@pytest.mark.slow
def test_a_long_grep_says_how_far_it_is_and_stops_when_nobody_waits(large: Path) -> None:
    server = Served(large).greet()
    server.text("grep", pattern="not in any note")  # everything is indexed from here on
    number = server.ask("tools/call", {"name": "grep", "arguments": SLOW, "_meta": {"progressToken": "p"}})
    heard = server.hear()
    assert heard["method"] == "notifications/progress", heard
    assert heard["params"]["progressToken"] == "p" and heard["params"]["progress"] > 0
    server.tell("notifications/cancelled", {"requestId": number})
    begun = time.monotonic()
    out, _ = server.leave()
    assert time.monotonic() - begun < 3
    assert all("id" not in json.loads(line) for line in out.splitlines())


# ---- changes on disk ----------------------------------------------------------------------------------


def test_a_subscriber_on_stdio_is_told_of_a_change_on_disk(place: Path) -> None:
    server = Served(place).greet()
    server.answer("resources/subscribe", {"uri": "note:///Tea.md"})
    server.text("search", query="steep")
    (place / "notes" / "Recipes" / "Broth.md").write_text("More salt.\n")
    (place / "notes" / "Tea.md").write_text("# Tea\n\nLonger.\n")
    heard = server.hear()
    assert heard["method"] == "notifications/resources/updated"
    assert heard["params"]["uri"] == "note:///Tea.md"
    server.leave()


def test_a_listener_over_http_is_told_of_a_change_on_disk(place: Path) -> None:
    message, headers = modern("subscriptions/listen", {"notifications": {"resourceSubscriptions": ["note:///Tea.md"]}})
    with over_http(place) as client, client.stream("POST", "/mcp/notes", json=message, headers=headers) as stream:
        lines = (json.loads(line[6:]) for line in stream.iter_lines() if line.startswith("data: "))
        assert next(lines)["method"] == "notifications/subscriptions/acknowledged"
        (place / "notes" / "Tea.md").write_text("# Tea\n\nLonger.\n")
        heard = next(lines)
    assert heard["method"] == "notifications/resources/updated"
    assert heard["params"]["uri"] == "note:///Tea.md"


def test_paths_are_completed(place: Path) -> None:
    server = Served(place).greet()
    template = server.answer("resources/templates/list")["result"]["resourceTemplates"][0]["uriTemplate"]
    reference = {"type": "ref/resource", "uri": template}
    asked = {"ref": reference, "argument": {"name": "path", "value": "Recipes/br"}}
    values = server.answer("completion/complete", asked)["result"]["completion"]["values"]
    assert values == ["Recipes/Bread.md", "Recipes/Broth.md"]
    server.leave()


# ---- over HTTP ----------------------------------------------------------------------------------------


def test_the_address_book_of_the_http_server(place: Path) -> None:
    read = rpc("tools/call", {"name": "read", "arguments": {"path": "Tea"}})
    with over_http(place) as client:
        for path in ("/mcp", "/mcp/notes", "/w/main/mcp/notes"):
            assert "Steep it." in client.post(path, json=read).text
        cairn = rpc("tools/call", {"name": "cairn_read", "arguments": {"path": "Tea.md"}})
        assert "Steep it." in client.post("/main/mcp", json=cairn).text
        for path in ("/w/other/mcp/notes", "/other/mcp", "/mcp/other"):
            assert client.post(path, json=read).status_code == 404
        assert client.get("/mcp").status_code == 405
        assert client.post("/mcp", json=read, headers={"host": "evil.example"}).status_code == 421
        assert client.post("/mcp", json=read, headers={"origin": "https://evil.example"}).status_code == 403
        session = client.post("/mcp/lens", json=rpc("initialize", HELLO)).headers["mcp-session-id"]
        assert client.delete("/mcp/lens", headers={"mcp-session-id": session}).status_code == 204
        assert client.delete("/mcp/lens", headers={"mcp-session-id": session}).status_code == 404


def test_the_http_server_ends_at_a_signal_though_somebody_listens(place: Path) -> None:
    message, headers = modern("subscriptions/listen", {"notifications": {"resourceSubscriptions": ["note:///Tea.md"]}})
    with over_http(place) as client, client.stream("POST", "/mcp/notes", json=message, headers=headers) as stream:
        assert next(stream.iter_lines()) is not None
        begun = time.monotonic()
        # leaving `over_http` sends the signal and waits ten seconds at most
    assert time.monotonic() - begun < 8


# ---- logs ---------------------------------------------------------------------------------------------


def test_a_log_level_that_is_none_is_refused_with_those_there_are(place: Path) -> None:
    asked = {**os.environ, "NOTEWRIGHT_LOG_LEVEL": "loud"}
    done = subprocess.run([NOTEWRIGHT, "serve", str(place / "notes")], env=asked, capture_output=True, text=True)
    assert done.returncode == 1 and "debug, info, warning, error" in done.stderr
