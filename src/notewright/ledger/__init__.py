"""What was done and who may: kept, migrated, never rebuilt, synced to disk.

A change set is recorded here before the first note is touched, with the bytes it replaces and the bytes it makes: that
row is what makes it happen. Whoever comes next after a crash finishes it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from notewright.notes import NotePath

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
    """One file of a change set: from one version to another. None is absence.

    `source` names the file whose unchanged bytes it gets (a move): then no bytes are kept for it.
    """

    path: NotePath
    before: str | None
    after: str | None
    source: NotePath | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """A change set in the history."""

    id: str
    at: float  # seconds since 1970
    actor: Actor
    summary: str
    steps: tuple[Step, ...]
    state: State = "recorded"
    undoes: tuple[str, ...] = ()  # ids it takes back
    undone_by: str | None = None
    emptied: tuple[str, ...] = ()  # folders to remove if they are empty afterwards


@dataclass(frozen=True, slots=True)
class Past:
    """Which changes are asked for; newest first."""

    path: str | None = None
    since: float | None = None
    until: float | None = None
    client: str | None = None
    user: str | None = None
    limit: int = 20
    offset: int = 0


class Ledger(Protocol):
    def record(self, change: Change, blobs: Mapping[str, bytes]) -> None:
        """Durable when it returns. `blobs` are the bytes by version, before and after, that no store holds for us."""
        ...

    def close_change(self, change_id: str, state: State, *, steps: tuple[Step, ...] | None = None) -> None:
        """It is done, or was taken back; `steps` replaces the plan where the outcome differs (a merge)."""
        ...

    def unfinished(self) -> list[Change]: ...

    def change(self, change_id: str) -> Change | None: ...

    def past(self, asked: Past) -> list[Change]: ...

    def blob(self, version: str) -> bytes | None: ...

    def wrote(self, path: str, version: str) -> bool:
        """Did a change set of ours leave exactly this at this path?"""
        ...

    def first_seen(self, paths: Iterable[str]) -> dict[str, float]:
        """When a path was first created through us."""
        ...

    def purge(self, path: str) -> int:
        """Forget every kept byte of one note; how many versions that were."""
        ...

    def trim(self, *, keep_days: float, keep_bytes: int) -> None: ...

    def close(self) -> None: ...


__all__ = ["Actor", "Change", "Ledger", "Past", "State", "Step"]
