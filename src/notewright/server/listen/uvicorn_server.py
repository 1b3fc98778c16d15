"""How we listen: uvicorn, with every connection bounded in number, in size and in time.

uvicorn by itself takes a head of any size, waits for its end for ever, and for the rest of a body too. Here a client
that keeps us waiting is disconnected: `ConnectionLimits` says for what, and for how long.

Connections are accepted one at a time per turn of the event loop, and left to another process behind the same socket if
that one has fewer. uvicorn's way (everybody who waits, at once) hands a whole burst to whichever process wakes up
first: `docs/why.md` has the numbers. Who could not be served at once is left in the queue, too, for a while: a process
that is killed takes with it whom it has let in, and nobody else.
"""

import asyncio
import logging
import resource
import signal
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.importer import import_from_string

from notewright.errors import Problem
from notewright.server.listen import supervisor
from notewright.server.listen.bounded_protocol import Bounded, ConnectionLimits
from notewright.server.listen.supervisor import WorkerSlot
from notewright.server.listen.tls import Tls

log = logging.getLogger(__name__)
WEBSOCKET = "notewright.server.listen.websocket_protocol:BoundedWebSocket"
MAX_FRAME_BYTES = 16 << 20  # of a WebSocket
DRAIN_SECONDS = 25  # for requests under way when we are to stop; the supervisor waits a little longer
HANDSHAKE_SECONDS = 10.0
TURNED_AWAY = 64  # connections that are being told that there is no room
KEEPALIVE = [
    (getattr(socket, name), value)
    for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPALIVE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))
    if hasattr(socket, name)
]
POLITE_SECONDS = 0.001  # for which a client is left to a process that has fewer; and how often
MOST_POLITE, MOST_POLITE_WHEN_FULL = 20, 200
HELD = 0.25  # seconds for which clients are left in the queue while calls wait here; then they may wait here as well
HELD_EVERY = 0.002  # seconds between two looks
AT_ONCE, ARRIVING = 2, 0.008  # connections that may be new, and for how many seconds they are
PAUSE = 1.0  # seconds, after the system had no file descriptor left
OTHER_FILES = 1024  # file descriptors beside those of connections


def settings(tls: Tls | None = None, *, websockets: bool = False) -> dict[str, Any]:
    """What `uvicorn.Config` is to be told. Whom a proxy speaks for is for the application to say.

    Without `websockets` a request for one is answered as any other, and what speaks them is not loaded."""
    return {
        "http": Bounded,
        "ws": WEBSOCKET if websockets else "none",
        "ws_max_size": MAX_FRAME_BYTES,
        "ws_per_message_deflate": False,  # what people type is small, and a window for each connection is not
        "lifespan": "on",
        "workers": 1,  # else a variable of the environment decides
        "log_config": None,
        "access_log": False,
        "server_header": False,
        "proxy_headers": False,  # else uvicorn believes everybody on this machine, and a variable of the environment
        "timeout_keep_alive": int(ConnectionLimits().idle_seconds),
        "timeout_graceful_shutdown": DRAIN_SECONDS,
        "ssl_context_factory": None if tls is None else lambda *_: tls.context,
    }


class Server(uvicorn.Server):
    """uvicorn with bounded connections. A signal ends `run`, which then simply returns.

    `leaving` is called on the event loop when the first signal comes; a second one ends everything at once. `slot` is
    this process's among those that share the socket. `refused` is told the status of what no application hears of.
    `behind` is asked whether a request that came now would have to wait before it could begin. `reload` reads the
    configuration again when SIGHUP comes: what is wrong with it is said, and all stays as it was.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        *,
        leaving: Callable[[], object] | None = None,
        limits: ConnectionLimits | None = None,
        slot: WorkerSlot | None = None,
        refused: Callable[[int], None] = lambda status: None,
        behind: Callable[[], bool] = lambda: False,
        reload: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        super().__init__(config)
        self.limits = limits or ConnectionLimits()
        self.slot = slot or WorkerSlot()
        self.refused = refused
        self.behind = _Behind(behind) if not self.slot.alone else None
        self._leaving = leaving
        self._reload = reload
        self._reloading: asyncio.Task[None] | None = None
        self._wanted = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            self.force_exit = True
        elif self._leaving is not None:
            asyncio.get_running_loop().call_soon_threadsafe(self._leaving)
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        assert sockets is not None and len(sockets) == 1, "whoever serves has opened a socket"
        if self._reload is not None:
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self.hang_up)
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            self.should_exit = True
            return
        _make_room(self.limits.connections)
        self.servers = [_Acceptor(sockets[0], self)]  # type: ignore[list-item]  # closed by uvicorn
        self._sweep()
        self.started = True
        if self._reload is not None:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})  # one that came meanwhile is not lost

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        self._sweeping.cancel()

    def hang_up(self) -> None:
        """SIGHUP: read the configuration again, or stop if that means that the terminal was closed."""
        if supervisor.terminal_gone():
            self.handle_exit(signal.SIGHUP, None)
            return
        self._wanted = True  # also while it is being read: it may have been written since
        if self._reloading is None or self._reloading.done():
            self._reloading = asyncio.create_task(self._read_again())

    async def _read_again(self) -> None:
        assert self._reload is not None
        while self._wanted:
            self._wanted = False
            try:
                await self._reload()
            except Problem as problem:
                log.error("the configuration stays as it was: %s", problem)
            else:
                log.warning("the configuration was read again")

    def take_websockets(self, allowed: bool) -> None:
        """From the next connection on."""
        self.config.ws_protocol_class = import_from_string(WEBSOCKET) if allowed else None

    def connection(self, left: Callable[[], None], no_room: bool) -> Bounded:
        """The protocol of a client that comes in, or that is told that there is no room."""
        made = self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
            _loop=asyncio.get_running_loop(),
        )
        assert isinstance(made, Bounded), "uvicorn.Config wants our settings"
        made.limits, made.left, made.refused, made.no_room = self.limits, left, self.refused, no_room
        return made

    def close_idle(self) -> None:
        """The connection that was idle for longest makes room for somebody who wants something."""
        idle = [one for one in self.server_state.connections if isinstance(one, Bounded) and one.idle_since is not None]
        if idle:
            min(idle, key=lambda one: one.idle_since or 0.0).transport.close()

    def _sweep(self) -> None:
        """Look after those who keep us waiting. Now and then is enough, and costs a request nothing."""
        loop = asyncio.get_running_loop()
        self._sweeping = loop.call_later(self.limits.every, self._sweep)
        for connection in list(self.server_state.connections):
            connection.look(loop.time())  # type: ignore[union-attr]  # all of them are ours


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


class _Behind:
    """Whether the next client is left in the queue, where another process could let it in, because it could not be
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


class _Acceptor:
    """Lets connections in from the listening socket, one per turn of the loop, as long as there is room."""

    def __init__(self, listening: socket.socket, server: Server) -> None:
        self._listening = listening
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._inside = 0  # connections, those included that have not yet shaken hands
        self._turned_away = 0
        self._passed = 0  # times in a row that we left the next client to the others
        self._entering: set[asyncio.Task[None]] = set()
        self._closed = False
        listening.setblocking(False)
        server.slot.write(0)
        self._watch()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._server.slot.leave()
            self._loop.remove_reader(self._listening.fileno())

    async def wait_closed(self) -> None:
        return None

    def _watch(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._listening.fileno(), self._accept)

    def _pause(self, seconds: float) -> None:
        self._loop.remove_reader(self._listening.fileno())
        self._loop.call_later(seconds, self._watch)

    def _accept(self) -> None:
        if pause := self._leave_to_others():
            return self._pause(pause)
        try:
            client, _ = self._listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return  # another process was there first, or they have gone
        except OSError as error:
            log.error("no connection can be accepted: %s", error)
            return self._pause(PAUSE)
        if self._server.behind is not None:
            self._server.behind.came(self._loop.time())
        entering = self._loop.create_task(self._enter(client))
        self._entering.add(entering)
        entering.add_done_callback(self._entering.discard)

    def _leave_to_others(self) -> float:
        """For how many seconds the next client is left to others: the more of them are ours the more often, and while
        only others have room."""
        more = self._server.slot.more_than_others()
        if self._passed < (more and MOST_POLITE_WHEN_FULL if self._full else min(more, MOST_POLITE)):
            self._passed += 1
            return POLITE_SECONDS
        if self._server.behind is not None and self._server.behind.holds(self._loop.time()):
            return HELD_EVERY
        self._passed = 0
        return 0

    @property
    def _full(self) -> bool:
        return self._inside >= self._server.limits.connections

    def _count(self, change: int, no_room: bool = False) -> None:
        if no_room:
            self._turned_away += change
            return
        self._inside += change
        if not self._closed:
            self._server.slot.write(self._inside)

    async def _enter(self, client: socket.socket) -> None:
        if self._full:
            self._server.close_idle()
            await asyncio.sleep(0.001)  # until it has gone
        no_room = self._full
        if no_room and self._turned_away >= TURNED_AWAY:
            self._server.refused(503)
            return client.close()
        self._count(1, no_room)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # a stream's client may vanish without a word
        for option, value in KEEPALIVE:
            client.setsockopt(socket.IPPROTO_TCP, option, value)
        tls = self._server.config.ssl
        try:  # TLS, where there is, and in time
            transport, _ = await self._loop.connect_accepted_socket(
                lambda: self._server.connection(lambda: self._count(-1, no_room), no_room),
                client,
                ssl=tls,
                ssl_handshake_timeout=HANDSHAKE_SECONDS if tls else None,
            )
        except (OSError, TimeoutError):
            self._count(-1, no_room)
            return client.close()
        if self._closed:
            transport.close()
