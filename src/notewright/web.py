"""Putting the parts together that serve over HTTP: one process or several, one configuration or the next."""

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import uvicorn
from starlette.applications import Starlette

from notewright.app import (
    LOOPBACK,
    Reread,
    beyond_this_machine,
    issuer_of,
    log_to_stderr,
    refuse_mistakes,
    surface_named,
    user,
)
from notewright.config import SURFACES, Config
from notewright.engine import BackupResult, MemoryTraffic, Schedule, Traffic, last_good_backup
from notewright.errors import Problem
from notewright.ledger import Registry
from notewright.ledger.registry_sqlite import SqliteRegistry
from notewright.ledger.traffic_sqlite import SqliteTraffic
from notewright.opening import OpenShelf, open_library, open_registry
from notewright.server import api, http, listening, page, processes, resource_doors, tls
from notewright.server.audit import Audit, audit_file
from notewright.server.bounded import Limits
from notewright.server.cookies import Cookies
from notewright.server.gate import Door, Entry
from notewright.server.library import Opening, OpenLibrary
from notewright.server.operations import Operations
from notewright.server.processes import Seat
from notewright.server.reload import Failed, Replaceable
from notewright.server.sessions import Sessions
from notewright.server.turns import Turns
from notewright.server.workers import Workers
from notewright.surfaces import Surface

if TYPE_CHECKING:
    from notewright.server.oauth import Issuer

log = logging.getLogger(__name__)
Around = contextlib.AbstractAsyncContextManager[object]
THREADS = 64  # for calls, in each process


class Site:
    """What one process serves. The application is made anew when the configuration changes; this stays."""

    def __init__(
        self,
        config: Config,
        registry: Registry | None = None,
        opened: Callable[[], OpenLibrary] | None = None,
        counts: Path | None = None,
    ) -> None:
        """`opened` opens the library; without it, the workspaces of the configuration and those the owner added.
        `counts` is where several processes count together."""
        self.config = config
        self.registry = registry or open_registry(config)
        self.audit = Audit(audit_file(config["audit_log"], config.state) if config.state else None)
        self.library = Opening(opened or self._open)
        self.workers = Workers(threads=THREADS)
        self.traffic: Traffic = MemoryTraffic() if counts is None else SqliteTraffic.open(Path(config.state))
        self.sessions = Sessions(self.registry.secret("sessions"), traffic=self.traffic)
        self.operations = Operations(
            self.library,
            self.audit,
            state=Path(config.state),
            cache=Path(config.cache),
            shared=counts,
            backed_up=self._last_backup,
        )
        self._shelf: OpenShelf | None = None
        self._schedule: Schedule | None = None

    def _open(self) -> OpenShelf:
        self._shelf = open_library(self.config, self.registry, heard=self.audit.wrote)
        return self._shelf

    def __enter__(self) -> "Site":
        self.library.begin()
        self._keep_backups()
        return self

    def __exit__(self, *error: object) -> None:
        self._end_backups()
        self.library.close()
        self.workers.close()
        self.audit.close()
        self.traffic.close()
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
            self._schedule = Schedule(self.library.workspaces, to, at=at, keep_days=days, told=self._backed_up)
            self._schedule.start()

    def _end_backups(self) -> None:
        if self._schedule is not None:
            self._schedule.close()
            self._schedule = None

    def _last_backup(self) -> float | None:
        to = self.config["backup.to"]
        return last_good_backup(to) if to else None

    def _backed_up(self, result: BackupResult) -> None:
        self.audit.admin("backup", user="", success=result.success, files=result.files_backed_up)

    def app(self, surfaces: Sequence[Surface] | None = None, around: Sequence[Around] = ()) -> Starlette:
        """The application of the configuration as it is now."""
        config, registry = self.config, self.registry
        surfaces = [surface_named(name, config, self.traffic) for name in SURFACES] if surfaces is None else surfaces
        issuer = issuer_of(config)
        cookies = Cookies(registry.secret("cookies"))
        operations = self.operations
        entry = Entry(
            registry,
            keepers=[issuer] if issuer is not None else [],
            user=user(),
            closed=beyond_this_machine(config) is not None,
            cookies=cookies,
            public_url=config["http.public_url"],
            limiter=self.traffic,
            scope=issuer.asks if issuer is not None else "",
            told=operations.told,
        )
        public = config["http.public_url"]
        turns = Turns.of(config, self.traffic)
        desk = page.Desk(self.library, self.workers, registry, cookies, public, self.traffic, self.audit, turns)
        feed = page.Feed(self.library, self.workers, registry)
        return http.app(
            self.library,
            surfaces,
            _rules(config, entry),
            sessions=self.sessions,
            operations=operations,
            workers=self.workers,
            turns=turns,
            more=[*self._doors(surfaces, issuer), *page.routes(desk, feed), *self._api(cookies, turns)],
            leave=feed.close,
            around=[*around, *([issuer] if issuer is not None else [])],
        )

    def _api(self, cookies: Cookies, turns: Turns) -> list[Door]:
        told = self.audit.admin
        return api.routes(
            self.library, self.workers, self.registry, self.config, cookies=cookies, audit=told, turns=turns
        )

    def _doors(self, surfaces: Sequence[Surface], issuer: "Issuer | None") -> list[Door]:
        names = [surface.name for surface in surfaces]
        public = self.config["http.public_url"]
        if issuer is None:
            return resource_doors.doors(public, surfaces=names)
        return resource_doors.doors(public, self.config["auth.issuer"], issuer.scopes, names)


def _rules(config: Config, entry: Entry) -> http.Rules:
    public = urlsplit(config["http.public_url"] or "").hostname
    host = config["http.host"]
    own = socket.gethostname().lower()
    return http.Rules(
        entry,
        hosts=[*config["http.hosts"], *([public] if public else []), host, own, f"{own}.local"],
        origins=config["http.origins"],
        addresses=host not in LOOPBACK,
        proxies=config["http.trusted_proxies"],
        most_bytes=config["http.max_request_bytes"],
    )


def alone(config: Config, opened: Callable[[], OpenLibrary], surfaces: Sequence[Surface]) -> Starlette:
    """An application that needs no state directory and ends its site with itself."""
    site = Site(config, SqliteRegistry.in_memory(), opened)

    @contextlib.asynccontextmanager
    async def open_site() -> AsyncIterator[None]:
        with site:
            yield

    return site.app(surfaces, around=[open_site()])


def work(
    config: Config, reread: Reread, door: socket.socket, seat: Seat | None = None, counts: Path | None = None
) -> int:
    """One process that answers, at its seat among several, which count together in `counts`."""
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # strangers could fill the log with warnings
    secured = tls.opened(config)
    with Site(config, counts=counts) as site:
        app = Replaceable(site.app(), leave=lambda one: one.state.leave())

        async def again() -> None:
            asked = await asyncio.to_thread(reread)
            await asyncio.to_thread(refuse_mistakes, asked)
            await asyncio.to_thread(site.reconfigure, asked)
            if secured is not None:
                secured.reload(asked)
            await app.replace(site.app())

        told = listening.settings(secured)
        bounds = Limits(connections=config["http.max_connections"])
        server = Server(
            uvicorn.Config(app, **told),
            leaving=app.leave,
            limits=bounds,
            seat=seat,
            refused=site.operations.cut_off,
            behind=lambda: site.workers.behind,
        )
        server.again = again
        server.run([door])
        return 0 if server.started else 1


class Server(listening.Server):
    """Reads the configuration again when SIGHUP comes. What is wrong with it is said, and all stays as it was."""

    again: Callable[[], Awaitable[None]]
    _reading: asyncio.Task[None] | None = None
    _wanted = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._hang_up)
        await super().startup(sockets)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})  # one that came meanwhile is not lost

    def _hang_up(self) -> None:
        if processes.terminal_gone():
            self.handle_exit(signal.SIGHUP, None)
            return
        self._wanted = True  # also while it is being read: it may have been written since
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read_again())

    async def _read_again(self) -> None:
        while self._wanted:
            self._wanted = False
            try:
                await self.again()
            except (Problem, Failed) as problem:
                log.error("the configuration stays as it was: %s", problem)
            else:
                log.warning("the configuration was read again")
