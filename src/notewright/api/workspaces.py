"""Workspaces: listing them, their settings, rebuilding an index, export and import of zip files. Owners change them
without a restart."""

import threading
from collections.abc import Sequence
from typing import Any

from notewright.api import schemas
from notewright.api.operation import OperationTable, Pieces
from notewright.api.request import ApiRequest, format_optional_utc
from notewright.api.schemas import array, fill, nullable, returns, takes, text
from notewright.config.load import CHANGEABLE_SETTINGS, WorkspaceConfig
from notewright.engine import library
from notewright.engine.indexing.rebuild import begin_rebuild, rebuild_progress
from notewright.engine.read import list_files
from notewright.engine.transfer.export import zip_pieces
from notewright.engine.transfer.import_files import import_files
from notewright.engine.workspace import Workspace
from notewright.errors import Invalid, Problem
from notewright.index.base import Selection
from notewright.surfaces.schema import flag

MAX_ERRORS = 100
operations = OperationTable("/api/v1/workspaces")


@operations.add("GET", "read", "The workspaces you may use", returns(workspaces=array(schemas.WORKSPACE)))
def list_workspaces(request: ApiRequest) -> dict[str, Any]:
    opened = [_workspace_record(request, ws) for ws in request.library.workspaces()]
    ids = {record["id"] for record in opened}
    closed = [_owners_record(request, config) for config in _owners_configs(request) if config.id not in ids]
    return {"workspaces": opened + closed}


def _owners_configs(request: ApiRequest) -> Sequence[WorkspaceConfig]:
    """For owners, all that is to be served, also what cannot be opened now; for others, nothing."""
    return library.effective_workspaces(request.site.config, request.site.registry) if request.is_owner else ()


def _workspace_record(request: ApiRequest, ws: Workspace) -> dict[str, Any]:
    """What a caller may know of a workspace; its location and what is hidden in it, only an owner."""
    config = next((config for config in _owners_configs(request) if config.id == ws.id), None)
    if config is not None:
        return _owners_record(request, config)
    return {"id": ws.id, "name": ws.name, "timezone": str(ws.timezone), "read_only": ws.access.read_only}


def _owners_record(request: ApiRequest, config: WorkspaceConfig) -> dict[str, Any]:
    available = any(ws.id == config.id for ws in request.library.workspaces())
    return library.workspace_record(config, request.site.registry) | {"available": available}


_LOCATION = text(
    "A folder beneath workspaces_root, made if it is not there; without it, one called like the id", least=1
)
_NEW = takes("name", name=schemas.NAME, location=_LOCATION, **schemas.SETTINGS)


@operations.add("POST", "owner", "Serve another workspace, from now on", schemas.WORKSPACE, body=_NEW, status=201)
def add_workspace(request: ApiRequest) -> dict[str, Any]:
    settings = {key: value for key, value in request.body.items() if key in CHANGEABLE_SETTINGS}
    site = request.site
    added = library.add_beneath(
        site.config, site.registry, request.body["name"], request.body.get("location"), settings
    )
    request.record_audit("workspace_added", workspace=added.id, settings=sorted(settings))
    return _owners_record(request, added)


@operations.add("GET /{id}", "read", "One workspace", schemas.WORKSPACE)
def read_workspace(request: ApiRequest) -> dict[str, Any]:
    ws = request.workspace()
    return {**_workspace_record(request, ws), "notes": count_notes(ws)}


def count_notes(ws: Workspace) -> int | None:
    """How many notes the caller may see; None while that is unknown."""
    try:
        return list_files(ws, Selection(limit=1, visible=ws.access.visibility))[1]
    except Problem:  # the index is not there yet, or the notes are not
        return None


_CHANGE_SUMMARY = "Change its name or settings; null is what the configuration says. The id stays"


@operations.add(
    "PATCH /{id}",
    "owner",
    _CHANGE_SUMMARY,
    schemas.WORKSPACE,
    body=takes(name=nullable(schemas.NAME), **schemas.CHANGES),
)
def change_workspace(request: ApiRequest) -> dict[str, Any]:
    if not request.body:
        hint = f"give name, {', '.join(CHANGEABLE_SETTINGS)}; null takes one back"
        raise Invalid("nothing says what to change", hint=hint, what="body")
    changed = library.change(request.site.config, request.site.registry, _workspace_id(request), request.body)
    request.record_audit("workspace_changed", workspace=changed.id, settings=sorted(request.body))
    return _owners_record(request, changed)


@operations.add(
    "DELETE /{id}",
    "owner",
    "Serve one no longer that was added; its notes stay where they are",
    returns(removed=text()),
)
def remove_workspace(request: ApiRequest) -> dict[str, Any]:
    removed = library.drop(request.site.config, request.site.registry, _workspace_id(request))
    request.record_audit("workspace_dropped", workspace=removed.id)
    return {"removed": removed.id}


def _workspace_id(request: ApiRequest) -> str:
    """The id that the path names, also of a workspace that cannot be opened now: an owner may mend that."""
    named = request.path_params["id"]
    return named if any(config.id == named for config in _owners_configs(request)) else request.workspace().id


@operations.add(
    "POST /{id}/rebuild-index", "owner", "Rebuild the index beside the one in use", schemas.REBUILD, status=202
)
def rebuild_index(request: ApiRequest) -> dict[str, Any]:
    """Begin a rebuild; one that is under way, in whichever process, goes on."""
    ws = request.workspace()
    rebuilding = begin_rebuild(request.cache_of(ws))
    if rebuilding is not None:
        threading.Thread(target=rebuilding.run, args=(ws,), name="rebuild", daemon=True).start()
        request.record_audit("rebuild", workspace=ws.id)
    return _rebuild_record(request, ws)


@operations.add("GET /{id}/rebuild-index", "read", "How far a rebuild of the index is", schemas.REBUILD)
def rebuild_status(request: ApiRequest) -> dict[str, Any]:
    return _rebuild_record(request, request.workspace())


def _rebuild_record(request: ApiRequest, ws: Workspace) -> dict[str, Any]:
    now = rebuild_progress(ws, request.cache_of(ws))
    countable = request.is_owner or not ws.access.hide
    indexed = now.done if now.done is not None else ws.index.total("notes")
    unreadable: list[dict[str, str]] = []
    if now.status != "running":
        files, _ = ws.index.select(Selection(notes_only=True, visible=ws.access.visibility))
        unreadable = [{"path": str(filed.path), "message": filed.problem} for filed in files if filed.problem]
    return fill(
        schemas.REBUILD,
        now,
        notes_indexed=indexed if countable else None,
        total=now.total if countable else None,
        errors=unreadable[:MAX_ERRORS],
        began=format_optional_utc(now.began),
        ended=format_optional_utc(now.ended),
    )


@operations.add("GET /{id}/export.zip", "read", "Every file you may see, as a zip file", None)
def export_zip(request: ApiRequest) -> Pieces:
    """Stream the zip file while it is made."""
    ws = request.workspace()
    request.record_audit("export", workspace=ws.id)
    return zip_pieces(ws)


_IMPORT_OPTIONS = takes(
    into=text("The folder they come into; without it, the top", most=4096),
    overwrite=flag("Replace files that are there"),
    dry_run=schemas.DRY_RUN,
)


@operations.add(
    "POST /{id}/import", "write", "Bring in the files of a zip file", schemas.IMPORTED, _IMPORT_OPTIONS, uploads=True
)
def import_zip(request: ApiRequest) -> dict[str, Any]:
    ws = request.workspace()
    assert request.upload is not None
    report = import_files(ws, request.upload, **request.query)
    if not report.dry_run:
        request.record_audit("import", workspace=ws.id, created=len(report.created), replaced=len(report.replaced))
    return report.record()
