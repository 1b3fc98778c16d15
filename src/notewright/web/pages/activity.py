"""The activity: all changes made through us, newest first, of all workspaces that a visitor may see."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from starlette.datastructures import QueryParams
from starlette.responses import Response

from notewright.engine.changes.history import list_changes as past_changes
from notewright.engine.read import find_folder, find_former_path, locate
from notewright.engine.workspace import Workspace, with_timeout
from notewright.errors import Invalid, Problem
from notewright.ledger.base import Change, ChangeQuery
from notewright.notes.path import path_problem
from notewright.notes.times import parse_time
from notewright.web.addresses import activity_url, change_url, note_url
from notewright.web.frame import PageRequest

PAGE_ROWS = 50
MAX_NAMED = 4  # notes of one change
_MAX_SECONDS = 9e9  # seconds that every clock can count


@dataclass(frozen=True, slots=True)
class ActivityRow:
    """One change as listed."""

    ws: Workspace
    change: Change

    @property
    def key(self) -> str:
        """The id of the row on the page."""
        return f"c-{self.ws.id}-{self.change.id}"

    @property
    def url(self) -> str:
        return change_url(self.ws, self.change.id)

    @property
    def paths(self) -> list[str]:
        """The paths it changed; of a moved note, only the new one."""
        left = {step.source for step in self.change.steps}
        return [step.path for step in self.change.steps if not (step.after is None and step.path in left)]

    @property
    def notes(self) -> list[tuple[str, str | None]]:
        """The first of these paths with their URLs; None for a deleted one."""
        gone = {step.path for step in self.change.steps if step.after is None}
        return [(path, None if path in gone else note_url(self.ws, path)) for path in self.paths[:MAX_NAMED]]

    @property
    def more(self) -> int:
        return max(len(self.paths) - MAX_NAMED, 0)


@dataclass(frozen=True, slots=True)
class Filter:
    """The filter, as typed into the form."""

    workspace: str = ""
    note: str = ""
    client: str = ""
    since: str = ""

    @classmethod
    def from_query(cls, query: QueryParams) -> "Filter":
        return cls(*(query.get(name, "").strip()[:1000] for name in ("workspace", "note", "client", "since")))

    @property
    def any(self) -> bool:
        return self != Filter()

    def url(self, **more: object) -> str:
        return activity_url(**asdict(self), **more)

    def select_workspaces(self, workspaces: Sequence[Workspace]) -> list[Workspace]:
        return [ws for ws in workspaces if self.workspace in ("", ws.id)]

    def history_query(self, ws: Workspace, limit: int, until: float | None = None) -> ChangeQuery:
        return ChangeQuery(
            path=self._path(ws),
            since=parse_since(self.since, ws) if self.since else None,
            until=until,
            client=self.client or None,
            limit=limit,
        )

    def _path(self, ws: Workspace) -> str | None:
        """The path of the note or folder that was typed: an existing one, a former one, or the text itself."""
        wanted = self.note.strip("/")
        if not wanted:
            return None
        if path_problem(wanted):
            raise Invalid(f"{wanted!r} is no path of a note", hint="use a path like Folder/Note.md", what="note")
        quick = with_timeout(ws, 1.0)
        for meant in (find_folder, locate):
            try:
                return meant(quick, wanted)
            except Problem:
                continue
        return find_former_path(ws, wanted) or wanted


def parse_since(raw: str, ws: Workspace) -> float:
    """Parse a day in the workspace's timezone, or a time: RFC 3339, or seconds since 1970, as in our own links."""
    try:
        at: float | None = float(raw)
    except ValueError:
        at = parse_time(raw, ws.timezone)
    if at is None or not -_MAX_SECONDS < at < _MAX_SECONDS:
        raise Invalid(f"{raw!r} is no date", hint="use a date like 2026-02-24", what="since")
    return at


def newest_changes(
    workspaces: Sequence[Workspace], filter: Filter, limit: int, until: float | None = None
) -> list[ActivityRow]:
    """The newest changes of all these workspaces together."""
    found = [
        ActivityRow(ws, change)
        for ws in filter.select_workspaces(workspaces)
        for change in past_changes(ws, filter.history_query(ws, limit, until))
    ]
    return sorted(found, key=lambda row: -row.change.at)[:limit]


def activity(request: PageRequest) -> Response:
    chosen = Filter.from_query(request.query)
    workspaces = request.library.workspaces()
    until, skip = _parse_cursor(request.query.get("before", ""))
    found = newest_changes(workspaces, chosen, PAGE_ROWS + skip + 1, until)[skip:]
    shown = found[:PAGE_ROWS]
    return request.page(
        "activity.html",
        chosen=chosen,
        workspaces=workspaces,
        rows=shown,
        clients=sorted({row.change.actor.client for row in shown} - {""}),
        first=until is None,
        newest=f"{max((row.change.at for row in shown), default=0.0)!r}",
        older=chosen.url(before=_next_cursor(shown, until, skip)) if len(found) > PAGE_ROWS else None,
    )


def _parse_cursor(cursor: str) -> tuple[float | None, int]:
    """Parse a cursor: the time at which a page begins, and how many changes of just that time are on earlier pages."""
    at, _, skip = cursor.partition(",")
    try:
        return (math.nextafter(float(at), math.inf), max(0, min(int(skip), 10_000))) if cursor else (None, 0)
    except ValueError:
        return None, 0


def _next_cursor(shown: Sequence[ActivityRow], until: float | None, skip: int) -> str:
    last = shown[-1].change.at
    same = sum(row.change.at == last for row in shown)
    before = skip if same == len(shown) and until is not None and math.nextafter(last, math.inf) == until else 0
    return f"{last!r},{same + before}"
