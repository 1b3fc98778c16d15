"""The whole product from outside: `notewright serve` on real folders, over both wires, until it ends."""

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.conftest import write_files
from tests.server.lines import ENVELOPE, HELLO, NOTEWRIGHT, Lines, over_http

pytestmark = pytest.mark.slow

NOTES = {"Tea.md": "# Tea\n\nSteep it.\n", "Recipes/Bread.md": "See [[Tea]].\n", "Recipes/Broth.md": "Salt.\n"}
BOTH = {"accept": "application/json, text/event-stream"}


class Served(Lines):
    """`notewright serve` on stdio, for the folder `notes` of a place."""

    def __init__(self, place: Path, *words: str) -> None:
        super().__init__([NOTEWRIGHT, "serve", f"Main={place / 'notes'}", "--state", str(place / "state"), *words])


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write_files(tmp_path / "notes", NOTES)
    return tmp_path


@pytest.fixture
def client(place: Path) -> Iterator[httpx2.Client]:
    """`notewright serve --http` for the folder, when it is indexed, and a client at its address."""
    with (
        over_http(f"Main={place / 'notes'}", "--state", str(place / "state")) as address,
        httpx2.Client(base_url=address, headers=BOTH, timeout=20) as client,
    ):
        client.post("/mcp", json=rpc("tools/call", {"name": "search", "arguments": {"query": "tea"}}))
        yield client


def rpc(method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}


def modern(method: str, params: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    return rpc(method, params | {"_meta": ENVELOPE}), {"mcp-protocol-version": "2026-07-28", "mcp-method": method}


# ---- ending -------------------------------------------------------------------------------------------


def leave(server: Lines) -> None:
    server.leave()


def terminate(server: Lines) -> None:
    server.process.send_signal(signal.SIGTERM)


def interrupt(server: Lines) -> None:
    server.process.send_signal(signal.SIGINT)


@pytest.mark.parametrize("end", [leave, terminate, interrupt])
def test_an_idle_server_ends_within_a_second(place: Path, end: Callable[[Lines], None]) -> None:
    best = 10.0
    for _ in range(3):  # a busy machine may be slow once
        server = Served(place).greet()
        assert "Steep it." in server.text("read", path="Tea")
        begun = time.monotonic()
        end(server)
        server.process.wait(10)
        best = min(best, time.monotonic() - begun)
        server.leave()
        assert server.process.returncode == 0
        if best < 1:
            break
    assert best < 1


def test_what_was_asked_before_the_input_ended_is_answered(place: Path) -> None:
    server = Served(place).greet()
    asked = [server.ask("tools/call", {"name": "write", "arguments": {"path": f"N{n}", "content": "x"}}) for n in "123"]
    out, _ = server.leave()
    assert sorted(json.loads(line)["id"] for line in out.splitlines()) == asked
    assert sorted(path.name for path in (place / "notes").glob("N*.md")) == ["N1.md", "N2.md", "N3.md"]


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


def test_a_long_grep_says_how_far_it_is_and_stops_when_nobody_waits(large: Path) -> None:
    server = Served(large).greet()
    while "indexing" in server.text("grep", pattern="not in any note"):
        time.sleep(0.1)
    number = server.ask("tools/call", {"name": "grep", "arguments": SLOW, "_meta": {"progressToken": "p"}})
    heard = server.hear()
    assert heard.get("method") == "notifications/progress", heard
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


def test_a_listener_over_http_is_told_of_a_change_on_disk(place: Path, client: httpx2.Client) -> None:
    message, headers = modern("subscriptions/listen", {"notifications": {"resourceSubscriptions": ["note:///Tea.md"]}})
    with client.stream("POST", "/mcp/notes", json=message, headers=headers) as stream:
        lines = (json.loads(line[6:]) for line in stream.iter_lines() if line.startswith("data: "))
        assert next(lines)["method"] == "notifications/subscriptions/acknowledged"
        (place / "notes" / "Tea.md").write_text("# Tea\n\nLonger.\n")
        heard = next(lines)
    assert heard["method"] == "notifications/resources/updated"
    assert heard["params"]["uri"] == "note:///Tea.md"


def test_a_listener_on_stdio_is_told_of_a_change_on_disk(place: Path) -> None:
    server = Served(place)
    server.answer("tools/call", {"name": "search", "arguments": {"query": "tea"}, "_meta": ENVELOPE})
    wanted = {"resourceSubscriptions": ["note:///Tea.md"]}
    server.ask("subscriptions/listen", {"notifications": wanted, "_meta": ENVELOPE})
    assert server.hear()["method"] == "notifications/subscriptions/acknowledged"
    (place / "notes" / "Tea.md").write_text("# Tea\n\nLonger.\n")
    heard = server.hear()
    assert (heard["method"], heard["params"]["uri"]) == ("notifications/resources/updated", "note:///Tea.md")
    server.leave()


def test_paths_are_completed(place: Path) -> None:
    server = Served(place).greet()
    template = server.answer("resources/templates/list")["result"]["resourceTemplates"][0]["uriTemplate"]
    reference = {"type": "ref/resource", "uri": template}
    asked = {"ref": reference, "argument": {"name": "path", "value": "Recipes/br"}}
    values = server.answer("completion/complete", asked)["result"]["completion"]["values"]
    assert values == ["Recipes/Bread.md", "Recipes/Broth.md"]
    server.leave()


# ---- over HTTP ----------------------------------------------------------------------------------------


def test_the_address_book_of_the_http_server(client: httpx2.Client) -> None:
    read = rpc("tools/call", {"name": "read", "arguments": {"path": "Tea"}})
    for path in ("/mcp", "/mcp/notes", "/w/main/mcp/notes"):
        assert "Steep it." in client.post(path, json=read).text
    cairn = rpc("tools/call", {"name": "cairn_read", "arguments": {"path": "Tea.md"}})
    assert "Steep it." in client.post("/main/mcp", json=cairn).text
    for path in ("/w/other/mcp/notes", "/other/mcp", "/mcp/other"):
        assert client.post(path, json=read).status_code == 404
    assert client.get("/mcp").status_code == 405


def test_strangers_and_ended_sessions_are_refused(client: httpx2.Client) -> None:
    ping = rpc("ping")
    assert client.post("/mcp", json=ping, headers={"host": "evil.example"}).status_code == 421
    assert client.post("/mcp", json=ping, headers={"origin": "https://evil.example"}).status_code == 403
    session = client.post("/mcp/lens", json=rpc("initialize", HELLO)).headers["mcp-session-id"]
    assert client.delete("/mcp/lens", headers={"mcp-session-id": session}).status_code == 204
    assert client.delete("/mcp/lens", headers={"mcp-session-id": session}).status_code == 404


def test_the_http_server_ends_soon_though_somebody_listens(place: Path) -> None:
    message, headers = modern("subscriptions/listen", {"notifications": {"resourceSubscriptions": ["note:///Tea.md"]}})
    with contextlib.ExitStack() as stack:
        serving = stack.enter_context(contextlib.ExitStack())
        address = serving.enter_context(over_http(f"Main={place / 'notes'}", "--state", str(place / "state")))
        client = stack.enter_context(httpx2.Client(headers=BOTH, timeout=20))
        stream = stack.enter_context(client.stream("POST", f"{address}/mcp/notes", json=message, headers=headers))
        lines = (json.loads(line[6:]) for line in stream.iter_lines() if line.startswith("data: "))
        assert next(lines)["method"] == "notifications/subscriptions/acknowledged"
        begun = time.monotonic()
        serving.close()
        assert time.monotonic() - begun < 4  # it would wait five seconds for a request that does not end
        assert list(lines)[-1]["id"] == 1  # told that this is the end


def test_a_port_that_somebody_has_is_refused_in_words(place: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        asked = [NOTEWRIGHT, "serve", str(place / "notes"), "--http", str(taken.getsockname()[1])]
        done = subprocess.run(asked, capture_output=True, text=True, timeout=20)
    assert done.returncode == 1 and "already in use" in done.stderr and "serves" not in done.stderr


# ---- logs ---------------------------------------------------------------------------------------------


def test_a_log_level_that_is_none_is_refused_with_those_there_are(place: Path) -> None:
    asked = {**os.environ, "NOTEWRIGHT_LOG_LEVEL": "loud"}
    done = subprocess.run([NOTEWRIGHT, "serve", str(place / "notes")], env=asked, capture_output=True, text=True)
    assert done.returncode == 1 and "debug, info, warning, error" in done.stderr


@pytest.mark.parametrize(("level", "told"), [("warn", True), ("error", False)])
def test_octarine_logs_its_refusals_unless_told_otherwise(
    place: Path, monkeypatch: pytest.MonkeyPatch, level: str, told: bool
) -> None:
    monkeypatch.setenv("OCTARINE_LOG_LEVEL", level)
    server = Served(place, "--surface", "octarine").greet()
    assert "error" in server.text("octarine_read_note", workspace="Main", note_path="../secret.md")
    assert (b"octarine_read_note refused" in server.leave()[1]) is told
