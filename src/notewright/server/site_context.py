"""What the parts of one application share: the MCP endpoints, the API, the page, live documents."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.types import Scope

from notewright.accounts.base import Accounts
from notewright.config.load import Config
from notewright.engine.library import Library, Principal
from notewright.engine.transfer.manifest import BackupPlace
from notewright.errors import Problem
from notewright.mcp.thread_pool import ThreadPool
from notewright.server.auth.authenticate import REAUTHENTICATE, AuthSettings, Visitor
from notewright.server.concurrency_limits import ConcurrencyLimits
from notewright.server.ops.operations import Operations
from notewright.server.sessions import Sessions

if TYPE_CHECKING:
    from notewright.server.live.forwarding import LiveHosts

RECHECK_SECONDS = 30.0  # after which the listener of a stream authenticates again, even if no rule was changed
StillAllowed = Callable[[], Awaitable[bool]]


@dataclass(frozen=True)
class SiteContext:
    """The same for every request, until the configuration changes."""

    library: Library
    workers: ThreadPool
    registry: Accounts
    config: Config
    auth: AuthSettings
    operations: Operations
    sessions: Sessions
    concurrency: ConcurrencyLimits  # of each caller, for everything that is served
    open_backups: Callable[[str], BackupPlace]  # to be closed
    hosts: "LiveHosts | None"  # of live documents, where there are any

    def make_check(self, scope: Scope, who: Principal, shown: Library) -> StillAllowed:
        """For a stream, which stays open for hours: a function that says, cheaply when nothing changed, whether its
        listener would be let in now and be shown the same."""
        checked_version, valid_until = -1, 0.0

        async def still_allowed() -> bool:
            nonlocal checked_version, valid_until
            data_version, now = self.registry.data_version(), time.monotonic()
            if data_version == checked_version and now < valid_until:
                return True
            checked_version, valid_until = data_version, now + RECHECK_SECONDS
            try:
                visitor = await scope[REAUTHENTICATE]()
                rules = await self.workers.run(_hidden_globs, who.narrow_library(self.library))
            except Problem:  # nobody can say
                return False
            same = isinstance(visitor, Visitor) and visitor.principal == who
            return same and _hidden_globs(shown).items() <= rules.items()

        return still_allowed


def _hidden_globs(library: Library) -> dict[str, tuple[str, ...]]:
    """What is hidden in each workspace there is."""
    return {ws.id: ws.access.hide for ws in library.workspaces()}
