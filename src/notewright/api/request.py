"""A request as its endpoint gets it: the caller, the path, the query and the body, all of them checked."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC
from pathlib import Path
from typing import Any, BinaryIO

import jsonschema_rs
from starlette.requests import Request

from notewright.api.schemas import Schema
from notewright.engine.library import Library
from notewright.engine.workspace import CALL_SECONDS, Workspace, with_timeout
from notewright.errors import Invalid, NotFound, Unavailable
from notewright.ledger.base import Actor
from notewright.notes.times import format_utc, parse_duration
from notewright.server.auth.authenticate import Visitor
from notewright.server.request_body import json_object
from notewright.server.site_context import SiteContext
from notewright.surfaces.arguments import OffsetPage, parse_since
from notewright.surfaces.perform import check_arguments, coerce_leniently


@dataclass(frozen=True)
class ApiRequest:
    """One request."""

    site: SiteContext
    visitor: Visitor
    operation: str
    path_params: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Mapping[str, Any] = field(default_factory=dict)
    upload: BinaryIO | None = None

    @property
    def user(self) -> str:
        return self.visitor.principal.user

    @property
    def is_owner(self) -> bool:
        return self.visitor.principal.owner

    @property
    def library(self) -> Library:
        """As this caller may use it."""
        return self.visitor.principal.narrow_library(self.site.library)

    def workspace(self) -> Workspace:
        """The one the path names by its id. A missing one and a hidden one give the same NotFound."""
        wanted = self.path_params["id"]
        for ws in self.library.workspaces():
            if ws.id == wanted:
                return with_timeout(ws.by(Actor(self.user, "api", "api", self.operation)), CALL_SECONDS)
        raise NotFound("there is no such workspace", hint="GET /api/v1/workspaces shows those there are")

    def cache_of(self, ws: Workspace) -> Path:
        """Where the index of a workspace is."""
        if not self.site.config.cache:
            raise Unavailable("this server keeps nothing on disk")
        return Path(self.site.config.cache) / ws.store.identity

    def record_audit(self, action: str, **facts: Any) -> None:
        self.site.operations.audit.record_admin(action, user=self.user, **facts)


def query_of(request: Request, schema: Schema) -> dict[str, Any]:
    """The parameters of the URL, each once, as the types of the schema."""
    pairs = request.query_params.multi_items()
    twice = {name for name, _ in pairs if sum(name == other for other, _ in pairs) > 1}
    if twice:
        raise Invalid(f"{min(twice)} is given more than once", hint="give it once", what=min(twice))
    return _validate(schema, coerce_leniently(schema, dict(pairs)))


async def body_of(request: Request, schema: Schema | None) -> dict[str, Any]:
    """The JSON object that was sent; an empty body is an empty object."""
    body = await request.body()
    if not body:
        return {} if schema is None else _validate(schema, {})
    if schema is None:
        raise Invalid("this takes no body", hint="send none", what="body")
    if media_type(request) != "application/json":
        raise Invalid("the body must be JSON", hint="send it with Content-Type: application/json", what="body")
    return _validate(schema, json_object(body))


def media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _validate(schema: Schema, args: dict[str, Any]) -> dict[str, Any]:
    return check_arguments(schema, jsonschema_rs.Draft202012Validator(dict(schema)), args)


def page_of(request: ApiRequest, limit: int, cursor: str, *more: object) -> OffsetPage:
    """The wanted part of a long answer. Invalid for a cursor of another question, or of another `more`."""
    question = sorted(item for item in request.query.items() if item[0] not in ("limit", "cursor"))
    about = repr((request.operation, request.path_params, question, more))
    return OffsetPage.of(about, {**request.query, "cursor": cursor}, limit, ())


def parse_expiry(raw: str, now: float) -> float:
    """A time, or a duration from now: `90d`, `12h`."""
    span = parse_duration(raw.strip())
    return parse_since(raw, UTC, "expires") if span is None else now + span


def format_optional_utc(seconds: float | None) -> str | None:
    return None if seconds is None else format_utc(seconds)
