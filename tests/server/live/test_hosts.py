"""The process that hosts live documents: what it keeps of clients that have gone, and where others find it."""

import asyncio
import gc
import json
import logging
import socket
import struct
import threading
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.server.live.parts import LiveServer, live_server
from tests.waiting import until

from notewright.errors import Busy, Unavailable
from notewright.ledger.base import Actor
from notewright.mcp.thread_pool import ThreadPool
from notewright.notes.path import NotePath
from notewright.server.live.forwarding import THREADS, HostedRooms
from notewright.server.live.rooms import Room
from notewright.stores.live.host_socket import CALL_TIMEOUT_S, socket_address

pytestmark = pytest.mark.slow


def place_of(server: LiveServer) -> Path:
    """The socket at which other processes come."""
    state = server.notes.parent / "state"
    until(lambda: any(state.rglob("live.sock")))
    (place,) = state.rglob("live.sock")
    return place


def joins(place: Path, doc_id: str) -> socket.socket:
    """Another process, which asks to join a document for a client of its own."""
    wire = socket.socket(socket.AF_UNIX)
    with socket_address(place) as name:
        until(lambda: wire.connect_ex(name) == 0)
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
            until(lambda: server.members("Tea.md") == 2)  # Ann and the last
        until(lambda: server.members("Tea.md") == 1)
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


def test_a_host_answers_others_while_it_waits_for_hosts_that_do_not_answer_it(
    server: LiveServer, tmp_path: Path
) -> None:
    hosts, ws, place, doc_id = server.site._hosts, server.site.library.default, place_of(server), server.id_of("Tea.md")
    assert hosts is not None
    elsewhere = SimpleNamespace(try_host=lambda: False, socket=tmp_path / "hung.sock", folder_id="f")
    there = replace(ws, live=cast(Any, elsewhere))

    async def ask_many() -> bool:
        waiting = [asyncio.create_task(hosts.call(there, "names", "", Actor(), b"[]")) for _ in range(2 * THREADS)]
        done, _ = await asyncio.wait(waiting, timeout=0.2)
        assert not done
        answered = await asyncio.to_thread(is_let_in, place, doc_id)
        hung.close()
        elsewhere.try_host = lambda: True
        await asyncio.gather(*waiting)
        return answered

    with socket.socket(socket.AF_UNIX) as hung:
        hung.bind(str(elsewhere.socket))
        hung.listen(100)
        assert asyncio.run(ask_many())


def is_let_in(place: Path, doc_id: str) -> bool:
    with joins(place, doc_id) as wire:
        wire.settimeout(CALL_TIMEOUT_S / 2)
        try:
            return wire.recv(1) != b""
        except TimeoutError:
            return False


def users(server: LiveServer) -> int:
    """How many have Tea.md open, by what its document says."""
    live = server.site.library.default.live
    assert live is not None
    document = live.find_open(NotePath("Tea.md"))
    return 0 if document is None else document.users


def test_a_client_that_goes_while_its_document_opens_leaves_no_room_behind(server: LiveServer) -> None:
    live, doc_id = server.site.library.default.live, server.id_of("Tea.md")
    assert live is not None

    async def come_and_go() -> None:
        rooms = HostedRooms(live, ThreadPool(threads=4), lambda more: None)
        live._lock.acquire()  # nothing opens meanwhile
        try:
            joining = asyncio.create_task(rooms.join(doc_id, Actor(), True))
            await asyncio.sleep(0.2)
            joining.cancel()
            with pytest.raises(asyncio.CancelledError):
                await joining
        finally:
            live._lock.release()
        await rooms.wait_released()
        assert rooms._rooms == {}
        member = await rooms.join(doc_id, Actor(), True)
        assert users(server) == 1
        await member.leave_room()
        await rooms.wait_released()
        assert users(server) == 0 and rooms._rooms == {}

    asyncio.run(come_and_go())


def test_a_document_is_let_go_however_busy_the_server_is_as_its_last_client_leaves(server: LiveServer) -> None:
    live, doc_id, done = server.site.library.default.live, server.id_of("Tea.md"), threading.Event()
    assert live is not None

    async def leave_a_busy_server() -> None:
        threads = ThreadPool(threads=2, waiting=0)
        rooms = HostedRooms(live, threads, lambda more: None)
        member = await rooms.join(doc_id, Actor(), True)
        busy = [asyncio.ensure_future(threads.run(done.wait)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(Busy):
            await threads.run(done.is_set)
        await member.leave_room()
        await asyncio.sleep(0)
        done.set()
        await asyncio.gather(*busy)
        await rooms.wait_released()

    asyncio.run(leave_a_busy_server())
    assert users(server) == 0


def test_a_document_that_ends_before_its_first_client_is_in_can_be_opened_again(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    live, doc_id, open_room = server.site.library.default.live, server.id_of("Tea.md"), Room.open
    assert live is not None

    async def open_and_end(room: Room) -> None:
        await open_room(room)
        await asyncio.to_thread(live._end, room.document, "the note was deleted")

    async def come_twice() -> None:
        rooms = HostedRooms(live, ThreadPool(threads=4), lambda more: None)
        with monkeypatch.context() as patch, pytest.raises(Unavailable):
            patch.setattr(Room, "open", open_and_end)
            await rooms.join(doc_id, Actor(), True)
        await rooms.wait_released()
        member = await rooms.join(doc_id, Actor(), True)
        await member.leave_room()
        await rooms.wait_released()
        assert users(server) == 0

    asyncio.run(come_twice())


def test_a_host_that_cannot_open_a_document_says_so_at_once(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    live, open_room, begun = server.site.library.default.live, Room.open, []
    assert live is not None and server.id_of("Tea.md")

    async def open_and_end(room: Room) -> None:
        await open_room(room)
        begun.append(room)
        await asyncio.to_thread(live._end, room.document, "the note was deleted")

    monkeypatch.setattr(Room, "open", open_and_end)
    with server.client("Tea.md") as client:
        assert client.closed()[0] == 4503
    assert len(begun) == 1, "it was tried again"
