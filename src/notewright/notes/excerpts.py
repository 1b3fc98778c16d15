"""Pieces of a text to show: what stands around a place in it, and as much of its beginning as there is room for.

Both are cut at sentence ends where there are any, and both look at a bounded part of the text only.
"""

import re
from typing import NamedTuple

MAX_LINE_CHARS = 400  # of a long line that are kept around a place
MAX_SENTENCE_CHARS = 200  # of a long line that are shown
MAX_PLACE_CHARS = 1_000  # of the place itself
_WORD_EDGE_CHARS = 20  # characters in which a blank is looked for, so that no word is cut
_MIN_FILL = 0.75  # of the room: a sentence end that leaves more of it empty is not worth it
_LINE_ENDS = dict.fromkeys(map(ord, "\n\r\t\v\f\x1c\x1d\x1e\x85\u2028\u2029"), " ")


def compile_sentence_end(stops: str) -> re.Pattern[str]:
    """After these stops, where blanks follow or the last is a wide one, and no small letter comes next."""
    # That no stop stands before the first is said after it: so it is found much quicker.
    return re.compile(
        rf"[{stops}](?<![{stops}]{{2}})[{stops}]*+[\"'”’)\]」』）]*+"
        r"(?:(?<=[。！？；”’」』）])\s*+|\s++)(?=[^\sa-z])"
    )


_SENTENCE_END = compile_sentence_end(".!?…;。！？；")


class Excerpt(NamedTuple):
    """A piece of a line, and in it the place it is about. Whether the line goes on before it and after it."""

    text: str
    start: int = 0
    end: int = 0
    before: bool = False
    after: bool = False

    @property
    def with_ellipses(self) -> str:
        return self._render("", "")

    @property
    def with_marks(self) -> str:
        """A whole line as it is; a part of one with the place marked as in a search hit: `…in «[[Tea]]» too…`."""
        return self._render("«", "»") if self.before or self.after else self.text

    def _render(self, left: str, right: str) -> str:
        place = self.text[self.start : self.end]
        around = f"{self.text[: self.start]}{left}{place}{right}{self.text[self.end :]}"
        return f"{'…' if self.before else ''}{around}{'…' if self.after else ''}"

    def cut(self, start: int, end: int) -> "Excerpt":
        """The part from `start` to `end`, without blanks around it."""
        while start < self.start and self.text[start].isspace():
            start += 1
        while end > self.end and self.text[end - 1].isspace():
            end -= 1
        if not start and end == len(self.text):
            return self
        before = self.before or bool(self.text[:start].strip())
        after = self.after or bool(self.text[end:].strip())
        return Excerpt(self.text[start:end], self.start - start, self.end - start, before, after)


NO_LINE = Excerpt("")


def excerpt_line(text: str, start: int, end: int) -> Excerpt:
    """The line in which `start` to `end` stands, on one line; of a long one so much around it."""
    last = min(end, start + MAX_PLACE_CHARS)
    side = max(MAX_LINE_CHARS - (last - start), 0)
    first = text.rfind("\n", max(start - side, 0), start) + 1
    stop = text.find("\n", last, last + side)
    left = first or max(start - side, 0)
    right = stop if stop >= 0 else min(last + side, len(text))
    piece = text[left:right]
    if stop >= 0 and first and len(piece) <= MAX_LINE_CHARS and piece.isprintable() and piece.strip() == piece:
        return Excerpt(piece, start - left, last - left, after=last < end)  # nearly every line
    whole = Excerpt(
        piece if piece.isprintable() else piece.translate(_LINE_ENDS),
        start - left,
        last - left,
        before=left > 0 and text[left - 1] != "\n",
        after=last < end or text[right : right + 1] not in ("", "\n"),
    )
    return _cut_window(whole, 0, len(piece), MAX_LINE_CHARS)


def shorten_to_sentence(line: Excerpt) -> Excerpt:
    """A short line as it is, of a long one the sentence; the place is always whole in it."""
    if len(line.text) <= MAX_SENTENCE_CHARS:
        return line
    first, last = 0, len(line.text)
    for found in _SENTENCE_END.finditer(line.text):
        end = found.end()
        if end <= line.start:
            first = end
        if end >= line.end:
            last = end
            break
    return _cut_window(line, first, last, MAX_SENTENCE_CHARS)


def _cut_window(line: Excerpt, first: int, last: int, limit: int) -> Excerpt:
    """Of what stands between `first` and `last` so many characters around the place, no word cut in two."""
    room = max(limit - (line.end - line.start), 0)
    if (line.start - first) + (last - line.end) <= room:
        return line.cut(first, last)
    left = min(line.start - first, room // 2)
    right = min(last - line.end, room - left)
    start, end = line.start - min(line.start - first, room - right), line.end + right
    if start > first and (blank := line.text.find(" ", start, min(start + _WORD_EDGE_CHARS, line.start))) >= 0:
        start = blank + 1
    if end < last and (blank := line.text.rfind(" ", max(end - _WORD_EDGE_CHARS, line.end), end)) >= 0:
        end = blank
    return line.cut(start, end)


def shorten_text(text: str, limit: int) -> str:
    """The first sentences and lines of a text that fit into so many characters; where they are long, words."""
    if len(text) <= limit:
        return text
    head = text[: limit + 1]
    ends = [found.end() for found in _SENTENCE_END.finditer(head) if found.end() <= limit]
    best = max(max(ends, default=0), head.rfind("\n"))
    if best < limit * _MIN_FILL:
        best = max(best, head.rfind(" "))
    return text[: best if best > 0 else limit].rstrip()
