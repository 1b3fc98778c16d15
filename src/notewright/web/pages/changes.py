"""The page of one change with its diffs, the preview of an undo, and the undo itself."""

import re
from collections.abc import Callable, Mapping
from functools import partial
from urllib.parse import urlencode

from starlette.responses import Response

from notewright.engine.changes.history import FileDiff, UndoResult, diff_change, find_change, preview_undo
from notewright.engine.changes.history import undo as undo_change
from notewright.engine.changes.history import undo_since as undo_changes_since
from notewright.engine.workspace import Workspace
from notewright.errors import Conflict, Invalid, Problem
from notewright.ledger.base import Change
from notewright.web.addresses import change_url, url_of, workspace_url
from notewright.web.frame import PageRequest, format_time
from notewright.web.pages.activity import ActivityRow, parse_since

MAX_LINES = 1_000  # of all differences of one page together
MAX_CHARS = 2_000  # of one line
MAX_FILES = 200
MARKS = {"+": "added", "-": "removed", "@": "place"}


def _format_diff_line(line: str) -> str:
    """A line of a diff; a hunk header in words."""
    place = re.match(r"@@ -\d+(?:,\d+)? \+(\d+)", line)
    if place:
        return f"Line {max(int(place[1]), 1)}"
    return line if len(line) <= MAX_CHARS else f"{line[:MAX_CHARS]} … ({len(line) - MAX_CHARS:,} more letters)"


def _diff_values(found: tuple[FileDiff, ...]) -> dict[str, object]:
    """The values of diffs for a template: each with its lines and the kind of each line."""
    shown = [
        (one, [(MARKS.get(line[:1], "same"), _format_diff_line(line)) for line in one.lines])
        for one in found[:MAX_FILES]
    ]
    return {"differences": shown, "unshown": max(len(found) - MAX_FILES, 0)}


def change(request: PageRequest) -> Response:
    one = find_change(request.ws, request.params["change"])
    found = diff_change(request.ws, one.id, max_lines=MAX_LINES)
    since = {"client": one.actor.client, "user": one.actor.user, "since": repr(one.at)}  # its client, from it on
    return request.page(
        "change.html",
        row=ActivityRow(request.ws, one),
        may_undo=may_write(request.ws) and one.undone_by is None,
        undo_since=f"{workspace_url(request.ws, 'undo')}?{urlencode(since)}" if may_write(request.ws) else None,
        done=request.query.get("done") == "undo" and bool(one.undoes),
        kept="kept" in request.query,
        **_diff_values(found),
    )


def may_write(ws: Workspace) -> bool:
    return not ws.access.read_only


# ---- taking back --------------------------------------------------------------------------------------


def undo(request: PageRequest) -> Response:
    """The preview of undoing one change."""
    name = request.params["change"]
    one = find_change(request.ws, name)
    dry_run = partial(undo_change, request.ws, name, dry_run=True)
    return _preview(request, dry_run, back=change_url(request.ws, name), one=one)


def undo_now(request: PageRequest) -> Response:
    return _redirect_after_undo(request, undo_change(request.ws, request.params["change"]))


def undo_since(request: PageRequest) -> Response:
    """The preview of undoing everything that one client did since a time."""
    fields, since = _parse_undo_since(request, request.query)
    by = f" of {fields['user']}" if fields.get("user") else ""
    who = {"": "clients without a name", "notewright": "the command line"}.get(fields["client"], fields["client"]) + by
    what = f"everything {who} changed since {format_time(since, request.ws.timezone)}"
    dry_run = partial(_undo_since, request.ws, since, fields, dry_run=True)
    return _preview(request, dry_run, back=url_of("/"), what=what, fields=fields)


def undo_since_now(request: PageRequest) -> Response:
    fields, since = _parse_undo_since(request, {name: request.form_value(name) for name in request.form})
    return _redirect_after_undo(request, _undo_since(request.ws, since, fields))


def _undo_since(ws: Workspace, since: float, fields: Mapping[str, str], *, dry_run: bool = False) -> UndoResult:
    return undo_changes_since(ws, since, client=fields["client"], user=fields.get("user"), dry_run=dry_run)


def _parse_undo_since(request: PageRequest, given: Mapping[str, str]) -> tuple[dict[str, str], float]:
    """Parse whose changes to undo, and since when. The client is required, though its name may be empty."""
    fields = {name: given[name] for name in ("client", "since", "user") if name in given}
    if "client" not in fields or not fields.get("since"):
        raise Invalid("say whose changes, and since when", hint="begin from a change in the activity", what="since")
    return fields, parse_since(fields["since"], request.ws)


def _preview(
    request: PageRequest, dry_run: Callable[[], UndoResult], *, back: str, what: str = "", one: Change | None = None,
    fields: dict[str, str] | None = None,
) -> Response:  # fmt: skip
    """A page with what an undo would do and a button, or with the obstacles."""
    values: dict[str, object] = {"what": what, "row": ActivityRow(request.ws, one) if one else None, "back": back}
    values |= {"fields": fields or {}, "action": url_of(request.http.url.path), "changes": [], "obstacles": []}
    try:
        undone = dry_run()
    except Conflict as problem:
        obstacles = problem.details.get("obstacles", ())[:MAX_FILES]
        stopped: dict[str, object] = {"problem": problem, "may": False, "obstacles": obstacles}
        return request.page("undo.html", 409, **values | stopped, **_diff_values(()))
    seen = [ActivityRow(request.ws, change) for change in _visible_changes(request.ws, undone.changes)]
    shown = _diff_values(preview_undo(request.ws, undone, max_lines=MAX_LINES))
    values |= {"problem": None, "changes": [] if one else seen, "may": may_write(request.ws)}
    values["kept"] = [each.path for each in undone.kept[:MAX_FILES]]
    return request.page("undo.html", **values, **shown)


def _visible_changes(ws: Workspace, changes: tuple[Change, ...]) -> list[Change]:
    """These changes as this visitor may see them."""
    found = []
    for each in changes[:MAX_FILES]:
        try:
            found.append(find_change(ws, each.id))
        except Problem:
            continue
    return found


def _redirect_after_undo(request: PageRequest, undone: UndoResult) -> Response:
    """Redirect to the change that is the undo."""
    done = undone.done
    kept = f"&kept={len(undone.kept)}" if undone.kept else ""
    return request.redirect(f"{change_url(request.ws, done.id)}?done=undo{kept}" if done and done.id else url_of("/"))
