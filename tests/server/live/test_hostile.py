"""What clients may not do to a server with live documents, and that nobody else notices when they try."""

import asyncio
import contextlib
import logging
import random
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.server.listener import certificate
from tests.server.live.parts import SECONDS, LiveClient, LiveServer, live_server
from tests.waiting import until
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from notewright.server.listen import bounded_protocol, uvicorn_server
from notewright.server.listen.websocket_protocol import BoundedWebSocket
from notewright.server.live import frames

pytestmark = pytest.mark.slow


HOSTILE = {
    "nothing": b"",
    "a kind without end": b"\xff" * 30,
    "no step": b"\x00\x07\x00",
    "a length that lies": b"\x00\x02\xff\xff\x03abc",
    "no update": frames.encode_sync(frames.UPDATE, b"\x01\x02\x03 and so on"),
    "a huge count": frames.encode_sync(frames.UPDATE, b"\xff\xff\xff\xff\x0f" * 4),
    "no state vector": frames.encode_sync(frames.STEP1, b"\xff\xff\xff\xff"),
    "no JSON": frames.encode_awareness([frames.ClientState(1, 1, "{")]),
    "a crowd": frames.encode_awareness([frames.ClientState(number, 1, "{}") for number in range(100)]),
    "messages without end": frames.encode_awareness([]) * 100_000,
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_frame_that_makes_no_sense_ends_its_connection_alone(server: LiveServer, what: str) -> None:
    with server.client("Tea.md") as ann, server.client("Tea.md") as mallory:
        ann.sync(), mallory.sync()
        mallory.send(HOSTILE[what])
        assert mallory.closed()[0] == 1007
        ann.type("Undisturbed.\n")
        ann.ask_status(b"\x01")
        assert ann.until(lambda: ann.acked)
    assert server.says("Tea.md", "Undisturbed.")


def test_text_frames_and_unknown_kinds(server: LiveServer) -> None:
    with server.client("Tea.md") as client:
        for kind in (2, 4, 5, 6, 7, 8, 9, 101, 103, 5000):
            client.sync().send(frames.encode_varint(kind) + b"\x03abc")
        client.ask_status(b"\x01")
        assert client.until(lambda: client.acked), "kinds that do not concern us are passed over"
        client.wire.send("text")
        assert client.closed()[0] == 1003


def test_random_updates_leave_the_note_as_it_was(server: LiveServer) -> None:
    rng = random.Random(7)
    with server.client("Tea.md") as ann:
        whole = ann.sync().doc.get_update()
        for _ in range(30):
            broken = bytearray(whole)
            for _ in range(rng.randint(1, 4)):
                broken[rng.randrange(len(broken))] = rng.randrange(256)
            with server.client("Tea.md") as mallory, contextlib.suppress(ConnectionClosed):
                mallory.sync().send(frames.encode_sync(frames.UPDATE, bytes(broken)))
                mallory.ask_status(b"\x01")
                mallory.until(lambda who=mallory: who.acked, seconds=5)
        ann.type("Here.\n")
        assert server.says("Tea.md", "Steep it.") and server.says("Tea.md", "Here.")


def test_a_frame_and_a_document_can_be_too_large(server: LiveServer) -> None:
    with server.client("Tea.md") as ann, server.client("Tea.md") as mallory:
        ann.sync(), mallory.sync()
        mallory.send(frames.encode_sync(frames.UPDATE, bytes(uvicorn_server.MAX_FRAME_BYTES)))
        assert mallory.closed()[0] == 1009
        with server.client("Tea.md") as grower:
            grower.sync().type("x" * (11 << 20))
            assert grower.closed()[0] == 4413
        ann.type("Small.\n")
        assert server.says("Tea.md", "Small.")
        assert (server.notes / "Tea.md").stat().st_size < 100


def test_who_reads_nothing_is_closed_and_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("notewright.server.live.rooms.MAX_WAITING_BYTES", 1 << 20)
    limits = bounded_protocol.ConnectionLimits(reader_seconds=1.0)
    with (
        live_server(tmp_path, limits=limits) as server,
        server.client("Tea.md") as ann,
        sleeper(server, "/w/notes/live/Tea.md") as asleep,
    ):
        ann.sync().type("x" * 1_000_000)
        ask_all = frames.encode_sync(frames.STEP1, b"\x00")
        with contextlib.suppress(ConnectionError):
            for _ in range(60):
                asleep.sendall(bytes((0x82, 0x80 | len(ask_all), 0, 0, 0, 0)) + ask_all)
        ann.ask_status(b"\x01")
        assert ann.until(lambda: ann.acked)
        until(lambda: server.members("Tea.md") == 1)  # the other one has no place any more
        asleep.settimeout(20)
        heard = 0
        with contextlib.suppress(ConnectionError):
            while piece := asleep.recv(1 << 16):
                heard += len(piece)
        assert heard < 30_000_000, "what was still to come is thrown away"


def test_who_reads_stays_however_much_more_is_written_meanwhile() -> None:
    async def read_and_stop() -> None:
        socket_of_ours, client = socket.socketpair()
        ours, loop = BoundedWebSocket.__new__(BoundedWebSocket), asyncio.get_running_loop()
        ours.limits, ours.writable = bounded_protocol.ConnectionLimits(reader_seconds=10), asyncio.Event()

        class Flow(asyncio.Protocol):
            def pause_writing(self) -> None:
                ours.pause_writing()

            def resume_writing(self) -> None:
                ours.resume_writing()

        client.setblocking(False)
        transport, _ = await loop.create_connection(Flow, sock=socket_of_ours)
        ours.transport = transport
        for second in range(0, 30, 6):
            transport.write(bytes((second + 1) << 19))  # more than before
            ours.check_timeout(float(second))
            assert not transport.is_closing(), "it reads"
            while transport.get_write_buffer_size():
                await asyncio.wait_for(loop.sock_recv(client, 1 << 20), 20)
        transport.write(bytes(1 << 20))
        ours.check_timeout(30.0)
        ours.check_timeout(41.0)
        assert transport.is_closing(), "it does not read any more"
        client.close()

    asyncio.run(read_and_stop())


@contextlib.contextmanager
def sleeper(server: LiveServer, path: str) -> Iterator[socket.socket]:
    """Shakes hands, and then reads nothing."""
    with socket.socket() as wire:
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        wire.connect(("127.0.0.1", server.port))
        wire.sendall(handshake(path, server.port))
        assert b"101" in wire.recv(12)
        yield wire


@contextlib.contextmanager
def when_there_is_room(server: LiveServer) -> Iterator[LiveClient]:
    end = time.monotonic() + 20
    while True:
        with contextlib.ExitStack() as stack:
            try:
                client = stack.enter_context(server.client("Tea.md"))
            except InvalidStatus as told:
                assert told.response.status_code == 503 and time.monotonic() < end
                continue
            yield client
            return


def handshake(path: str, port: int) -> bytes:
    return (
        f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
        "sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    ).encode()


def test_a_handshake_sent_ahead_or_together_with_more_is_refused(
    server: LiveServer, caplog: pytest.LogCaptureFixture
) -> None:
    ahead, good = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n", handshake("/w/notes/live/Tea.md", server.port)
    odd = [
        ahead + good,
        handshake("/nowhere", server.port),
        good.replace(b"GET", b"POST"),
        good.replace(b"version: 13", b"version: 12"),
        good.replace(b"dGhlIHNhbXBsZSBub25jZQ==", b"short"),
        good[:-2] + b"x: " + b"y" * 10_000 + b"\r\n\r\n",
        good[:-2] + b"".join(b"x%d: y\r\n" % number for number in range(200)) + b"\r\n",
        good[:-2] + b"x: \xff\xfe\r\norigin: \xe9\r\n\r\n",
    ]
    for data in odd:
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as wire:
            wire.sendall(data)
            heard = b""
            while piece := wire.recv(1 << 16):
                heard += piece
            assert b" 101 " not in heard, data[:100]
    with server.client("Tea.md") as client:
        client.sync()
    assert not [one for one in caplog.records if one.levelno >= logging.ERROR]


def test_a_thousand_connections_are_bounded_and_the_rest_goes_on(tmp_path: Path) -> None:
    with (
        live_server(tmp_path, http__max_connections=200) as server,
        contextlib.ExitStack() as stack,
        server.client("Tea.md") as ann,
    ):
        ann.sync()
        refused = opened = 0
        for number in range(1000):
            wire = stack.enter_context(contextlib.closing(socket.create_connection(("127.0.0.1", server.port))))
            wire.settimeout(20)
            wire.sendall(handshake(f"/w/notes/live/{'Tea.md' if number % 2 else 'Recipes/Broth.md'}", server.port))
            with contextlib.suppress(ConnectionError):
                status = wire.recv(12)[9:12]
                opened, refused = opened + (status == b"101"), refused + (status == b"503")
        assert opened == 149, "three quarters are for live documents, and one is Ann's"
        assert refused > 500
        assert server.ask("GET", "/healthz").status == 200
        ann.type("Undisturbed.\n")
        assert server.says("Tea.md", "Undisturbed.")


def test_one_who_sends_without_end_is_slowed_down(server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("notewright.server.live.connections.MAX_FRAMES_PER_SECOND", 50)
    monkeypatch.setattr("notewright.server.live.connections.BURST_SECONDS", 0.2)
    with server.client("Tea.md") as client:
        client.sync()
        began = time.monotonic()
        for _ in range(60):
            client.send(bytes((frames.QUERY_AWARENESS,)))
        client.ask_status(b"\x01")
        assert client.until(lambda: client.acked)
        assert time.monotonic() - began > 0.8


def test_the_http_parser_hands_over_and_counts_connections(tmp_path: Path) -> None:
    with live_server(tmp_path, http__max_connections=2) as server:
        for number in range(1, 4):  # each has the one place there is, as soon as the one before has gone
            with when_there_is_room(server) as client:
                client.sync().type("x")
                client.ask_status(b"\x01")
                assert client.until(lambda who=client: who.acked)
                assert str(client.text).count("x") == number
        with pytest.raises(InvalidStatus) as told, server.at("/nowhere"):
            pass
        assert told.value.response.status_code == 404


def test_live_documents_over_tls(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    inside = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    inside.load_cert_chain(cert, key)
    listening = {"ssl_context_factory": lambda *_: inside}
    with live_server(tmp_path, listening=listening) as server:
        trust = ssl.create_default_context(cafile=cert)
        address = f"wss://localhost:{server.port}/w/notes/live/Tea.md"
        with connect(address, ssl=trust, compression=None, open_timeout=SECONDS) as wire:
            client = LiveClient(wire).sync()
            assert str(client.text) == "Steep it.\n"
