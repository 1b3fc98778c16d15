"""MCP over real HTTP on loopback."""

import http.client
import json
import time
from collections.abc import Iterator
from typing import Any

import anyio
import httpx2
import pytest
import uvicorn
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from tests.mcp.echo import CAIRN, ECHO, NOTES, STRICT, Shelf
from tests.over_http import http_app
from tests.server.lines import ENVELOPE, HELLO
from tests.serving import in_thread

pytestmark = pytest.mark.slow

BOTH = {"accept": "application/json, text/event-stream"}


@pytest.fixture(scope="module")
def base() -> Iterator[str]:
    """The address of a server with four surfaces and two workspaces."""
    site = http_app(
        lambda: Shelf("Main", "Other"), [ECHO, STRICT, NOTES, CAIRN], http_origins=("https://good.example",)
    )
    with in_thread(uvicorn.Server(uvicorn.Config(site, log_level="warning", timeout_graceful_shutdown=2))) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def client(base: str) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=base, headers=BOTH, timeout=20) as client:
        yield client


def rpc(method: str, params: dict[str, Any] | None = None, number: int | None = 1) -> dict[str, Any]:
    message = {"jsonrpc": "2.0", "method": method, "params": params or {}}
    return message if number is None else message | {"id": number}


def told(response: httpx2.Response) -> Any:
    """The last message of an answer, be it JSON or a stream of events."""
    if response.headers["content-type"].startswith("application/json"):
        return response.json()
    return [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: {")][-1]


def text(response: httpx2.Response) -> str:
    return str(told(response)["result"]["content"][0]["text"])


def call(tool: str, **args: Any) -> dict[str, Any]:
    return rpc("tools/call", {"name": tool, "arguments": args})


def modern(method: str, params: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """A request of the 2026 era and its headers."""
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": method}
    if named := params.get("name", params.get("uri")):
        headers["mcp-name"] = named
    return rpc(method, params | {"_meta": ENVELOPE}), headers


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/mcp/echo", "echo who http main,other"),
        ("/w/other/mcp/echo", "echo who http other"),
        ("/mcp", "notes who http main,other"),
        ("/other/mcp", "cairn who http other"),
    ],
)
def test_every_surface_is_served_for_the_library_and_for_one_workspace(
    client: httpx2.Client, path: str, words: str
) -> None:
    assert words in text(client.post(path, json=call("who")))


@pytest.mark.parametrize("path", ["/mcp/nope", "/w/nope/mcp/echo", "/nope/mcp", "/w/Other/mcp/echo", "/nope"])
def test_what_is_not_there_is_404(client: httpx2.Client, path: str) -> None:
    assert client.post(path, json=call("who")).status_code == 404


def test_a_get_is_refused_instead_of_left_hanging(client: httpx2.Client) -> None:
    refused = client.get("/mcp/echo")
    assert (refused.status_code, refused.headers["allow"]) == (405, "POST, DELETE")


def test_the_server_says_that_it_is_well(client: httpx2.Client) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 421),
        ({"host": "127.0.0.1.evil.example"}, 421),
        ({"host": "localhost:9999"}, 200),
        ({"host": "[::1]:80"}, 200),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://localhost.evil.example"}, 403),
        ({"origin": "https://good.example"}, 200),
    ],
)
def test_a_page_of_somebody_else_cannot_reach_us(client: httpx2.Client, headers: dict[str, str], status: int) -> None:
    assert client.post("/mcp/echo", json=call("noop"), headers=headers).status_code == status
    assert client.get("/healthz", headers=headers).status_code == status


def test_a_page_that_the_owner_named_may_ask_and_read(client: httpx2.Client) -> None:
    asking = {"access-control-request-method": "POST", "access-control-request-headers": "content-type,mcp-session-id"}
    asked = client.options("/mcp/echo", headers={"origin": "https://good.example", **asking})
    assert (asked.status_code, asked.headers["access-control-allow-origin"]) == (200, "https://good.example")
    answer = client.post("/mcp/echo", json=call("noop"), headers={"origin": "https://good.example"})
    assert answer.headers["access-control-allow-origin"] == "https://good.example"
    assert answer.headers["access-control-expose-headers"] == "mcp-session-id, www-authenticate, retry-after"
    assert client.options("/mcp/echo", headers={"origin": "https://evil.example", **asking}).status_code == 403
    local = client.post("/mcp/echo", json=call("noop"), headers={"origin": "http://localhost:3000"})
    assert "access-control-allow-origin" not in local.headers


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{nonsense", -32700),
        (b"[]", -32600),
        (b'{"id": 1, "method": "ping"}', -32600),
        (b'{"jsonrpc": "2.0"}', -32600),
    ],
)
def test_what_is_no_message_is_answered(client: httpx2.Client, body: bytes, code: int) -> None:
    refused = client.post("/mcp/echo", content=body, headers={"content-type": "application/json"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, code)


def test_a_request_that_is_too_large_is_413(client: httpx2.Client) -> None:
    refused = client.post("/mcp/echo", json=call("echo", text="x" * (64 << 20)))
    assert (refused.status_code, refused.text) == (413, f"A request here may have {64 << 20} bytes at most")


def test_an_answer_of_eight_megabytes_arrives(client: httpx2.Client) -> None:
    long = "é" * (4 << 20)
    assert text(client.post("/mcp/echo", json=call("echo", text=long))) == long


def test_a_client_that_takes_only_json_gets_json(client: httpx2.Client) -> None:
    answer = client.post("/mcp/echo", json=call("noop"), headers={"accept": "application/json"})
    assert answer.headers["content-type"].startswith("application/json") and text(answer) == "ok"


def test_odd_answers_and_crashes_arrive_as_on_stdio(client: httpx2.Client) -> None:
    assert text(client.post("/mcp/echo", json=call("odd"))) == "a\ufffdb"
    crashed = told(client.post("/mcp/echo", json=call("fail", how="crash")))["result"]
    assert crashed["isError"] and "secret" not in json.dumps(crashed)


@pytest.mark.parametrize("era", ["2025", "2026"])
@pytest.mark.parametrize("path", ["/mcp/echo", "/mcp/notes"])
def test_a_refusal_may_choose_its_status(client: httpx2.Client, era: str, path: str) -> None:
    message, headers = call("fail", how="limited"), {}
    if era == "2026":
        message, headers = modern("tools/call", {"name": "fail", "arguments": {"how": "limited"}})
    refused = client.post(path, json=message, headers=headers)
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "7")
    assert refused.json() == {
        "jsonrpc": "2.0",
        "id": 1,
        "error": {"code": -32004, "message": "slow down", "data": {"retryAfter": 7}},
    }


def test_a_client_is_known_by_its_session(client: httpx2.Client) -> None:
    hello = client.post("/mcp/echo", json=rpc("initialize", HELLO))
    session = {"mcp-session-id": hello.headers["mcp-session-id"]}
    assert text(client.post("/mcp/echo", json=call("who"), headers=session)) == "tester echo who http main,other True"
    assert text(client.post("/mcp/echo", json=call("who"), headers=session)).endswith("False")
    assert text(client.post("/mcp/echo", json=call("who"))).endswith("True")  # without it, everybody is new
    assert client.delete("/mcp/echo", headers=session).status_code == 204
    assert client.post("/mcp/echo", json=call("who"), headers=session).status_code == 404
    assert client.post("/mcp/echo", json=call("who"), headers={"mcp-session-id": "before a restart"}).status_code == 200


def test_a_surface_with_sessions_wants_one(client: httpx2.Client) -> None:
    missing = client.post("/mcp/strict", json=call("noop"))
    assert (missing.status_code, missing.json()["error"]) == (
        400,
        {"code": -32600, "message": "Missing mcp-session-id header"},
    )
    unknown = client.post("/mcp/strict", json=call("noop"), headers={"mcp-session-id": "x"})
    assert (unknown.status_code, unknown.json()["error"]) == (404, {"code": -32600, "message": "Session not found"})
    assert client.delete("/mcp/strict").status_code == 400
    session = {"mcp-session-id": client.post("/mcp/strict", json=rpc("initialize", HELLO)).headers["mcp-session-id"]}
    early = told(client.post("/mcp/strict", json=call("noop"), headers=session))
    assert early["error"]["code"] == -32603 and early["error"]["message"].startswith("Session not initialized")
    ready = client.post("/mcp/strict", json=rpc("notifications/initialized", number=None), headers=session)
    assert ready.status_code == 202
    served = client.post("/mcp/strict", json=call("noop"), headers=session)
    assert text(served) == "ok" and served.headers["content-type"].startswith("application/json")
    assert client.post("/mcp/echo", json=call("noop"), headers=session).status_code == 200  # another surface's


def test_a_request_of_the_2026_era_needs_no_session(client: httpx2.Client) -> None:
    message, headers = modern("tools/call", {"name": "who", "arguments": {}})
    first = client.post("/mcp/strict", json=message, headers=headers)
    assert text(first).startswith("modern strict who http main,other")
    assert told(first)["result"]["resultType"] == "complete"
    assert text(client.post("/mcp/strict", json=message, headers=headers)).endswith("False")  # known by its name


def test_blanks_around_a_header_do_not_matter(base: str) -> None:
    message, headers = modern("tools/call", {"name": "noop", "arguments": {}})
    connection = http.client.HTTPConnection(base.removeprefix("http://"), timeout=20)
    headers |= BOTH | {"mcp-name": "noop  ", "content-type": "application/json"}
    connection.request("POST", "/mcp/echo", json.dumps(message), headers)
    assert connection.getresponse().status == 200
    connection.close()


def test_a_request_of_the_2026_era_lists_tools_and_resources(client: httpx2.Client) -> None:
    for method, key, count in (("tools/list", "tools", 7), ("resources/list", "resources", 100)):
        message, headers = modern(method, {})
        assert len(told(client.post("/mcp/echo", json=message, headers=headers))["result"][key]) == count


@pytest.mark.parametrize(("era", "code"), [("2025", -32002), ("2026", -32602)])
def test_a_resource_that_is_not_there_is_refused_in_the_words_of_its_era(
    client: httpx2.Client, era: str, code: int
) -> None:
    message, headers = rpc("resources/read", {"uri": "note:///no.md"}), {}
    if era == "2026":
        message, headers = modern("resources/read", {"uri": "note:///no.md"})
    error = told(client.post("/w/main/mcp/echo", json=message, headers=headers))["error"]
    assert (error["code"], error["data"]) == (code, {"uri": "note:///no.md"})


def test_progress_comes_with_the_stream(client: httpx2.Client) -> None:
    slow = {"name": "slow", "arguments": {"seconds": 0.4}, "_meta": {"progressToken": 5}}
    answer = client.post("/mcp/echo", json=rpc("tools/call", slow))
    assert answer.text.count("notifications/progress") >= 2 and text(answer) == "slept"


@pytest.mark.parametrize("accept", ["application/json", "application/json, text/event-stream"])
def test_a_client_that_hangs_up_stops_its_call(
    client: httpx2.Client, capfd: pytest.CaptureFixture[str], accept: str
) -> None:
    with pytest.raises(httpx2.ReadTimeout):
        client.post("/mcp/echo", json=call("slow", seconds=60), timeout=0.3, headers={"accept": accept})
    until, heard = time.monotonic() + 5, ""
    while "slow was cancelled" not in heard and time.monotonic() < until:
        time.sleep(0.02)
        heard += capfd.readouterr().err
    assert "slow was cancelled" in heard


def test_calls_run_beside_each_other(base: str) -> None:
    async def many() -> float:
        async with httpx2.AsyncClient(base_url=base, headers=BOTH, timeout=20) as client:
            begun = time.monotonic()
            async with anyio.create_task_group() as group:
                for number in range(20):
                    message = call("slow", seconds=0.5) | {"id": number % 2}  # some clients give every call one id
                    group.start_soon(lambda message=message: client.post("/mcp/echo", json=message))
            return time.monotonic() - begun

    assert anyio.run(many) < 5


def test_a_listener_is_told_of_changes_in_its_workspace(client: httpx2.Client) -> None:
    message, headers = modern("subscriptions/listen", {"notifications": {"resourceSubscriptions": ["note:///n001.md"]}})
    with client.stream("POST", "/w/main/mcp/echo", json=message, headers=headers) as stream:
        lines = (line for line in stream.iter_lines() if line.startswith("data: "))
        assert json.loads(next(lines)[6:])["method"] == "notifications/subscriptions/acknowledged"
        client.post("/w/other/mcp/echo", json=call("touch", path="n001.md"))
        client.post("/w/main/mcp/echo", json=call("touch", path="n002.md"))
        client.post("/w/main/mcp/echo", json=call("touch", path="n001.md"))
        heard = json.loads(next(lines)[6:])
    assert heard["method"] == "notifications/resources/updated"
    assert heard["params"]["uri"] == "note:///n001.md"


@pytest.mark.parametrize("mode", ["legacy", "auto", "2026-07-28"])
@pytest.mark.parametrize("surface", ["echo", "strict"])
def test_the_python_sdk_client_is_served(base: str, mode: str, surface: str) -> None:
    async def talk() -> list[str]:
        async with Client(streamable_http_client(f"{base}/mcp/{surface}"), mode=mode) as client:
            tools = (await client.list_tools()).tools
            answer = await client.call_tool("echo", {"text": "hello"})
            return [tools[0].name, answer.content[0].text]  # type: ignore[union-attr]

    assert anyio.run(talk) == ["echo", "hello"]
