"""MCP over a real pipe, line by line."""

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from tests.server.lines import ENVELOPE, HELLO, Lines

from notewright.mcp.stdio.leader_follower import LineReaders

pytestmark = pytest.mark.slow

ECHO = Path(__file__).with_name("echo.py")


class Server(Lines):
    """One that serves the echo surface."""

    def __init__(self, surface: str = "echo") -> None:
        super().__init__([sys.executable, str(ECHO), surface])


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.leave()
    assert server.process.returncode == 0


@pytest.fixture(scope="module")
def greeted() -> Iterator[Server]:
    """One that many tests share."""
    server = Server().greet()
    yield server
    server.leave()
    assert server.process.returncode == 0


def test_a_client_is_greeted_and_its_calls_are_answered(server: Server) -> None:
    greeted = server.answer("initialize", HELLO)["result"]
    assert greeted["protocolVersion"] == "2025-06-18"
    assert greeted["serverInfo"]["name"] == "notewright"
    assert greeted["instructions"] == "Say things."
    server.tell("notifications/initialized")
    assert server.call("echo", text="häh")["result"] == {
        "content": [{"type": "text", "text": "häh"}],
        "isError": False,
    }


def test_an_unknown_revision_is_answered_with_the_newest_that_shakes_hands(server: Server) -> None:
    assert (
        server.answer("initialize", HELLO | {"protocolVersion": "1999-01-01"})["result"]["protocolVersion"]
        == "2025-11-25"
    )


def test_tools_are_listed_with_their_schemas_exactly_as_given(greeted: Server) -> None:
    listed = greeted.answer("tools/list")["result"]["tools"]
    assert listed[0] == {
        "name": "echo",
        "description": "Says it back.",
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
        "annotations": {"readOnlyHint": True},
    }


def test_the_short_way_answers_what_the_sdk_would() -> None:
    answers = []
    for way in ("short", "long"):
        server = Server()
        if way == "long":  # a request before the handshake: from there on the SDK hears everything
            assert server.answer("resources/list")["error"]["code"] == -32602
        asked = [("initialize", HELLO), ("ping", {}), ("tools/list", {}), ("tools/call", {"name": "odd"})]
        answers.append([server.answer(*one)["result"] for one in asked])
        server.leave()
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    ("line", "code", "number"),
    [
        (b"{nonsense", -32700, None),
        (b"\xff\xfe", -32700, None),
        (b"[" * 100_000, -32700, None),
        (b"[]", -32600, None),
        (b'"text"', -32600, None),
        (b'{"id": 5, "method": "ping"}', -32600, 5),
        (b'{"jsonrpc": "2.0", "id": 5}', -32600, 5),
        (b'{"jsonrpc": "2.0", "id": true, "method": "ping"}', -32600, None),
        (b'{"jsonrpc": "2.0", "id": null, "method": "ping"}', -32600, None),
        (b'{"jsonrpc": "2.0", "id": 1.5, "method": "ping"}', -32600, None),
        (b'{"jsonrpc": "2.0", "id": 5, "method": "ping", "params": [1]}', -32600, 5),
        (b'{"jsonrpc": "2.0", "id": 5, "method": "no/such"}', -32601, 5),
        (b'{"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {}}', -32602, 5),
        (b'{"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "echo", "arguments": 3}}', -32602, 5),
        (b'{"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "nope"}}', -32602, 5),
    ],
)
def test_what_is_no_message_is_answered_and_the_next_one_is_served(
    greeted: Server, line: bytes, code: int, number: int | None
) -> None:
    greeted.send(line)
    heard = greeted.hear()
    assert (heard["error"]["code"], heard["id"]) == (code, number)
    assert greeted.text("echo", text="on we go") == "on we go"


def test_a_lone_surrogate_is_an_argument_that_is_not_text(greeted: Server) -> None:
    greeted.send(
        b'{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"echo","arguments":{"text":"a\\ud800"}}}'
    )
    heard = greeted.hear()["result"]
    assert heard["isError"] and "lone surrogate" in heard["content"][0]["text"]


def test_a_lone_surrogate_in_an_answer_is_replaced(greeted: Server) -> None:
    odd = greeted.call("odd")["result"]
    assert odd["content"] == [
        {"type": "text", "text": "a\ufffdb"},
        {"type": "image", "data": "iVBORw==", "mimeType": "image/png"},
    ]
    assert odd["_meta"] == {"truncated": True}


def test_a_message_that_is_too_long_is_refused_and_the_next_one_is_served(greeted: Server) -> None:
    greeted.send(b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":"' + b"x" * (64 << 20) + b'"}')
    heard = greeted.hear()
    assert (heard["error"]["code"], heard["id"]) == (-32600, None)
    assert "64 MiB" in heard["error"]["message"]
    assert greeted.text("noop") == "ok"


def test_sixteen_megabytes_go_in_and_out(greeted: Server) -> None:
    text = "é" * (8 << 20)
    assert greeted.text("echo", text=text) == text


def test_a_client_that_reads_nothing_until_it_has_said_everything_is_not_locked_out(greeted: Server) -> None:
    for _ in range(40):
        greeted.ask("tools/call", {"name": "echo", "arguments": {"text": "x" * 50_000}})
    assert {greeted.hear()["id"] for _ in range(40)} == set(range(greeted.number - 39, greeted.number + 1))


def test_what_goes_wrong_is_told_without_its_secrets(server: Server) -> None:
    server.greet()
    crashed = server.call("fail", how="crash")["result"]
    assert crashed["isError"] and "secret" not in json.dumps(crashed)
    assert server.text("fail", how="missing") == "not_found: nothing there"
    assert b"a secret" in server.leave()[1]


def test_what_a_tool_prints_does_not_reach_the_client(server: Server) -> None:
    server.greet()
    assert server.text("fail", how="print") == "printed"
    out, err = server.leave()
    assert out == b"" and b"stray words" in err


def test_calls_run_beside_each_other(greeted: Server) -> None:
    begun = time.monotonic()
    for _ in range(20):
        greeted.ask("tools/call", {"name": "slow", "arguments": {"seconds": 0.5}})
    quick = greeted.ask("tools/call", {"name": "noop"})
    heard = [greeted.hear() for _ in range(21)]
    assert heard[0]["id"] == quick
    assert time.monotonic() - begun < 5  # one after the other would be ten seconds


def test_short_calls_asked_in_one_breath_are_done_one_after_the_other_by_one_thread() -> None:
    """Threads that hand the interpreter to each other take longer than such calls do."""
    doers: list[int] = []
    ended = threading.Event()

    def do() -> Callable[[], None]:
        doers.append(threading.get_ident())
        time.sleep(0.0001)  # as a file is read: another thread may run
        return lambda: None

    out, into = os.pipe()
    LineReaders(out, lambda line: do, ended.set, max_bytes=100).start()
    for _ in range(10):
        os.write(into, b"call\n" * 40)
    os.close(into)
    assert ended.wait(10)
    changes = sum(one != other for one, other in itertools.pairwise(doers))
    assert len(doers) == 400 and changes < 200  # a busy machine may stop the one for a while


def test_calls_in_flight_are_answered_when_the_input_ends(server: Server) -> None:
    server.greet()
    number = server.ask("tools/call", {"name": "slow", "arguments": {"seconds": 0.5}})
    out, err = server.leave()
    assert json.loads(out)["id"] == number
    assert b"library closed" in err


def test_everything_asked_in_one_breath_is_answered_in_order_of_the_handshake() -> None:
    server = Server()
    asked = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
        {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "noop"}},
    ]
    out, _ = server.process.communicate("\n".join(map(json.dumps, asked)).encode(), timeout=10)  # no last line end
    assert [json.loads(line)["id"] for line in out.splitlines()] == [1, 2, 3]


def test_a_plain_file_can_be_the_input(tmp_path: Path) -> None:
    script = tmp_path / "asked"
    script.write_text(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}) + "\n")
    with script.open() as asked, (tmp_path / "told").open("wb") as told:
        subprocess.run([sys.executable, str(ECHO)], stdin=asked, stdout=told, timeout=20, check=True)
    assert json.loads((tmp_path / "told").read_text())["id"] == 1


def test_every_call_of_a_hasty_client_is_answered_once(tmp_path: Path) -> None:
    """Bursts, pauses, short and long calls, through a pipe and through a file: no thread may sleep through its call."""
    chance = random.Random(7)
    lines = [
        {"jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": HELLO},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
    ]
    for number in range(1500):
        slow = chance.random() < 0.02
        params = {"name": "slow" if slow else "echo", "arguments": {"seconds": 0.02} if slow else {"text": "x" * 3000}}
        lines.append({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})
    (tmp_path / "asked").write_text("\n".join(map(json.dumps, lines)))
    with (tmp_path / "asked").open() as asked:
        done = subprocess.run([sys.executable, str(ECHO)], stdin=asked, capture_output=True, timeout=20)
    told = [json.loads(line)["id"] for line in done.stdout.splitlines()]
    assert len(told) == len(set(told)) == 1501
    server = Server()
    heard: list[str] = []
    listening = threading.Thread(target=lambda: [heard.append(server.hear()["id"]) for _ in range(1501)])
    listening.start()
    for line in lines:
        server.send(line)
        if chance.random() < 0.1:
            time.sleep(chance.random() / 1000)
    listening.join(20)
    server.leave()
    assert len(set(heard)) == 1501


def test_nothing_at_all_is_an_end_too() -> None:
    done = subprocess.run([sys.executable, str(ECHO)], stdin=subprocess.DEVNULL, capture_output=True, timeout=20)
    assert (done.returncode, done.stdout) == (0, b"")


def test_an_idle_process_ends_within_a_second_of_its_input() -> None:
    took = []
    while len(took) < 3 and min(took, default=9) >= 1:  # a busy machine may be slow once
        server = Server().greet()
        server.answer("resources/list")  # with the SDK loaded too
        begun = time.monotonic()
        server.leave()
        took.append(time.monotonic() - begun)
    assert min(took) < 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_process_when_its_calls_are_done(server: Server, number: signal.Signals) -> None:
    server.greet()
    asked = server.ask("tools/call", {"name": "slow", "arguments": {"seconds": 0.4}, "_meta": {"progressToken": 1}})
    assert server.hear()["method"] == "notifications/progress"  # it is under way
    os.kill(server.process.pid, number)
    while (heard := server.hear()).get("method") == "notifications/progress":
        pass
    assert heard["id"] == asked
    assert server.process.wait(20) == 0
    assert server.process.stderr is not None and b"library closed" in server.process.stderr.read()


def test_a_call_that_takes_too_long_does_not_keep_the_process(server: Server) -> None:
    server.greet()
    server.ask("tools/call", {"name": "slow", "arguments": {"seconds": 60}})
    begun = time.monotonic()
    server.leave()
    assert 4 < time.monotonic() - begun < 30  # five seconds of patience; the call itself takes sixty


def test_a_cancelled_call_stops_and_is_not_answered(server: Server) -> None:
    server.greet()
    slow = {"name": "slow", "arguments": {"seconds": 30}, "_meta": {"progressToken": 1}}
    number = server.ask("tools/call", slow)
    assert server.hear()["method"] == "notifications/progress"  # it is under way
    server.tell("notifications/cancelled", {"requestId": number})
    out, err = server.leave()
    assert b"slow was cancelled" in err
    assert all("id" not in json.loads(line) for line in out.splitlines())


@pytest.mark.parametrize("request_id", [[1], {}, None, 1.5])
def test_a_cancellation_of_what_is_no_id_is_passed_over(greeted: Server, request_id: Any) -> None:
    greeted.answer("resources/list")  # which the SDK answers: from now on it gets all that the fast path leaves
    greeted.tell("notifications/cancelled", {"requestId": request_id})
    assert greeted.text("echo", text="on we go") == "on we go"


def test_progress_is_told_to_those_who_ask_for_it(greeted: Server) -> None:
    number = greeted.ask(
        "tools/call", {"name": "slow", "arguments": {"seconds": 0.4}, "_meta": {"progressToken": "how far"}}
    )
    heard = [greeted.hear()]
    while heard[-1].get("id") != number:
        heard.append(greeted.hear())
    told = [message["params"] for message in heard[:-1]]
    assert 2 <= len(told) <= 6
    assert all(message["progressToken"] == "how far" and message["total"] == 20 for message in told)


def test_a_call_knows_its_client_and_what_was_done_once(server: Server) -> None:
    server.greet()
    assert server.text("who") == "tester echo who stdio main,other True"
    assert server.text("who").endswith("False")


def test_a_strict_surface_wants_the_whole_handshake() -> None:
    server = Server("strict")
    server.answer("initialize", HELLO)
    refused = server.call("noop")["error"]
    assert refused["code"] == -32603 and refused["message"].startswith("Session not initialized")
    server.tell("notifications/initialized")
    assert server.text("noop") == "ok"
    assert server.call("echo")["error"] == {"code": -32602, "message": "text is required"}
    server.leave()


def test_resources_are_listed_page_by_page_read_and_completed(greeted: Server) -> None:
    page = greeted.answer("resources/list")["result"]
    assert len(page["resources"]) == 100
    assert page["resources"][0]["uri"] == "note:///Main/n000.md"
    uris = [one["uri"] for one in page["resources"]]
    while cursor := page.get("nextCursor"):
        page = greeted.answer("resources/list", {"cursor": cursor})["result"]
        uris += [one["uri"] for one in page["resources"]]
    assert len(uris) == len(set(uris)) == 600
    read = greeted.answer("resources/read", {"uri": "note:///Main%2Fn007.md"})["result"]["contents"][0]
    assert read["text"] == "# n007.md é" and read["mimeType"] == "text/markdown"
    missing = greeted.answer("resources/read", {"uri": "note:///Main/none.md"})["error"]
    assert (missing["code"], missing["data"]) == (-32002, {"uri": "note:///Main/none.md"})
    assert greeted.answer("resources/list", {"cursor": "x"})["error"]["code"] == -32602
    template = greeted.answer("resources/templates/list")["result"]["resourceTemplates"][0]["uriTemplate"]
    ref = {"type": "ref/resource", "uri": template}
    begun = greeted.answer("completion/complete", {"ref": ref, "argument": {"name": "path", "value": "Main/n01"}})
    assert begun["result"]["completion"]["values"] == [f"Main/n01{digit}.md" for digit in range(10)]


def test_a_subscriber_is_told_of_a_change_in_its_own_spelling(greeted: Server) -> None:
    greeted.answer("resources/subscribe", {"uri": "note:///Main%2Fn001.md"})
    touching = greeted.ask("tools/call", {"name": "touch", "arguments": {"path": "n001.md"}})
    heard = {message.get("method", "answer"): message for message in (greeted.hear(), greeted.hear())}
    assert heard["answer"]["id"] == touching
    assert heard["notifications/resources/updated"]["params"]["uri"] == "note:///Main%2Fn001.md"
    greeted.answer("resources/unsubscribe", {"uri": "note:///Main%2Fn001.md"})
    assert greeted.text("touch", path="n001.md").startswith("touched")


def test_prompts_are_listed_and_filled_in(greeted: Server) -> None:
    assert greeted.answer("prompts/list")["result"]["prompts"][0]["arguments"][0]["required"] is True
    got = greeted.answer("prompts/get", {"name": "greet", "arguments": {"name": "Ann"}})["result"]
    assert got["messages"][0]["content"]["text"] == "Greet Ann."
    assert greeted.answer("prompts/get", {"name": "greet"})["error"]["code"] == -32602
    assert greeted.answer("prompts/get", {"name": "nope"})["error"]["code"] == -32602


def test_a_client_of_the_2026_era_is_served_without_a_handshake(server: Server) -> None:
    called = server.answer("tools/call", {"name": "who", "arguments": {}, "_meta": ENVELOPE})["result"]
    assert called["content"][0]["text"] == "modern echo who stdio main,other True"
    assert called["resultType"] == "complete"
    assert len(server.answer("tools/list", {"_meta": ENVELOPE})["result"]["tools"]) == 7
    listen = {"notifications": {"resourceSubscriptions": ["note:///Other/a.md"]}, "_meta": ENVELOPE}
    server.ask("subscriptions/listen", listen)
    assert server.hear()["method"] == "notifications/subscriptions/acknowledged"
    begun = time.monotonic()
    server.leave()
    assert time.monotonic() - begun < 1.5  # a stream that never ends is not waited for


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_the_python_sdk_client_is_served(mode: str) -> None:
    async def talk() -> list[str]:
        parameters = StdioServerParameters(command=sys.executable, args=[str(ECHO)])
        async with Client(stdio_client(parameters), mode=mode) as client:  # type: ignore[arg-type]
            tools = (await client.list_tools()).tools
            answer = await client.call_tool("echo", {"text": "hello"})
            return [tools[0].name, answer.content[0].text]  # type: ignore[union-attr]

    assert anyio.run(talk) == ["echo", "hello"]
