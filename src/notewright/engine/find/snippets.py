"""The few words of a section that show why it was found."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

from notewright.index.base import IndexedNote

LENGTH = 200  # characters of a snippet, wide ones counted twice
LINES = 400  # of a section that are looked at
LONGEST_LINE = 20_000
# First and last code points. Not patterns: `re` takes longer to compile one of so many letters than to open the index.
_WIDE = ((0x1100, 0x115F), (0x2E80, 0xA4CF), (0xAC00, 0xD7A3), (0xF900, 0xFAFF), (0xFE30, 0xFE6F), (0xFF00, 0xFF60))
_CJK = ((0x2E80, 0x9FFF), (0xAC00, 0xD7FF), (0xF900, 0xFAFF))
_MAY_BE_WIDE = re.compile(rb"[\xe1\xe3-\xef]|\xe2[\xba-\xbf]")  # in UTF-8: what begins U+1000 to U+1FFF, U+2E80 and up

Marks = tuple[tuple[int, int], ...]
Words = tuple[tuple[str, bool], ...]  # to look for in folded text; not True: anywhere, as pairs of CJK characters are


def words_of(forms: Iterable[str]) -> Words:
    return tuple((word, not _has_cjk(word)) for word in set(forms) if word)


def _find_words(low: str, words: Words, *, overlapping: bool = False) -> Iterator[tuple[int, int]]:
    """Where the words are in a folded text, in order; of two that overlap the first and longer, or both if pairs do.

    Each is looked for by itself: a pattern of many words takes longer to make, and to try at every letter."""
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


def folded(text: str) -> str:
    """Lower case without accents, each character where it was. `translate` takes ten times as long as the other ways,
    which do for most texts: those of western Europe, and those in whose letters there are no accents."""
    if text.isascii():
        return text.lower()
    try:
        return text.encode("latin-1").translate(_folded_latin()).decode("latin-1")
    except UnicodeEncodeError:
        low = text.lower()
    # In lower case a capital I with a dot is two letters, and a sigma another one at the end of a word.
    if unicodedata.is_normalized("NFD", low) and len(low) == len(text) and "\u03a3" not in text:
        return low
    return text.translate(_FOLDED)


@cache
def _folded_latin() -> bytes:
    return "".join(map(_FOLDED.__getitem__, range(256))).encode("latin-1")


class _Folded(dict[int, str]):
    """For `translate`: each character that was ever asked for."""

    def __missing__(self, code: int) -> str:
        base = unicodedata.normalize("NFD", chr(code))[0].lower()
        self[code] = base if len(base) == 1 else chr(code)
        return self[code]


class _Widened(dict[int, str]):
    """For `translate`: two characters for one that is as wide as two."""

    def __missing__(self, code: int) -> str:
        self[code] = chr(code) * (2 if _is_among(code, _WIDE) else 1)
        return self[code]


_FOLDED = _Folded()
_WIDENED = _Widened()


def shown_section(note: IndexedNote, number: int, words: Words) -> tuple[str | None, int, str, Marks]:
    """Heading, first line and snippet of the section with this number; of the whole note where it has no words."""
    headings = [heading for heading in note.headings if heading.top]
    number = min(number, len(headings))
    end = headings[number].start if number < len(headings) else len(note.text)
    if number == 0:
        heading, line, section = None, 1, _body(note.text[:end])
    else:
        above = headings[number - 1]
        heading, line, section = above.text, above.line, note.text[above.end : end]
        section = section if section.strip() else note.text[above.start : end]
    shown, marks = snippet(section, words)
    if not shown:
        shown, marks = snippet(_body(note.text), words)
    if not shown:
        shown, marks = snippet(note.text, words)
    return heading, line, shown, marks


def _body(text: str) -> str:
    """Without the frontmatter, if anything else is there."""
    text = text.removeprefix("\ufeff")
    if text.startswith("---"):
        close = text.find("\n---", 3)
        if close >= 0:
            text = text[text.find("\n", close + 1) + 1 or len(text) :]
    return text


def snippet(section: str, words: Words) -> tuple[str, Marks]:
    """The line with most of the words, around them; more lines while there is room. Marks are where the words are."""
    lines = [line for line in section.split("\n", LINES)[:LINES] if line.strip()]
    if not lines:
        return "", ()
    shown = _best_lines(lines, words)
    text = " … ".join(_window(" ".join(line[:LONGEST_LINE].split()), words) for line in shown)
    marks: list[tuple[int, int]] = []
    for start, end in _find_words(folded(text), words, overlapping=True):
        if marks and start <= marks[-1][1]:  # overlapping pairs become one mark
            marks[-1] = (marks[-1][0], max(end, marks[-1][1]))
        else:
            marks.append((start, end))
    return text, tuple(marks)


def _best_lines(lines: Sequence[str], words: Words) -> list[str]:
    """At most two lines, in their order: the one with most different words, and the next if both are short."""
    if not words:
        return list(lines[:1]) if len(lines[0]) > 60 or len(lines) == 1 else list(lines[:2])
    having = _words_in_each([line[:LONGEST_LINE] for line in lines], words)
    order = sorted(range(len(lines)), key=lambda at: -having[at])
    first = order[0]
    room = LENGTH - width(lines[first])
    second = next((at for at in order[1:] if having[at] and _is_within(lines[at], room)), None)
    return [lines[at] for at in sorted({first} if second is None else {first, second})]


def _words_in_each(lines: Sequence[str], words: Words) -> list[int]:
    """How many different words are in each line. Looked for in all of them at once: most have none."""
    low = "\n".join(map(folded, lines))
    found: list[set[str]] = [set() for _ in lines]
    line = last = 0
    for start, end in _find_words(low, words):
        line += low.count("\n", last, start)
        last = start
        found[line].add(low[start:end])
    return list(map(len, found))


def width(text: str) -> int:
    return len(text.translate(_WIDENED) if _may_be_wide(text) else text)


def _is_within(text: str, room: int) -> bool:
    return len(text) <= room and width(text) <= room


def _window(line: str, words: Words) -> str:
    if _is_within(line, LENGTH):
        return line
    room = LENGTH // 2 if _has_cjk(line) else LENGTH
    start = _densest(line, words, room)
    end = min(len(line), start + room)
    start = max(0, end - room)
    if start and " " in line[start : start + 20]:
        start = line.index(" ", start) + 1
    if end < len(line) and " " in line[end - 20 : end]:
        end = line.rindex(" ", 0, end)
    return ("…" if start else "") + line[start:end] + ("…" if end < len(line) else "")


def _densest(line: str, words: Words, room: int) -> int:
    """Where a window of this size holds most of the words, with some room before the first."""
    places = [start for start, _ in _find_words(folded(line), words)]
    if not places:
        return 0
    best, which, last = 0, places[0], 0
    for at, place in enumerate(places):
        while last < len(places) and places[last] < place + room * 3 // 4:
            last += 1
        if last - at > best:
            best, which = last - at, place
    return max(0, which - room // 6)
