"""The JSON API: `/api/v1`. Every operation stands in one table, from which its route and its documentation are made."""

from collections.abc import Sequence
from typing import Any

from notewright.accounts.base import Accounts
from notewright.api import admin, archives, history, notes, openapi, workspaces
from notewright.api.operation import ApiRoute, CallerLimits, FormTokens, NotFoundRoute, Operation
from notewright.api.request import ApiContext, ApiRequest, AuditSink
from notewright.config.load import Config
from notewright.mcp.thread_pool import ThreadPool
from notewright.server.auth.authenticate import GuardedRoute
from notewright.surfaces.base import Library


def routes(
    library: Library,
    workers: ThreadPool,
    registry: Accounts,
    config: Config,
    *,
    cookies: FormTokens | None = None,
    audit: AuditSink | None = None,
    turns: CallerLimits | None = None,
) -> list[GuardedRoute]:
    """A door for every operation, and one for whatever else is asked for below `/api`.

    `cookies` knows the tokens of our own forms, `audit` is told what owners do, `turns` holds callers to their limits.
    """
    site = ApiContext(library, registry, config, audit or _untold)
    table = operations(config["http.max_request_bytes"])
    doors: list[GuardedRoute] = [ApiRoute(one, site, workers, cookies, turns) for one in table]
    return [*doors, NotFoundRoute("/api", table), NotFoundRoute("/api/{rest:path}", table)]


def operations(most_bytes: int) -> tuple[Operation, ...]:
    """Everything there is, the description of it included."""
    table = (
        *admin.OPERATIONS,
        *workspaces.OPERATIONS,
        *notes.OPERATIONS,
        *history.OPERATIONS,
        *archives.operations(most_bytes),
    )
    return (_described(table), *table)


def _described(table: Sequence[Operation]) -> Operation:
    def describe(asked: ApiRequest) -> dict[str, Any]:
        return openapi.document((itself, *table))

    shape = {"type": "object", "description": "OpenAPI 3.1"}
    itself = Operation("GET", "/api/v1/openapi.json", "read", "This description", describe, shape)
    return itself


def _untold(action: str, **facts: Any) -> None:
    return None
