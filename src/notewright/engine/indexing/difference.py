"""Compare the index with the store by a listing and the stamps of what was filed. A short command that only reads does
just that: where nothing differs there is no election, no watch and no waiting."""

import sys
import time
from collections.abc import Callable, Iterable, Mapping

from notewright.engine.indexing.leader_lock import LeaderLock
from notewright.engine.workspace import IndexFollower
from notewright.errors import Indexing, Problem
from notewright.index.base import Index
from notewright.lazy_dataclass import NamedTuple
from notewright.locks import Coordination
from notewright.stores.base import Entry, Store

FRESH_GRAIN_NS = 2_000_000_000  # an edit within the clock's grain of a walk would be missed: such files are read again
MIN_FILES_FOR_LOSS = 10  # a smaller workspace may shrink as it likes
# The problems of notes that are filed without all they hold; the first without a stamp, too.
NOT_INDEXED_YET = "it is large and not indexed yet: only its name is known"
TOO_COSTLY = "it holds too much to index: it is found by its name and words, its links, tags and headings are not known"


class IndexDifference(NamedTuple):
    """What must be filed and dropped for the index to equal the store."""

    file: tuple[Entry, ...]
    drop: tuple[str, ...]
    seen: int
    known: int

    @property
    def is_implausible(self) -> bool:
        """Whether the root turned empty or lost a third of its notes at once: a mount that went away looks like
        this."""
        return self.known >= MIN_FILES_FOR_LOSS and (self.seen == 0 or len(self.drop) * 3 > self.known)


def compare(
    changed_entries: Callable[[dict[str, str], int], Iterable[Entry]], known: Mapping[str, str], now_ns: int | None
) -> IndexDifference:
    """Compare a store, by its `changed_entries`, with the index's stamps. Without a time the stamps are not made of
    times and show every change."""
    left = dict(known)
    file = tuple(changed_entries(left, sys.maxsize if now_ns is None else now_ns - FRESH_GRAIN_NS))
    seen = len(known) - len(left) + sum(entry.path not in known for entry in file)
    return IndexDifference(file, tuple(left), seen, len(known))


def is_unchanged(store: Store, index: Index, locks: Coordination) -> bool:
    """Whether the index holds every note as it is now: another process keeps it so, or a walk finds nothing changed."""
    try:
        if not index.generation().whole or index.with_problem(NOT_INDEXED_YET):
            return False
        if LeaderLock(locks).is_other_fresh():
            return True
        if not store.healthy():
            return False
        found = compare(store.changed_entries, dict(index.stamps()), time.time_ns() if store.has_folders else None)
        return not found.file and not found.drop
    except Problem:
        return False


class IdleFollower(IndexFollower):
    """Follows nothing: for an index that was up to date a moment ago. Indexing if it was deleted since."""

    def __init__(self, index: Index) -> None:
        self._index = index

    def wait(self, seconds: float) -> None:
        if not self._index.generation().whole:
            raise Indexing("the index is being built again", hint="try again in a moment", done=0, total=None)
