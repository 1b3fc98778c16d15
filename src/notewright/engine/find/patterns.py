"""Compiles a pattern of one of four dialects into a `Matcher`, which finds it in texts.

re2 runs in linear time and releases the interpreter lock, so it searches everything first. What re2 cannot express
(look-around, back references, word boundaries beyond ASCII) is searched for by the `regex` module, the backtracker,
with a timeout, and only in texts where the relaxed re2 pattern matches.

Any pattern is answered within a bound of memory and time. Patterns that would grow too large are refused before they
are compiled; re2 searches by slices, and neither engine is given a text that could take it too long or too much
memory: a call of re2 cannot be stopped, and a large program is slow once re2 must do without its table of states.
"""

import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any

import re2  # type: ignore[import-untyped]
import regex  # type: ignore[import-untyped]
import regress

from notewright.engine.find._regex_reader import (
    Boundary,
    Chain,
    Dialect,
    Named,
    Node,
    Set,
    parse_pattern,
    walk,
    weigh_expanded,
)
from notewright.engine.find._regex_writers import (
    RE2_BYTES,
    TooMuchForRe2,
    compile_re2,
    count_places,
    count_pushes,
    find_required,
    letter_of,
    to_re2_source,
    to_regex_source,
    write_ascii_set,
    write_narrow_set,
)
from notewright.errors import Invalid
from notewright.index.base import Needles

_MAX_PLACES = 10_000  # of a pattern written out; `regex` takes up to 600 bytes for each
_MAX_INSTRUCTIONS = 150_000  # instructions of re2's, which stops by itself at twice as many
_MAX_BACKTRACKER_BYTES = 96 << 20  # bytes that `regex` may need for one text
_BACKTRACKER_SECONDS = 1.0  # of processor time for one text of `regex`, for which no other text waits longer
_PUSH_BYTES = 64  # that `regex` keeps for one place to go back to; 50 to 60 were measured
_MATCHERS_KEPT = 8  # each with at most RE2_BYTES for each of its two forms
_ANYWHERE, _AT_START = re2._Anchor.UNANCHORED, re2._Anchor.ANCHOR_START
_SLICE_BYTES = 4_000_000  # bytes searched between two looks at the clock
_SLICE_STEPS = 50_000_000  # in a slice: one for each byte and instruction, up to ten nanoseconds
_SAMPLES = 16  # of a long text
_SHARED_BYTES = 2 << 20  # bytes that one may need without waiting for others
_CLASS_INSTRUCTIONS = 2_000  # at most, for one class of Unicode characters; 1,350 were seen
_RANGE_INSTRUCTIONS = 100  # at most, for one range; 97 were seen, of one that is negated where case is ignored
_QUICK_TRIES = 8  # before the exact pattern searches by itself
_QUICK_BYTES = 256_000  # of texts that are searched by the quick form
_MAX_QUICK_MISSES = 32  # lines found by the quick form that do not match, before the exact pattern takes over
_MAX_TRIED_BYTES = 4_096  # of a text in which the exact pattern is tried where the quick one matches
_MAX_NARROW_LETTERS = 16  # beyond ASCII, for which it is looked up in which classes they are
_MAX_NARROW_FORMS = 2  # of one pattern, each compiled in a fortieth of the time that the pattern itself takes

_ASCII = bytes(range(128))

_large_memory_lock = threading.Lock()  # held by the one search that needs much memory

Span = tuple[int, int]


class OutOfTime(Exception):
    """The deadline passed or the caller cancelled; what was found until then stays valid."""


@dataclass(slots=True)
class Deadline:
    """When a search must end, and whether its caller has cancelled it."""

    until: float  # on the monotonic clock
    cancelled: Callable[[], bool] | None = None
    left_out: bool = False  # a text was skipped: too long for a pattern this slow

    @classmethod
    def after(cls, seconds: float, cancelled: Callable[[], bool] | None = None) -> "Deadline":
        return cls(time.monotonic() + seconds, cancelled)

    def check_seconds_left(self) -> float:
        """The seconds that remain; OutOfTime if none do, or the caller cancelled."""
        rest = self.until - time.monotonic()
        if rest <= 0 or (self.cancelled is not None and self.cancelled()):
            raise OutOfTime
        return rest


@dataclass(frozen=True, slots=True)
class Matcher:
    """A compiled pattern. Offsets count characters in str, bytes in bytes."""

    needles: Needles  # what the index can narrow by
    relaxed: Any  # re2: finds every match, perhaps more; None if re2 cannot express even that
    exact: Any  # re2: finds exactly the matches, in ASCII text at least; None if re2 cannot express it
    backtracker: Any = None  # regex: finds exactly the matches, but may take for ever; None where re2 is enough
    pushes: int = 0  # places to go back to that the backtracker may keep for each character of a text
    text: bytes = b""  # the pattern, if it is nothing but ASCII text; in lower case where case is ignored
    fold: bool = False
    # re2: like both, but every class holds all characters beyond ASCII: exact in ASCII text, relaxed in any other
    quick: Any = None

    @property
    def _sure_in_ascii(self) -> bool:
        """Whether everything the first search finds in ASCII text is a match."""
        return self.exact is not None and self.relaxed is not None and self.exact.pattern == self.relaxed.pattern

    @property
    def is_sure(self) -> bool:
        """Whether everything the first search finds is a match, so that nothing has to check it again."""
        return self._sure_in_ascii and self.backtracker is None

    def finditer(self, text: str, deadline: Deadline) -> Iterator[Span]:
        """Every match that is not empty, from left to right, without overlaps."""
        if self._is_exact_by_re2(text):
            yield from _to_character_spans(text, self._find_exact_spans(text.encode(errors="replace"), deadline))
        else:
            yield from self._find_backtracker_spans(text, deadline)

    def count(self, data: bytes, deadline: Deadline) -> tuple[int, int]:
        """Count the matches that are not empty, and the character at which the first begins."""
        if not self._is_exact_by_re2(data):
            return _count_spans(self._find_backtracker_spans(data.decode(errors="replace"), deadline))
        if (folded := self._fold_for_text_search(data)) is not None:
            total, first = folded.count(self.text), max(folded.find(self.text), 0)
        else:
            total, first = _count_spans(self._find_exact_spans(data, deadline))
        return total, len(data[:first].decode(errors="replace"))

    def is_found_in(self, data: bytes, deadline: Deadline) -> bool:
        """Whether the pattern matches anywhere; an empty match counts."""
        if self._is_exact_by_re2(data):
            pattern, search = self._choose_exact_search(data)
            return _would_end_in_time(pattern, data, 0, len(data), deadline) and search(0) is not None
        return self._search_by_backtracker(data.decode(errors="replace"), 0, deadline) is not None

    def _find_exact_spans(self, data: bytes, deadline: Deadline) -> Iterator[Span]:
        pattern, search = self._choose_exact_search(data)
        at = 0 if _would_end_in_time(pattern, data, 0, len(data), deadline) else len(data) + 1
        while at <= len(data):
            deadline.check_seconds_left()
            found = search(at)
            if found is None:
                return
            start, end = found
            if end > start:
                yield found
                at = end
            else:
                at = end + 1
                while at < len(data) and data[at] & 0xC0 == 0x80:  # never inside a character
                    at += 1

    def _choose_exact_search(self, data: bytes) -> tuple[Any, Callable[[int], Span | None]]:
        """The pattern that is exact in this text, and a function that finds its next match from some place on."""
        if self.quick is None:
            return self.exact, partial(_search, self.exact, data)
        if data.isascii():
            return self.quick, partial(_search, self.quick, data)
        if len(data) > _MAX_TRIED_BYTES:
            return self.exact, partial(_search, self.exact, data)
        if (narrow := self.exact.narrow_to(data)) is not None:
            return narrow, partial(_search, narrow, data)
        return self.exact, partial(_search_quick_then_exact, self.quick, self.exact, data)

    def _is_exact_by_re2(self, text: str | bytes) -> bool:
        return self.exact is not None and (self.backtracker is None or text.isascii())

    def _find_backtracker_spans(self, text: str, deadline: Deadline) -> Iterator[Span]:
        at = 0
        while at <= len(text):
            found = self._search_by_backtracker(text, at, deadline)
            if found is None:
                return
            if found[1] > found[0]:
                yield found
            at = max(found[1], found[0] + 1)

    def _search_by_backtracker(self, text: str, at: int, deadline: Deadline) -> Span | None:
        needed = len(text) * self.pushes * _PUSH_BYTES
        if needed > _MAX_BACKTRACKER_BYTES:
            deadline.left_out = True
            return None
        try:
            with _wait_for_memory(needed, deadline):
                found = self.backtracker.search(
                    text, pos=at, timeout=min(deadline.check_seconds_left(), _BACKTRACKER_SECONDS), concurrent=True
                )
        except TimeoutError:
            deadline.check_seconds_left()
            deadline.left_out = True
            return None
        return None if found is None else found.span()

    # ---- many texts at once ----------------------------------------------------------------------------

    def find_lines(self, data: bytes, deadline: Deadline) -> Iterator[Span]:
        """Start and end of every line that matches. `data` is whole lines, each with its line feed."""
        begin = 0
        if self.quick is not None and len(data) <= _QUICK_BYTES:
            begin = yield from self._find_lines_quickly(data, deadline)
        look, sure_in_ascii, sure = self._make_first_look(self.relaxed, data), self._sure_in_ascii, self.is_sure
        for low, high in _cut_into_slices(self.relaxed, data, deadline, begin):
            while low <= high and (found := look(low, high)) is not None:
                start = data.rfind(b"\n", low, found[0]) + 1 or low
                low = data.find(b"\n", found[1]) + 1
                line = b"" if sure else data[start : low - 1]
                if sure or (sure_in_ascii and self._is_exact_by_re2(line)) or self.is_found_in(line, deadline):
                    yield start, low - 1

    def _find_lines_quickly(self, data: bytes, deadline: Deadline) -> Generator[Span, None, int]:
        """Find lines by the quick form; returns where it gave up: beyond ASCII it finds nearly every line."""
        misses = 0
        for low, high in _cut_into_slices(self.quick, data, deadline):
            while low <= high and (found := _search(self.quick, data, low, high)) is not None:
                start = data.rfind(b"\n", low, found[0]) + 1 or low
                low = data.find(b"\n", found[1]) + 1
                line = data[start : low - 1]
                if line.isascii() or self.is_found_in(line, deadline):
                    yield start, low - 1
                else:
                    misses += 1
                    if misses > _MAX_QUICK_MISSES:
                        return low
        return len(data)

    def find_candidates(self, data: bytes, starts: list[int], deadline: Deadline) -> Iterator[int]:
        """The numbers of the texts joined in `data` (at `starts`) that may match; none that matches is left out."""
        if not _would_end_in_time(self.relaxed, data, 0, len(data), deadline):
            yield from self._find_candidates_one_by_one(data, starts, deadline)
            return
        look, at = self._make_first_look(self.relaxed, data), 0
        while at < len(starts) and (found := look(starts[at], len(data))) is not None:
            deadline.check_seconds_left()
            at = bisect_right(starts, found[0], at) - 1
            yield at
            at += 1

    def _find_candidates_one_by_one(self, data: bytes, starts: list[int], deadline: Deadline) -> Iterator[int]:
        deadline.left_out = False
        for at, (low, high) in enumerate(pairwise([*starts, len(data)])):
            deadline.check_seconds_left()
            if (
                _would_end_in_time(self.relaxed, data, low, high, deadline)
                and _search(self.relaxed, data, low, high) is not None
            ):
                yield at

    def _make_first_look(self, pattern: Any, data: bytes) -> Callable[[int, int], Span | None]:
        """A function that finds the next possible match between two places."""
        if (folded := self._fold_for_text_search(data)) is not None:
            return partial(_find_bytes, folded, self.text)
        return (lambda low, _: (low, low)) if pattern is None else partial(_search, pattern, data)

    def _fold_for_text_search(self, data: bytes) -> bytes | None:
        """The bytes in which to look for `text` itself; None if there is none, or where ſ and K must match s and k."""
        if not self.text or b"\xc5\xbf" in data or b"\xe2\x84\xaa" in data:
            return None
        return data.lower() if self.fold else data


class _DeferredRe2:
    """A pattern that re2 certainly accepts, compiled on first use: with classes of Unicode characters that takes
    1.2 ms, and as long again when it first finds something. For one or two short texts there is a narrow form instead,
    whose classes hold ASCII and the characters of these texts alone."""

    def __init__(self, node: Node, lines: bool) -> None:
        self.pattern, self._lines = to_re2_source(node, relaxed=False), lines
        self._node = node
        self._narrow: tuple[str, Any] | None = ("", None)  # the characters beyond ASCII that it knows, and the form
        self._forms_left = _MAX_NARROW_FORMS

    def narrow_to(self, data: bytes) -> Any:
        """A form that is exact in this text; None once texts held too many characters that it does not know."""
        if self._narrow is None:
            return None
        known, form = self._narrow
        letters = set(data.translate(None, _ASCII).decode(errors="replace"))
        if letters.issubset(known):
            return form
        known = "".join(sorted(letters.union(known)))
        self._forms_left -= 1
        if self._forms_left < 0 or len(known) > _MAX_NARROW_LETTERS:
            self._narrow = None
            return None
        source = to_re2_source(self._node, relaxed=False, write_set=partial(write_narrow_set, known))
        form = compile_re2(source, lines=self._lines)
        self._narrow = known, form
        return form

    def __getattr__(self, name: str) -> Any:
        if name not in ("_regexp", "programsize"):
            raise AttributeError(name)
        compiled = compile_re2(self.pattern, lines=self._lines)
        self._regexp, self.programsize = compiled._regexp, compiled.programsize
        return self.__dict__[name]


@lru_cache(maxsize=_MATCHERS_KEPT)
def compile_pattern(
    pattern: str, dialect: Dialect = "re2", *, ignore_case: bool = True, whole_word: bool = False, lines: bool = True
) -> Matcher:
    """Compile a pattern, or raise Invalid. `lines`: matches never cross the end of a line, and `^`, `$` are the ends of
    lines; else of the whole text.

    `re2` and `python-like` know Unicode in `\\\\w`, `\\\\d`, `\\\\s`, `\\\\b`; only the latter has look-around and back
    references. `javascript` is what `new RegExp(pattern)` takes, `literal` is no pattern at all.
    """
    if dialect == "javascript":
        _check_javascript(pattern)
    node = parse_pattern(pattern, dialect, ignore_case=ignore_case, multiline=lines)
    fits = count_places(node) <= _MAX_PLACES
    quick = _compile_quick_form(node) if fits and lines and not whole_word else None
    if quick is not None:
        deferred = _DeferredRe2(node, lines)
        return Matcher(Needles(find_required(node)), deferred, deferred, quick=quick)
    exact = _compile_re2_form(node, lines, relaxed=False) if fits and (dialect == "re2" or not whole_word) else None
    if not fits or (dialect == "re2" and exact is None):
        raise Invalid("the pattern is too large: make its repetitions {n,m} and classes smaller", what="pattern")
    if whole_word:
        inner = node.nodes if isinstance(node, Chain) else (node,)
        node = Chain((Boundary("left-free"), *inner, Boundary("right-free")))
        exact = _compile_re2_form(node, lines, relaxed=False)
    relaxed = _compile_re2_form(node, lines, relaxed=True, known=exact)
    backtracker = None if exact is not None and not _has_unicode_boundary(node) else _compile_backtracker(node)
    needles = Needles(find_required(node))
    return Matcher(needles, relaxed, exact, backtracker, count_pushes(node), *_find_plain_text(node))


def _find_plain_text(node: Node) -> tuple[bytes, bool]:
    """The ASCII text a pattern consists of, or b"", and whether case is ignored; then in lower case."""
    nodes = node.nodes if isinstance(node, Chain) else (node,)
    text = "".join(letter_of(inner) or "\n" for inner in nodes)
    folds = {inner.fold for inner in nodes if isinstance(inner, Set)}
    if not text.isascii() or "\n" in text or len(folds) != 1:
        return b"", False
    return (text.lower() if True in folds else text).encode(), True in folds


def _check_javascript(pattern: str) -> None:
    """Raise Invalid unless a JavaScript engine accepts it: with Unicode rules, or with the old and laxer ones."""
    for flags in ("u", ""):
        try:
            regress.Regex(pattern[:2000], flags)
            return
        except regress.RegressError as error:
            problem = str(error)
    raise Invalid(f"not a JavaScript regular expression: {problem}", what="pattern")


def _compile_re2_form(node: Node, lines: bool, *, relaxed: bool, known: Any = None) -> Any:
    """Compile for re2, or None if re2 cannot express it or it is too large. `known`: a form to reuse if equal."""
    try:
        source = to_re2_source(node, relaxed=relaxed)
        compiled = known if known is not None and known.pattern == source else compile_re2(source, lines=lines)
    except (TooMuchForRe2, re2.error):
        return None
    return compiled if compiled.programsize <= _MAX_INSTRUCTIONS else None


def _compile_quick_form(node: Node) -> Any:
    """Compile `Matcher.quick`, or None unless classes make the pattern slow to compile and re2 certainly accepts it."""
    if any(isinstance(inner, Boundary) and inner.kind in ("text-start", "text-end") for inner in walk(node)):
        return None  # many texts are joined for the first search, where these need a relaxed form of their own
    if not any(isinstance(inner, Set) and any(isinstance(item, Named) for item in inner.items) for inner in walk(node)):
        return None

    def weigh(inner: Node) -> int:
        items = inner.items if isinstance(inner, Set) else ((0, 0),)
        return sum(_CLASS_INSTRUCTIONS if isinstance(item, Named) else _RANGE_INSTRUCTIONS for item in items)

    if _has_unicode_boundary(node) or weigh_expanded(node, weigh) > _MAX_INSTRUCTIONS:
        return None
    try:
        return compile_re2(to_re2_source(node, relaxed=False, write_set=write_ascii_set), lines=True)
    except (TooMuchForRe2, re2.error):
        return None


def _compile_backtracker(node: Node) -> Any:
    try:
        return regex.compile(to_regex_source(node), regex.VERSION0, cache_pattern=False)
    except regex.error as error:
        raise Invalid(f"not a regular expression: {error.msg}", what="pattern") from None


def _has_unicode_boundary(node: Node) -> bool:
    """Whether it holds a word boundary, which re2 knows only in ASCII."""
    kinds = ("word", "not-word", "left-free", "right-free")
    return any(isinstance(inner, Boundary) and inner.kind in kinds for inner in walk(node))


def _find_bytes(folded: bytes, word: bytes, low: int, high: int) -> Span | None:
    at = folded.find(word, low, high)
    return (at, at + len(word)) if at >= 0 else None


def _count_spans(spans: Iterator[Span]) -> tuple[int, int]:
    """Count spans without keeping them, there may be millions; and where the first begins."""
    first = next(spans, None)
    return (0, 0) if first is None else (1 + sum(1 for _ in spans), first[0])


def _to_character_spans(text: str, spans: Iterator[Span]) -> Iterator[Span]:
    if text.isascii():
        yield from spans
        return
    data, byte, char = text.encode(errors="replace"), 0, 0
    for start, end in spans:
        begin = char + len(data[byte:start].decode())
        byte, char = end, begin + len(data[start:end].decode())
        yield begin, char


# ---- time and memory ----------------------------------------------------------------------------------


@contextmanager
def _wait_for_memory(needed: int, deadline: Deadline) -> Iterator[None]:
    """Hold a lock while so many bytes are needed, if they are many: one such search runs at a time."""
    if needed <= _SHARED_BYTES:
        yield
        return
    if not _large_memory_lock.acquire(timeout=deadline.check_seconds_left()):
        raise OutOfTime
    try:
        yield
    finally:
        _large_memory_lock.release()


def _find_slice_bytes(pattern: Any) -> int:
    """Bytes that may be searched between two checks of the clock, even at one step per instruction and byte."""
    return _SLICE_BYTES if pattern is None else max(1_000, min(_SLICE_BYTES, _SLICE_STEPS // pattern.programsize))


def _cut_into_slices(pattern: Any, data: bytes, deadline: Deadline, low: int = 0) -> Iterator[Span]:
    """Cut into whole lines from `low` on, few enough to check the clock in time; a longer line is a slice alone."""
    if low >= len(data):
        return  # before asking the pattern for its size, which may compile it
    most = _find_slice_bytes(pattern)
    while low < len(data):
        deadline.check_seconds_left()
        high = data.find(b"\n", min(low + most, len(data) - 1))
        if high - low > 2 * most:
            high = data.rfind(b"\n", low, low + most)
            high = high if high >= low else data.find(b"\n", low)
        if _would_end_in_time(pattern, data, low, high, deadline):
            yield low, high
        low = high + 1


def _would_end_in_time(pattern: Any, data: bytes, low: int, high: int, deadline: Deadline) -> bool:
    """Whether a search would end in time even at its slowest; sets `left_out` if not. Estimated by running samples with
    every instruction at work, which is what re2 falls back on when a pattern has too many states."""
    length = high - low
    if pattern is None or length <= 4 * _find_slice_bytes(pattern):
        return True
    size = pattern.programsize
    never, sample, worst = _compile_slowest(pattern.pattern, size), max(256, min(4096, _SLICE_STEPS // 10 // size)), 0.0
    for at in range(low, high, max(length // _SAMPLES, sample)):
        began = time.thread_time()  # a busy machine must not look like a slow pattern
        _search(never, data, at, min(at + sample, high))
        worst = max(worst, (time.thread_time() - began) / sample)
        if worst * length > deadline.check_seconds_left():
            deadline.left_out = True
            return False
    return True


@lru_cache(maxsize=4)
def _compile_slowest(source: str, size: int) -> Any:
    """A form that never matches but reads everything, with memory for its program and hardly any for states."""
    memory = 16 * (size + 100)
    while True:
        try:
            return compile_re2(rf"(?:{source})\x{{10ffff}}\x{{10fffe}}\x{{10ffff}}", memory=memory)
        except re2.error:
            if memory > 2 * RE2_BYTES:
                raise
            memory += memory // 2


def _search(pattern: Any, data: bytes, low: int, high: int | None = None) -> Span | None:
    # the public _search() makes three objects for each match, which is most of the time where many lines match
    span: Span = pattern._regexp.Match(_ANYWHERE, data, low, len(data) if high is None else high)[0]
    return span if span[0] >= 0 else None


def _search_quick_then_exact(quick: Any, exact: Any, data: bytes, low: int) -> Span | None:
    """Find the next exact match by trying it where a quick one begins: anchored there, re2 need not compile the program
    that reads backwards, which takes as long as the one that reads forwards."""
    for _ in range(_QUICK_TRIES):
        found = _search(quick, data, low)
        if found is None:
            return None
        span: Span = exact._regexp.Match(_AT_START, data, found[0], len(data))[0]
        if span[0] >= 0:
            return span
        low = found[0] + 1
        while low < len(data) and data[low] & 0xC0 == 0x80:
            low += 1
    return _search(exact, data, low) if low <= len(data) else None
