"""Operations: everything that serves requests reports here, to metrics, access log and audit log."""

import hashlib
import logging
from collections.abc import Callable
from pathlib import Path

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from notewright.engine.library import Library, Principal
from notewright.mcp.thread_pool import ThreadPool
from notewright.server.auth.authenticate import VISITOR, GuardedRoute, InsufficientScope, get_visitor
from notewright.server.ops.audit_log import AuditLog
from notewright.server.ops.health import CachedProbe, health_document, workspace_health
from notewright.server.ops.metrics import (
    CONTENT_TYPE,
    CUT_REASONS,
    REASONS,
    Metrics,
    ScrapedNumbers,
    workspace_label,
    workspace_numbers,
)
from notewright.server.request_context import CURRENT_REQUEST, RequestContext

access_log = logging.getLogger("notewright.access")
METRICS_SURFACE = "metrics"  # the metrics' name among the surfaces that a token may be narrowed to
SCRAPE_SECONDS = 5.0  # to wait for what has to be looked up
_AUTH_REASONS = {"invalid_token": "unauthenticated", "insufficient_scope": "forbidden"}
_AUDITED_OUTCOMES = frozenset({"forbidden", "read_only", "limited", "quota"})  # of attempts to do what is not allowed


class Operations:
    """Records every request and every call; serves `/healthz`, `/readyz` and `/metrics`."""

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
        self._folders = state, cache
        self._backed_up = backed_up

    def record_start(self) -> None:
        """Count the start of a call of a tool, prompt or resource."""
        self.metrics.record_start()

    def record_end(self, surface: str, tool: str, outcome: str, seconds: float) -> None:
        """Count the end of a call, and note it for the access log."""
        self.metrics.record_end(surface, tool, outcome, seconds)
        context = CURRENT_REQUEST.get()
        if context is not None:
            context.surface, context.tool, context.outcome = surface, tool, outcome

    def record_request(self, context: RequestContext) -> None:
        """Record a finished request in metrics, audit log and access log."""
        self.metrics.record_request(context.route, context.status)
        reason = context.refusal or REASONS.get(context.status, "")
        if reason:
            self.metrics.record_refusal(_AUTH_REASONS.get(reason, reason))
            self.audit.record_refusal(context, reason, context.status)
        elif context.outcome in _AUDITED_OUTCOMES:
            self.audit.record_refusal(context, context.outcome, context.status)
        self.audit.record_visitor(context)
        if access_log.isEnabledFor(logging.INFO):
            _log_access(context, reason)

    def record_cut_connection(self, status: int) -> None:
        """Count a connection that was closed before there was a request: head too large, too slow, or too many."""
        self.metrics.record_refusal(CUT_REASONS.get(status, "malformed"))

    def routes(self, workers: ThreadPool) -> list[GuardedRoute]:
        """Health and readiness without authentication, metrics for those who may read them."""
        healths = CachedProbe(lambda: list(map(workspace_health, self._library.workspaces())), workers)
        scraped = CachedProbe(self._scrape, workers, wait=SCRAPE_SECONDS)

        async def alive(_: Request) -> Response:
            return JSONResponse({"status": "ok"})

        async def readiness(request: Request) -> Response:
            visitor = request.scope.get(VISITOR)
            counts = visitor is not None and _may_read_metrics(visitor.principal)
            status, document = health_document(await healths.now(), counts=counts)
            return JSONResponse(document, status, {"Cache-Control": "no-store"})

        async def metrics(request: Request) -> Response:
            if not _may_read_metrics(get_visitor(request).principal):
                words = "This token is not for the numbers of the server"
                raise InsufficientScope(request.scope, words, f"surface:{METRICS_SURFACE}")
            text = await workers.run(self.metrics.to_text, await scraped.now())
            return Response(text, headers={"Content-Type": CONTENT_TYPE, "Cache-Control": "no-store"})

        return [
            GuardedRoute("/healthz", alive, need="open"),
            GuardedRoute("/health", alive, need="open"),
            GuardedRoute("/readyz", readiness, need="open"),
            GuardedRoute("/metrics", metrics, need="read"),
        ]

    def _scrape(self) -> ScrapedNumbers:
        spaces = {workspace_label(ws): workspace_numbers(ws, *self._folders) for ws in self._library.workspaces()}
        return ScrapedNumbers(spaces, self._backed_up())


def _may_read_metrics(who: Principal) -> bool:
    """Whether a caller may read metrics of the whole server: nothing is hidden from it, or its token is for metrics."""
    grant = who.grant
    sees_all = grant.workspaces is None and grant.surfaces is None and not grant.hide
    return sees_all or METRICS_SURFACE in (grant.surfaces or ())


def _log_access(context: RequestContext, reason: str) -> None:
    """Write one line on a request to the access log, with a hash of the user."""
    call = f"{context.surface}.{context.tool}" if context.tool else ""
    user = hashlib.sha256(context.user.encode("utf-8", "replace")).hexdigest()[:16] if context.user else ""
    facts = {
        "method": method if (method := context.scope.get("method", "GET")).isalpha() else "?",
        "route": context.route or "none",
        "status": context.status,
        "ms": round(context.seconds * 1000, 1),
        "bytes": context.size,
        "surface": context.surface,
        "tool": context.tool,
        "outcome": context.outcome,
        "refused": reason,
        "user": user,
    }
    words = [f"{facts['method']} {facts['route']} {context.status} {facts['ms']} ms {context.size} bytes"]
    words += [part for part in (call, context.outcome, reason, f"user {user}" if user else "") if part]
    facts = {name: value for name, value in facts.items() if value != ""}
    access_log.info("%s", ", ".join(words), extra={"facts": facts})
