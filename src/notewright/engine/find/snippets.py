"""Cuts snippets: the few words of a section that show why it was found."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

from notewright.index.base import IndexedNote

MAX_SNIPPET_CHARS = 200  # characters of a snippet, wide ones counted twice
MAX_LINES = 400  # of a section that are searched
MAX_LINE_CHARS = 20_000
# First and last code points. Not patterns: `re` takes longer to compile so many letters than opening the index takes.
_WIDE = ((0x1100, 0x115F), (0x2E80, 0xA4CF), (0xAC00, 0xD7A3), (0xF900, 0xFAFF), (0xFE30, 0xFE6F), (0xFF00, 0xFF60))
_CJK = ((0x2E80, 0x9FFF), (0xAC00, 0xD7FF), (0xF900, 0xFAFF))
_MAY_BE_WIDE = re.compile(rb"[\xe1\xe3-\xef]|\xe2[\xba-\xbf]")  # first UTF-8 bytes of U+1000 to U+1FFF, U+2E80 and up

Marks = tuple[tuple[int, int], ...]
Words = tuple[tuple[str, bool], ...]  # folded, and whether only as a whole word; pairs of CJK characters match anywhere


def to_words(forms: Iterable[str]) -> Words:
    return tuple((word, not _has_cjk(word)) for word in set(forms) if word)


def _find_words(low: str, words: Words, *, overlapping: bool = False) -> Iterator[tuple[int, int]]:
    """Find the words in a folded text, in order; of two that overlap the first and longer, or both CJK pairs.

    Each word is searched by itself: a pattern of many words takes longer to compile, and to try at every letter."""
    spans: list[tuple[int, int]] = []
    for word, whole in words:
        at, size = low.find(word), len(word)
        while at >= 0:
            if not whole or not (low[at + size : at + size + 1].isalnum() or (at and low[at - 1].isalnum())):
                spans.append((at, -at - size))
            at = low.find(word, at + 1)
    at = 0
    for start, end in sorted(spans):
        if start >= at:
            yield start, -end
            at = start + 1 if overlapping and _has_cjk(low[start]) else -end


def _may_be_wide(text: str) -> bool:
    return not text.isascii() and _MAY_BE_WIDE.search(text.encode(errors="replace")) is not None


def _has_cjk(text: str) -> bool:
    return _may_be_wide(text) and any(_is_among(ord(letter), _CJK) for letter in set(text))


def _is_among(code: int, ranges: tuple[tuple[int, int], ...]) -> bool:
    return any(first <= code <= last for first, last in ranges)


def fold_text(text: str) -> str:
    """Lower case without accents, each character at its place. `str.translate` takes ten times as long as the two other
    ways, which serve most texts: those of western Europe, and those whose letters have no accents."""
    if text.isascii():
        return text.lower()
    try:
        return text.encode("latin-1").translate(_make_latin_table()).decode("latin-1")
    except UnicodeEncodeError:
        low = text.lower()
    # In lower case a capital I with a dot is two letters, and a sigma another one at the end of a word.
    if unicodedata.is_normalized("NFD", low) and len(low) == len(text) and "\u03a3" not in text:
        return low
    return text.translate(_FOLDED)


@cache
def _make_latin_table() -> bytes:
    return "".join(map(_FOLDED.__getitem__, range(256))).encode("latin-1")


class _Folded(dict[int, str]):
    """A table for `str.translate` that computes and keeps each character on first use."""

    def __missing__(self, code: int) -> str:
        base = unicodedata.normalize("NFD", chr(code))[0].lower()
        self[code] = base if len(base) == 1 else chr(code)
        return self[code]


class _Widened(dict[int, str]):
    """A table for `str.translate` that doubles each wide character, as it takes two columns."""

    def __missing__(self, code: int) -> str:
        self[code] = chr(code) * (2 if _is_among(code, _WIDE) else 1)
        return self[code]


_FOLDED = _Folded()
_WIDENED = _Widened()


def cut_section_snippet(note: IndexedNote, number: int, words: Words) -> tuple[str | None, int, str, Marks]:
    """Heading, first line and snippet of the section with this number; the snippet of the note if it has no text."""
    headings = [heading for heading in note.headings if heading.top]
    number = min(number, len(headings))
    end = headings[number].start if number < len(headings) else len(note.text)
    if number == 0:
        heading, line, section = None, 1, _strip_frontmatter(note.text[:end])
    else:
        above = headings[number - 1]
        heading, line, section = above.text, above.line, note.text[above.end : end]
        section = section if section.strip() else note.text[above.start : end]
    shown, marks = cut_snippet(section, words)
    if not shown:
        shown, marks = cut_snippet(_strip_frontmatter(note.text), words)
    if not shown:
        shown, marks = cut_snippet(note.text, words)
    return heading, line, shown, marks


def _strip_frontmatter(text: str) -> str:
    """The text after the frontmatter."""
    text = text.removeprefix("\ufeff")
    if text.startswith("---"):
        close = text.find("\n---", 3)
        if close >= 0:
            text = text[text.find("\n", close + 1) + 1 or len(text) :]
    return text


def cut_snippet(section: str, words: Words) -> tuple[str, Marks]:
    """Cut the line with most of the words around them; a second line if there is room. Marks are the words' places."""
    lines = [line for line in section.split("\n", MAX_LINES)[:MAX_LINES] if line.strip()]
    if not lines:
        return "", ()
    shown = _choose_lines(lines, words)
    text = " … ".join(_cut_window(" ".join(line[:MAX_LINE_CHARS].split()), words) for line in shown)
    marks: list[tuple[int, int]] = []
    for start, end in _find_words(fold_text(text), words, overlapping=True):
        if marks and start <= marks[-1][1]:  # overlapping pairs become one mark
            marks[-1] = (marks[-1][0], max(end, marks[-1][1]))
        else:
            marks.append((start, end))
    return text, tuple(marks)


def _choose_lines(lines: Sequence[str], words: Words) -> list[str]:
    """Choose at most two lines, in their order: the one with most different words, and the next if both are short."""
    if not words:
        return list(lines[:1]) if len(lines[0]) > 60 or len(lines) == 1 else list(lines[:2])
    having = _count_words_by_line([line[:MAX_LINE_CHARS] for line in lines], words)
    order = sorted(range(len(lines)), key=lambda at: -having[at])
    first = order[0]
    room = MAX_SNIPPET_CHARS - display_width(lines[first])
    second = next((at for at in order[1:] if having[at] and _is_within(lines[at], room)), None)
    return [lines[at] for at in sorted({first} if second is None else {first, second})]


def _count_words_by_line(lines: Sequence[str], words: Words) -> list[int]:
    """Count the different words in each line, by one search over all lines: most have none."""
    low = "\n".join(map(fold_text, lines))
    found: list[set[str]] = [set() for _ in lines]
    line = last = 0
    for start, end in _find_words(low, words):
        line += low.count("\n", last, start)
        last = start
        found[line].add(low[start:end])
    return list(map(len, found))


def display_width(text: str) -> int:
    return len(text.translate(_WIDENED) if _may_be_wide(text) else text)


def _is_within(text: str, room: int) -> bool:
    return len(text) <= room and display_width(text) <= room


def _cut_window(line: str, words: Words) -> str:
    if _is_within(line, MAX_SNIPPET_CHARS):
        return line
    room = MAX_SNIPPET_CHARS // 2 if _has_cjk(line) else MAX_SNIPPET_CHARS
    start = _find_densest_start(line, words, room)
    end = min(len(line), start + room)
    start = max(0, end - room)
    if start and " " in line[start : start + 20]:
        start = line.index(" ", start) + 1
    if end < len(line) and " " in line[end - 20 : end]:
        end = line.rindex(" ", 0, end)
    return ("…" if start else "") + line[start:end] + ("…" if end < len(line) else "")


def _find_densest_start(line: str, words: Words, room: int) -> int:
    """The start of the window of this size that holds most words, with some room before the first."""
    places = [start for start, _ in _find_words(fold_text(line), words)]
    if not places:
        return 0
    best, which, last = 0, places[0], 0
    for at, place in enumerate(places):
        while last < len(places) and places[last] < place + room * 3 // 4:
            last += 1
        if last - at > best:
            best, which = last - at, place
    return max(0, which - room // 6)
