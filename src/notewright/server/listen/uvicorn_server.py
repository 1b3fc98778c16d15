"""How we listen: uvicorn, with every connection bounded in number, in size and in time.

uvicorn by itself takes a head of any size, waits for its end for ever, and for the rest of a body too. Here a client
that keeps us waiting is shown out: `ConnectionLimits` says for what, and for how long.

Connections are accepted one at a time per turn of the event loop, and left to another process behind the same door if
that one has fewer. uvicorn's way (everybody who waits, at once) hands a whole burst to whichever process wakes up
first: `supervisor.py` has the numbers. Who could not be served at once is left at the door, too, for a while: a process
that is killed takes with it whom it has let in, and nobody else.
"""

import asyncio
import logging
import resource
import socket
import ssl
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

import uvicorn

from notewright.server.listen.bounded_protocol import LINGER, PROTOCOL, Bounded, ConnectionLimits, plain_response
from notewright.server.listen.supervisor import WorkerSlot
from notewright.server.listen.tls import Tls

log = logging.getLogger(__name__)
DRAIN_SECONDS = 25  # for requests under way when we are to stop; the supervisor waits a little longer
HANDSHAKE_SECONDS = 10.0
TURNED_AWAY = 64  # connections that are being told that there is no room
KEEPALIVE = [
    (getattr(socket, name), value)
    for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPALIVE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))
    if hasattr(socket, name)
]
POLITE = 0.001  # seconds for which a client is left to a process that has fewer; and how often
MOST_POLITE, MOST_POLITE_WHEN_FULL = 20, 200
HELD = 0.25  # seconds for which clients are left at the door while calls wait here; then they may wait here as well
HELD_EVERY = 0.002  # seconds between two looks
AT_ONCE, ARRIVING = 2, 0.008  # connections that may be new, and for how many seconds they are
PAUSE = 1.0  # seconds, after the system had no file descriptor left
OTHER_FILES = 1024  # file descriptors beside those of connections


def settings(tls: Tls | None = None) -> dict[str, Any]:
    """What `uvicorn.Config` is to be told. Whom a proxy speaks for is for the application to say."""
    return {
        "http": PROTOCOL,
        "ws": "none",
        "lifespan": "on",
        "workers": 1,  # else a variable of the environment decides
        "log_config": None,
        "access_log": False,
        "server_header": False,
        "proxy_headers": False,  # else uvicorn believes everybody on this machine, and a variable of the environment
        "timeout_keep_alive": int(ConnectionLimits().idle_seconds),
        "timeout_graceful_shutdown": DRAIN_SECONDS,
        "h11_max_incomplete_event_size": ConnectionLimits().head_bytes,
        "ssl_context_factory": None if tls is None else _given(tls.context),
    }


def _given(context: ssl.SSLContext) -> Callable[..., ssl.SSLContext]:
    return lambda *_: context


class Server(uvicorn.Server):
    """uvicorn with bounded connections. A signal ends `run`, which then simply returns.

    `leaving` is called on the event loop when the first signal comes; a second one ends everything at once. `seat` is
    this process's among those that share the door. `refused` is told the status of what no application hears of.
    `behind` is asked whether a request that came now would have to wait before it could begin.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        *,
        leaving: Callable[[], object] | None = None,
        limits: ConnectionLimits | None = None,
        seat: WorkerSlot | None = None,
        refused: Callable[[int], None] = lambda status: None,
        behind: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(config)
        self._refused = refused
        self._behind = _Behind(behind) if seat is not None and not seat.alone else None
        self._leaving = leaving
        self._limits = limits or ConnectionLimits()
        self._places = _Places(self._limits.connections, seat or WorkerSlot())
        self._sweeping: asyncio.TimerHandle | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            self.force_exit = True
        elif self._leaving is not None:
            asyncio.get_running_loop().call_soon_threadsafe(self._leaving)
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        assert sockets is not None, "whoever serves has opened a door"
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            self.should_exit = True
            return
        _make_room(self._limits.connections)
        doorways = [
            _Doorway(
                door, self._connection, self.config.ssl, self._places, self._close_idle, self._refused, self._behind
            )
            for door in sockets
        ]
        self.servers = doorways  # type: ignore[assignment]  # uvicorn closes them and waits until they are closed
        self._places.open()
        for doorway in doorways:
            doorway.open()
        self._sweep()
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        if self._sweeping is not None:
            self._sweeping.cancel()

    def _connection(self) -> asyncio.Protocol:
        made = self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
            _loop=asyncio.get_running_loop(),
        )
        assert isinstance(made, Bounded), "uvicorn.Config wants our settings"
        made.limits, made.left, made.refused = self._limits, self._places.give_back, self._refused
        return made

    def _close_idle(self) -> None:
        """The connection that was idle for longest makes room for somebody who wants something."""
        idle = [one for one in self.server_state.connections if isinstance(one, Bounded) and one.idle_since is not None]
        if idle:
            min(idle, key=lambda one: one.idle_since or 0.0).transport.close()

    def _sweep(self) -> None:
        """Look after those who keep us waiting. Now and then is enough, and costs a request nothing."""
        loop = asyncio.get_running_loop()
        self._sweeping = loop.call_later(self._limits.every, self._sweep)
        for connection in list(self.server_state.connections):
            if isinstance(connection, Bounded):
                connection.look(loop.time())


def _make_room(connections: int) -> None:
    """As many file descriptors as we may need, if the system lets us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        except (ValueError, OSError):
            log.warning("there are %d file descriptors; %d connections may need more", soft, connections)


class _Places:
    """How many more connections there may be, those included that have not yet shaken hands."""

    def __init__(self, most: int, seat: WorkerSlot) -> None:
        self._most = most
        self._seat = seat
        self._taken = 0
        self._told = False  # the others know of us

    def open(self) -> None:
        self._told = True
        self._tell()

    @property
    def full(self) -> bool:
        return self._taken >= self._most

    def take(self) -> bool:
        if self.full:
            return False
        self._taken += 1
        self._tell()
        return True

    def give_back(self) -> None:
        self._taken -= 1
        self._tell()

    def close(self) -> None:
        self._told = False
        self._seat.leave()

    def politeness(self) -> int:
        """How often to leave the next client to others: the more of them are ours, and while only they have room."""
        more = self._seat.more_than_others()
        return more and MOST_POLITE_WHEN_FULL if self.full else min(more, MOST_POLITE)

    def _tell(self) -> None:
        if self._told:
            self._seat.write(self._taken)


class _Behind:
    """Whether the next client is left at the door, where another process could let it in, because it could not be
    served at once: calls wait here, or others have come in just now. After a while nobody is left there any longer."""

    def __init__(self, calls_wait: Callable[[], bool]) -> None:
        self._calls_wait = calls_wait
        self._since: float | None = None
        self._came: deque[float] = deque(maxlen=AT_ONCE)

    def came(self, now: float) -> None:
        self._came.append(now)

    def holds(self, now: float) -> bool:
        crowded = len(self._came) == AT_ONCE and now - self._came[0] < ARRIVING
        if not (crowded or self._calls_wait()):
            self._since = None
            return False
        self._since = now if self._since is None else self._since
        return now - self._since < HELD


@dataclass(eq=False)
class _Doorway:
    """Lets connections in from one listening socket, one per turn of the loop, as long as there is room."""

    door: socket.socket
    connection: Callable[[], asyncio.Protocol]
    tls: ssl.SSLContext | None
    places: _Places
    close_idle: Callable[[], None]
    refused: Callable[[int], None]
    behind: _Behind | None = None
    closed: bool = False

    def __post_init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._entering: set[asyncio.Task[None]] = set()
        self._turned: set[asyncio.Protocol] = set()
        self._politely = 0  # times in a row that we left the next client to the others

    def open(self) -> None:
        if not self.closed:
            self.door.setblocking(False)
            self._loop.add_reader(self.door.fileno(), self._somebody)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.places.close()
            self._loop.remove_reader(self.door.fileno())

    async def wait_closed(self) -> None:
        return None

    def _somebody(self) -> None:
        if self._politely < self.places.politeness():
            self._politely += 1
            return self._look_away(POLITE)
        if self.behind is not None and self.behind.holds(self._loop.time()):
            return self._look_away(HELD_EVERY)
        self._politely = 0
        try:
            client, _ = self.door.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return  # another process was there first, or they have gone
        except OSError as error:
            log.error("no connection can be accepted: %s", error)
            return self._look_away(PAUSE)
        if self.behind is not None:
            self.behind.came(self._loop.time())
        entering = self._loop.create_task(self._enter(client))
        self._entering.add(entering)
        entering.add_done_callback(self._entering.discard)

    def _look_away(self, seconds: float) -> None:
        self._loop.remove_reader(self.door.fileno())
        self._loop.call_later(seconds, self.open)

    async def _enter(self, client: socket.socket) -> None:
        if self.places.full:
            self.close_idle()
            await asyncio.sleep(0.001)  # until it has gone
        if self.places.take():
            if not await self._let(client, self.connection):
                self.places.give_back()
            return
        self.refused(503)
        if len(self._turned) < TURNED_AWAY:
            await self._let(client, self._no_room)
        else:
            client.close()

    async def _let(self, client: socket.socket, to: Callable[[], asyncio.Protocol]) -> bool:
        """Whether they came through: TLS, where there is, and in time."""
        if client.family != socket.AF_UNIX:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # a stream's client may vanish without a word
            for option, value in KEEPALIVE:
                client.setsockopt(socket.IPPROTO_TCP, option, value)
        patience = HANDSHAKE_SECONDS if self.tls else None
        try:
            transport, _ = await self._loop.connect_accepted_socket(
                to, client, ssl=self.tls, ssl_handshake_timeout=patience
            )
        except (OSError, TimeoutError):
            client.close()
            return False
        if self.closed:
            transport.close()
        return True

    def _no_room(self) -> asyncio.Protocol:
        return _NoRoom(self._turned)


class _NoRoom(asyncio.Protocol):
    """Says so, and is gone in a moment."""

    def __init__(self, turned: set[asyncio.Protocol]) -> None:
        self._turned = turned

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._turned.add(self)
        transport.write(plain_response(503, "Too many connections", retry_after=1))
        if transport.can_write_eof():
            transport.write_eof()
            asyncio.get_running_loop().call_later(LINGER, transport.abort)
        else:
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._turned.discard(self)
