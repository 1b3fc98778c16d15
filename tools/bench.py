"""Measure Notewright against references taken in the same run: `bench.py [1k 10k 100k] [--only WORDS] [--no-write]`.

Prints every row as it is measured and writes docs/bench.md. Generated vaults are kept in .bench/ and used again.
"""

import argparse
import os
import platform
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench_client import Refused
from bench_rows import REFERENCES, ROWS, Bench, Row, Samples, median, p95
from make_vault import make_vault

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / ".bench"
HEAD = """| what | median | p95 | reference | ratio | budget | limit | |
| --- | ---: | ---: | --- | ---: | --- | ---: | --- |"""


@dataclass(frozen=True)
class Outcome:
    """A row with its numbers; without samples, `reason` says why."""

    row: Row
    samples: Samples
    reference: float | None
    limit: float | None
    reason: str = ""

    @property
    def verdict(self) -> str:
        if not self.samples or self.limit is None:
            return self.reason
        good = median(self.samples) >= self.limit if self.row.at_least else median(self.samples) <= self.limit
        return "ok" if good else "**miss**"

    def __str__(self) -> str:
        middle, high = (median(self.samples), p95(self.samples)) if self.samples else (None, None)
        ratio = f"{middle / self.reference:.3g}" if middle is not None and self.reference else ""
        cells = (
            self.row.name,
            number(middle, self.row.unit),
            number(high, self.row.unit),
            self.row.reference,
            ratio,
            self.row.budget,
            number(self.limit, self.row.unit),
            self.verdict,
        )
        return f"| {' | '.join(cells)} |"


def number(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    text = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    return f"{text} {unit}"


def measured(row: Row, bench: Bench) -> Outcome:
    """The row's outcome; a server that is missing or refuses is a reason, not an end."""
    try:
        samples, reason = row.measure(bench), ""
    except (Refused, OSError, ImportError) as failure:
        samples, reason = [], f"not measured: {failure}"
    if samples:
        bench.known[row.name] = median(samples)
    try:
        limit = row.limit(bench.known) if row.limit else None
    except KeyError as missing:
        limit, reason = None, reason or f"no reference {missing}"
    return Outcome(row, samples, bench.known.get(row.reference), limit, reason)


def vault_of(size: int) -> Path:
    """A fresh copy of the kept vault of this size, free to be written to."""
    kept, copy = PLACE / f"vault-{size}", PLACE / f"copy-{size}"
    if not kept.exists():
        draft = PLACE / f"draft-{size}"
        shutil.rmtree(draft, ignore_errors=True)
        make_vault(size, draft)
        draft.rename(kept)
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(kept, copy)
    return copy


def outcomes(size: int, only: str) -> Iterator[Outcome]:
    state = PLACE / f"state-{size}"
    shutil.rmtree(state, ignore_errors=True)
    bench = Bench(size, vault_of(size), state)
    with bench.closing:
        for row in (*REFERENCES, *ROWS):
            if row.sizes and size not in row.sizes:
                continue
            if row in REFERENCES or only in row.name:
                yield measured(row, bench)
    shutil.rmtree(bench.vault)
    shutil.rmtree(state, ignore_errors=True)


def report(size: int, only: str) -> str:
    print(f"\n{size:,} notes\n{HEAD}", flush=True)
    lines = []
    for outcome in outcomes(size, only):
        print(outcome, flush=True)
        lines.append(str(outcome))
    return "\n".join((f"## {size:,} notes", "", HEAD, *lines, ""))


def page(parts: list[str]) -> str:
    about = (
        f"Measured {time.strftime('%Y-%m-%d')} with Python {platform.python_version()} on {platform.system()}, "
        f"{os.cpu_count()} cores, by `make bench`. Every budget is a ratio to a reference taken in the same run, so "
        "that the numbers mean something on another machine. The vaults are made by `tools/make_vault.py`.\n"
    )
    words = (
        "**walk** scandir and stat of every file · **bytes** reading every file once · **sync1** write 2 kB beside, "
        "fsync, rename, fsync the folder · **rg** ripgrep over the same files · **echo** a loop that answers JSON "
        "lines · **noop** a tool that does nothing, through our own server · **fts** the bare full-text statement in "
        "the same database. Why these: [why](why.md).\n"
    )
    return "\n".join(("# Benchmarks", "", about, words, *parts))


def size_of(text: str) -> int:
    return int(text[:-1]) * 1000 if text.endswith("k") else int(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("sizes", nargs="*", type=size_of, default=[1_000, 10_000, 100_000])
    parser.add_argument("--only", default="", help="rows whose name holds this; then nothing is written")
    parser.add_argument("--no-write", action="store_true", help="leave docs/bench.md as it is")
    asked = parser.parse_args()
    PLACE.mkdir(exist_ok=True)
    parts = [report(size, asked.only) for size in asked.sizes]
    if not asked.only and not asked.no_write:
        (ROOT / "docs" / "bench.md").write_text(page(parts), encoding="utf-8")
    missed = sum(part.count("**miss**") for part in parts)
    sys.exit(f"{missed} over budget" if missed else 0)


if __name__ == "__main__":
    main()
