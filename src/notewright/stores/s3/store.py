"""Notes as objects in a bucket: `prefix/path` is the key, compare-and-swap is a conditional PUT.

The version of a note is the SHA-256 of its bytes; its ETag is the stamp. The store pairs the two and reads again where
it does not know the pair. Every write says its operation in the object's metadata, so that a write whose answer was
lost is recognised. A PUT is whole or not at all, and durable when it answers: nothing is laid beside. Nobody has a
conditional DELETE that all services honour: a tombstone takes the note's place by compare-and-swap, then goes. Folders
are prefixes: an empty one does not exist.
"""

import hashlib
import logging
import threading
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from notewright.errors import Conflict, Exists, Forbidden, NotFound, Problem, Unavailable
from notewright.notes.path import NotePath, path_problem
from notewright.stores.base import (
    Entry,
    OpId,
    Store,
    Stored,
    Swap,
    SwapResult,
    UnlistedFile,
    Version,
    catch_problem,
    changed_error,
    not_found_error,
    parents,
    release_free_memory,
    version_of,
)
from notewright.stores.s3.lease import BucketLeaseObject, Lease, LeaseOwner
from notewright.stores.s3.listing import BucketListing, folder_entry, meta_entry, object_entry
from notewright.stores.s3.lock import NotesLock
from notewright.stores.s3.metadata import (
    DELETED,
    OP,
    attributes_of,
    encode,
    foreign_attributes,
    with_foreign,
    written_ns,
)
from notewright.stores.s3.objects import S3Objects
from notewright.stores.s3.probe import ServiceAbilities, probe
from notewright.stores.s3.requests import ConditionFailed, FoundObject, Missing, Requests
from notewright.stores.s3.settings import LARGE_SECONDS, BucketSettings, split_location

log = logging.getLogger(__name__)

AT_ONCE = 32  # requests of one store that run at the same time for plural calls
MAX_KEY_BYTES = 1024
MAX_REMEMBERED = 5_000  # objects of which version and ETag are known: those of the largest rename
SECONDS_BETWEEN_WRITES = 1.0  # of one key, where the service takes no more
TRIES = 4  # of a swap that finds what it expects after a refusal
HEALTHY_SECONDS = 5.0  # an answer not older than this shows that the bucket is there
TOMBSTONE = b"This note was deleted by Notewright; the object follows.\n"
TOMBSTONE_ETAG = hashlib.md5(TOMBSTONE, usedforsecurity=False).hexdigest()
TOMBSTONE_SECONDS = 60.0  # one that is older was left by a process that died
STRIPES = 256
LEASE = ".notewright/lease"
_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class _BucketObject:
    """An object as it was read; `stored` is None where it is a tombstone."""

    stored: Stored | None
    etag: str
    op: str | None


class _LastSeen(NamedTuple):
    """Of an object that was read or written: which version has the ETag in `entry`."""

    version: Version | None
    entry: Entry | None
    op: str | None
    foreign: Mapping[str, str] = {}  # what other programs say of it


class S3Store(Store):
    """A prefix of a bucket. `_may_write` is asked before every PUT and DELETE: the hook for whoever holds a lease."""

    in_order = False
    has_folders = False

    def __init__(self, bucket: str, prefix: str, settings: BucketSettings, state: Path) -> None:
        self.bucket, self.prefix, self._settings = bucket, prefix, settings
        self._may_write: Callable[[], bool] = lambda: True
        self._requests = Requests(bucket, settings, lambda: self._may_write())
        self._clients = self._requests.clients
        named = "\n".join((self._clients.where, bucket, prefix))
        self.identity = f"s3-{hashlib.sha256(named.encode()).hexdigest()[:16]}"
        self.put_seconds = max(settings.timeout_seconds, LARGE_SECONDS)  # the longest that one PUT may be under way
        self.refuses_writes: str | None = None  # why nothing can be written, in words
        self._base = f"{prefix}/" if prefix else ""
        self._lock = NotesLock(state / self.identity)
        self._listed = BucketListing(self._requests, self._base)
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="bucket")
        self._mutex = threading.Lock()
        self._last: OrderedDict[str, _LastSeen] = OrderedDict()  # what was at a path when it was last read or written
        self._last_put: OrderedDict[str, float] = OrderedDict()
        self._stripes = [threading.Lock() for _ in range(STRIPES)]  # a tombstone goes before anything is put there
        self._empties: dict[tuple[str, str], bool] = {}  # empty objects: is it the marker of a folder?
        self._oddities: tuple[UnlistedFile, ...] = ()
        self._found = ServiceAbilities()
        self._lease: Lease | None = None
        self._closed = False

    @classmethod
    def open(cls, location: str, settings: BucketSettings, *, state: Path) -> "S3Store":
        """The store at `s3://bucket/prefix`. Unavailable with what to set where it cannot be served; what can only be
        read is served, and `refuses_writes` says why."""
        bucket, prefix = split_location(location)
        store = cls(bucket, prefix, settings, state)
        try:
            store._listed.holds("")
            store._found = probe(store._requests, store._base)
            store.refuses_writes, store._requests.unquoted = store._found.refuses_writes, store._found.unquoted
        except BaseException:
            store.close()
            raise
        return store

    def hold_lease(self, owner: LeaseOwner, *, is_last: Callable[[], bool], now: bool) -> None:
        """Write only while this machine is the one that may; asked for `now`, or with the first write."""
        where = BucketLeaseObject(self._key(LEASE), self._requests)
        self._lease = Lease(where, owner, write_seconds=self.put_seconds, is_last=is_last)
        self._may_write, self._requests.why_not = self._lease.may_write, self._lease.why_not
        if now and not self.refuses_writes:
            self._lease.start()

    @property
    def objects(self) -> S3Objects:
        return S3Objects(self.prefix, self._requests, self._each, self.refuses_writes, lambda: self._may_write())

    # What is there

    def entries(self, below: str = "", *, bare: bool = False) -> Iterator[Entry]:
        self._check(None)

        def lines(metas: Iterable[Any]) -> list[bytes | UnlistedFile]:
            return [_line(one) if isinstance(one, Entry) else one for one in self._page(metas)]

        told = self._listed.told_under(self._key(f"{below}/") if below else self._base, lines)
        if not below:
            self._oddities = tuple(one for one in told if isinstance(one, UnlistedFile))
        left = sorted((one for one in told if isinstance(one, bytes)), reverse=True)
        return (_entry_from(left.pop()) for _ in range(len(left)))

    def _page(self, metas: Iterable[Any]) -> list[Entry | UnlistedFile]:
        """The entries of a page of the listing, and what cannot be one."""
        found, odd = list[Entry](), list[UnlistedFile]()
        for meta in metas:
            raw = meta["path"][len(self._base) :]
            problem = path_problem(raw) if raw else None
            if problem is not None:
                odd.append(UnlistedFile(raw, problem))
            elif raw and not NotePath(raw).is_hidden:  # without a name: the marker that a console makes for the prefix
                found.append(meta_entry(NotePath(raw), meta))
        doubtful = [entry for entry in found if self._is_doubtful(entry)]
        there = zip(doubtful, self._each(self._is_note, doubtful), strict=True)
        gone = {entry.path for entry, is_there in there if not is_there}
        return [*(entry for entry in found if entry.path not in gone), *odd]

    def _is_doubtful(self, entry: Entry) -> bool:
        """It may be a tombstone, or the marker that consoles put for a folder: a listing does not tell."""
        if entry.size == len(TOMBSTONE):
            etag = entry.stamp.strip('"')
            return etag == TOMBSTONE_ETAG or len(etag) != len(TOMBSTONE_ETAG)
        return entry.size == 0 and not entry.path.is_note

    def _is_note(self, entry: Entry) -> bool:
        known = self._empties.get((entry.path, entry.stamp)) if entry.size == 0 else None
        if known is not None:
            return known
        head = self._get(entry.path, head=True)
        there = head is not None and not head.attributes.get(DELETED)
        if entry.size == 0:
            if len(self._empties) > MAX_REMEMBERED:
                self._empties.clear()
            self._empties[entry.path, entry.stamp] = there
        elif head is not None and not there and time.time() - entry.modified_ns / 1e9 > TOMBSTONE_SECONDS:
            self._bury(entry.path)
        return there

    def unlisted_files(self) -> tuple[UnlistedFile, ...]:
        return self._oddities

    def children(self, folder: str, *, hidden: bool = False, bare: bool = False) -> list[Entry]:
        self._check(NotePath(folder) if folder else None, hidden)
        named, objects = self._listed.level(folder)
        folders = [raw for raw in sorted(named) if path_problem(raw) is None]
        if self._found.keeps_folders:
            there = self._each(self._listed.holds, folders)
            folders = [raw for raw, holds in zip(folders, there, strict=True) if holds]
        entries = [folder_entry(NotePath(raw)) for raw in folders]
        for meta in objects:
            raw = meta["path"][len(self._base) :]
            if raw != folder and raw not in named and path_problem(raw) is None:
                entry = meta_entry(NotePath(raw), meta)
                if not self._is_doubtful(entry) or self._is_note(entry):
                    entries.append(entry)
        if folder and not entries:
            raise NotFound(f"there is no {folder}", what="folder", path=folder)
        return sorted(entry for entry in entries if hidden or not entry.path.name.startswith("."))

    def stat(self, path: NotePath, *, hidden: bool = False) -> Entry:
        self._check(path, hidden)
        ways: list[Callable[[NotePath], Entry | None]] = [self._stat_object, self._stat_prefix]
        for way in ways if "." in path.name else reversed(ways):
            entry = way(path)
            if entry is not None:
                return entry
        raise not_found_error(path)

    def _stat_object(self, path: NotePath) -> Entry | None:
        head = self._get(path, head=True)
        if head is None or head.attributes.get(DELETED):
            return None
        return _entry_of(path, head)

    def _stat_prefix(self, path: NotePath) -> Entry | None:
        return folder_entry(path) if self._listed.holds(path) else None

    def read(self, path: NotePath, *, hidden: bool = False) -> Stored:
        return self._read(path, hidden, keep=True)

    def _read(self, path: NotePath, hidden: bool, keep: bool) -> Stored:
        self._check(path, hidden)
        found = self._object(path, keep=keep)
        if found is None or found.stored is None:
            raise not_found_error(path)
        return found.stored

    def read_many(
        self, paths: Sequence[NotePath], *, hidden: bool = False, keep: bool = True
    ) -> list[Stored | Problem]:
        return self._each(lambda path: catch_problem(self._read, path, hidden, keep), paths)

    def _object(self, path: NotePath, *, keep: bool = True) -> _BucketObject | None:
        """The object as it is now, in one request; remembered, if it is to be kept."""
        found = self._get(path)
        if found is None:
            return None
        op = found.attributes.get(OP)
        if found.attributes.get(DELETED):
            self._remember(path, _LastSeen(None, None, op))
            return _BucketObject(None, found.etag, op)
        stored = Stored(found.data, version_of(found.data), _entry_of(path, found))
        if keep:
            self._remember(path, _LastSeen(stored.version, stored.entry, op, foreign_attributes(found.attributes)))
        return _BucketObject(stored, found.etag, op)

    def _get(self, path: NotePath, *, head: bool = False) -> FoundObject | None:
        try:
            return self._requests.get(self._key(path), path=path, head=head)
        except Missing:
            return None

    # Changing it

    def stage(self, path: NotePath, data: bytes, *, op: OpId, hidden: bool = False) -> None:
        self._check(path, hidden)

    def write(
        self,
        path: NotePath,
        data: bytes,
        *,
        seen: Version | None,
        op: OpId,
        source: NotePath | None = None,
        settled: bool = False,
        hidden: bool = False,
    ) -> Stored:
        self._check(path, hidden, writing=True)
        op = encode(op)
        with self._stripe(path):
            if seen == version_of(data):
                return self._confirm(path, data, seen)
            if seen is None:
                self._refuse_in_the_way(path)
            origin = source or path if seen is None else path
            done = self._put_over(path, seen, lambda mode: self._put(path, data, mode, op, self._foreign(origin)))
        if isinstance(done, Stored):
            return done
        if done is not None and done.stored is not None and done.op == op and done.stored.data == data:
            return done.stored
        if seen is None:
            raise Exists(f"{path} already exists", hint="choose another name, or change it", path=path)
        raise _changed(path, done)

    def _confirm(self, path: NotePath, data: bytes, seen: Version) -> Stored:
        """Nothing is to change. What was there when it was last seen is not asked for again: a PUT that was answered is
        durable."""
        if (entry := self._recollect(path, seen)) is not None:
            return Stored(data, seen, entry)
        now = self._object(path)
        if now is None or now.stored is None or now.stored.version != seen:
            raise _changed(path, now)
        return now.stored

    def _put_over(
        self, path: NotePath, seen: Version | None, put: Callable[[Any], Stored]
    ) -> Stored | _BucketObject | None:
        """`put` something over what was seen (None: nothing, or a tombstone); what is there where that is something
        else."""
        known = self._recollect(path, seen) if seen is not None else None
        mode: Any = "create" if seen is None else known and self._requests.over(known.stamp)
        for _ in range(TRIES):
            if mode is not None:
                try:
                    return put(mode)
                except ConditionFailed:
                    pass
            now = self._object(path)
            if (now.stored.version if now is not None and now.stored is not None else None) != seen:
                break
            # the same bytes under another ETag, a tombstone, or two writers that failed together
            mode = "create" if now is None else self._requests.over(now.etag)
        return now

    def _refuse_in_the_way(self, path: NotePath) -> None:
        """A file where a folder is wanted, or the other way round. A bucket can hold both, so only names that look like
        it are asked for: a parent with an extension, a file without."""
        for parent in parents(path):
            if "." in NotePath(parent).name[1:] and self._stat_object(NotePath(parent)) is not None:
                raise Exists(f"{parent} is a file", hint="choose another folder", path=parent)
        if "." not in path.name[1:] and self._listed.holds(path):
            raise Exists(f"{path} is a folder", hint="choose another name", path=path)

    def _put(
        self, path: NotePath, data: bytes, mode: Any, op: OpId, foreign: Mapping[str, str], *, deleted: bool = False
    ) -> Stored:
        """One conditional PUT. ConditionFailed also where it was done and the answer was lost: the caller looks."""
        now_ns = time.time_ns() // 1_000_000 * 1_000_000
        ours = {OP: op, DELETED: "1"} if deleted else attributes_of(path, data, op=op, now_ns=now_ns)
        self._pace(path)
        try:
            told = with_foreign(ours, foreign)
            etag = self._requests.put(self._key(path), data, path=path, mode=mode, attributes=told)
        except Missing:
            raise ConditionFailed from None  # AWS says so where If-Match finds nothing
        except Unavailable as problem:
            found = self._read_back(path, problem)
            there = TOMBSTONE if found.stored is None else found.stored.data
            if found.op != op or there != data:
                raise
            etag = found.etag
        stored = Stored(data, version_of(data), object_entry(path, etag, len(data), now_ns))
        last = _LastSeen(None, None, op) if deleted else _LastSeen(stored.version, stored.entry, op, foreign)
        self._remember(path, last)
        return stored

    def _read_back(self, path: NotePath, problem: Unavailable) -> _BucketObject:
        """What is there after a PUT that nobody answered; its problem where that does not tell either."""
        try:
            found = self._object(path) if problem.details.get("unknown") else None
        except Problem:
            found = None
        if found is None:
            raise problem
        return found

    def next_write_in(self, path: NotePath) -> float | None:
        if not self._clients.paced:
            return None
        with self._mutex:
            return max(self._last_put.get(path, 0.0) + SECONDS_BETWEEN_WRITES - time.monotonic(), 0.0)

    def _pace(self, path: str) -> None:
        if not self._clients.paced:
            return
        with self._mutex:
            now = time.monotonic()
            at = max(now, self._last_put.pop(path, 0.0) + SECONDS_BETWEEN_WRITES)
            self._last_put[path] = at
            while len(self._last_put) > MAX_REMEMBERED:
                self._last_put.popitem(last=False)
        time.sleep(at - now)

    def delete(self, path: NotePath, *, seen: Version, op: OpId, settled: bool = False, hidden: bool = False) -> None:
        self._check(path, hidden, writing=True)
        with self._stripe(path):
            done = self._put_over(
                path, seen, lambda mode: self._put(path, TOMBSTONE, mode, encode(op), {}, deleted=True)
            )
            if done is None:
                if self._listed.holds(path):
                    raise Conflict(f"{path} is a folder now", hint="read it again", path=path, current=None)
                return
            if isinstance(done, _BucketObject) and done.stored is not None:
                raise _changed(path, done)
            self._remove(path)

    def _remove(self, path: NotePath) -> None:
        """The tombstone itself. What cannot be removed now goes with a later listing: the note is gone already."""
        try:
            self._requests.remove(self._key(path), path=path)
        except Problem as problem:
            log.warning("the tombstone of %s stays for now: %s", path, problem)

    def _bury(self, path: NotePath) -> None:
        """Remove a tombstone that somebody who died has left."""
        if self.refuses_writes or not self._may_write():
            return
        with self._stripe(path):
            head = self._get(path, head=True)
            if head is not None and head.attributes.get(DELETED):
                self._remove(path)

    def write_many(self, swaps: Sequence[Swap], *, op: OpId, hidden: bool = False) -> list[SwapResult]:
        return self._each(lambda swap: catch_problem(self.swap, swap, op=op, hidden=hidden), swaps)

    def find_applied(self, op: OpId, paths: Sequence[NotePath]) -> frozenset[NotePath]:
        """An object knows its last writer only."""
        return frozenset(
            path for path, last in zip(paths, self._each(self._last_op, paths), strict=True) if last == encode(op)
        )

    def _last_op(self, path: NotePath) -> str | None:
        with self._mutex:
            if path in self._last:
                return self._last[path].op
        head = self._get(path, head=True)
        return None if head is None else head.attributes.get(OP)

    # The rest

    def lock(self, path: NotePath | None = None, *, timeout: float = 10.0) -> AbstractContextManager[None]:
        self._check(None)
        return self._lock.held(path, timeout)

    def changes(self, stop: threading.Event, *, walked: bool = False) -> Iterator[frozenset[NotePath] | None]:
        """By listing all of it again and again."""
        self._check(None)
        known = self._stamps()
        yield None
        while not stop.wait(self._settings.poll_seconds) and not self._closed:
            now = self._stamps()
            if now is None:
                continue
            if known is None:
                yield None
            elif known != now:
                before, after = (set(zlib.decompress(kept).split(b"\n")) for kept in (known, now))
                yield frozenset(NotePath(line.decode().partition("\t")[0]) for line in before ^ after if line)
            known = now

    def _stamps(self) -> bytes | None:
        """A line for each file, sorted and packed, because it is kept: the same listing is the same bytes."""

        def lines(metas: Iterable[Any]) -> list[bytes]:
            return [f"{one.path}\t{one.stamp}".encode() for one in self._page(metas) if isinstance(one, Entry)]

        try:
            listed = sorted(self._listed.told_under(self._base, lines))  # they come as the service likes
            return zlib.compress(b"\n".join(listed), 1)
        except Problem as problem:
            log.warning("changes in the bucket are not seen for now: %s", problem)
            return None
        finally:
            release_free_memory()

    def full_path(self, path: NotePath) -> str:
        return self._key(path)

    def healthy(self) -> bool:
        if self._closed:
            return False
        if time.monotonic() - self._requests.answered < HEALTHY_SECONDS:
            return True
        try:
            self._listed.holds("")
        except Problem:
            return False
        return True

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._pool.shutdown(wait=True)
        if self._lease is not None:
            self._lease.close()

    def _check(self, path: NotePath | None, hidden: bool = False, *, writing: bool = False) -> None:
        if self._closed:
            raise Unavailable("the notes are closed")
        if path is not None and path.is_hidden and not hidden:
            raise not_found_error(path)
        if writing and self.refuses_writes:
            raise Forbidden(self.refuses_writes, hint="the notes can be read", path=path)
        if writing and path is not None and len(self._key(path).encode()) > MAX_KEY_BYTES:
            what = f"the key of {path} would be longer than {MAX_KEY_BYTES} bytes"
            raise Forbidden(what, hint="choose a shorter name", path=path)

    def _key(self, path: str) -> str:
        return f"{self._base}{path}"

    def _stripe(self, path: str) -> threading.Lock:
        return self._stripes[hash(path) % STRIPES]

    def _each(self, call: Callable[[_Item], _Answer], items: Sequence[_Item]) -> list[_Answer]:
        """All of them, several at once."""
        if len(items) < 2:
            return [call(item) for item in items]
        self._check(None)
        return list(self._pool.map(call, items))

    def _remember(self, path: str, seen: _LastSeen) -> None:
        with self._mutex:
            self._last[path] = seen
            self._last.move_to_end(path)
            while len(self._last) > MAX_REMEMBERED:
                self._last.popitem(last=False)

    def _foreign(self, path: str) -> Mapping[str, str]:
        with self._mutex:
            last = self._last.get(path)
        return {} if last is None else last.foreign

    def _recollect(self, path: str, version: Version) -> Entry | None:
        """The entry of this version, if it is the one that was last seen there."""
        with self._mutex:
            last = self._last.get(path)
        return last.entry if last is not None and last.version == version else None


def _line(entry: Entry) -> bytes:
    """An entry as a line, half as large, that sorts as entries are listed: each folder before those in it, and those
    before its neighbours."""
    folder, _, name = entry.path.rpartition("/")
    place = "\0\0".join((folder.replace("/", "\0"), name))
    return f"{place}\t{entry.size}\t{entry.modified_ns}\t{entry.stamp}".encode()


def _entry_from(line: bytes) -> Entry:
    place, size, modified_ns, stamp = line.decode().split("\t", 3)
    path = place.replace("\0\0", "/").lstrip("/").replace("\0", "/")
    return object_entry(NotePath(path), stamp, int(size), int(modified_ns))


def _entry_of(path: NotePath, found: FoundObject) -> Entry:
    written = written_ns(found.attributes, found.meta["last_modified"])
    return object_entry(path, found.etag, found.meta["size"], written)


def _changed(path: NotePath, now: _BucketObject | None) -> Conflict:
    return changed_error(path, now.stored.version if now is not None and now.stored is not None else None)
