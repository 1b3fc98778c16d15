"""The one value every verb of the engine takes: where the notes are, who asks, and what holds here."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from notewright.engine.access import Access
from notewright.index import Index
from notewright.ledger import Actor, Ledger
from notewright.stores import Store


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds that always hold."""

    note_bytes: int = 10_485_760
    quota_files: int | None = None
    quota_bytes: int | None = None
    seconds: float = 20.0  # for one search, grep or wait for the index


@dataclass(frozen=True, slots=True)
class Workspace:
    """A collection of notes in one store, as one caller may use it."""

    name: str
    id: str
    store: Store
    index: Index
    ledger: Ledger
    access: Access = field(default_factory=Access)
    actor: Actor = field(default_factory=Actor)
    timezone: str = "UTC"
    limits: Limits = field(default_factory=Limits)
    clock: Callable[[], float] = time.time

    def by(self, actor: Actor) -> "Workspace":
        """The same notes, asked for by somebody."""
        return replace(self, actor=actor)
