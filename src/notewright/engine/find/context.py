"""Context packs: the passages an agent should read about a topic or a note, within a budget of tokens."""

from collections.abc import Callable, Iterator, Sequence
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

CHARS_PER_TOKEN = 4
MIN_CANDIDATES, MAX_CANDIDATES = 20, 100
MAX_PASSAGE_CHARS = 6_000  # before the second round gives out what room is left
MIN_PASSAGE_CHARS = 120  # a shorter cut passage is left out
PASSAGE_FRAME_CHARS = 50  # its first line without path, heading and why
PACK_FRAME_CHARS = 80  # the first and the last line without the topic
ABOUT_CHARS = 82  # of the topic, with its quotation marks
HEADING_CHARS = 100
INDENT_CHARS = 2  # before each line


class Passage(NamedTuple):
    """A piece of a note with its place, to cite."""

    ws: Workspace
    path: NotePath
    heading: str | None
    first_line: int
    last_line: int
    text: str
    why: str  # match, itself, links here, linked
    full_end: int | None = None  # the last line of the uncut passage, if it was cut

    @property
    def cost(self) -> int:
        """The characters it takes in an answer."""
        return self._frame_chars + len(self.text) + INDENT_CHARS * len(self.text.splitlines())

    @property
    def _frame_chars(self) -> int:
        why = "" if self.why == "match" else self.why
        named = len(self.ws.name) + len(self.path) + len((self.heading or "")[:HEADING_CHARS])
        return named + len(why) + PASSAGE_FRAME_CHARS

    def cut_to(self, cost: int, least: int = MIN_PASSAGE_CHARS) -> "Passage | None":
        """Cut it at a sentence or a line to cost no more; None if less than `least` characters are left."""
        if self.cost <= cost:
            return self
        text = shorten_text(self.text, _count_fitting_chars(self.text, cost - self._frame_chars))
        if len(text) < least:
            return None
        last = self.first_line + max(line_count(text) - 1, 0)
        return self._replace(text=text, last_line=last, full_end=self.last_line)


class ContextPack(NamedTuple):
    passages: tuple[Passage, ...]
    left_out: int
    nearest: tuple[str, ...] = ()  # spellings and names, when nothing was found


Candidate = Callable[[], Passage | None]  # reads a passage when there is room for it; None if the note is gone


def pack_for_words(workspaces: Sequence[Workspace], words: str, budget: int) -> ContextPack:
    """Pack the best sections for a question, of all these workspaces together."""
    most = min(max(MIN_CANDIDATES, budget // 100), MAX_CANDIDATES)
    query = parse_query(words, limit=most)
    found = [(ws, search(ws, query)) for ws in workspaces]
    hits = sorted(((ws, hit) for ws, page in found for hit in page.items), key=lambda pair: -pair[1].score)
    candidates = [partial(_read_section_at, ws, hit.path, hit.line, "match") for ws, hit in hits[:most]]
    kept, left_out = _fill_budget(candidates, budget, min(len(words) + 2, ABOUT_CHARS))
    return ContextPack(kept, left_out, tuple(dict.fromkeys(near for _, page in found for near in page.nearest)))


def pack_for_note(ws: Workspace, path: NotePath, budget: int) -> ContextPack:
    """Pack the note, the lines of others that link to it, and the beginnings of the notes it links to."""
    kept, left_out = _fill_budget(list(_find_nearby(ws, path)), budget, len(ws.name) + 1 + len(path))
    return ContextPack(kept, left_out)


def _find_nearby(ws: Workspace, path: NotePath) -> Iterator[Candidate]:
    if path.is_note:
        note = read(ws, path).note
        yield lambda: _make_passage(ws, note, 0, len(note.text), None, "itself")
    seen: set[str] = {path}
    around = links(ws, path)
    for link in around.incoming:
        if link.source not in seen:
            seen.add(link.source)
            yield partial(
                Passage, ws, link.source, None, link.line, link.line, link.context.with_ellipses, "links here"
            )
    for link in around.outgoing:
        if link.path is not None and link.path not in seen and link.path.is_note:
            seen.add(link.path)
            yield partial(_read_section_at, ws, link.path, 1, "linked")


def _read_section_at(ws: Workspace, path: NotePath, line: int, why: str) -> Passage | None:
    """Read the section that begins at a line (or the part above the first heading), as the note is now."""
    try:
        note = read(ws, path).note
    except NotFound:
        return None
    for section in list_sections(note):
        if section.heading.line == line:
            return _make_passage(ws, note, section.start, section.end, section.heading.text, why)
    first = note.headings[0].start if note.headings else len(note.text)
    start = note.frontmatter.end
    if first <= start or not note.text[start:first].strip():
        first = list_sections(note)[0].end if note.headings else len(note.text)
    return _make_passage(ws, note, start, first, None, why)


def _make_passage(ws: Workspace, note: Note, start: int, end: int, heading: str | None, why: str) -> Passage:
    text = note.text[start:end].rstrip()
    if start == 0:
        text = text.removeprefix("\ufeff")
    first = line_count(note.text, start) + 1
    return Passage(ws, note.path, heading, first, first + max(line_count(text) - 1, 0), text, why)


def _fill_budget(candidates: Sequence[Candidate], budget: int, about: int) -> tuple[tuple[Passage, ...], int]:
    """Take as many passages as fit, each first cut to a share, so that one long note does not fill the pack; then give
    the room that is left to the best. Returns them and how many were left out."""
    room = budget * CHARS_PER_TOKEN - PACK_FRAME_CHARS - about
    share = min(MAX_PASSAGE_CHARS, max(room // 4, 400))
    wholes: list[Passage] = []
    kept: list[Passage] = []
    for candidate in candidates:
        whole = candidate() if room > PASSAGE_FRAME_CHARS else None
        if whole is None:
            continue
        most = min(room, share * 2 if whole.why == "itself" else share)
        passage = whole.cut_to(most, MIN_PASSAGE_CHARS if kept else 1)
        if passage is not None:
            wholes.append(whole)
            kept.append(passage)
            room -= passage.cost
    for at, (whole, passage) in enumerate(zip(wholes, kept, strict=True)):
        more = whole.cut_to(passage.cost + room) if passage.full_end is not None else None
        if more is not None and more.cost > passage.cost:
            kept[at] = more
            room -= more.cost - passage.cost
    return tuple(kept), len(candidates) - len(kept)


def _count_fitting_chars(text: str, room: int) -> int:
    """How many characters of a text fit into `room` when each of its lines is indented."""
    fit = 0
    for line in text.splitlines(keepends=True):
        room -= INDENT_CHARS
        if len(line) > room:
            return fit + max(room, 0)
        room -= len(line)
        fit += len(line)
    return fit
