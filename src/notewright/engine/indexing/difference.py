"""How the index differs from the store, told by a listing and the stamps of what was filed. A command that ends soon
and only reads asks just that: where nothing differs nobody has to be elected, watch or wait."""

import sys
import time
from collections.abc import Callable, Iterable, Mapping

from notewright.engine.indexing.leader_lock import LeaderLock
from notewright.engine.workspace import IndexFollower
from notewright.errors import Indexing, Problem
from notewright.index.base import Index, Selection
from notewright.lazy_dataclass import NamedTuple
from notewright.locks import Coordination
from notewright.stores.base import Entry, Store

FRESH_GRAIN_NS = 2_000_000_000  # an edit within the clock's grain of a walk would be missed: such files are read again
FEW = 10  # below this a vault may shrink as it likes
LATER = "it is large and not indexed yet: only its name is known"  # the problem of a note that is filed without a stamp


class IndexDifference(NamedTuple):
    """What must be filed and dropped for the index to equal the store."""

    file: tuple[Entry, ...]
    drop: tuple[str, ...]
    seen: int
    known: int

    @property
    def implausible(self) -> bool:
        """The root turned empty or lost a third of its notes at once: a mount that went away looks like this."""
        return self.known >= FEW and (self.seen == 0 or len(self.drop) * 3 > self.known)


def plan(
    changed_entries: Callable[[dict[str, str], int], Iterable[Entry]], known: Mapping[str, str], now_ns: int | None
) -> IndexDifference:
    """Compare a store, which tells what differs, with the index's stamps. Without a time the stamps are no times
    either, and always tell."""
    left = dict(known)
    file = tuple(changed_entries(left, sys.maxsize if now_ns is None else now_ns - FRESH_GRAIN_NS))
    seen = len(known) - len(left) + sum(entry.path not in known for entry in file)
    return IndexDifference(file, tuple(left), seen, len(known))


def is_unchanged(store: Store, index: Index, locks: Coordination) -> bool:
    """The index holds every note as it is now: another process keeps it so, or a walk finds nothing changed."""
    try:
        if not index.generation().whole or index.select(Selection(notes_only=False, problem=LATER, limit=1))[1]:
            return False
        return LeaderLock(locks).others_are_fresh() or _equals(store, index)
    except Problem:
        return False


def _equals(store: Store, index: Index) -> bool:
    if not store.healthy():
        return False
    difference = plan(store.changed_entries, dict(index.stamps()), time.time_ns() if store.has_folders else None)
    return not difference.file and not difference.drop


class UnchangedIndex(IndexFollower):
    """Nobody follows an index that was up to date a moment ago. Should it be deleted since, there is no answer."""

    def __init__(self, index: Index) -> None:
        self._index = index

    def wait(self, seconds: float) -> None:
        if not self._index.generation().whole:
            raise Indexing("the index is being built again", hint="try again in a moment", done=0, total=None)
