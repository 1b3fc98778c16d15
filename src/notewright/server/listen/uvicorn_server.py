"""The HTTP server: uvicorn, with every connection bounded in number, in size and in time.

uvicorn by itself takes a head of any size, waits for its end for ever, and for the rest of a body too. Here a client
that is too slow is disconnected: `ConnectionLimits` has the limits.

Connections are accepted one at a time per turn of the event loop, and left to another process behind the same socket if
that one has fewer. uvicorn accepts all that wait at once, which gives a whole burst to whichever process wakes up
first: `docs/why.md` has the numbers. A client that could not be served at once is left in the accept queue, too, for a
while: a process that is killed takes with it the connections it has accepted, and no others.
"""

import asyncio
import logging
import resource
import signal
import socket
import ssl
from collections import deque
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send
from uvicorn.importer import import_from_string

from notewright.errors import Problem
from notewright.server.listen import supervisor
from notewright.server.listen.bounded_protocol import BoundedHttp, ConnectionLimits
from notewright.server.listen.supervisor import WorkerSlot

log = logging.getLogger(__name__)
WEBSOCKET = "notewright.server.listen.websocket_protocol:BoundedWebSocket"
MAX_FRAME_BYTES = 16 << 20  # of a WebSocket
DRAIN_SECONDS = 25  # for requests under way when we are to stop; the supervisor waits a little longer
TLS_HANDSHAKE_SECONDS = 10.0
MAX_REJECTED_CONNECTIONS = 64  # that get an answer saying there is no room; more are only closed
TCP_KEEPALIVE = [
    (getattr(socket, name), value)
    for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPALIVE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))
    if hasattr(socket, name)
]
YIELD_SECONDS = 0.001  # for which a client is left to a process with fewer,
MAX_YIELDS, MAX_YIELDS_WHEN_FULL = 20, 200  # and how often in a row
HOLD_SECONDS = 0.25  # for which clients are left in the queue while calls wait here; then they may wait here as well
HOLD_POLL_SECONDS = 0.002
BURST_CONNECTIONS, BURST_SECONDS = 2, 0.008  # so many accepted in so short a time are a burst
NO_DESCRIPTORS_SECONDS = 1.0  # to pause when the system has no file descriptor left
OTHER_FILES = 1024  # file descriptors beside those of connections


class ReplaceableApp:
    """Passes every request to the current application, which answers it to its end; `replace` puts in another.

    An application holds nothing that must be ended: the lifespan of the first is that of the whole process.
    `state.end_streams` of a replaced one ends those of its requests that would not end by themselves.
    """

    def __init__(self, first: Starlette) -> None:
        self.app = first

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)

    def replace(self, new: Starlette) -> None:
        old, self.app = self.app, new
        old.state.end_streams()

    def end_streams(self) -> None:
        self.app.state.end_streams()


def settings(tls: ssl.SSLContext | None = None, *, websockets: bool = False) -> dict[str, Any]:
    """The arguments of `uvicorn.Config`. Proxy headers are read by the application.

    Without `websockets` a request for one is answered as any other, and their protocol is not loaded."""
    return {
        "http": BoundedHttp,
        "ws": WEBSOCKET if websockets else "none",
        "ws_max_size": MAX_FRAME_BYTES,
        "ws_per_message_deflate": False,  # typing is small, and a compression window for each connection is not
        "lifespan": "on",
        "workers": 1,  # else an environment variable decides
        "log_config": None,
        "access_log": False,
        "server_header": False,
        "proxy_headers": False,  # else uvicorn trusts every local client, and an environment variable
        "timeout_keep_alive": int(ConnectionLimits().idle_seconds),
        "timeout_graceful_shutdown": DRAIN_SECONDS,
        "ssl_context_factory": None if tls is None else lambda *_: tls,
    }


class Server(uvicorn.Server):
    """uvicorn with bounded connections. A signal ends `run`, which then simply returns.

    `stopping` is called on the event loop when the first signal comes; a second signal ends everything at once. `slot`
    is this process's among those that share the socket. `refused` gets the status of each refusal that no application
    sees. `behind` says whether a new request would have to wait before it could begin. `reload` reads the
    configuration again on SIGHUP: a mistake in it is logged, and all stays as it was.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        *,
        stopping: Callable[[], object] | None = None,
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
        self.backpressure = None if self.slot.is_only else AcceptBackpressure(behind)
        self._stopping = stopping
        self._reload = reload
        self._reloading: asyncio.Task[None] | None = None
        self._reload_wanted = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            self.force_exit = True
        elif self._stopping is not None:
            asyncio.get_running_loop().call_soon_threadsafe(self._stopping)
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        assert sockets is not None and len(sockets) == 1, "the caller of run() opens the socket"
        if self._reload is not None:
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self.hang_up)
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            self.should_exit = True
            return
        _raise_descriptor_limit(self.limits.connections)
        self.servers = [_Acceptor(sockets[0], self)]  # type: ignore[list-item]  # closed by uvicorn
        self._check_timeouts()
        self.started = True
        if self._reload is not None:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})  # one that came meanwhile is not lost

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        self._timeout_timer.cancel()

    def hang_up(self) -> None:
        """SIGHUP: read the configuration again, or stop if it means that the terminal was closed."""
        if supervisor.is_terminal_gone():
            self.handle_exit(signal.SIGHUP, None)
            return
        self._reload_wanted = True  # also while it is being read: it may have been written since
        if self._reloading is None or self._reloading.done():
            self._reloading = asyncio.create_task(self._read_configuration())

    async def _read_configuration(self) -> None:
        assert self._reload is not None
        while self._reload_wanted:
            self._reload_wanted = False
            try:
                await self._reload()
            except Problem as problem:
                log.error("the configuration stays as it was: %s", problem)
            else:
                log.warning("the configuration was read again")

    def allow_websockets(self, allowed: bool) -> None:
        """Allow WebSockets or not, from the next connection on."""
        self.config.ws_protocol_class = import_from_string(WEBSOCKET) if allowed else None

    def make_connection(self, closed: Callable[[], None], is_surplus: bool) -> BoundedHttp:
        """The protocol of a new client; a surplus one is answered that there is no room."""
        made = self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
            _loop=asyncio.get_running_loop(),
        )
        assert isinstance(made, BoundedHttp), "uvicorn.Config needs our settings"
        made.limits, made.closed, made.refused, made.is_surplus = self.limits, closed, self.refused, is_surplus
        return made

    def _check_timeouts(self) -> None:
        """Disconnect slow clients. It looks at all connections now and then, which costs a request nothing."""
        loop = asyncio.get_running_loop()
        self._timeout_timer = loop.call_later(self.limits.check_seconds, self._check_timeouts)
        for connection in list(self.server_state.connections):
            connection.check_timeout(loop.time())  # type: ignore[union-attr]  # all of them are ours


def _raise_descriptor_limit(connections: int) -> None:
    """Allow as many file descriptors as we may need, if the system lets us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        except (ValueError, OSError):
            log.warning("there are %d file descriptors; %d connections may need more", soft, connections)


class AcceptBackpressure:
    """Whether the next client is left in the queue, where another process could accept it, because this one could not
    serve it at once: calls wait here, or a burst was just accepted. After a while clients are accepted even so."""

    def __init__(self, calls_wait: Callable[[], bool]) -> None:
        self._calls_wait = calls_wait
        self._since: float | None = None
        self._accepted: deque[float] = deque(maxlen=BURST_CONNECTIONS)

    def note_accepted(self, now: float) -> None:
        self._accepted.append(now)

    def holds(self, now: float) -> bool:
        burst = len(self._accepted) == BURST_CONNECTIONS and now - self._accepted[0] < BURST_SECONDS
        if not (burst or self._calls_wait()):
            self._since = None
            return False
        self._since = now if self._since is None else self._since
        return now - self._since < HOLD_SECONDS


class _Acceptor:
    """Accepts connections from the listening socket, one per turn of the loop, as long as there is room."""

    def __init__(self, listening: socket.socket, server: Server) -> None:
        self._listening = listening
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._connections = 0  # those included whose TLS handshake is not done
        self._rejected = 0
        self._yields = 0  # times in a row that the next client was left to the other processes
        self._entering: set[asyncio.Task[None]] = set()
        self._closed = False
        listening.setblocking(False)
        server.slot.set_clients(0)
        self._watch()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._server.slot.clear()
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
        if pause := self._seconds_to_yield():
            return self._pause(pause)
        try:
            client, _ = self._listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return  # another process was first, or the client has gone
        except OSError as error:
            log.error("no connection can be accepted: %s", error)
            return self._pause(NO_DESCRIPTORS_SECONDS)
        if self._server.backpressure is not None:
            self._server.backpressure.note_accepted(self._loop.time())
        entering = self._loop.create_task(self._enter(client))
        self._entering.add(entering)
        entering.add_done_callback(self._entering.discard)

    def _seconds_to_yield(self) -> float:
        """For how long the next client is left to the other processes: the more clients this one has, the more often,
        and while only others have room."""
        surplus, backpressure = self._server.slot.surplus_clients(), self._server.backpressure
        if self._yields < (surplus and MAX_YIELDS_WHEN_FULL if self._full else min(surplus, MAX_YIELDS)):
            self._yields += 1
            return YIELD_SECONDS
        if backpressure is not None and backpressure.holds(self._loop.time()):
            return HOLD_POLL_SECONDS
        self._yields = 0
        return 0

    @property
    def _full(self) -> bool:
        return self._connections >= self._server.limits.connections

    def _count(self, change: int, is_surplus: bool) -> None:
        if is_surplus:
            self._rejected += change
            return
        self._connections += change
        if not self._closed:
            self._server.slot.set_clients(self._connections)

    async def _enter(self, client: socket.socket) -> None:
        if self._full:
            connections = self._server.server_state.connections
            idle = [conn for conn in connections if isinstance(conn, BoundedHttp) and conn.idle_since is not None]
            if idle:  # the one that was idle for longest makes room
                min(idle, key=lambda conn: conn.idle_since or 0.0).transport.close()
            await asyncio.sleep(0.001)  # until it has gone
        is_surplus = self._full
        if is_surplus and self._rejected >= MAX_REJECTED_CONNECTIONS:
            self._server.refused(503)
            return client.close()
        self._count(1, is_surplus)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # a stream's client may vanish without a FIN
        for option, value in TCP_KEEPALIVE:
            client.setsockopt(socket.IPPROTO_TCP, option, value)
        tls = self._server.config.ssl
        try:
            transport, _ = await self._loop.connect_accepted_socket(
                lambda: self._server.make_connection(lambda: self._count(-1, is_surplus), is_surplus),
                client,
                ssl=tls,
                ssl_handshake_timeout=TLS_HANDSHAKE_SECONDS if tls else None,
            )
        except (OSError, TimeoutError):
            self._count(-1, is_surplus)
            return client.close()
        if self._closed:
            transport.close()
