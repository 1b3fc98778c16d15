"""Where a caller's words point: workspaces in front of paths, pages, points in time."""

import hashlib
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from notewright import engine
from notewright.engine import Workspace
from notewright.errors import Ambiguous, Invalid, NotFound
from notewright.notes import NotePath
from notewright.surfaces.base import Call


@dataclass(frozen=True, slots=True)
class Place:
    """A file, folder or nothing yet, in one workspace."""

    ws: Workspace
    path: NotePath


@dataclass(frozen=True, slots=True)
class Places:
    """Paths as `notes` writes them: with several workspaces each begins with the workspace's name."""

    call: Call

    @property
    def several(self) -> bool:
        return len(self.call.library.workspaces()) > 1

    def show(self, ws: Workspace, path: str) -> str:
        if not self.several:
            return path
        return f"{ws.name}/{path}" if path else ws.name

    def split(self, raw: str) -> tuple[Workspace, str]:
        """The workspace a path begins with, and the rest; NotFound with the names when it begins with none."""
        wanted = raw.strip().strip("/")
        if not self.several:
            return self.call.workspace, wanted
        for ws in self.call.workspaces:
            if wanted == ws.name or wanted.startswith(ws.name + "/"):
                return ws, wanted[len(ws.name) + 1 :]
        names = [ws.name for ws in self.call.workspaces]
        raise NotFound(
            f"{raw!r} begins with no workspace", hint=f"begin with {' or '.join(name + '/' for name in names)}",
            what="workspace", nearest=names,
        )  # fmt: skip

    def locate(self, raw: str) -> Place:
        """The file meant by a path, a name or an alias."""
        try:
            ws, rest = self.split(raw)
        except NotFound:
            return self._anywhere(raw)
        if not rest:
            raise Invalid(f"{raw!r} is a workspace, not a note", hint="name a note in it", what="path")
        return Place(ws, engine.locate(ws, rest))

    def _anywhere(self, raw: str) -> Place:
        """A bare name may be in any workspace; in several it is ambiguous."""
        found: list[Place] = []
        candidates: list[str] = []
        problem: NotFound | None = None
        for ws in self.call.workspaces:
            try:
                place = Place(ws, engine.locate(ws, raw))
            except NotFound as missing:
                problem = problem or missing
            except Ambiguous as several:
                candidates += [self.show(ws, path) for path in several.details["candidates"]]
            else:
                found.append(place)
                candidates.append(self.show(ws, place.path))
        if len(candidates) > 1:
            raise Ambiguous(
                f"{raw!r} could be any of {len(candidates)} notes: {', '.join(candidates[:10])}",
                hint="give one of these paths", what="note", candidates=candidates,
            )  # fmt: skip
        if found:
            return found[0]
        raise problem or NotFound(f"there is no {raw}", what="note")

    def folders(self, raw: str) -> list[tuple[Workspace, str]]:
        """Which folders of which workspaces a `folder` argument means; `""` is everywhere."""
        if not raw.strip().strip("/"):
            return [(ws, "") for ws in self.call.workspaces]
        ws, rest = self.split(raw)
        return [(ws, engine.folder_path(ws, rest))]


def cursor_to(offset: int, about: str) -> str:
    """A cursor for the next page of exactly this question."""
    return f"{offset:x}-{_mark(about)}"


def cursor_offset(cursor: str | None, about: str) -> int:
    """Where a cursor of ours continues; Invalid for one from elsewhere or for another question."""
    if not cursor:
        return 0
    offset, _, mark = cursor.partition("-")
    if mark != _mark(about) or not re.fullmatch("[0-9a-f]{1,6}", offset):
        raise Invalid("this cursor belongs to another question", hint="leave it out to begin again", what="cursor")
    return int(offset, 16)


def _mark(about: str) -> str:
    return hashlib.sha256(about.encode("utf-8", "replace")).hexdigest()[:8]


def since_time(raw: str, zone: ZoneInfo) -> float:
    """`YYYY-MM-DD` (midnight in the zone) or RFC 3339, as seconds since 1970."""
    try:
        moment = datetime.fromisoformat(raw.strip())
    except ValueError:
        raise Invalid(f"{raw!r} is not a time", hint="write YYYY-MM-DD or RFC 3339", what="since") from None
    if len(raw.strip()) > 10 and moment.tzinfo is None:
        raise Invalid(f"{raw!r} has no timezone", hint="add Z or an offset", what="since")
    return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp()


def stamp(seconds: float) -> str:
    """RFC 3339, UTC, whole seconds."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d")
