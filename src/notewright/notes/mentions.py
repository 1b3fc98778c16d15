"""The sentences around links, and names that are no links."""

import re
from bisect import bisect_right
from collections.abc import Collection
from typing import NamedTuple

from notewright.notes.excerpts import compile_sentence_end
from notewright.notes.links.syntax import link_display_text, strip_links
from notewright.notes.model import Link, Note
from notewright.notes.parse.block_scanner import TEXT_LEAVES, normalize_line_endings, scan

_MAX_SIDE_CHARS = 400  # characters of a sentence kept on each side of its link
_MAX_REPEATS = 8  # times a paragraph's length that is kept around its links, before they share it
_MIN_CHARS_AFTER = 200  # so many of them after a link are enough for it to share what was kept for the one before it
_MARKS = "*`~="
_BLANKS = re.compile(r"\s\s+|[^\S ]")
_SENTENCE_END = compile_sentence_end(".!?…;。！？")
_CODE = re.compile(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL)


class Mention(NamedTuple):
    """A link and the sentence it stands in, as prose."""

    link: Link
    sentence: str


def find_mentions(note: Note) -> list[Mention]:
    """For each link of the body, the sentence around it with link markup replaced by the text it shows."""
    links = [link for link in note.links if link.key is None]
    found: list[Mention] = []
    at = 0
    for start, end in note.paragraphs:
        first = at
        while at < len(links) and links[at].start < end:
            at += 1
        if at > first:
            found += _find_in_paragraph(note.text, start, end, links[first:at])
        if at == len(links):
            break
    return found


def _find_in_paragraph(text: str, start: int, end: int, links: list[Link]) -> list[Mention]:
    """Sentences of one paragraph. Links inside the text of another link share its place."""
    pieces: list[str] = []
    size, place = 0, start
    places: list[tuple[int, Link]] = []
    for link in links:
        if link.start >= place:
            piece = _to_prose(text[place : link.start])
            shown = _BLANKS.sub(" ", link_display_text(link))
            pieces += (piece, shown)
            size += len(piece)
            places.append((size, link))
            size += len(shown)
            place = link.end
        else:
            places.append((places[-1][0] if places else 0, link))
    pieces.append(_to_prose(text[place:end]))
    return _cut_sentences("".join(pieces), places)


def _cut_sentences(prose: str, places: list[tuple[int, Link]]) -> list[Mention]:
    """The sentence of each place, or as much of it as is kept. Where that is several times the paragraph, links near
    one another share it: all that is kept stays in proportion to the paragraph, however many links it has."""
    found: list[Mention] = []
    ends = [0, *[found.end() for found in _SENTENCE_END.finditer(prose)], len(prose)]
    begin = end = last = kept = 0
    most, sentence = _MAX_REPEATS * len(prose), ""
    for place, link in places:
        after = min(bisect_right(ends, place), len(ends) - 1)
        if kept < most or after != last or end < min(ends[after], place + _MIN_CHARS_AFTER):
            begin, end = max(ends[after - 1], place - _MAX_SIDE_CHARS), min(ends[after], place + _MAX_SIDE_CHARS)
            sentence, last, kept = prose[begin:end].strip(), after, kept + end - begin
        found.append(Mention(link, sentence))
    return found


def _to_prose(markdown: str) -> str:
    """Without marks, blanks shrunk."""
    shown = strip_links(markdown) if "](" in markdown else markdown
    for mark in _MARKS:
        if mark in shown:  # str.translate takes five times as long
            shown = shown.replace(mark, "")
    return shown if shown.isprintable() and "  " not in shown else _BLANKS.sub(" ", shown)


# ---- names that are no links --------------------------------------------------------------------------


def find_unlinked_mentions(note: Note, names: Collection[str]) -> list[int]:
    """The lines on which one of these names stands as plain text: whole words, case ignored, no link, no code."""
    patterns = []
    for name in filter(None, map(str.strip, names)):
        # as whole words; scripts without blanks between words have no such edges
        before = r"(?<![^\W\u2e80-\uffdc])" if re.match(r"[^\W\u2e80-\uffdc]", name) else ""
        after = r"(?![^\W\u2e80-\uffdc])" if re.search(r"[^\W\u2e80-\uffdc]$", name) else ""
        patterns.append(before + re.escape(name) + after)
    if not patterns:
        return []
    text, line, counted, lines = _blank_links_and_code(note), 1, 0, dict[int, None]()
    for found in re.finditer("|".join(patterns), text, re.IGNORECASE):
        line += text.count("\n", counted, found.start())
        counted = found.start()
        lines[line] = None
    return list(lines)


def _blank_links_and_code(note: Note) -> str:
    """The text with everything blanked that is not running text: frontmatter, code, links."""
    flat = normalize_line_endings(note.text)
    pieces, place = [], 0
    for kind, start, end, _ in scan(flat, note.frontmatter.end).leaves:
        if kind in TEXT_LEAVES:
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
