"""Embeds shown in place, and names of notes that stand in texts without being links."""

import re
from collections.abc import Callable, Collection

from notewright.errors import NotFound
from notewright.notes.edits.sections import section_text
from notewright.notes.edits.splices import Splice, spliced
from notewright.notes.links.resolve import OBSIDIAN, LinkPolicy, Names, resolve
from notewright.notes.model import Link, Note
from notewright.notes.parse.block_scanner import scan
from notewright.notes.parse.grammar import RUNNING, flat_lines
from notewright.notes.path import NotePath

MAX_DEPTH = 5
MAX_CHARACTERS = 1 << 20
_CODE = re.compile(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL)

Reader = Callable[[NotePath], Note | None]


def expand_embeds(note: Note, names: Names, read: Reader, policy: LinkPolicy = OBSIDIAN) -> str:
    """The body with every embedded note in its place, a few levels deep; what embeds itself stays a link."""
    return _Expansion(names, read, policy).of(note, note.body, (note.path,))


class _Expansion:
    """One expansion: it counts what it has written, so that embeds of embeds come to an end."""

    def __init__(self, names: Names, read: Reader, policy: LinkPolicy):
        self.names, self.read, self.policy = names, read, policy
        self.left = MAX_CHARACTERS

    def of(self, note: Note, text: str, above: tuple[NotePath, ...]) -> str:
        start = note.text.find(text)
        splices = []
        for link in note.links:
            if link.kind in ("embed", "markdown-embed") and start <= link.start and link.end <= start + len(text):
                shown = self.shown(link, note.path, above)
                if shown is not None:
                    splices.append(Splice(link.start - start, link.end - start, shown))
        return spliced(text, splices)

    def shown(self, link: Link, source: NotePath, above: tuple[NotePath, ...]) -> str | None:
        path = resolve(link.target, source, self.names, self.policy)
        if path is None or not path.is_note or path in above or len(above) > MAX_DEPTH or self.left <= 0:
            return None
        note = self.read(path)
        if note is None:
            return None
        try:
            part = section_text(note, link.subpath) if link.subpath else note.body
        except NotFound:
            return None
        self.left -= len(part)
        return self.of(note, part, (*above, path)) if self.left > 0 else None


def unlinked_mentions(note: Note, called: Collection[str]) -> list[int]:
    """The lines on which one of these names stands as plain text: whole words, case ignored, no link, no code."""
    wanted = [_whole(name.strip()) for name in called if name.strip()]
    if not wanted:
        return []
    pattern = re.compile("|".join(wanted), re.IGNORECASE)
    text = _plain(note)
    lines = {text.count("\n", 0, found.start()) + 1 for found in pattern.finditer(text)}
    return sorted(lines)


def _whole(name: str) -> str:
    """A name as whole words; scripts without blanks between words have no such edges."""
    before = r"(?<![^\W\u2e80-\uffdc])" if re.match(r"[^\W\u2e80-\uffdc]", name) else ""
    after = r"(?![^\W\u2e80-\uffdc])" if re.search(r"[^\W\u2e80-\uffdc]$", name) else ""
    return before + re.escape(name) + after


def _plain(note: Note) -> str:
    """The text with everything blanked that is not running text: frontmatter, code, links."""
    flat = flat_lines(note.text)
    pieces, place = [], 0
    for kind, start, end, _ in scan(flat, note.frontmatter.end).leaves:
        if kind in RUNNING:
            pieces += [_blank(flat[place:start]), _CODE.sub(lambda code: _blank(code[0]), flat[start:end])]
            place = end
    text = "".join([*pieces, _blank(flat[place:])])
    pieces, place = [], 0
    for link in note.links:
        if link.start >= place:  # a link in the text of another is blanked with it
            pieces += [text[place : link.start], _blank(text[link.start : link.end])]
            place = link.end
    return "".join([*pieces, text[place:]])


def _blank(text: str) -> str:
    return re.sub(r"[^\n]", "\x00", text)
