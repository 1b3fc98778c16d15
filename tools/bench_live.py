"""The same folder with live documents: compared with the folder as it is, and with a server that only passes frames on.

`bench_live.py relay` is that server: it keeps nothing, understands nothing and sends each frame to everybody else.
"""

import asyncio
import subprocess
import time
from collections.abc import Callable
from itertools import count, cycle
from pathlib import Path
from typing import Any
from urllib.parse import quote

from bench_client import NOTEWRIGHT, PYTHON, Refused
from bench_http import Site, _family, site
from bench_references import Bench, Sampler, each, until_answered
from bench_rows import BURST, Row, of_notes, times

HERE = str(Path(__file__).resolve())
OPEN = 200  # documents at once
LET_GO_SECONDS = 40.0  # after which a document that nobody has open is out of memory: half a minute, and some time


class Typist:
    """A connection to one document, by an address. Without `answers` the other end knows no Yjs."""

    def __init__(self, address: str, *, answers: bool = True) -> None:
        from pycrdt import Doc, Text
        from websockets.sync.client import connect

        self.doc: Doc[Any] = Doc()
        self.text = self.doc.get("contents", type=Text)
        self.wire = connect(address, max_size=None, ping_interval=None)  # who only types reads no answer to a ping
        if answers:
            from pycrdt import create_sync_message

            self.wire.send(create_sync_message(self.doc))
            while not len(self.text):
                self._take(self.wire.recv(timeout=20))

    def _take(self, frame: str | bytes) -> bool:
        """Whether it was an update."""
        assert isinstance(frame, bytes)
        if frame[0] != 0 or frame[1] == 0:
            return False
        self.doc.apply_update(_payload(frame))
        return frame[1] == 2

    def type(self, letter: str) -> None:
        from pycrdt import create_update_message

        before = self.doc.get_state()
        self.text += letter
        self.wire.send(create_update_message(self.doc.get_update(before)))

    def see(self) -> None:
        while not self._take(self.wire.recv(timeout=20)):
            pass


def _payload(frame: bytes) -> bytes:
    """What a sync frame holds: a length in seven bits a byte, and so many bytes."""
    place, length, shift = 2, 0, 0
    while True:
        byte = frame[place]
        length |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return frame[place : place + length]


class LiveSite(Site):
    """A server over the live folder, and typists in its notes."""

    def typist(self, note: str) -> Typist:
        base = self.address.removesuffix("/mcp/notes").replace("http://", "ws://", 1)
        return Typist(f"{base}/w/bench/live/{quote(note)}")

    def megabytes(self) -> float:
        told = subprocess.run(("ps", "-e", "-o", "pid=,rss="), capture_output=True, text=True).stdout
        sizes = {int(pid): int(size) for pid, size in map(str.split, told.splitlines())}
        return sum(sizes.get(pid, 0) for pid in _family(self.process.pid)) / 1024


def live(bench: Bench) -> LiveSite:
    if ("live", 1) not in bench.sites:
        where = ("--state", str(bench.state), "--no-rate-limits", "--http", "0", "--workers", "1")
        begun = LiveSite(NOTEWRIGHT, "serve", f"Bench=live:{bench.vault}", *where)
        bench.sites["live", 1] = bench.closing.enter_context(begun)
        until_answered(lambda: begun.call("search", query="anything"))
        begun.until_idle()
    found: LiveSite = bench.sites["live", 1]
    return found


def reading(server: Callable[[Bench], Site], *, is_open: bool = False) -> Callable[[Bench], Sampler]:
    """One call after the other."""

    def prepared(bench: Bench) -> Sampler:
        asked = of_notes()(bench)[:50]
        here = server(bench)
        if is_open:
            for given in asked:
                held = live(bench).typist(given["path"])
                bench.closing.callback(held.wire.close)
        return each(lambda given: here.call("read", **given), cycle(asked))

    return prepared


def seen_by_another(bench: Bench) -> Sampler:
    note = of_notes()(bench)[60]["path"]
    one, other = live(bench).typist(note), live(bench).typist(note)
    return _typed(one, other)


def passed_on(bench: Bench) -> Sampler:
    process = subprocess.Popen((PYTHON, HERE, "relay"), stdout=subprocess.PIPE, text=True)
    bench.closing.callback(process.wait)
    bench.closing.callback(process.terminate)
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    if not address:
        raise Refused("the relay did not start")
    return _typed(Typist(address, answers=False), Typist(address, answers=False))


def _typed(one: Typist, other: Typist) -> Sampler:
    def once(number: int) -> None:
        one.type("x")
        other.see()

    return each(once, count())


def starting(kind: str) -> Callable[[Bench], Sampler]:
    """A server that begins with a fresh index, until it has read a note."""

    def prepared(bench: Bench) -> Sampler:
        site(bench, "ours", 1)  # the index is there
        note = of_notes()(bench)[0]
        where = ("--state", str(bench.state), "--no-rate-limits", "--http", "0", "--workers", "1")

        def once() -> float:
            began = time.perf_counter()
            with Site(NOTEWRIGHT, "serve", f"Bench={kind}{bench.vault}", *where) as begun:
                until_answered(lambda: begun.call("read", **note))
                return (time.perf_counter() - began) * 1000

        return once

    return prepared


def typed_found(bench: Bench) -> Sampler:
    """From a word that somebody types to the search that finds it."""
    server, note = live(bench), of_notes()(bench)[61]["path"]
    typist = server.typist(note)
    bench.closing.callback(typist.wire.close)

    def once(number: int) -> None:
        word = f"typedword{number}q"
        typist.type(f" {word}\n")
        while note.removesuffix(".md") not in server.call("search", query=word):
            time.sleep(0.02)

    return each(once, count())


def memory_given_back(bench: Bench) -> Sampler:
    """What it has after so many documents were open, typed into and let go, of what it had before."""
    server = live(bench)

    def once() -> float:
        before = server.megabytes()
        typists = [server.typist(given["path"]) for given in (of_notes()(bench) * OPEN)[:OPEN]]
        for typist in typists:
            typist.type("x")
        for typist in typists:
            typist.wire.close()
        time.sleep(LET_GO_SECONDS)
        return server.megabytes() / before

    return once


def memory_open(bench: Bench) -> Sampler:
    """With so many documents open and typed into."""
    server = live(bench)
    for given in (of_notes()(bench) * OPEN)[:OPEN]:
        typist = server.typist(given["path"])
        typist.type("x")
        bench.closing.callback(typist.wire.close)
    return server.megabytes


def memory_ratio(bench: Bench) -> Sampler:
    """Of a server over the live folder and one over the folder, both of whom were asked the same."""
    plain, other = site(bench, "ours", 1), live(bench)
    for here in (plain, other):
        for given in of_notes()(bench)[:20]:
            here.call("read", **given)
    return lambda: other.megabytes() / LiveSite.megabytes(plain)  # type: ignore[arg-type]


LIVE_REFERENCES: dict[str, Callable[[Bench], Sampler]] = {
    "read over HTTP": reading(lambda bench: site(bench, "ours", 1)),
    "a bare relay": passed_on,
    "start over HTTP": starting(""),
}
LIVE_ROWS = (
    Row("live: memory, nothing open", memory_ratio, (), "≤ 1.1 × the folder", lambda known: 1.1, 1, unit="×"),
    Row("live: read a note", reading(live), ("read over HTTP",), "≤ 1.2 × the folder",
        times(1.2, "read over HTTP"), 12, BURST),
    Row("live: read an open note", reading(live, is_open=True), ("read over HTTP",), "≤ 2 × the folder",
        times(2, "read over HTTP"), 12, BURST),
    Row("live: typed by one, seen by another", seen_by_another, ("a bare relay",), "≤ 2 × a bare relay",
        times(2, "a bare relay"), 12, BURST),
    Row("live: a typed word is found by search", typed_found, (), "≤ 2 s", lambda known: 2000, 8),
    Row("live: start until a note is read", starting("live:"), ("start over HTTP",), "≤ 1.1 × the folder",
        times(1.1, "start over HTTP"), 5),
    Row(f"live: memory after {OPEN} documents were open", memory_given_back, (), "≤ 1.2 × before", lambda known: 1.2, 1,
        unit="×", warm=False),
    Row(f"live: memory, {OPEN} documents open", memory_open, (), "≤ 300 MB", lambda known: 300, 1, unit="MB"),
)  # fmt: skip


async def relay() -> None:
    from websockets.asyncio.server import ServerConnection, broadcast, serve

    there: set[ServerConnection] = set()

    async def passing(wire: ServerConnection) -> None:
        there.add(wire)
        async for frame in wire:
            broadcast(there - {wire}, frame)

    async with serve(passing, "127.0.0.1", 0) as server:
        print(f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}", flush=True)
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(relay())
