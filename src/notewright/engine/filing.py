"""From the store into the index: what is read, parsed and filed, and what is forgotten."""

import logging
import stat
from collections.abc import Iterable, Iterator

from notewright import notes  # parsing is loaded when there is something to parse
from notewright.engine.workspace import Workspace
from notewright.errors import Forbidden, NotFound, Problem
from notewright.index import Filing, Index
from notewright.notes import NotePath
from notewright.stores import Entry, Store

log = logging.getLogger(__name__)
BIGGEST_PARSED = 32 << 20  # a larger "note" is listed and read, not parsed or searched


def filing(store: Store, entry: Entry) -> Filing | None:
    """What the index is told of one file; None when it is gone. Broken content is filed as far as it can be."""
    if entry.kind == "folder" or (entry.kind == "symlink" and not (entry.mode and stat.S_ISREG(entry.mode))):
        return None  # as a listing of all files has it
    path = entry.path
    if not path.is_note or entry.kind == "symlink":
        return Filing(path, entry.stamp, "", entry.size, entry.modified_ns, None)
    if entry.kind == "placeholder":
        return _unparsed(entry, "its content is not on this machine")
    if entry.size > BIGGEST_PARSED:
        return _unparsed(entry, f"it is larger than {BIGGEST_PARSED >> 20} MiB")
    try:
        stored = store.read(path)
    except NotFound:
        return None
    except Problem as problem:
        return _unparsed(entry, problem.message)
    entry = stored.entry
    try:
        text, trouble = stored.data.decode(), None
    except UnicodeDecodeError:
        text, trouble = stored.data.decode(errors="replace"), "it is not UTF-8"
    note = notes.parse(path, text)
    trouble = trouble or note.frontmatter.problem
    return Filing(path, entry.stamp, stored.version, entry.size, entry.modified_ns, note, trouble)


def _unparsed(entry: Entry, why: str) -> Filing:
    return Filing(entry.path, entry.stamp, "", entry.size, entry.modified_ns, None, why)


def filings(store: Store, entries: Iterable[Entry]) -> Iterator[Filing]:
    """Filings of what is still there."""
    for entry in entries:
        filed = filing(store, entry)
        if filed is not None:
            yield filed


def file_unless_written(store: Store, index: Index, read: Iterable[Filing], drop: Iterable[str] = ()) -> None:
    """File what was read without the store's lock. A change set of ours may have been written and filed since: what is
    no longer as it was read is looked at again, so that the older text does not come over the newer one."""
    found = list(read)
    with store.lock():
        put, gone = [], []
        for path, known in (*((one.path, one) for one in found), *((NotePath(path), None) for path in drop)):
            fresh = _as_it_is(store, path, known)
            if fresh is None:
                gone.append(path)
            else:
                put.append(fresh)
        index.file(put, drop=gone)


def _as_it_is(store: Store, path: NotePath, known: Filing | None) -> Filing | None:
    try:
        entry = store.stat(path)
    except (NotFound, Forbidden):
        return None
    return known if known is not None and known.stamp == entry.stamp else filing(store, entry)


def file_paths(store: Store, index: Index, paths: Iterable[NotePath], *, locked: bool = False) -> set[str]:
    """Bring the index up to date with these files; the paths where something was different. `locked`: the caller
    holds the store's lock."""
    put: list[Filing] = []
    drop: list[str] = []
    for path in dict.fromkeys(paths):
        known = index.filed(path)
        try:
            entry = store.stat(path)
        except (NotFound, Forbidden):  # a listing leaves out what may not be looked at
            drop += [path] if known is not None else []
            continue
        if known is not None and known.stamp == entry.stamp:
            continue
        fresh = filing(store, entry)
        if fresh is None:
            drop += [path] if known is not None else []
        else:
            put.append(fresh)
    if locked:
        index.file(put, drop=drop)
    elif put or drop:
        file_unless_written(store, index, put, drop)
    return {filed.path for filed in put} | set(drop)


def refile(ws: Workspace, paths: Iterable[NotePath]) -> None:
    """Index a change set of our own before it is answered. The notes are written: a failure here is not theirs, and
    whoever follows the store will file them again."""
    touched = list(paths)
    try:
        ws.index.touched(touched)
        file_paths(ws.store, ws.index, touched, locked=True)
    except Exception as error:
        log.warning("the index did not take a change; it will be read again: %r", error)
        ws.follower.look_again(touched)
