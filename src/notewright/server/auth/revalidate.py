"""Revalidation: streams stay open for hours, so whether their listener may still listen is checked now and then."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.types import Scope

from notewright.accounts.base import Accounts
from notewright.engine.library import Library, Principal
from notewright.errors import Problem
from notewright.mcp.thread_pool import ThreadPool
from notewright.server.auth.authenticate import REAUTHENTICATE, Visitor

RECHECK_SECONDS = 30.0  # after which a listener authenticates again, even if no rule was changed
StillAllowed = Callable[[], Awaitable[bool]]


@dataclass(frozen=True)
class Revalidation:
    """Knows what is served, and by which rules. `registry` tells whether any of them was changed."""

    library: Library
    registry: Accounts
    workers: ThreadPool

    def make_check(self, scope: Scope, who: Principal, shown: Library) -> StillAllowed:
        """A function that says, cheaply when nothing changed, whether the caller would be let in now and be shown the
        same."""
        checked_version, valid_until = -1, 0.0

        async def still_allowed() -> bool:
            nonlocal checked_version, valid_until
            data_version, now = self.registry.data_version(), time.monotonic()
            if data_version == checked_version and now < valid_until:
                return True
            checked_version, valid_until = data_version, now + RECHECK_SECONDS
            try:
                visitor = await scope[REAUTHENTICATE]()
                rules = await self.workers.run(_hidden_globs, who.library(self.library))
            except Problem:  # nobody can say
                return False
            same = isinstance(visitor, Visitor) and visitor.principal == who
            return same and _hidden_globs(shown).items() <= rules.items()

        return still_allowed


def _hidden_globs(library: Library) -> dict[str, tuple[str, ...]]:
    """What is hidden in each workspace there is."""
    return {ws.id: ws.access.hide for ws in library.workspaces()}
