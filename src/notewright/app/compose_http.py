"""Putting the parts together that serve over HTTP: one process or several, one configuration or the next."""

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn
from starlette.applications import Starlette

from notewright.accounts.base import Accounts
from notewright.accounts.limits import RateLimits
from notewright.accounts.limits_files import FileRateLimits
from notewright.api import routes as api
from notewright.api.request import SiteContext
from notewright.app.compose import (
    Reread,
    beyond_this_machine,
    issuer_of,
    log_to_stderr,
    refuse_mistakes,
    surface_named,
)
from notewright.app.open_workspaces import OpenWorkspaces
from notewright.app.opening import open_backups, open_registry, user
from notewright.config.load import Config
from notewright.config.locations import is_bucket
from notewright.config.settings import SURFACES
from notewright.engine.library import LazyLibrary, Library, effective_workspaces
from notewright.engine.transfer.backup import BackupResult, Schedule
from notewright.engine.transfer.restore import last_good_backup
from notewright.errors import Problem
from notewright.mcp.thread_pool import ThreadPool
from notewright.server import mcp_endpoint
from notewright.server.auth import protected_resource
from notewright.server.auth.authenticate import AuthSettings, GuardedRoute, GuardedSocket
from notewright.server.auth.browser_session import BrowserSessions
from notewright.server.auth.revalidate import Revalidation
from notewright.server.auth.scopes import BASIC_SCOPES
from notewright.server.concurrency_limits import ConcurrencyLimits
from notewright.server.listen import tls, uvicorn_server
from notewright.server.listen.bounded_protocol import ConnectionLimits
from notewright.server.listen.supervisor import WorkerSlot
from notewright.server.listen.uvicorn_server import ReplaceableApp
from notewright.server.ops import multiproc_metrics
from notewright.server.ops.audit_log import AuditLog, audit_file
from notewright.server.ops.operations import Operations
from notewright.server.sessions import Sessions
from notewright.surfaces.base import Surface
from notewright.web import routes as page
from notewright.web.event_stream import ActivityFeed

if TYPE_CHECKING:
    from notewright.server.auth.oauth import Issuer
    from notewright.server.live.connections import LiveConnections
    from notewright.server.live.forwarding import LiveHosts

log = logging.getLogger(__name__)
ASK_AGAIN_SECONDS = 3600.0  # between two looks at a bucket for its last backup: they cost requests
THREADS = 64  # for calls, in each process
LOOK_SECONDS = 1.0  # between two looks at whether the owner has added the first live workspace


class Site:
    """What one process serves. The application is made anew when the configuration changes; this stays."""

    def __init__(
        self,
        config: Config,
        registry: Accounts | None = None,
        opened: Callable[[], Library] | None = None,
        counts: Path | None = None,
    ) -> None:
        """`opened` opens the library; without it, the workspaces of the configuration and those the owner added.
        `counts` is where several processes count together."""
        self.config = config
        self.registry = registry or open_registry(config)
        self.audit = AuditLog(audit_file(config["audit_log"], config.state) if config.state else None)
        self.library = LazyLibrary(opened or self._open)
        self.workers = ThreadPool(threads=THREADS)
        self.traffic = RateLimits() if counts is None else FileRateLimits(counts)
        self.sessions = Sessions(self.registry.secret("sessions"), traffic=self.traffic)
        self.operations = Operations(
            self.library,
            self.audit,
            state=Path(config.state),
            cache=Path(config.cache),
            shared=counts,
            backed_up=self._last_backup,
        )
        self._hosts: LiveHosts | None = None
        self._issuer: Issuer | None = None
        self.turned_live: Callable[[], Awaitable[None]] | None = None  # puts a new application in the place of this one
        self._shelf: OpenWorkspaces | None = None
        self._schedule: Schedule | None = None
        self._last: float | None = None  # the last good backup
        self._ask_again = 0.0

    def _open(self) -> OpenWorkspaces:
        self._shelf = OpenWorkspaces(self.config, self.registry, heard=self.audit.record_change, live=True)
        return self._shelf

    def __enter__(self) -> "Site":
        self.library.begin()
        self._keep_backups()
        return self

    def __exit__(self, *error: object) -> None:
        self._end_backups()
        self.library.close()
        self.workers.close()
        self.registry.close()

    def reconfigure(self, config: Config) -> None:
        """Workspaces, rights and limits as they are written now. Where we listen, and how many of us, stays."""
        self.config = config
        log_to_stderr(config)
        if self._shelf is not None:
            self._shelf.reconfigure(config)
        self._end_backups()
        self._keep_backups()

    def _keep_backups(self) -> None:
        if to := self.config["backup.to"]:
            at, days = self.config["backup.at"], self.config["backup.keep_days"]
            place = partial(open_backups, to, self.config)
            self._schedule = Schedule(self.library.workspaces, place, at=at, keep_days=days, on_result=self._backed_up)
            self._schedule.start()

    def _end_backups(self) -> None:
        if self._schedule is not None:
            self._schedule.close()
            self._schedule = None

    def _last_backup(self) -> float | None:
        to = self.config["backup.to"]
        if not to:
            return None
        if not is_bucket(to) or time.monotonic() >= self._ask_again:
            self._ask_again = time.monotonic() + ASK_AGAIN_SECONDS
            with contextlib.suppress(Problem), contextlib.closing(open_backups(to, self.config)) as place:
                self._last = last_good_backup(place)
        return self._last

    def _backed_up(self, result: BackupResult) -> None:
        self._ask_again = 0.0
        self.audit.record_admin("backup", user="", success=result.success, files=result.files_backed_up)

    def app(self, surfaces: Sequence[Surface] | None = None) -> Starlette:
        """The application of the configuration as it is now."""
        config, registry = self.config, self.registry
        surfaces = [surface_named(name, config, self.traffic) for name in SURFACES] if surfaces is None else surfaces
        issuer = issuer_of(config, self._issuer)
        self._issuer = issuer or self._issuer
        cookies = BrowserSessions(registry.secret("cookies"))
        entry = AuthSettings(
            registry,
            issuer=issuer,
            user=user(),
            closed=beyond_this_machine(config) is not None,
            cookies=cookies,
            public_url=config["http.public_url"],
            limiter=self.traffic,
        )
        turns = ConcurrencyLimits.from_config(config, self.traffic)
        live, connections = self._live(turns)
        site = SiteContext(
            self.library,
            self.workers,
            registry,
            config,
            cookies,
            self.audit,
            turns,
            self.traffic,
            lambda place: open_backups(place, config),
            self._hosts,
        )
        feed = ActivityFeed(self.library, self.workers, registry)
        scopes = BASIC_SCOPES if issuer is None else issuer.scopes
        names = [surface.name for surface in surfaces]
        resource = protected_resource.routes(config["http.public_url"], config["auth.issuer"], scopes, names)

        def leave() -> None:
            feed.close()
            if connections is not None:
                connections.close()

        return mcp_endpoint.build_app(
            self.library,
            surfaces,
            config,
            entry,
            sessions=self.sessions,
            operations=self.operations,
            workers=self.workers,
            limits=turns,
            more_routes=[*resource, *live, *page.routes(site, feed), *api.routes(site)],
            end_streams=leave,
            lifespan=self._running,
        )

    @property
    def is_live(self) -> bool:
        """Whether any workspace has live documents."""
        return any(one.live for one in effective_workspaces(self.config, self.registry, added=True))

    @contextlib.asynccontextmanager
    async def _running(self, _: Starlette) -> AsyncIterator[None]:
        """While requests are answered: by the first application, or by one that took its place."""
        hosting = asyncio.create_task(self._host_live())
        try:
            yield
        finally:
            hosting.cancel()
            await asyncio.wait([hosting])
            if self._issuer is not None:
                await self._issuer.__aexit__()

    async def _host_live(self) -> None:
        await self._until_live()
        if self._hosts is not None:
            async with self._hosts:
                await asyncio.Event().wait()

    async def _until_live(self) -> None:
        """Look out for the first live workspace, whose addresses are not there yet."""
        looked_at = None
        while self._hosts is None:
            try:
                if (data_version := self.registry.data_version()) != looked_at and self.is_live:
                    return None if self.turned_live is None else await self.turned_live()
                looked_at = data_version
            except Exception:
                log.exception("a live workspace that was added cannot be served yet")
            await asyncio.sleep(LOOK_SECONDS)

    def _live(self, turns: ConcurrencyLimits) -> "tuple[list[GuardedRoute | GuardedSocket], LiveConnections | None]":
        """The addresses of live documents, where there are any, and who comes there: loaded only then."""
        if not self.is_live:
            return [], None
        from notewright.server.live.access import LiveAuthenticator
        from notewright.server.live.connections import LiveConnections
        from notewright.server.live.forwarding import LiveHosts
        from notewright.server.live.routes import LiveSite

        config, registry, library, workers = self.config, self.registry, self.library, self.workers
        metrics = self.operations.metrics
        hosts = self._hosts = self._hosts or LiveHosts(library, metrics.live_documents.inc)
        who, staying = LiveAuthenticator(registry), Revalidation(library, registry, workers)
        most = max(1, config["http.max_connections"] * 3 // 4)  # the others are for everything else
        connections = LiveConnections(library, who, hosts, workers, staying, most, metrics.live_connections.inc)
        most_bytes = config["http.max_request_bytes"]
        live = LiveSite(library, who, hosts, workers, connections, turns, config["http.public_url"], most_bytes)
        return live.routes(), connections


def work(
    config: Config, reread: Reread, listener: socket.socket, slot: WorkerSlot | None = None, counts: Path | None = None
) -> int:
    """One process that answers, at its slot among several, which count together in `counts`."""
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # strangers could fill the log with warnings
    secured = tls.load(config)
    if counts is not None and slot is not None:
        multiproc_metrics.register_worker(counts, slot.number)
    with Site(config, counts=counts) as site:
        app = ReplaceableApp(site.app())

        async def again() -> None:
            asked = await asyncio.to_thread(reread)
            await asyncio.to_thread(refuse_mistakes, asked)
            await asyncio.to_thread(site.reconfigure, asked)
            if secured is not None:
                secured.reload(asked)
            await renew()

        async def renew() -> None:
            server.allow_websockets(site.is_live)
            app.replace(site.app())

        site.turned_live = renew
        server = uvicorn_server.Server(
            uvicorn.Config(app, **uvicorn_server.settings(secured, websockets=site.is_live)),
            stopping=app.end_streams,
            limits=ConnectionLimits(connections=config["http.max_connections"]),
            slot=slot,
            refused=site.operations.record_cut_connection,
            behind=lambda: site.workers.behind,
            reload=again,
        )
        server.run([listener])
        return 0 if server.started else 1
