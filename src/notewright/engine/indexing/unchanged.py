"""A command that ends soon and only reads: where the index is up to date nobody has to be elected, watch or wait."""

import time

from notewright.engine.indexing.difference import LATER, plan
from notewright.engine.indexing.leader_lock import LeaderLock
from notewright.engine.workspace import NoIndexer
from notewright.errors import Indexing, Problem
from notewright.index.base import Index, Selection
from notewright.locks import Coordination
from notewright.stores.base import Store


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
    difference = plan(store.entries(), dict(index.stamps()), time.time_ns() if store.has_folders else None)
    return not difference.file and not difference.drop


class UnchangedIndex(NoIndexer):
    """Nobody follows an index that was up to date a moment ago. Should it be deleted since, there is no answer."""

    def __init__(self, index: Index) -> None:
        self._index = index

    def wait(self, seconds: float) -> None:
        if not self._index.generation().whole:
            raise Indexing("the index is being built again", hint="try again in a moment", done=0, total=None)
