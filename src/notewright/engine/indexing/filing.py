"""Read files from the store, parse them, and file them in the index or drop them from it."""

import logging
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from notewright.engine.indexing.difference import NOT_INDEXED_YET, TOO_COSTLY
from notewright.engine.workspace import Workspace
from notewright.errors import Forbidden, NotFound, Problem
from notewright.index.base import Filing, Index, IndexedFile, Selection
from notewright.ledger.base import Change
from notewright.notes.parse.parser import is_costly, parse, parse_without_body
from notewright.notes.path import NotePath
from notewright.stores.base import Entry, Store, Stored, is_file

log = logging.getLogger(__name__)
MAX_PARSED_BYTES = 32 << 20  # a larger "note" is listed and read, not parsed or searched
BATCH_FILES = 200  # in one transaction
BATCH_BYTES = 1 << 20  # of parsed notes that are held in memory before they are filed
LARGE_BYTES = 256 << 10  # a larger note is filed by its name first, and read when all others are filed
GRACE_SECONDS = 1.0  # that calls wait for a large note that was just queued: most are filed by then
POLL_SECONDS = 0.02


class PreparedFiling(NamedTuple):
    """The rows of a note, made before it is written: stamp, version, size and time are not known yet."""

    data: bytes
    filing: Filing


def read_for_index(
    store: Store,
    entry: Entry,
    *,
    large: bool = True,
    stored: Stored | Problem | None = None,
    ahead: PreparedFiling | None = None,
) -> Filing | None:
    """Read and parse one file for the index; None when it is gone. A large note is filed by its name alone unless
    `large`: without a stamp, so that it differs from what is there. `stored`: the result of reading it, where that was
    done; `ahead`: the rows of what it was meant to hold."""
    if not is_file(entry):
        return None  # a listing of all files leaves it out too
    path = entry.path
    if not path.is_note or entry.kind == "symlink":
        return Filing(path, entry.stamp, "", entry.size, entry.modified_ns, None)
    if entry.kind == "placeholder":
        return _unparsed(entry, "its content is not on this machine")
    if entry.size > MAX_PARSED_BYTES:
        return _unparsed(entry, f"it is larger than {MAX_PARSED_BYTES >> 20} MiB")
    if entry.size > LARGE_BYTES and not large:
        return Filing(path, "", "", entry.size, entry.modified_ns, None, NOT_INDEXED_YET)
    (stored,) = (stored,) if stored is not None else store.read_many([path], keep=False)
    if isinstance(stored, Problem):
        return None if isinstance(stored, NotFound) else _unparsed(entry, stored.message)
    entry = stored.entry
    found = ahead.filing if ahead is not None and ahead.data is stored.data else _parsed(path, stored.data)
    return found._replace(stamp=entry.stamp, version=stored.version, size=entry.size, modified_ns=entry.modified_ns)


def _parsed(path: NotePath, data: bytes) -> Filing:
    """Parse a note; broken content as far as possible."""
    try:
        text, trouble = data.decode(), None
    except UnicodeDecodeError:
        text, trouble = data.decode(errors="replace"), "it is not UTF-8"
    if is_costly(text):
        return Filing(path, "", "", 0, 0, parse_without_body(path, text), TOO_COSTLY)
    note = parse(path, text)
    return Filing(path, "", "", 0, 0, note, trouble or note.frontmatter.problem)


def prepare_filing(
    index: Index, change: Change, blobs: Mapping[str, bytes], ahead: dict[NotePath, PreparedFiling]
) -> None:
    """Parse what a change of one note will write and make its rows, while the disk syncs."""
    path, data = change.steps[0].path, blobs.get(change.steps[0].after or "", b"")
    if len(change.steps) == 1 and path.is_note and not path.is_hidden and 0 < len(data) <= LARGE_BYTES:
        with suppress(Exception):  # filing raises it again
            ahead[path] = PreparedFiling(data, index.prepare(_parsed(path, data)))


def _unparsed(entry: Entry, why: str) -> Filing:
    return Filing(entry.path, entry.stamp, "", entry.size, entry.modified_ns, None, why)


def read_many_for_index(store: Store, entries: Iterable[Entry], *, large: bool = True) -> Iterator[Filing]:
    """Read and parse the files that are still there, a batch at a time; large notes one by one."""
    for batch in batches(entries):
        paths = [e.path for e in batch if e.kind == "file" and e.path.is_note and e.size <= LARGE_BYTES]
        read = dict(zip(paths, store.read_many(paths, keep=False), strict=True))
        for entry in batch:
            filed = read_for_index(store, entry, large=large, stored=read.get(entry.path))
            if filed is not None:
                yield filed


def batches(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    """Group entries that are filed in one transaction: BATCH_FILES, or notes of BATCH_BYTES."""
    batch: list[Entry] = []
    size = 0
    for entry in entries:
        batch.append(entry)
        size += entry.size if entry.path.is_note and entry.size <= LARGE_BYTES else 0
        if len(batch) == BATCH_FILES or size > BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def file_unless_written(
    store: Store, index: Index, before: Mapping[str, str], read: Iterable[Filing], drop: Iterable[str] = ()
) -> None:
    """File what was read without the store's lock, unless a change set of ours was filed since: the older text must not
    replace the newer one. A file whose stamp in the index is not that of `before` any more (the stamps before it was
    read) keeps its rows. One that differs in the store from what was read is read once more. A file that the index did
    not know leaves no trace when we delete it: those, which are few, are compared under the lock. Where a stat is a
    request over the network nothing is compared: the next listing shows the difference."""
    there = [(filing.path, filing) for filing in read] + [(NotePath(path), None) for path in drop]
    if store.has_folders:
        current = {path: _read_if_changed(store, path, known) for path, known in there if path in before}
    else:
        current = dict(there)
    with store.lock():
        same = []
        with index.snapshot():  # one connection for all of them
            for path, known in there:
                filed = index.find_file(path)
                if (filed.stamp if filed else None) == before.get(path):
                    same.append((path, known))
        fresh = {path: current[path] if path in current else _read_if_changed(store, path, was) for path, was in same}
        index.file([one for one in fresh.values() if one], drop=[path for path, one in fresh.items() if one is None])


def _read_if_changed(store: Store, path: NotePath, known: Filing | None) -> Filing | None:
    """What was read of a file, if that is still true; else what it holds now, None when it is gone."""
    entry = _stat_or_none(store, path)
    if entry is None:
        return None
    if known is not None and known.stamp in (entry.stamp, ""):
        return known
    return read_for_index(store, entry)


def find_changes(
    store: Store, index: Index, paths: Iterable[NotePath]
) -> tuple[dict[str, str], list[Entry], list[NotePath]]:
    """How these files, and all that the index knows in those that are or were folders, differ from the index: their
    stamps in it, what is to be filed, and what is gone."""
    before, there = dict[str, str](), dict[NotePath, Entry | None]()
    with index.snapshot():
        for path in paths:
            known, entry = index.find_file(path), _stat_or_none(store, path)
            there[path], filed = entry, [] if known is None else [known]
            if (entry is None and known is None) or (entry is not None and entry.kind == "folder"):
                filed += index.select(Selection(folder=path, notes_only=False))[0]
            for file in filed:
                before[file.path] = file.stamp
                if file.path not in there:
                    there[file.path] = _stat_or_none(store, file.path)
    files = {path: entry for path, entry in there.items() if entry is not None and is_file(entry)}
    changed = [entry for path, entry in files.items() if entry.stamp != before.get(path)]
    return before, changed, [path for path in there if path in before and path not in files]


def file_changes(
    store: Store,
    index: Index,
    before: Mapping[str, str],
    changed: Iterable[Entry],
    gone: Sequence[str],
    *,
    large: bool = True,
) -> Iterator[Filing]:
    """File what changed and drop what is gone, a batch at a time; yields what was filed, without the notes."""
    # With the first batch goes what is gone, and in it comes what is new: a file that was renamed is always there.
    for batch in batches(sorted(changed, key=lambda entry: entry.path in before)):
        put = list(read_many_for_index(store, batch, large=large))
        file_unless_written(store, index, before, put, gone)
        gone = ()
        yield from (filing._replace(note=None, ready=None) for filing in put)
    if gone:
        file_unless_written(store, index, before, (), gone)


def _stat_or_none(store: Store, path: NotePath) -> Entry | None:
    try:
        return store.stat(path)
    except (NotFound, Forbidden):  # a listing leaves out what may not be looked at
        return None


def file_large(store: Store, index: Index, path: NotePath) -> list[Filing | IndexedFile]:
    """Read and file one note without the store's lock, so that no writer waits for it. A change set that was filed
    meanwhile stays as it is. Returns what is to be looked at again."""
    known = index.find_file(path)
    with suppress(NotFound, Forbidden):
        entry = store.stat(path)
        is_filed = False
        if known is not None and known.stamp == entry.stamp:
            with suppress(Problem):
                is_filed = store.read(path).version == known.version
        if not is_filed:
            fresh = read_for_index(store, entry)
            if fresh is not None:
                index.file_over(known, fresh)
    changed = list[Filing | IndexedFile](file_changes(store, index, *find_changes(store, index, [path]), large=False))
    now = index.find_file(path)
    if now is not None and now != known and now.problem == NOT_INDEXED_YET and not changed:
        changed.append(now)
    return changed


def refile(
    ws: Workspace,
    paths: Iterable[NotePath],
    written: Mapping[NotePath, Stored | None],
    ahead: Mapping[NotePath, PreparedFiling],
) -> None:
    """File a change set of our own before it is answered. The notes are written: where filing fails the call does not,
    and the process that follows the store, or builds an index meanwhile, files them again."""
    touched, large = list(dict.fromkeys(paths)), not ws.follower.can_defer()
    put, deferred, drop, size = list[Filing](), list[Filing](), list[NotePath](), 0
    try:
        for path in touched:
            stored = written.get(path)
            entry = stored.entry if stored else None if path in written else _stat_or_none(ws.store, path)
            fresh = None
            if entry is not None:
                fresh = read_for_index(ws.store, entry, large=large, stored=stored, ahead=ahead.get(path))
            if fresh is None:
                drop.append(path)
                continue
            if fresh.problem == NOT_INDEXED_YET:
                deferred.append(fresh)
            put.append(fresh)
            size += fresh.size if fresh.note else 0
            if size > BATCH_BYTES:
                ws.index.file(put, drop=drop)
                put, drop, size = [], [], 0
        ws.index.file(put, drop=drop)
        for filing in deferred:
            ws.follower.defer(filing.path, filing.size)
    except Exception as error:
        log.warning("the index did not take a change; it will be read again: %r", error)
        with suppress(Problem):
            ws.index.record_changes(touched)
        ws.follower.file_again(touched)


class LargeQueue:
    """Large notes that are known by name and still to be read, the smallest first. Safe from many threads."""

    def __init__(self) -> None:
        self._sizes: dict[NotePath, int] = {}
        self._failed: dict[NotePath, int] = {}
        self._until = 0.0
        self._mutex = threading.Lock()

    def add(self, path: NotePath, size: int) -> None:
        with self._mutex:
            if path not in self._sizes:
                self._until = time.monotonic() + GRACE_SECONDS
            self._sizes[path] = size

    def take(self, entries: Iterable[Entry], known: Mapping[str, str]) -> list[Entry]:
        """Queue the large notes that the index knows, unchanged or by their names alone; the other entries. Filed anew
        by its name alone, such a note would not be found until it is read."""
        left: list[Entry] = []
        for entry in entries:
            is_large = entry.path.is_note and LARGE_BYTES < entry.size <= MAX_PARSED_BYTES
            if is_large and known.get(entry.path) in (entry.stamp, ""):
                self.add(entry.path, entry.size)
            else:
                left.append(entry)
        return left

    def smallest(self) -> NotePath | None:
        with self._mutex:
            return min(self._sizes, key=lambda path: (self._failed.get(path, 0), self._sizes[path], path), default=None)

    def done(self, path: NotePath) -> None:
        with self._mutex:
            self._sizes.pop(path, None)
            self._failed.pop(path, None)

    def put_last(self, path: NotePath) -> None:
        """Retry a note that could not be filed after the others."""
        with self._mutex:
            self._failed[path] = self._failed.get(path, 0) + 1

    def wait(self, stop: threading.Event, deadline: float) -> None:
        """Wait until the queue is empty, or GRACE_SECONDS after a note was queued."""
        while self._sizes and time.monotonic() < min(deadline, self._until) and not stop.wait(POLL_SECONDS):
            pass

    def __bool__(self) -> bool:
        return bool(self._sizes)
