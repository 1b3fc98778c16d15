"""Names of notes that stand in texts without being links."""

import re
from collections.abc import Collection

from notewright.notes.model import Note
from notewright.notes.parse.block_scanner import scan
from notewright.notes.parse.grammar import RUNNING, flat_lines

_CODE = re.compile(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL)


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
