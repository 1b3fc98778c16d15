"""Workspaces: which there are, what holds in them, their indexes, and all of one as a zip file, out and in. Owners
change them without a restart."""

import threading
from collections.abc import Sequence
from typing import Any

from notewright.api import schemas
from notewright.api.operation import OperationTable, Pieces
from notewright.api.request import ApiRequest, maybe_stamp
from notewright.api.schemas import fill, given, many, maybe, text, told
from notewright.config.load import CHANGEABLE_SETTINGS, WorkspaceConfig
from notewright.engine import library
from notewright.engine.indexing.rebuild import begin_rebuild, rebuild_progress
from notewright.engine.read import listing
from notewright.engine.transfer.export import zip_pieces
from notewright.engine.transfer.import_files import import_files
from notewright.engine.workspace import Workspace
from notewright.errors import Invalid, Problem
from notewright.index.base import Selection
from notewright.surfaces.schema import flag

MAX_ERRORS = 100
ALL, ONE = "/api/v1/workspaces", "/api/v1/workspaces/{id}"
operations = OperationTable()


@operations.add(f"GET {ALL}", "read", "The workspaces you may use", told(workspaces=many(schemas.WORKSPACE)))
def list_workspaces(asked: ApiRequest) -> dict[str, Any]:
    opened = [_workspace_record(asked, ws) for ws in asked.library.workspaces()]
    known = {one["id"] for one in opened}
    return {"workspaces": opened + [_owners_record(asked, one) for one in _served(asked) if one.id not in known]}


def _served(asked: ApiRequest) -> Sequence[WorkspaceConfig]:
    """What is to be served, for owners: also what cannot be opened now."""
    return library.effective_workspaces(asked.site.config, asked.site.registry) if asked.owner else ()


def _workspace_record(asked: ApiRequest, ws: Workspace) -> dict[str, Any]:
    """What somebody may know of a workspace; where it is and what is hidden in it, only an owner."""
    one = next((one for one in _served(asked) if one.id == ws.id), None)
    if one is not None:
        return _owners_record(asked, one)
    return {"id": ws.id, "name": ws.name, "timezone": str(ws.timezone), "read_only": ws.access.read_only}


def _owners_record(asked: ApiRequest, one: WorkspaceConfig) -> dict[str, Any]:
    available = any(ws.id == one.id for ws in asked.library.workspaces())
    return library.workspace_record(one, asked.site.registry) | {"available": available}


_PLACE = text("A folder beneath workspaces_root, made if it is not there; without it, one called like the id", least=1)
_NEW = given("name", name=schemas.NAME, location=_PLACE, **schemas.SETTINGS)


@operations.add(
    f"POST {ALL}", "owner", "Serve another workspace, from now on", schemas.WORKSPACE, body=_NEW, status=201
)
def add_workspace(asked: ApiRequest) -> dict[str, Any]:
    settings = {key: value for key, value in asked.body.items() if key in CHANGEABLE_SETTINGS}
    site = asked.site
    one = library.add_beneath(site.config, site.registry, asked.body["name"], asked.body.get("location"), settings)
    asked.audited("workspace_added", workspace=one.id, settings=sorted(settings))
    return _owners_record(asked, one)


@operations.add(f"GET {ONE}", "read", "One workspace", schemas.WORKSPACE)
def read_workspace(asked: ApiRequest) -> dict[str, Any]:
    ws = asked.workspace()
    return {**_workspace_record(asked, ws), "notes": count_notes(ws)}


def count_notes(ws: Workspace) -> int | None:
    """How many notes there are for whom asks; None while that is not known."""
    try:
        return listing(ws, Selection(limit=1, visible=ws.access.visibility))[1]
    except Problem:  # the index is not there yet, or the notes are not
        return None


_ABOUT = "Change its name or settings; null is what the configuration says. The id stays"


@operations.add(
    f"PATCH {ONE}", "owner", _ABOUT, schemas.WORKSPACE, body=given(name=maybe(schemas.NAME), **schemas.CHANGES)
)
def change_workspace(asked: ApiRequest) -> dict[str, Any]:
    if not asked.body:
        hint = f"give name, {', '.join(CHANGEABLE_SETTINGS)}; null takes one back"
        raise Invalid("nothing says what to change", hint=hint, what="body")
    one = library.change(asked.site.config, asked.site.registry, _id(asked), asked.body)
    asked.audited("workspace_changed", workspace=one.id, settings=sorted(asked.body))
    return _owners_record(asked, one)


@operations.add(
    f"DELETE {ONE}", "owner", "Serve one no longer that was added; its notes stay where they are", told(removed=text())
)
def remove_workspace(asked: ApiRequest) -> dict[str, Any]:
    one = library.drop(asked.site.config, asked.site.registry, _id(asked))
    asked.audited("workspace_dropped", workspace=one.id)
    return {"removed": one.id}


def _id(asked: ApiRequest) -> str:
    """The id that the path names, also of one that cannot be opened now: an owner may mend that."""
    named = asked.named["id"]
    return named if any(one.id == named for one in _served(asked)) else asked.workspace().id


# ---- its index ----------------------------------------------------------------------------------------


@operations.add(
    f"POST {ONE}/rebuild-index", "owner", "Rebuild the index beside the one in use", schemas.REBUILD, status=202
)
def rebuild_index(asked: ApiRequest) -> dict[str, Any]:
    """Begun here and now; one that is under way, in whichever process, is left to go on."""
    ws = asked.workspace()
    rebuilding = begin_rebuild(asked.cache_of(ws))
    if rebuilding is not None:
        threading.Thread(target=rebuilding.run, args=(ws,), name="rebuild", daemon=True).start()
        asked.audited("rebuild", workspace=ws.id)
    return _rebuild_record(asked, ws)


@operations.add(f"GET {ONE}/rebuild-index", "read", "How far a rebuild of the index is", schemas.REBUILD)
def rebuild_status(asked: ApiRequest) -> dict[str, Any]:
    return _rebuild_record(asked, asked.workspace())


def _rebuild_record(asked: ApiRequest, ws: Workspace) -> dict[str, Any]:
    now = rebuild_progress(ws, asked.cache_of(ws))
    countable = asked.owner or not ws.access.hide
    counted = now.done if now.done is not None else ws.index.count()[0]
    return fill(
        schemas.REBUILD,
        now,
        notes_indexed=counted if countable else None,
        total=now.total if countable else None,
        errors=[] if now.status == "running" else _unreadable_notes(ws),
        began=maybe_stamp(now.began),
        ended=maybe_stamp(now.ended),
    )


def _unreadable_notes(ws: Workspace) -> list[dict[str, str]]:
    files, _ = ws.index.select(Selection(notes_only=True, visible=ws.access.visibility))
    bad = [{"path": str(filed.path), "message": filed.problem} for filed in files if filed.problem]
    return bad[:MAX_ERRORS]


# ---- as zip files -------------------------------------------------------------------------------------


@operations.add(f"GET {ONE}/export.zip", "read", "Every file you may see, as a zip file", None)
def export_zip(asked: ApiRequest) -> Pieces:
    """Made as it is sent."""
    ws = asked.workspace()
    asked.audited("export", workspace=ws.id)
    return zip_pieces(ws)


_HOW = given(
    into=text("The folder they come into; without it, the top", most=4096),
    overwrite=flag("Replace files that are there"),
    dry_run=schemas.DRY_RUN,
)


@operations.add(f"POST {ONE}/import", "write", "Bring in the files of a zip file", schemas.IMPORTED, _HOW, uploads=True)
def import_zip(asked: ApiRequest) -> dict[str, Any]:
    ws = asked.workspace()
    assert asked.upload is not None
    report = import_files(ws, asked.upload, **asked.query)
    if not report.dry_run:
        asked.audited("import", workspace=ws.id, created=len(report.created), replaced=len(report.replaced))
    return report.record()
