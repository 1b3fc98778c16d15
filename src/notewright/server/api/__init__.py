"""The JSON API: `/api/v1`. Every operation stands in one table, from which its route and its documentation are made."""

from collections.abc import Sequence
from typing import Any

from notewright.config import Config
from notewright.engine import Registry
from notewright.server.api import carrying, history, notes, openapi, owners, schemas, workspaces
from notewright.server.api.asking import Asked, Site, Told
from notewright.server.api.door import ApiDoor, Forms, Nowhere, Turns
from notewright.server.api.table import Operation
from notewright.server.gate import Door
from notewright.server.workers import Workers
from notewright.surfaces import Library


def routes(
    library: Library,
    workers: Workers,
    registry: Registry,
    config: Config,
    *,
    cookies: Forms | None = None,
    audit: Told | None = None,
    turns: Turns | None = None,
) -> list[Door]:
    """A door for every operation, and one for whatever else is asked for below `/api`.

    `cookies` knows the tokens of our own forms, `audit` is told what owners do, `turns` holds callers to their limits.
    """
    site = Site(library, registry, config, audit or _untold)
    table = operations(config["http.max_request_bytes"])
    doors: list[Door] = [ApiDoor(one, site, workers, cookies, turns) for one in table]
    return [*doors, Nowhere("/api", table), Nowhere("/api/{rest:path}", table)]


def operations(most_bytes: int) -> tuple[Operation, ...]:
    """Everything there is, the description of it included."""
    table = (
        *owners.OPERATIONS,
        *workspaces.OPERATIONS,
        *notes.OPERATIONS,
        *history.OPERATIONS,
        *carrying.operations(most_bytes),
    )
    return (_described(table), *table)


def _described(table: Sequence[Operation]) -> Operation:
    def describe(asked: Asked) -> dict[str, Any]:
        return openapi.document((itself, *table))

    shape = {"type": "object", "description": "OpenAPI 3.1"}
    itself = Operation("GET", "/api/v1/openapi.json", "read", "This description", describe, shape)
    return itself


def _untold(action: str, **facts: Any) -> None:
    return None


__all__ = ["Operation", "operations", "routes", "schemas"]
