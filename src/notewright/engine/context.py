"""Context packs: what an agent should read about something, within so many tokens."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from notewright.engine.find import parse_query, search
from notewright.engine.links import incoming, outgoing
from notewright.engine.read import read
from notewright.engine.workspace import Workspace
from notewright.errors import NotFound
from notewright.notes import Note, NotePath, sections

CHARACTERS_A_TOKEN = 4
CANDIDATES = 20
LONGEST_PASSAGE = 6_000


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a note with where it stands, to cite."""

    path: NotePath
    heading: str | None
    first_line: int
    last_line: int
    text: str
    why: str  # match, itself, links here, linked


@dataclass(frozen=True, slots=True)
class Pack:
    passages: tuple[Passage, ...]
    left_out: int
    with_all: int | None  # notes that hold all the words; None for a pack about a note


def about_words(ws: Workspace, words: str, budget: int) -> Pack:
    """The best sections for a question."""
    found = search(ws, replace(parse_query(words), limit=CANDIDATES))
    candidates = (passage for hit in found.items if (passage := _section_at(ws, hit.path, hit.line, "match")))
    kept, left_out = _fill(candidates, budget)
    return Pack(kept, left_out, found.with_all)


def about_note(ws: Workspace, path: NotePath, budget: int) -> Pack:
    """The note, the lines of others that link to it, and the beginnings of what it links to."""
    kept, left_out = _fill(_near(ws, path), budget)
    return Pack(kept, left_out, None)


def _near(ws: Workspace, path: NotePath) -> Iterator[Passage]:
    note = read(ws, path).note
    yield _passage(note, 0, len(note.text), None, "itself")
    told: set[str] = {path}
    for link in incoming(ws, path):
        if link.source not in told:
            told.add(link.source)
            yield Passage(link.source, None, link.line, link.line, link.text, "links here")
    for link in outgoing(ws, path):
        if link.path is not None and link.path not in told and link.path.is_note:
            told.add(link.path)
            passage = _section_at(ws, link.path, 1, "linked")
            if passage is not None:
                yield passage


def _section_at(ws: Workspace, path: NotePath, line: int, why: str) -> Passage | None:
    """The section that begins at a line (or the part above the first heading), read as it is now."""
    try:
        note = read(ws, path).note
    except NotFound:
        return None
    for section in sections(note):
        if section.heading.line == line:
            return _passage(note, section.start, section.end, section.heading.text, why)
    first = note.headings[0].start if note.headings else len(note.text)
    start = note.frontmatter.end
    if first <= start or not note.text[start:first].strip():
        first = sections(note)[0].end if note.headings else len(note.text)
    return _passage(note, start, first, None, why)


def _passage(note: Note, start: int, end: int, heading: str | None, why: str) -> Passage:
    text = note.text[start:end].rstrip()
    cut = text[:LONGEST_PASSAGE]
    if len(text) > LONGEST_PASSAGE:
        cut = cut[: cut.rfind("\n") + 1].rstrip() or cut
    first = note.text.count("\n", 0, start) + 1
    return Passage(note.path, heading, first, first + cut.count("\n"), cut, why)


def _fill(candidates: Iterator[Passage], budget: int) -> tuple[tuple[Passage, ...], int]:
    """As many as fit; the first is cut rather than left out."""
    room = budget * CHARACTERS_A_TOKEN
    kept: list[Passage] = []
    left_out = 0
    for passage in candidates:
        cost = len(passage.text) + len(passage.path) + 40
        if cost <= room:
            kept.append(passage)
            room -= cost
        elif not kept and room > 200:
            kept.append(_shortened(passage, room - len(passage.path) - 40))
            room = 0
        else:
            left_out += 1
    return tuple(kept), left_out


def _shortened(passage: Passage, size: int) -> Passage:
    text = passage.text[:size]
    text = text[: text.rfind("\n")].rstrip() if "\n" in text else text
    last = passage.first_line + text.count("\n")
    return Passage(passage.path, passage.heading, passage.first_line, last, text, passage.why)
