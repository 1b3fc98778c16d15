"""Is the note that was meant among the first five? The questions of `finding/`, asked through our own search."""

import json
import os
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench_client import NOTEWRIGHT, Client, Refused
from bench_references import until_fresh

ROOT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("NOTEWRIGHT_SHARED", ROOT.parent / "shared"))
CHINESE = "knowledge-garden-zh"
MOST_BYTES = 6_000  # twenty hits
HIT = re.compile(r"^\d+\. (.+?\.md)(?: › |  ?\(|$)", re.MULTILINE)
Ranks = Mapping[tuple[str, str], list[int | None]]


@dataclass(frozen=True)
class Figure:
    """One figure of the exam: what it is, what it came to, and what it should be."""

    name: str
    value: float
    unit: str
    bar: float
    at_least: bool = True


def figures() -> list[Figure]:
    """All of them; Refused where the questions are not to be had."""
    questions = SHARED / "finding" / "questions.jsonl"
    if not questions.exists():
        raise Refused(f"no questions: {SHARED.name}/finding is not there")
    by_vault: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in questions.read_text(encoding="utf-8").splitlines():
        question = json.loads(line)
        by_vault[question["vault"]].append(question)
    ranks: dict[tuple[str, str], list[int | None]] = defaultdict(list)
    sizes: list[int] = []
    for vault, asked in by_vault.items():
        _ask(SHARED / "finding" / "vaults" / vault, asked, ranks, sizes)
    return _figures(ranks, sizes)


def _ask(vault: Path, asked: list[dict[str, Any]], ranks: dict[tuple[str, str], list[int | None]],
         sizes: list[int]) -> None:  # fmt: skip
    group = "Chinese" if vault.name == CHINESE else "English"
    state = tempfile.TemporaryDirectory()
    with state, Client(NOTEWRIGHT, "serve", f"Found={vault}", "--state", state.name).handshake() as client:
        until_fresh(client)
        for question in asked:
            text = client.call("search", query=question["query"], limit=20)
            sizes.append(len(text.encode()))
            found = HIT.findall(text)
            shown = [path for path in found if path != question["source"]][:10]
            place = shown.index(question["target"]) + 1 if question["target"] in shown else None
            ranks[group, question["way"]].append(place if found else 0)


def _figures(ranks: Ranks, sizes: list[int]) -> list[Figure]:
    def share(group: str, way: str, most: int) -> float:
        found = ranks[group, way]
        return 100 * sum(bool(rank) and rank <= most for rank in found) / len(found)

    sentence = ranks["English", "a"]
    empty = sum(rank == 0 for found in ranks.values() for rank in found)
    mean: Callable[[list[int | None]], float] = lambda found: sum(1 / rank for rank in found if rank) / len(found)  # noqa: E731
    return [
        Figure("found: a sentence, among five", share("English", "a", 5), "%", 60),
        Figure("found: a sentence, mean reciprocal rank", mean(sentence), "", 0.42),
        Figure("found: its five rarest words, among five", share("English", "b", 5), "%", 54),
        Figure("found: by title, first", share("English", "c", 1), "%", 91),
        Figure("found: a Chinese sentence, among five", share("Chinese", "a", 5), "%", 20),
        Figure("found: by Chinese title, first", share("Chinese", "c", 1), "%", 95),
        Figure("found: empty answers", empty, "", 0, at_least=False),
        Figure("found: largest answer of twenty hits", max(sizes), "B", MOST_BYTES, at_least=False),
    ]


if __name__ == "__main__":
    for figure in figures():
        print(f"{figure.name:45} {figure.value:8.3f} {figure.unit:2} bar {figure.bar}", file=sys.stdout)
