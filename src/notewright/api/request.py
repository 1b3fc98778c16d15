"""A request as its endpoint gets it: the caller, the path, the query and the body, all of them checked."""

import hashlib
import math
import re
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
from notewright.surfaces.arguments import parse_since
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


@dataclass(frozen=True, slots=True)
class CursorPage:
    """The wanted part of a long answer. `until` is when its first page was made: later changes are not in it."""

    digest: str  # of the question
    limit: int
    offset: int
    until: float

    @classmethod
    def from_request(cls, request: ApiRequest, limit: int, now: float = 0.0) -> "CursorPage":
        """Invalid for a cursor of another question."""
        question = {key: value for key, value in request.query.items() if key not in ("limit", "cursor")}
        key = repr((request.operation, request.path_params, sorted(question.items())))
        digest = hashlib.sha256(key.encode()).hexdigest()[:12]
        size, cursor = request.query.get("limit", limit), request.query.get("cursor")
        if not cursor:
            return cls(digest, size, 0, math.ceil(now * 1000) / 1000)  # the same in the cursor, to the last digit
        match = re.fullmatch(rf"([0-9a-f]{{1,8}})-([0-9a-f]{{1,16}})-{digest}", cursor, re.ASCII)
        if match is None:
            raise Invalid("this cursor belongs to another question", hint="leave it out to begin again", what="cursor")
        return cls(digest, size, int(match[1], 16), int(match[2], 16) / 1000)

    def next_cursor(self, more: bool) -> str | None:
        """The cursor of the next page, if there is one."""
        return f"{self.offset + self.limit:x}-{round(self.until * 1000):x}-{self.digest}" if more else None


def parse_expiry(raw: str, now: float) -> float:
    """A time, or a duration from now: `90d`, `12h`."""
    span = parse_duration(raw.strip())
    return parse_since(raw, UTC, "expires") if span is None else now + span


def format_optional_utc(seconds: float | None) -> str | None:
    return None if seconds is None else format_utc(seconds)
