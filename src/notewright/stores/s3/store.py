"""Notes as objects in a bucket: `prefix/path` is the key, compare-and-swap is a conditional PUT.

The version of a note is the SHA-256 of its bytes; its ETag is the stamp. The store pairs the two and reads again where
it does not know the pair. Every write puts its operation into the object's metadata, so that a write whose answer was
lost is recognised. A PUT is whole or not at all, and durable when it answers: nothing is staged. There is no
conditional DELETE that all services honour: a tombstone replaces the note by compare-and-swap, then is deleted. Folders
are prefixes: an empty one does not exist.
"""

import hashlib
import logging
import threading
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from notewright.errors import Busy, Conflict, Exists, Forbidden, NotFound, Problem, Unavailable
from notewright.locks import EXCLUSIVE, SHARED, ThreadQueue, locked_file
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
from notewright.stores.s3.lease import Lease, LeaseOwner
from notewright.stores.s3.metadata import (
    DELETED,
    OP,
    add_foreign_attributes,
    attributes_of,
    encode,
    foreign_attributes,
    written_ns,
)
from notewright.stores.s3.objects import S3Objects, folder_entry, meta_entry, object_entry
from notewright.stores.s3.requests import ConditionFailed, FoundObject, Missing, Requests, probe
from notewright.stores.s3.settings import LARGE_SECONDS, BucketSettings, split_location

log = logging.getLogger(__name__)

MAX_KEY_BYTES = 1024
MAX_REMEMBERED = 5_000  # objects of which version and ETag are cached: those of the largest rename
SECONDS_BETWEEN_WRITES = 1.0  # of one key, where the service takes no more
MAX_SWAP_TRIES = 4  # of a swap that is refused though what it expects is there
HEALTHY_SECONDS = 5.0  # an answer not older than this shows that the bucket is there
TOMBSTONE = b"This note was deleted by Notewright; the object follows.\n"
TOMBSTONE_ETAG = hashlib.md5(TOMBSTONE, usedforsecurity=False).hexdigest()
TOMBSTONE_SECONDS = 60.0  # one that is older was left by a process that died
KEY_LOCKS = 256
LOCK_FILES = 4_096  # for the locks of single notes: two notes that share one wait for each other
LEASE = ".notewright/lease"


class _SeenObject(NamedTuple):
    """An object as it was last read or written."""

    stored: Stored | None = None  # None: a tombstone or nothing; without its bytes in the cache
    etag: str | None = None  # None: nothing is there
    op: str | None = None
    foreign: Mapping[str, str] = {}  # the metadata of other programs

    @property
    def version(self) -> Version | None:
        return None if self.stored is None else self.stored.version


class S3Store(Store):
    """The store at `s3://bucket/prefix`. Unavailable with what to set where it cannot be served; what can only be read
    is served, and `refuses_writes` says why."""

    in_order = False
    has_folders = False

    def __init__(self, location: str, settings: BucketSettings, *, state: Path) -> None:
        bucket, prefix = split_location(location)
        self._settings, self._requests = settings, Requests(bucket, settings)
        self._objects = S3Objects(prefix, self._requests)
        self._rate_limited = self._requests.clients.one_write_per_second
        place = "\n".join((self._objects.service, bucket, prefix))
        self.identity = f"s3-{hashlib.sha256(place.encode()).hexdigest()[:16]}"
        self._lock_files, self._thread_queue = state / self.identity, ThreadQueue()
        self._lock_files.mkdir(parents=True, exist_ok=True)
        self._mutex = threading.Lock()
        self._seen: OrderedDict[str, _SeenObject] = OrderedDict()
        self._last_put: OrderedDict[str, float] = OrderedDict()
        self._key_locks = [threading.Lock() for _ in range(KEY_LOCKS)]  # a tombstone goes before the next PUT
        self._empties: dict[tuple[str, str], bool] = {}  # empty objects: is it a file, not the marker of a folder?
        self._unlisted: tuple[UnlistedFile, ...] = ()
        self._lease: Lease | None = None
        self._objects.holds("")
        self._requests.abilities = probe(self._requests, self._objects.base)
        self.refuses_writes = self._requests.abilities.refuses_writes  # why nothing can be written, in words

    def hold_lease(self, owner: LeaseOwner, *, is_last: Callable[[], bool], now: bool) -> None:
        """Write only while this machine holds the lease; acquired `now`, or with the first write."""
        longest_put = max(self._settings.timeout_seconds, LARGE_SECONDS)
        self._lease = Lease(self._requests, self._key(LEASE), owner, write_seconds=longest_put, is_last=is_last)
        self._requests.may_write, self._requests.why_not = self._lease.may_write, self._lease.why_not
        if now and not self.refuses_writes:
            self._lease.start()

    @property
    def objects(self) -> S3Objects:
        return self._objects

    # Listing and reading

    def entries(self, below: str = "", *, bare: bool = False) -> Iterator[Entry]:
        self._check(None)

        def pack(metas: Iterable[Any]) -> list[bytes | UnlistedFile]:
            return [_pack_entry(item) if isinstance(item, Entry) else item for item in self._convert_page(metas)]

        listed = self._objects.collect(self._key(f"{below}/") if below else self._objects.base, pack)
        if not below:
            self._unlisted = tuple(item for item in listed if isinstance(item, UnlistedFile))
        left = sorted((item for item in listed if isinstance(item, bytes)), reverse=True)
        return (_unpack_entry(left.pop()) for _ in range(len(left)))

    def _convert_page(self, metas: Iterable[Any], *, hidden: bool = False) -> list[Entry | UnlistedFile]:
        """The entries of a page of the listing, and the keys that cannot be one."""
        found, odd = list[Entry](), list[UnlistedFile]()
        for meta in metas:
            raw = meta["path"][len(self._objects.base) :]
            problem = path_problem(raw) if raw else None
            if problem is not None:
                odd.append(UnlistedFile(raw, problem))
            elif raw and (hidden or not NotePath(raw).is_hidden):  # "": a console's marker for the prefix itself
                found.append(meta_entry(NotePath(raw), meta))
        doubtful = [entry for entry in found if self._is_doubtful(entry)]
        are_files = zip(doubtful, self._requests.each(self._is_file, doubtful), strict=True)
        no_files = {entry.path for entry, is_file in are_files if not is_file}
        return [*(entry for entry in found if entry.path not in no_files), *odd]

    def _is_doubtful(self, entry: Entry) -> bool:
        """Whether it may be a tombstone, or the marker of a console for a folder: a listing does not tell."""
        if entry.size == len(TOMBSTONE):
            etag = entry.stamp.strip('"')
            return etag == TOMBSTONE_ETAG or len(etag) != len(TOMBSTONE_ETAG)
        return entry.size == 0 and not entry.path.is_note

    def _is_file(self, entry: Entry) -> bool:
        """Ask whether a doubtful entry is a file; removes a tombstone that a process which died has left."""
        known = self._empties.get((entry.path, entry.stamp)) if entry.size == 0 else None
        if known is not None:
            return known
        head = self._get(entry.path, head=True)
        is_file = head is not None and not head.attributes.get(DELETED)
        is_old = time.time() - entry.modified_ns / 1e9 > TOMBSTONE_SECONDS
        is_left_over = head is not None and not is_file and is_old
        if entry.size == 0:
            if len(self._empties) > MAX_REMEMBERED:
                self._empties.clear()
            self._empties[entry.path, entry.stamp] = is_file
        elif is_left_over and self._objects.may_write():
            with self._key_lock(entry.path):
                head = self._get(entry.path, head=True)
                if head is not None and head.attributes.get(DELETED):
                    self._remove_tombstone(entry.path)
        return is_file

    def unlisted_files(self) -> tuple[UnlistedFile, ...]:
        return self._unlisted

    def children(self, folder: str, *, hidden: bool = False, bare: bool = False) -> list[Entry]:
        self._check(NotePath(folder) if folder else None, hidden)
        found, objects = self._objects.level(folder)
        folders = [raw for raw in sorted(found) if path_problem(raw) is None]
        if self._requests.abilities.keeps_folders:
            has_files = self._requests.each(self._objects.holds, folders)
            folders = [raw for raw, has_file in zip(folders, has_files, strict=True) if has_file]
        entries = [folder_entry(NotePath(raw)) for raw in folders]
        listed = {folder, *found}
        others = [meta for meta in objects if meta["path"][len(self._objects.base) :] not in listed]
        entries += [entry for entry in self._convert_page(others, hidden=True) if isinstance(entry, Entry)]
        if folder and not entries:
            raise NotFound(f"there is no {folder}", what="folder", path=folder)
        return sorted(entry for entry in entries if hidden or not entry.path.name.startswith("."))

    def stat(self, path: NotePath, *, hidden: bool = False) -> Entry:
        self._check(path, hidden)
        for as_file in (True, False) if "." in path.name else (False, True):  # what it looks like first
            if as_file and (entry := self._stat_object(path)) is not None:
                return entry
            if not as_file and self._objects.holds(path):
                return folder_entry(path)
        raise not_found_error(path)

    def _stat_object(self, path: NotePath) -> Entry | None:
        head = self._get(path, head=True)
        return None if head is None or head.attributes.get(DELETED) else _found_entry(path, head)

    def read(self, path: NotePath, *, hidden: bool = False, keep: bool = True) -> Stored:
        self._check(path, hidden)
        stored = self._read_object(path, keep=keep).stored
        if stored is None:
            raise not_found_error(path)
        return stored

    def read_many(
        self, paths: Sequence[NotePath], *, hidden: bool = False, keep: bool = True
    ) -> list[Stored | Problem]:
        return self._requests.each(lambda path: catch_problem(self.read, path, hidden=hidden, keep=keep), paths)

    def _read_object(self, path: NotePath, *, keep: bool = True) -> _SeenObject:
        """The object as it is now, in one request; cached, if it is to be kept."""
        found = self._get(path)
        if found is None:
            return _SeenObject()
        op = found.attributes.get(OP)
        if found.attributes.get(DELETED):
            return self._remember(path, _SeenObject(None, found.etag, op))
        stored = Stored(found.data, version_of(found.data), _found_entry(path, found))
        seen = _SeenObject(stored, found.etag, op, foreign_attributes(found.attributes))
        return self._remember(path, seen) if keep else seen

    def _get(self, path: NotePath, *, head: bool = False) -> FoundObject | None:
        try:
            return self._requests.get(self._key(path), path=path, head=head)
        except Missing:
            return None

    # Writing

    def stage(self, path: NotePath, data: bytes, *, op: OpId, hidden: bool = False) -> None:
        self._check(path, hidden)

    def swap(self, swap: Swap, *, op: OpId, hidden: bool = False) -> Stored | None:
        path, data, seen = swap.path, swap.data, swap.seen
        if data is None and seen is None:
            return None
        self._check(path, hidden, writing=True)
        op = encode(op)
        with self._key_lock(path):
            if data is None:
                there = self._swap(path, None, seen, op, origin=path)
                if there.stored is not None:
                    raise changed_error(path, there.version)
                if there.etag is not None:
                    self._remove_tombstone(path)
                elif self._objects.holds(path):
                    raise Conflict(f"{path} is a folder now", hint="read it again", path=path, current=None)
                return None
            if seen is not None and seen == version_of(data):
                # Nothing is to change. A cached object needs no request: a PUT that was answered is durable.
                cached = self._last_seen(path).stored
                if cached is not None and cached.version == seen:
                    return Stored(data, seen, cached.entry)
                there = self._read_object(path)
                if there.stored is None or there.version != seen:
                    raise changed_error(path, there.version)
                return there.stored
            if seen is None:
                self._refuse_blocked_name(path)
            there = self._swap(path, data, seen, op, origin=swap.source or path if seen is None else path)
        if (
            there.stored is not None and there.op == op and there.stored.data == data
        ):  # written now, or by an earlier try
            return there.stored
        if seen is None:
            raise Exists(f"{path} already exists", hint="choose another name, or change it", path=path)
        raise changed_error(path, there.version)

    def _refuse_blocked_name(self, path: NotePath) -> None:
        """A file where a folder is wanted, or the other way round. A bucket can hold both, so only names that look like
        it are asked for: a parent with an extension, a file without."""
        for parent in parents(path):
            if "." in NotePath(parent).name[1:] and self._stat_object(NotePath(parent)) is not None:
                raise Exists(f"{parent} is a file", hint="choose another folder", path=parent)
        if "." not in path.name[1:] and self._objects.holds(path):
            raise Exists(f"{path} is a folder", hint="choose another name", path=path)

    def _swap(
        self, path: NotePath, data: bytes | None, seen: Version | None, op: OpId, *, origin: NotePath
    ) -> _SeenObject:
        """Put `data` (None: a tombstone) over what was seen (None: nothing, or a tombstone). What is there afterwards:
        the new object, or another one that was not seen."""
        cached = self._last_seen(path).stored
        mode: Any = "create" if seen is None else None  # None: the ETag of what was seen has to be asked for
        if cached is not None and cached.version == seen:
            mode = self._requests.if_match(cached.entry.stamp)
        for _ in range(MAX_SWAP_TRIES):
            if mode is not None:
                try:
                    return self._put(path, data, mode, op, origin)
                except ConditionFailed:
                    pass
            there = self._read_object(path)
            if there.version != seen:
                break
            # the same bytes under another ETag, a tombstone, or two writers that failed together
            mode = "create" if there.etag is None else self._requests.if_match(there.etag)
        return there

    def _put(self, path: NotePath, data: bytes | None, mode: Any, op: OpId, origin: NotePath) -> _SeenObject:
        """One conditional PUT. ConditionFailed also where it was done and the answer was lost: the caller looks."""
        body, now_ns = TOMBSTONE if data is None else data, time.time_ns() // 1_000_000 * 1_000_000
        foreign = {} if data is None else self._last_seen(origin).foreign
        ours = {OP: op, DELETED: "1"} if data is None else attributes_of(path, data, op=op, now_ns=now_ns)
        self._wait_for_rate_limit(path)
        try:
            attributes = add_foreign_attributes(ours, foreign)
            etag = self._requests.put(self._key(path), body, path=path, mode=mode, attributes=attributes)
        except Missing:
            raise ConditionFailed from None  # AWS says so where If-Match finds nothing
        except Unavailable as problem:
            there = catch_problem(self._read_object, path) if problem.details.get("unknown") else problem
            if isinstance(there, Problem) or there.etag is None or there.op != op:
                raise
            if (there.stored and there.stored.data) != data:
                raise
            etag = there.etag
        stored = data if data is None else Stored(data, version_of(data), object_entry(path, etag, len(data), now_ns))
        return self._remember(path, _SeenObject(stored, etag, op, foreign))

    def next_write_in(self, path: NotePath) -> float | None:
        if not self._rate_limited:
            return None
        with self._mutex:
            return max(self._last_put.get(path, 0.0) + SECONDS_BETWEEN_WRITES - time.monotonic(), 0.0)

    def _wait_for_rate_limit(self, path: str) -> None:
        if not self._rate_limited:
            return
        with self._mutex:
            now = time.monotonic()
            at = max(now, self._last_put.pop(path, 0.0) + SECONDS_BETWEEN_WRITES)
            self._last_put[path] = at
            while len(self._last_put) > MAX_REMEMBERED:
                self._last_put.popitem(last=False)
        time.sleep(at - now)

    def _remove_tombstone(self, path: NotePath) -> None:
        """One that cannot be removed now goes with a later listing: the note is gone already."""
        try:
            self._requests.remove(self._key(path), path=path)
        except Problem as problem:
            log.warning("the tombstone of %s stays for now: %s", path, problem)

    def write_many(self, swaps: Sequence[Swap], *, op: OpId, hidden: bool = False) -> list[SwapResult]:
        return self._requests.each(lambda swap: catch_problem(self.swap, swap, op=op, hidden=hidden), swaps)

    def find_applied(self, op: OpId, paths: Sequence[NotePath]) -> frozenset[NotePath]:
        """An object knows its last writer only."""

        def is_applied(path: NotePath) -> bool:
            with self._mutex:
                cached = self._seen.get(path)
            head = self._get(path, head=True) if cached is None else None
            return encode(op) == (cached.op if cached else head and head.attributes.get(OP))

        return frozenset(
            path for path, is_ours in zip(paths, self._requests.each(is_applied, paths), strict=True) if is_ours
        )

    # The rest

    @contextmanager
    def lock(self, path: NotePath | None = None, *, timeout: float = 10.0) -> Iterator[None]:
        """On this machine: among threads in the order they asked, among processes by locked files in the state folder.
        Other machines are kept out by the lease."""
        self._check(None)
        deadline = time.monotonic() + timeout
        files = [("notes", EXCLUSIVE if path is None else SHARED)]
        if path is not None:
            number = int.from_bytes(hashlib.sha256(path.encode()).digest()[:4], "big") % LOCK_FILES
            files.append((f"note-{number:03x}", EXCLUSIVE))
        with ExitStack() as held:
            try:
                held.callback(self._thread_queue.release, self._thread_queue.acquire(timeout, path))
                for name, kind in files:
                    left = max(deadline - time.monotonic(), 0.0)
                    held.enter_context(locked_file(self._lock_files / name, kind, left))
            except BlockingIOError:
                raise Busy("another change is being made", hint="try again in a moment") from None
            yield

    def changes(self, stop: threading.Event, *, walked: bool = False) -> Iterator[frozenset[NotePath] | None]:
        """By listing all of it again and again."""
        self._check(None)
        known = self._list_stamps()
        yield None
        while not stop.wait(self._settings.poll_seconds) and not self._requests.closed:
            now = self._list_stamps()
            if now is None:
                continue
            if known is None:
                yield None
            elif known != now:
                before, after = (set(zlib.decompress(packed).split(b"\n")) for packed in (known, now))
                yield frozenset(NotePath(line.decode().partition("\t")[0]) for line in before ^ after if line)
            known = now

    def _list_stamps(self) -> bytes | None:
        """A line for each file, sorted and compressed, because it is kept: the same listing is the same bytes."""

        def lines(metas: Iterable[Any]) -> list[bytes]:
            return [f"{e.path}\t{e.stamp}".encode() for e in self._convert_page(metas) if isinstance(e, Entry)]

        try:
            listed = sorted(self._objects.collect(self._objects.base, lines))  # a service lists in an order of its own
            return zlib.compress(b"\n".join(listed), 1)
        except Problem as problem:
            log.warning("changes in the bucket are not seen for now: %s", problem)
            return None
        finally:
            release_free_memory()

    def full_path(self, path: NotePath) -> str:
        return self._key(path)

    def healthy(self) -> bool:
        if self._requests.closed:
            return False
        if time.monotonic() - self._requests.answered >= HEALTHY_SECONDS:
            return not isinstance(catch_problem(self._objects.holds, ""), Problem)
        return True

    def close(self) -> None:
        if not self._requests.closed:
            self._requests.close()
            if self._lease is not None:
                self._lease.close()

    def _check(self, path: NotePath | None, hidden: bool = False, *, writing: bool = False) -> None:
        self._requests.refuse_closed()
        if path is not None and path.is_hidden and not hidden:
            raise not_found_error(path)
        if writing and self.refuses_writes:
            raise Forbidden(self.refuses_writes, hint="the notes can be read", path=path)
        if writing and path is not None and len(self._key(path).encode()) > MAX_KEY_BYTES:
            what = f"the key of {path} would be longer than {MAX_KEY_BYTES} bytes"
            raise Forbidden(what, hint="choose a shorter name", path=path)

    def _key(self, path: str) -> str:
        return f"{self._objects.base}{path}"

    def _key_lock(self, path: str) -> threading.Lock:
        return self._key_locks[hash(path) % KEY_LOCKS]

    def _last_seen(self, path: str) -> _SeenObject:
        with self._mutex:
            return self._seen.get(path, _SeenObject())

    def _remember(self, path: str, seen: _SeenObject) -> _SeenObject:
        """Cache an object without its bytes, and return it."""
        cached = seen if seen.stored is None else seen._replace(stored=seen.stored._replace(data=b""))
        with self._mutex:
            self._seen[path] = cached
            self._seen.move_to_end(path)
            while len(self._seen) > MAX_REMEMBERED:
                self._seen.popitem(last=False)
        return seen


def _pack_entry(entry: Entry) -> bytes:
    """An entry as a line, half as large, that sorts as entries are listed: each folder before those in it, and those
    before its neighbours."""
    folder, _, name = entry.path.rpartition("/")
    place = "\0\0".join((folder.replace("/", "\0"), name))
    return f"{place}\t{entry.size}\t{entry.modified_ns}\t{entry.stamp}".encode()


def _unpack_entry(line: bytes) -> Entry:
    place, size, modified_ns, stamp = line.decode().split("\t", 3)
    path = place.replace("\0\0", "/").lstrip("/").replace("\0", "/")
    return object_entry(NotePath(path), stamp, int(size), int(modified_ns))


def _found_entry(path: NotePath, found: FoundObject) -> Entry:
    written = written_ns(found.attributes, found.meta["last_modified"])
    return object_entry(path, found.etag, found.meta["size"], written)
