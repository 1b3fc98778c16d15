"""Requests that are too large, too slow, too deep or two at once: refused, and nobody else waits for them."""

import gzip
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.server.guarded import HTML, JSON, Guarded, guarded
from tests.server.lines import ENVELOPE
from tests.waiting import eventually

from notewright.config.settings import SURFACES
from notewright.engine.changes.history import list_changes
from notewright.ledger.base import ChangeQuery
from notewright.server.listen.bounded_protocol import ConnectionLimits

pytestmark = pytest.mark.slow

SENT = {**JSON, "content-type": "application/json"}
MOST = 1 << 20  # bytes of a request, as this server is told
PATIENT = ConnectionLimits(head_seconds=1.0, body_seconds=1.0, rest_seconds=1.0)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded(tmp_path_factory.mktemp("guarded"), limits=PATIENT) as running:
        yield running


def alive(server: Guarded) -> bool:
    began = time.monotonic()
    return server.ask("GET", "/healthz").status == 200 and time.monotonic() - began < 5


# ---- two requests in one ------------------------------------------------------------------------------

SECOND = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
LENGTH = b"Content-Length: %d\r\n" % (5 + len(SECOND))
CHUNKED = b"Transfer-Encoding: chunked\r\n"
DOUBTFUL = {
    "a length and pieces": LENGTH + CHUNKED + b"\r\n0\r\n\r\n" + SECOND,
    "pieces and a length": CHUNKED + b"Content-Length: 4\r\n\r\n%x\r\n" % len(SECOND) + SECOND + b"\r\n0\r\n\r\n",
    "two lengths": b"Content-Length: 0\r\nContent-Length: %d\r\n\r\n" % len(SECOND) + SECOND,
    "a length with a plus": b"Content-Length: +2\r\n\r\n{}" + SECOND,
    "a length below nothing": b"Content-Length: -2\r\n\r\n{}" + SECOND,
    "a length in hex": b"Content-Length: 0x2\r\n\r\n{}" + SECOND,
    "a length without end": b"Content-Length: 99999999999999999999999\r\n\r\n{}" + SECOND,
    "a length with a blank before it": b"Content-Length : 2\r\n\r\n{}" + SECOND,
    "an empty length": b"Content-Length:\r\n\r\n" + SECOND,
    "pieces of another kind": b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + SECOND,
    "no pieces": b"Transfer-Encoding: identity\r\n\r\n" + SECOND,
    "pieces and then none": b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + SECOND,
    "pieces, said twice": CHUNKED + b"Transfer-Encoding: identity\r\n\r\n0\r\n\r\n" + SECOND,
    "pieces behind an odd blank": b"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n" + SECOND,
    "a piece below nothing": CHUNKED + b"\r\n-1\r\n\r\n" + SECOND,
    "a piece in another hex": CHUNKED + b"\r\n0x0\r\n\r\n" + SECOND,
    "nothing in a header": b"X: a\x00b\r\nContent-Length: 2\r\n\r\n{}" + SECOND,
    "half a line end": b"X: a\rContent-Length: 0\r\nContent-Length: %d\r\n\r\n" % len(SECOND) + SECOND,
}


@pytest.mark.parametrize("case", DOUBTFUL)
def test_where_a_request_ends_is_never_in_doubt(server: Guarded, case: str) -> None:
    """A proxy in front of us may think otherwise, and let the second one through unseen."""
    for path in (b"/mcp/notes", b"/sign-in"):
        head = b"POST " + path + b" HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n"
        heard = server.raw(head % server.tokens["owner"].encode() + DOUBTFUL[case], 3)
        assert re.findall(rb"HTTP/1\.1 (\d+)", heard) == [b"400"], heard


def test_two_names_are_none(server: Guarded) -> None:
    for hosts in (("localhost", "evil.example"), ("evil.example", "localhost"), ("localhost", "localhost")):
        lines = "".join(f"Host: {host}\r\n" for host in hosts)
        heard = server.raw(f"GET /healthz HTTP/1.1\r\n{lines}Connection: close\r\n\r\n".encode())
        assert re.match(rb"HTTP/1\.1 4(00|21)", heard), hosts


def test_what_a_refused_request_still_sends_is_not_the_next_one(server: Guarded) -> None:
    for path in ("/metrics", "/mcp/notes", "/nothing", "/api/v1/tokens"):
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(SECOND)}\r\n\r\n".encode()
        heard = server.raw(head + SECOND + b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 3)
        assert re.findall(rb"HTTP/1\.1 (\d+)", heard) == [b"401", b"200"], heard


def test_what_comes_behind_a_body_is_no_header(server: Guarded) -> None:
    """No proxy looks there."""
    token = server.tokens["owner"]
    for more in (f"Authorization: Bearer {token}", "Host: evil.example", "Origin: https://evil.example", "X-A: b"):
        head = "POST /metrics HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        heard = server.raw(f"{head}2\r\n{{}}\r\n0\r\n{more}\r\n\r\n".encode(), 3)
        assert heard.startswith(b"HTTP/1.1 401"), (more, heard)


@pytest.mark.parametrize("start", [b"0\r\nX: ", b"0\r\n", b"1;"], ids=["a long one", "many", "words on a piece"])
def test_headers_behind_a_body_are_bounded(server: Guarded, start: bytes) -> None:
    unit = b"X: abcdefgh\r\n" * 5000 if start == b"0\r\n" else b"a" * 65_000
    head = b"POST /sign-in HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    heard = server.raw(head + start + unit * 20, 5)
    assert re.match(rb"HTTP/1\.1 4(00|31)", heard), heard[:200]
    assert alive(server)


# ---- large --------------------------------------------------------------------------------------------


def test_no_route_takes_more_than_it_should(server: Guarded) -> None:
    for door in server.doors:
        path = re.sub(
            r"{(\w+)(:\w+)?}", lambda found: {"id": "garden", "workspace": "garden"}.get(found[1], "x"), door.path
        )
        path = path.replace("/mcp/x", "/mcp/notes")
        kind = "application/zip" if path.endswith("/import") else "application/json"
        for method in {"POST", "PUT", "PATCH", "DELETE"} & set(door.methods or ("POST",)):
            token = f"Authorization: Bearer {server.tokens['owner']}"
            head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{token}\r\nContent-Type: {kind}\r\n"
            head += "Connection: close\r\n"
            said = server.raw(f"{head}Content-Length: {MOST * 50}\r\n\r\n".encode(), 5)
            assert said.startswith(b"HTTP/1.1 413"), (method, path, said[:200])
            pieces = b"%x\r\n" % 65536 + b"x" * 65536 + b"\r\n"
            heard = server.raw(head.encode() + CHUNKED + b"\r\n" + pieces * (MOST // 65536 + 4), 5)
            unread = door.path in ("/api", "/api/{rest:path}")  # nothing is there to read it
            assert heard.startswith(b"HTTP/1.1 404" if unread else b"HTTP/1.1 413"), (method, path, heard[:200])
    assert alive(server)


def test_a_stranger_is_refused_before_what_they_send_is_read(server: Guarded) -> None:
    head = b"POST /mcp/notes HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as client:
        client.sendall(head)
        assert client.recv(1000).startswith(b"HTTP/1.1 401")


def test_large_requests_of_one_caller_wait_outside_and_leave_others_room(tmp_path: Path) -> None:
    """However many connections somebody has: of large requests only as many are taken in as may run at once."""
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"x": "y" * 900_000}}).encode()
    with guarded(tmp_path, limits=PATIENT, http__calls_at_once=2) as server:
        head = f"POST /mcp/notes HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {server.tokens['reader']}\r\n"
        head += f"Content-Type: application/json\r\nAccept: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        stalled = [socket.create_connection(("127.0.0.1", server.port), timeout=10) for _ in range(2)]
        try:
            for client in stalled:
                client.sendall(head.encode() + body[:400_000])
            time.sleep(0.3)
            with socket.create_connection(("127.0.0.1", server.port), timeout=10) as third:
                third.sendall(head.encode() + body)
                third.settimeout(0.2)
                with pytest.raises(TimeoutError):
                    third.recv(1)
                assert server.call("owner", "notes", "list", {}).status == 200
                third.settimeout(20)
                assert third.recv(15) == b"HTTP/1.1 200 OK"  # the others are shown out by then
        finally:
            for client in stalled:
                client.close()


# ---- deep, odd and packed -----------------------------------------------------------------------------

WRAPPED = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"%s","arguments":%s}}'
BOMBS = {
    "deep lists": "[" * 100_000,
    "deep closed lists": "[" * 50_000 + "]" * 50_000,
    "deep objects": '{"a":' * 50_000 + "1" + "}" * 50_000,
    "a deep argument": WRAPPED % ("x", '{"a":' * 20_000 + "1" + "}" * 20_000),
    "a huge number": WRAPPED % ("x", '{"limit":1' + "0" * 300_000 + "}"),
    "a huge id": '{"jsonrpc":"2.0","id":1' + "0" * 10_000 + ',"method":"ping"}',
    "an endless number": WRAPPED % ("x", '{"limit":1e999999}'),
    "no number": WRAPPED % ("x", '{"limit":NaN,"offset":-Infinity}'),
    "one key twice": '{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call","params":{},"params":{"name":"x"}}',
    "half a letter": WRAPPED % ("x", '{"path":"\\ud800"}'),
    "many keys": "{" + ",".join(f'"{number}":1' for number in range(60_000)) + "}",
    "a batch": "[" + ",".join([WRAPPED % ("x", "{}")] * 500) + "]",
    "a long name": WRAPPED % ("x" * 500_000, "{}"),
    "nothing": "",
    "null": "null",
    "text": '"x"',
    "not JSON": "{'a': 1}",
    "another letter set": "\ufeff" + WRAPPED % ("x", "{}"),
}


@pytest.mark.parametrize("case", BOMBS)
def test_json_that_means_harm_is_no_more_than_a_mistake(server: Guarded, case: str) -> None:
    body = BOMBS[case].encode()
    for path in [f"/mcp/{name}" for name in SURFACES] + ["/api/v1/workspaces/garden/undo", "/api/v1/tokens"]:
        session = server.session("owner", path.rpartition("/")[2]) if path.startswith("/mcp/") else {}
        for era in ({}, {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "x"}):
            began = time.monotonic()
            said = server.ask("POST", path, {**SENT, **server.bearer("owner"), **session, **era}, body)
            assert said.status in (200, 202, 400, 404, 409, 413, 422), (path, said.status, said.text[:300])
            assert "Traceback" not in said.text and time.monotonic() - began < 5
    assert len(server.site.registry.tokens()) == len(server.tokens) - 1  # all but the one nobody made


def test_bytes_that_are_no_text_are_no_more_than_a_mistake(server: Guarded) -> None:
    for body in (b"\xff\xfe\x00{", "{}".encode("utf-16"), bytes(range(256)), b"\x00" * 1000, b"\x1f\x8b\x08"):
        for path in ("/mcp/notes", "/mcp/lens", "/api/v1/tokens", "/sign-in", "/tokens"):
            said = server.ask("POST", path, {**SENT, **server.bearer("owner")}, body)
            assert said.status in (400, 403), (path, said.text)


def test_a_body_that_is_packed_is_not_unpacked(server: Guarded) -> None:
    call = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}).encode()
    bomb = gzip.compress(call + b" " * 50_000_000)
    assert len(bomb) < MOST
    for body in (gzip.compress(call), bomb):
        for packing in ("gzip", "deflate", "br", "gzip, gzip"):
            headers = {**SENT, **server.bearer("owner"), "content-encoding": packing}
            assert server.ask("POST", "/mcp/notes", headers, body).status in (400, 415)
            assert server.ask("POST", "/api/v1/tokens", headers, body).status in (400, 415)


@pytest.mark.parametrize("era", ["2025", "2026"])
def test_who_calls_themselves_by_a_book_is_known_by_its_first_words(server: Guarded, era: str) -> None:
    name = "N" * 300_000
    sent, args = {**SENT, **server.bearer("owner")}, {"path": f"Garden/Of the year {era}", "content": "x"}
    write = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "write", "arguments": args}}
    if era == "2025":
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": name, "version": "1"}}
        begin = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}
        given = server.ask("POST", "/mcp/notes", sent, json.dumps(begin).encode()).headers["mcp-session-id"]
        assert len(given) < 500
        more = {"mcp-session-id": given}
    else:
        info = {**ENVELOPE, "io.modelcontextprotocol/clientInfo": {"name": name, "version": "1"}}
        write["params"]["_meta"] = info  # type: ignore[index]
        more = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "write"}
    done = server.ask("POST", "/mcp/notes", {**sent, **more}, json.dumps(write).encode())
    assert not done.json()["result"]["isError"], done.text
    ws = next(ws for ws in server.site.library.workspaces() if ws.id == "garden")
    assert 0 < len(list_changes(ws, ChangeQuery(limit=1))[0].actor.client) <= 200


# ---- slow and many ------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", ["head", "body"])
def test_who_sends_by_the_byte_is_shown_out_and_keeps_nobody_waiting(server: Guarded, part: str) -> None:
    head = f"POST /mcp/notes HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {server.tokens['owner']}\r\n".encode()
    sent = head * 100 if part == "head" else b"x" * 10_000
    before = b"" if part == "head" else head + b"Content-Type: application/json\r\nContent-Length: 10000\r\n\r\n"
    answers: list[bytes] = []

    def send() -> None:
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as client:
            client.sendall(before)
            began = time.monotonic()
            client.settimeout(0.1)
            for byte in sent:
                try:
                    client.sendall(bytes([byte]))
                    if heard := client.recv(1000):
                        answers.append(heard)
                        return
                    break
                except TimeoutError:
                    if time.monotonic() - began > 15:
                        return
                except OSError:
                    break
            answers.append(b"cut off")

    slow = [threading.Thread(target=send) for _ in range(20)]
    for each in slow:
        each.start()
    assert all(alive(server) for _ in range(20))
    for each in slow:
        each.join(20)
    assert len(answers) == 20 and all(heard.startswith((b"HTTP/1.1 408", b"cut off")) for heard in answers), answers


def test_a_head_of_any_size_is_not_kept(server: Guarded) -> None:
    for bomb in (
        b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"".join(b"X-%d: y\r\n" % number for number in range(50_000)),
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 500_000,
        b"GET /" + b"a" * 500_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nCookie: " + b"a=b; " * 100_000 + b"\r\n\r\n",
        b"\r\n" * 100_000,
        b"A" * 500_000,
    ):
        heard = server.raw(bomb, 5)
        assert not heard or re.match(rb"HTTP/1\.1 4(00|14|31)", heard), heard[:100]
    assert alive(server)


def test_open_pages_are_few_and_leave_room_for_calls(server: Guarded) -> None:
    ask = f"GET /events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {server.tokens['reader']}\r\n\r\n".encode()
    clients = [socket.create_connection(("127.0.0.1", server.port), timeout=10) for _ in range(120)]
    try:
        for client in clients:
            client.sendall(ask)
        heads = [client.recv(200) for client in clients]
        assert 0 < sum(head.startswith(b"HTTP/1.1 200") for head in heads) <= 64
        assert sum(head.startswith(b"HTTP/1.1 503") for head in heads) >= 56
        assert alive(server) and server.call("owner", "notes", "list", {}).status == 200
    finally:
        for client in clients:
            client.close()
    again = {**HTML, **server.bearer("reader")}
    assert eventually(lambda: server.ask("GET", "/events", again).status == 200)
