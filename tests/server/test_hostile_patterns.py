"""Whatever somebody asks for as a pattern, the server answers in time and in little memory, and goes on serving."""

import random
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import write_files
from tests.server.lines import NOTEWRIGHT, Lines

pytestmark = pytest.mark.slow

MOST_MEGABYTES = 512
SECONDS = 18  # for one answer on a busy machine; five are what a search may take

DEEP = 90
GROWING = {  # what is small to read and large to run
    "counts in counts": "(" * 12 + "a{9}" + "){9}" * 12,
    "counts in counts, not captured": "(?:" * DEEP + "a{2}" + "){2}" * DEEP,
    "one large count": "(?:a|b){999999}",
    "counts side by side": "(?:ab|cd){900}" * 60,
    "large counts from nothing": "a{0,999999}b{0,999999}",
    "nothing, many times": "(?:(?:(?:){1000}){1000}){1000}",
    "perhaps nothing, many times": "(?:(?:a?){900}){900}",
    "empty groups, many times": "(?:" + "()" * 200 + "){999}",
    "large classes, many times": r"[^\W\d_é-ü]{999}",
    "large classes side by side": r"[\W\D]" * 160,
    "properties, many times": r"(?:\p{L}\P{Lu}){500}",
    "large classes without case": "[" + "".join(map(chr, range(0x100, 0x100 + 990, 2))) + "]{999}",
    "many branches": "|".join("abcdefghij"[:size] for size in range(1, 11)) * 14,
    "branches of branches": "(?:a|" * DEEP + "b" + ")" * DEEP,
    "the same again and again": "(?:.*){500}(?:.*){400}x",
    "groups too deep": "(" * 490 + ")" * 490,
    "stars of stars": "(?:" * DEEP + "a" + ")*" * DEEP + "y",
    "options of options": "(?:" * DEEP + "a" + ")?" * DEEP + "y",
    "too long": "a" * 1001,
    "counts in a look": "(?=(?:(?:a{99}){99}){99})b",
}
SLOW = {  # what takes its time on some text
    "states without end": "(?:a|b)*a(?:a|b){900}q",
    "every match looks to the end": "a|[^q]*q",
    "two stars": "(?:a|b)*(?:a|b)*(?:a|b)*q",
    "many stars": ".*a" * 40 + "q",
}
BACKTRACKING = {
    "turns that are remembered": "(?:(a)|(b)|.)*(?<=c)d",
    "empty groups that are remembered": "(?:" + "()" * 90 + "a|b)*" + "".join(f"\\{n}" for n in range(1, 91)) + "(?=d)",
    "branches that fit twice": "(?:a|a|aa|b)+(?<=c)d",
    "a look in every turn": "(?:(?=(?:ab|a.|b)*)a|(?!c).)*(?<=c)d",
    "a look behind at everything": "(?<!(?:ab|a.|b)*)d",
    "deep turns": "(?:" * 30 + "(?:ab|b.|a)" + ")*" * 30 + "(?<=c)d",
    "a count in a star": "(?:(?:ab?){90}|b)*(?<=c)d",
    "what was before, again": r"(a|b)*(.*)\2\1(?<=c)d",
}
PATTERNS = {"notes": SLOW, "second_brain": SLOW | BACKTRACKING, "octarine": SLOW | BACKTRACKING}


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few notes, and one whose long lines bring out the worst of a search."""
    chance = random.Random(9)
    turns = "".join(chance.choices("ab", k=140_000)) + "cxd"
    notes = {f"Tea {number}.md": f"# Tea\n\nabc tea é {number}\n" for number in range(20)}
    place = tmp_path_factory.mktemp("hostile")
    write_files(place / "Main", {**notes, "Turns.md": f"{turns}\n", "Same.md": "a" * 2_000_000 + "cxd\n"})
    return place


class Served(Lines):
    """A server process whose memory is watched."""

    def __init__(self, vault: Path, surface: str) -> None:
        command = [NOTEWRIGHT, "serve", str(vault / "Main"), "--state", str(vault / "kept"), "--no-rate-limits"]
        super().__init__([*command, "--surface", surface])

    def megabytes(self) -> float:
        """The most it has had so far."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        peak = re.search(r"VmHWM:\s+(\d+) kB", status)
        assert peak
        return int(peak[1]) / 1024


def asking(surface: str, pattern: str) -> dict[str, Any]:
    if surface == "octarine":
        return {"name": "octarine_search_notes", "arguments": {"query": pattern, "regex": True}}
    return {"name": "grep", "arguments": {"pattern": pattern}}


@pytest.fixture(scope="module", params=list(PATTERNS))
def served(request: pytest.FixtureRequest, vault: Path) -> Iterator[tuple[str, Served]]:
    server = Served(vault, request.param)
    server.greet()
    yield request.param, server
    server.leave()


def test_a_pattern_that_would_grow_is_answered_or_refused_at_once(served: tuple[str, Served]) -> None:
    surface, server = served
    for name, pattern in GROWING.items():
        began = time.monotonic()
        heard = server.answer("tools/call", asking(surface, pattern))["result"]
        assert time.monotonic() - began < SECONDS, name
        assert server.megabytes() < MOST_MEGABYTES, name
        assert not heard["isError"] or re.search("pattern|regular expression", said(heard)), (name, heard)


def test_patterns_that_take_long_are_stopped_also_all_at_once(served: tuple[str, Served]) -> None:
    surface, server = served
    began, patterns = time.monotonic(), PATTERNS[surface]
    names = {server.ask("tools/call", asking(surface, pattern)): name for name, pattern in patterns.items()}
    for _ in patterns:
        heard = server.hear()
        assert not heard["result"]["isError"], (names[heard["id"]], heard)
    assert time.monotonic() - began < SECONDS
    assert server.megabytes() < MOST_MEGABYTES
    assert "Tea 7.md" in str(server.answer("tools/call", asking(surface, "tea"))["result"])


def said(heard: dict[str, Any]) -> str:
    return str(heard["content"][0]["text"]).lower()
