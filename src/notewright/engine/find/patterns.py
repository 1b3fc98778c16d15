"""What is looked for in texts: a pattern in one of four dialects, compiled into one value that finds it.

re2 runs in linear time and lets other threads run, so it takes the first look at everything. What re2 cannot say
(look-around, back references, word boundaries beyond ASCII) is judged by the `regex` module, with a clock, and only
where re2 has let a text through.

Whatever the pattern, it is answered with little memory and in time. What would grow too large is refused before any
engine has it; re2 searches by pieces, and neither engine is given a text that could take it too long or too much.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any, Literal

import re2  # type: ignore[import-untyped]
import regex  # type: ignore[import-untyped]
import regress

from notewright.engine.find._regex_judge import PUSH_BYTES, for_regex, pushes
from notewright.engine.find._regex_reader import JAVASCRIPT, LINEAR, PYTHON_LIKE, parse_pattern
from notewright.engine.find._regex_source import TooMuchForRe2, compile_re2, for_re2, instructions, needles_of, places
from notewright.engine.find._regex_tree import Boundary, Capture, Chain, Char, Node, inner_nodes, literal
from notewright.engine.find.deadline import Patience, Span, fits, room, search, stride
from notewright.errors import Invalid
from notewright.index.base import Needles

Dialect = Literal["re2", "python-like", "javascript", "literal"]

_PLACES = 10_000  # of a pattern written out; `regex` takes up to 600 bytes for each
_PROGRAM = 150_000  # instructions of re2's, 20 MB while they are made
_JUDGED = 96 << 20  # bytes that `regex` may need for one text
_SECONDS = 1.0  # of the processor's time that `regex` may take for one text, and no other text waits longer
_KEPT = 8  # matchers, each with at most RE2_BYTES for each of its two forms


@dataclass(frozen=True, slots=True)
class Word:
    """Plain text that bytes can be searched for without any engine: ASCII, in lower case where case is ignored."""

    data: bytes
    fold: bool

    def folded(self, data: bytes) -> bytes | None:
        """The bytes to look in, or None where letters from outside of ASCII (ſ, K) would have to be found too."""
        if not self.fold:
            return data
        if (b"s" in self.data and b"\xc5\xbf" in data) or (b"k" in self.data and b"\xe2\x84\xaa" in data):
            return None
        return data.lower()


@dataclass(frozen=True, slots=True)
class Matcher:
    """A compiled pattern. Offsets are characters where texts are given, bytes where bytes are."""

    needles: Needles  # what the index can narrow by
    relaxed: Any  # re2: finds every match, and perhaps what is none; None if not even that can be said
    exact: Any  # re2: finds the matches and nothing else, in ASCII text at least; None if that cannot be said
    judge: Any = None  # regex: finds the matches and nothing else, but may take for ever; None where it is not needed
    word: Word | None = None  # what the pattern says, if it is nothing but text
    outer: bool = False  # word boundaries stand at its two ends alone
    pushes: int = 0  # what the judge keeps for each character of a text

    @property
    def _same(self) -> bool:
        """What the first look finds in ASCII text is a match."""
        return self.exact is not None and self.relaxed is not None and self.exact.pattern == self.relaxed.pattern

    def finditer(self, text: str, patience: Patience) -> Iterator[Span]:
        """Every match that is not empty, from left to right, none over another."""
        if self._by_re2(text):
            yield from _in_characters(text, _spans(self.exact, text.encode(errors="replace"), patience))
        else:
            yield from self._judged(text, patience)

    def count(self, data: bytes, patience: Patience) -> tuple[int, int]:
        """How many matches there are that are not empty, and at which character the first begins."""
        folded = self.word.folded(data) if self.word else None
        if folded is not None and self.word is not None:
            total, first = folded.count(self.word.data), folded.find(self.word.data)
        elif self._by_re2(data):
            total, first = _counted(_spans(self.exact, data, patience))
        else:
            return _counted(self._judged(data.decode(errors="replace"), patience))
        return total, len(data[: max(first, 0)].decode(errors="replace"))

    def found_in(self, data: bytes, patience: Patience) -> bool:
        """Does the pattern match anywhere? An empty match counts."""
        if self._by_re2(data):
            return fits(self.exact, data, 0, len(data), patience) and search(self.exact, data, 0) is not None
        return self._judge_from(data.decode(errors="replace"), 0, patience) is not None

    def _by_re2(self, text: str | bytes) -> bool:
        return self.exact is not None and (self.judge is None or text.isascii())

    def _judged(self, text: str, patience: Patience) -> Iterator[Span]:
        at = 0
        while at <= len(text):
            found = self._judge_from(text, at, patience)
            if found is None:
                return
            if found[1] > found[0]:
                yield found
            at = max(found[1], found[0] + 1)

    def _judge_from(self, text: str, at: int, patience: Patience) -> Span | None:
        needed = len(text) * self.pushes * PUSH_BYTES
        if needed > _JUDGED:
            patience.left_out = True
            return None
        try:
            with room(needed, patience):
                found = self.judge.search(text, pos=at, timeout=min(patience.left(), _SECONDS), concurrent=True)
        except TimeoutError:
            patience.left()
            patience.left_out = True
            return None
        return None if found is None else found.span()

    # ---- many texts at once ----------------------------------------------------------------------------

    def lines(self, data: bytes, patience: Patience) -> Iterator[Span]:
        """Start and end of every line that matches. `data` is whole lines, each with its line feed."""
        look, same = self._first_look(data), self._same
        sure, outer = same and self.judge is None, same and self.outer
        for low, high in self._slices(data, patience):
            while low <= high and (found := look(low, high)) is not None:
                start = data.rfind(b"\n", low, found[0]) + 1 or low
                low = data.find(b"\n", found[1]) + 1
                if sure or (outer and _in_ascii(data, *found)) or self._holds(data[start : low - 1], same, patience):
                    yield start, low - 1

    def _slices(self, data: bytes, patience: Patience) -> Iterator[Span]:
        """Whole lines, so many that the clock is seen in time; a line that is too long for that stands alone."""
        low, most = 0, stride(self.relaxed)
        while low < len(data):
            patience.left()
            high = data.find(b"\n", min(low + most, len(data) - 1))
            if high - low > 2 * most:
                high = data.rfind(b"\n", low, low + most)
                high = high if high >= low else data.find(b"\n", low)
            if self._fits_first_look(data, low, high, patience):
                yield low, high
            low = high + 1

    def _holds(self, line: bytes, same: bool, patience: Patience) -> bool:
        return (same and self._by_re2(line)) or self.found_in(line, patience)

    def candidates(self, data: bytes, starts: list[int], patience: Patience) -> Iterator[int]:
        """Which of the texts joined in `data` (at `starts`) may hold a match: all that do are among them."""
        if not self._fits_first_look(data, 0, len(data), patience):
            yield from self._candidates_alone(data, starts, patience)
            return
        look = self._first_look(data)
        at = 0
        while at < len(starts) and (found := look(starts[at], len(data))) is not None:
            patience.left()
            at = bisect_right(starts, found[0], at) - 1
            yield at
            at += 1

    def _candidates_alone(self, data: bytes, starts: list[int], patience: Patience) -> Iterator[int]:
        patience.left_out = False
        for at, (low, high) in enumerate(pairwise([*starts, len(data)])):
            patience.left()
            if self._fits_first_look(data, low, high, patience) and search(self.relaxed, data, low, high) is not None:
                yield at

    def _first_look(self, data: bytes) -> Callable[[int, int], Span | None]:
        """The place of the next match that may be one, between two places."""
        folded = self.word.folded(data) if self.word else None
        if folded is not None and self.word is not None:
            return partial(_look_for, folded, self.word.data)
        if self.relaxed is None:
            return lambda low, high: (low, low)
        return partial(search, self.relaxed, data)

    def _fits_first_look(self, data: bytes, low: int, high: int, patience: Patience) -> bool:
        return self.word is not None or self.relaxed is None or fits(self.relaxed, data, low, high, patience)


def compile_pattern(
    pattern: str, dialect: Dialect = "re2", *, ignore_case: bool = True, whole_word: bool = False, lines: bool = True
) -> Matcher:
    """The matcher of a pattern, or Invalid. `lines`: it never matches across the end of a line, and `^`, `$` mean
    lines; else they mean the whole text.

    `re2` and `python-like` know Unicode in `\\\\w`, `\\\\d`, `\\\\s`, `\\\\b`; only the latter has look-around and back
    references. `javascript` is what `new RegExp(pattern)` takes, `literal` is no pattern at all.
    """
    return _compiled(pattern, dialect, ignore_case, whole_word, lines)


@lru_cache(maxsize=_KEPT)
def _compiled(pattern: str, dialect: Dialect, ignore_case: bool, whole_word: bool, lines: bool) -> Matcher:
    node = _tree(pattern, dialect, ignore_case, lines)
    if places(node) > _PLACES or (dialect == "re2" and _re2_form(node, lines, relaxed=False) is None):
        raise Invalid("the pattern is too large: make its repetitions {n,m} and classes smaller", what="pattern")
    if whole_word:
        node = Chain((Boundary("left-free"), Capture(node, captures=False), Boundary("right-free")))
    exact = _re2_form(node, lines, relaxed=False)
    relaxed = _re2_form(node, lines, relaxed=True, known=exact)
    judge = None if exact is not None and not _beyond_ascii(node) else _judge(node)
    return Matcher(needles_of(node), relaxed, exact, judge, _word(node), _outer(node), pushes(node))


def _outer(node: Node) -> bool:
    """Nothing but its first and its last place asks for a word boundary."""
    nodes = node.nodes if isinstance(node, Chain) else (node,)
    inner = [one for at, one in enumerate(nodes) if not (isinstance(one, Boundary) and at in (0, len(nodes) - 1))]
    return not any(map(_beyond_ascii, inner))


def _word(node: Node) -> Word | None:
    """The text a pattern is, if it is nothing else."""
    chars = node.nodes if isinstance(node, Chain) else (node,)
    text = "".join(char.char for char in chars if isinstance(char, Char))
    folds = {char.fold for char in chars if isinstance(char, Char)}
    if len(text) != len(chars) or len(folds) != 1 or not text.isascii() or "\n" in text:
        return None
    fold = folds.pop() and text.lower() != text.upper()
    return Word((text.lower() if fold else text).encode(), fold)


def _tree(pattern: str, dialect: Dialect, ignore_case: bool, lines: bool) -> Node:
    if dialect == "literal":
        return literal(pattern, ignore_case=ignore_case)
    if dialect == "javascript":
        _judge_javascript(pattern)
    syntax = {"re2": LINEAR, "python-like": PYTHON_LIKE, "javascript": JAVASCRIPT}[dialect]
    return parse_pattern(pattern, syntax, ignore_case=ignore_case, multiline=lines)


def _judge_javascript(pattern: str) -> None:
    """Invalid unless a JavaScript engine takes it: with Unicode rules, or with the old and laxer ones."""
    for flags in ("u", ""):
        try:
            regress.Regex(pattern[:2000], flags)
            return
        except regress.RegressError as error:
            problem = str(error)
    raise Invalid(f"not a JavaScript regular expression: {problem}", what="pattern")


def _re2_form(node: Node, lines: bool, *, relaxed: bool, known: Any = None) -> Any:
    """The pattern for re2, or None where re2 cannot say it or it would be too large. `known`: a form there is."""
    if instructions(node) > _PROGRAM:
        return None
    try:
        source = for_re2(node, relaxed=relaxed)
        return known if known is not None and known.pattern == source else compile_re2(source, lines=lines)
    except (TooMuchForRe2, re2.error):
        return None


def _judge(node: Node) -> Any:
    try:
        return regex.compile(for_regex(node), regex.VERSION0, cache_pattern=False)
    except regex.error as error:
        raise Invalid(f"not a regular expression: {error.msg}", what="pattern") from None


def _beyond_ascii(node: Node) -> bool:
    """Does it ask for a word boundary, which re2 sees in ASCII alone?"""
    if isinstance(node, Boundary):
        return node.kind in ("word", "not-word", "left-free", "right-free")
    return any(map(_beyond_ascii, inner_nodes(node)))


def _look_for(folded: bytes, word: bytes, low: int, high: int) -> Span | None:
    at = folded.find(word, low, high)
    return (at, at + len(word)) if at >= 0 else None


def _in_ascii(data: bytes, start: int, end: int) -> bool:
    """The characters on both sides of both ends of a match are ASCII: there re2 sees the word boundaries right."""
    return data[max(start - 1, 0) : start + 1].isascii() and data[max(end - 1, 0) : end + 1].isascii()


def _spans(pattern: Any, data: bytes, patience: Patience) -> Iterator[Span]:
    at = 0 if fits(pattern, data, 0, len(data), patience) else len(data) + 1
    while at <= len(data):
        patience.left()
        found = search(pattern, data, at)
        if found is None:
            return
        start, end = found
        if end > start:
            yield found
            at = end
        else:
            at = end + 1
            while at < len(data) and data[at] & 0xC0 == 0x80:  # never within a character
                at += 1


def _counted(spans: Iterator[Span]) -> tuple[int, int]:
    """How many there are and where the first begins; there may be millions."""
    first = next(spans, None)
    return (0, 0) if first is None else (1 + sum(1 for _ in spans), first[0])


def _in_characters(text: str, spans: Iterator[Span]) -> Iterator[Span]:
    if text.isascii():
        yield from spans
        return
    data, byte, char = text.encode(errors="replace"), 0, 0
    for start, end in spans:
        begin = char + len(data[byte:start].decode())
        byte, char = end, begin + len(data[start:end].decode())
        yield begin, char
