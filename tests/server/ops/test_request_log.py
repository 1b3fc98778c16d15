"""Every request has an id, in its answer, in what is logged for it, and in one line when it is over."""

import contextlib
import hashlib
import json
import logging
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from tests.mcp.echo import ECHO, Shelf
from tests.over_http import client_of, http_app
from tests.server.watched import Watched, watched
from tests.serving import in_thread
from tests.waiting import eventually

from notewright.mcp.thread_pool import ThreadPool
from notewright.server import request_context as visit
from notewright.server.ops.logs import JsonLines, TextLines
from notewright.server.request_context import CURRENT_REQUEST, RequestContext
from notewright.server.request_log import RequestLog

pytestmark = pytest.mark.slow

ID = re.compile(r"[0-9a-f]{16}")


class Heard(logging.Handler):
    """The lines of one logger and those below it, in the form that is asked for."""

    def __init__(self, form: logging.Formatter) -> None:
        super().__init__()
        self.setFormatter(form)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@contextlib.contextmanager
def hearing(name: str, form: logging.Formatter | None = None, level: int = logging.INFO) -> Iterator[list[str]]:
    logger, heard = logging.getLogger(name), Heard(form or TextLines())
    before = logger.level
    logger.addHandler(heard)
    logger.setLevel(level)
    try:
        yield heard.lines
    finally:
        logger.removeHandler(heard)
        logger.setLevel(before)


@contextlib.contextmanager
def serving(site: Any) -> Iterator[str]:
    server = uvicorn.Server(uvicorn.Config(site, log_config=None, proxy_headers=False, timeout_graceful_shutdown=2))
    with in_thread(server) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    with watched(tmp_path_factory.mktemp("trace")) as server:
        yield server


def test_every_answer_bears_an_id_of_its_own(server: Watched) -> None:
    answers = [server.get(path) for path in ("/healthz", "/healthz", "/nowhere", "/mcp/notes")]
    answers.append(server.get("/healthz", host="evil.example"))
    ids = [answer.headers["x-request-id"] for answer in answers]
    assert all(ID.fullmatch(one) for one in ids) and len(set(ids)) == len(ids)


def test_an_id_that_a_stranger_sends_is_not_taken(server: Watched) -> None:
    assert ID.fullmatch(server.get("/healthz", **{"x-request-id": "mine"}).headers["x-request-id"])


def test_an_id_is_taken_from_a_trusted_proxy_if_it_is_one(tmp_path: Path) -> None:
    with watched(tmp_path, http_trusted_proxies="127.0.0.1") as server:
        for given in ("a", "A-9" * 21, "0" * 64):
            assert server.get("/healthz", **{"x-request-id": given}).headers["x-request-id"] == given
        for given in ("", "0" * 65, "with blank", "semi;colon", "a_b", 'quo"te'):
            assert ID.fullmatch(server.get("/healthz", **{"x-request-id": given}).headers["x-request-id"])


def test_a_request_leaves_one_line_with_its_route_and_tool_and_nothing_of_its_notes(tmp_path: Path) -> None:
    with watched(tmp_path) as server:
        token = server.token("anna@example.org")
        with hearing("notewright.access") as lines, server.client("notes", token) as notes:
            notes.call("read", {"path": "Secret Plan"})
            eventually(lambda: "notes.read" in "".join(lines))
            answer = notes.client.get("/w/private-diary/nowhere?path=Secret%20Plan")
            eventually(lambda: "GET none" in "".join(lines))
    user = hashlib.sha256(b"anna@example.org").hexdigest()[:16]
    [read] = [line for line in lines if "notes.read" in line]  # the handshake's lines may come after it
    [lost] = [line for line in lines if "GET none" in line]
    form = rf"INFO notewright\.access \[{ID.pattern}\]: "
    call = rf"POST /mcp/\{{surface\}} 200 [\d.]+ ms \d+ bytes, notes\.read, not_found, user {user}"
    assert re.fullmatch(form + call, read), read
    assert re.fullmatch(form + rf"GET none 404 [\d.]+ ms 9 bytes, user {user}", lost), lost
    assert f"[{answer.headers['x-request-id']}]" in lost
    for word in ("Secret", "anna", token, token[3:12], "path=", "private-diary"):
        assert word not in "".join(lines)


def test_as_json_the_line_holds_the_same_as_members(server: Watched) -> None:
    with hearing("notewright.access", JsonLines()) as lines:
        answer = server.get("/healthz?token=nw_abcdefghijklmnop")
        eventually(lambda: lines)
    told = json.loads(lines[-1])
    assert told["request"] == answer.headers["x-request-id"] and told["level"] == "info"
    assert (told["method"], told["route"], told["status"], told["bytes"]) == ("GET", "/healthz", 200, 15)
    assert isinstance(told["ms"], float) and "nw_" not in lines[-1]


def test_nothing_is_written_where_nobody_asked_for_it(server: Watched) -> None:
    with hearing("notewright.access", level=logging.WARNING) as lines:
        server.get("/healthz")
    assert lines == []


def test_what_a_worker_thread_logs_names_the_request_it_works_for() -> None:
    with (
        serving(http_app(lambda: Shelf("Main"), [ECHO])) as address,
        hearing("notewright") as lines,
        client_of(address, "echo") as client,
    ):
        asked = {"name": "fail", "arguments": {"how": "crash"}}
        answers = [
            client.client.post("/mcp/echo", json={"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": asked})
            for _ in range(3)
        ]
    failed = [line for line in lines if ": fail failed\n" in line]
    assert [f"[{answer.headers['x-request-id']}]" in line for answer, line in zip(answers, failed, strict=True)] == [
        True
    ] * 3
    assert all("RuntimeError: a secret" in line for line in failed)


def test_calls_at_once_each_log_their_own_request() -> None:
    """The context goes with the job and not with the thread, which does one after the other."""
    workers, seen = ThreadPool(threads=2), dict[str, str]()

    async def page(request: Request) -> Response:
        name = request.query_params["name"]

        def work() -> None:
            now = CURRENT_REQUEST.get()
            seen[name] = now.id if now is not None else ""

        await workers.run(work)
        return PlainTextResponse("ok")

    site = Starlette(routes=[Route("/", page)], middleware=[Middleware(RequestLog, lambda _: None, lambda _: False)])
    with serving(site) as address:
        told: dict[str, str] = {}

        def ask(name: str) -> None:
            told[name] = httpx2.get(f"{address}/?name={name}").headers["x-request-id"]

        threads = [threading.Thread(target=ask, args=(f"n{number}",)) for number in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
    workers.close()
    assert seen == told and len(set(told.values())) == 20
    assert CURRENT_REQUEST.get() is None


def test_a_request_that_fails_is_logged_and_answered_with_where_to_look(tmp_path: Path) -> None:
    async def broken(request: Request) -> Response:
        raise RuntimeError("a secret")

    async def halfway(request: Request) -> Response:
        async def parts() -> Any:
            yield b"begun"
            raise RuntimeError("too late")

        return StreamingResponse(parts())

    told: list[RequestContext] = []
    routes = [Route("/broken", broken), Route("/halfway", halfway)]
    with (
        serving(Starlette(routes=routes, middleware=[Middleware(RequestLog, told.append, lambda _: False)])) as address,
        hearing("notewright.server.request_log") as lines,
        hearing("uvicorn.error", level=logging.CRITICAL),
    ):
        answer = httpx2.get(f"{address}/broken")
        with pytest.raises(httpx2.HTTPError):
            httpx2.get(f"{address}/halfway")
        eventually(lambda: len(told) == 2)
    assert answer.status_code == 500 and answer.headers["x-request-id"] == answer.json()["request"]
    assert "a secret" not in answer.text
    assert f"[{answer.json()['request']}]" in lines[0] and "RuntimeError: a secret" in lines[0]
    assert [(visit.route, visit.status) for visit in told] == [("/broken", 500), ("/halfway", 200)]


def test_the_first_reason_of_a_refusal_is_the_one() -> None:
    visit.note_refusal("nobody asked")  # outside of a request
    before = CURRENT_REQUEST.set(RequestContext("1"))
    visit.note_refusal("host")
    visit.note_refusal("origin")
    told = CURRENT_REQUEST.get()
    CURRENT_REQUEST.reset(before)
    assert told is not None and told.refusal == "host"
