"""The JSON API: `/api/v1`. Every operation stands in one table, from which its route and its documentation are made."""

from typing import Any

from notewright.api import admin, history, notes, openapi, workspaces
from notewright.api.operation import NotFoundRoute, Operation, OperationRoute, OperationTable
from notewright.api.request import ApiRequest, SiteContext
from notewright.server.auth.authenticate import GuardedRoute

described = OperationTable()
_OPENAPI = {"type": "object", "description": "OpenAPI 3.1"}


@described.add("GET /api/v1/openapi.json", "read", "This description", _OPENAPI)
def describe(asked: ApiRequest) -> dict[str, Any]:
    return openapi.document(OPERATIONS)


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
