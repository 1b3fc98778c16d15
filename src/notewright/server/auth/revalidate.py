"""Streams stay open for hours, and rights may end meanwhile: whether whoever listens may still do so."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.types import Scope

from notewright.accounts.base import Accounts
from notewright.engine.library import Library, Principal
from notewright.errors import Problem
from notewright.mcp.thread_pool import ThreadPool
from notewright.server.auth.authenticate import AGAIN, Visitor

ASK_AGAIN_SECONDS = 30.0  # seconds after which who listens is asked who they are, even if no rule was changed
Stays = Callable[[], Awaitable[bool]]


@dataclass(frozen=True)
class Revalidation:
    """Knows what is served, and by which rules. `registry` tells whether any of them was changed."""

    library: Library
    registry: Accounts
    workers: ThreadPool

    def check(self, scope: Scope, who: Principal, shown: Library) -> Stays:
        """To be asked now and then: would they be let in now, and be shown the same?"""
        asked_at, soon = -1, 0.0

        async def stays() -> bool:
            nonlocal asked_at, soon
            pulse, now = self.registry.pulse(), time.monotonic()
            if pulse == asked_at and now < soon:
                return True
            asked_at, soon = pulse, now + ASK_AGAIN_SECONDS
            try:
                visitor = await scope[AGAIN]()
                rules = await self.workers.run(_hidden, who.library(self.library))
            except Problem:  # nobody can say
                return False
            same = isinstance(visitor, Visitor) and visitor.principal == who
            return same and _hidden(shown).items() <= rules.items()

        return stays


def _hidden(library: Library) -> dict[str, tuple[str, ...]]:
    """What is hidden in each workspace there is."""
    return {ws.id: ws.access.hide for ws in library.workspaces()}
