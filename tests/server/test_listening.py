"""Connections: how large, how slow and how many they may be; whom a proxy speaks for."""

import contextlib
import socket
import time
from dataclasses import replace
from typing import Any

import pytest
from tests.server.listener import GET, Echo, answer, ask, connected, heard, listening_to, trickle
from tests.waiting import until
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from notewright.errors import Invalid
from notewright.server.host_check import TrustedProxies
from notewright.server.listen.bounded_protocol import ConnectionLimits
from notewright.server.listen.supervisor import WorkerSlot

pytestmark = pytest.mark.slow

QUICK = ConnectionLimits(head_seconds=0.6, body_seconds=0.6, idle_seconds=0.6, rest_seconds=0.6, reader_seconds=0.6)


@pytest.fixture(params=["auto", "asyncio"])
def kind(request: pytest.FixtureRequest) -> dict[str, Any]:
    """uvloop where it is installed, and the loop that is there always."""
    return {"loop": request.param}


def head(size: int) -> bytes:
    start = b"GET / HTTP/1.1\r\nhost: localhost\r\n"
    line = b"x-filler: " + b"y" * 1000 + b"\r\n"
    return start + line * (size // len(line)) + b"\r\n"


# ---- the head -----------------------------------------------------------------------------------------


def test_a_head_that_is_too_large_is_refused_and_nobody_is_asked(kind: dict[str, Any]) -> None:
    app = Echo()
    with listening_to(app, **kind) as port:
        for sent in (head(60_000), head(2_000_000), b"GET /" + b"a" * 60_000 + b" HTTP/1.1\r\n\r\n"):
            with connected(port) as client:
                try:
                    client.sendall(sent)
                except OSError:
                    continue  # it has not even been read
                assert heard(client).startswith((b"HTTP/1.1 431", b"HTTP/1.1 400"))
        assert app.calls == 0
        assert b"127.0.0.1 http 0" in ask(port, head(20_000))


def test_who_never_gets_as_far_as_the_application_is_counted(kind: dict[str, Any]) -> None:
    app, counted = Echo(), list[int]()
    with listening_to(app, limits=QUICK, refused=counted.append, **kind) as port:
        for sent in (b"\x16\x03\x01 no HTTP at all\r\n\r\n", b"GET / HTTP/1.1\r\nx-half: ", head(100_000)):
            with connected(port) as client, contextlib.suppress(OSError):
                client.sendall(sent)
                heard(client)
        assert b"127.0.0.1 http 0" in ask(port, GET)
    assert (counted[:2], counted[2] in (431, 400), len(counted)) == ([400, 408], True, 3)
    assert app.calls == 1


def test_a_head_just_over_the_limit_is_refused(kind: dict[str, Any]) -> None:
    app = Echo()
    with listening_to(app, **kind) as port, connected(port) as client:
        client.sendall(head(50_000)[:-2])  # its end never comes
        assert heard(client).startswith((b"HTTP/1.1 431", b"HTTP/1.1 400"))
    assert app.calls == 0


def test_the_body_before_it_does_not_count_for_the_next_head(kind: dict[str, Any]) -> None:
    body = b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 200000\r\n\r\n" + b"z" * 200_000
    with listening_to(Echo(), **kind) as port, connected(port) as client:
        client.sendall(body + head(25_000))
        told = answer(client, 2)
        assert told.index(b"http 200000") < told.index(b"http 0")


def test_a_head_that_trickles_in_ends_with_a_refusal_and_holds_up_nobody(kind: dict[str, Any]) -> None:
    app = Echo()
    with listening_to(app, limits=QUICK, **kind) as port, connected(port) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\n")
        trickle(slow, b"x-slow: " + b"s" * 200, 0.05)
        assert b"http 0" in ask(port)
        assert heard(slow).startswith(b"HTTP/1.1 408")
    assert app.calls == 1


def test_who_says_nothing_is_shown_out_without_a_word(kind: dict[str, Any]) -> None:
    with listening_to(Echo(), limits=QUICK, **kind) as port, connected(port) as silent:
        assert heard(silent) == b""


def test_blank_lines_do_not_keep_a_connection(kind: dict[str, Any]) -> None:
    with listening_to(Echo(), limits=QUICK, **kind) as port, connected(port) as client:
        client.sendall(GET)
        answer(client)
        begun = time.monotonic()
        while trickle(client, b"\r\n" * 20, 0.05) and time.monotonic() - begun < 10:
            pass
        assert time.monotonic() - begun < 10


# ---- the body -----------------------------------------------------------------------------------------


def test_a_body_that_stops_coming_is_refused_and_the_application_is_told(kind: dict[str, Any]) -> None:
    app = Echo()
    with listening_to(app, limits=QUICK, **kind) as port, connected(port) as client:
        client.sendall(b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\nabc")
        assert heard(client).startswith(b"HTTP/1.1 408")
        assert app.gone.wait(30)


def test_a_body_that_comes_by_the_byte_is_refused(kind: dict[str, Any]) -> None:
    with listening_to(Echo(), limits=QUICK, **kind) as port, connected(port) as client:
        client.sendall(b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n")
        trickle(client, b"b" * 900, 0.02)
        assert heard(client).startswith(b"HTTP/1.1 408")


def test_a_large_body_may_take_its_time_while_it_moves(kind: dict[str, Any]) -> None:
    steady = replace(QUICK, progress_bytes=1000)
    with listening_to(Echo(), limits=steady, **kind) as port, connected(port) as client:
        client.sendall(b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 60000\r\n\r\n")
        for _ in range(20):
            client.sendall(b"b" * 3000)
            time.sleep(0.08)
        assert b"http 60000" in answer(client)


def test_a_body_that_nobody_wants_is_not_taken_for_ever(kind: dict[str, Any]) -> None:
    with listening_to(Echo(), limits=QUICK, **kind) as port, connected(port) as client:
        client.sendall(b"POST /early HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n")
        assert b"200 OK" in answer(client)
        begun = time.monotonic()
        with pytest.raises(OSError):
            while time.monotonic() - begun < 10:
                client.sendall(b"5\r\nabcde\r\n")
                time.sleep(0.02)


# ---- time between, and after --------------------------------------------------------------------------


def test_an_idle_connection_is_closed_and_a_used_one_is_kept(kind: dict[str, Any]) -> None:
    patient = replace(QUICK, idle_seconds=1.5)
    with listening_to(Echo(), limits=patient, **kind) as port, connected(port) as client:
        for _ in range(4):
            client.sendall(GET)
            answer(client)
            time.sleep(0.5)
        assert heard(client) == b""


def test_a_request_that_takes_long_is_waited_for(kind: dict[str, Any]) -> None:
    app = Echo()
    with listening_to(app, limits=QUICK, **kind) as port, connected(port) as client:
        client.sendall(GET.replace(b"/ ", b"/never "))
        time.sleep(1.5)
        assert not app.gone.is_set()
        client.close()
        assert app.gone.wait(30)


def test_a_client_that_does_not_read_its_answer_is_cut_off(kind: dict[str, Any]) -> None:
    app = Echo()
    with listening_to(app, limits=QUICK, **kind) as port, connected(port) as client:
        client.sendall(GET.replace(b"/ ", b"/endless "))
        time.sleep(2.5)
        client.settimeout(5)
        read = 0
        try:
            while read < 256 << 20 and (part := client.recv(1 << 20)):
                read += len(part)
        except OSError:
            pass
        app.gone.set()
        assert read < 256 << 20


def test_a_client_that_reads_slowly_is_not(kind: dict[str, Any]) -> None:
    app = Echo()
    with listening_to(app, limits=QUICK, **kind) as port, connected(port) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        client.sendall(GET.replace(b"/ ", b"/endless "))
        end = time.monotonic() + 2
        while time.monotonic() < end:
            assert client.recv(1 << 19)
            time.sleep(0.02)
        app.gone.set()
        client.settimeout(10)
        assert heard(client)


# ---- how many -----------------------------------------------------------------------------------------


def test_beyond_so_many_connections_there_is_no_room_until_one_leaves(kind: dict[str, Any]) -> None:
    app, few, counted = Echo(), ConnectionLimits(connections=5), list[int]()
    with listening_to(app, limits=few, refused=counted.append, **kind) as port, contextlib.ExitStack() as stack:
        inside = [stack.enter_context(connected(port)) for _ in range(5)]
        for client in inside:
            client.sendall(GET.replace(b"/ ", b"/never "))
        until(lambda: app.calls == 5)
        with connected(port) as sixth:
            sixth.sendall(GET)
            told = heard(sixth)
        assert told.startswith(b"HTTP/1.1 503") and b"retry-after: 1" in told
        assert counted == [503]
        crowd = [stack.enter_context(connected(port)) for _ in range(200)]
        assert not app.gone.is_set()
        for client in crowd:
            client.close()
        inside.pop().close()
        until(lambda: b"503" not in _heard_of(port))


def test_who_is_idle_makes_room_for_who_wants_something(kind: dict[str, Any]) -> None:
    app, few = Echo(), ConnectionLimits(connections=3, idle_seconds=4)  # looked at four times a second
    with listening_to(app, limits=few, **kind) as port, contextlib.ExitStack() as stack:
        busy, idle, last = (stack.enter_context(connected(port)) for _ in range(3))
        busy.sendall(GET.replace(b"/ ", b"/never "))
        for client in (idle, last):
            client.sendall(GET)
            answer(client)
            time.sleep(1.2)
        assert b"200 OK" in ask(port)
        assert heard(idle) == b"" and not app.gone.is_set()
        last.sendall(GET)
        assert b"200 OK" in answer(last)


def _heard_of(port: int) -> bytes:
    with connected(port) as client:
        client.sendall(GET.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))
        return heard(client)


def test_requests_sent_ahead_are_answered_in_order(kind: dict[str, Any]) -> None:
    post = b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n"
    with listening_to(Echo(), **kind) as port, connected(port) as client:
        client.sendall(b"".join(post % size + b"x" * size for size in (1, 2, 3)))
        told = answer(client, 3)
        assert told.index(b"http 1") < told.index(b"http 2") < told.index(b"http 3")


def test_thousands_of_requests_sent_ahead_are_not_kept(kind: dict[str, Any]) -> None:
    """The first is never answered. What comes after it is refused, or not even read."""
    app = Echo()
    with listening_to(app, **kind) as port, connected(port) as client:
        client.settimeout(5)
        with contextlib.suppress(OSError):
            client.sendall(GET.replace(b"/ ", b"/never ") + GET * 1_000_000)
            assert heard(client).startswith(b"HTTP/1.1 400")
        assert app.gone.wait(30) and app.calls == 1
        assert b"200 OK" in ask(port)


def test_a_client_that_sent_ahead_and_left_is_missed(kind: dict[str, Any]) -> None:
    """Who does not read does not see that somebody has gone, and the parsers stop reading when more comes."""
    app = Echo()
    with listening_to(app, **kind) as port, connected(port) as client:
        client.sendall(GET.replace(b"/ ", b"/never ") + GET * 3)
        until(lambda: app.calls == 1)
        client.close()
        assert app.gone.wait(10) and app.calls == 1


def test_a_full_process_leaves_clients_to_one_that_has_room() -> None:
    """Where several share a door, nobody is turned away by the one that is full while another is not."""
    board = memoryview(bytearray(8)).cast("i")
    other = WorkerSlot(1, board)
    other.set_clients(0)
    app = Echo()
    with (
        listening_to(app, limits=ConnectionLimits(connections=1), slot=WorkerSlot(0, board)) as port,
        connected(port) as client,
    ):
        client.sendall(GET.replace(b"/ ", b"/never "))
        until(lambda: app.calls == 1)
        assert board[0] == 1
        with connected(port) as second:
            second.settimeout(0.1)
            with pytest.raises(TimeoutError):
                second.recv(100)  # the other one would have let us in
            other.clear()
            second.settimeout(10)
            assert heard(second).startswith(b"HTTP/1.1 503")
    assert board[0] == -1


# ---- who comes ----------------------------------------------------------------------------------------

FORGED = GET.replace(b"\r\n\r\n", b"\r\nx-forwarded-for: 203.0.113.9\r\nx-forwarded-proto: https\r\n\r\n")


def test_what_a_client_says_of_its_own_address_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")
    monkeypatch.setenv("WEB_CONCURRENCY", "7")
    with listening_to(Echo()) as port:
        assert b"127.0.0.1 http 0" in ask(port, FORGED)


def behind(*proxies: str) -> ProxyHeadersMiddleware:
    return ProxyHeadersMiddleware(Echo(), trusted_hosts=TrustedProxies(proxies).names)


def test_one_who_is_no_trusted_proxy_is_not_believed_either() -> None:
    with listening_to(behind("10.0.0.1", "fd00::/8")) as port:
        assert b"127.0.0.1 http 0" in ask(port, FORGED)


@pytest.mark.parametrize("proxy", ["127.0.0.1", "127.0.0.0/8", "127.0.0.9/8"])
def test_a_trusted_proxy_speaks_for_its_client_and_not_for_what_that_one_forged(proxy: str) -> None:
    with listening_to(behind(proxy)) as port:
        assert b"203.0.113.9 https 0" in ask(port, FORGED)
        twice = FORGED.replace(b": 203.0.113.9", b": 198.51.100.7, 203.0.113.9")
        assert b"203.0.113.9 https 0" in ask(port, twice)


def test_a_proxy_is_known_on_a_door_for_both_kinds_of_address() -> None:
    with (
        socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as door,
        listening_to(behind("127.0.0.1"), door=door) as port,
    ):
        assert b"203.0.113.9 https 0" in ask(port, FORGED)
    known = TrustedProxies(["10.0.0.5", "10.1.0.0/16", "fd00::/8"])
    assert known("10.0.0.5") and known("::ffff:10.1.2.3") and known("fd00::1")
    assert not known("10.0.0.6") and not known("::ffff:10.2.0.1") and not known("proxy")


@pytest.mark.parametrize("proxy", ["*", "caddy", ""])
def test_what_is_no_address_of_a_proxy_is_refused(proxy: str) -> None:
    with pytest.raises(Invalid, match="trusted_proxies"):
        TrustedProxies((proxy,))


def test_nothing_is_told_of_what_serves() -> None:
    with listening_to(Echo()) as port:
        told = ask(port).lower()
        assert b"server:" not in told and b"uvicorn" not in told and b"date:" in told
