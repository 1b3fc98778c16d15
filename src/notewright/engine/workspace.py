"""The one value every verb of the engine takes: where the notes are, who asks, and what holds here."""

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
from notewright.locks import Coordination, NoCoordination
from notewright.notes.path import NotePath

if TYPE_CHECKING:  # loads pycrdt, which few need
    from notewright.stores.base import Store
    from notewright.stores.live.documents import LiveDocuments

CALL_SECONDS = 1.5  # a client's call waits no longer for the index, and then says what is not indexed yet


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds that always hold."""

    note_bytes: int = 10_485_760
    quota_files: int | None = None
    quota_bytes: int | None = None
    seconds: float = 20.0  # for one search or grep
    index_seconds: float = 20.0  # for one wait for the index; a client's calls wait CALL_SECONDS


@dataclass(frozen=True, slots=True)
class UserQuota:
    """How much all workspaces together may hold to which one user may write."""

    files: int | None
    bytes: int | None
    workspaces: Callable[[], Sequence[Workspace]]  # those the user may use


class IndexFollower:
    """Who keeps the index in step with the store (`engine/indexing/indexer.py`). This one does not: it is for tests and
    tools that file what they write themselves."""

    def wait(self, seconds: float) -> Generation | None:
        """Until the index is as fresh as the store, or Indexing; which index that was, where it had to be asked."""
        return None

    def wait_for_all(self, seconds: float) -> None:
        """The same for a plan that must know every link: Unavailable while the index is known to be behind."""

    def look_again(self, paths: Iterable[str]) -> None: ...

    def takes_large(self) -> bool:
        """Large notes may be `put_off`; else whoever wrote one files it at once."""
        return False

    def put_off(self, path: NotePath, size: int) -> None:
        """Read a large note, which is filed by its name alone, when there is nothing else to do."""

    def listed(self, *, wait: bool = False) -> FirstListing | None:
        """The files that are being indexed for the first time; None if that is done, or done elsewhere. A listing that
        is being made is waited for, where all of it is needed: a second beside it would slow both."""
        return None

    def progress(self) -> Progress:
        return Progress(0, 0, False)

    def may_write(self) -> None:
        """Unavailable while the root is empty that was not."""

    def subscribe(self, heard: Callable[[frozenset[str] | None], None]) -> Callable[[], None]:
        """Be told of changed paths (None: look at everything); call what is returned to stop."""
        return lambda: None

    def rebuild(self, report: Callable[[int, int | None], None]) -> None: ...

    def close(self) -> None: ...


class ShownVersions(Protocol):
    """Which version of a note a caller was shown last, of the notes it was shown lately."""

    def get(self, path: NotePath, /) -> str | None: ...

    def __setitem__(self, path: NotePath, version: str, /) -> None: ...


def unheard(ws: Workspace, change: Change) -> None:
    """Nobody is told."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """A collection of notes in one store, as one caller may use it."""

    name: str
    id: str
    store: Store
    index: Index
    ledger: Ledger
    follower: IndexFollower = field(default_factory=IndexFollower)
    locks: Coordination = field(default_factory=NoCoordination)  # beside the ledger, whose changes they are of
    access: Access = field(default_factory=Access)
    actor: Actor = field(default_factory=Actor)
    timezone: tzinfo = UTC
    limits: Limits = field(default_factory=Limits)
    user_quota: UserQuota | None = None
    clock: Callable[[], float] = time.time
    heard: Callable[[Workspace, Change], None] = unheard  # told of every change set that is done, whoever did it
    live: LiveDocuments | None = None  # where notes can be opened as shared documents
    shown: ShownVersions | None = None  # the versions this caller was shown last, where that matters

    def by(self, actor: Actor) -> Workspace:
        """The same notes, asked for by somebody."""
        return replace(self, actor=actor)


def with_timeout(ws: Workspace, seconds: float) -> Workspace:
    """The same notes for somebody who waits for the index no longer than this."""
    return replace(ws, limits=replace(ws.limits, index_seconds=seconds))
