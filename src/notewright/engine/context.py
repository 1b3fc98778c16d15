"""Context packs: what an agent should read about something, within so many tokens."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from notewright.engine.find import parse_query, search
from notewright.engine.links import incoming, outgoing
from notewright.engine.parts import line_count
from notewright.engine.read import read
from notewright.engine.workspace import Workspace
from notewright.errors import NotFound
from notewright.notes import Note, NotePath, sections

CHARACTERS_A_TOKEN = 4
CANDIDATES = 20
LONGEST_PASSAGE = 6_000
AROUND_A_PASSAGE = 60  # characters that say where it stands, beside its path and heading
AROUND_THE_PACK = 200
INDENT = 2  # before each line


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a note with where it stands, to cite."""

    ws: Workspace
    path: NotePath
    heading: str | None
    first_line: int
    last_line: int
    text: str
    why: str  # match, itself, links here, linked

    @property
    def cost(self) -> int:
        """Characters it takes in an answer."""
        named = len(self.ws.name) + len(self.path) + len(self.heading or "")
        return len(self.text) + INDENT * (self.text.count("\n") + 1) + named + AROUND_A_PASSAGE


@dataclass(frozen=True, slots=True)
class Pack:
    passages: tuple[Passage, ...]
    left_out: int
    nearest: tuple[str, ...] = ()  # spellings and names, when nothing was found


def about_words(workspaces: Sequence[Workspace], words: str, budget: int) -> Pack:
    """The best sections for a question, of all these workspaces together."""
    asked = replace(parse_query(words), limit=CANDIDATES)
    found = [(ws, search(ws, asked)) for ws in workspaces]
    hits = sorted(((ws, hit) for ws, one in found for hit in one.items), key=lambda pair: -pair[1].score)
    most = _longest(budget)
    passages = (_section_at(ws, hit.path, hit.line, "match", most) for ws, hit in hits[:CANDIDATES])
    kept, left_out = _fill(filter(None, passages), budget)
    return Pack(kept, left_out, tuple(dict.fromkeys(near for _, one in found for near in one.nearest)))


def about_note(ws: Workspace, path: NotePath, budget: int) -> Pack:
    """The note, the lines of others that link to it, and the beginnings of what it links to."""
    kept, left_out = _fill(_near(ws, path, _longest(budget)), budget)
    return Pack(kept, left_out)


def _longest(budget: int) -> int:
    """No passage takes more than a quarter of the room: one long note is not all there is to know."""
    return min(LONGEST_PASSAGE, max(400, budget * CHARACTERS_A_TOKEN // 4))


def _near(ws: Workspace, path: NotePath, most: int) -> Iterator[Passage]:
    if path.is_note:
        note = read(ws, path).note
        yield _passage(ws, note, 0, len(note.text), None, "itself", most * 2)
    told: set[str] = {path}
    for link in incoming(ws, path):
        if link.source not in told:
            told.add(link.source)
            yield Passage(ws, link.source, None, link.line, link.line, link.context.shown, "links here")
    for link in outgoing(ws, path):
        if link.path is not None and link.path not in told and link.path.is_note:
            told.add(link.path)
            passage = _section_at(ws, link.path, 1, "linked", most)
            if passage is not None:
                yield passage


def _section_at(ws: Workspace, path: NotePath, line: int, why: str, most: int) -> Passage | None:
    """The section that begins at a line (or the part above the first heading), read as it is now."""
    try:
        note = read(ws, path).note
    except NotFound:
        return None
    for section in sections(note):
        if section.heading.line == line:
            return _passage(ws, note, section.start, section.end, section.heading.text, why, most)
    first = note.headings[0].start if note.headings else len(note.text)
    start = note.frontmatter.end
    if first <= start or not note.text[start:first].strip():
        first = sections(note)[0].end if note.headings else len(note.text)
    return _passage(ws, note, start, first, None, why, most)


def _passage(ws: Workspace, note: Note, start: int, end: int, heading: str | None, why: str, most: int) -> Passage:
    text = note.text[start:end].rstrip()
    if start == 0:
        text = text.removeprefix("\ufeff")
    first = line_count(note.text, start) + 1
    return _cut(Passage(ws, note.path, heading, first, first + max(line_count(text) - 1, 0), text, why), most)


def _cut(passage: Passage, most: int) -> Passage:
    """The passage up to a line end within so many characters."""
    if len(passage.text) <= most:
        return passage
    text = passage.text[:most]
    text = text[: text.rfind("\n") + 1].rstrip() or text
    return replace(passage, text=text, last_line=passage.first_line + line_count(text) - 1)


def _fill(candidates: Iterator[Passage], budget: int) -> tuple[tuple[Passage, ...], int]:
    """As many as fit, cut where the room for the first is small: then it is better than nothing."""
    room = budget * CHARACTERS_A_TOKEN - AROUND_THE_PACK
    kept: list[Passage] = []
    left_out = 0
    for passage in candidates:
        if not kept:
            passage = _cut(passage, max(room - (passage.cost - len(passage.text)), 40))
        if passage.cost <= room:
            kept.append(passage)
            room -= passage.cost
        else:
            left_out += 1
    return tuple(kept), left_out
