"""The JSON API: `/api/v1`. Every operation stands in one table, from which its route and the OpenAPI document are made:
that cannot say what is not so."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from notewright import __version__
from notewright.api import admin, history, notes, schemas, workspaces
from notewright.api.operation import NotFoundRoute, Operation, OperationRoute, OperationTable
from notewright.api.request import ApiRequest, SiteContext
from notewright.api.schemas import Schema
from notewright.server.auth.authenticate import GuardedRoute

described = OperationTable()
_OPENAPI = {"type": "object", "description": "OpenAPI 3.1"}


@described.add("GET /api/v1/openapi.json", "read", "This description", _OPENAPI)
def describe(asked: ApiRequest) -> dict[str, Any]:
    return document(OPERATIONS)


OPERATIONS: tuple[Operation, ...] = (
    *described,
    *admin.operations,
    *workspaces.operations,
    *notes.operations,
    *history.operations,
)


def routes(site: SiteContext) -> list[GuardedRoute]:
    """A route for every operation, and one for whatever else is asked for below `/api`."""
    missing = [NotFoundRoute(path, OPERATIONS) for path in ("/api", "/api/{rest:path}")]
    return [*(OperationRoute(one, site) for one in OPERATIONS), *missing]


# ---- the OpenAPI document -----------------------------------------------------------------------------

NAMED: Mapping[str, Schema] = {  # every form that `schemas.py` names
    name.title().replace("_", ""): shape
    for name, shape in vars(schemas).items()
    if name.isupper() and isinstance(shape, Mapping) and shape.get("properties")
}
_ABOUT = """\
Everything an owner can do without restarting a server, and reading notes for programs that do not speak MCP.
Send an access token as `Authorization: Bearer …`. Every refusal is `{"error": {"code", "message", "hint"}}`; without a
good token it is 401 in the words of RFC 6750."""
_NEEDS = {
    "read": "Any token.",
    "write": "A token that may write.",
    "owner": "A token that nothing narrows.",
}


def document(operations: Sequence[Operation]) -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for one in operations:
        paths.setdefault(one.plain_path, {})[one.method.lower()] = _operation(one)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Notewright", "version": __version__, "description": _ABOUT},
        "paths": paths,
        "components": {
            "schemas": {name: _inside(shape) for name, shape in NAMED.items()},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _operation(one: Operation) -> dict[str, Any]:
    said: dict[str, Any] = {
        "operationId": one.name if one.plain_path != "/admin/backup" else "make_backup_too",
        "summary": one.summary,
        "description": _NEEDS[one.need],
        "parameters": [*_path_parameters(one), *_query_parameters(one.query)],
        "responses": {str(one.status): _answer(one), "default": _json("Why not", schemas.PROBLEM)},
    }
    if one.uploads:
        said["requestBody"] = {"required": True, "content": {"application/zip": {"schema": {}}}}
    elif one.body is not None:
        content = {"application/json": {"schema": _reference(one.body)}}
        said["requestBody"] = {"required": bool(one.body.get("required")), "content": content}
    return said


def _path_parameters(one: Operation) -> list[dict[str, Any]]:
    names = re.findall(r"\{(\w+)\}", one.plain_path)
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]


def _query_parameters(query: Schema) -> list[dict[str, Any]]:
    required = query.get("required", ())
    return [
        {"name": name, "in": "query", "required": name in required, "schema": dict(shape)}
        for name, shape in query["properties"].items()
    ]


def _answer(one: Operation) -> dict[str, Any]:
    if one.answer is None:
        return {"description": one.summary, "content": {"application/zip": {"schema": {}}}}
    return _json(one.summary, one.answer)


def _json(about: str, shape: Schema) -> dict[str, Any]:
    return {"description": about, "content": {"application/json": {"schema": _reference(shape)}}}


def _reference(shape: Any) -> Any:
    """A shape by its name where it has one."""
    for name, known in NAMED.items():
        if shape is known:
            return {"$ref": f"#/components/schemas/{name}"}
    return _inside(shape)


def _inside(shape: Any) -> Any:
    if isinstance(shape, Mapping):
        return {key: _reference(value) for key, value in shape.items()}
    return [_reference(item) for item in shape] if isinstance(shape, list) else shape
