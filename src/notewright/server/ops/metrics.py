"""Prometheus metrics: calls and requests, how they ended, how long they took, and the state of the workspaces.

No label holds a name that somebody chose: a workspace is a short hash of its location, a route is its pattern, and a
tool that does not exist is `unknown`. So an operator may keep the metrics, and there are few time series.
"""

import contextlib
import functools
import hashlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from notewright import __version__
from notewright.engine.workspace import Workspace
from notewright.errors import Problem
from notewright.server.ops import multiproc_metrics
from notewright.server.ops.health import workspace_health

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)  # seconds
REASONS = {  # of a refusal for which none was noted
    401: "unauthenticated",
    403: "forbidden",
    413: "too_large",
    421: "host",
    429: "rate",
}

CUT_REASONS = {408: "slow", 431: "too_large", 503: "busy"}  # of a connection that ended before a request


class Metrics:
    """The metrics of this process. With `shared`, a folder, a scrape of any worker adds up the counts of all."""

    def __init__(self, shared: Path | None = None) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._shared = shared
        self._own = CollectorRegistry()
        counter = functools.partial(Counter, namespace="notewright", registry=self._own)
        histogram = functools.partial(Histogram, namespace="notewright", registry=self._own)
        gauge = functools.partial(Gauge, namespace="notewright", registry=self._own, multiprocess_mode="livesum")
        calls = counter("calls_total", "Calls that ended.", ("surface", "tool", "outcome"))
        about = "Time from a call to its answer."
        seconds = histogram("call_duration_seconds", about, ("surface", "tool"), buckets=BUCKETS)
        self._in_flight = gauge("calls_in_flight", "Calls being done now.")
        self.live_connections = gauge("live_connections", "Connections to live documents.")
        self.live_documents = gauge("live_documents", "Live documents that somebody has open.")
        requests = counter("http_requests_total", "HTTP requests answered.", ("route", "status"))
        self._refused = counter("http_refused_total", "HTTP requests turned away.", ("reason",))
        about = "When the server started, in seconds since 1970."
        gauge("start_time_seconds", about, multiprocess_mode="livemin").set(time.time())
        self._in_flight.set(0)
        # To look a counter up by its labels takes several times as long as to count.
        self._of_call = functools.cache(calls.labels)
        self._of_duration = functools.cache(seconds.labels)
        self._of_request = functools.cache(requests.labels)

    def record_start(self) -> None:
        self._in_flight.inc()

    def record_end(self, surface: str, tool: str, outcome: str, seconds: float) -> None:
        self._in_flight.dec()
        self._of_call(surface, tool, outcome).inc()
        self._of_duration(surface, tool).observe(seconds)

    def record_request(self, route: str, status: int) -> None:
        self._of_request(route or "none", status).inc()

    def record_refusal(self, reason: str) -> None:
        self._refused.labels(reason).inc()

    def to_text(self, scraped: "ScrapedNumbers | None") -> bytes:
        """Everything, in Prometheus' text format. Blocks: the files of other workers are read."""
        counted, processes = self._own, [os.getpid()]
        if self._shared is not None:
            counted, processes = CollectorRegistry(), multiproc_metrics.live_workers(self._shared)
            MultiProcessCollector(counted, path=str(self._shared))  # type: ignore[no-untyped-call]
        return generate_latest(_MetricList([*counted.collect(), *_scraped_metrics(scraped, processes)]))


Numbers = Mapping[str, float | None]  # by the names of _GAUGES; None, or missing, is unknown

_GAUGES = {
    "store_reachable": "1 if the notes can be listed.",
    "index_fresh": "1 if the index is up to date.",
    "index_stale": "1 if the index cannot follow.",
    "index_done_files": "Files indexed so far (notes only, unless built).",
    "index_total_files": "Files to be indexed, counted alike.",
    "index_lag_files": "Files not in the index yet.",
    "index_size_bytes": "Bytes of the index on disk.",
    "ledger_size_bytes": "Bytes of the ledger on disk.",
    "notes": "Notes in the index.",
    "files": "Files in the index, notes included.",
    "files_bytes": "Bytes of those files.",
    "quota_files": "Files the workspace may have.",
    "quota_bytes": "Bytes the workspace may have.",
}


@dataclass(frozen=True, slots=True)
class ScrapedNumbers:
    """What is looked up for a scrape: the numbers of each workspace, by its label."""

    spaces: Mapping[str, Numbers]
    backed_up: float | None = None  # seconds since 1970


def workspace_label(ws: Workspace) -> str:
    return hashlib.sha256(ws.store.identity.encode()).hexdigest()[:8]


def workspace_numbers(ws: Workspace, state: Path, cache: Path) -> Numbers:
    """Looked up now: takes as long as the store and the index do. `state` and `cache` hold ledgers and indexes."""
    health = workspace_health(ws)
    numbers: dict[str, float | None] = {
        "store_reachable": health.reachable,
        "index_fresh": health.index == "fresh",
        "index_stale": health.index == "stale",
        "index_done_files": health.done,
        "index_total_files": health.total,
        "index_lag_files": None if health.total is None else max(0, health.total - health.done),
        "index_size_bytes": folder_bytes(cache / ws.store.identity),
        "ledger_size_bytes": folder_bytes(state / ws.store.identity),
        "quota_files": ws.limits.quota_files,
        "quota_bytes": ws.limits.quota_bytes,
    }
    with contextlib.suppress(Problem):  # a number that is missing is better than one that is wrong
        numbers["files"], numbers["files_bytes"] = ws.index.total("files"), ws.index.total("bytes")
        numbers["notes"] = ws.index.total("notes")
    return numbers


def folder_bytes(folder: Path) -> int:
    """The bytes that the files of a folder take on disk."""
    total = 0
    for place, _, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(OSError):  # gone meanwhile
                total += os.lstat(os.path.join(place, name)).st_blocks * 512
    return total


class _MetricList(list[Metric], Collector):
    """Metrics that were collected already, in the form that `generate_latest` takes."""

    def collect(self) -> Sequence[Metric]:
        return self


def _scraped_metrics(scraped: ScrapedNumbers | None, processes: Sequence[int]) -> Iterator[Metric]:
    """A gauge for each number that is known."""
    sizes = [size for size in map(_resident_bytes, processes) if size is not None]
    yield _make_gauge("build_info", "The version that runs.", {__version__: 1}, "version")
    yield _make_gauge("processes", "Worker processes that have begun and not ended.", {"": len(processes)})
    yield _make_gauge("memory_bytes", "Resident memory of the worker processes.", {"": sum(sizes) if sizes else None})
    if scraped is None:
        return
    yield _make_gauge("workspaces", "Workspaces being served.", {"": len(scraped.spaces)})
    for name, help_text in _GAUGES.items():
        values = {label: numbers.get(name) for label, numbers in scraped.spaces.items()}
        yield _make_gauge(name, help_text, values, "workspace")
    if scraped.backed_up is not None:
        help_text = "When the last backup that succeeded was made, in seconds since 1970."
        yield _make_gauge("backup_last_success_time_seconds", help_text, {"": scraped.backed_up})


def _resident_bytes(process: int) -> int | None:
    try:
        pages = Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1]
    except (OSError, IndexError):  # it has just ended, or there is no /proc
        return None
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _make_gauge(name: str, help_text: str, values: Mapping[str, float | None], label: str = "") -> Metric:
    """A gauge with one number for each value of the label; without a label, with one number."""
    family = GaugeMetricFamily(f"notewright_{name}", help_text, labels=[label] if label else [])
    for label_value, number in values.items():
        if number is not None:
            family.add_metric([label_value] if label else [], float(number))
    return family
