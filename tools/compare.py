"""Other MCP servers for notes and ours, asked the same of the same notes: `compare.py [1k 10k] [--only NAMES]`.

Installs them below .bench/compare, gives each a copy of one generated vault, asks in turn through one client, checks
every answer, and writes docs/compare.md. A wrong answer has no time but a reason; what cannot be installed is told.
"""

import argparse
import os
import platform
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, cycle
from pathlib import Path

from bench_client import Client, Refused
from bench_references import BURSTS, REFERENCES, Bench, Sampler, family_megabytes, rg
from compare_found import Found, find
from compare_page import Cell, Compared, Entry, page
from compare_servers import NOTEWRIGHT_SERVER, SERVERS, Place, Running, Server, install, start
from compare_truth import (
    CODE,
    Question,
    Questions,
    alone,
    appended,
    created,
    links_followed,
    moved,
    plant,
    read_truth,
    renamed,
)
from make_vault import make_vault

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / ".bench" / "compare"
PAGE = ROOT / "docs" / "compare.md"
COLD_SECONDS, WARM_SECONDS, SEEN_SECONDS, CALL_SECONDS = 150, 60, 10, 60
STARTS, ROUNDS, BURST, IN_FLIGHT = 3, 6, 10, 8
BURST_SECONDS, ROW_SECONDS = 0.4, 4.0  # after so long a round, or a row, has enough answers of one server
MOST_WRONG = 3
UNREADABLE = (ValueError, KeyError, TypeError, IndexError)  # an answer of another shape than its tool gives
Asking = Callable[[Running, Questions], Iterator[Question]]


# ---- what is measured ---------------------------------------------------------------------------------


def of(name: str) -> Asking:
    return lambda running, questions: cycle(questions[name])


def creating(running: Running, questions: Questions) -> Iterator[Question]:
    text = "# New\n\n" + "\n\n".join(question.given[0] for question in questions["run"])
    for number in count():
        path = f"Compare/Written/New {number}.md"
        yield Question("create", (path, text), lambda _, path=path: created(running.place.vault, path, text))


def appending(running: Running, questions: Questions) -> Iterator[Question]:
    path = "Compare/Written/Log.md"
    running.ask("create", path, "# Log\n\nfirst\n")
    file = running.place.vault / path
    for number in count():
        before, added = file.read_text("utf-8"), f"line {number}\n"
        yield Question("append", (path, added), lambda _, b=before, a=added: appended(b, file.read_text("utf-8"), a))


def replacing(running: Running, questions: Questions) -> Iterator[Question]:
    path = "Compare/Written/Count.md"
    running.ask("create", path, "# Count\n\nnumber 0 of many\n")
    file = running.place.vault / path
    for number in count():
        after = file.read_text("utf-8").replace(f"number {number} of", f"number {number + 1} of")
        given = (path, f"number {number} of", f"number {number + 1} of")
        right = lambda _, after=after: "" if file.read_text("utf-8") == after else "the file holds something else"  # noqa: E731
        yield Question("replace", given, right)


def renaming(running: Running, questions: Questions) -> Iterator[Question]:
    vault = running.place.vault
    for number in count():
        old, new = renamed(number), renamed(number + 1)
        yield Question("move", (old, new), lambda _, o=old, n=new: moved(vault, o, n) or links_followed(vault, o, n))


def renaming_alone(running: Running, questions: Questions) -> Iterator[Question]:
    for number in count():
        old, new = alone(number), alone(number + 1)
        yield Question("move", (old, new), lambda _, o=old, n=new: moved(running.place.vault, o, n))


@dataclass(frozen=True)
class Row:
    """Something asked of every server in turn, and what the times are set beside."""

    name: str
    kind: str
    asking: Asking
    reference: str


ROWS = (
    Row("read a note", "read", of("read"), "echo"),
    Row("search, a rare word", "search", of("rare"), "echo"),
    Row("search, ten words as they stand", "search", of("run"), "echo"),
    Row("search, three words apart", "search", of("together"), "echo"),
    Row("grep holding a word", "grep", of("grep"), "rg, a word"),
    Row("grep, nothing to narrow by", "grep", of("code"), "rg, a code"),
    Row("backlinks", "backlinks", of("backlinks"), "echo"),
    Row("list a folder of 60", "list", of("list"), "echo"),
    Row("glob", "glob", of("glob"), "rg --files"),
    Row("create", "create", creating, "sync1"),
    Row("append", "append", appending, "sync1"),
    Row("replace", "replace", replacing, "sync1"),
    Row("rename, nothing links", "move", renaming_alone, "sync1"),
    Row("rename, 50 notes link", "move", renaming, "sync1"),
)
TOGETHER = f"a read, {IN_FLIGHT} in flight"


# ---- measuring ----------------------------------------------------------------------------------------


def say(text: str) -> None:
    print(text, flush=True)


@contextmanager
def limited(client: Client, seconds: float) -> Iterator[threading.Event]:
    """End a server that takes longer; the event says that it was."""
    over = threading.Event()

    def end() -> None:
        over.set()
        client.process.kill()

    timer = threading.Timer(seconds, end)
    timer.start()
    try:
        yield over
    finally:
        timer.cancel()


def short(running: Running, problem: Exception) -> str:
    """What went wrong, in a line without places of this machine."""
    text = str(problem).strip().partition("\n")[0].replace(str(running.place.vault), "FOLDER")
    return re.sub(r"(/[\w.-]+){3,}", "…", text)[:120] if isinstance(problem, Refused) else "an answer of another shape"


def burst(running: Running, asked: Iterator[Question], cell: Cell, counts: bool) -> None:
    """Some questions one after the other. Where something is wrong for good, the cell says so and is done."""
    began = time.perf_counter()
    for number in range(BURST):
        if number and time.perf_counter() - began > BURST_SECONDS:
            return
        with limited(running.client, CALL_SECONDS) as over:
            try:
                question = next(asked, None)
                if question is None:  # what it needs could not be made: the cell says why already
                    cell.done = True
                    return
                started = time.perf_counter()
                answer = running.ask(question.kind, *question.given)
                took = (time.perf_counter() - started) * 1000
                why = question.check(answer)
            except (Refused, OSError, *UNREADABLE) as problem:
                why = f"no answer within {CALL_SECONDS} s" if over.is_set() else short(running, problem)
                took = (time.perf_counter() - began) * 1000
        cell.add(took, why, counts)
        if running.client.process.poll() is not None:
            running.close()
            cell.done = True
        if cell.done or len(cell.wrong) >= MOST_WRONG:
            cell.done = True
            return


def in_turn(row: Row, servers: list[Running], questions: Questions, references: "References") -> dict[str, Cell]:
    """Rounds of a burst for every server and the reference; the first round warms up."""
    cells = {running.server.name: Cell() for running in servers}
    asked: dict[str, Iterator[Question]] = {}
    for running in servers:
        cell = cells[running.server.name]
        if row.kind in running.server.tools:
            asked[running.server.name] = row.asking(running, questions)
        else:
            cell.lacks = running.server.lacks[row.kind]
    for turn in range(ROUNDS):
        for running in servers:
            cell = cells[running.server.name]
            if not cell.lacks and not cell.done:
                burst(running, asked[running.server.name], cell, counts=turn > 0)
                cell.done = cell.done or cell.spent > ROW_SECONDS
        references.sample(row.reference, row.name)
    return cells


def together(running: Running, questions: list[Question]) -> Cell:
    """Reads with several in flight: milliseconds a read."""
    cell = Cell()
    if "read" not in running.server.tools:
        return Cell(lacks=running.server.lacks["read"])
    tool, client = running.server.tools["read"], running.client
    waiting: dict[int, Question] = {}

    def receive() -> None:
        message = client.receive()
        question = waiting.pop(message["id"])
        text = "\n".join(part["text"] for part in message["result"]["content"])
        cell.wrong += [why for why in [question.check(tool.read(running.place, text))] if why]

    with limited(client, CALL_SECONDS):
        try:
            for _ in range(3):
                began = time.perf_counter()
                for question in questions:
                    arguments = tool.arguments(running.place, *question.given)
                    waiting[client.send("tools/call", {"name": tool.name, "arguments": arguments})] = question
                    if len(waiting) >= IN_FLIGHT:
                        receive()
                while waiting:
                    receive()
                cell.samples.append((time.perf_counter() - began) * 1000 / len(questions))
        except (Refused, OSError, *UNREADABLE) as problem:
            cell.wrong.append(short(running, problem))
    return cell


class References:
    """What the times are set beside, taken in the same rounds."""

    def __init__(self, size: int, vault: Path) -> None:
        self.bench = Bench(size, vault, PLACE / "no-state")
        self.samplers: dict[str, Sampler | None] = {}
        self.samples: dict[str, list[float]] = {}  # by row

    def sample(self, name: str, row: str) -> None:
        if name not in self.samplers:
            prepare = rg("-c", CODE) if name == "rg, a code" else REFERENCES[name]
            try:
                self.samplers[name] = prepare(self.bench)
            except (Refused, OSError):
                self.samplers[name] = None
        sampler = self.samplers[name]
        if sampler:
            try:
                self.samples.setdefault(row, []).extend(sampler() for _ in range(BURSTS.get(name, 1)))
            except (Refused, OSError):
                self.samplers[name] = None


# ---- starting -----------------------------------------------------------------------------------------


def until_right(running: Running, asked: list[Question], seconds: float) -> float:
    """Milliseconds from the start of the process until every question is answered right; Refused after so long."""
    client = running.client
    end = time.monotonic() + seconds
    with limited(client, seconds + 5) as over:
        for question in asked:
            while True:
                try:
                    if not question.check(running.ask(question.kind, *question.given)):
                        break
                except (Refused, OSError, *UNREADABLE):
                    if over.is_set() or client.process.poll() is not None:
                        raise Refused(f"not within {seconds:.0f} s") from None
                if time.monotonic() > end:
                    raise Refused(f"not within {seconds:.0f} s")
                time.sleep(0.02)
    return (time.perf_counter() - client.began) * 1000


def starting(servers: list[Running], questions: Questions, references: References) -> dict[str, dict[str, Cell]]:
    """Cold, with nothing kept; then warm, several times in turn, each time with a note that was changed meanwhile."""
    rows = ("start to initialize", "cold start until searchable", "warm start until searchable",
            "… until a note changed meanwhile is found")  # fmt: skip
    table = {row: {running.server.name: Cell() for running in servers} for row in rows}
    first, cold, warm, seen = (table[row] for row in rows)
    probes = questions["rare"][:5]
    for turn in range(1 + STARTS):
        for name, row in zip(("python", "bytes", "walk"), rows, strict=False):
            references.sample(name, row)
        for running in servers:
            name, searches = running.server.name, "search" in running.server.tools
            path, word = f"Compare/Known/Meanwhile {turn}.md", f"zqmeanwhile{turn}x"
            if turn:
                (running.place.vault / path).write_text(f"# Meanwhile\n\nThe word is {word} now.\n", encoding="utf-8")
                first[name].add(running.client.start_ms, "", counts=True)
            if not searches:
                for cells in (cold, warm, seen):
                    cells[name].lacks = running.server.lacks["search"]
            elif not cold[name].wrong:
                changed = [Question("search", (word,), lambda found, path=path: "" if path in found else "not found")]
                limits = ((warm, probes, WARM_SECONDS), (seen, changed, SEEN_SECONDS)) if turn else (
                    (cold, probes, COLD_SECONDS),)  # fmt: skip
                for cells, asked, seconds in limits:
                    if not cells[name].wrong:
                        cells[name].attempt(lambda r=running, a=asked, s=seconds: until_right(r, a, s))
                say(f"  {name}: {'warm' if turn else 'cold'} {(warm if turn else cold)[name].told()}")
            running.close()
    return table


# ---- durability ---------------------------------------------------------------------------------------


def synced(server: Server, programs: Path) -> str:
    """How often notes are fsynced when one is created, appended to and changed; seen from outside, with strace."""
    if not shutil.which("strace"):
        return "not traced: no strace here"
    written = [kind for kind in ("create", "append", "replace") if kind in server.tools]
    if not written:
        return "does not write"
    with tempfile.TemporaryDirectory() as folder:
        place = Place(Path(folder).resolve() / "notes", Path(folder).resolve() / "state", programs)
        plant(place.vault)
        log = Path(folder) / "trace"
        running = Running(server, place)
        trace = ("strace", "-f", "-y", "-qq", "-e", "trace=fsync,fdatasync,sync,syncfs,sync_file_range", "-o", str(log))
        try:
            running.start(*trace)
            with limited(running.client, CALL_SECONDS):
                for kind in written:
                    given = {"create": ("# A\n\none\n",), "append": ("two\n",), "replace": ("one", "uno")}[kind]
                    running.ask(kind, "Compare/Written.md", *given)
        except (Refused, OSError) as problem:
            return f"not traced: {short(running, problem)}"
        finally:
            running.close()
        made = re.findall(rf"f(?:data)?sync\(\d+<{re.escape(str(place.vault))}", log.read_text())
    return f"{len(made)} fsyncs in {len(written)} writes" if made else "no fsync"


# ---- all of it ----------------------------------------------------------------------------------------


def measured(size: int, servers: dict[Server, Path]) -> Compared:
    """One size: a vault, a copy for each server, starting, and every row in turn."""
    vault = PLACE / f"notes-{size}"
    if not (vault / "Compare").exists():
        shutil.rmtree(vault, ignore_errors=True)
        say(f"making {size:,} notes")
        make_vault(size, vault)
        plant(vault)
    questions, references = read_truth(vault).questions(), References(size, vault)
    runs = Path(tempfile.mkdtemp(prefix="runs-", dir=PLACE))
    running = []
    for server, programs in servers.items():
        place = Place(runs / server.slug / "notes", runs / server.slug / "state", programs)
        place.state.mkdir(parents=True)
        subprocess.run(("cp", "-Rp", str(vault), str(place.vault)), check=True)
        running.append(Running(server, place))
    load = os.getloadavg()[0]
    try:
        table = starting(running, questions, references)
        ready = [each for each in running if not table["cold start until searchable"][each.server.name].wrong]
        late = {each.server.name: Cell(wrong=["was not searchable in time"]) for each in running if each not in ready}
        for each in ready:
            if "search" in each.server.tools:
                until_right(each, questions["rare"][:5], WARM_SECONDS)
        for row in ROWS:
            table[row.name] = in_turn(row, ready, questions, references) | late
            say(f"{row.name}: " + " · ".join(f"{name} {cell.told()}" for name, cell in table[row.name].items()))
            if row.kind == "read":
                table[TOGETHER] = {each.server.name: together(each, questions["read"]) for each in ready} | late
        memory = {each.server.name: family_megabytes(each.client.process.pid) for each in ready}
    finally:
        for each in running:
            each.close()
        references.bench.closing.close()
        shutil.rmtree(runs, ignore_errors=True)
    beside = {row.name: row.reference for row in ROWS} | {TOGETHER: "echo", "start to initialize": "python",
        "cold start until searchable": "bytes", "warm start until searchable": "walk"}  # fmt: skip
    samples = references.samples | {TOGETHER: references.samples.get("read a note", [])}
    return Compared(size, table, samples, beside, memory, (load, os.getloadavg()[0]))


def installed(asked: list[Server]) -> tuple[dict[Server, Path], dict[str, str]]:
    """Those that could be installed and greet us, with their programs; of the others, why not."""
    had: dict[Server, Path] = {}
    missing: dict[str, str] = {}
    for server in asked:
        say(f"installing {server.name}")
        try:
            programs = install(server, PLACE / "servers")
            with tempfile.TemporaryDirectory() as folder:
                place = Place(Path(folder) / "notes", Path(folder) / "state", programs)
                plant(place.vault)
                with start(server, place):
                    had[server] = programs
        except (Refused, OSError) as problem:
            missing[server.name] = str(problem) if isinstance(problem, Refused) else "it does not start here"
            say(f"  {missing[server.name]}")
    return had, missing


def node_version() -> str:
    try:
        return subprocess.run(("node", "--version"), capture_output=True, text=True).stdout.strip().removeprefix("v")
    except FileNotFoundError:
        return "none"


def size_of(text: str) -> int:
    return int(text[:-1]) * 1000 if text.endswith("k") else int(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("sizes", nargs="*", type=size_of, default=[10_000])
    parser.add_argument("--only", default="", help="servers whose name holds one of these words, and ours")
    parser.add_argument("--no-write", action="store_true", help="print the page instead of writing docs/compare.md")
    asked = parser.parse_args()
    words = asked.only.split() or [""]
    chosen = [server for server in SERVERS if server is NOTEWRIGHT_SERVER or any(w in server.name for w in words)]
    began = time.monotonic()
    had, missing = installed(chosen)
    sizes = []
    for size in asked.sizes:
        sizes.append(measured(size, had))
    say("fsyncs")
    entries = [Entry(server, missing.get(server.name, ""), synced(server, had[server]) if server in had else "")
               for server in chosen]  # fmt: skip
    say("finding")
    found: dict[str, Found | str] = find(had, say)
    machine = f"Python {platform.python_version()}, Node {node_version()}, {platform.system()}, {os.cpu_count()} cores"
    text = page(time.strftime("%Y-%m-%d"), machine, entries, sizes, found)
    if asked.no_write:
        say(text)
    else:
        PAGE.write_text(text, encoding="utf-8")
    say(f"took {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
