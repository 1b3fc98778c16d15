"""Messages that no text can carry, or that are too deep, on every wire: refused in words, with nothing in the log."""

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.server.guarded import Guarded, guarded
from tests.server.lines import ENVELOPE, HELLO, NOTEWRIGHT, Lines

pytestmark = pytest.mark.slow

INVALID_PARAMS = -32602
HALF = "\ud800"
Ask = Callable[[dict[str, Any]], dict[str, Any]]
ODD: dict[str, tuple[str, dict[str, Any]]] = {
    "tool": ("tools/call", {"name": HALF, "arguments": {}}),
    "tool with progress": ("tools/call", {"name": HALF, "arguments": {}, "_meta": {"progressToken": 1}}),
    "beside the arguments": ("tools/call", {"name": "read", "arguments": {}, HALF: 1}),
    "resource": ("resources/read", {"uri": f"note:///{HALF}"}),
    "only that": ("resources/read", {"uri": HALF}),
    "cursor": ("resources/list", {"cursor": HALF}),
    "prompt": ("prompts/get", {"name": HALF}),
    "completion": (
        "completion/complete",
        {"ref": {"type": "ref/resource", "uri": "note:///{path}"}, "argument": {"name": "path", "value": HALF}},
    ),
    "deep": ("resources/read", {"uri": json.loads("[" * 600 + "]" * 600)}),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded(tmp_path_factory.mktemp("odd"), tokens=False) as running:
        yield running


@pytest.fixture(scope="module")
def stdio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lines]:
    lines = _lines(tmp_path_factory.mktemp("old"))
    lines.answer("initialize", HELLO)
    lines.tell("notifications/initialized")
    yield lines
    lines.leave()


@pytest.fixture(scope="module")
def modern_stdio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lines]:
    lines = _lines(tmp_path_factory.mktemp("new"))
    yield lines
    lines.leave()


def _lines(place: Path) -> Lines:
    (place / "notes").mkdir()
    return Lines([NOTEWRIGHT, "serve", str(place / "notes"), "--state", str(place / "state")])


def _posted(server: Guarded, message: dict[str, Any], **headers: str) -> dict[str, Any]:
    sent = {"accept": "application/json, text/event-stream", "content-type": "application/json", **headers}
    answer = server.ask("POST", "/mcp/notes", sent, json.dumps(message).encode())
    assert answer.status < 500, answer.whole
    text = (
        answer.text.partition("data: ")[2] if answer.headers["content-type"].startswith("text/event") else answer.text
    )
    heard = json.loads(text)
    assert isinstance(heard, dict)
    return heard


def _lined(lines: Lines, message: dict[str, Any]) -> dict[str, Any]:
    lines.send(message)
    heard = lines.hear()
    assert isinstance(heard, dict)
    return heard


def _modern(message: dict[str, Any]) -> dict[str, Any]:
    params = message["params"]
    return {**message, "params": {**params, "_meta": {**ENVELOPE, **params.get("_meta", {})}}}


@pytest.fixture(params=["http", "http 2026", "stdio", "stdio 2026"])
def ask(request: pytest.FixtureRequest) -> Ask:
    """One request over one wire, and its answer."""
    if request.param == "http":
        return lambda message: _posted(request.getfixturevalue("server"), message)
    if request.param == "stdio":
        return lambda message: _lined(request.getfixturevalue("stdio"), message)
    if request.param == "stdio 2026":
        return lambda message: _lined(request.getfixturevalue("modern_stdio"), _modern(message))

    def posted(message: dict[str, Any]) -> dict[str, Any]:
        named = {"mcp-protocol-version": "2026-07-28", "mcp-method": message["method"], "mcp-name": "read"}
        return _posted(request.getfixturevalue("server"), _modern(message), **named)

    return posted


@pytest.mark.parametrize(("method", "params"), ODD.values(), ids=ODD)
def test_what_is_no_text_or_too_deep_is_refused_in_words(
    ask: Ask, method: str, params: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        answer = ask({"jsonrpc": "2.0", "id": 7, "method": method, "params": params})
    assert (answer["id"], answer["error"]["code"]) == (7, INVALID_PARAMS)
    assert "lone surrogate" in answer["error"]["message"] or "too deeply" in answer["error"]["message"]
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize("meta", [{}, {"progressToken": 1}], ids=["plain", "progress"])
@pytest.mark.parametrize(
    ("path", "words"),
    [
        (HALF, "path holds a lone surrogate"),
        (json.loads("[" * 300 + "]" * 300), "nested too deeply"),
        (json.loads("[" * 600 + "]" * 600), "nested too deeply"),
        ("\x00", "control character"),
    ],
    ids=["half a letter", "300 deep", "600 deep", "NUL"],
)
def test_a_tool_says_what_is_wrong_with_its_arguments(ask: Ask, path: Any, words: str, meta: dict[str, Any]) -> None:
    params = {"name": "read", "arguments": {"path": path}, "_meta": meta}
    answer = ask({"jsonrpc": "2.0", "id": 8, "method": "tools/call", "params": params})
    text = answer["result"]["content"][0]["text"]
    assert answer["result"]["isError"] and text.startswith("invalid: ") and words in text


def test_an_id_that_is_no_text_is_not_given_back(server: Guarded, stdio: Lines) -> None:
    message = {"jsonrpc": "2.0", "id": HALF, "method": "tools/call", "params": {"name": "list", "arguments": {}}}
    for answer in (_posted(server, message), _lined(stdio, message)):
        assert (answer["id"], answer["error"]["code"]) == (None, INVALID_PARAMS)


def test_news_that_are_no_text_are_answered_by_nothing(stdio: Lines) -> None:
    stdio.tell("notifications/cancelled", {"requestId": HALF})
    assert "result" in stdio.answer("ping")


@pytest.mark.parametrize(
    "kind", ["Application/JSON", "application/json; charset=utf-8", "APPLICATION/JSON;Charset=UTF-8"]
)
@pytest.mark.parametrize("meta", [{}, {"progressToken": 1}], ids=["plain", "progress"])
@pytest.mark.parametrize("accept", ["Application/JSON, Text/Event-Stream", "*/*"])
def test_the_case_of_a_media_type_means_nothing(server: Guarded, kind: str, meta: dict[str, Any], accept: str) -> None:
    params = {"name": "list", "arguments": {}, "_meta": meta}
    message = {"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": params}
    headers = {"content-type": kind, "accept": accept}
    assert "result" in _posted(server, message, **headers)
    assert "result" in _posted(server, {"jsonrpc": "2.0", "id": 9, "method": "resources/list"}, **headers)
    asked = server.ask("POST", "/api/v1/workspaces/garden/undo", {"content-type": kind}, b"{}")
    assert "Content-Type" not in asked.text and asked.status == 400
