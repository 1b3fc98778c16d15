"""The history of changes, and undo."""

import math
import time
from typing import Any

from notewright.api import schemas
from notewright.api.operation import OperationTable
from notewright.api.request import ApiRequest, page_of
from notewright.api.schemas import CHANGE, DIFFERENCE, DRY_RUN, SINCE, UNDONE, array, fill, number, returns, takes, text
from notewright.engine.changes.history import FileDiff, UndoResult, diff_change, find_change, preview_undo, undo
from notewright.engine.changes.history import list_changes as past_changes
from notewright.engine.changes.history import undo_since as undo_changes_since
from notewright.engine.workspace import Workspace
from notewright.errors import Invalid
from notewright.ledger.base import ChangeQuery
from notewright.surfaces.arguments import parse_since

DIFF_LINES = 2000
operations = OperationTable("/api/v1/workspaces/{id}")
_ACTOR = {
    "client": text("Only of this client", most=200, least=1),
    "user": text("Only of this user", most=200, least=1),
}
_FILTERS = takes(
    path=text("Of a note, under its former names too, or of a folder", most=4096, least=1),
    **_ACTOR,
    since=SINCE,
    limit=number("At most so many; 50 without it", least=1, most=500),
    cursor=schemas.CURSOR,
)


@operations.add(
    "GET /changes",
    "read",
    "What was changed through us, newest first",
    returns(changes=array(CHANGE), cursor=schemas.NEXT),
    _FILTERS,
)
def list_changes(request: ApiRequest) -> dict[str, Any]:
    ws, query = request.workspace(), request.query
    cursor, _, made = query.get("cursor", "").rpartition("-")
    made = made or f"{math.ceil(time.time() * 1000):x}"  # the first page: later changes are in none of the next
    page = page_of(request, 50, cursor or query.get("cursor", ""), made)
    past = ChangeQuery(
        path=query.get("path"),
        since=parse_since(query["since"], ws.timezone) if "since" in query else None,
        until=int(made, 16) / 1000,
        client=query.get("client"),
        user=query.get("user"),
        limit=page.limit + 1,
        offset=page.offset,
    )
    found = past_changes(ws, past)
    records = [change.record() for change in found[: page.limit]]
    is_last = len(found) <= page.limit
    return {"changes": records, "cursor": None if is_last else f"{page.cursor(page.limit)}-{made}"}


@operations.add(
    "GET /changes/{change}", "read", "One change, as a diff", returns(**CHANGE["properties"], diff=array(DIFFERENCE))
)
def read_change(request: ApiRequest) -> dict[str, Any]:
    ws = request.workspace()
    change = find_change(ws, request.path_params["change"])
    return change.record() | {"diff": _diff_records(diff_change(ws, change.id, max_lines=DIFF_LINES))}


def _diff_records(files: tuple[FileDiff, ...]) -> list[dict[str, Any]]:
    return [fill(DIFFERENCE, file) for file in files]


@operations.add("POST /changes/{change}/undo", "write", "Take one change back", UNDONE, body=takes(dry_run=DRY_RUN))
def undo_change(request: ApiRequest) -> dict[str, Any]:
    ws, dry_run = request.workspace(), request.body.get("dry_run", False)
    return _undo_record(ws, undo(ws, request.path_params["change"], dry_run=dry_run))


@operations.add(
    "POST /undo",
    "write",
    "Take back everything of a client or user since a time",
    UNDONE,
    body=takes(since=SINCE, **_ACTOR, dry_run=DRY_RUN),
)
def undo_since(request: ApiRequest) -> dict[str, Any]:
    ws, body = request.workspace(), request.body
    if not body.keys() & {"since", "client", "user"}:
        hint = "give since, client or user: all that a client did since a time is taken back"
        raise Invalid("nothing says what to undo", hint=hint, what="since")
    since = parse_since(body["since"], ws.timezone) if "since" in body else 0.0
    who = {"client": body.get("client"), "user": body.get("user")}
    return _undo_record(ws, undo_changes_since(ws, since, **who, dry_run=body.get("dry_run", False)))


def _undo_record(ws: Workspace, undone: UndoResult) -> dict[str, Any]:
    if undone.done is not None:
        return undone.record(ws)
    return undone.record(ws) | {"diff": _diff_records(preview_undo(ws, undone, max_lines=DIFF_LINES))}
