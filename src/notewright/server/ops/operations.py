"""For whoever runs the server: what it does, how it is, and what happened. One value ties numbers, logs and audit log
together, and everything that serves requests tells it."""

import hashlib
import logging
from collections.abc import Callable
from pathlib import Path

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from notewright.engine.library import Library, Principal
from notewright.mcp.thread_pool import ThreadPool
from notewright.server.auth.authenticate import VISITOR, GuardedRoute, Narrow, visitor_of
from notewright.server.ops.audit_log import AuditLog
from notewright.server.ops.health import CachedProbe, health_document, workspace_health
from notewright.server.ops.metrics import (
    CONTENT_TYPE,
    CUT_OFF,
    REASONS,
    Metrics,
    ScrapedNumbers,
    workspace_label,
    workspace_numbers,
)
from notewright.server.request_context import NOW, RequestContext

access = logging.getLogger("notewright.access")
COUNTS = "metrics"  # the numbers among the surfaces that a token may be narrowed to
SCRAPE_SECONDS = 5.0  # for what has to be looked up
# Why a token was refused, by the kind of refusal that it is.
_KINDS = {"invalid_token": "unauthenticated", "insufficient_scope": "forbidden"}
# Outcomes of calls that mean: somebody tried what they may not.
_WATCHED = frozenset({"forbidden", "read_only", "limited", "quota"})


class Operations:
    """Told of every request and every call; asked by the routes `/healthz`, `/readyz` and `/metrics`."""

    def __init__(
        self,
        library: Library,
        audit: AuditLog,
        *,
        state: Path,
        cache: Path,
        shared: Path | None = None,
        backed_up: Callable[[], float | None] = lambda: None,
    ) -> None:
        """`state` and `cache` hold a folder for each workspace. `shared` is where several workers count together.
        `backed_up` is when the last backup succeeded."""
        self.audit = audit
        self.metrics = Metrics(shared)
        self._library = library
        self._places = state, cache
        self._backed_up = backed_up

    def began(self) -> None:
        """A call of a tool, prompt or resource begins."""
        self.metrics.began()

    def ended(self, surface: str, tool: str, outcome: str, seconds: float) -> None:
        """And ends."""
        self.metrics.ended(surface, tool, outcome, seconds)
        visit = NOW.get()
        if visit is not None:
            visit.surface, visit.tool, visit.outcome = surface, tool, outcome

    def finished(self, visit: RequestContext) -> None:
        """A request is over."""
        self.metrics.answered(visit.route, visit.status)
        reason = visit.refused or REASONS.get(visit.status, "")
        if reason:
            self.metrics.refused(_KINDS.get(reason, reason))
            self.audit.refused(visit, reason, visit.status)
        elif visit.outcome in _WATCHED:
            self.audit.refused(visit, visit.outcome, visit.status)
        self.audit.came(visit)
        if access.isEnabledFor(logging.INFO):
            _log(visit, reason)

    def cut_off(self, status: int) -> None:
        """A connection was ended before there was a request to speak of: too large a head, too slow, no room."""
        self.metrics.refused(CUT_OFF.get(status, "malformed"))

    def routes(self, workers: ThreadPool) -> list[GuardedRoute]:
        """Health and readiness for anybody, numbers for those who may come in."""
        standings = CachedProbe(lambda: list(map(workspace_health, self._library.workspaces())), workers)
        found = CachedProbe(self._scrape, workers, wait=SCRAPE_SECONDS)

        async def alive(_: Request) -> Response:
            return JSONResponse({"status": "ok"})

        async def readiness(request: Request) -> Response:
            visitor = request.scope.get(VISITOR)
            counts = visitor is not None and may_count(visitor.principal)
            status, words = health_document(await standings.now(), counts=counts)
            return JSONResponse(words, status, {"Cache-Control": "no-store"})

        async def numbers(request: Request) -> Response:
            if not may_count(visitor_of(request).principal):
                raise Narrow(request.scope, "This token is not for the numbers of the server", f"surface:{COUNTS}")
            text = await workers.run(self.metrics.text, await found.now())
            return Response(text, headers={"Content-Type": CONTENT_TYPE, "Cache-Control": "no-store"})

        return [
            GuardedRoute("/healthz", alive, need="open"),
            GuardedRoute("/health", alive, need="open"),
            GuardedRoute("/readyz", readiness, need="open"),
            GuardedRoute("/metrics", numbers, need="read"),
        ]

    def _scrape(self) -> ScrapedNumbers:
        spaces = {workspace_label(ws): workspace_numbers(ws, *self._places) for ws in self._library.workspaces()}
        return ScrapedNumbers(spaces, self._backed_up())


def may_count(who: Principal) -> bool:
    """The numbers are of the whole server: for whom nothing is hidden from, and for tokens that were made for them."""
    grant = who.grant
    sees_all = grant.workspaces is None and grant.surfaces is None and not grant.hide
    return sees_all or COUNTS in (grant.surfaces or ())


def _log(visit: RequestContext, reason: str) -> None:
    """One line for each request: how it went, and of the person a hash."""
    call = f"{visit.surface}.{visit.tool}" if visit.tool else ""
    user = hashlib.sha256(visit.user.encode("utf-8", "replace")).hexdigest()[:16] if visit.user else ""
    facts = {
        "method": method if (method := visit.scope.get("method", "GET")).isalpha() else "?",
        "route": visit.route or "none",
        "status": visit.status,
        "ms": round(visit.seconds * 1000, 1),
        "bytes": visit.size,
        "surface": visit.surface,
        "tool": visit.tool,
        "outcome": visit.outcome,
        "refused": reason,
        "user": user,
    }
    words = [f"{facts['method']} {facts['route']} {visit.status} {facts['ms']} ms {visit.size} bytes"]
    words += [part for part in (call, visit.outcome, reason, f"user {user}" if user else "") if part]
    known = {name: value for name, value in facts.items() if value != ""}
    access.info("%s", ", ".join(words), extra={"facts": known})
