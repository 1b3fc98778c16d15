"""The interface of a place for notes: bytes of files with compare-and-swap, and nothing else of ours.

Every implementation passes `tests/stores/test_contract.py`. What is all-or-nothing across several files is the
engine's business (`engine/changes/commit.py`), written once over `stage` and `write_many`.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from functools import lru_cache
from stat import S_ISREG
from typing import Literal, ParamSpec, Protocol, TypeVar

from notewright.errors import Conflict, NotFound, Problem
from notewright.lazy_dataclass import NamedTuple
from notewright.notes.path import NotePath

Version = str  # the SHA-256 of the bytes, on every store
OpId = str  # names one change set: a call repeated with the same id is the same call
_Args = ParamSpec("_Args")
_Answer = TypeVar("_Answer")


class Entry(NamedTuple):
    """What a listing knows of a file without reading it. A tuple, because a walk makes one for every file there is."""

    path: NotePath
    kind: Literal["file", "folder", "symlink", "placeholder"]  # placeholder: its bytes are in some cloud
    stamp: str  # equal stamps: nothing changed since. Cheap, never a hash of the content
    size: int  # of what a symlink leads to, as are the times; 0 where it is broken
    modified_ns: int
    target: str | None = None  # where a symlink points, as written
    mode: int | None = None  # as stat says it, type included (of what a symlink leads to; None where it is broken)
    accessed_ns: int | None = None
    real: str | None = None  # the path a symlink resolves to, "" the root; None if unknown


class UnlistedFile(NamedTuple):
    """Something the last whole listing had to leave out, for a report to the people whose notes they are."""

    path: str  # as far as it can be written; bytes that are not text are shown as \xNN
    why: str


class Stored(NamedTuple):
    """A file as it was at one moment."""

    data: bytes
    version: Version
    entry: Entry


class Swap(NamedTuple):
    """One file to be replaced."""

    path: NotePath
    data: bytes | None  # None: delete it
    seen: Version | None  # None: nothing may be there
    source: NotePath | None = None  # the file that moves here, for a store that knows files by more than their names
    settled: bool = False  # the bytes seen are known to be whole (we wrote them), so a recent change is not waited out


SwapResult = Stored | Problem | None  # the file as it is now, None where it was deleted, or why nothing was done


class Store(Protocol):
    """The interface. All calls may come from any thread; paths have passed `NotePath.parse`. A method with a body here
    suits a plain place on one machine; a store that is more than that overrides it.

    Names are told apart by their spelling: where the medium ignores case, what is spelled otherwise is NotFound, and
    creating a name beside it is Exists.

    Raises NotFound, Exists, Conflict, Forbidden, NoSpace, Busy, Unavailable (`unknown`: of a write that may happen even
    now) and nothing else. A path with a segment that begins with a dot is refused as NotFound, except where `hidden`
    says otherwise; what only a symlink out of the notes leads to is NotFound with `outside`. Calls may block for as
    long as the medium does (a hung network mount): an edge that has a deadline calls from a thread it can leave behind.
    """

    identity: str  # the same in every process that opens the same notes; a safe file name
    in_order: bool = True  # `write_many` goes from first to last and stops at a problem, so a crash leaves "k of n"
    has_folders: bool = True  # False: one exists while a file is in it, nothing is a symlink, each call is a request

    @property
    def lock_is_exclusive(self) -> bool:
        """While `lock` is held nobody else changes anything, and it is not lost before its process ends: a change set
        that is half applied belongs to a dead process."""
        return False

    @property
    def objects(self) -> "Objects | None":
        """In a bucket: the same prefix as plain objects."""
        return None

    def entries(self, below: str = "", *, bare: bool = False) -> Iterator[Entry]:
        """Every visible file below a folder ("" is the root), folder by folder, complete and cheap; nothing where there
        is no such folder. A symlink to a file beneath the root is one entry of kind symlink (never followed twice);
        those that lead out or in a circle are absent. `bare`: only names are needed; files that would have to be looked
        at one by one for the rest have no stamp, size or times.
        Unavailable, and never an empty listing, where the notes cannot be reached."""

    def changed_entries(self, known: dict[str, str], since_ns: int) -> Iterable[Entry]:
        """All files but those that have the stamp in `known` and were not modified after `since_ns`, in no order. Every
        path that exists is removed from `known`: what is left in it is gone."""
        return select_changed(self.entries(), known, since_ns)

    def unlisted_files(self) -> tuple[UnlistedFile, ...]:
        """What the last complete `entries` or `changed_entries` left out: names that are not text, folders that may not
        be read."""
        return ()

    def children(self, folder: str, *, hidden: bool = False, bare: bool = False) -> list[Entry]:
        """What is directly in a folder ("" is the root), sub-folders and broken symlinks included. NotFound without
        such a folder. `bare` as for `entries`."""

    def stat(self, path: NotePath, *, hidden: bool = False) -> Entry:
        """The entry of one file or folder."""

    def read(self, path: NotePath, *, hidden: bool = False) -> Stored:
        """Its bytes, whole: a file that an editor has just truncated is waited for."""

    def read_many(
        self, paths: Sequence[NotePath], *, hidden: bool = False, keep: bool = True
    ) -> list[Stored | Problem]:
        """Several files, each as `read` gives it or the problem it raises; in parallel where that is quicker. Not
        `keep`: they are not about to be written, so that nothing of them need be cached."""
        return [catch_problem(self.read, path, hidden=hidden) for path in paths]

    def stage(self, path: NotePath, data: bytes, *, op: OpId, hidden: bool = False) -> None:
        """Write new bytes to a temp file, so that a `swap` of the same op cannot fail for want of space. Optional.
        They are synced in the background, and durable before a `swap` of the op gives any file its name. Folders that
        are missing are made, and removed by `settle` if they stay empty."""

    def swap(self, swap: Swap, *, op: OpId, hidden: bool = False) -> Stored | None:
        """Replace what was seen by the new bytes, or delete it; Conflict / Exists and nothing changed if something else
        is there. To delete what is gone already is success; folders it leaves empty stay until `settle` names them.
        A store whose `read_old_version` finds what was seen may merge the change into what is there now instead, and
        returns the merged text.

        Durable when it returns, unless something was staged for `op`: then the bytes are durable and the name is with
        `settle`, once for each folder. Repeating it with the same op after it happened is success; a store that
        versions by content takes exactly the new bytes being there for that."""

    def write(
        self,
        path: NotePath,
        data: bytes,
        *,
        seen: Version | None,
        op: OpId,
        settled: bool = False,
        hidden: bool = False,
    ) -> Stored:
        """`swap` of one file."""
        stored = self.swap(Swap(path, data, seen, settled=settled), op=op, hidden=hidden)
        assert stored is not None
        return stored

    def delete(self, path: NotePath, *, seen: Version, op: OpId, settled: bool = False, hidden: bool = False) -> None:
        """`swap` of one file with nothing."""
        self.swap(Swap(path, None, seen, settled=settled), op=op, hidden=hidden)

    def next_write_in(self, path: NotePath) -> float | None:
        """Seconds until this file may be written again, on a store with a rate limit for each file; None on all others.
        An earlier write blocks until then."""
        return None

    def write_many(self, swaps: Sequence[Swap], *, op: OpId, hidden: bool = False) -> list[SwapResult]:
        """Several swaps of one change set, independent of each other and perhaps in parallel: the result of each, in
        the order of `swaps`. A store that is `in_order` stops at the first problem, and what comes after it has no
        result."""
        done: list[SwapResult] = []
        for swap in swaps:
            done.append(catch_problem(self.swap, swap, op=op, hidden=hidden))
            if isinstance(done[-1], Problem):
                break
        return done

    def find_applied(self, op: OpId, paths: Sequence[NotePath]) -> frozenset[NotePath]:
        """Of these, the files that the store knows to have been written for `op`, even if they changed again since.
        Empty on a store that keeps no such record: then contents are compared."""
        return frozenset()

    def read_old_version(self, path: NotePath, version: str) -> Stored | None:
        """The file as it was at an earlier version (its first digits will do), on a store that can carry a change of
        that text over to what is there now (`rebase`). None on all others: an older version is then refused."""
        return None

    def rebase(self, path: NotePath, data: bytes, *, seen: Version, onto: Stored) -> bytes:
        """The change that `data` makes to what `read_old_version` gave, made to `onto`, which `read` gave."""
        raise changed_error(path, None)

    def respell(self, old: NotePath, new: NotePath, *, hidden: bool = False) -> Stored | None:
        """Give a file another spelling where both are one name: the file under its new spelling. None, and nothing
        done, where the two are different names. Folders on the way are respelled with all that is in them."""
        return None

    def settle(self, op: OpId, *, emptied: tuple[str, ...] = ()) -> None:
        """Finish `op`, of which nothing more will come: make its renames durable, remove its temp files, and of the
        folders named those that are empty. Rolling back the change set of a dead process names the folders that it may
        have made."""
        return None

    def sweep(self, folders: Iterable[str]) -> None:
        """Remove the temp files of dead processes in these folders. Called under `lock` before the first answer, with
        the folders of the change sets that were not finished."""
        return None

    def lock(self, path: NotePath | None = None, *, timeout: float = 10.0) -> AbstractContextManager[None]:
        """Exclude all other threads and processes from the notes, or (with a path) from this one while they may change
        others; Busy after `timeout`. Held for one change set, not re-entrant."""

    def changes(self, stop: threading.Event, *, walked: bool = False) -> Iterator[frozenset[NotePath] | None]:
        """Hints of what changed from now on, until `stop`; the name of a folder stands for everything that is or was
        in it. None means: some may have been missed, look at everything; the first thing it yields is None, once the
        watch is up. `walked`: the caller looks at everything then, by `entries` or `changed_entries`, so that a folder
        may be watched from when that walk comes to it."""

    def full_path(self, path: NotePath) -> str:
        """Where people find it without us: the path from the file system's root, or the key in a bucket."""

    def healthy(self) -> bool:
        """Whether the notes can be reached (the folder is there and is the one that was opened)."""

    def close(self) -> None:
        """Finish what is left to do in the background. Calls after it are Unavailable."""


class ListedObject(NamedTuple):
    """What a listing says of an object. Equal ETags in one service: equal bytes. A tuple: there is one for every
    object, and a dict is four times as large."""

    key: str  # below the prefix that was asked for
    etag: str
    size: int
    modified_ns: int


class Objects(Protocol):
    """A prefix of a bucket as plain objects, for backups and moves, whose keys nobody else writes: nothing compares
    before it writes. Keys are below the prefix. Problems are those of the store; NotFound for a key that is not there.
    """

    service: str  # the same for all buckets that can be copied between
    bucket: str
    prefix: str

    @property
    def refuses_writes(self) -> str | None:
        """Why nothing can be written, in words."""

    @property
    def location(self) -> str:
        """As people write it: s3://bucket/prefix."""

    def may_write(self) -> bool:
        """Whether this machine holds the lease, and the service takes writes."""

    def at(self, folder: str) -> "Objects":
        """A folder as a prefix of its own."""

    def below(self, folder: str = "") -> list[ListedObject]:
        """Everything below a folder."""

    def folders(self) -> list[str]:
        """The names directly below the prefix that have something below them, in order."""

    def exists(self, key: str) -> bool: ...

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        """Its bytes; Unavailable if it is larger."""

    def put(self, key: str, data: bytes) -> str:
        """Write over whatever is there; the new ETag."""

    def copy(self, source: "Objects", key: str, to: str) -> bool:
        """Copy an object inside the service, with its metadata. False where that cannot be done, or it is gone: then it
        has to be read and written."""

    def remove(self, key: str) -> None:
        """Remove it; one that is gone already is no error."""


def select_changed(entries: Iterable[Entry], known: dict[str, str], since_ns: int) -> Iterator[Entry]:
    """`Store.changed_entries` of a listing."""
    return (e for e in entries if known.pop(e.path, None) != e.stamp or e.modified_ns > since_ns)


def is_file(entry: Entry) -> bool:
    """It is a file, wherever its bytes are, or a symlink to one."""
    return entry.kind in ("file", "placeholder") or (entry.mode is not None and S_ISREG(entry.mode))


def parents(path: str) -> list[str]:
    """The folders a path is in, innermost first, without the root."""
    pieces = path.split("/")[:-1]
    return ["/".join(pieces[:count]) for count in range(len(pieces), 0, -1)]


def version_of(data: bytes) -> Version:
    """The version of bytes kept by a store that versions by content."""
    return _cached_digest(data) if len(data) <= _MAX_CACHED_BYTES else _digest(data)


def _digest(data: bytes) -> Version:
    from hashlib import sha256  # loads OpenSSL, which a search does not need

    return sha256(data).hexdigest()


_MAX_CACHED_BYTES = 1 << 16
_cached_digest = lru_cache(maxsize=16)(_digest)  # one write asks for the version of the same bytes several times


def release_free_memory() -> None:
    """Have glibc return freed memory to the system: 361 MB of 361 stayed after 10,000 live documents, 2 after this."""
    import ctypes  # a search needs none

    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def catch_problem(call: Callable[_Args, _Answer], *args: _Args.args, **options: _Args.kwargs) -> _Answer | Problem:
    """What a call returns, or the problem it raises."""
    try:
        return call(*args, **options)
    except Problem as problem:
        return problem


def read_or_none(store: Store, path: NotePath) -> Stored | None:
    """What a file holds, hidden or not."""
    try:
        return store.read(path, hidden=path.is_hidden)
    except NotFound:
        return None


def stat_or_none(store: Store, path: NotePath, *, hidden: bool = False) -> Entry | None:
    """What is known of a file or folder without reading it."""
    try:
        return store.stat(path, hidden=hidden)
    except NotFound:
        return None


def not_found_error(path: str) -> NotFound:
    """The NotFound for a path with nothing at it, or nothing that may be asked for."""
    return NotFound(f"there is no {path}", what="file", path=path)


def changed_error(path: NotePath, current: Version | None) -> Conflict:
    """The Conflict for a file that is not as it was seen."""
    return Conflict(f"{path} changed since it was read", hint="read it again", path=path, current=current)
