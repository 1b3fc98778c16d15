"""No secret is written anywhere, and nobody writes a line of their own into what the owner reads."""

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from tests.conftest import write_files
from tests.server.lines import HELLO, NOTEWRIGHT
from tests.waiting import eventually

from notewright.accounts.base import Grant
from notewright.accounts.limits import RateLimits
from notewright.accounts.sqlite import SqliteAccounts
from notewright.engine.library import new_token
from notewright.server.auth.authenticate import Authenticate, AuthSettings, GuardedRoute
from notewright.server.auth.browser_session import BrowserSessions
from notewright.server.ops.audit_log import AuditLog
from notewright.server.request_log import RequestLog

pytestmark = pytest.mark.slow
FORGED = "2026-01-01 ERROR notewright: the owner said so"
NAME = f"x\n{FORGED}\r\n\x1b[31m\u2028{FORGED}"  # as a client may call itself


@dataclass
class Running:
    """A server process, and everything it leaves behind."""

    port: int
    place: Path
    token: str
    process: "subprocess.Popen[bytes]"
    log: Path

    def ask(self, method: str, path: str, headers: dict[str, str], body: bytes = b"") -> tuple[int, str, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, str(answer.headers), answer.read().decode("utf-8", "replace")
        finally:
            connection.close()

    @property
    def said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def left(self) -> Iterator[tuple[str, bytes]]:
        """Every file of ours, and what the system tells of our processes."""
        for folder in ("state", "tmp"):
            for file in sorted((self.place / folder).rglob("*")):
                if file.is_file():
                    yield str(file.relative_to(self.place)), file.read_bytes()
        for process in [self.process.pid, *children(self.process.pid)]:
            for name in ("cmdline", "environ", "comm"):
                with contextlib.suppress(OSError):
                    yield f"{process} {name}", Path(f"/proc/{process}/{name}").read_bytes()


def children(process: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(one) for one in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    return []


@pytest.fixture(scope="module", params=["text", "json"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    place = tmp_path_factory.mktemp(request.param)
    write_files(place / "Quaint", {"Tea.md": "# Tea\n", f"a\n{FORGED}.md": "odd\n"})
    (place / "tmp").mkdir()
    state = ["--state", str(place / "state")]
    made = subprocess.run([NOTEWRIGHT, "token", "add", "owner", *state], capture_output=True, text=True, check=True)
    token = made.stdout.split()[0]
    assert token.startswith("nw_")
    workers = ["--workers", "2"] if request.param == "json" else []
    settings = {"NOTEWRIGHT_LOG_LEVEL": "debug", "NOTEWRIGHT_LOG_FORMAT": request.param, "TMPDIR": str(place / "tmp")}
    log = place / "log"
    with log.open("wb") as out:
        words = [NOTEWRIGHT, "serve", str(place / "Quaint"), "--http", "0", *state, *workers]
        process = subprocess.Popen(words, stderr=out, stdout=out, env={**os.environ, **settings})
        try:
            found = eventually(lambda: re.search(r"http://127\.0\.0\.1:(\d+)/mcp", log.read_text()))
            assert found, log.read_text()
            running = Running(int(found[1]), place, token, process, log)
            assert eventually(lambda: _answers(running))
            _visit(running)
            yield running
        finally:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
            process.wait()


def _answers(server: Running) -> bool:
    with contextlib.suppress(OSError):
        return server.ask("GET", "/healthz", {})[0] == 200
    return False


def _visit(server: Running) -> None:
    """Everything that people do with a token, the wrong things too."""
    token = server.token
    good, odd = {"authorization": f"Bearer {token}"}, {"user-agent": f"{NAME!r} {token}", "x-request-id": f"{FORGED}"}
    sent = {"content-type": "application/json", "accept": "application/json", **good, **odd}
    hello = {**HELLO, "clientInfo": {"name": NAME, "version": NAME}}
    begin = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}).encode()
    headers = server.ask("POST", "/mcp/notes", sent, begin)[1]
    session = re.search(r"mcp-session-id: (\S+)", headers)
    assert session
    for tool, args in (
        ("list", {}),
        ("write", {"path": "New", "content": "x"}),
        ("read", {"path": NAME}),
        ("read", {"path": token}),
        (NAME, {}),
        ("search", {"query": f"{token} {NAME}"}),
        ("write", {"path": f"{NAME}", "content": "x"}),
    ):
        call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": tool, "arguments": args}}
        server.ask("POST", "/mcp/notes", {**sent, "mcp-session-id": session[1]}, json.dumps(call).encode())
        server.ask("POST", "/mcp/obsidian", sent, json.dumps(call).encode())
    for path in (
        "/",
        f"/w/quaint/notes/{quote(NAME)}",
        f"/mcp?access_token={token}",
        f"/{token}/mcp",
        f"/nothing/{token}",
    ):
        for way in ({}, good, {"authorization": f"Bearer {token}x"}, {"authorization": f"Basic {token}"}):
            server.ask("GET", path, {**way, **odd, "accept": "text/html"})
    page = server.ask("GET", "/sign-in", {"accept": "text/html"})[2]
    csrf = re.search(r'name="csrf" value="(\w+)"', page)
    assert csrf
    for told in (token, f"{token}x", f"nw_{NAME}"):
        form = urlencode({"csrf": csrf[1], "token": told, "next": f"/{token}"}).encode()
        kind = {"content-type": "application/x-www-form-urlencoded", "accept": "text/html"}
        server.ask("POST", "/sign-in", {**kind, **odd}, form)
    named = json.dumps({"name": "second", "hide": ["Private/**"]}).encode()
    made = server.ask("POST", "/api/v1/tokens", sent, named)
    assert made[0] == 201, made
    server.ask("DELETE", f"/api/v1/tokens/{quote(NAME)}", sent)
    server.ask("POST", "/api/v1/workspaces", sent, json.dumps({"name": NAME, "location": token}).encode())
    server.ask("GET", "/metrics", good)
    server.ask("GET", "/healthz", {"host": f"{token}.example", "origin": f"https://{token}.example"})
    (server.place / "second").write_text(json.loads(made[2])["token"], encoding="utf-8")


def test_a_token_stands_nowhere(server: Running) -> None:
    time.sleep(0.3)
    secrets = [server.token, (server.place / "second").read_text(encoding="utf-8")]
    for secret in secrets:
        assert secret.startswith("nw_") and secret not in server.said
        for name, data in server.left():
            assert secret.encode() not in data, name
    assert "initialize" in server.said or "/mcp/{surface}" in server.said


def test_the_audit_log_is_the_owners_and_holds_no_secret(server: Running) -> None:
    file = server.place / "state" / "state" / "audit.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines()
    events = [json.loads(line)["event"] for line in lines]
    assert {"write", "refused", "sign_in", "sign_in_failed", "admin"} <= set(events)
    assert server.token not in "".join(lines) and all(line.isascii() for line in lines)
    for place in (file, *(server.place / "state" / "state").glob("registry.db*")):
        assert place.stat().st_mode & 0o077 == 0, place
    assert (server.place / "state" / "state").stat().st_mode & 0o077 == 0


def test_nobody_writes_a_line_of_their_own(server: Running) -> None:
    lines = server.said.splitlines()
    assert not any(line.startswith(FORGED[:20]) for line in lines)
    assert "\x1b[31m" not in server.said
    log = [line for line in lines if line.startswith("{")]
    for line in log:
        assert json.loads(line)["level"] in ("debug", "info", "warning", "error")
    audit = (server.place / "state" / "state" / "audit.jsonl").read_text(encoding="utf-8").splitlines()
    assert not any(line.startswith(FORGED[:20]) for line in audit)


def test_an_id_of_a_request_is_ours(server: Running) -> None:
    status, headers, _ = server.ask("GET", "/healthz", {"x-request-id": "chosen-by-the-client"})
    given = re.search(r"x-request-id: (\S+)", headers)
    assert status == 200 and given and re.fullmatch(r"[0-9a-f]{16}", given[1])
    assert "chosen-by-the-client" not in server.said


def test_a_token_that_a_command_revokes_is_refused_at_once_by_every_worker(server: Running) -> None:
    state = ["--state", str(server.place / "state")]
    made = subprocess.run([NOTEWRIGHT, "token", "add", "guest", *state], capture_output=True, text=True, check=True)
    guest = {"authorization": f"Bearer {made.stdout.split()[0]}"}
    assert {server.ask("GET", "/api/v1/me", guest)[0] for _ in range(20)} == {200}
    subprocess.run([NOTEWRIGHT, "token", "revoke", "guest", *state], capture_output=True, check=True)
    assert {server.ask("GET", "/api/v1/me", guest)[0] for _ in range(20)} <= {401, 429}


def test_numbers_name_nobody(server: Running) -> None:
    text = server.ask("GET", "/metrics", {"authorization": f"Bearer {server.token}"})[2]
    assert "notewright_calls_total" in text
    for word in (server.token, "owner", "Tea", "claude", FORGED, "quaint", str(server.place)):
        assert word.lower() not in text.lower(), word


def test_what_fails_tells_its_caller_nothing_and_its_owner_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever an exception says of the request that made it."""
    registry = SqliteAccounts.in_memory()
    secret = new_token(registry, "owner", Grant(), now=time.time())

    async def broken(request: Request) -> Response:
        raise RuntimeError(f"could not use {request.headers['authorization']} of /secret/place")

    doors = [GuardedRoute("/broken", broken, need="read")]
    site = Starlette(
        routes=doors,
        middleware=[
            Middleware(RequestLog, lambda _: None, lambda _: False),
            Middleware(Authenticate, AuthSettings(registry, BrowserSessions(b"key"), RateLimits()), doors),
        ],
    )
    answer = _asked(site, "/broken", {"authorization": f"Bearer {secret}"})
    assert answer[0] == 500 and secret not in answer[1] and "/secret/place" not in answer[1]
    assert set(json.loads(answer[1])) == {"error", "error_description", "request"}
    from notewright.server.ops.logs import JsonLines, TextLines

    records = [record for record in caplog.records if record.exc_info]
    assert records
    for form in (JsonLines(), TextLines()):
        assert all(secret not in form.format(record) for record in records)


def _asked(site: Starlette, path: str, headers: dict[str, str]) -> tuple[int, str]:
    import anyio
    import httpx2

    async def ask() -> tuple[int, str]:
        transport = httpx2.ASGITransport(site)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            answer = await client.get(path, headers=headers)
            return answer.status_code, answer.text

    return anyio.run(ask)


def test_an_audit_log_that_cannot_be_written_stops_nobody_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    AuditLog(tmp_path / "file" / "audit.jsonl").record_admin("token_added", user="x")
    assert "the audit log cannot be written: Not a directory" in caplog.text
