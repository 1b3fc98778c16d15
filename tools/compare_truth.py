"""What is asked of every server, and what is right: questions whose answers are known, and the checks of answers.

The notes come from `make_vault.py`; a few more are planted among them, so that who links to whom and which lines match
is known. Everything else is read off the files themselves, without any of our own parsing. An answer is right, or there
is a sentence that says why it is not.
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

LINKING, RENAMED_LINKING, CODES, SHELF = 12, 50, 7, 60
ASKED = 24  # questions of a kind; they are asked again in the next round
CODE = r"[A-Z]{2}-\d{4}-[A-Z]{2}"  # nothing in it to look up in an index
BROKEN = "[unclosed"  # how make_vault breaks properties
GLOB = "**/2025-1*.md"
LONGEST_READ = 15_000  # characters; what is longer is paged by some servers
Check = Callable[[Any], str]  # of an answer: why it is wrong, or nothing


@dataclass(frozen=True)
class Question:
    """What is asked, with what, and how the answer is checked."""

    kind: str  # of compare_servers.Server.tools
    given: tuple[str, ...]
    check: Check


Questions = dict[str, list[Question]]  # row -> what is asked for it


# ---- planting -----------------------------------------------------------------------------------------


def plant(vault: Path) -> None:
    """The notes with known links, codes and a folder to list."""

    def put(path: str, text: str) -> None:
        (vault / path).parent.mkdir(parents=True, exist_ok=True)
        (vault / path).write_text(text, encoding="utf-8")

    put(".obsidian/app.json", "{}\n")  # some servers want a vault that Obsidian has opened
    for number in range(CODES):
        put(
            f"Compare/Codes/Parcel {number:02}.md",
            f"# Parcel {number}\n\nThe label says QX-{4821 + number}-ZV today.\n",
        )
    for number in range(SHELF):
        put(f"Compare/Shelf/Volume {number:02}.md", f"# Volume {number}\n\nStands on the shelf.\n")
    ways = ("[[{}]]", "[[{}|the light]]", "[[{}#Keepers]]")
    for target in range(10):
        name = f"Harbour light {target:02}"
        put(f"Compare/Lights/{name}.md", f"# {name}\n\n## Keepers\n\nNobody now.\n")
        for number in range(LINKING):
            link = ways[number % len(ways)].format(name)
            put(f"Compare/Voyages/{name} seen {number:02}.md", f"# Voyage {number}\n\nWe passed {link} at night.\n")
    put(renamed(0), "# Well known\n\nEverybody names it.\n")
    for number in range(RENAMED_LINKING):
        put(f"Compare/Fans/Fan {number:02}.md", f"# Fan {number}\n\nSee [[Well known 0]] and more.\n")
    put(alone(0), "# Alone\n\nNobody names it.\n")
    put("Compare/Written/Here.md", "# Here\n\nNew notes go into this folder.\n")


def renamed(number: int) -> str:
    return f"Compare/Known/Well known {number}.md"


def alone(number: int) -> str:
    return f"Compare/Known/Alone {number}.md"


# ---- checking -----------------------------------------------------------------------------------------


def plain(path: str) -> str:
    return unicodedata.normalize("NFC", path)


def exactly(expected: Iterable[str]) -> Check:
    wanted = {plain(path) for path in expected}

    def check(answer: Any) -> str:
        found = {plain(path) for path in answer}
        missing, extra = len(wanted - found), len(found - wanted)
        return f"{missing} of {len(wanted)} missing, {extra} too many" if missing or extra else ""

    return check


def among(path: str, most: int) -> Check:
    """The note is among the first so many of the answer."""

    def check(answer: Any) -> str:
        if not answer:
            return "nothing found"
        return "" if plain(path) in map(plain, answer[:most]) else f"the note is not among the first {most}"

    return check


def holds(text: str) -> Check:
    """The whole of a note, but for its properties, which some servers give apart."""
    wanted = body(text)
    return lambda answer: "" if wanted in answer.replace("\r\n", "\n") else "not the whole text of the note"


def body(text: str) -> str:
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    if text.startswith("---\n") and "\n---\n" in text:
        text = text.partition("\n---\n")[2]
    return text.strip()


def created(vault: Path, path: str, text: str) -> str:
    """Properties of the server's own are allowed before the text."""
    file = vault / path
    if not file.exists():
        return "no such file afterwards"
    return "" if body(file.read_text(encoding="utf-8")) == text.strip() else "the file holds something else"


def appended(before: str, after: str, added: str) -> str:
    """The text before, then nothing but line ends, then what was added."""
    before, after = before.rstrip("\n"), after.rstrip("\n")
    between = after.removeprefix(before).removesuffix(added.rstrip("\n"))
    right = after.startswith(before) and after.endswith(added.rstrip("\n")) and len(after) > len(before)
    return "" if right and not between.strip("\n") else "the file does not hold the old text and then the new"


def moved(vault: Path, old: str, new: str) -> str:
    if (vault / old).exists() or not (vault / new).exists():
        return "the file is not where it should be"
    return ""


def links_followed(vault: Path, old: str, new: str) -> str:
    before, after = Path(old).stem, Path(new).stem
    texts = [file.read_text(encoding="utf-8") for file in (vault / "Compare/Fans").glob("*.md")]
    left = sum(re.search(rf"\[\[([^\]]*/)?{re.escape(after)}(\.md)?[\]|#]", text) is None for text in texts)
    stale = sum(f"{before}]]" in text for text in texts)
    return f"{left or stale} of {len(texts)} links were left on the old name" if left or stale else ""


# ---- asking -------------------------------------------------------------------------------------------


@dataclass
class Truth:
    """The texts of a vault, and which words stand where."""

    texts: dict[str, str]

    def __post_init__(self) -> None:
        self.chance = Random(7)
        # Notes asked for by their words: not those whose properties are broken, which some leave out on purpose.
        self.sound = {path: body(text) for path, text in self.texts.items() if BROKEN not in text}
        self.where: dict[str, set[str]] = defaultdict(set)
        for path, text in self.texts.items():
            for word in set(re.findall(r"\w+", f"{path} {text}".lower())):
                self.where[word].add(path)

    def rare(self, count: int) -> list[tuple[str, str]]:
        """Words one note has, in whichever way words are cut out of a text, with that note."""
        counted = Counter({word: len(paths) for word, paths in self.where.items()})
        once = sorted(w for w, n in counted.items() if n == 1 and w.isascii() and w.isalpha() and len(w) > 5)
        chosen: list[tuple[str, str]] = []
        for word in self.chance.sample(once, len(once)):
            (path,) = self.where[word]
            sound = path in self.sound and word in self.sound[path].lower() and word not in path.lower()
            if sound and not any(word in other for other in self.where if other != word):
                chosen.append((word, path))
            if len(chosen) == count:
                break
        return chosen

    def lines(self) -> list[tuple[str, str]]:
        """Plain runs of ten words, as they stand in one line of a note; three of them are not everywhere."""
        runs, most = [], max(2, len(self.texts) // 50)
        for path, text in self.sound.items():
            found = re.search(r"(?m)^(?:[^\[\]\n`]*?)((?:\b[A-Za-z]+ ){9}[A-Za-z]+\b)", text)
            if found and sum(len(w) > 3 and self._common(w) <= most for w in set(found[1].lower().split())) >= 3:
                runs.append((found[1], path))
        return self.chance.sample(runs, min(len(runs), 400))

    def together(self, count: int) -> list[tuple[str, str]]:
        """Three words of a line, apart and in no order, that only one note has all of."""
        chosen = []
        for run, path in self.lines():
            words = sorted({w for w in run.lower().split() if len(w) > 3 and len(self.where[w]) > 1}, key=self._common)
            three = words[:3]
            if len(three) == 3 and set.intersection(*(self.where[word] for word in three)) == {path}:
                self.chance.shuffle(three)
                chosen.append((" ".join(three), path))
        return chosen[:count]

    def _common(self, word: str) -> int:
        return len(self.where[word])

    def matching(self, pattern: str) -> set[str]:
        """The notes with a line that matches."""
        asked = re.compile(pattern, re.IGNORECASE)
        literal = max(re.findall(r"[a-z]{4,}", pattern), key=len, default="")
        among_these = self.where[literal] if literal else self.texts
        return {path for path in among_these if any(asked.search(line) for line in self.texts[path].splitlines())}

    def questions(self) -> Questions:
        readable = sorted(path for path, text in self.sound.items() if len(text) < LONGEST_READ)
        reads = self.chance.sample(readable, min(60, len(readable)))
        rare, runs, together = self.rare(ASKED), self.lines()[:ASKED], self.together(ASKED)
        patterns = [rf"{word}\W+\w+" for word, _ in rare]
        lights = [f"Compare/Lights/Harbour light {number:02}.md" for number in range(10)]
        shelf = [f"Volume {number:02}.md" for number in range(SHELF)]
        dated = [path for path in self.texts if re.match(r"2025-1.*\.md$", path.rpartition("/")[2])]
        reading = [Question("read", (path,), holds(self.texts[path])) for path in reads]
        return {
            "read": reading,
            "rare": [Question("search", (word,), among(path, 5)) for word, path in rare],
            "run": [Question("search", (run,), among(path, 10)) for run, path in runs],
            "together": [Question("search", (words,), among(path, 10)) for words, path in together],
            "grep": [Question("grep", (pattern,), exactly(self.matching(pattern))) for pattern in patterns],
            "code": [Question("grep", (CODE,), exactly(self.matching(CODE)))],
            "backlinks": [
                Question(
                    "backlinks", (path,), exactly(p for p in self.texts if p.startswith(f"Compare/Voyages/{name}"))
                )
                for path, name in ((path, Path(path).stem) for path in lights)
            ],
            "list": [Question("list", ("Compare/Shelf",), exactly(shelf))],
            "glob": [Question("glob", (GLOB,), exactly(dated))],
        }


def read_truth(vault: Path) -> Truth:
    files = sorted(file for file in vault.rglob("*.md") if not any(p.startswith(".") for p in file.parts[-2:]))
    return Truth({str(file.relative_to(vault)): file.read_text("utf-8", "replace") for file in files})
