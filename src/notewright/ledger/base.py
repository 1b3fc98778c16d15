"""The interface of the ledger: the history of change sets. Kept, migrated, never rebuilt, synced to disk.

A change set is recorded here before the first note is touched, with the bytes it replaces and the bytes it makes: that
row is its commit point. The next call after a crash finishes it.

The ledger names bytes by their SHA-256 (`version_of` of `stores/base.py`), whatever a store uses for its versions: what
a change set leaves behind must be known before a store has seen it.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, Protocol

from notewright.lazy_dataclass import dataclass, field
from notewright.notes.path import NotePath
from notewright.notes.times import format_utc

State = Literal["recorded", "done", "taken_back"]


@dataclass(frozen=True, slots=True)
class Actor:
    """Who does something: an account or OS user, through which client, surface and tool."""

    user: str = ""
    client: str = ""
    surface: str = ""
    tool: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """One file of a change set: from some bytes to others, each named by SHA-256. None is absence.

    `source` names the file it comes from (a move). Where the bytes are the source's unchanged, none are kept for it.
    `modified` is when the bytes before were saved, in seconds since 1970: only told while a change is recorded.
    """

    path: NotePath
    before: str | None
    after: str | None
    source: NotePath | None = None
    modified: float | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Change:
    """A change set in the history."""

    id: str
    at: float  # seconds since 1970
    actor: Actor
    summary: str
    steps: tuple[Step, ...]  # in the order they are applied: creates, writes, deletes
    state: State = "recorded"
    undoes: tuple[str, ...] = ()  # ids it takes back
    undone_by: str | None = None
    emptied: tuple[str, ...] = ()  # folders to remove if they are empty afterwards
    made: tuple[str, ...] = ()  # folders that were not there before, deepest first

    def record(self) -> dict[str, Any]:
        """As JSON for programs."""
        files = [step.path for step in self.steps]
        fields = {"id": self.id, "at": format_utc(self.at), **vars(self.actor), "summary": self.summary, "files": files}
        return fields | {"undoes": list(self.undoes), "undone_by": self.undone_by}


@dataclass(frozen=True, slots=True)
class ChangeQuery:
    """Which changes to select, newest first."""

    path: str | None = None  # of a file, or of a folder and everything in it
    since: float | None = None  # inclusive
    until: float | None = None  # exclusive
    client: str | None = None
    user: str | None = None
    limit: int = 20
    offset: int = 0


def no_op() -> None:
    """Do nothing."""


class Ledger(Protocol):
    """Any thread may call; several processes may share one."""

    def record(
        self, change: Change, blobs: Mapping[str, bytes], *following: Change, meanwhile: Callable[[], None] = no_op
    ) -> None:
        """Record a change and those that follow it, all or none; durable when it returns. `blobs`: by SHA-256, the
        bytes before and after that no store holds for us. `meanwhile` runs while the disk syncs, and raises nothing."""

    def close_change(self, change_id: str, state: State, *, steps: tuple[Step, ...] | None = None) -> None:
        """Mark it as done or taken back; `steps` replaces the plan where some of it had to be left out.

        Need not be durable at once: a change closed twice is closed once.
        """

    def data_version(self) -> int:
        """A number that differs after any write, in any process. Costs next to nothing."""

    def find_unfinished(self) -> list[Change]:
        """The changes that are recorded and not closed, oldest first."""

    def change(self, change_id: str) -> Change | None: ...

    def find_changes(self, query: ChangeQuery) -> list[Change]:
        """Changes that are done, newest first."""

    def blob(self, version: str) -> bytes | None: ...

    def has_written(self, path: str, version: str) -> bool:
        """Whether a change set of ours wrote this version at this path."""

    def find_blob(self, path: str, prefix: str) -> bytes | None:
        """The bytes a path once had whose SHA-256 has this prefix, if they are kept and the prefix is unique."""

    def find_departures(self, path: str) -> list[tuple[float, NotePath | None]]:
        """When the file of this path was moved or deleted through us, and where to (None: nowhere); oldest first."""

    def first_seen(self, paths: Iterable[str]) -> dict[str, float]:
        """When each note was created through us, or last saved before we first changed it; a move keeps that time."""

    def purge(self, path: str) -> int:
        """Remove all kept versions of one note, under its former names too, and return their number."""

    def trim(self, *, keep_days: float, keep_bytes: int, now: float) -> None:
        """Remove the oldest changes beyond either limit; never an unfinished one."""

    def close(self) -> None: ...
