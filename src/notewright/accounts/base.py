"""The registry of a whole server, beside the ledgers of its workspaces: tokens, and the owner's changes to workspaces.

Everything here is small and read on every request, so it is cheap to ask whether anything changed (`data_version`).
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from notewright.notes.times import format_utc


@dataclass(frozen=True, slots=True)
class Grant:
    """What a caller may use. The default is everything."""

    workspaces: tuple[str, ...] | None = None  # ids
    surfaces: tuple[str, ...] | None = None
    read_only: bool = False
    hide: tuple[str, ...] = ()
    write_under: tuple[str, ...] = ("**",)

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> "Grant":
        """Read it from the JSON of its `asdict`."""
        values: dict[str, Any] = {key: tuple(one) if isinstance(one, list) else one for key, one in record.items()}
        return cls(**values)

    @property
    def words(self) -> str:
        """What the token allows, in words."""
        words = ["read only" if self.read_only else "read and write"]
        words += [f"in {', '.join(self.workspaces) or 'no workspace'}" if self.workspaces is not None else "everywhere"]
        words += [f"through {', '.join(self.surfaces) or 'nothing'}"] if self.surfaces is not None else []
        words += [f"without {', '.join(self.hide)}"] if self.hide else []
        words += [f"writing only under {', '.join(self.write_under)}"] if self.write_under != ("**",) else []
        return ", ".join(words)


@dataclass(frozen=True, slots=True)
class Token:
    """An access token: never the secret itself, only its SHA-256. Times are seconds since 1970."""

    name: str
    digest: str
    grant: Grant
    created: float
    expires: float | None = None
    revoked: float | None = None
    used: float | None = None

    def is_valid(self, now: float) -> bool:
        return self.revoked is None and (self.expires is None or now < self.expires)

    def record(self, now: float) -> dict[str, Any]:
        """The token as JSON values for programs."""
        times = {"created": self.created, "expires": self.expires, "revoked": self.revoked, "last_used": self.used}
        formatted = {name: None if at is None else format_utc(at) for name, at in times.items()}
        return {"name": self.name, "good": self.is_valid(now), **asdict(self.grant), **formatted}


@dataclass(frozen=True, slots=True)
class WorkspaceRecord:
    """What the owner of a workspace changed while it was served: settings that win over those of the file."""

    location: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    added: bool = False  # served because of this record, not because a command line or file names it


class Accounts(Protocol):
    """The registry. Any thread may call; several processes may share one. A write is durable when it returns."""

    def data_version(self) -> int:
        """A number that differs after every change of tokens or workspaces: at once for our own changes, within some
        milliseconds for those of other processes. Recording a use is no change. Costs next to nothing."""

    def transaction(self) -> AbstractContextManager[object]:
        """A transaction for this block, among all processes: all reads and writes, or nothing if it raises."""

    def add_token(self, token: Token) -> None:
        """Add a token; Exists if one of that name is still valid."""

    def token(self, digest: str) -> Token | None: ...

    def tokens(self) -> list[Token]:
        """All tokens that were ever made, oldest first."""

    def revoke(self, name: str, now: float) -> bool:
        """Revoke the token of that name, and return whether there was one."""

    def record_use(self, digest: str, now: float) -> None:
        """Record when a token was last used; need not be durable."""

    def end_session(self, session: str, now: float, lasts: float) -> None:
        """Record that a browser signed out, kept for `lasts` seconds: by then its session would have expired."""

    def has_session_ended(self, session: str) -> bool: ...

    def records(self) -> list[WorkspaceRecord]: ...

    def put_record(self, record: WorkspaceRecord) -> None: ...

    def drop_record(self, location: str) -> bool: ...

    def secret(self, name: str) -> bytes:
        """Thirty-two random bytes, the same in every process for one name."""

    def close(self) -> None: ...
