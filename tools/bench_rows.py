"""What is measured: every row is a small function that takes one sample at a time, and one line in a list."""

import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count, cycle
from pathlib import Path

from bench_client import NOTEWRIGHT, Client, Refused
from bench_references import WIDE, Bench, Sampler, calls, each, family_megabytes, noop, run, timed, until_fresh

SAVED = 500  # notes that are changed from outside at once
LINKING = 50  # notes that link to the one that is renamed
IN_FLIGHT = 8
MEANWHILE = 6  # samples of each while an index is made that takes longer than a search waits
Limit = Callable[[Mapping[str, float]], float]


@dataclass(frozen=True)
class Row:
    """Something measured, the references taken in turn with it (the first is what the ratio is to), and its budget."""

    name: str
    prepare: Callable[[Bench], Sampler]
    references: tuple[str, ...] = ()
    budget: str = ""
    limit: Limit | None = None
    rounds: int = 20
    burst: int = 1  # samples one after the other in a round: a call after something else finds nothing in the caches
    unit: str = "ms"
    sizes: tuple[int, ...] = ()  # none: all
    at_least: bool = False  # more is better
    warm: bool = True  # one round before those that count


# ---- starting -----------------------------------------------------------------------------------------


def start(bench: Bench) -> Sampler:
    def once() -> float:
        with bench.serve() as client:
            return client.start_ms

    return once


def cold(bench: Bench) -> Sampler:
    """From the handshake, with nothing there, to a search over everything. Now and then something is read meanwhile."""

    def once() -> float:
        shutil.rmtree(bench.state, ignore_errors=True)
        bench.first = client = bench.closing.enter_context(bench.serve())
        began = time.perf_counter()
        _while_indexing(bench, client)
        until_fresh(client)
        return (time.perf_counter() - began) * 1000

    return once


def _while_indexing(bench: Bench, client: Client) -> None:
    """Reading, listing and looking up a name, until the index is there: they answer beside a search that waits."""
    named = [os.path.basename(name)[:-3] for name in bench.some(40)]
    asked = {
        "read": cycle({"path": name} for name in bench.some(40)),
        "list": cycle([{"folder": "People"}, {"folder": "Daily"}]),
        "name": cycle({"path": name} for name in named),
    }
    search = {"name": "search", "arguments": {"query": "anything"}}
    waiting: int | None = client.send("tools/call", search)
    for turn in cycle(asked):
        samples = bench.meanwhile.setdefault(turn, [])
        if waiting is None and samples:
            return
        began = time.perf_counter()
        mine = client.send("tools/call", {"name": "list" if turn == "list" else "read", "arguments": next(asked[turn])})
        while (answer := client.receive())["id"] != mine:
            refused = answer["result"].get("isError") and len(samples) < MEANWHILE  # it waits for some seconds
            waiting = client.send("tools/call", search) if refused else None
        samples.append((time.perf_counter() - began) * 1000)
        if waiting is not None:
            time.sleep(min(0.5, bench.size / 50_000))  # a small vault is indexed in less


def processor_time(bench: Bench) -> Sampler:
    """What the server that made the index, and the process that wrote it, have worked so far."""
    if bench.first is None:
        raise Refused("no server made an index")
    stat = Path(f"/proc/{bench.first.process.pid}/stat")

    def once() -> float:
        ticks = stat.read_text().rpartition(")")[2].split()[11:15]  # its own and of its children that ended
        return sum(map(int, ticks)) * 1000 / os.sysconf("SC_CLK_TCK")

    return once


def meanwhile(what: str) -> Callable[[Bench], Sampler]:
    """What was measured while the index was made, sample by sample."""

    def prepared(bench: Bench) -> Sampler:
        kept = bench.meanwhile.get(what)
        if not kept:
            raise Refused("the index was there before anything was asked")
        return cycle(kept).__next__

    return prepared


def warm(bench: Bench) -> Sampler:
    """From the handshake to a search that has seen every file, with an index from before and no other server."""
    if bench.first:
        bench.first.__exit__()

    def once() -> float:
        with bench.serve() as client:
            began = time.perf_counter()
            until_fresh(client)
            return (time.perf_counter() - began) * 1000

    return once


def search_command(bench: Bench) -> Sampler:
    bench.client  # noqa: B018  the index is there
    place = ("--workspace", str(bench.vault), "--state", str(bench.state))
    return run(NOTEWRIGHT, "search", bench.rare[0], *place)


# ---- reading and finding ------------------------------------------------------------------------------


def asking(tool: str, arguments: Callable[[Bench], list[dict[str, object]]]) -> Callable[[Bench], Sampler]:
    return lambda bench: calls(bench.client, tool, arguments(bench))


def in_dialect(tool: str, arguments: Callable[[Bench], list[dict[str, object]]]) -> Callable[[Bench], Sampler]:
    return lambda bench: calls(bench.dialects, tool, arguments(bench))


def of_notes(**more: object) -> Callable[[Bench], list[dict[str, object]]]:
    """Some notes; not the maps, which link to hundreds."""
    return lambda bench: [{"path": name, **more} for name in bench.some(120) if not name.startswith("Maps/")]


def by_name(bench: Bench) -> list[dict[str, object]]:
    return [{"name": os.path.basename(name)[:-3]} for name in bench.some(60)]


def eight_at_once(tool: str, arguments: Callable[[Bench], list[dict[str, object]]]) -> Callable[[Bench], Sampler]:
    """How many times more calls a second with eight in flight than one at a time."""

    def prepared(bench: Bench) -> Sampler:
        client, asked = bench.client, arguments(bench)

        def alone() -> None:
            for given in asked:
                client.call(tool, **given)

        def together() -> None:
            for number, given in enumerate(asked):
                if number >= IN_FLIGHT:
                    client.receive()
                client.send("tools/call", {"name": tool, "arguments": given})
            for _ in range(min(IN_FLIGHT, len(asked))):
                client.receive()

        return lambda: timed(alone)() / timed(together)()

    return prepared


# ---- writing ------------------------------------------------------------------------------------------


def create(bench: Bench) -> Sampler:
    text = "# New\n\n" + "\n\n".join(bench.sentences[:30])
    numbers = count()
    return each(lambda number: bench.client.call("write", path=f"bench/new {number}.md", content=text), numbers)


def append(bench: Bench) -> Sampler:
    bench.client.call("write", path="bench/log.md", content="# Log\n\nfirst\n")
    return each(
        lambda number: bench.client.call("edit", path="bench/log.md", edits=[{"append": f"line {number}\n"}]), count()
    )


def replace(bench: Bench) -> Sampler:
    bench.client.call("write", path="bench/count.md", content="# Count\n\nnumber 0 of many\n")

    def step(number: int) -> None:
        edit = {"replace": f"number {number} of", "with": f"number {number + 1} of"}
        bench.client.call("edit", path="bench/count.md", edits=[edit])

    return each(step, count())


def rename(bench: Bench) -> Sampler:
    bench.client.call("write", path="bench/well known 0.md", content="# Well known\n")
    for n in range(LINKING):
        bench.client.call("write", path=f"bench/fan {n}.md", content=f"# {n}\n\nSee [[well known 0]] and more.\n")
    step = {"from": "bench/well known {}.md", "to": "bench/well known {}.md"}

    def once(number: int) -> None:
        bench.client.call("move", **{"from": step["from"].format(number), "to": step["to"].format(number + 1)})

    return each(once, count())


def own_write(bench: Bench) -> Sampler:
    """Calls until a search finds what the call before wrote."""
    numbers = count()

    def once() -> float:
        number = next(numbers)
        word = f"qwvo{number}{time.time_ns()}"
        bench.client.call("write", path=f"bench/own {number}.md", content=f"# Own\n\n{word}\n")
        for tries in range(1, 100):
            if f"own {number}" in bench.client.call("search", query=word):
                return tries
        raise Refused("a write was not seen by a hundred searches")

    return once


def outside(bench: Bench) -> Sampler:
    """From an editor's save to a search that finds it."""
    numbers = count()

    def once() -> float:
        number = next(numbers)
        word = f"zyxo{number}{time.time_ns()}"
        (bench.vault / f"outside {number}.md").write_text(f"# Outside\n\n{word}\n", encoding="utf-8")
        began = time.perf_counter()
        while f"outside {number}" not in bench.client.call("search", query=word):
            if time.perf_counter() - began > 10:
                raise Refused("an outside edit was not seen within ten seconds")
            time.sleep(0.002)
        return (time.perf_counter() - began) * 1000

    bench.client  # noqa: B018  it watches
    return once


def outside_many(bench: Bench) -> Sampler:
    """From the first of so many saves, one after the other, to an index that has them all."""
    database = bench.database()

    def once() -> float:
        word = f"xwzo{time.time_ns()}"
        began = time.perf_counter()
        for name in bench.some(SAVED):
            with open(bench.vault / name, "a", encoding="utf-8") as file:
                file.write(f"\n{word}\n")
        while database.execute("select count(*) from words where words match ?", (word,)).fetchone()[0] < SAVED:
            if time.perf_counter() - began > 60:
                raise Refused("outside edits were not indexed within a minute")
            time.sleep(0.005)
        return (time.perf_counter() - began) * 1000

    return once


# ---- size ---------------------------------------------------------------------------------------------


def memory(bench: Bench) -> Sampler:
    """Resident megabytes of the server that made the index, and of its children, after some questions."""
    client = bench.first or bench.client
    for sentence in bench.sentences[:20]:
        client.call("search", query=sentence)
    client.call("grep", pattern=WIDE)

    return lambda: family_megabytes(client.process.pid)


def index_size(bench: Bench) -> Sampler:
    """Bytes of the index for one byte of notes."""
    notes = sum((bench.vault / name).stat().st_size for name in bench.notes)

    def once() -> float:
        kept = (file for file in (bench.state / "cache").rglob("*") if file.is_file())
        return sum(file.stat().st_size for file in kept) / notes

    return once


def times(factor: float, name: str) -> Limit:
    return lambda known: factor * known[name]


def over_noop(milliseconds: float) -> Limit:
    return lambda known: known["noop"] + milliseconds


def bare_or_rg(bare: str, searched: str) -> Limit:
    return lambda known: max(known["noop"] + 2 * known[bare], 0.5 * known[searched])


NOOP, SYNC = ("noop",), ("sync1", "noop")
WRITING: Limit = lambda known: known["noop"] + 4 * known["sync1"]  # noqa: E731
AT_ONCE: Limit = lambda known: 100  # noqa: E731
SMALL, HUNDRED = (1_000, 10_000), (100_000,)
BURST = 10
ROWS = (
    Row("noop", noop, ("echo",), "≤ 4 × echo", times(4, "echo"), 50, BURST),
    Row("cold start until all is searchable", cold, ("bytes",), "≤ 45 × bytes", times(45, "bytes"), 1, warm=False),
    Row("… processor time of all of it", processor_time, ("bytes, processor time",), "≤ 2 cores × 45 × bytes",
        times(90, "bytes, processor time"), 1, warm=False),
    Row("… a read meanwhile", meanwhile("read"), NOOP, "at once: ≤ 100 ms", AT_ONCE),
    Row("… a folder listed meanwhile", meanwhile("list"), NOOP, "at once: ≤ 100 ms", AT_ONCE),
    Row("… a name looked up meanwhile", meanwhile("name"), NOOP, "at once: ≤ 100 ms", AT_ONCE),
    Row("memory", memory, (), "≤ 120 MB", lambda known: 120, 1, unit="MB", sizes=SMALL),
    Row("memory", memory, (), "≤ 300 MB", lambda known: 300, 1, unit="MB", sizes=HUNDRED),
    Row("index on disk", index_size, (), "≤ 4 × the notes", lambda known: 4, 1, unit="×"),
    Row("warm start until fresh", warm, ("walk",), "", None, 5, sizes=SMALL),
    Row("warm start until fresh", warm, ("walk",), "≤ 2 × walk", times(2, "walk"), 5, sizes=HUNDRED),
    Row("start to initialize", start, ("python + mcp",), "≤ 0.4 × (python + mcp)", times(0.4, "python + mcp"), 7),
    Row("notewright --help", lambda bench: run(NOTEWRIGHT, "--help", fine=(0,)), ("python",), "≤ 3 × python",
        times(3, "python"), 10),
    Row("notewright search", search_command, ("python", "fts, a rare word"), "≤ 3 × python + fts",
        lambda known: 3 * known["python"] + known["fts, a rare word"], 10),
    Row("read a note", asking("read", of_notes()), NOOP, "≤ noop + 0.2 ms", over_noop(0.2), 20, BURST),
    Row("search, a rare word", asking("search", lambda bench: [{"query": word} for word in bench.rare]), NOOP,
        "≤ noop + 4 ms", over_noop(4), 12, BURST),
    Row("search, ten words", asking("search", lambda bench: [{"query": words} for words in bench.sentences]), NOOP,
        "≤ noop + 15 ms", over_noop(15), 12, BURST, sizes=SMALL),
    Row("search, ten words", asking("search", lambda bench: [{"query": words} for words in bench.sentences]), NOOP,
        "≤ noop + 100 ms", over_noop(100), 12, BURST, sizes=HUNDRED),
    Row("Cairn: all words by prefix",
        in_dialect("cairn_search", lambda bench: [{"query": f"{word[:4]} {bench.common[0]}"} for word in bench.rare]),
        ("fts, two prefixes", "noop", "rg, a word"), "≤ noop + 2 × fts or 0.5 × rg",
        bare_or_rg("fts, two prefixes", "rg, a word"), 10, BURST),
    Row("obsidian: substring",
        in_dialect("search_notes", lambda bench: [{"query": word[1:], "mode": "content"} for word in bench.rare]),
        ("rg, a text",), "≤ 0.5 × rg", times(0.5, "rg, a text"), 10, BURST),
    Row("Octarine: regex with places",
        in_dialect("octarine_search_notes",
                   lambda bench: [{"query": rf"{word[:5]}\w*", "regex": True} for word in bench.rare]),
        ("rg, places",), "≤ 0.5 × rg", times(0.5, "rg, places"), 10, BURST),
    Row("grep holding a word",
        asking("grep", lambda bench: [{"pattern": rf"{word}\W+\w+"} for word in bench.rare]), ("rg, a word",),
        "≤ 0.25 × rg", times(0.25, "rg, a word"), 10, BURST),
    Row("grep, nothing to narrow by", asking("grep", lambda bench: [{"pattern": WIDE}]), ("rg, wide",), "≤ 1.2 × rg",
        times(1.2, "rg, wide"), 7),
    Row("backlinks", asking("links", of_notes(direction="in")), NOOP, "≤ 2 × noop", times(2, "noop"), 20, BURST),
    Row("outgoing links", asking("links", of_notes(direction="out")), NOOP, "≤ 2 × noop", times(2, "noop"), 20, BURST),
    Row("headings", in_dialect("get_headings", by_name), NOOP, "≤ 2 × noop", times(2, "noop"), 20, BURST),
    Row("tags and links", in_dialect("get_note_metadata", by_name), NOOP, "≤ 2 × noop", times(2, "noop"), 20, BURST),
    Row("glob", asking("list", lambda bench: [{"glob": "**/2025-1*.md"}]), ("rg --files",), "≤ 0.1 × rg --files",
        times(0.1, "rg --files"), 10, BURST),
    Row("list a folder", asking("list", lambda bench: [{"folder": "People"}, {"folder": ""}]), ("rg --files",),
        "≤ 0.1 × rg --files", times(0.1, "rg --files"), 10, BURST),
    Row("eight reads in flight", eight_at_once("read", of_notes()), (), "≥ one at a time", lambda known: 1, 9, unit="×",
        at_least=True),
    Row("eight searches in flight",
        eight_at_once("search", lambda bench: [{"query": words} for words in bench.sentences[:40]]), (),
        "≥ 1.5 × one at a time", lambda known: 1.5, 5, unit="×", at_least=True),
    Row("create", create, SYNC, "≤ noop + 4 × sync1", WRITING, 12, 5),
    Row("append", append, SYNC, "≤ noop + 4 × sync1", WRITING, 12, 5),
    Row("replace", replace, SYNC, "≤ noop + 4 × sync1", WRITING, 12, 5),
    Row(f"rename, {LINKING} notes link", rename, ("sync1",), f"≤ 3 × {LINKING} × sync1", times(3 * LINKING, "sync1"),
        8),
    Row("own write seen by search", own_write, (), "the next call", lambda known: 1, 10, unit="calls"),
    Row("outside edit seen by search", outside, (), "≤ 250 ms", lambda known: 250, 8),
    Row(f"{SAVED} outside edits indexed", outside_many, (), "≤ 1,000 ms", lambda known: 1_000, 5,
        sizes=(10_000, 100_000)),
)  # fmt: skip
