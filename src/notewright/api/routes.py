"""The JSON API: `/api/v1`. Routes and the OpenAPI document are made from one table, so they always agree."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from notewright import __version__
from notewright.api import admin, history, notes, schemas, workspaces
from notewright.api.operation import NotFoundRoute, Operation, OperationRoute, OperationTable
from notewright.api.request import ApiRequest
from notewright.api.schemas import Schema
from notewright.server.auth.authenticate import GuardedRoute
from notewright.server.site_context import SiteContext

openapi_operations = OperationTable()
_OPENAPI = {"type": "object", "description": "OpenAPI 3.1"}


@openapi_operations.add("GET /api/v1/openapi.json", "read", "This description", _OPENAPI)
def describe(request: ApiRequest) -> dict[str, Any]:
    return document(OPERATIONS)


OPERATIONS: tuple[Operation, ...] = (
    *openapi_operations,
    *admin.operations,
    *workspaces.operations,
    *notes.operations,
    *history.operations,
)


def routes(site: SiteContext) -> list[GuardedRoute]:
    """A route for every operation, and one for all other paths below `/api`."""
    missing = [NotFoundRoute(path, OPERATIONS) for path in ("/api", "/api/{rest:path}")]
    return [*(OperationRoute(operation, site) for operation in OPERATIONS), *missing]


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
    for operation in operations:
        paths.setdefault(operation.plain_path, {})[operation.method.lower()] = _describe_operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Notewright", "version": __version__, "description": _ABOUT},
        "paths": paths,
        "components": {
            "schemas": {name: _with_references(shape) for name, shape in NAMED.items()},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _describe_operation(operation: Operation) -> dict[str, Any]:
    required = operation.query.get("required", ())
    in_path = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"\{(\w+)\}", operation.plain_path)
    ]
    in_query = [
        {"name": name, "in": "query", "required": name in required, "schema": dict(shape)}
        for name, shape in operation.query["properties"].items()
    ]
    zip_file: dict[str, Any] = {"application/zip": {"schema": {}}}
    answer = zip_file if operation.answer is None else _json_content(operation.answer)
    described: dict[str, Any] = {
        "operationId": operation.name if operation.plain_path != "/admin/backup" else "make_backup_too",
        "summary": operation.summary,
        "description": _NEEDS[operation.need],
        "parameters": [*in_path, *in_query],
        "responses": {
            str(operation.status): {"description": operation.summary, "content": answer},
            "default": {"description": "Why not", "content": _json_content(schemas.PROBLEM)},
        },
    }
    if operation.uploads:
        described["requestBody"] = {"required": True, "content": zip_file}
    elif operation.body is not None:
        required = bool(operation.body.get("required"))
        described["requestBody"] = {"required": required, "content": _json_content(operation.body)}
    return described


def _json_content(shape: Schema) -> dict[str, Any]:
    return {"application/json": {"schema": _reference(shape)}}


def _reference(shape: Any) -> Any:
    """A shape by its name where it has one."""
    for name, named in NAMED.items():
        if shape is named:
            return {"$ref": f"#/components/schemas/{name}"}
    return _with_references(shape)


def _with_references(shape: Any) -> Any:
    if isinstance(shape, Mapping):
        return {key: _reference(value) for key, value in shape.items()}
    return [_reference(item) for item in shape] if isinstance(shape, list) else shape
