"""docs/compare.md, from what was measured: pure text, so that a test can hold it to its word."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field

from bench_client import Refused
from compare_found import EVERY, Found
from compare_servers import LEFT_OUT, NOTEWRIGHT_SERVER, Server

OURS = NOTEWRIGHT_SERVER.name
WRITES = ("create", "append", "replace", "rename, nothing links", "rename, 50 notes link")


@dataclass
class Cell:
    """The times of one server in one row; with a wrong answer among them, or without a tool for it, there is none."""

    samples: list[float] = field(default_factory=list)
    warming: list[float] = field(default_factory=list)  # of the first round: stand in where there was no other
    wrong: list[str] = field(default_factory=list)
    lacks: str = ""
    done: bool = False
    spent: float = 0.0
    asked: int = 0

    def add(self, milliseconds: float, why: str, counts: bool) -> None:
        self.asked += 1
        self.spent += milliseconds / 1000
        if why:
            self.wrong.append(why)
        else:
            (self.samples if counts else self.warming).append(milliseconds)

    def attempt(self, measure: Callable[[], float]) -> None:
        try:
            self.samples.append(measure())
        except Refused as problem:
            self.wrong.append(str(problem))

    @property
    def median(self) -> float | None:
        kept = self.samples or self.warming
        return None if self.wrong or self.lacks or not kept else statistics.median(kept)

    @property
    def reason(self) -> str:
        if self.lacks or not self.wrong:
            return self.lacks
        many = f"{len(self.wrong)} of {self.asked} answers: " if self.asked > 1 and len(self.wrong) < self.asked else ""
        return f"{many}{self.wrong[0]}"

    def told(self) -> str:
        return f"{number(self.median)} ms" if self.median is not None else f"({self.reason or 'not asked'})"


@dataclass(frozen=True)
class Compared:
    """One size: rows of cells by server, and what they are set beside."""

    size: int
    table: dict[str, dict[str, Cell]]
    references: dict[str, list[float]]  # row -> samples of its reference, from the same rounds
    beside: dict[str, str]  # row -> its reference
    memory: dict[str, float]
    load: tuple[float, float]

    def reference(self, row: str) -> tuple[str, float] | None:
        name = self.beside.get(row, "")
        return (name, statistics.median(self.references[row])) if self.references.get(row) else None


@dataclass(frozen=True)
class Entry:
    """A server as the page lists it; `missing` says why it was not measured."""

    server: Server
    missing: str
    synced: str


def number(value: float | None) -> str:
    """Three digits that tell."""
    if value is None:
        return ""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def page(day: str, machine: str, entries: list[Entry], sizes: list[Compared], found: dict[str, Found | str]) -> str:
    names = [entry.server.name for entry in entries if not entry.missing]
    parts = ["# Compared with other servers", "", _about(day, machine), _servers(entries)]
    for compared in sizes:
        parts += [f"## {compared.size:,} notes\n", _table(compared, names)]
    parts += ["## Found\n", _found(found), "## Where others are ahead\n", _ahead(sizes, entries)]
    parts += ["## What has no time, and why\n", _reasons(sizes, names), "## Tried and left out\n", _left_out(entries)]
    return "\n".join(parts)


def _about(day: str, machine: str) -> str:
    return (
        f"Measured {day} by `make compare` ({machine}). Every server has its own copy of the same generated notes, is "
        "started as its documentation says, and is asked over stdio by the same client, in rounds, one server after "
        "the other, so that a busy machine slows all alike. Figures are medians in milliseconds; in brackets, how many "
        "times the reference of the same rounds: compare these with another machine. Every answer is checked against "
        "what is known of the notes: a wrong one has no time but a reason. A search is right where the one note that "
        "holds the words is among the first five (a rare word) or ten (several). Cold is with nothing kept, warm "
        "with what the server itself keeps between runs. Servers, versions and questions: `tools/compare_servers.py` "
        "and `tools/compare_truth.py`; whoever finds a server treated unfairly there is asked to say so. Our own "
        "figures in detail: [measurements](bench.md).\n\n"
        "**python** starting Python · **bytes** reading every file once · **walk** scandir and stat of every file · "
        "**echo** a loop that answers JSON lines · **rg** ripgrep over the same files · **sync1** write 2 kB beside, "
        "fsync, rename, fsync the folder.\n"
    )


def _servers(entries: list[Entry]) -> str:
    lines = ["| server | version | from | started with | when it writes |", "| --- | --- | --- | --- | --- |"]
    for entry in entries:
        server = entry.server
        wrote = f"**not measured**: {entry.missing}" if entry.missing else entry.synced
        lines.append(f"| {server.name} | {server.version or 'this'} | {server.source} | {server.about} | {wrote} |")
    about = (
        "*When it writes*: fsyncs below the folder of notes while one note is created, appended to and changed, "
        "counted with strace. A write without fsync can be lost with the power."
    )
    return "\n".join((*lines, "", about, ""))


def _table(compared: Compared, names: list[str]) -> str:
    lines = [f"| what | reference | {' | '.join(names)} |", f"| --- | ---: |{' ---: |' * len(names)}"]
    for row, cells in compared.table.items():
        reference = compared.reference(row)
        best = min((cell.median for cell in cells.values() if cell.median is not None), default=None)
        told = [_cell(cells.get(name, Cell()), best, reference) for name in names]
        lines.append(
            f"| {row} | {f'{reference[0]} {number(reference[1])}' if reference else ''} | {' | '.join(told)} |"
        )
    least = min(compared.memory.values(), default=None)
    sizes = [compared.memory.get(name) for name in names]
    told = ["" if size is None else _bold(f"{size:.0f} MB", size == least) for size in sizes]
    lines.append(f"| memory after all of it | | {' | '.join(told)} |")
    began, ended = compared.load
    busy = f"Bold is the least of a row. Load average {began:.1f} when it began, {ended:.1f} when it ended."
    return "\n".join((*lines, "", busy, ""))


def _cell(cell: Cell, best: float | None, reference: tuple[str, float] | None) -> str:
    if cell.median is None:
        return "no tool" if cell.lacks else "wrong" if cell.wrong else ""
    ratio = f" ({number(cell.median / reference[1])} ×)" if reference and reference[1] else ""
    return f"{_bold(number(cell.median), cell.median == best)}{ratio}"


def _bold(text: str, is_best: bool) -> str:
    return f"**{text}**" if is_best else text


def _found(found: dict[str, Found | str]) -> str:
    if not found:
        return "Not asked: the folder with the questions was not there.\n"
    lines = [
        "Sentences in which somebody linked to another note, with the link's text taken out: is the note it named "
        "among the first five of the server's own search? "
        f"One question in {EVERY} of the collection, the words as they are.\n",
        "| server | a sentence, among five | mean reciprocal rank | its five rarest words | by title "
        "| a Chinese sentence | by Chinese title | empty answers |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, result in found.items():
        if isinstance(result, str):
            lines.append(f"| {name} | – | | | | | | {result} |")
            continue
        share = [
            result.among(*asked, 5)
            for asked in (("English", "b"), ("English", "c"), ("Chinese", "a"), ("Chinese", "c"))
        ]
        rest = " | ".join(f"{value:.0f} %" for value in share)
        first = f"{result.among('English', 'a', 5):.0f} % | {result.reciprocal('English', 'a'):.2f}"
        lines.append(f"| {name} | {first} | {rest} | {result.empty} |")
    return "\n".join((*lines, ""))


def _ahead(sizes: list[Compared], entries: list[Entry]) -> str:
    """Each row in which somebody is quicker than we are, or smaller."""
    lines = []
    for entry in entries:
        name = entry.server.name
        if name == OURS or entry.missing:
            continue
        for compared in sizes:
            said = [_quicker(row, cells, name, entry) for row, cells in compared.table.items()]
            mine, other = compared.memory.get(OURS), compared.memory.get(name)
            if mine and other and other < mine:
                said.append(f"memory {other:.0f} MB, ours {mine:.0f}")
            told = "; ".join(text for text in said if text)
            lines.append(f"- **{name}**, {compared.size:,} notes: {told or 'nowhere in this table'}.")
    return "\n".join((*lines, ""))


def _quicker(row: str, cells: dict[str, Cell], name: str, entry: Entry) -> str:
    mine, other = cells.get(OURS, Cell()), cells.get(name, Cell())
    if other.median is None or (mine.median is not None and mine.median <= other.median):
        return ""
    without = " (no fsync)" if row in WRITES and entry.synced == "no fsync" else ""
    ours = f"ours {number(mine.median)}" if mine.median is not None else f"ours has none: {mine.reason}"
    return f"{row} {number(other.median)} ms{without}, {ours}"


def _reasons(sizes: list[Compared], names: list[str]) -> str:
    lines = []
    for name in names:
        said: dict[str, str] = {}
        for compared in sizes:
            for row, cells in compared.table.items():
                cell = cells.get(name, Cell())
                if cell.wrong and not cell.lacks:
                    said.setdefault(row, cell.reason)
        lacks = _lacks(name, sizes)
        told = [*([lacks] if lacks else []), *(f"{row}: {why}" for row, why in said.items())]
        if told:
            lines.append(f"- **{name}**: {'; '.join(told)}.")
    return "\n".join((*lines, "")) if lines else "Nothing.\n"


def _lacks(name: str, sizes: list[Compared]) -> str:
    """What it has no tool for, each reason once."""
    by_reason: dict[str, list[str]] = {}
    for compared in sizes:
        for row, cells in compared.table.items():
            cell = cells.get(name, Cell())
            if cell.lacks and row not in by_reason.setdefault(cell.lacks, []):
                by_reason[cell.lacks].append(row)
    return "; ".join(f"{why} ({', '.join(rows)})" for why, rows in by_reason.items())


def _left_out(entries: list[Entry]) -> str:
    missing = [f"- {e.server.name} {e.server.version} ({e.server.source}): {e.missing}." for e in entries if e.missing]
    return "\n".join((*missing, *(f"- {name}: {why}." for name, why in LEFT_OUT.items()), ""))
