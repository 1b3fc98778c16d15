"""What everything is compared with. A reference, like a row, is a function that takes one sample at a time."""

import os
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from bench_client import NOTEWRIGHT, PYTHON, Client, Refused

HERE = Path(__file__).resolve().parent
DIALECTS = ("notes", "cairn", "obsidian", "octarine")
WIDE = r"[bdf][aeiou]{3}[xyz]\d?|\d{4}-\d{2}-\d{2}T"  # nothing in it to narrow by
Sampler = Callable[[], float]
T = TypeVar("T")


@dataclass
class Bench:
    """One vault, the servers over it, and words to ask for. `vault` is a copy that may be written to."""

    size: int
    vault: Path
    state: Path
    closing: ExitStack = field(default_factory=ExitStack)
    chance: Random = field(default_factory=lambda: Random(4))
    meanwhile: dict[str, list[float]] = field(default_factory=dict)  # what was measured while something else was
    first: Client | None = None  # the server that made the index
    sites: dict[tuple[str, int], Any] = field(default_factory=dict)  # servers over HTTP, by kind and processes

    @cached_property
    def files(self) -> list[str]:
        return sorted(os.path.join(root, name) for root, _, names in os.walk(self.vault) for name in names)

    @cached_property
    def notes(self) -> list[str]:
        return [os.path.relpath(file, self.vault) for file in self.files if file.endswith(".md")]

    def some(self, count: int) -> list[str]:
        return self.chance.sample(self.notes, min(count, len(self.notes)))

    @cached_property
    def texts(self) -> list[list[str]]:
        """The plain words of some notes, in their order."""
        read = ((self.vault / name).read_text("utf-8", "replace") for name in self.some(2_000))
        return [[word for word in text.split() if word.isascii() and word.isalpha()] for text in read]

    @cached_property
    def common(self) -> list[str]:
        """Words that many notes have, the commonest first."""
        counted = Counter(word.lower() for words in self.texts for word in set(words) if len(word) > 3)
        return [word for word, _ in counted.most_common(20)]

    @cached_property
    def rare(self) -> list[str]:
        """Words that one of some notes has."""
        counted = Counter(word for words in self.texts for word in set(words))
        return self.chance.sample(sorted(w for w, n in counted.items() if n == 1 and len(w) > 5), 60)

    @cached_property
    def sentences(self) -> list[str]:
        """Ten words in a row, as they stand in some note."""
        found = []
        for words in self.texts:
            if len(words) > 60:
                at = self.chance.randrange(20, len(words) - 20)
                found.append(" ".join(words[at : at + 10]).lower())
        return found[:60]

    @cached_property
    def client(self) -> Client:
        """A server whose index is fresh."""
        return until_fresh(self.closing.enter_context(self.serve()))

    @cached_property
    def dialects(self) -> Client:
        """Another over the same notes, with the surfaces whose names do not collide."""
        asked = [word for name in DIALECTS for word in ("--surface", name)]
        return until_fresh(self.closing.enter_context(self.serve(*asked)))

    def database(self) -> Any:
        """The index that the server made."""
        import apsw

        self.client  # noqa: B018  it is there once it answers
        files = sorted((self.state / "cache").rglob("g-*/index.db"), key=lambda file: file.stat().st_mtime)
        if not files:
            raise Refused("no index found")
        opened = apsw.Connection(str(files[-1]), flags=apsw.SQLITE_OPEN_READONLY)
        self.closing.callback(opened.close)
        return opened

    def serve(self, *more: str) -> Client:
        command = (NOTEWRIGHT, "serve", f"Bench={self.vault}", "--state", str(self.state), "--no-rate-limits", *more)
        return Client(*command).handshake()


def until_fresh(client: Client, seconds: float = 1200) -> Client:
    """Wait until a search answers from a whole index."""
    until_answered(lambda: client.call("search", query="anything"), seconds)
    return client


def until_answered(ask: Callable[[], object], seconds: float = 1200) -> None:
    end = time.monotonic() + seconds
    while True:
        try:
            ask()
            return
        except Refused:
            if time.monotonic() > end:
                raise
            time.sleep(0.005)


# ---- how to take a sample -----------------------------------------------------------------------------


def each(work: Callable[[T], object], values: Iterator[T]) -> Sampler:
    """Milliseconds of the work on the next value."""

    def once() -> float:
        value = next(values)
        began = time.perf_counter()
        work(value)
        return (time.perf_counter() - began) * 1000

    return once


def timed(work: Callable[[], object]) -> Sampler:
    return each(lambda _: work(), cycle([None]))


def calls(client: Client, tool: str, arguments: list[dict[str, object]]) -> Sampler:
    """Milliseconds of one call, each time with the next arguments."""
    return each(lambda given: client.call(tool, **given), cycle(arguments))


def run(*command: str, fine: tuple[int, ...] = (0, 1)) -> Sampler:
    """Milliseconds of a command; Refused where it fails. Status 1 is "nothing found" for search and ripgrep."""

    def once() -> None:
        status = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
        if status not in fine:
            raise Refused(f"{Path(command[0]).name} ended with {status}")

    return timed(once)


def family_megabytes(pid: int) -> float:
    """Resident megabytes of a process and of all below it."""
    table = subprocess.run(("ps", "-e", "-o", "pid=,ppid=,rss="), capture_output=True, text=True).stdout
    rows = sorted(tuple(map(int, line.split())) for line in table.splitlines())
    family = {pid}
    for child, parent, _ in rows:
        if parent in family:
            family.add(child)
    return sum(rss for member, _, rss in rows if member in family) / 1024


# ---- references ---------------------------------------------------------------------------------------


def walk(bench: Bench) -> Sampler:
    def every(folder: str) -> int:
        count = 0
        with os.scandir(folder) as entries:
            for entry in entries:
                count += every(entry.path) if entry.is_dir(follow_symlinks=False) else entry.stat().st_size >= 0
        return count

    return timed(lambda: every(str(bench.vault)))


def all_bytes(bench: Bench) -> Sampler:
    def every() -> None:
        for file in bench.files:
            with open(file, "rb", buffering=0) as opened:
                opened.read()

    return timed(every)


def all_bytes_cpu(bench: Bench) -> Sampler:
    """The same in processor time, which other programs do not lengthen by much."""
    reading = all_bytes(bench)

    def once() -> float:
        began = time.process_time()
        reading()
        return (time.process_time() - began) * 1000

    return once


def sync1(bench: Bench) -> Sampler:
    place = bench.vault.parent / f"sync-{bench.size}"
    place.mkdir(exist_ok=True)
    bench.closing.callback(shutil.rmtree, place)
    folder = os.open(place, os.O_RDONLY)
    bench.closing.callback(os.close, folder)
    target, draft, data = place / "note.md", place / "draft", os.urandom(2048)

    def once() -> None:
        with open(draft, "wb", buffering=0) as file:
            file.write(data)
            os.fsync(file.fileno())
        os.rename(draft, target)
        os.fsync(folder)

    return timed(once)


def rg(*asked: str) -> Callable[[Bench], Sampler]:
    return lambda bench: run("rg", "--no-config", "--no-ignore", *asked, str(bench.vault))


def rg_word(bench: Bench) -> Sampler:
    return rg("-i", "-c", rf"{bench.rare[0]}\W+\w+")(bench)


def rg_places(bench: Bench) -> Sampler:
    return rg("-i", "--json", rf"{bench.rare[0][:5]}\w*")(bench)


def rg_text(bench: Bench) -> Sampler:
    return rg("-i", "-l", "-F", bench.rare[0][1:])(bench)


def echo(bench: Bench) -> Sampler:
    client = bench.closing.enter_context(Client(PYTHON, str(HERE / "bench_client.py"), "echo"))
    return timed(lambda: client.call("noop"))


def noop(bench: Bench) -> Sampler:
    client = bench.closing.enter_context(Client(PYTHON, str(HERE / "bench_client.py"), "noop")).handshake()
    return timed(lambda: client.call("noop"))


def fts(asked: Callable[[Bench], list[str]]) -> Callable[[Bench], Sampler]:
    """The bare statement for these full-text expressions, in the database the server made."""

    def prepared(bench: Bench) -> Sampler:
        database = bench.database()
        sql = "select rowid, rank from words where words match ? order by rank limit 20"
        return each(lambda words: database.execute(sql, (words,)).fetchall(), cycle(asked(bench)))

    return prepared


BURSTS = {"noop": 10, "echo": 10, "sync1": 5, "fts, a rare word": 10, "fts, two prefixes": 10}
REFERENCES: dict[str, Callable[[Bench], Sampler]] = {
    "walk": walk,
    "bytes": all_bytes,
    "bytes, processor time": all_bytes_cpu,
    "sync1": sync1,
    "python": lambda bench: run(PYTHON, "-c", "", fine=(0,)),
    "python + mcp": lambda bench: run(PYTHON, "-c", "import mcp", fine=(0,)),
    "echo": echo,
    "noop": noop,
    "fts, a rare word": fts(lambda bench: [f'"{word}"' for word in bench.rare]),
    "fts, two prefixes": fts(lambda bench: [f'"{word[:4]}"* AND "{bench.common[0]}"*' for word in bench.rare]),
    "rg --files": rg("--files"),
    "rg, a word": rg_word,
    "rg, wide": rg("-i", "-c", WIDE),
    "rg, a text": rg_text,
    "rg, places": rg_places,
}
