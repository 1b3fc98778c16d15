"""Puts the parts together that one process needs to serve over HTTP, and again when the configuration changes."""

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
from notewright.app.compose import ReadConfig, find_network_exposure, load_surface
from notewright.app.open_workspaces import OpenWorkspaces
from notewright.app.opening import open_backups, open_registry, process_user
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
from notewright.server.auth.authenticate import AuthSettings
from notewright.server.auth.browser_session import BrowserSessions
from notewright.server.auth.scopes import BASIC_SCOPES
from notewright.server.concurrency_limits import ConcurrencyLimits
from notewright.server.listen import tls, uvicorn_server
from notewright.server.listen.bounded_protocol import ConnectionLimits
from notewright.server.listen.supervisor import WorkerSlot
from notewright.server.ops import multiproc_metrics
from notewright.server.ops.audit_log import AuditLog, audit_file
from notewright.server.ops.operations import Operations
from notewright.server.sessions import Sessions
from notewright.server.site_context import SiteContext
from notewright.surfaces.base import Surface
from notewright.web import routes as page
from notewright.web.event_stream import ActivityFeed

if TYPE_CHECKING:
    from notewright.server.auth.oauth import Issuer
    from notewright.server.live.forwarding import LiveHosts
    from notewright.server.live.routes import LiveSite

log = logging.getLogger(__name__)
BACKUP_LOOKUP_SECONDS = 3600.0  # between two lookups of the last backup in a bucket: they cost requests
THREADS = 64  # for calls, in each process
LIVE_POLL_SECONDS = 1.0  # between two looks at whether the owner has added the first live workspace


class Site:
    """What one process serves. The application is built anew when the configuration changes; this stays."""

    def __init__(
        self,
        config: Config,
        registry: Accounts | None = None,
        opened: Callable[[], Library] | None = None,
        counts: Path | None = None,
    ) -> None:
        """`opened` opens the library; without it, the workspaces of the configuration and those the owner added.
        `counts` is the folder in which several processes count together."""
        self.config = config
        self.registry = registry or open_registry(config)
        self.audit = AuditLog(audit_file(config["audit_log"], config.state) if config.state else None)
        self.library = LazyLibrary(opened or self._open)
        self.workers = ThreadPool(threads=THREADS)
        self.rate_limits = RateLimits() if counts is None else FileRateLimits(counts)
        self.sessions = Sessions(self.registry.secret("sessions"), rate_limits=self.rate_limits)
        self.operations = Operations(
            self.library,
            self.audit,
            state=Path(config.state),
            cache=Path(config.cache),
            shared=counts,
            backed_up=self._last_backup,
        )
        self.replace_app: Callable[[], Awaitable[None]] | None = None  # by one with the addresses of live documents
        self._hosts: LiveHosts | None = None
        self._issuer: Issuer | None = None
        self._workspaces: OpenWorkspaces | None = None
        self._schedule: Schedule | None = None
        self._last_good_backup: float | None = None
        self._look_up_backup_at = 0.0

    def _open(self) -> OpenWorkspaces:
        self._workspaces = OpenWorkspaces(self.config, self.registry, on_change=self.audit.record_change, live=True)
        return self._workspaces

    def __enter__(self) -> "Site":
        self.library.begin()
        self._restart_backups()
        return self

    def __exit__(self, *error: object) -> None:
        if self._schedule is not None:
            self._schedule.close()
        self.library.close()
        self.workers.close()
        self.registry.close()

    def reconfigure(self, config: Config) -> None:
        """Take over workspaces, rights and limits."""
        self.config = config
        if self._workspaces is not None:
            self._workspaces.reconfigure(config)
        self._restart_backups()

    def _restart_backups(self) -> None:
        if self._schedule is not None:
            self._schedule.close()
            self._schedule = None
        if to := self.config["backup.to"]:
            at, days = self.config["backup.at"], self.config["backup.keep_days"]
            place = partial(open_backups, to, self.config)
            self._schedule = Schedule(self.library.workspaces, place, at=at, keep_days=days, on_result=self._backed_up)
            self._schedule.start()

    def _backed_up(self, result: BackupResult) -> None:
        self._look_up_backup_at = 0.0
        self.audit.record_admin("backup", user="", success=result.success, files=result.files_backed_up)

    def _last_backup(self) -> float | None:
        to = self.config["backup.to"]
        if not to:
            return None
        if not is_bucket(to) or time.monotonic() >= self._look_up_backup_at:
            self._look_up_backup_at = time.monotonic() + BACKUP_LOOKUP_SECONDS
            with contextlib.suppress(Problem), contextlib.closing(open_backups(to, self.config)) as place:
                self._last_good_backup = last_good_backup(place)
        return self._last_good_backup

    def build_app(self, surfaces: Sequence[Surface] | None = None) -> Starlette:
        """The application of the current configuration."""
        config, registry = self.config, self.registry
        surfaces = [load_surface(name, config, self.rate_limits) for name in SURFACES] if surfaces is None else surfaces
        if config["auth.issuer"]:
            from notewright.server.auth import oauth  # takes a third of a second to load

            issuer = oauth.Issuer(oauth.IssuerSettings.from_config(config), previous=self._issuer)
            self._issuer, scopes = issuer, issuer.scopes
        else:
            issuer, scopes = None, BASIC_SCOPES
        auth = AuthSettings(
            registry,
            cookies=BrowserSessions(registry.secret("cookies")),
            limiter=self.rate_limits,
            issuer=issuer,
            user=process_user(),
            closed=find_network_exposure(config) is not None,
            public_url=config["http.public_url"],
        )
        site = SiteContext(
            library=self.library,
            workers=self.workers,
            registry=registry,
            config=config,
            auth=auth,
            operations=self.operations,
            sessions=self.sessions,
            concurrency=ConcurrencyLimits.from_config(config, self.rate_limits),
            open_backups=lambda place: open_backups(place, config),
            hosts=self._live_hosts(),
        )
        feed, live = ActivityFeed(site), _live_site(site)
        names = [surface.name for surface in surfaces]
        metadata = protected_resource.routes(config["http.public_url"], config["auth.issuer"], scopes, names)
        live_routes = [] if live is None else live.routes()

        def end_streams() -> None:
            feed.close()
            if live is not None:
                live.close()

        return mcp_endpoint.build_app(
            site,
            surfaces,
            more_routes=[*metadata, *live_routes, *page.routes(site, feed), *api.routes(site)],
            end_streams=end_streams,
            lifespan=self._lifespan,
        )

    @property
    def is_live(self) -> bool:
        """Whether any workspace has live documents."""
        return any(ws.live for ws in effective_workspaces(self.config, self.registry, added=True))

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        """Of the first application, and of those that take its place."""
        hosting = asyncio.create_task(self._host_live())
        try:
            yield
        finally:
            hosting.cancel()
            await asyncio.wait([hosting])
            if self._issuer is not None:
                await self._issuer.__aexit__()

    async def _host_live(self) -> None:
        await self._wait_for_live()
        if self._hosts is not None:
            async with self._hosts:
                await asyncio.Event().wait()

    async def _wait_for_live(self) -> None:
        """Poll for the first live workspace, and replace the application by one with addresses of live documents."""
        seen_version = None
        while self._hosts is None:
            try:
                if (data_version := self.registry.data_version()) != seen_version and self.is_live:
                    return None if self.replace_app is None else await self.replace_app()
                seen_version = data_version
            except Exception:
                log.exception("a live workspace that was added cannot be served yet")
            await asyncio.sleep(LIVE_POLL_SECONDS)

    def _live_hosts(self) -> "LiveHosts | None":
        """The hosts of live documents, or None without a live workspace: few servers need their libraries."""
        if not self.is_live:
            return None
        from notewright.server.live.forwarding import LiveHosts

        self._hosts = self._hosts or LiveHosts(self.library, self.operations.metrics.live_documents.inc)
        return self._hosts


def _live_site(site: SiteContext) -> "LiveSite | None":
    if site.hosts is None:
        return None
    from notewright.server.live.routes import LiveSite

    return LiveSite(site, site.hosts)


def run_worker(
    config: Config,
    reread: ReadConfig,
    listener: socket.socket,
    slot: WorkerSlot | None = None,
    counts: Path | None = None,
) -> int:
    """Serve in this process, at its slot among several, which count together in the folder `counts`."""
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # strangers could fill the log with warnings
    certificate = tls.load(config)
    if counts is not None and slot is not None:
        multiproc_metrics.register_worker(counts, slot.number)
    with Site(config, counts=counts) as site:
        app = uvicorn_server.ReplaceableApp(site.build_app())

        async def reload() -> None:
            new = await asyncio.to_thread(reread)
            await asyncio.to_thread(site.reconfigure, new)
            if certificate is not None:
                tls.reload(certificate, new)
            await replace_app()

        async def replace_app() -> None:
            server.allow_websockets(site.is_live)
            app.replace(site.build_app())

        site.replace_app = replace_app
        server = uvicorn_server.Server(
            uvicorn.Config(app, **uvicorn_server.settings(certificate, websockets=site.is_live)),
            stopping=app.end_streams,
            limits=ConnectionLimits(connections=config["http.max_connections"]),
            slot=slot,
            refused=site.operations.record_cut_connection,
            behind=lambda: site.workers.behind,
            reload=reload,
        )
        server.run([listener])
        return 0 if server.started else 1
