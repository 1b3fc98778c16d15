"""Is the note that was meant among the first five? The questions of `finding/`, through each server's own search."""

import json
import re
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench_client import Refused
from bench_found import CHINESE, SHARED
from compare_servers import Place, Running, Server
from compare_truth import plain

EVERY = 6  # of the questions, one in so many is asked
VAULT_SECONDS = 90
READY_SECONDS = 20


@dataclass
class Found:
    """Ranks of the notes that were meant, by language and way of asking; None: not among the first ten."""

    ranks: dict[tuple[str, str], list[int | None]] = field(default_factory=lambda: defaultdict(list))
    empty: int = 0

    def among(self, language: str, way: str, most: int) -> float:
        ranks = self.ranks[language, way]
        return 100 * sum(rank is not None and rank <= most for rank in ranks) / max(1, len(ranks))

    def reciprocal(self, language: str, way: str) -> float:
        ranks = self.ranks[language, way]
        return sum(1 / rank for rank in ranks if rank) / max(1, len(ranks))

    def add(self, question: dict[str, Any], answer: list[str]) -> None:
        language = "Chinese" if question["vault"] == CHINESE else "English"
        source = plain(question["source"] or "")
        shown = [path for path in map(plain, answer) if path != source][:10]
        target = plain(question["target"])
        self.ranks[language, question["way"]].append(shown.index(target) + 1 if target in shown else None)
        self.empty += not answer


def questions() -> dict[str, list[dict[str, Any]]]:
    """What is asked of which vault; nothing where the folder is not there."""
    file = SHARED / "finding" / "questions.jsonl"
    asked: dict[str, list[dict[str, Any]]] = defaultdict(list)
    if file.exists():
        for line in file.read_text(encoding="utf-8").splitlines():
            question = json.loads(line)
            asked[question["vault"]].append(question)
    return {
        vault: [q for way in "abc" for q in [q for q in all_ if q["way"] == way][::EVERY]]
        for vault, all_ in asked.items()
    }


def find(servers: dict[Server, Path], say: Callable[[str], None]) -> dict[str, Found | str]:
    """What each server found, or why it has no figure. Empty where there are no questions."""
    asked = questions()
    told: dict[str, Found | str] = {}
    if not asked:
        return told
    for server, programs in servers.items():
        if "search" not in server.tools or not server.ranks:
            told[server.name] = server.lacks.get("search", "finds a text only as it stands")
            continue
        plainly, any_word = Found(), Found()
        try:
            for vault, those in asked.items():
                _ask(server, programs, SHARED / "finding" / "vaults" / vault, those, (plainly, any_word))
            told[server.name] = plainly
            if server.any_word:
                told[f"{server.name}, any word (OR)"] = any_word
        except (Refused, OSError, ValueError) as problem:
            told[server.name] = str(problem).partition("\n")[0][:100]
        say(f"  {server.name}: {plainly.among('English', 'a', 5):.0f} % of sentences, {plainly.empty} empty answers")
    return told


def _ask(server: Server, programs: Path, vault: Path, asked: list[dict[str, Any]], found: tuple[Found, Found]) -> None:
    """The questions as they are; and, for the second, in the way in which it takes any of the words."""
    with tempfile.TemporaryDirectory() as folder:
        place = Place(Path(folder).resolve() / "notes", Path(folder).resolve() / "state", programs)
        copied(vault, place.vault)
        running = Running(server, place)
        timer = threading.Timer(VAULT_SECONDS, running.kill)
        timer.start()
        try:
            _until_there(running)
            for question in asked:
                found[0].add(question, _search(running, question["query"]))
                if server.any_word:
                    found[1].add(question, _search(running, server.any_word(question["query"])))
        except Refused:
            if not timer.is_alive():
                raise Refused(f"a vault was not answered within {VAULT_SECONDS} s") from None
            raise
        finally:
            timer.cancel()
            running.close()


def _search(running: Running, query: str) -> list[str]:
    """Nothing where a query is refused for its characters."""
    try:
        answer: list[str] = running.ask("search", query)
        return answer
    except (Refused, ValueError):
        if running.client.process.poll() is not None:
            raise
        return []


def _until_there(running: Running) -> None:
    """Words of notes from all over the vault are found."""
    files = sorted(running.place.vault.rglob("*.md"))
    end = time.monotonic() + READY_SECONDS
    for file in files[:: max(1, len(files) // 8)]:
        words = re.findall(r"\b[a-z]{5,}\b", file.read_text("utf-8", "replace"))
        while words and not _search(running, max(words, key=len)) and time.monotonic() < end:
            time.sleep(0.1)


def copied(vault: Path, to: Path) -> None:
    """A copy that a server may write into."""
    for file in vault.rglob("*"):
        if file.is_file():
            (to / file.relative_to(vault)).parent.mkdir(parents=True, exist_ok=True)
            (to / file.relative_to(vault)).write_bytes(file.read_bytes())
    (to / ".obsidian").mkdir(exist_ok=True)
