"""What was done, and taking it back."""

import time
from typing import Any

from notewright.api import schemas
from notewright.api.operation import OperationTable
from notewright.api.request import ApiRequest, CursorPage
from notewright.api.schemas import CHANGE, DIFFERENCE, DRY_RUN, SINCE, UNDONE, fill, given, many, number, text, told
from notewright.engine.changes.history import FileDiff, Undone, diff_change, find_change, preview_undo, undo
from notewright.engine.changes.history import list_changes as past_changes
from notewright.engine.changes.history import undo_since as undo_changes_since
from notewright.engine.workspace import Workspace
from notewright.errors import Invalid
from notewright.ledger.base import Past
from notewright.surfaces.arguments import since_time

DIFF_LINES = 2000
HERE = "/api/v1/workspaces/{id}"
operations = OperationTable()
_WHO = {
    "client": text("Only of this client", most=200, least=1),
    "user": text("Only of this user", most=200, least=1),
}
_WHICH = given(
    path=text("Of a note, under its former names too, or of a folder", most=4096, least=1),
    **_WHO,
    since=SINCE,
    limit=number("At most so many; 50 without it", least=1, most=500),
    cursor=schemas.CURSOR,
)


@operations.add(
    f"GET {HERE}/changes",
    "read",
    "What was changed through us, newest first",
    told(changes=many(CHANGE), cursor=schemas.NEXT),
    _WHICH,
)
def list_changes(asked: ApiRequest) -> dict[str, Any]:
    ws, query = asked.workspace(), asked.query
    page = CursorPage.of(asked, 50, now=time.time())
    past = Past(
        path=query.get("path"),
        since=since_time(query["since"], ws.timezone) if "since" in query else None,
        until=page.until,
        client=query.get("client"),
        user=query.get("user"),
        limit=page.limit + 1,
        offset=page.offset,
    )
    found = past_changes(ws, past)
    shown = [change.record() for change in found[: page.limit]]
    return {"changes": shown, "cursor": page.next(len(found) > page.limit)}


@operations.add(
    f"GET {HERE}/changes/{{change}}",
    "read",
    "One change, as a diff",
    told(**CHANGE["properties"], diff=many(DIFFERENCE)),
)
def read_change(asked: ApiRequest) -> dict[str, Any]:
    ws = asked.workspace()
    change = find_change(ws, asked.named["change"])
    return change.record() | {"diff": _diff_records(diff_change(ws, change.id, max_lines=DIFF_LINES))}


def _diff_records(files: tuple[FileDiff, ...]) -> list[dict[str, Any]]:
    return [fill(DIFFERENCE, one) for one in files]


@operations.add(
    f"POST {HERE}/changes/{{change}}/undo", "write", "Take one change back", UNDONE, body=given(dry_run=DRY_RUN)
)
def undo_change(asked: ApiRequest) -> dict[str, Any]:
    ws, dry_run = asked.workspace(), asked.body.get("dry_run", False)
    return _undo_record(ws, undo(ws, asked.named["change"], dry_run=dry_run))


@operations.add(
    f"POST {HERE}/undo",
    "write",
    "Take back everything of a client or user since a time",
    UNDONE,
    body=given(since=SINCE, **_WHO, dry_run=DRY_RUN),
)
def undo_since(asked: ApiRequest) -> dict[str, Any]:
    ws, body = asked.workspace(), asked.body
    if not body.keys() & {"since", "client", "user"}:
        hint = "give since, client or user: all that a client did since a time is taken back"
        raise Invalid("nothing says what to undo", hint=hint, what="since")
    since = since_time(body["since"], ws.timezone) if "since" in body else 0.0
    who = {"client": body.get("client"), "user": body.get("user")}
    return _undo_record(ws, undo_changes_since(ws, since, **who, dry_run=body.get("dry_run", False)))


def _undo_record(ws: Workspace, undone: Undone) -> dict[str, Any]:
    if undone.done is not None:
        return undone.record(ws)
    return undone.record(ws) | {"diff": _diff_records(preview_undo(ws, undone, max_lines=DIFF_LINES))}
