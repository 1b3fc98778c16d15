"""Context packs: what an agent should read about something, within so many tokens."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from notewright.engine.find.links import links
from notewright.engine.find.search import parse_query, search
from notewright.engine.read import read
from notewright.engine.workspace import Workspace
from notewright.errors import NotFound
from notewright.notes.edits.splices import line_count
from notewright.notes.excerpts import shorten_text
from notewright.notes.model import Note
from notewright.notes.parse.headings import list_sections
from notewright.notes.path import NotePath

CHARACTERS_A_TOKEN = 4
CANDIDATES, MOST_CANDIDATES = 20, 100
LONGEST_PASSAGE = 6_000  # while others wait for room
LEAST_PASSAGE = 120  # a cut passage that is shorter is left out
AROUND_A_PASSAGE = 50  # characters that say where it stands, beside its path, its heading and why
AROUND_THE_PACK = 80  # characters of the first and the last line, beside what it is about
ABOUT_CHARS = 82  # of the words, with their quotation marks
HEADING_CHARS = 100
INDENT = 2  # before each line


class Passage(NamedTuple):
    """A piece of a note with where it stands, to cite."""

    ws: Workspace
    path: NotePath
    heading: str | None
    first_line: int
    last_line: int
    text: str
    why: str  # match, itself, links here, linked
    goes_on: int | None = None  # the last line of all of it, where it was cut

    @property
    def cost(self) -> int:
        """Characters it takes in an answer."""
        return self._around + len(self.text) + INDENT * len(self.text.splitlines())

    @property
    def _around(self) -> int:
        why = "" if self.why == "match" else self.why
        named = len(self.ws.name) + len(self.path) + len((self.heading or "")[:HEADING_CHARS])
        return named + len(why) + AROUND_A_PASSAGE

    def within(self, cost: int, least: int = LEAST_PASSAGE) -> "Passage | None":
        """As much of it as costs no more, cut at a sentence or a line; None where that is hardly anything."""
        if self.cost <= cost:
            return self
        text = shorten_text(self.text, _indentable(self.text, cost - self._around))
        if len(text) < least:
            return None
        last = self.first_line + max(line_count(text) - 1, 0)
        return self._replace(text=text, last_line=last, goes_on=self.last_line)


class ContextPack(NamedTuple):
    passages: tuple[Passage, ...]
    left_out: int
    nearest: tuple[str, ...] = ()  # spellings and names, when nothing was found


Candidate = Callable[[], Passage | None]  # read when there is room for it; None where it is gone


def about_words(workspaces: Sequence[Workspace], words: str, budget: int) -> ContextPack:
    """The best sections for a question, of all these workspaces together."""
    most = min(max(CANDIDATES, budget // 100), MOST_CANDIDATES)
    asked = replace(parse_query(words), limit=most)
    found = [(ws, search(ws, asked)) for ws in workspaces]
    hits = sorted(((ws, hit) for ws, one in found for hit in one.items), key=lambda pair: -pair[1].score)
    candidates = [partial(_section_at, ws, hit.path, hit.line, "match") for ws, hit in hits[:most]]
    kept, left_out = _fill(candidates, budget, min(len(words) + 2, ABOUT_CHARS))
    return ContextPack(kept, left_out, tuple(dict.fromkeys(near for _, one in found for near in one.nearest)))


def about_note(ws: Workspace, path: NotePath, budget: int) -> ContextPack:
    """The note, the lines of others that link to it, and the beginnings of what it links to."""
    kept, left_out = _fill(list(_near(ws, path)), budget, len(ws.name) + 1 + len(path))
    return ContextPack(kept, left_out)


def _near(ws: Workspace, path: NotePath) -> Iterator[Candidate]:
    if path.is_note:
        note = read(ws, path).note
        yield lambda: _passage(ws, note, 0, len(note.text), None, "itself")
    told: set[str] = {path}
    around = links(ws, path)
    for link in around.incoming:
        if link.source not in told:
            told.add(link.source)
            yield partial(
                Passage, ws, link.source, None, link.line, link.line, link.context.with_ellipses, "links here"
            )
    for link in around.outgoing:
        if link.path is not None and link.path not in told and link.path.is_note:
            told.add(link.path)
            yield partial(_section_at, ws, link.path, 1, "linked")


def _section_at(ws: Workspace, path: NotePath, line: int, why: str) -> Passage | None:
    """The section that begins at a line (or the part above the first heading), read as it is now."""
    try:
        note = read(ws, path).note
    except NotFound:
        return None
    for section in list_sections(note):
        if section.heading.line == line:
            return _passage(ws, note, section.start, section.end, section.heading.text, why)
    first = note.headings[0].start if note.headings else len(note.text)
    start = note.frontmatter.end
    if first <= start or not note.text[start:first].strip():
        first = list_sections(note)[0].end if note.headings else len(note.text)
    return _passage(ws, note, start, first, None, why)


def _passage(ws: Workspace, note: Note, start: int, end: int, heading: str | None, why: str) -> Passage:
    text = note.text[start:end].rstrip()
    if start == 0:
        text = text.removeprefix("\ufeff")
    first = line_count(note.text, start) + 1
    return Passage(ws, note.path, heading, first, first + max(line_count(text) - 1, 0), text, why)


def _fill(candidates: Sequence[Candidate], budget: int, about: int) -> tuple[tuple[Passage, ...], int]:
    """As many as fit, each cut to a share at first, so that one long note is not all there is to know; then the best
    get what room is left."""
    room = budget * CHARACTERS_A_TOKEN - AROUND_THE_PACK - about
    share = min(LONGEST_PASSAGE, max(room // 4, 400))
    wholes: list[Passage] = []
    kept: list[Passage] = []
    for candidate in candidates:
        whole = candidate() if room > AROUND_A_PASSAGE else None
        if whole is None:
            continue
        most = min(room, share * 2 if whole.why == "itself" else share)
        passage = whole.within(most, LEAST_PASSAGE if kept else 1)
        if passage is not None:
            wholes.append(whole)
            kept.append(passage)
            room -= passage.cost
    for at, (whole, passage) in enumerate(zip(wholes, kept, strict=True)):
        more = whole.within(passage.cost + room) if passage.goes_on is not None else None
        if more is not None and more.cost > passage.cost:
            kept[at] = more
            room -= more.cost - passage.cost
    return tuple(kept), len(candidates) - len(kept)


def _indentable(text: str, room: int) -> int:
    """How many characters of a text fit into so many where each of its lines is indented."""
    fit = 0
    for line in text.splitlines(keepends=True):
        room -= INDENT
        if len(line) > room:
            return fit + max(room, 0)
        room -= len(line)
        fit += len(line)
    return fit
