"""From the store into the index: what is read, parsed and filed, and what is forgotten."""

import logging
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from notewright.engine.indexing.difference import LATER
from notewright.engine.workspace import Workspace
from notewright.errors import Forbidden, NotFound, Problem
from notewright.index.base import Filing, Index
from notewright.ledger.base import Change
from notewright.notes.parse.parser import is_costly, parse, parse_without_body
from notewright.notes.path import NotePath
from notewright.stores.base import Entry, Store, Stored

log = logging.getLogger(__name__)
BIGGEST_PARSED = 32 << 20  # a larger "note" is listed and read, not parsed or searched
BATCH = 200  # files in one transaction
LARGE = 256 << 10  # bytes; a larger note is filed by its name first, and read when all others are filed
TOGETHER_BYTES = 1 << 20  # of parsed notes that are held in memory before they are filed
COSTLY = "it holds too much to index: it is found by its name and words, its links, tags and headings are not known"


class PreparedFiling(NamedTuple):
    """What the index will be told of a note, but for what is known only when it is written."""

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
    """What the index is told of one file; None when it is gone. A large note is filed by its name alone unless `large`:
    without a stamp, so that it differs from what is there. `stored`: what came of reading it, where that was done;
    `ahead`: what it was meant to hold."""
    if entry.kind == "folder" or (entry.kind == "symlink" and not (entry.mode and stat.S_ISREG(entry.mode))):
        return None  # as a listing of all files has it
    path = entry.path
    if not path.is_note or entry.kind == "symlink":
        return Filing(path, entry.stamp, "", entry.size, entry.modified_ns, None)
    if entry.kind == "placeholder":
        return _unparsed(entry, "its content is not on this machine")
    if entry.size > BIGGEST_PARSED:
        return _unparsed(entry, f"it is larger than {BIGGEST_PARSED >> 20} MiB")
    if entry.size > LARGE and not large:
        return Filing(path, "", "", entry.size, entry.modified_ns, None, LATER)
    (stored,) = (stored,) if stored is not None else store.read_many([path], keep=False)
    if isinstance(stored, Problem):
        return None if isinstance(stored, NotFound) else _unparsed(entry, stored.message)
    entry = stored.entry
    found = ahead.filing if ahead is not None and ahead.data is stored.data else _parsed(path, stored.data)
    return found._replace(stamp=entry.stamp, version=stored.version, size=entry.size, modified_ns=entry.modified_ns)


def _parsed(path: NotePath, data: bytes) -> Filing:
    """Broken content as far as it can be."""
    try:
        text, trouble = data.decode(), None
    except UnicodeDecodeError:
        text, trouble = data.decode(errors="replace"), "it is not UTF-8"
    if is_costly(text):
        return Filing(path, "", "", 0, 0, parse_without_body(path, text), COSTLY)
    note = parse(path, text)
    return Filing(path, "", "", 0, 0, note, trouble or note.frontmatter.problem)


def prepare_filing(
    index: Index, change: Change, blobs: Mapping[str, bytes], ahead: dict[NotePath, PreparedFiling]
) -> None:
    """Prepare what a change of one note will leave, while the disk is waited for."""
    path, data = change.steps[0].path, blobs.get(change.steps[0].after or "", b"")
    if len(change.steps) == 1 and path.is_note and not path.is_hidden and 0 < len(data) <= LARGE:
        with suppress(Exception):  # it will be raised again when it is filed
            ahead[path] = PreparedFiling(data, index.prepare(_parsed(path, data)))


def _unparsed(entry: Entry, why: str) -> Filing:
    return Filing(entry.path, entry.stamp, "", entry.size, entry.modified_ns, None, why)


def read_many_for_index(store: Store, entries: Iterable[Entry], *, large: bool = True) -> Iterator[Filing]:
    """Filings of what is still there, read a batch at a time; large notes one by one."""
    for batch in batches(entries):
        paths = [entry.path for entry in batch if _is_small_note(entry)]
        read = dict(zip(paths, store.read_many(paths, keep=False), strict=True))
        for entry in batch:
            filed = read_for_index(store, entry, large=large, stored=read.get(entry.path))
            if filed is not None:
                yield filed


def _is_small_note(entry: Entry) -> bool:
    return entry.kind == "file" and entry.path.is_note and entry.size <= LARGE


def batches(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    """Entries to be filed together: so many, or notes of so many bytes."""
    batch: list[Entry] = []
    size = 0
    for entry in entries:
        batch.append(entry)
        size += entry.size if entry.path.is_note and entry.size <= LARGE else 0
        if len(batch) == BATCH or size > TOGETHER_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def file_unless_written(
    store: Store, index: Index, before: Mapping[str, str], read: Iterable[Filing], drop: Iterable[str] = ()
) -> None:
    """File what was read without the store's lock. What is no longer as it was read is looked at once more. A change
    set of ours may have been written and filed since, and the older text must not come over the newer one: where the
    index has another stamp than `before`, which it had before they were read, it keeps what it has. A file that it did
    not know leaves no trace when we delete it: those, which are few, are looked at under the lock. Where to ask is a
    request over the network nothing is looked at twice: the next listing shows it."""
    there = [(one.path, one) for one in read] + [(NotePath(path), None) for path in drop]
    if store.has_folders:
        looked = {path: _as_it_is(store, path, known) for path, known in there if path in before}
    else:
        looked = dict(there)
    with store.lock():
        with index.steady():  # one connection for all of them
            same = [(path, known) for path, known in there if _stamp(index, path) == before.get(path)]
        fresh = {path: looked[path] if path in looked else _as_it_is(store, path, known) for path, known in same}
        index.file([one for one in fresh.values() if one], drop=[path for path, one in fresh.items() if one is None])


def _stamp(index: Index, path: NotePath) -> str | None:
    filed = index.filed(path)
    return None if filed is None else filed.stamp


def _as_it_is(store: Store, path: NotePath, known: Filing | None) -> Filing | None:
    entry = _entry(store, path)
    if entry is None:
        return None
    if known is not None and known.stamp in (entry.stamp, ""):
        return known
    return read_for_index(store, entry)


def file_paths(
    store: Store,
    index: Index,
    paths: Iterable[NotePath],
    *,
    sights: Mapping[NotePath, Stored | None] | None = None,
    ahead: Mapping[NotePath, PreparedFiling] | None = None,
    large: bool = True,
) -> list[Filing]:
    """Bring the index up to date with these files; what was put into it, without the notes. `sights`: the caller holds
    the store's lock, changed them and knows this of them, so that the index need not be asked what it has."""
    locked, sights, ahead = sights is not None, sights or {}, ahead or {}
    before: dict[str, str] = {}
    done: list[Filing] = []
    put: list[Filing] = []
    drop: list[str] = []
    size = 0
    for path in dict.fromkeys(paths):
        known = None if locked else index.filed(path)
        if known is not None:
            before[path] = known.stamp
        stored = sights.get(path)
        entry = stored.entry if stored else None if path in sights else _entry(store, path)
        if entry is not None and known is not None and known.stamp == entry.stamp:
            continue
        fresh = None
        if entry is not None:
            fresh = read_for_index(store, entry, large=large, stored=stored, ahead=ahead.get(path))
        if fresh is None:
            drop += [path] if locked or known is not None else []
        else:
            put.append(fresh)
            done.append(fresh._replace(note=None, ready=None))
            size += fresh.size if fresh.note else 0
            if size > TOGETHER_BYTES:
                _file(store, index, before, put, drop, locked)
                put, drop, size = [], [], 0
    _file(store, index, before, put, drop, locked)
    return done


def _entry(store: Store, path: NotePath) -> Entry | None:
    try:
        return store.stat(path)
    except (NotFound, Forbidden):  # a listing leaves out what may not be looked at
        return None


def file_large(store: Store, index: Index, path: NotePath) -> list[Filing]:
    """Read and file one note without the store's lock, so that no writer waits for it. If it was changed meanwhile, it
    is looked at again: what was put then."""
    with suppress(NotFound, Forbidden):
        entry, known = store.stat(path), index.filed(path)
        if known is None or known.stamp != entry.stamp or not _holds(store, path, known.version):
            fresh = read_for_index(store, entry)
            index.file([fresh] if fresh is not None else [])
    return file_paths(store, index, [path], large=False)


def _holds(store: Store, path: NotePath, version: str) -> bool:
    try:
        return store.read(path).version == version
    except Problem:
        return False


def _file(
    store: Store, index: Index, before: Mapping[str, str], put: list[Filing], drop: list[str], locked: bool
) -> None:
    if locked:
        index.file(put, drop=drop)
    elif put or drop:
        file_unless_written(store, index, before, put, drop)


def refile(
    ws: Workspace,
    paths: Iterable[NotePath],
    sights: Mapping[NotePath, Stored | None],
    ahead: Mapping[NotePath, PreparedFiling],
) -> None:
    """Index a change set of our own before it is answered. The notes are written: a failure here is not theirs, and
    whoever follows the store, or builds an index meanwhile, will file them again."""
    touched = list(paths)
    try:
        large = not ws.follower.takes_large()
        put = file_paths(ws.store, ws.index, touched, sights=sights, ahead=ahead, large=large)
        for filed in put:
            if filed.problem == LATER:
                ws.follower.put_off(filed.path, filed.size)
    except Exception as error:
        log.warning("the index did not take a change; it will be read again: %r", error)
        with suppress(Problem):
            ws.index.touched(touched)
        ws.follower.look_again(touched)
