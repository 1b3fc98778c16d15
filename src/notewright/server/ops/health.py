"""Readiness: whether the notes can be reached, and the index is up to date.

Anybody may ask, so the answer holds no names; counts of notes are for those who may read the metrics.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from notewright.engine.indexing.ready import is_fresh
from notewright.engine.workspace import Workspace
from notewright.errors import Problem
from notewright.mcp.thread_pool import ThreadPool

log = logging.getLogger(__name__)
T = TypeVar("T")

WAIT_SECONDS = 2.0  # for a probe
KEEP_SECONDS = 1.0  # for which its result is used again


@dataclass(frozen=True, slots=True)
class WorkspaceHealth:
    """The state of one workspace. `building`: calls that need the index wait for it."""

    index: Literal["fresh", "building", "stale"]
    done: int = 0
    total: int | None = None
    reachable: bool = False

    @property
    def ready(self) -> bool:
        return self.reachable and self.index == "fresh"


def workspace_health(ws: Workspace) -> WorkspaceHealth:
    """Probed now; takes as long as the store does."""
    try:
        now = ws.follower.progress()
        reachable = ws.store.healthy()
        if reachable:
            next(iter(ws.store.entries()), None)
    except Problem:
        return WorkspaceHealth("stale")
    if now.stale is not None:
        return WorkspaceHealth("stale", now.done, now.total, reachable)
    return WorkspaceHealth("fresh" if is_fresh(ws) else "building", now.done, now.total, reachable)


def health_document(healths: Sequence[WorkspaceHealth] | None, *, counts: bool = True) -> tuple[int, dict[str, Any]]:
    """The status and the document for it; None: the probe took too long, or the library is not open."""
    if healths is None:
        return 503, {"ready": False, "store": "unknown"} | ({"workspaces": []} if counts else {})
    ready = bool(healths) and all(health.ready for health in healths)
    store = "reachable" if all(health.reachable for health in healths) else "unreachable"
    workspaces = [{"index": health.index, "done": health.done, "total": health.total} for health in healths]
    return (200 if ready else 503), {"ready": ready, "store": store} | ({"workspaces": workspaces} if counts else {})


@dataclass(eq=False)
class CachedProbe(Generic[T]):
    """A slow lookup that runs once at a time, is cached for a moment, and is waited for no longer than `wait` seconds.
    A disk that hangs costs one thread, however many ask."""

    look: Callable[[], T]
    workers: ThreadPool
    wait: float = WAIT_SECONDS
    keep: float = KEEP_SECONDS
    _running: "asyncio.Task[T | None] | None" = None
    _fresh_until: float = 0.0

    async def now(self) -> T | None:
        """The result; None if the lookup failed, or not in time."""
        running = self._running
        if running is None or (running.done() and time.monotonic() >= self._fresh_until):
            running = self._running = asyncio.create_task(self._run())
        await asyncio.wait({running}, timeout=self.wait)
        return running.result() if running.done() else None

    async def _run(self) -> T | None:
        try:
            return await self.workers.run(self.look)
        except Exception as error:
            log.debug("a probe failed", exc_info=error)
            return None
        finally:
            self._fresh_until = time.monotonic() + self.keep
