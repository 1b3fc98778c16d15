"""Documents that cannot lie: every link in docs/ and in the example notebook leads to something."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from notewright.notes.links.resolve import InMemoryNames, resolve
from notewright.notes.model import Link, Note
from notewright.notes.parse.parser import parse
from notewright.notes.path import NotePath

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples" / "notes"
DOCS = ROOT / "docs"


def paths(folder: Path) -> list[NotePath]:
    files = (file.relative_to(folder) for file in folder.rglob("*") if file.is_file())
    return [NotePath.parse(str(file)) for file in files if not any(part.startswith(".") for part in file.parts)]


def notes(folder: Path) -> list[Note]:
    return [parse(path, (folder / path).read_text(encoding="utf-8")) for path in paths(folder) if path.is_note]


def lands(link: Link, note: Note) -> bool:
    """Whether what stands behind `#` is there."""
    if link.subpath.startswith("#^"):
        return any(block.id == link.subpath[2:] for block in note.blocks)
    last = link.subpath.rpartition("#")[2]
    return not link.subpath or any(heading.text == last for heading in note.headings)


@pytest.mark.parametrize("folder", [DOCS, EXAMPLES], ids=["docs", "examples"])
def test_every_link_leads_to_a_note_and_a_place_in_it(folder: Path) -> None:
    everything = notes(folder)
    names, by_path = InMemoryNames(paths(folder), everything), {note.path: note for note in everything}
    broken = []
    for note in everything:
        for link in note.links:
            found = resolve(link.target, note.path, names)
            if found is None or (found in by_path and not lands(link, by_path[found])):
                broken.append(f"{note.path}:{link.line} {link.target}{link.subpath}")
    assert broken == []


def test_every_page_is_reached_from_the_start() -> None:
    everything = notes(DOCS)
    names, by_path = InMemoryNames(paths(DOCS), everything), {note.path: note for note in everything}
    seen, waiting = set(), [NotePath.parse("start.md")]
    while waiting:
        page = waiting.pop()
        if page not in seen and page in by_path:
            seen.add(page)
            waiting += [found for link in by_path[page].links if (found := resolve(link.target, page, names))]
    assert {str(note.path) for note in everything} - {str(path) for path in seen} == set()


@pytest.mark.parametrize("page", ["docs/architecture.md", "docs/why.md", "CONTRIBUTING.md"])
def test_every_file_that_a_page_on_the_code_names_is_there(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8").replace("<surface>", "notes")
    named = set(re.findall(r"`(\w[\w/.*-]*/[\w.*-]+\.(?:py|md|txt|js|ts))`", text))
    places = (ROOT, ROOT / "src" / "notewright")
    assert [name for name in sorted(named) if not any(list(place.glob(name)) for place in places)] == []


def test_the_examples_are_worth_reading() -> None:
    everything = notes(EXAMPLES)
    assert 30 <= len(everything) <= 60
    assert sum(len(note.links) for note in everything) > 4 * len(everything)
    assert all(note.frontmatter.problem is None for note in everything)


def test_the_examples_answer_why_there_is_a_deck_oven() -> None:
    text = (EXAMPLES / "Decisions" / "Why a deck oven.md").read_text(encoding="utf-8")
    assert "flue" in text and "insurer" in text


def test_the_reference_is_what_the_code_says() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "make_reference.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"run `make reference`; old: {done.stdout}"
