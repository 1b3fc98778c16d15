"""What independent tools say about real vaults, note by note: links, headings, sections, tags, properties."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from notewright.notes.links.syntax import strip_links
from notewright.notes.model import Note
from notewright.notes.parse.headings import find_section, heading_key
from notewright.notes.parse.parser import parse
from notewright.notes.path import NotePath

BAR = 0.99
# Notes where we differ on purpose, and why.
KNOWN = {
    ("headings", "tasks-docs", "Getting Started/Task Dependencies.md"): "a heading inside %% %% is a comment's",
}

Answer = tuple[str, str, Any, Any]  # vault, note, ours, theirs


@lru_cache(maxsize=4000)
def read(vault: Path, note: str) -> Note:
    return parse(NotePath(note), (vault / "vault" / note).read_bytes().decode("utf-8", "replace"))


def rows(shared: Path, name: str) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Each row of a truth file with the folder of its vault."""
    for truth in sorted((shared / "truth").iterdir()):
        if (truth / name).is_file():
            for line in (truth / name).read_text().splitlines():
                yield shared / "vaults" / truth.name, json.loads(line)


def check(kind: str, answers: Iterator[Answer]) -> None:
    asked, wrong = 0, []
    for vault, note, ours, theirs in answers:
        asked += 1
        if ours != theirs and (kind, vault, note) not in KNOWN:
            wrong.append(f"{vault}/{note}: {str(ours)[:300]} instead of {str(theirs)[:300]}")
    assert asked
    assert len(wrong) <= (1 - BAR) * asked, "\n".join(wrong[:20])


def byte(text: str, offset: int) -> int:
    return len(text[:offset].encode())


def link_answers(shared: Path) -> Iterator[Answer]:
    for vault, row in rows(shared, "links.jsonl"):
        note = read(vault, row["note"])
        wiki = [link for link in note.links if link.kind in ("wikilink", "embed")]
        markdown = [link for link in note.links if link.kind.startswith("markdown")]
        written = [[link.line, byte(note.text, link.start), note.text[link.start : link.end]] for link in wiki]
        yield vault.name, row["note"], written, row["wikilinks"]
        targets = [[link.line, byte(note.text, link.start), link.target + link.subpath] for link in markdown]
        yield vault.name, row["note"], targets, [[line, at, target] for line, at, _, target in row["markdown"]]


def heading_answers(shared: Path) -> Iterator[Answer]:
    for vault, row in rows(shared, "headings.jsonl"):
        headings = read(vault, row["note"]).headings
        ours = [[h.level, h.line, heading_key(strip_links(h.text)).replace("_", ""), h.top] for h in headings]
        theirs = [[level, line, heading_key(text).replace("_", ""), top] for level, line, text, top in row["headings"]]
        yield vault.name, row["note"], ours, theirs


def section_answers(shared: Path) -> Iterator[Answer]:
    for vault, row in rows(shared, "sections.jsonl"):
        note = read(vault, row["note"])
        section = find_section(note, row["heading"])
        theirs = (row["start_line"], row["end_line_exclusive"], row["sha256_of_lines"])
        ours = None
        if section is not None:
            lines = note.text.replace("\r\n", "\n").split("\n")[section.heading.line - 1 : section.end_line - 1]
            digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
            ours = (section.heading.line, section.end_line, digest)
        yield vault.name, row["note"], ours, theirs


def tag_answers(shared: Path) -> Iterator[Answer]:
    for vault, row in rows(shared, "tags.jsonl"):
        tags = read(vault, row["note"]).tags
        inline = Counter(tag.name for tag in tags if tag.inline)
        own = [tag.name for tag in tags if not tag.inline]
        yield vault.name, row["note"], (dict(inline), own), (row["inline"], row["frontmatter"])


def property_answers(shared: Path) -> Iterator[Answer]:
    for vault, row in rows(shared, "frontmatter.jsonl"):
        front = read(vault, row["note"]).frontmatter
        ours = "invalid" if front.problem else dict(front.properties)
        yield vault.name, row["note"], ours, "invalid" if row.get("invalid") else row["properties"] or {}


@pytest.mark.parametrize(
    ("kind", "answers"),
    [
        ("links", link_answers),
        ("headings", heading_answers),
        ("sections", section_answers),
        ("tags", tag_answers),
        ("properties", property_answers),
    ],
)
def test_we_agree_with_independent_tools_on_real_vaults(shared, kind, answers):
    check(kind, answers(shared))
