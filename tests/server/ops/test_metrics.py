"""What /metrics says: every call counted as what it was, and no name in it that somebody chose."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.server.watched import Watched, samples, watched

from notewright import errors
from notewright.app.open_workspaces import OpenWorkspaces
from notewright.config.load import CommandLine, load
from notewright.server.ops import multiproc_metrics
from notewright.server.ops.metrics import CUT_REASONS, REASONS, Metrics, ScrapedNumbers, workspace_numbers

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("metrics")
    (folder / "notes").mkdir()
    (folder / "notes" / "Unusual Heron.md").write_text("# Heron\n\nstands in zebrawater\n", encoding="utf-8")
    with watched(folder) as server:
        yield server


def counted(server: Watched, name: str, **labels: str) -> float:
    """The sum of the samples that have these labels."""
    found = server.numbers().get(name, {})
    return sum(value for have, value in found.items() if set(labels.items()) <= set(have))


class Since:
    """How much a number has grown."""

    def __init__(self, server: Watched, name: str, **labels: str) -> None:
        self.server, self.name, self.labels = server, name, labels
        self.before = counted(server, name, **labels)

    def __call__(self) -> float:
        return counted(self.server, self.name, **self.labels) - self.before


def test_a_call_is_counted_by_surface_tool_and_outcome_and_timed(server: Watched) -> None:
    good = Since(server, "notewright_calls_total", surface="notes", tool="search", outcome="ok")
    timed = Since(server, "notewright_call_duration_seconds_count", surface="notes", tool="search")
    took = Since(server, "notewright_call_duration_seconds_sum", surface="notes", tool="search")
    with server.client("notes") as notes:
        notes("search", query="heron")
        notes("search", query="heron")
    assert good() == timed() == 2 and 0 < took() < 20


@pytest.mark.parametrize(
    ("surface", "tool", "args", "outcome"),
    [
        ("notes", "read", {"path": "nowhere"}, "not_found"),
        ("notes", "write", {"path": "Unusual Heron", "content": "x"}, "exists"),
        ("notes", "read", {"nonsense": 1}, "invalid"),
        ("lens", "read", {}, "invalid"),  # this dialect answers with a protocol error
        ("lens", "read", {"file_path": "Private Diary/nowhere.md"}, "not_found"),
        ("cairn", "cairn_read", {"path": "nowhere"}, "not_found"),
        ("obsidian", "read_note", {"name": "nowhere"}, "not_found"),
        ("second_brain", "read", {"path": "nowhere.md"}, "not_found"),
        ("octarine", "octarine_read_note", {"workspace": "Private Diary", "note_path": "nowhere.md"}, "not_found"),
    ],
)
def test_what_a_dialect_says_in_its_own_words_is_counted_by_what_was_wrong(
    server: Watched, surface: str, tool: str, args: dict[str, Any], outcome: str
) -> None:
    with server.client(surface) as client:
        before = Since(server, "notewright_calls_total", surface=surface, tool=tool, outcome=outcome)
        client.call(tool, args)
        assert before() == 1


def test_a_call_that_wants_to_hear_of_its_progress_is_counted_as_any_other(server: Watched) -> None:
    good = Since(server, "notewright_calls_total", surface="notes", tool="search", outcome="ok")
    bad = Since(server, "notewright_calls_total", surface="notes", tool="read", outcome="not_found")
    odd = Since(server, "notewright_calls_total", surface="lens", tool="unknown", outcome="invalid")
    meta = {"_meta": {"progressToken": 1}}
    with server.client("notes") as notes, server.client("lens") as lens:
        notes._post("tools/call", {"name": "search", "arguments": {"query": "heron"}, **meta})
        notes._post("tools/call", {"name": "read", "arguments": {"path": "nowhere"}, **meta})
        lens._post("tools/call", {"name": "nonsense", "arguments": {}, **meta})
    assert (good(), bad(), odd()) == (1, 1, 1)


def test_tools_there_are_not_are_counted_as_one(server: Watched) -> None:
    unknown = Since(server, "notewright_calls_total", surface="notes", tool="unknown", outcome="invalid")
    with server.client("notes") as notes:
        for number in range(5):
            notes.call(f"made_up_{number}", {})
    assert unknown() == 5 and "made_up" not in server.get("/metrics").text


def test_resources_and_prompts_are_counted_by_their_method(server: Watched) -> None:
    read = Since(server, "notewright_calls_total", surface="notes", tool="resources/read", outcome="ok")
    missing = Since(server, "notewright_calls_total", surface="notes", tool="resources/read", outcome="not_found")
    with server.client("notes") as notes:
        for name in ("Unusual%20Heron.md", "nowhere.md"):
            asked = {"jsonrpc": "2.0", "id": 9, "method": "resources/read", "params": {"uri": f"note:///{name}"}}
            notes.client.post("/mcp/notes", json=asked)
    assert (read(), missing()) == (1, 1)


def test_requests_are_counted_by_the_pattern_of_their_route(server: Watched) -> None:
    found = Since(server, "notewright_http_requests_total", route="/mcp/{surface}", status="405")
    lost = Since(server, "notewright_http_requests_total", route="none", status="404")
    server.get("/mcp/notes")
    server.get("/some/private/path?of=mine")
    assert (found(), lost()) == (1, 1)


def test_refusals_are_counted_by_their_reason(server: Watched) -> None:
    reasons = {
        reason: Since(server, "notewright_http_refused_total", reason=reason) for reason in ("host", "origin", "hidden")
    }
    server.get("/healthz", host="evil.example")
    server.get("/healthz", origin="https://evil.example")
    server.get("/w/nowhere/mcp/notes")
    assert {reason: grown() for reason, grown in reasons.items()} == {"host": 1, "origin": 1, "hidden": 1}


def test_the_workspaces_tell_how_they_are(server: Watched) -> None:
    with server.client("notes") as notes:
        notes("search", query="heron")  # answered by a fresh index
    numbers = server.numbers()
    (label,) = numbers["notewright_notes"]
    assert label[0][0] == "workspace" and re.fullmatch("[0-9a-f]{8}", label[0][1])
    assert numbers["notewright_notes"][label] >= 1
    for name, value in (("index_fresh", 1), ("index_stale", 0), ("index_lag_files", 0), ("store_reachable", 1)):
        assert numbers[f"notewright_{name}"][label] == value, name
    assert numbers["notewright_index_size_bytes"][label] > 10_000 < numbers["notewright_ledger_size_bytes"][label]
    assert numbers["notewright_memory_bytes"][()] > 10_000_000 and numbers["notewright_processes"][()] == 1
    assert numbers["notewright_start_time_seconds"][()] > 1_600_000_000


def test_nothing_in_it_is_a_name_that_somebody_chose(server: Watched) -> None:
    with server.client("notes") as notes:
        notes("read", path="Unusual Heron")
        notes("search", query="zebrawater")
        notes.call("zebrawater", {})
    text = server.get("/metrics").text.lower()
    for word in (
        "heron",
        "zebrawater",
        "private",
        "diary",
        str(server.notes).lower(),
        server.site.config.state.lower(),
    ):
        assert word not in text
    allowed = {"surface", "tool", "outcome", "le", "route", "status", "reason", "workspace", "version"}
    assert {name for have in samples(text).values() for labels in have for name, _ in labels} <= allowed


def test_every_number_has_a_help_text_and_our_prefix(server: Watched) -> None:
    text = server.get("/metrics").text
    helped = set(re.findall(r"^# HELP (\S+) \S", text, re.MULTILINE))
    typed = set(re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE))
    assert helped == typed and all(name.startswith("notewright_") for name in typed)
    assert not any(name.endswith("_created") for name in samples(text))


def test_with_tokens_the_numbers_are_for_those_who_see_everything_and_for_tokens_made_for_them(tmp_path: Path) -> None:
    with watched(tmp_path) as server:
        token = server.token("scraper", surfaces=("metrics",))
        assert server.get("/metrics").status_code == 401
        assert server.get("/metrics", authorization="Bearer nw_wrong").status_code == 401
        whole = server.token("reader", read_only=True)
        assert server.get("/metrics", authorization=f"Bearer {whole}").status_code == 200
        narrowed: list[dict[str, Any]] = [{"surfaces": ()}, {"workspaces": ("x",)}, {"hide": ("Private/**",)}]
        for number, rules in enumerate(narrowed):
            narrow = server.token(f"narrow {number}", **rules)
            assert server.get("/metrics", authorization=f"Bearer {narrow}").status_code == 403
        numbers = server.numbers(authorization=f"Bearer {token}")
        assert numbers["notewright_http_refused_total"][(("reason", "unauthenticated"),)] == 2
        assert server.get("/healthz").status_code == 200


def test_a_quota_is_told_where_there_is_one(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    file = tmp_path / "notewright.toml"
    file.write_text('[workspaces.Work]\nlocation = "notes"\nquota_bytes = 5000\n', encoding="utf-8")
    config = load(CommandLine((), str(file), {"state": str(tmp_path / "kept")}), environ={}, folder=str(tmp_path))
    library = OpenWorkspaces(config)
    try:
        space = workspace_numbers(library.default, Path(config.state), Path(config.cache))
        found = samples(Metrics().to_text(ScrapedNumbers({"a": space})).decode())
        assert list(found["notewright_quota_bytes"].values()) == [5000]
        assert "notewright_quota_files" not in found
    finally:
        library.close()


def test_the_last_backup_is_told_if_there_was_one() -> None:
    name = "notewright_backup_last_success_time_seconds"
    assert samples(Metrics().to_text(ScrapedNumbers({}, 1_700_000_000.0)).decode())[name] == {(): 1_700_000_000.0}
    assert name not in samples(Metrics().to_text(ScrapedNumbers({})).decode())


def test_two_servers_in_one_process_count_apart() -> None:
    one, two = Metrics(), Metrics()
    one.record_start()
    one.record_end("notes", "read", "ok", 0.01)
    assert samples(one.to_text(None).decode())["notewright_calls_total"] != {}
    assert "notewright_calls_total" not in samples(two.to_text(None).decode())


def test_every_code_of_a_problem_may_be_an_outcome() -> None:
    metrics = Metrics()
    for code in errors.codes():
        metrics.record_start()
        metrics.record_end("notes", "read", code, 0.01)
    found = samples(metrics.to_text(None).decode())
    assert {dict(labels)["outcome"] for labels in found["notewright_calls_total"]} == errors.codes()
    assert found["notewright_calls_in_flight"][()] == 0


GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guides" / "operations.md"


def test_the_guide_names_every_number_with_its_labels_and_no_other(server: Watched) -> None:
    told = re.findall(r"^\| `(notewright_\w+)` \| ([\w, ]*) ?\|", GUIDE.read_text(encoding="utf-8"), re.MULTILINE)
    with server.client("notes") as notes:
        notes("search", query="heron")
        server.get("/healthz", host="evil.example")
    text = server.get("/metrics").text
    typed = set(re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE))
    assert {name for name, _ in told} == typed | {"notewright_backup_last_success_time_seconds"}
    found = samples(text)
    for name, labels in told:
        for have in found.get(name, found.get(f"{name}_count", {})):
            assert ", ".join(label for label, _ in have) == ", ".join(sorted(labels.strip().split(", "))).strip(), name


def test_the_guide_names_every_outcome_and_reason() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    outcomes = text[text.index("- `outcome` is") : text.index("- `tool` is")]
    assert set(re.findall(r"`(\w+)`", outcomes)) == errors.codes() | {"outcome", "ok", "protocol", "cancelled"}
    reasons = text[text.index("- `reason` is") : text.index("- `workspace` is")]
    assert set(re.findall(r"`(\w+)`", reasons)) == {
        *REASONS.values(),
        *CUT_REASONS.values(),
        "malformed",
        "reason",
        "hidden",
        "origin",
    }


COUNT = """
import sys
from pathlib import Path
from notewright.config.load import set_metrics_folder
set_metrics_folder(sys.argv[1])
from notewright.server.ops import multiproc_metrics
multiproc_metrics.register_worker(Path(sys.argv[1]), int(sys.argv[3]))
from notewright.server.ops.metrics import Metrics
metrics = Metrics(Path(sys.argv[1]))
for _ in range(int(sys.argv[2])):
    metrics.record_start()
    metrics.record_end("notes", "read", "ok", 0.02)
metrics.record_start()
metrics.record_request("/mcp", 200)
print("ready", flush=True)
for line in sys.stdin:
    print(metrics.to_text(None).decode() + "end", flush=True)
"""


class Worker:
    """A process that has counted some calls and is in the middle of one."""

    def __init__(self, folder: Path, calls: int, slot: int) -> None:
        command = [sys.executable, "-c", COUNT, str(folder), str(calls), str(slot)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout and self.process.stdout.readline() == "ready\n"

    def numbers(self) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return samples("".join(iter(self.process.stdout.readline, "end\n")))

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


READ = (("outcome", "ok"), ("surface", "notes"), ("tool", "read"))


def test_what_several_workers_count_is_added_up_by_whichever_is_asked_and_outlives_them(tmp_path: Path) -> None:
    folder = multiproc_metrics.empty_folder(tmp_path)
    one, two = Worker(folder, 3, 0), Worker(folder, 4, 1)
    try:
        for worker in (one, two):
            numbers = worker.numbers()
            assert numbers["notewright_calls_total"] == {READ: 7}
            assert numbers["notewright_call_duration_seconds_count"] == {READ[1:]: 7}
            assert numbers["notewright_http_requests_total"] == {(("route", "/mcp"), ("status", "200")): 2}
            assert numbers["notewright_calls_in_flight"] == {(): 2}
            assert numbers["notewright_processes"] == {(): 2}
        one.kill()
        multiproc_metrics.forget_worker(folder, 0)
        three = Worker(folder, 1, 0)
        numbers = three.numbers()
        three.kill()
        assert numbers["notewright_calls_total"] == {READ: 8} and numbers["notewright_calls_in_flight"] == {(): 2}
        assert numbers["notewright_processes"] == {(): 2}
        multiproc_metrics.forget_worker(folder, 0)
        numbers = two.numbers()
        assert numbers["notewright_calls_total"] == {READ: 8} and numbers["notewright_calls_in_flight"] == {(): 1}
        assert numbers["notewright_call_duration_seconds_sum"][READ[1:]] == pytest.approx(8 * 0.02)
        assert len(list(folder.glob("*.db"))) == 6  # four kinds of the one that lives, two of the slot that is empty
    finally:
        one.kill()
        two.kill()


def test_what_servers_counted_that_have_ended_is_removed(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    ours = multiproc_metrics.empty_folder(tmp_path)
    theirs, living = (ours.with_name(str(pid)) for pid in (ended.pid, os.getppid()))
    for folder in (theirs, living):
        folder.mkdir()
    for folder in (ours, theirs, living):
        (folder / "counter_1.db").touch()
    assert multiproc_metrics.empty_folder(tmp_path) == ours
    assert list(ours.iterdir()) == [] and ours.stat().st_mode & 0o777 == 0o700
    assert not theirs.exists() and (living / "counter_1.db").exists()
