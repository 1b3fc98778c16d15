"""Measure Notewright against references of the same run: `bench.py [1k 10k 100k] [--quick] [--only WORDS]`.

A row and its references are sampled in turn, so that a busy machine slows both. Prints every row as it is measured
and writes docs/bench.md, with the figures of the page before beside the new ones. Vaults are kept in .bench/.
"""

import argparse
import os
import platform
import re
import shutil
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bench_bucket import BUCKET_REFERENCES, BUCKET_ROWS
from bench_client import Refused
from bench_found import Figure, figures
from bench_http import HTTP_REFERENCES, HTTP_ROWS, PER_SECOND
from bench_live import LIVE_REFERENCES, LIVE_ROWS
from bench_references import BURSTS, REFERENCES, Bench, Sampler
from bench_rows import IN_FLIGHT, ROWS, Row
from make_vault import make_vault

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / ".bench"
PAGE = ROOT / "docs" / "bench.md"
WORSE = 1.3  # times the figure before: said beside the verdict
REASONS = Path(__file__).with_name("bench_missed.md")
MISSED = "Missed, and why"
HEAD = """| what | median | p95 | reference | ratio | before | budget | limit | |
| --- | ---: | ---: | ---: | ---: | ---: | --- | ---: | --- |"""
Before = dict[tuple[str, str], str]  # (heading, row) -> the figure on the page before


@dataclass(frozen=True)
class Outcome:
    """A row with its numbers; without samples, `reason` says why."""

    name: str
    unit: str
    budget: str
    samples: list[float]
    reference: tuple[str, float] | None = None
    limit: float | None = None
    at_least: bool = False
    reason: str = ""

    @property
    def middle(self) -> float:
        return statistics.median(self.samples)

    @property
    def figure(self) -> str:
        """What is compared from run to run: the ratio where there is a reference."""
        if not self.samples:
            return ""
        return f"{self.middle / self.reference[1]:.3g} ×" if self.reference else number(self.middle, self.unit)

    @property
    def _reference_unit(self) -> str:
        return PER_SECOND if self.unit == PER_SECOND else "ms"

    def verdict(self, before: str) -> str:
        if not self.samples:
            return f"not measured: {self.reason}"
        if self.limit is None:
            return ""
        good = self.middle >= self.limit if self.at_least else self.middle <= self.limit
        return ("ok" if good else "**miss**") + (", worse" if self._is_worse(before) else "")

    def _is_worse(self, before: str) -> bool:
        new, old = amount(self.figure), amount(before)
        if not new or not old:
            return False
        return old / new > WORSE if self.at_least else new / old > WORSE

    def line(self, before: str) -> str:
        high = sorted(self.samples)[int(len(self.samples) * 0.95)] if self.samples else None
        cells = (
            self.name,
            number(self.middle if self.samples else None, self.unit),
            number(high, self.unit),
            f"{self.reference[0]} {number(self.reference[1], self._reference_unit)}" if self.reference else "",
            self.figure if self.reference else "",
            before,
            self.budget,
            number(self.limit, self.unit),
            self.verdict(before),
        )
        return f"| {' | '.join(cells)} |"


def number(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    text = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    return f"{text} {unit}".strip()


def amount(text: str) -> float | None:
    found = re.match(r"[\d.,e+-]+", text)
    return float(found[0].replace(",", "")) if found else None


# ---- measuring ----------------------------------------------------------------------------------------


@dataclass
class Samplers:
    """The references of one vault, each made ready when it is first asked for."""

    bench: Bench
    ready: dict[str, Sampler] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Sampler:
        if name not in self.ready:
            self.ready[name] = (REFERENCES | HTTP_REFERENCES | BUCKET_REFERENCES | LIVE_REFERENCES)[name](self.bench)
        return self.ready[name]


def measured(row: Row, bench: Bench, references: Samplers, quick: bool) -> Outcome:
    """The row's outcome; a server that is missing or refuses is a reason, not an end."""
    try:
        samples, known = interleaved(row, bench, references, quick)
    except (Refused, OSError, ImportError) as failure:
        return Outcome(row.name, row.unit, row.budget, [], reason=str(failure))
    reference = (row.references[0], known[row.references[0]]) if row.references else None
    limit = row.limit(known) if row.limit else None
    return Outcome(row.name, row.unit, row.budget, samples, reference, limit, row.at_least)


def interleaved(row: Row, bench: Bench, references: Samplers, quick: bool) -> tuple[list[float], dict[str, float]]:
    """Samples of the row, and the medians of its references: taken before it, between and after."""
    rounds = max(1, row.rounds // 10) if quick else row.rounds
    compared = {name: references[name] for name in row.references}
    taken: dict[str, list[float]] = {name: [] for name in compared}
    sampler, samples = row.prepare(bench), list[float]()
    if not quick:
        for sample in compared.values():
            sample()  # does not count: whatever it reads is now in memory
    if row.warm and not quick:
        sampler()
    for turn in range(rounds + 1):
        for name, sample in compared.items():
            taken[name] += [sample() for _ in range(BURSTS.get(name, 1))]
        if turn < rounds:
            samples += [sampler() for _ in range(row.burst)]
    return samples, {name: statistics.median(found) for name, found in taken.items()}


def vault_of(size: int) -> Path:
    """A fresh copy of the kept vault of this size, free to be written to."""
    kept, copy = PLACE / f"vault-{size}", PLACE / f"copy-{size}-{os.getpid()}"
    if not kept.exists():
        draft = PLACE / f"draft-{size}-{os.getpid()}"
        make_vault(size, draft)
        draft.rename(kept)
    return shutil.copytree(kept, copy)


def outcomes(size: int, only: str, quick: bool) -> Iterator[Outcome]:
    PLACE.mkdir(exist_ok=True)
    state = PLACE / f"state-{size}-{os.getpid()}"
    vault = vault_of(size)
    try:
        bench = Bench(size, vault, state)
        references = Samplers(bench)
        with bench.closing:
            for row in (*ROWS, *HTTP_ROWS, *BUCKET_ROWS, *LIVE_ROWS):
                if (not row.sizes or size in row.sizes) and only in row.name:
                    yield measured(row, bench, references, quick)
    finally:
        shutil.rmtree(vault)
        for kept in PLACE.glob(f"{state.name}*"):
            shutil.rmtree(kept, ignore_errors=True)


def found() -> Iterator[Outcome]:
    try:
        yield from map(_of_figure, figures())
    except (Refused, OSError) as failure:
        yield Outcome("found", "", "", [], reason=str(failure))


def _of_figure(figure: Figure) -> Outcome:
    budget = f"{'≥' if figure.at_least else '≤'} {number(figure.bar, figure.unit)}"
    return Outcome(figure.name, figure.unit, budget, [figure.value], None, figure.bar, figure.at_least)


# ---- saying -------------------------------------------------------------------------------------------


def report(heading: str, rows: Iterator[Outcome], before: Before) -> str:
    began, lines = os.getloadavg()[0], []
    print(f"\n{heading}\n{HEAD}", flush=True)
    for outcome in rows:
        line = outcome.line(before.get((heading, outcome.name), ""))
        print(line, flush=True)
        lines.append(line)
    busy = f"Load average {began:.1f} when it began, {os.getloadavg()[0]:.1f} when it ended."
    print(busy, flush=True)
    return "\n".join((f"## {heading}", "", busy, "", HEAD, *lines, ""))


def figures_of(page: str) -> Before:
    """The figures on a page written before: the ratio, or the median where there is none."""
    kept: Before = {}
    for part in page.split("\n## ")[1:]:
        heading = part.partition("\n")[0]
        for line in part.splitlines():
            cells = [cell.strip() for cell in line.strip("|").split(" | ")]
            if line.startswith("| ") and len(cells) == 9 and cells[0] != "what":
                kept[heading, cells[0]] = cells[4] or cells[1]
    return kept


def page(parts: dict[str, str]) -> str:
    about = (
        f"Measured {time.strftime('%Y-%m-%d')} with Python {platform.python_version()} on {platform.system()}, "
        f"{os.cpu_count()} cores, by `make bench`. Every budget is a ratio to a reference taken in turn with what is "
        "measured, so that the numbers mean something on another machine and on a busy one. *before* is the figure of "
        "the page this one replaced; *worse* marks what grew by a third. The vaults are made by "
        "`tools/make_vault.py`.\n"
    )
    words = (
        "**walk** scandir and stat of every file · **bytes** reading every file once · **sync1** write 2 kB beside, "
        "fsync, rename, fsync the folder · **rg** ripgrep over the same files · **echo** a loop that answers JSON "
        "lines · **noop** a tool that does nothing, through our own server · **fts** the bare full-text statement in "
        "the same database · **bare** the web framework alone behind our listener, with so many processes, taking the "
        f"JSON of a call apart and answering a little; over HTTP {IN_FLIGHT} calls are in flight · **GET + PUT** an "
        "object of SeaweedFS on this machine, read and replaced on condition. Why these: "
        "[why](why.md).\n"
    )
    return "\n".join(("# Benchmarks", "", about, words, *parts.values(), missed_rows(parts)))


def missed_rows(parts: dict[str, str]) -> str:
    """Each row over its budget in these tables, with the tables it is in and the reason that is known."""
    missed: dict[str, list[str]] = {}
    for heading, part in parts.items():
        for line in part.splitlines():
            if "**miss**" in line:
                missed.setdefault(line.split(" | ")[0].removeprefix("| "), []).append(heading)
    paragraphs = REASONS.read_text(encoding="utf-8").split("\n\n")
    reasons = dict(paragraph[2:].strip().split("**: ", 1) for paragraph in paragraphs if paragraph.startswith("**"))
    told = [
        f"**{name}** ({', '.join(headings)}): {reasons.get(name, 'the reason is not known yet.')}\n"
        for name, headings in missed.items()
    ]
    return "\n".join((f"## {MISSED}", "", *(told or ["Nothing.\n"])))


def kept_parts(page: str) -> dict[str, str]:
    """The tables of the page before: what is not measured this time stays."""
    parts = {part.partition("\n")[0]: f"## {part.rstrip()}\n" for part in page.split("\n## ")[1:]}
    parts.pop(MISSED, None)
    return parts


def size_of(text: str) -> int:
    return int(text[:-1]) * 1000 if text.endswith("k") else int(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("sizes", nargs="*", type=size_of, default=[1_000, 10_000, 100_000])
    parser.add_argument("--quick", action="store_true", help="1k only, few rounds, nothing is written")
    parser.add_argument("--only", default="", help="rows whose name holds this; then nothing is written")
    parser.add_argument("--no-write", action="store_true", help="leave docs/bench.md as it is")
    asked = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # as installed: our modules are compiled once, as all others are
    old = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    before, parts = figures_of(old), kept_parts(old)
    fresh: dict[str, str] = {}
    for size in [1_000] if asked.quick else asked.sizes:
        heading = f"{size:,} notes"
        fresh[heading] = report(heading, outcomes(size, asked.only, asked.quick), before)
    if not asked.quick and asked.only in "found":
        fresh["Found"] = report("Found", found(), before)
    if not (asked.quick or asked.only or asked.no_write):
        PAGE.write_text(page(parts | fresh), encoding="utf-8")
    missed = sum(part.count("**miss**") for part in fresh.values())
    sys.exit(f"{missed} over budget" if missed and not asked.quick else 0)


if __name__ == "__main__":
    main()
