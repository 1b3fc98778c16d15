"""What holds for a whole server, beside the ledgers of its workspaces: who may come in, and what the owner changed.

Everything here is small and read on every request, so it can be asked cheaply whether anything changed (`pulse`).
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from notewright.notes.times import format_utc


@dataclass(frozen=True, slots=True)
class Grant:
    """What somebody may use. Nothing said is everything."""

    workspaces: tuple[str, ...] | None = None  # ids
    surfaces: tuple[str, ...] | None = None
    read_only: bool = False
    hide: tuple[str, ...] = ()
    write_under: tuple[str, ...] = ("**",)

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> "Grant":
        """From what JSON made of `asdict`."""
        read: dict[str, Any] = {name: tuple(one) if isinstance(one, list) else one for name, one in record.items()}
        return cls(**read)

    @property
    def words(self) -> str:
        """What it allows, in a sentence."""
        said = ["read only" if self.read_only else "read and write"]
        said += [f"in {', '.join(self.workspaces) or 'no workspace'}" if self.workspaces is not None else "everywhere"]
        said += [f"through {', '.join(self.surfaces) or 'nothing'}"] if self.surfaces is not None else []
        said += [f"without {', '.join(self.hide)}"] if self.hide else []
        said += [f"writing only under {', '.join(self.write_under)}"] if self.write_under != ("**",) else []
        return ", ".join(said)


@dataclass(frozen=True, slots=True)
class Token:
    """An access token as we keep it: never the token itself, only its SHA-256. Times are seconds since 1970."""

    name: str
    digest: str
    grant: Grant
    created: float
    expires: float | None = None
    revoked: float | None = None
    used: float | None = None

    def good(self, now: float) -> bool:
        return self.revoked is None and (self.expires is None or now < self.expires)

    def record(self, now: float) -> dict[str, Any]:
        """As it is told to programs."""
        times = {"created": self.created, "expires": self.expires, "revoked": self.revoked, "last_used": self.used}
        told = {name: None if at is None else format_utc(at) for name, at in times.items()}
        return {"name": self.name, "good": self.good(now), **asdict(self.grant), **told}


@dataclass(frozen=True, slots=True)
class WorkspaceRecord:
    """A workspace as its owner changed it while it was served: settings that win over those of the file."""

    location: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    added: bool = False  # served because it stands here, not because a command line or file names it


class Accounts(Protocol):
    """Any thread may call; several processes may share one. What returned is durable."""

    def pulse(self) -> int:
        """Another number after every change of the rules, whoever made it: at once for one's own, within some
        milliseconds for others'. That a token was used changes none. Costs next to nothing."""

    def together(self) -> AbstractContextManager[object]:
        """What is read and written inside is one step among all processes: all of it, or nothing if it raises."""

    def add_token(self, token: Token) -> None:
        """Exists if a token of that name is still good."""

    def token(self, digest: str) -> Token | None: ...

    def tokens(self) -> list[Token]:
        """All there ever were, oldest first."""

    def revoke(self, name: str, now: float) -> bool:
        """Whether there was one to revoke."""

    def used(self, digest: str, now: float) -> None:
        """Remember when it was last used; need not be durable."""

    def end_session(self, session: str, now: float, lasts: float) -> None:
        """A browser signed out. Remembered for `lasts` seconds, after which the session would have ended by itself."""

    def session_ended(self, session: str) -> bool: ...

    def records(self) -> list[WorkspaceRecord]: ...

    def put_record(self, record: WorkspaceRecord) -> None: ...

    def drop_record(self, location: str) -> bool: ...

    def secret(self, name: str) -> bytes:
        """Thirty-two random bytes, the same for everybody who asks for this name."""

    def close(self) -> None: ...
