"""What all pages share: the request and its visitor, the security headers, pages for errors."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.datastructures import QueryParams
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from notewright.engine.library import Library
from notewright.engine.workspace import CALL_SECONDS, Workspace, with_timeout
from notewright.errors import Forbidden, Limited, NotFound, Problem
from notewright.ledger.base import Actor
from notewright.notes.times import format_utc, to_datetime
from notewright.server.auth.authenticate import (
    VISITOR,
    GuardedRoute,
    Need,
    Visitor,
    base_path,
    base_url,
    client_address,
)
from notewright.server.site_context import SiteContext
from notewright.surfaces.http_status import STATUS
from notewright.surfaces.notes.render import pluralize
from notewright.web import addresses
from notewright.web.addresses import asset_url

log = logging.getLogger(__name__)

PAGE = "page"  # the page among the surfaces that a token may be narrowed to
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "same-origin",  # "no-referrer" would hide even from us which page sent a form
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Cache-Control": "no-store",
}
MAX_FORM_FIELDS = 1000
WAIT_SECONDS = 10.0  # for what only the event loop can ask
ADDRESS_FUNCTIONS = ("workspace_url", "note_url", "file_url", "change_url", "activity_url", "url_of")
T = TypeVar("T")


@dataclass(frozen=True)
class PageRequest:
    """One request for a page. `visitor` is None only on open routes."""

    site: SiteContext
    http: Request
    visitor: Visitor | None
    loop: asyncio.AbstractEventLoop
    form: Mapping[str, list[str]] = field(default_factory=dict)

    @property
    def query(self) -> QueryParams:
        return self.http.query_params

    @property
    def params(self) -> dict[str, Any]:
        return self.http.path_params

    @property
    def signed_in(self) -> Visitor:
        """The visitor; only on routes that are not open."""
        assert self.visitor is not None
        return self.visitor

    @property
    def library(self) -> Library:
        """The library as this visitor may see it."""
        return self.signed_in.principal.narrow_library(self.site.library)

    @cached_property
    def ws(self) -> Workspace:
        """The workspace that the URL names by its id, acting for this visitor."""
        for ws in self.library.workspaces():
            if ws.id == self.params["workspace"]:
                asking = ws.by(Actor(self.signed_in.principal.user, "browser", PAGE, "undo"))
                return with_timeout(asking, CALL_SECONDS)
        raise NotFound("there is no such workspace", hint="the notes you may see are listed under Notes", what="page")

    def run_in_loop(self, awaitable: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the event loop, from a worker thread."""
        return asyncio.run_coroutine_threadsafe(awaitable, self.loop).result(WAIT_SECONDS)

    def form_value(self, name: str) -> str:
        """A field of the form, "" where it is missing."""
        return (self.form.get(name) or [""])[0]

    @property
    def base(self) -> str:
        """The address by which clients reach this server."""
        return base_url(self.http.scope, self.site.auth.public_url)

    @property
    def secure(self) -> bool:
        return self.base.startswith("https:")

    def csrf(self) -> str:
        return self.site.auth.cookies.csrf(self.visitor.csrf_subject if self.visitor else "sign-in")

    def page(self, template: str, status: int = 200, /, **values: Any) -> Response:
        """Render a template with the values that all pages need."""
        shown = {"visitor": self.visitor, "here": "", "csrf": self.csrf(), **values}
        if "ws" not in shown:
            shown["ws"] = self.ws if "workspace" in self.params else None
        return HTMLResponse(render(template, **shown), status, HEADERS)

    def redirect(self, address: str) -> Response:
        """Redirect to another page, with a GET."""
        return RedirectResponse(address, 303, {"Cache-Control": "no-store"})


Show = Callable[[PageRequest], Response]


def page_route(site: SiteContext, path: str, show: Show, *, need: Need = "read", post: bool = False) -> GuardedRoute:
    """The route of a page. `show` runs in a worker thread; Problems become pages."""

    async def endpoint(http: Request) -> Response:
        visitor: Visitor | None = http.scope.get(VISITOR)
        addresses.BASE_PATH.set(base_path(site.auth.public_url))
        form = await _parse_form(http) if post else {}
        request = PageRequest(site, http, visitor, asyncio.get_running_loop(), form)
        try:
            async with site.concurrency.slot((visitor and visitor.principal.user) or client_address(http.scope)):
                return await site.workers.run(_check_and_render, request, show, post)
        except Problem as problem:
            return render_problem(request, problem)

    return GuardedRoute(path, endpoint, need=need, methods=["POST" if post else "GET"])


def _check_and_render(request: PageRequest, show: Show, post: bool) -> Response:
    if request.visitor is not None and not request.visitor.principal.uses(PAGE):
        raise Forbidden("this token is for tools, not for the page", hint="sign in with another one", by="rule")
    if post:
        visit = request.visitor.csrf_subject if request.visitor else "sign-in"
        from_our_page = request.http.headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")
        if not from_our_page or not request.site.auth.cookies.check(visit, request.form_value("csrf")):
            raise Forbidden("this form was not made for you, or is too old", hint="open the page again", by="rule")
    return show(request)


async def _parse_form(request: Request) -> dict[str, list[str]]:
    """The fields of a form; none if there are more than any form has, which would take a second to read."""
    try:
        body = (await request.body()).decode("utf-8", "replace")
        return parse_qs(body, keep_blank_values=True, max_num_fields=MAX_FORM_FIELDS)
    except (ClientDisconnect, ValueError):
        return {}


def render_problem(request: PageRequest, problem: Problem) -> Response:
    """The page of an error."""
    status = STATUS[problem.code]
    if status >= 500 and problem.code != "indexing":
        log.warning("a page could not be shown: %s", problem)
    response = request.page("refusal.html", status, problem=problem, status=status, ws=None)
    if isinstance(problem, Limited):
        response.headers["Retry-After"] = str(problem.details["retry_after"])
    return response


# ---- templates ----------------------------------------------------------------------------------------


def render(template: str, **values: Any) -> str:
    return _TEMPLATES.get_template(template).render(values)


def format_time(at: float, zone: tzinfo = UTC) -> str:
    """`24 Feb 2026, 14:03 UTC`."""
    shown = to_datetime(at, zone)
    return f"{shown.day} {shown:%b %Y, %H:%M} {shown.tzname()}"


def format_size(count: float) -> str:
    """`12 bytes`, `3.4 kB`."""
    if count < 1000:
        return f"{count:.0f} bytes"
    unit = next((unit for unit in ("kB", "MB") if (count := count / 1000) < 999.95), "GB")
    return f"{count if unit != 'GB' else count / 1000:.1f} {unit}"


_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.filters |= {"moment": format_time, "rfc3339": format_utc, "size": format_size, "number": pluralize}
_TEMPLATES.globals |= {name: getattr(addresses, name) for name in ADDRESS_FUNCTIONS} | {"asset": asset_url}
