"""Finds parts of a note for reading: the span of a section, a block or some lines."""

import difflib
import re

from notewright.errors import Invalid, NotFound
from notewright.notes.edits.sections import require_section
from notewright.notes.edits.splices import line_spans
from notewright.notes.model import Note

_LINES = re.compile(r"(\d{1,9})(?:\s*(-)\s*(\d{0,9}))?")


def find_section_span(note: Note, wanted: str) -> tuple[int, int]:
    """The span of a section with its heading and sub-sections, or of a block; NotFound names the nearest ones."""
    if not wanted.startswith("^"):
        section = require_section(note, wanted)
        return section.start, section.end
    block_id = wanted[1:]
    for block in note.blocks:
        if block.id.lower() == block_id.lower():
            return span_of_lines(note.text, block.start_line, block.end_line)
    ids = [block.id for block in note.blocks]
    near = difflib.get_close_matches(block_id, ids, n=3, cutoff=0.3) or ids[:3]
    hint = "blocks here: " + ", ".join("^" + one for one in near) if near else "the note has no block ids"
    raise NotFound(
        f"no block ^{block_id} in {note.path}", hint=hint, what="block", section=block_id, path=note.path, nearest=near
    )


def parse_line_span(text: str, raw: str) -> tuple[int, int, str]:
    """The span of `"10-40"`, `"40-"` or `"7"`, clipped to the text, and words for the lines it covers."""
    match = _LINES.fullmatch(raw.strip())
    first = int(match[1]) if match else 0
    total = len(line_spans(text)) or 1
    last = first if match and not match[2] else int(match[3]) if match and match[3] else total
    if not match or first < 1 or (match[3] and last < first):
        raise Invalid(f"{raw!r} does not name lines", hint='write "10-40" or "40-"', what="lines")
    if first > total:
        return len(text), len(text), f"past the end: there are {total} lines"
    last = min(last, total)
    start, end = span_of_lines(text, first, last)
    return start, end, f"lines {first}-{last}"


def span_of_lines(text: str, first: int, last: int) -> tuple[int, int]:
    """From the start of line `first` to the end of line `last`, its line ending included; both count from 1."""
    lines = line_spans(text) or [(0, 0)]
    return lines[min(first, len(lines)) - 1][0], lines[min(last, len(lines)) - 1][1]
