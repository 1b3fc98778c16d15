"""Make a vault that looks like somebody's: `make_vault.py N FOLDER [--seed S]`; the same N and S give the same bytes.

Daily notes, people, projects, meetings, hubs with hundreds of links, loose notes in several scripts; frontmatter of
every kind, broken in a few; links by name, path, heading, block and alias, fenced ones that are none, some that lead
nowhere; namesakes; small attachments and canvases. About 2 kB and 4 links a note.
"""

import argparse
import json
import os
import struct
import sys
import time
import unicodedata
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from random import Random
from urllib.parse import quote

from vault_words import EMOJI, FIRST, LAST, TAGS, Words

LANGUAGES = ("en",) * 66 + ("de",) * 9 + ("fr",) * 7 + ("ru",) * 9 + ("zh",) * 9
LAST_DAY = date(2026, 6, 30)
KINDS = ("daily",) * 12 + ("meeting",) * 12 + ("person",) * 7 + ("project",) * 4 + ("namesake",) * 2 + ("loose",) * 63
NAMESAKES = ("index", "README", "Notes", "Todo", "Ideas", "Overview")
SAFE = str.maketrans({c: " " for c in '\\/:*?"<>|#^[]'})


@dataclass(slots=True)
class Plan:
    """A note before it is written: what others need to know to link to it."""

    path: str
    kind: str
    language: str
    title: str
    day: date
    link: str  # what [[…]] around it means this note
    headings: tuple[str, ...] = ()
    block: str = ""


@dataclass(frozen=True, slots=True)
class Made:
    """What was made."""

    notes: int
    files: int
    size: int  # bytes of notes
    links: int


class Vault:
    """One vault being made; `chance` is asked in one order only, so that a seed means one vault."""

    def __init__(self, notes: int, seed: int) -> None:
        self.chance = Random(seed)
        self.words = {language: Words(language, seed) for language in dict.fromkeys(LANGUAGES)}
        self.taken: set[str] = set()
        self.links = 0
        self.folders = self._folders(notes)
        self.hubs = max(1, notes // 150)
        self.attachments = [f"attachments/{name}" for name in self._attachments(max(2, notes // 50))]
        self.plans = [self._plan(number, notes) for number in range(notes)]
        self.popular = self.plans[:]
        self.chance.shuffle(self.popular)

    # -- planning: which notes there are

    def _folders(self, notes: int) -> list[str]:
        names = ["Zettel", "Areas/Work", "Areas/Home", "Resources", "Archive/2019", "Archive/2021", "Книги", "读书笔记"]
        while len(names) < 8 + notes // 80:
            top = names[int(len(names) * self.chance.random() ** 2)]
            name = self.words[self.chance.choice(LANGUAGES)].title(self.chance).translate(SAFE)
            if top.count("/") < 4 and f"{top}/{name}" not in names[-50:]:
                names.append(f"{top}/{name}")
        return names

    def _attachments(self, count: int) -> list[str]:
        stems = ("Pasted image 2025", "scan", "Skizze", "diagram", "фото", "图")
        return [f"{self.chance.choice(stems)} {n:04}.{'pdf' if n % 4 == 1 else 'png'}" for n in range(count)]

    def _plan(self, number: int, notes: int) -> Plan:
        chance = self.chance
        kind = "hub" if number < self.hubs else chance.choice(KINDS)
        language = chance.choice(LANGUAGES)
        day = LAST_DAY - timedelta(days=int(3000 * chance.random() ** 2))
        folder, stem = self._place(kind, language, day)
        path = self._free(folder, stem, shared=kind == "namesake")
        link = path[:-3] if kind == "namesake" else path[:-3].rpartition("/")[2]
        words = self.words[language]
        headings = tuple(chance.sample(words.headings, chance.choice((0, 1, 2, 2, 3, 4))))
        block = f"b{chance.randrange(1 << 24):06x}" if chance.random() < 0.12 else ""
        return Plan(path, kind, language, path[:-3].rpartition("/")[2], day, link, headings, block)

    def _place(self, kind: str, language: str, day: date) -> tuple[str, str]:
        chance, title = self.chance, self.words[language].title(self.chance)
        if kind == "daily" and f"{day.isoformat()}".casefold() not in self.taken:
            return f"Daily/{day.year}", day.isoformat()
        if kind == "meeting":
            return f"Meetings/{day.year}", f"{day.isoformat()} {title}"
        if kind == "person":
            return "People", f"{chance.choice(FIRST)} {chance.choice(LAST)}"
        if kind == "project":
            return f"Projects/{title}", title
        if kind == "hub":
            return "Maps", f"{title} MOC" if chance.random() < 0.7 else f"{chance.choice(EMOJI)} {title}"
        folder = self.folders[int(len(self.folders) * chance.random())]
        if kind == "namesake":
            return folder, chance.choice(NAMESAKES)
        if chance.random() < 0.04:
            title = f"{chance.choice(EMOJI)} {title}"
        return folder, title

    def _free(self, folder: str, stem: str, *, shared: bool) -> str:
        """A path nobody has; unless `shared`, a name nobody has either."""
        stem = stem.translate(SAFE).strip(" .")
        while (key := unicodedata.normalize("NFC", f"{folder}/{stem}" if shared else stem).casefold()) in self.taken:
            more = self.words["en"].title(self.chance)
            stem = f"{stem} {more}" if len(stem) < 60 else f"{stem[:50]} {len(self.taken)}"
        self.taken.add(key)
        if not stem.isascii() and self.chance.random() < 0.03:
            stem = unicodedata.normalize("NFD", stem)  # as files that came from a Mac
        return f"{folder}/{stem}.md"

    # -- writing: what stands in a note

    def target(self) -> Plan:
        return self.popular[int(len(self.popular) * self.chance.random() ** 3)]

    def a_link(self, words: Words) -> str:
        """A link as people write them: mostly by name, some to a heading or block, some to nothing."""
        self.links += 1
        dice, to = self.chance.random(), self.target()
        name = unicodedata.normalize("NFC", to.link)
        if dice < 0.50:
            return f"[[{name}]]"
        if dice < 0.66:
            return f"[[{name}|{words.title(self.chance).lower()}]]"
        if dice < 0.76 and to.headings:
            return f"[[{name}#{self.chance.choice(to.headings)}]]"
        if dice < 0.80 and to.block:
            return f"[[{name}#^{to.block}]]"
        if dice < 0.84:
            return f"![[{name}]]"
        if dice < 0.88:
            return f"![[{self.chance.choice(self.attachments).rpartition('/')[2]}]]"
        if dice < 0.93:
            return f"[{words.title(self.chance)}](/{quote(to.path)})"
        if dice < 0.96:
            return f"[[{unicodedata.normalize('NFC', to.path[:-3])}]]"
        return f"[[{words.title(self.chance)} {words.title(self.chance)}]]"

    def paragraph(self, words: Words, count: int, links: int) -> str:
        """So many words in sentences, with so many links among them."""
        drawn = words.draw(self.chance, count)
        for _ in range(links):
            at = self.chance.randrange(count)
            drawn[at] = f" {self.a_link(words)} " if not words.blank else self.a_link(words)
        parts, at = [], 0
        while at < count:
            step = self.chance.randrange(5, 18)
            sentence = words.blank.join(drawn[at : at + step])
            parts.append(sentence[:1].upper() + sentence[1:] + words.stop)
            at += step
        return (" " if words.blank else "").join(parts)

    def body(self, plan: Plan) -> Iterator[str]:
        """The note's blocks, to be set apart by blank lines."""
        chance, words = self.chance, self.words[plan.language]
        if plan.kind == "hub":
            yield from self.hub(plan, words)
            return
        if chance.random() < 0.6:
            yield f"# {plan.title}"
        budget = min(chance.lognormvariate(7.05, 0.75), 40_000) / words.size
        links = min(int(chance.expovariate(0.32)), 30)
        sections = plan.headings or ("",)
        for place, heading in enumerate(sections):
            if heading:
                yield f"{'##' if place < 3 else '###'} {heading}"
            count = max(8, int(budget / len(sections)))
            here = links // len(sections) + (place < links % len(sections))
            text = self.paragraph(words, count, here)
            yield f"{text} ^{plan.block}" if plan.block and not place else text
            if chance.random() < 0.4:
                yield self.extra(plan, words)
        if chance.random() < 0.35:
            yield " ".join(f"#{tag}" for tag in chance.sample(TAGS, chance.choice((1, 1, 2, 3))))

    def hub(self, plan: Plan, words: Words) -> Iterator[str]:
        yield f"# {plan.title}"
        count = min(len(self.plans), self.chance.randrange(60, 420))
        for heading in plan.headings or (words.headings[0],):
            yield f"## {heading}"
            lines = []
            for _ in range(count // max(1, len(plan.headings))):
                to = self.plans[self.chance.randrange(len(self.plans))]
                self.links += 1
                lines.append(f"- [[{unicodedata.normalize('NFC', to.link)}]]")
            yield "\n".join(lines)

    def extra(self, plan: Plan, words: Words) -> str:
        """A list, tasks, a table, a callout, code with links that are none, a quote, a comment or a formula."""
        chance, draw = self.chance, lambda n: words.blank.join(words.draw(self.chance, n))
        kind = chance.randrange(10)
        if kind < 3:
            return "\n".join(f"{'  ' * (n % 2)}- {draw(6)}" for n in range(chance.randrange(2, 7)))
        if kind < 5:
            return "\n".join(f"- [{chance.choice(' x')}] {draw(5)}" for _ in range(chance.randrange(1, 6)))
        if kind == 5:
            rows = "\n".join(f"| {draw(2)} | {draw(2)} |" for _ in range(3))
            return f"| {draw(1)} | {draw(1)} |\n| --- | --- |\n{rows}"
        if kind == 6:
            return f"> [!{chance.choice(('note', 'tip', 'warning'))}] {draw(3)}\n> {draw(14)}"
        if kind == 7:
            return f"```python\n# [[{draw(1)}]] is no link here, #nor is this a tag\nprint('{draw(2)}')\n```"
        if kind == 8:
            return f"%% {draw(8)} %%"
        return f"`[[{draw(1)}]]` is code, =={draw(3)}== is not"

    def frontmatter(self, plan: Plan) -> str:
        """Usually some, in one of the ways people write it; a few are broken."""
        chance, dice = self.chance, self.chance.random()
        tags, quoted = chance.sample(TAGS, 2), json.dumps(plan.title, ensure_ascii=False)
        if dice < 0.35:
            return ""
        if dice < 0.355:
            inner = f"title: {plan.title}: [unclosed\ntags: [a, b"
        elif dice < 0.55:
            inner = f"created: {plan.day}\ntags: [{', '.join(tags)}]"
        elif dice < 0.75:
            inner = f"tags:\n  - {tags[0]}\n  - {tags[1]}\naliases:\n  - {quoted.lower()}\ndate: {plan.day}"
        elif dice < 0.85:
            inner = f"title: {quoted}\nrating: {chance.randrange(1, 6)}\ndone: {chance.choice(('true', 'false'))}"
        elif dice < 0.95:
            self.links += 1
            up = json.dumps(f"[[{unicodedata.normalize('NFC', self.target().link)}]]", ensure_ascii=False)
            inner = f"up: {up}\nstatus: active # as of {plan.day}\ncssclasses: []"
        else:
            when = f"nested:\n  when: {plan.day}T09:30\n  who: ['A', \"B\"]"
            inner = f"summary: >\n  {plan.title}\n  in two lines\n{when}"
        return f"---\n{inner}\n---\n"

    def text(self, plan: Plan) -> bytes:
        note = self.frontmatter(plan) + "\n\n".join(self.body(plan)) + "\n"
        dice = self.chance.random()
        if dice < 0.02:
            note = note.replace("\n", "\r\n")
        elif dice < 0.023:
            note = "\ufeff" + note
        return note.encode()

    def canvas(self) -> bytes:
        nodes = [
            {
                "id": f"n{n}",
                "type": "file",
                "file": self.target().path,
                "x": n * 400,
                "y": 0,
                "width": 360,
                "height": 240,
            }
            for n in range(self.chance.randrange(2, 9))
        ]
        edges = [{"id": f"e{n}", "fromNode": f"n{n}", "toNode": f"n{n + 1}"} for n in range(len(nodes) - 1)]
        return json.dumps({"nodes": nodes, "edges": edges}, ensure_ascii=False, indent="\t").encode()


def png(chance: Random) -> bytes:
    """A picture of one colour."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    row = b"\x00" + chance.randbytes(3) * 16
    head = struct.pack(">IIBBBBB", 16, 16, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(row * 16)) + chunk(b"IEND", b"")


PDF = b"""%PDF-1.1
1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj
2 0 obj<</Type/Pages/Kids[]/Count 0>>endobj
trailer<</Root 1 0 R>>
%%EOF
"""


def make_vault(notes: int, folder: Path, seed: int = 1) -> Made:
    """Write a vault of so many notes into a folder that is empty or not there yet."""
    if folder.exists() and any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty")
    vault, files, size = Vault(notes, seed), 0, 0
    made: set[str] = set()

    def put(path: str, data: bytes, day: date) -> None:
        nonlocal files
        parent, _, _ = path.rpartition("/")
        if parent not in made:
            (folder / parent).mkdir(parents=True, exist_ok=True)
            made.add(parent)
        place = f"{folder}/{path}"
        with open(place, "wb", buffering=0) as file:
            file.write(data)
        stamp = time.mktime((day.year, day.month, day.day, 12, files % 60, 0, 0, 0, 0))
        os.utime(place, (stamp, stamp))
        files += 1

    for plan in vault.plans:
        data = vault.text(plan)
        size += len(data)
        put(plan.path, data, plan.day)
    for path in vault.attachments:
        put(path, PDF if path.endswith("pdf") else png(vault.chance), LAST_DAY)
    for number in range(max(1, notes // 500)):
        put(f"Boards/Board {number:03}.canvas", vault.canvas(), LAST_DAY)
    return Made(notes, files, size, vault.links)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("notes", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    try:
        made = make_vault(asked.notes, asked.folder, asked.seed)
    except FileExistsError as refusal:
        sys.exit(str(refusal))
    print(f"{made.notes} notes, {made.files} files, {made.size / 1e6:.1f} MB, {made.links} links")


if __name__ == "__main__":
    main()
