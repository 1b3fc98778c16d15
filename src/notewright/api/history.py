"""What was done, and taking it back."""

import time
from typing import Any

from notewright.api import schemas
from notewright.api.operation import Operation
from notewright.api.request import ApiRequest, CursorPage, moment, stamp
from notewright.api.schemas import flag, given, many, number, text, told
from notewright.engine.changes.history import FileDiff, Undone, diff_change, find_change, preview_undo, undo
from notewright.engine.changes.history import list_changes as past_changes
from notewright.engine.changes.history import undo_since as undo_changes_since
from notewright.engine.workspace import Workspace
from notewright.errors import Invalid
from notewright.ledger.base import Change, Past

DIFF_LINES = 2000


def list_changes(asked: ApiRequest) -> dict[str, Any]:
    ws, query = asked.workspace(), asked.query
    page = CursorPage.of(asked, 50, now=time.time())
    past = Past(
        path=query.get("path"),
        since=moment(query["since"], ws.timezone) if "since" in query else None,
        until=page.until,
        client=query.get("client"),
        user=query.get("user"),
        limit=page.limit + 1,
        offset=page.offset,
    )
    found = past_changes(ws, past)
    shown = [_change(change) for change in found[: page.limit]]
    return {"changes": shown, "cursor": page.next(len(found) > page.limit)}


def _change(change: Change) -> dict[str, Any]:
    return {
        "id": change.id,
        "at": stamp(change.at),
        "user": change.actor.user,
        "client": change.actor.client,
        "surface": change.actor.surface,
        "tool": change.actor.tool,
        "summary": change.summary,
        "files": [step.path for step in change.steps],
        "undoes": list(change.undoes),
        "undone_by": change.undone_by,
    }


def read_change(asked: ApiRequest) -> dict[str, Any]:
    ws = asked.workspace()
    change = find_change(ws, asked.named["change"])
    diff = diff_change(ws, change.id, max_lines=DIFF_LINES)
    return {**_change(change), "diff": [_difference(one) for one in diff]}


def _difference(one: FileDiff) -> dict[str, Any]:
    return {
        "path": one.path,
        "kind": one.kind,
        "source": one.source,
        "lines": list(one.lines),
        "cut": one.cut,
        "why": one.why,
    }


def undo_change(asked: ApiRequest) -> dict[str, Any]:
    ws, dry_run = asked.workspace(), asked.body.get("dry_run", False)
    return _undone(ws, undo(ws, asked.named["change"], dry_run=dry_run))


def undo_since(asked: ApiRequest) -> dict[str, Any]:
    ws, body = asked.workspace(), asked.body
    if not body.keys() & {"since", "client", "user"}:
        hint = "give since, client or user: all that a client did since a time is taken back"
        raise Invalid("nothing says what to undo", hint=hint, what="since")
    since = moment(body["since"], ws.timezone) if "since" in body else 0.0
    who = {"client": body.get("client"), "user": body.get("user")}
    return _undone(ws, undo_changes_since(ws, since, **who, dry_run=body.get("dry_run", False)))


def _undone(ws: Workspace, undone: Undone) -> dict[str, Any]:
    told: dict[str, Any] = {
        "undone": [change.id for change in undone.changes],
        "dry_run": undone.done is None,
        "files": sorted({step.path for step in undone.plan.steps if ws.access.sees(step.path)}),
        "kept": sorted(one.path for one in undone.kept),
        "change": undone.done.id if undone.done else None,
    }
    if undone.done is None:
        told["diff"] = [_difference(one) for one in preview_undo(ws, undone, max_lines=DIFF_LINES)]
    return told


HERE = "/api/v1/workspaces/{id}"
_CLIENT, _USER = text("Only of this client", most=200, least=1), text("Only of this user", most=200, least=1)
_DRY = flag("Only say what would happen")
OPERATIONS = (
    Operation(
        "GET",
        f"{HERE}/changes",
        "read",
        "What was changed through us, newest first",
        list_changes,
        told(changes=many(schemas.CHANGE), cursor=schemas.NEXT),
        given(
            path=text("Of a note, under its former names too, or of a folder", most=4096, least=1),
            client=_CLIENT,
            user=_USER,
            since=schemas.SINCE,
            limit=number("At most so many; 50 without it", least=1, most=500),
            cursor=schemas.CURSOR,
        ),
    ),
    Operation(
        "GET",
        f"{HERE}/changes/{{change}}",
        "read",
        "One change, as a diff",
        read_change,
        told(**schemas.CHANGE["properties"], diff=many(schemas.DIFFERENCE)),
    ),
    Operation(
        "POST",
        f"{HERE}/changes/{{change}}/undo",
        "write",
        "Take one change back",
        undo_change,
        schemas.UNDONE,
        body=given(dry_run=_DRY),
    ),
    Operation(
        "POST",
        f"{HERE}/undo",
        "write",
        "Take back everything of a client or user since a time",
        undo_since,
        schemas.UNDONE,
        body=given(since=schemas.SINCE, client=_CLIENT, user=_USER, dry_run=_DRY),
    ),
)
