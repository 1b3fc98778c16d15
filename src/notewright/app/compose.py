"""Starts the server: puts the parts together for stdio, and forks the workers that serve over HTTP."""

import asyncio
import contextlib
import importlib
import logging
import os
import shlex
import shutil
import socket
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit

from notewright.accounts.base import Accounts
from notewright.accounts.limits import RateLimits
from notewright.app.open_workspaces import OpenWorkspaces
from notewright.app.opening import open_registry, other_locations, process_user, refuse_unreachable
from notewright.config.load import Config, set_metrics_folder
from notewright.config.settings import SURFACES
from notewright.engine.library import LazyLibrary, Library
from notewright.errors import Invalid, Problem, Unavailable
from notewright.lazy_dataclass import replace
from notewright.mcp.dispatch import ClientConnection
from notewright.mcp.jsonrpc import Message
from notewright.mcp.stdio import server as stdio
from notewright.mcp.stdio.fast_path import FastPath
from notewright.mcp.stdio.writer import LineWriter
from notewright.mcp.thread_pool import ThreadPool
from notewright.server.listen import supervisor, tls
from notewright.server.ops import logs
from notewright.surfaces.base import Session, Surface, merge_tools

LOG_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
ReadConfig = Callable[[], Config]
FIXED_SETTINGS = ("http.host", "http.port", "http.workers", "http.max_connections", "state")  # until a restart
SWITCH_SECONDS = 0.0005  # after which a busy thread lets others run: a short call need not wait for a long one
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def serve(config: Config, reread: ReadConfig | None = None) -> int:
    """Serve what the configuration says, until the client goes or a signal comes.

    `reread` reads the configuration again, for SIGHUP.
    """
    configure_logging(config)
    sys.setswitchinterval(SWITCH_SECONDS)
    if config["http.port"] is None:
        surfaces = [load_surface(name, config) for name in dict.fromkeys(config["surface"])]
        merge_tools(surfaces)
        refuse_unreachable(config.workspaces)
        serve_stdio(partial(OpenWorkspaces, config), surfaces)
    check_http_config(config)
    refuse_unreachable(config.workspaces)
    host, port = config["http.host"], config["http.port"]
    read_again = partial(read_config_again, config, reread or (lambda: config))
    with open_listener(host, port) as listener:
        _announce(config, host, listener.getsockname()[1])
        if config["http.workers"] > 1:
            return _run_workers(config, read_again, listener)
        from notewright.app import compose_http

        return compose_http.run_worker(config, read_again, listener)


def read_config_again(config: Config, read: ReadConfig) -> Config:
    """The configuration as it is written now; Invalid for a mistake in it. What stays until a restart is as in
    `config`: the rules on authentication go by where the server really listens."""
    new = read()
    for name in FIXED_SETTINGS:
        if new[name] != config[name]:
            logging.getLogger(__name__).warning("%s stays as it is until a restart", name)
    fixed = {name: config[name] for name in FIXED_SETTINGS}
    new = replace(new, state=config.state, cache=config.cache, values={**new.values, **fixed})
    tls.refuse_switch(config, new)
    check_http_config(new)
    configure_logging(new)
    return new


def check_http_config(config: Config) -> None:
    """Refuse mistakes in the HTTP settings once, before the server announces itself, and not in every worker."""
    public = urlsplit(config["http.public_url"] or "https://nobody.said")
    if public.scheme not in ("http", "https") or not public.hostname or public.query or public.fragment:
        hint = "write the whole of it, as in https://notes.example.com"
        raise Invalid(f"http.public_url is no address: {config['http.public_url']}", hint=hint, what="http.public_url")
    with contextlib.closing(open_registry(config)) as registry:
        require_authentication(config, registry)
    refuse_unreachable(other_locations(config))
    tls.load(config)
    if config["http.trusted_proxies"]:
        from notewright.server.host_check import TrustedProxies

        TrustedProxies(config["http.trusted_proxies"])
    if config["backup.to"]:
        from notewright.engine.transfer.backup import find_last_due

        find_last_due(config["backup.at"], datetime.now(UTC))
    if config["auth.issuer"]:
        from notewright.server.auth import oauth

        oauth.IssuerSettings.from_config(config)


def _run_workers(config: Config, reread: ReadConfig, listener: socket.socket) -> int:
    """Serve with several processes at one socket. Their shared folder for counts is made before any of them starts."""
    from notewright.server.ops import multiproc_metrics

    counts = multiproc_metrics.empty_folder(Path(config.state))
    set_metrics_folder(counts)
    current = config

    def work(slot: supervisor.WorkerSlot) -> int:
        from notewright.app import compose_http

        return compose_http.run_worker(current, reread, listener, slot, counts)

    def reload() -> None:
        nonlocal current
        with contextlib.suppress(Problem):  # the workers log what is wrong
            current = reread()  # for workers that are started later

    forget = partial(multiproc_metrics.forget_worker, counts)
    workers = supervisor.Supervisor(config["http.workers"], work, sockets=[listener], died=forget, reloading=reload)
    try:
        return workers.run()
    finally:
        shutil.rmtree(counts, ignore_errors=True)


def require_authentication(config: Config, registry: Accounts) -> None:
    """Nobody's notes are open to the network by mistake: Invalid if others can reach us and no token is set up."""
    exposure = find_network_exposure(config)
    if exposure is None:
        return
    if config["auth.issuer"] and not (config["http.public_url"] or config["auth.audience"]):
        hint = 'set [http] public_url = "https://…", the address that clients use'
        raise Invalid("tokens of an issuer cannot be judged without our own address", hint=hint, what="http.public_url")
    if config["auth.issuer"] or any(token.is_valid(time.time()) for token in registry.tokens()):
        return
    state, host = f" --state {shlex.quote(config['state'])}" if config["state"] else "", config["http.host"]
    words = f"{exposure} would open your notes to everyone who can reach this machine"
    with contextlib.suppress(ValueError):  # other addresses that nobody else can reach, as 127.0.0.2
        if host not in LOOPBACK and ip_address(host).is_loopback:
            words = f"{exposure} is not {', '.join(LOOPBACK[:-1])} or {LOOPBACK[-1]}, where no access token is needed"
    raise Invalid(words, hint=f"make an access token first: notewright token add NAME{state}", what="http")


def find_network_exposure(config: Config) -> str | None:
    """The setting that lets others in than those who use this machine; None if there is none."""
    if config["http.host"] not in LOOPBACK:
        return f"--http {config['http.host']}:{config['http.port']}"
    if config["http.trusted_proxies"]:
        return "http.trusted_proxies"
    public = urlsplit(config["http.public_url"] or "").hostname
    foreign = [host for host in (*config["http.hosts"], public) if host and host.lower() not in LOOPBACK]
    return f"http.hosts ({foreign[0]})" if foreign else None


def configure_logging(config: Config) -> None:
    """Log to standard error at the configured level; from libraries, warnings at most. Octarine has its own level."""
    level, octarine_level = map(_log_level, (config["log_level"], config.octarine.log_level or config["log_level"]))
    logs.configure(max(level, logging.WARNING), config["log_format"])
    logging.getLogger("notewright").setLevel(level)
    logging.getLogger("notewright.surfaces.octarine").setLevel(octarine_level)


def _log_level(name: str) -> int:
    level = LOG_LEVELS.get({"warn": "warning"}.get(name.lower(), name.lower()))
    if level is None:
        raise Invalid(f"there is no log level {name!r}", hint=f"there is {', '.join(LOG_LEVELS)}", what="log_level")
    return level


def load_surface(name: str, config: Config, rate_limits: RateLimits | None = None) -> Surface:
    """A surface of the configuration, imported now; call limits as configured, counted in `rate_limits`."""
    module = importlib.import_module(f"notewright.surfaces.{name}.tools")
    limiter = (rate_limits or RateLimits()) if config["rate_limits"] else None
    if name == "second_brain":
        surface: Surface = module.surface(limiter)
    elif name == "octarine":
        surface = module.surface(limiter, config.octarine)
    else:
        surface = module.SURFACE
    return surface


def _announce(config: Config, host: str, port: int) -> None:
    """Say what is served: to a person with all addresses and a line to paste into a client, to a program that reads
    JSON in one line of the log."""
    names = ", ".join(f"{workspace.name} ({workspace.location})" for workspace in config.workspaces)
    serves = f"Notewright serves {names or 'the workspaces that were added'} on {host} port {port}"
    scheme = "https" if config["http.tls_cert"] else "http"
    ours = socket.gethostname() if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
    base = str(config["http.public_url"] or f"{scheme}://{ours}:{port}").rstrip("/")
    if config["log_format"] == "json":
        return logging.getLogger(__name__).warning("%s: %s/mcp", serves, base)
    endpoints = "\n".join(f"  {name:13}{base}/mcp/{name}" for name in SURFACES)
    with contextlib.closing(open_registry(config)) as registry:  # a client that finds an issuer gets its own token
        by_token = not config["auth.issuer"] and bool(registry.tokens())
    token = ' --header "Authorization: Bearer nw_…"' if by_token else ""
    welcome = (
        f"See what agents do, search and read:\n  {base}/\nTools for agents:\n{endpoints}\n"
        f"Connect Claude Code:\n  claude mcp add --transport http notewright {base}/mcp{token}\n"
        "Other clients: add the notes address above as a streamable HTTP server. Stop with Ctrl-C."
    )
    print(f"{serves}\n{welcome}", file=sys.stderr, flush=True)


def serve_stdio(opened: Callable[[], Library], surfaces: Sequence[Surface]) -> NoReturn:
    """Serve MCP on standard input and output until the input ends, and end the process. The library opens meanwhile."""
    library = LazyLibrary(opened, [surface.begin for surface in surfaces if surface.begin is not None])
    connection = ClientConnection(library, Session(initialized=False), "stdio", process_user())

    async def serve_by_sdk(opening: Message, inbox: stdio.SdkInbox, out: LineWriter, fast_path: FastPath) -> None:
        """The SDK takes most of a second to load, so it is imported when a client needs it."""
        mcp = await asyncio.to_thread(importlib.import_module, "notewright.mcp.sdk_server")
        bridge = await asyncio.to_thread(importlib.import_module, "notewright.mcp.stdio.sdk_bridge")
        changes = importlib.import_module("notewright.mcp.subscriptions")
        server = mcp.build(surfaces, lambda context: connection, ThreadPool(), changes.ChangeStreams(), push=True)
        await bridge.serve(server, opening, inbox, out, fast_path)

    def make_fast_path(out: LineWriter) -> FastPath:
        return FastPath(connection, surfaces, out, library.begin)

    with stdio.take_over_stdio() as (read_fd, write_fd):
        asyncio.run(stdio.serve(make_fast_path, serve_by_sdk, read_fd, write_fd))
        library.close()
    logging.shutdown()
    sys.stderr.flush()
    os._exit(0)  # Python's shutdown takes half a second, and a call that hangs could block it


def open_listener(host: str, port: int) -> socket.socket:
    """The listening socket; port 0 is any that is free. Unavailable if the port is taken."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(2048)  # clients that connect before we are ready wait
    except OSError as error:
        listener.close()
        words = f"port {port} of {host} cannot be had: {(error.strerror or str(error)).lower()}"
        raise Unavailable(words, hint="choose another, as in --http 8485") from None
    return listener
