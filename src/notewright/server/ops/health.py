"""Whether we are of use: the notes can be reached, and questions are answered by an index that is up to date.

Anybody may ask, so the answer holds nothing that has a name; how many notes there are is told to those who may count.
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

WAIT_SECONDS = 2.0
KEEP_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class WorkspaceHealth:
    """How one workspace is doing. `building`: calls that need the index wait for it."""

    index: Literal["fresh", "building", "stale"]
    done: int = 0
    total: int | None = None
    reachable: bool = False

    @property
    def ready(self) -> bool:
        return self.reachable and self.index == "fresh"


def workspace_health(ws: Workspace) -> WorkspaceHealth:
    """Looked up now; takes as long as the store does."""
    try:
        now = ws.follower.progress()
        reachable = _reachable(ws)
    except Problem:
        return WorkspaceHealth("stale")
    if now.stale is not None:
        return WorkspaceHealth("stale", now.done, now.total, reachable)
    return WorkspaceHealth("fresh" if is_fresh(ws) else "building", now.done, now.total, reachable)


def _reachable(ws: Workspace) -> bool:
    """The notes are where they were, and can be listed."""
    if not ws.store.healthy():
        return False
    next(iter(ws.store.entries()), None)
    return True


def health_document(standings: Sequence[WorkspaceHealth] | None, *, counts: bool = True) -> tuple[int, dict[str, Any]]:
    """The status and the words for it; None: nobody could tell in time, or the library is not open."""
    if standings is None:
        return 503, {"ready": False, "store": "unknown"} | ({"workspaces": []} if counts else {})
    ready = bool(standings) and all(one.ready for one in standings)
    reachable = all(one.reachable for one in standings)
    spaces = [{"index": one.index, "done": one.done, "total": one.total} for one in standings]
    store = "reachable" if reachable else "unreachable"
    return (200 if ready else 503), {"ready": ready, "store": store} | ({"workspaces": spaces} if counts else {})


@dataclass(eq=False)
class CachedProbe(Generic[T]):
    """Something that takes a while to find out: asked for once at a time, remembered for a moment, and not waited for
    any longer than promised. A disk that hangs costs one thread, however many ask."""

    look: Callable[[], T]
    workers: ThreadPool
    wait: float = WAIT_SECONDS
    keep: float = KEEP_SECONDS
    _looking: "asyncio.Task[T | None] | None" = None
    _until: float = 0.0

    async def now(self) -> T | None:
        """None if it could not be found out, or not in time."""
        looking = self._looking
        if looking is None or (looking.done() and time.monotonic() >= self._until):
            looking = self._looking = asyncio.create_task(self._find_out())
        await asyncio.wait({looking}, timeout=self.wait)
        return looking.result() if looking.done() else None

    async def _find_out(self) -> T | None:
        try:
            return await self.workers.run(self.look)
        except Exception as error:
            log.debug("not found out", exc_info=error)
            return None
        finally:
            self._until = time.monotonic() + self.keep
