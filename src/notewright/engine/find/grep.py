"""Patterns and plain text in everything: lines of notes and files, places in notes, notes that hold some words.

Texts come from the index in batches and are searched joined, as bytes: one call of re2 passes over thousands of notes
that do not match, and while it does, which needs no Python, the next batch is read. Only what matches is cut into
lines.
"""

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from heapq import merge
from itertools import accumulate, chain, islice
from typing import NamedTuple

from notewright.engine.find._regex_reader import Dialect
from notewright.engine.find.patterns import Deadline, Matcher, OutOfTime, Span, compile_pattern
from notewright.engine.indexing.ready import snapshot
from notewright.engine.read import folder_path
from notewright.engine.workspace import Workspace
from notewright.errors import Problem
from notewright.index.base import Body, Needles, PathGlob, Selection, Visibility
from notewright.notes.edits.edit import read_frontmatter
from notewright.notes.glob import glob_prefix
from notewright.notes.path import NotePath

BATCH_BYTES = 4_000_000
ALONE_BYTES = 2_500_000  # a shorter batch is the last, or searched as soon as a thread would have begun
BIGGEST_FILE = 10_485_760  # of files that are no notes; larger ones are not looked into
BINARY_BYTES = 8_192  # a NUL among the first of these: not text
MARK = "\ufeff".encode()  # of byte order, before the first line
LINE_CHARACTERS = 10_000  # shown of one line
SPANS = LINE_CHARACTERS  # told of one line: no more than it can hold
PATTERN_SECONDS = 5.0  # for one pattern, whatever it asks


@dataclass(frozen=True, slots=True)
class Grep:
    """Which lines are asked for. `path` is a file, a folder or a glob; `glob` is relative to `folder`."""

    pattern: str
    dialect: Dialect = "re2"
    ignore_case: bool = True
    whole_word: bool = False
    folder: str = ""
    glob: str | None = None
    path: str | None = None
    files: bool = False  # every text file, not only notes
    context: int = 0
    limit: int = 50
    spans: int = SPANS  # of each line; who shows lines alone needs none
    until: float | None = None  # on the monotonic clock, for a question in several parts
    cancelled: Callable[[], bool] | None = None
    told: Callable[[int], None] | None = None  # now and then, of so many more notes that were looked into


class LineMatch(NamedTuple):
    path: NotePath
    line: int  # from 1
    text: str  # without its ending, at most LINE_CHARACTERS
    spans: tuple[Span, ...]  # of the first SPANS matches, in characters of `text`
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


class Matches(NamedTuple):
    """By path, then line. `late`: time ran out, and the totals are what was counted until then."""

    items: tuple[LineMatch, ...]
    total_lines: int
    total_notes: int
    cut: bool
    late: bool = False


@dataclass(slots=True)
class _Tally:
    asked: Grep
    limit: int
    items: list[LineMatch] = field(default_factory=list)
    lines: int = 0
    notes: int = 0


def grep(ws: Workspace, asked: Grep) -> Matches:
    """Lines that match, the first `limit` of them, and how many there are in all. Invalid, or NotFound for a folder."""
    matcher = compile_pattern(asked.pattern, asked.dialect, ignore_case=asked.ignore_case, whole_word=asked.whole_word)
    named = folder_path(ws, asked.folder)
    globs = [PathGlob(asked.glob, below=named, basename=True)] if asked.glob else []
    globs += [PathGlob(asked.path, or_path=True)] if asked.path else []
    accepted = ws.access.visibility._replace(under=f"{named}/" if named else "", globs=tuple(globs))
    folder = named or glob_prefix(asked.path or "")
    return snapshot(ws, lambda: _matches(ws, asked, matcher, folder, accepted))


def _matches(ws: Workspace, asked: Grep, matcher: Matcher, folder: str, accepted: Visibility) -> Matches:
    deadline = _make_deadline(ws, asked)
    tally, late = _Tally(asked, asked.limit), False
    try:
        batches: Iterable[list[Body]] = ws.index.bodies(matcher.needles, folder=folder, visible=accepted)
        if asked.files:
            batches = _in_batches(
                merge(chain.from_iterable(batches), _files(ws, folder, accepted, deadline), key=lambda b: b.path)
            )
        _grep_batches(matcher, batches, tally, deadline)
    except OutOfTime:
        late = True
    late = late or deadline.left_out
    return Matches(tuple(tally.items), tally.lines, tally.notes, late or tally.lines > len(tally.items), late)


# ---- texts --------------------------------------------------------------------------------------------


def _in_batches(bodies: Iterable[Body]) -> Iterator[list[Body]]:
    batch: list[Body] = []
    size = 0
    for body in bodies:
        batch.append(body)
        size += len(body.data)
        if size > BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _files(ws: Workspace, folder: str, accepted: Visibility, deadline: Deadline) -> Iterator[Body]:
    """Text files that are no notes: the index says which there are, the store what they say."""
    for filed in ws.index.select(Selection(folder=folder, notes_only=False, visible=accepted))[0]:
        deadline.left()
        if filed.path.is_note:
            continue
        try:
            entry = ws.store.stat(filed.path)
            if entry.kind != "file" or entry.size > BIGGEST_FILE:
                continue
            data = ws.store.read(filed.path).data
        except Problem:
            continue  # gone or unreadable since it was filed
        if b"\0" not in data[:BINARY_BYTES]:
            yield Body(entry.path, data, entry.modified_ns, entry.size)


def _join_texts(texts: Iterable[bytes]) -> tuple[bytes, list[int]]:
    """Whole lines of all texts, each with one line feed, and where each text begins."""
    chunks = [text if text.endswith(b"\n") and b"\r" not in text else _plain(text) for text in texts]
    return b"".join(chunks), list(accumulate(map(len, chunks[:-1]), initial=0))


def _plain(text: bytes) -> bytes:
    text = text.replace(b"\r\n", b"\n")
    return text if not text or text.endswith(b"\n") else text + b"\n"


# ---- lines --------------------------------------------------------------------------------------------


class _BatchSearch:
    """One batch looked through, by a thread of its own where that takes a while."""

    def __init__(self, matcher: Matcher, batch: list[Body], tally: _Tally, deadline: Deadline) -> None:
        self._batch, self._tally = batch, _Tally(tally.asked, tally.limit - len(tally.items))
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(matcher, deadline), name="grep")
        if sum(len(body.data) for body in batch) > ALONE_BYTES:
            self._thread.start()
        else:
            self._run(matcher, deadline)

    def _run(self, matcher: Matcher, deadline: Deadline) -> None:
        try:
            _grep_batch(matcher, self._batch, self._tally, deadline)
        except BaseException as error:
            self._error = error

    def finish(self, tally: _Tally) -> None:
        """Wait until it is done and add what was found; OutOfTime after that, if there was no time for all."""
        if self._thread.ident is not None:
            self._thread.join()
        tally.items += self._tally.items[: tally.limit - len(tally.items)]
        tally.lines, tally.notes = tally.lines + self._tally.lines, tally.notes + self._tally.notes
        if self._error is not None:
            raise self._error
        if tally.asked.told is not None:
            tally.asked.told(len(self._batch))


def _grep_batches(matcher: Matcher, batches: Iterable[list[Body]], tally: _Tally, deadline: Deadline) -> None:
    """One after the other; while one is searched the next is read."""
    running: _BatchSearch | None = None
    try:
        for batch in batches:
            deadline.left()
            before, running = running, _BatchSearch(matcher, batch, tally, deadline)
            if before is not None:
                before.finish(tally)
    finally:
        if running is not None:
            running.finish(tally)


def _grep_batch(matcher: Matcher, batch: list[Body], tally: _Tally, deadline: Deadline) -> None:
    data, starts = _join_texts(body.data.removeprefix(MARK) for body in batch)
    end_of_note, first, counted, number = 0, 0, 0, 1
    body, asked = batch[0], tally.asked
    for start, end in matcher.lines(data, deadline):
        tally.lines += 1
        if start >= end_of_note:
            tally.notes += 1
            at = bisect_right(starts, start) - 1
            body, first = batch[at], starts[at]
            end_of_note = starts[at + 1] if at + 1 < len(starts) else len(data)
            counted, number = first, 1
        if len(tally.items) < tally.limit:
            number += data.count(b"\n", counted, start)
            counted = start
            text = data[start:end].decode(errors="replace")[:LINE_CHARACTERS]
            spans = tuple(islice(matcher.finditer(text, deadline), asked.spans))
            around = _context(data, (first, end_of_note), (start, end), asked.context)
            tally.items.append(LineMatch(body.path, number, text, spans, *around))


def _context(data: bytes, note: Span, line: Span, count: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """So many lines before and after one, as far as the note goes, looking no further."""
    if not count:
        return (), ()
    low, high = line
    for _ in range(count):
        low = max(data.rfind(b"\n", note[0], max(low - 1, note[0])) + 1, note[0])
        further = data.find(b"\n", high + 1, note[1])
        high = further if further >= 0 else high
    before = data[low : line[0]].decode(errors="replace").split("\n")[:-1]
    after = data[line[1] + 1 : high].decode(errors="replace").split("\n") if high > line[1] else []
    return tuple(text[:LINE_CHARACTERS] for text in before), tuple(text[:LINE_CHARACTERS] for text in after)


# ---- places -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Find:
    """Text, or a JavaScript regular expression, wherever it stands in notes, frontmatter included."""

    query: str
    regex: bool = False
    case_sensitive: bool = False
    whole_word: bool = False
    folder: str = ""
    until: float | None = None  # on the monotonic clock, for a question in several parts
    cancelled: Callable[[], bool] | None = None

    def check(self) -> None:
        """Invalid if nothing can be looked for with it."""
        _finder(self)


class FoundIn(NamedTuple):
    """A note that holds what was asked for."""

    path: NotePath
    matches: int
    first: int  # where the first match begins, in characters
    length: int  # of the text
    modified_ns: int
    size: int


class FoundTexts(NamedTuple):
    """Every note that matches, by path. `late`: time ran out before all were looked at."""

    notes: tuple[FoundIn, ...]
    late: bool = False


class TextMatch(NamedTuple):
    line: int  # from 1
    column: int  # from 0, in characters
    length: int
    start: int  # in the text


def find_text(ws: Workspace, asked: Find) -> FoundTexts:
    """Which notes hold it, and how often. An empty text is in every note, no times. `places` shows where."""
    matcher = _finder(asked)
    return snapshot(ws, lambda: _find_in_notes(ws, asked, matcher))


def _find_in_notes(ws: Workspace, asked: Find, matcher: Matcher) -> FoundTexts:
    notes: list[FoundIn] = []
    deadline = _make_deadline(ws, asked)
    try:
        for body in _candidates(ws, matcher, asked.folder, deadline):
            data = body.data.removeprefix(MARK)
            count, first = matcher.count(data, deadline) if asked.query else (0, 0)
            if count or not asked.query:
                length = len(data.decode(errors="replace"))
                notes.append(FoundIn(body.path, count, first, length, body.modified_ns, body.size))
    except OutOfTime:
        return FoundTexts(tuple(notes), late=True)
    return FoundTexts(tuple(notes), late=deadline.left_out)


def places(ws: Workspace, asked: Find, text: str) -> Iterator[TextMatch]:
    """Every match in one text, as `find_text` counts them; the byte order mark must be gone. OutOfTime is a cut."""
    line, begin, at = 1, 0, 0
    try:
        for start, end in _finder(asked).finditer(text, _make_deadline(ws, asked)):
            line += text.count("\n", at, start)
            begin = max(begin, text.rfind("\n", at, start) + 1)
            at = start
            yield TextMatch(line, start - begin, end - start, start)
    except OutOfTime:
        return


def _make_deadline(ws: Workspace, asked: Find | Grep) -> Deadline:
    if asked.until is None:
        return Deadline.after(min(ws.limits.seconds, PATTERN_SECONDS), asked.cancelled)
    return Deadline(asked.until, asked.cancelled)


def _finder(asked: Find) -> Matcher:
    dialect: Dialect = "javascript" if asked.regex else "literal"
    ignore_case = not asked.case_sensitive
    return compile_pattern(asked.query, dialect, ignore_case=ignore_case, whole_word=asked.whole_word, lines=False)


def _candidates(ws: Workspace, matcher: Matcher, folder: str, deadline: Deadline) -> Iterator[Body]:
    """Notes that may match, by one look at many joined texts."""
    for batch in ws.index.bodies(matcher.needles, folder=folder, visible=ws.access.visibility):
        starts = list(accumulate((len(body.data) + 1 for body in batch[:-1]), initial=0))
        data = b"\n".join([body.data for body in batch])
        for place in matcher.candidates(data, starts, deadline):
            yield batch[place]


# ---- notes that hold some text ------------------------------------------------------------------------


def holding(ws: Workspace, text: str) -> list[NotePath]:
    """Notes whose body (not their frontmatter) holds this text, case ignored, by path."""
    matcher = compile_pattern(text, "literal", lines=False) if text else Matcher(Needles(), None, None)

    def found() -> list[NotePath]:
        deadline = Deadline.after(ws.limits.seconds)
        bodies = _candidates(ws, matcher, "", deadline)
        return [body.path for body in bodies if not text or _in_body(body, matcher, deadline)]

    return snapshot(ws, found)


def _in_body(body: Body, matcher: Matcher, deadline: Deadline) -> bool:
    """A candidate holds the text somewhere: perhaps in the frontmatter, if it has one."""
    if matcher.sure and not body.data.removeprefix(MARK).startswith(b"---"):
        return True
    text = body.text
    return matcher.count(text[read_frontmatter(text).end :].encode(errors="replace"), deadline)[0] > 0
