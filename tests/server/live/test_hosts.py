"""The process that hosts live documents: what it keeps of clients that have gone, and where others find it."""

import gc
import json
import logging
import socket
import struct
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
from tests.server.listener import until
from tests.server.live.parts import LiveServer, live_server

from notewright.ledger.base import Actor
from notewright.server.live.forwarding import _reachable


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    with live_server(tmp_path) as running:
        yield running


def place_of(server: LiveServer) -> Path:
    """The socket at which other processes come."""
    state = server.notes.parent / "state"
    assert until(lambda: any(state.rglob("live.sock")))
    (place,) = state.rglob("live.sock")
    return place


def joins(place: Path, doc_id: str) -> socket.socket:
    """Another process, which asks to join a document for a client of its own."""
    wire = socket.socket(socket.AF_UNIX)
    with _reachable(place) as name:
        assert until(lambda: wire.connect_ex(name) == 0)
    asked = {"ask": "join", "doc": doc_id, "actor": asdict(Actor()), "writes": True}
    for message in (json.dumps(asked).encode(), b""):
        wire.sendall(struct.pack(">I", len(message)) + message)
    return wire


def test_a_process_that_goes_while_it_joins_leaves_nobody_in_the_document(
    server: LiveServer, caplog: pytest.LogCaptureFixture
) -> None:
    place, doc_id = place_of(server), server.id_of("Tea.md")
    with server.client("Tea.md") as ann:
        ann.sync()
        for _ in range(20):
            joins(place, doc_id).close()
        with joins(place, doc_id) as last:
            assert last.recv(1)
            assert until(lambda: server.members("Tea.md") == 2), "Ann and the last"
        assert until(lambda: server.members("Tea.md") == 1)
    gc.collect()  # a task whose error nobody took says so when it goes
    assert not [one for one in caplog.records if one.levelno >= logging.ERROR]


def test_a_host_is_found_again_when_its_socket_was_taken_away_and_takes_away_no_other(tmp_path: Path) -> None:
    with live_server(tmp_path) as server:
        place = place_of(server)
        place.unlink()
        with joins(place, server.id_of("Tea.md")) as other:
            assert other.recv(1)
        of_another = place.with_name("another")
        of_another.write_text("the socket of the next host")
        of_another.replace(place)
    assert place.read_text() == "the socket of the next host"
