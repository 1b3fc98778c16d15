"""The value that every function of the engine takes: where the notes are, who asks, and which rules and limits
apply."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, tzinfo
from typing import TYPE_CHECKING, Protocol

from notewright.engine.access import Access
from notewright.engine.indexing.first_listing import FirstListing
from notewright.index.base import Generation, Index, Progress
from notewright.lazy_dataclass import dataclass, field, replace
from notewright.ledger.base import Actor, Change, Ledger
from notewright.locks import Coordination
from notewright.notes.path import NotePath

if TYPE_CHECKING:  # loads pycrdt, which few need
    from notewright.stores.base import Store
    from notewright.stores.live.documents import LiveDocuments

CALL_SECONDS = 1.5  # that a client's call waits for the index, before it says what is not indexed yet


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds that always apply."""

    note_bytes: int = 10_485_760
    quota_files: int | None = None
    quota_bytes: int | None = None
    seconds: float = 20.0  # for one search or grep
    index_seconds: float = 20.0  # for one wait for the index; a client's calls wait CALL_SECONDS


@dataclass(frozen=True, slots=True)
class UserQuota:
    """How much all workspaces that one user may write to may hold together."""

    files: int | None
    bytes: int | None
    workspaces: Callable[[], Sequence[Workspace]]  # those the user may use


class IndexFollower:
    """Keeps the index in step with the store (`engine/indexing/indexer.py`). This base class does nothing: it is for
    tests and tools that file what they write themselves."""

    def wait(self, seconds: float) -> Generation | None:
        """Wait until the index is as fresh as the store, or Indexing; which index it is, where that had to be asked."""
        return None

    def wait_for_all(self, seconds: float) -> None:
        """The same for a plan that must know every link: Unavailable while the index is known to be behind."""

    def file_again(self, paths: Iterable[str]) -> None:
        """Read these files for the index once more, soon."""

    def can_defer(self) -> bool:
        """Whether large notes can be deferred; else they are filed by the call that wrote them."""
        return False

    def defer(self, path: NotePath, size: int) -> None:
        """Read a large note, which is filed by its name alone, when there is nothing else to do."""

    def first_listing(self, *, wait: bool = False) -> FirstListing | None:
        """The files that are being indexed for the first time; None if that is done, or done in another process. With
        `wait`, waits for a listing that is being made: a second one beside it would slow both."""
        return None

    def progress(self) -> Progress:
        return Progress(0, 0, False)

    def refuse_if_lost(self) -> None:
        """Raise Unavailable while the root is empty that was not."""

    def subscribe(self, listener: Callable[[frozenset[str] | None], None]) -> Callable[[], None]:
        """Call the listener with changed paths (None: anything may have changed) until the returned function is
        called."""
        return lambda: None

    def rebuild(self, report: Callable[[int, int | None], None]) -> None: ...

    def close(self) -> None: ...


class ShownVersions(Protocol):
    """The version of each note a caller was shown last; only of the notes it was shown lately."""

    def get(self, path: NotePath, /) -> str | None: ...

    def __setitem__(self, path: NotePath, version: str, /) -> None: ...


@dataclass(frozen=True, slots=True)
class Workspace:
    """A collection of notes in one store, as one caller may use it."""

    name: str
    id: str
    store: Store
    index: Index
    ledger: Ledger
    locks: Coordination  # beside the ledger, whose changes they are of
    follower: IndexFollower = field(default_factory=IndexFollower)
    access: Access = field(default_factory=Access)
    actor: Actor = field(default_factory=Actor)
    timezone: tzinfo = UTC
    limits: Limits = field(default_factory=Limits)
    user_quota: UserQuota | None = None
    clock: Callable[[], float] = time.time
    on_change: Callable[[Workspace, Change], None] | None = None  # called for every change set that is done
    live: LiveDocuments | None = None  # where notes can be opened as shared documents
    shown: ShownVersions | None = None  # the versions this caller was shown last, where that matters

    def by(self, actor: Actor) -> Workspace:
        """The same workspace, used by this actor."""
        return replace(self, actor=actor)


def with_timeout(ws: Workspace, seconds: float) -> Workspace:
    """The same workspace, for a caller that waits for the index no longer than this."""
    return replace(ws, limits=replace(ws.limits, index_seconds=seconds))
