"""Searches all notes for a pattern or plain text: matching lines, places in notes, notes that contain a text.

Texts come from the index in batches and are searched joined, as bytes: one call of re2 passes over thousands of notes
that do not match, and meanwhile, as re2 releases the interpreter lock, the next batch is read. Only what matches is cut
into lines.
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
from notewright.engine.read import find_folder
from notewright.engine.workspace import Workspace
from notewright.errors import Busy, Problem
from notewright.index.base import Body, Needles, PathGlob, Selection, Visibility
from notewright.notes.edits.edit import read_frontmatter
from notewright.notes.glob import glob_prefix
from notewright.notes.path import NotePath

BATCH_BYTES = 4_000_000
MIN_THREAD_BYTES = 2_500_000  # of a batch; a shorter one is the last, or searched as soon as a thread would have begun
MAX_FILE_BYTES = 10_485_760  # of files that are not notes; larger ones are not searched
BINARY_BYTES = 8_192  # a NUL among the first of these: a binary file
BYTE_ORDER_MARK = "\ufeff".encode()  # before the first line
MAX_LINE_CHARS = 10_000  # of one line that are answered
MAX_SPANS = MAX_LINE_CHARS  # of one line: no more than it can hold
PATTERN_SECONDS = 5.0  # for one pattern, however slow it is


@dataclass(frozen=True, slots=True)
class Grep:
    """A request for lines. `path` is a file, a folder or a glob; `glob` is relative to `folder`."""

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
    spans: int = MAX_SPANS  # of each line; 0 where only whole lines are shown
    until: float | None = None  # on the monotonic clock, for a question in several parts
    cancelled: Callable[[], bool] | None = None
    on_progress: Callable[[int], None] | None = None  # called after each batch with the number of notes searched


class LineMatch(NamedTuple):
    path: NotePath
    line: int  # from 1
    text: str  # without its ending, at most MAX_LINE_CHARS
    spans: tuple[Span, ...]  # of the first MAX_SPANS matches, in characters of `text`
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


class Matches(NamedTuple):
    """By path, then line. `late`: time ran out, and the totals hold what was counted until then."""

    items: tuple[LineMatch, ...]
    total_lines: int
    total_notes: int
    cut: bool
    late: bool = False


@dataclass(slots=True)
class _Tally:
    request: Grep
    limit: int
    items: list[LineMatch] = field(default_factory=list)
    lines: int = 0
    notes: int = 0


def grep(ws: Workspace, request: Grep) -> Matches:
    """The first `limit` lines that match, and how many there are in all. Invalid, or NotFound for a folder."""
    case, word = request.ignore_case, request.whole_word
    matcher = compile_pattern(request.pattern, request.dialect, ignore_case=case, whole_word=word)
    named = find_folder(ws, request.folder)
    globs = [PathGlob(request.glob, below=named, basename=True)] if request.glob else []
    globs += [PathGlob(request.path, or_path=True)] if request.path else []
    accepted = ws.access.visibility._replace(under=f"{named}/" if named else "", globs=tuple(globs))
    folder = named or glob_prefix(request.path or "")
    return snapshot(ws, lambda: _search_lines(ws, request, matcher, folder, accepted))


def _search_lines(ws: Workspace, request: Grep, matcher: Matcher, folder: str, accepted: Visibility) -> Matches:
    deadline = _make_deadline(ws, request)
    tally, late = _Tally(request, request.limit), False
    try:
        batches: Iterable[list[Body]] = ws.index.bodies(matcher.needles, folder=folder, visible=accepted)
        if request.files:
            files = _read_text_files(ws, folder, accepted, deadline)
            batches = _to_batches(merge(chain.from_iterable(batches), files, key=lambda body: body.path))
        _grep_batches(matcher, batches, tally, deadline)
    except OutOfTime:
        late = True
    late = late or deadline.left_out
    return Matches(tuple(tally.items), tally.lines, tally.notes, late or tally.lines > len(tally.items), late)


# ---- texts --------------------------------------------------------------------------------------------


def _to_batches(bodies: Iterable[Body]) -> Iterator[list[Body]]:
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


def _read_text_files(ws: Workspace, folder: str, accepted: Visibility, deadline: Deadline) -> Iterator[Body]:
    """Read the text files that are not notes: the index lists them, the store has their bytes."""
    for filed in ws.index.select(Selection(folder=folder, notes_only=False, visible=accepted))[0]:
        deadline.check_seconds_left()
        if filed.path.is_note:
            continue
        try:
            entry = ws.store.stat(filed.path)
            if entry.kind != "file" or entry.size > MAX_FILE_BYTES:
                continue
            data = ws.store.read(filed.path).data
        except Problem:
            continue  # deleted or unreadable since it was indexed
        if b"\0" not in data[:BINARY_BYTES]:
            yield Body(entry.path, data, entry.modified_ns, entry.size)


def _join_texts(texts: Iterable[bytes]) -> tuple[bytes, list[int]]:
    """Join texts into whole lines, each ended by one line feed; and where each text begins."""
    chunks = [text if text.endswith(b"\n") and b"\r" not in text else _normalize_line_ends(text) for text in texts]
    return b"".join(chunks), list(accumulate(map(len, chunks[:-1]), initial=0))


def _normalize_line_ends(text: bytes) -> bytes:
    text = text.replace(b"\r\n", b"\n")
    return text if not text or text.endswith(b"\n") else text + b"\n"


# ---- lines --------------------------------------------------------------------------------------------


class _BatchSearch:
    """The search of one batch, in a thread of its own where the batch is large."""

    def __init__(self, matcher: Matcher, batch: list[Body], tally: _Tally, deadline: Deadline) -> None:
        self._batch, self._tally = batch, _Tally(tally.request, tally.limit - len(tally.items))
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(matcher, deadline), name="grep")
        if sum(len(body.data) for body in batch) > MIN_THREAD_BYTES:
            self._thread.start()
        else:
            self._run(matcher, deadline)

    def _run(self, matcher: Matcher, deadline: Deadline) -> None:
        try:
            _grep_batch(matcher, self._batch, self._tally, deadline)
        except BaseException as error:
            self._error = error

    def finish(self, tally: _Tally) -> None:
        """Wait for the end and add what was found to `tally`; then raise its error, if any (OutOfTime)."""
        if self._thread.ident is not None:
            self._thread.join()
        tally.items += self._tally.items[: tally.limit - len(tally.items)]
        tally.lines, tally.notes = tally.lines + self._tally.lines, tally.notes + self._tally.notes
        if self._error is not None:
            raise self._error
        if tally.request.on_progress is not None:
            tally.request.on_progress(len(self._batch))


def _grep_batches(matcher: Matcher, batches: Iterable[list[Body]], tally: _Tally, deadline: Deadline) -> None:
    """Search batches one after the other; while one is searched the next is read."""
    running: _BatchSearch | None = None
    try:
        for batch in batches:
            deadline.check_seconds_left()
            before, running = running, _BatchSearch(matcher, batch, tally, deadline)
            if before is not None:
                before.finish(tally)
    finally:
        if running is not None:
            running.finish(tally)


def _grep_batch(matcher: Matcher, batch: list[Body], tally: _Tally, deadline: Deadline) -> None:
    data, starts = _join_texts(body.data.removeprefix(BYTE_ORDER_MARK) for body in batch)
    end_of_note, first, counted, number = 0, 0, 0, 1
    body, request = batch[0], tally.request
    for start, end in matcher.find_lines(data, deadline):
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
            text = data[start:end].decode(errors="replace")[:MAX_LINE_CHARS]
            spans = tuple(islice(matcher.finditer(text, deadline), request.spans))
            around = _cut_context(data, (first, end_of_note), (start, end), request.context)
            tally.items.append(LineMatch(body.path, number, text, spans, *around))


def _cut_context(data: bytes, note: Span, line: Span, count: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The `count` lines before and after one, within its note; no more of the note is read."""
    if not count:
        return (), ()
    low, high = line
    for _ in range(count):
        lowest, highest = low, high
        low = max(data.rfind(b"\n", note[0], max(low - 1, note[0])) + 1, note[0])
        further = data.find(b"\n", high + 1, note[1])
        high = further if further >= 0 else high
        if (low, high) == (lowest, highest):
            break
    before = data[low : line[0]].decode(errors="replace").split("\n")[:-1]
    after = data[line[1] + 1 : high].decode(errors="replace").split("\n") if high > line[1] else []
    return tuple(text[:MAX_LINE_CHARS] for text in before), tuple(text[:MAX_LINE_CHARS] for text in after)


# ---- places -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Find:
    """A request for text, or a JavaScript regular expression, anywhere in notes, frontmatter included."""

    query: str
    regex: bool = False
    case_sensitive: bool = False
    whole_word: bool = False
    folder: str = ""
    until: float | None = None  # on the monotonic clock, for a question in several parts
    cancelled: Callable[[], bool] | None = None

    def check(self) -> None:
        """Raise Invalid if the pattern cannot be compiled."""
        _compile_find(self)


class FoundIn(NamedTuple):
    """A note that matches."""

    path: NotePath
    matches: int
    first: int  # where the first match begins, in characters
    length: int  # of the text
    modified_ns: int
    size: int


class FoundTexts(NamedTuple):
    """Every note that matches, by path. `late`: time ran out before all were searched."""

    notes: tuple[FoundIn, ...]
    late: bool = False


class TextMatch(NamedTuple):
    line: int  # from 1
    column: int  # from 0, in characters
    length: int
    start: int  # in the text


def find_text(ws: Workspace, request: Find) -> FoundTexts:
    """Which notes match, and how often; an empty text is in every note, 0 times. `find_places` says where."""
    matcher = _compile_find(request)
    return snapshot(ws, lambda: _find_in_notes(ws, request, matcher))


def _find_in_notes(ws: Workspace, request: Find, matcher: Matcher) -> FoundTexts:
    notes: list[FoundIn] = []
    deadline = _make_deadline(ws, request)
    try:
        for body in _find_candidates(ws, matcher, request.folder, deadline):
            data = body.data.removeprefix(BYTE_ORDER_MARK)
            count, first = matcher.count(data, deadline) if request.query else (0, 0)
            if count or not request.query:
                length = len(data.decode(errors="replace"))
                notes.append(FoundIn(body.path, count, first, length, body.modified_ns, body.size))
    except OutOfTime:
        return FoundTexts(tuple(notes), late=True)
    return FoundTexts(tuple(notes), late=deadline.left_out)


def find_places(ws: Workspace, request: Find, text: str) -> Iterator[TextMatch]:
    """Every match in one text, as `find_text` counts them, until time runs out. Remove a byte order mark before."""
    line, begin, at = 1, 0, 0
    try:
        for start, end in _compile_find(request).finditer(text, _make_deadline(ws, request)):
            line += text.count("\n", at, start)
            begin = max(begin, text.rfind("\n", at, start) + 1)
            at = start
            yield TextMatch(line, start - begin, end - start, start)
    except OutOfTime:
        return


def _make_deadline(ws: Workspace, request: Find | Grep) -> Deadline:
    if request.until is None:
        return Deadline.after(min(ws.limits.seconds, PATTERN_SECONDS), request.cancelled)
    return Deadline(request.until, request.cancelled)


def _compile_find(request: Find) -> Matcher:
    dialect: Dialect = "javascript" if request.regex else "literal"
    ignore_case = not request.case_sensitive
    return compile_pattern(request.query, dialect, ignore_case=ignore_case, whole_word=request.whole_word, lines=False)


def _find_candidates(ws: Workspace, matcher: Matcher, folder: str, deadline: Deadline) -> Iterator[Body]:
    """Notes that may match, by one search over many joined texts."""
    for batch in ws.index.bodies(matcher.needles, folder=folder, visible=ws.access.visibility):
        starts = list(accumulate((len(body.data) + 1 for body in batch[:-1]), initial=0))
        data = b"\n".join([body.data for body in batch])
        for place in matcher.find_candidates(data, starts, deadline):
            yield batch[place]


# ---- notes that hold some text ------------------------------------------------------------------------


def find_notes_containing(ws: Workspace, text: str) -> list[NotePath]:
    """Notes whose body (not their frontmatter) contains this text, case ignored, by path."""
    matcher = compile_pattern(text, "literal", lines=False) if text else Matcher(Needles(), None, None)

    def search() -> list[NotePath]:
        deadline = Deadline.after(ws.limits.seconds)
        bodies = _find_candidates(ws, matcher, "", deadline)
        return [body.path for body in bodies if not text or _is_in_body(body, matcher, deadline)]

    try:
        return snapshot(ws, search)
    except OutOfTime:
        raise Busy("the search took too long", hint="search for a longer text") from None


def _is_in_body(body: Body, matcher: Matcher, deadline: Deadline) -> bool:
    """Whether a candidate, which contains the text somewhere, has it outside of its frontmatter."""
    if matcher.is_sure and not body.data.removeprefix(BYTE_ORDER_MARK).startswith(b"---"):
        return True
    text = body.text
    return matcher.count(text[read_frontmatter(text).end :].encode(errors="replace"), deadline)[0] > 0
