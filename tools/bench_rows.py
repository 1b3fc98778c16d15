"""What is measured, and what against: every row is a small function and one line in a list."""

import os
import re
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from random import Random

from bench_client import NOTEWRIGHT, PYTHON, Client, Refused

HERE = Path(__file__).resolve().parent
Samples = list[float]


@dataclass
class Bench:
    """One vault, the server over it, and what has been measured so far. `vault` is a copy that may be written to."""

    size: int
    vault: Path
    state: Path
    known: dict[str, float] = field(default_factory=dict)  # name of a reference -> median ms
    closing: ExitStack = field(default_factory=ExitStack)
    chance: Random = field(default_factory=lambda: Random(4))

    @cached_property
    def files(self) -> list[Path]:
        return sorted(Path(root) / name for root, _, names in os.walk(self.vault) for name in names)

    @cached_property
    def notes(self) -> list[str]:
        return [str(file.relative_to(self.vault)) for file in self.files if file.suffix == ".md"]

    @cached_property
    def sentences(self) -> list[str]:
        """Ten words in a row, as they stand in some note."""
        found = []
        while len(found) < 40:
            text = (self.vault / self.chance.choice(self.notes)).read_text("utf-8", "replace")
            words = re.findall(r"[a-z]{2,}", text)
            if len(words) > 60:
                at = self.chance.randrange(20, len(words) - 20)
                found.append(" ".join(words[at : at + 10]))
        return found

    @cached_property
    def rare(self) -> list[str]:
        """Words that hardly any note has."""
        return [max(sentence.split(), key=len) for sentence in self.sentences]

    @cached_property
    def client(self) -> Client:
        """A server whose index is fresh."""
        client = self.closing.enter_context(self.serve())
        until_fresh(client)
        return client

    @cached_property
    def nothing(self) -> Client:
        return self.closing.enter_context(Client(PYTHON, str(HERE / "bench_client.py"), "noop")).handshake()

    def serve(self) -> Client:
        command = (NOTEWRIGHT, "serve", f"Bench={self.vault}", "--state", str(self.state), "--no-rate-limits")
        return Client(*command).handshake()


@dataclass(frozen=True)
class Row:
    """Something measured. `limit` turns the references into the budget; without one the row is itself a reference."""

    name: str
    measure: Callable[[Bench], Samples]
    budget: str = ""
    limit: Callable[[dict[str, float]], float] | None = None
    reference: str = ""
    unit: str = "ms"
    sizes: tuple[int, ...] = ()  # none: all
    at_least: bool = False  # more is better


# -- how to take samples


def timed(work: Callable[[], object], times: int, *, warm: int = 1) -> Samples:
    """So many runs in milliseconds, after some that do not count."""
    for _ in range(warm):
        work()
    samples = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        samples.append((time.perf_counter() - began) * 1000)
    return samples


def calls(client: Client, tool: str, each: Iterator[dict[str, object]] | list[dict[str, object]]) -> Samples:
    """One call for every set of arguments; the first does not count."""
    samples = []
    for arguments in each:
        began = time.perf_counter()
        client.call(tool, **arguments)
        samples.append((time.perf_counter() - began) * 1000)
    return samples[1:]


def until_fresh(client: Client, seconds: float = 600) -> None:
    """Wait until a search answers from a whole index."""
    end = time.monotonic() + seconds
    while True:
        try:
            client.call("search", query="anything")
            return
        except Refused:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)


def run(*command: str) -> Callable[[], None]:
    """The command, to be run; Refused where it fails (1 is "nothing found" for search and rg)."""

    def once() -> None:
        status = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
        if status not in (0, 1) or (status and command[1] == "--help"):
            raise Refused(f"{Path(command[0]).name} ended with {status}")

    return once


# -- references


def walk(bench: Bench) -> Samples:
    def every(folder: str) -> int:
        count = 0
        with os.scandir(folder) as entries:
            for entry in entries:
                count += every(entry.path) if entry.is_dir(follow_symlinks=False) else entry.stat().st_size >= 0
        return count

    return timed(lambda: every(str(bench.vault)), 5)


def all_bytes(bench: Bench) -> Samples:
    def every() -> None:
        for file in bench.files:
            with open(file, "rb", buffering=0) as opened:
                opened.read()

    return timed(every, 3)


def sync1(bench: Bench) -> Samples:
    place = bench.vault.parent / f"sync-{bench.size}"
    place.mkdir(exist_ok=True)
    folder = os.open(place, os.O_RDONLY)
    target, draft, data = place / "note.md", place / "draft", os.urandom(2048)

    def once() -> None:
        with open(draft, "wb", buffering=0) as file:
            file.write(data)
            os.fsync(file.fileno())
        os.rename(draft, target)
        os.fsync(folder)

    try:
        return timed(once, 60, warm=5)
    finally:
        os.close(folder)
        shutil.rmtree(place)


def rg(bench: Bench, *arguments: str) -> Samples:
    return timed(run("rg", "--no-config", "--no-ignore", *arguments, str(bench.vault)), 5)


def echo(bench: Bench) -> Samples:
    with Client(PYTHON, str(HERE / "bench_client.py"), "echo") as client:
        return timed(lambda: client.call("noop"), 500, warm=50)


def noop(bench: Bench) -> Samples:
    return timed(lambda: bench.nothing.call("noop"), 500, warm=50)


def fts(bench: Bench) -> Samples:
    """The bare statement for rare words, in the database the server made."""
    import apsw

    bench.client  # noqa: B018  the index is there once it answers
    for file in (bench.state / "cache").rglob("*"):
        if not file.is_file() or file.read_bytes()[:15] != b"SQLite format 3":
            continue
        database = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY)
        tables = database.execute("select name from sqlite_schema where sql like '%using fts5%'").fetchall()
        for (table,) in tables:
            asked = f'select rowid from "{table}" where "{table}" match ? order by rank limit 10'
            words = iter(bench.rare)
            return timed(lambda a=asked, d=database, w=words: d.execute(a, (f'"{next(w)}"',)).fetchall(), 30)
    raise Refused("no full-text table found")


def parse_notes(bench: Bench) -> Samples:
    """Reading the meaning of one note."""
    from notewright.notes import NotePath
    from notewright.notes.parse import parse

    texts = []
    for name in bench.chance.sample(bench.notes, min(400, len(bench.notes))):
        text = (bench.vault / name).read_bytes().decode("utf-8", "replace")
        texts.append((NotePath.parse(name), text))
    return [sample for path, text in texts for sample in timed(lambda p=path, t=text: parse(p, t), 1, warm=0)]


# -- starting


def python(bench: Bench) -> Samples:
    return timed(run(PYTHON, "-c", ""), 15)


def python_mcp(bench: Bench) -> Samples:
    return timed(run(PYTHON, "-c", "import mcp.server.lowlevel"), 7)


def start(bench: Bench) -> Samples:
    def once() -> float:
        with bench.serve() as client:
            return client.start_ms

    once()
    return [once() for _ in range(7)]


def cold(bench: Bench) -> Samples:
    """From nothing to a search over everything."""
    shutil.rmtree(bench.state, ignore_errors=True)
    with bench.serve() as client:
        until_fresh(client)
        return [(time.perf_counter() - client.began) * 1000]


def warm(bench: Bench) -> Samples:
    """From the handshake to a search that has seen every file, with an index from before."""
    bench.client  # noqa: B018

    def once() -> float:
        with bench.serve() as client:
            began = time.perf_counter()
            until_fresh(client)
            return (time.perf_counter() - began) * 1000

    return [once() for _ in range(3)]


def help_command(bench: Bench) -> Samples:
    return timed(run(NOTEWRIGHT, "--help"), 10)


def search_command(bench: Bench) -> Samples:
    bench.client  # noqa: B018
    place = ("--workspace", str(bench.vault), "--state", str(bench.state))
    return timed(run(NOTEWRIGHT, "search", bench.rare[0], *place), 10)


# -- reading and finding


def some(bench: Bench, count: int) -> list[str]:
    return bench.chance.sample(bench.notes, min(count, len(bench.notes)))


def read(bench: Bench) -> Samples:
    return calls(bench.client, "read", [{"path": name} for name in some(bench, 200)])


def search_rare(bench: Bench) -> Samples:
    return calls(bench.client, "search", [{"query": word} for word in bench.rare])


def search_sentence(bench: Bench) -> Samples:
    return calls(bench.client, "search", [{"query": sentence} for sentence in bench.sentences])


def grep_word(bench: Bench) -> Samples:
    return calls(bench.client, "grep", [{"pattern": rf"{word}\W+\w+"} for word in bench.rare[:15]])


def rg_word(bench: Bench) -> Samples:
    return rg(bench, "-i", "-c", rf"{bench.rare[0]}\W+\w+")


WIDE = r"[bdf][aeiou]{3}[xyz]\d?|\d{4}-\d{2}-\d{2}T"


def grep_wide(bench: Bench) -> Samples:
    return timed(lambda: bench.client.call("grep", pattern=WIDE), 5)


def rg_wide(bench: Bench) -> Samples:
    return rg(bench, "-i", "-c", WIDE)


def links(bench: Bench) -> Samples:
    return calls(bench.client, "links", [{"path": name} for name in some(bench, 100) if not name.startswith("Maps/")])


def outline(bench: Bench) -> Samples:
    return calls(bench.client, "read", [{"path": name, "outline": True} for name in some(bench, 100)])


def rg_files(bench: Bench) -> Samples:
    return rg(bench, "--files")


def glob(bench: Bench) -> Samples:
    return timed(lambda: bench.client.call("list", glob="**/2025-1*.md"), 20)


def list_folder(bench: Bench) -> Samples:
    return timed(lambda: bench.client.call("list", folder="People"), 20)


def many_at_once(bench: Bench) -> Samples:
    """Searches a second with eight in flight, against one at a time."""
    client, asked = bench.client, [sentence for sentence in bench.sentences for _ in range(2)]
    for sentence in asked[:8]:
        client.call("search", query=sentence)
    alone = sum(timed(lambda: [client.call("search", query=sentence) for sentence in asked], 1, warm=0))

    def together() -> None:
        waiting = 0
        for sentence in asked:
            if waiting == 8:
                client.receive()
                waiting -= 1
            client.send("tools/call", {"name": "search", "arguments": {"query": sentence}})
            waiting += 1
        for _ in range(waiting):
            client.receive()

    return [alone / sum(timed(together, 1, warm=0))]


# -- writing


def create(bench: Bench) -> Samples:
    text = "# New\n\n" + " ".join(bench.sentences[:20])
    return calls(bench.client, "write", [{"path": f"bench/new {n}.md", "content": text} for n in range(40)])


def append(bench: Bench) -> Samples:
    bench.client.call("write", path="bench/log.md", content="# Log\n\nfirst\n")
    lines = [{"path": "bench/log.md", "edits": [{"append": f"line {n}\n"}]} for n in range(40)]
    return calls(bench.client, "edit", lines)


def replace(bench: Bench) -> Samples:
    bench.client.call("write", path="bench/count.md", content="# Count\n\nnumber 0 of many\n")
    steps = [{"replace": f"number {n} of", "with": f"number {n + 1} of"} for n in range(40)]
    return calls(bench.client, "edit", [{"path": "bench/count.md", "edits": [step]} for step in steps])


LINKING = 50


def rename(bench: Bench) -> Samples:
    bench.client.call("write", path="bench/well known 0.md", content="# Well known\n")
    for n in range(LINKING):
        bench.client.call("write", path=f"bench/fan {n}.md", content=f"# {n}\n\nSee [[well known 0]] and more.\n")
    moves = [{"from": f"bench/well known {n}.md", "to": f"bench/well known {n + 1}.md"} for n in range(6)]
    return calls(bench.client, "move", moves)


def outside(bench: Bench) -> Samples:
    """From an editor's save to a search that finds it."""

    def once(number: int) -> float:
        word = f"zyxo{number}{time.time_ns()}"
        (bench.vault / f"outside {number}.md").write_text(f"# Outside\n\n{word}\n", encoding="utf-8")
        began = time.perf_counter()
        while f"outside {number}" not in bench.client.call("search", query=word):
            if time.perf_counter() - began > 10:
                raise Refused("an outside edit was not seen within ten seconds")
            time.sleep(0.002)
        return (time.perf_counter() - began) * 1000

    bench.client  # noqa: B018
    return [once(number) for number in range(8)]


def own_write(bench: Bench) -> Samples:
    """Calls until a search finds what the call before wrote."""
    found = []
    for number in range(10):
        word = f"qwvo{number}{time.time_ns()}"
        bench.client.call("write", path=f"bench/own {number}.md", content=f"# Own\n\n{word}\n")
        tries = 1
        while f"own {number}" not in bench.client.call("search", query=word) and tries < 100:
            tries += 1
        found.append(float(tries))
    return found


# -- size


def memory(bench: Bench) -> Samples:
    """Resident megabytes of the server and its children."""
    bench.client  # noqa: B018
    table = subprocess.run(("ps", "-e", "-o", "pid=,ppid=,rss="), capture_output=True, text=True).stdout
    rows = [tuple(map(int, line.split())) for line in table.splitlines()]
    family = {bench.client.process.pid}
    for pid, parent, _ in sorted(rows):
        if parent in family:
            family.add(pid)
    return [sum(rss for pid, _, rss in rows if pid in family) / 1024]


def index_size(bench: Bench) -> Samples:
    """Bytes of the index for one byte of notes."""
    bench.client  # noqa: B018
    index = sum(file.stat().st_size for file in (bench.state / "cache").rglob("*") if file.is_file())
    return [index / sum((bench.vault / name).stat().st_size for name in bench.notes)]


REFERENCES = (
    Row("walk", walk),
    Row("bytes", all_bytes),
    Row("sync1", sync1),
    Row("rg files", rg_files),
    Row("rg word", rg_word),
    Row("rg wide", rg_wide),
    Row("python", python),
    Row("python + mcp", python_mcp),
    Row("echo", echo),
    Row("noop", noop, "≤ 4 × echo", lambda r: 4 * r["echo"], "echo"),
)
HUNDRED = (100_000,)
ROWS = (
    Row("parse one note", parse_notes, "", None, "bytes"),
    Row("cold start until all is searchable", cold, "≤ 45 × bytes", lambda r: 45 * r["bytes"], "bytes"),
    Row("fts", fts),
    Row("start to initialize", start, "≤ 1.1 × (python + mcp)", lambda r: 1.1 * r["python + mcp"], "python + mcp"),
    Row("warm start until fresh", warm, "≤ 2 × walk", lambda r: 2 * r["walk"], "walk", sizes=HUNDRED),
    Row("notewright --help", help_command, "≤ 3 × python", lambda r: 3 * r["python"], "python"),
    Row("notewright search", search_command, "≤ 3 × python + fts", lambda r: 3 * r["python"] + r["fts"], "python"),
    Row("read a note", read, "≤ noop + 0.2", lambda r: r["noop"] + 0.2, "noop"),
    Row("search, a rare word", search_rare, "≤ noop + 4", lambda r: r["noop"] + 4, "noop"),
    Row("search, ten words", search_sentence, "≤ noop + 15", lambda r: r["noop"] + 15, "noop", sizes=(1_000, 10_000)),
    Row("search, ten words", search_sentence, "≤ noop + 100", lambda r: r["noop"] + 100, "noop", sizes=HUNDRED),
    Row("grep holding a word", grep_word, "≤ 0.25 × rg", lambda r: 0.25 * r["rg word"], "rg word"),
    Row("grep, nothing to narrow by", grep_wide, "≤ 1.2 × rg", lambda r: 1.2 * r["rg wide"], "rg wide"),
    Row("links of a note", links, "≤ 2 × noop", lambda r: 2 * r["noop"], "noop"),
    Row("outline of a note", outline, "≤ 2 × noop", lambda r: 2 * r["noop"], "noop"),
    Row("glob", glob, "≤ 0.1 × rg files", lambda r: 0.1 * r["rg files"], "rg files"),
    Row("list a folder", list_folder, "≤ 0.1 × rg files", lambda r: 0.1 * r["rg files"], "rg files"),
    Row("eight searches in flight", many_at_once, "≥ 1.5 ×", lambda r: 1.5, unit="×", at_least=True),
    Row("create", create, "≤ noop + 4 × sync1", lambda r: r["noop"] + 4 * r["sync1"], "sync1"),
    Row("append", append, "≤ noop + 4 × sync1", lambda r: r["noop"] + 4 * r["sync1"], "sync1"),
    Row("replace", replace, "≤ noop + 4 × sync1", lambda r: r["noop"] + 4 * r["sync1"], "sync1"),
    Row(f"rename, {LINKING} notes link", rename, "≤ 3 × n × sync1", lambda r: 3 * LINKING * r["sync1"], "sync1"),
    Row("own write seen by search", own_write, "the next call", lambda r: 1, unit="calls"),
    Row("outside edit seen by search", outside, "≤ 250", lambda r: 250),
    Row("memory", memory, "≤ 120", lambda r: 120, unit="MB", sizes=(1_000, 10_000)),
    Row("memory", memory, "≤ 300", lambda r: 300, unit="MB", sizes=HUNDRED),
    Row("index on disk", index_size, "≤ 4 × the notes", lambda r: 4, unit="×"),
)


def median(samples: Samples) -> float:
    return statistics.median(samples)


def p95(samples: Samples) -> float:
    return sorted(samples)[min(len(samples) - 1, int(len(samples) * 0.95))]
