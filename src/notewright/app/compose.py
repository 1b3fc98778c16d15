"""The one place where the parts are put together."""

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
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import urlsplit

from notewright.accounts.base import Accounts
from notewright.accounts.limits import RateLimits
from notewright.app.open_workspaces import OpenWorkspaces
from notewright.app.opening import open_registry, places_beside, refuse_unreachable, user
from notewright.config.load import Config, set_metrics_folder
from notewright.config.settings import SURFACES
from notewright.engine.library import LazyLibrary, Library
from notewright.errors import Invalid, Problem, Unavailable
from notewright.mcp.dispatch import ClientConnection
from notewright.mcp.jsonrpc import Message
from notewright.mcp.stdio import server as stdio
from notewright.mcp.stdio.fast_path import FastPath
from notewright.mcp.stdio.writer import LineWriter
from notewright.mcp.thread_pool import ThreadPool
from notewright.server.listen import supervisor, tls
from notewright.server.ops import logs
from notewright.surfaces.base import Session, Surface, merge_tools

if TYPE_CHECKING:
    from notewright.server.auth.oauth import Issuer

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
Reread = Callable[[], Config]
TURN_SECONDS = 0.0005  # of a thread that has much to do, when others wait: a short call need not wait for a long one
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def serve(config: Config, reread: Reread | None = None) -> int:
    """Serve what the configuration says, until the client goes or a signal comes.

    `reread` gives the configuration as it is written now: what SIGHUP asks for.
    """
    log_to_stderr(config)
    sys.setswitchinterval(TURN_SECONDS)
    if config["http.port"] is None:
        asked = [surface_named(name, config) for name in dict.fromkeys(config["surface"])]
        merge_tools(asked)
        refuse_unreachable(config.workspaces)
        serve_stdio(partial(OpenWorkspaces, config), asked)
    refuse_mistakes(config)
    refuse_unreachable(config.workspaces)
    host, port = config["http.host"], config["http.port"]
    with listening(host, port) as listener:
        _greet(config, host, listener.getsockname()[1])
        if config["http.workers"] > 1:
            return _work_together(config, reread or (lambda: config), listener)
        from notewright.app import compose_http

        return compose_http.work(config, reread or (lambda: config), listener)


def refuse_mistakes(config: Config) -> None:
    """What is wrong with serving over HTTP is said before anybody is welcomed, and not by every worker."""
    public = urlsplit(config["http.public_url"] or "https://nobody.said")
    if public.scheme not in ("http", "https") or not public.hostname or public.query or public.fragment:
        hint = "write the whole of it, as in https://notes.example.com"
        raise Invalid(f"http.public_url is no address: {config['http.public_url']}", hint=hint, what="http.public_url")
    with contextlib.closing(open_registry(config)) as registry:
        refuse_strangers(config, registry)
    refuse_unreachable(places_beside(config))
    tls.load(config)
    if config["auth.issuer"]:
        from notewright.server.auth import oauth

        oauth.IssuerSettings.from_config(config)


def issuer_of(config: Config, previous: "Issuer | None" = None) -> "Issuer | None":
    """Who else issues tokens, if anybody does: what is needed to read them takes a third of a second to load."""
    if not config["auth.issuer"]:
        return None
    from notewright.server.auth import oauth

    return oauth.Issuer(oauth.IssuerSettings.from_config(config), previous=previous)


def _work_together(config: Config, reread: Reread, listener: socket.socket) -> int:
    """Several processes at one socket. What they count they count together, and that is set up before any of them."""
    from notewright.server.ops import multiproc_metrics

    counts = multiproc_metrics.empty_folder(Path(config.state))
    set_metrics_folder(counts)
    now = [config]

    def work(slot: supervisor.WorkerSlot) -> int:
        from notewright.app import compose_http

        return compose_http.work(now[0], reread, listener, slot, counts)

    def reloading() -> None:
        try:
            refuse_mistakes(asked := reread())
        except Problem:
            return  # the workers say what is wrong
        now[0] = asked  # for those that take the place of others

    forget = partial(multiproc_metrics.forget_worker, counts)
    supervised = supervisor.Supervisor(
        config["http.workers"], work, sockets=[listener], died=forget, reloading=reloading
    )
    try:
        return supervised.run()
    finally:
        shutil.rmtree(counts, ignore_errors=True)


def refuse_strangers(config: Config, registry: Accounts) -> None:
    """Nobody's notes are open to the network by mistake: Invalid unless somebody can be told from a stranger."""
    beyond = beyond_this_machine(config)
    if beyond is None:
        return
    if config["auth.issuer"] and not (config["http.public_url"] or config["auth.audience"]):
        hint = 'set [http] public_url = "https://…", the address that clients use'
        raise Invalid("tokens of an issuer cannot be judged without our own address", hint=hint, what="http.public_url")
    if config["auth.issuer"] or any(token.good(time.time()) for token in registry.tokens()):
        return
    state = f" --state {shlex.quote(config['state'])}" if config["state"] else ""
    opens = f"{beyond} would open your notes to everyone who can reach this machine"
    if _is_this_machine(config["http.host"]) and config["http.host"] not in LOOPBACK:
        opens = f"{beyond} is not {', '.join(LOOPBACK[:-1])} or {LOOPBACK[-1]}, where no access token is needed"
    raise Invalid(opens, hint=f"make an access token first: notewright token add NAME{state}", what="http")


def _is_this_machine(host: str) -> bool:
    """One of the many other addresses that nobody else can reach, as 127.0.0.2."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def beyond_this_machine(config: Config) -> str | None:
    """What lets others in than those who use this machine."""
    if config["http.host"] not in LOOPBACK:
        return f"--http {config['http.host']}:{config['http.port']}"
    if config["http.trusted_proxies"]:
        return "http.trusted_proxies"
    public = urlsplit(config["http.public_url"] or "").hostname
    strange = [host for host in (*config["http.hosts"], public) if host and host.lower() not in LOOPBACK]
    return f"http.hosts ({strange[0]})" if strange else None


def log_to_stderr(config: Config) -> None:
    """As much as was asked for; of the libraries nothing below a warning. Octarine's own setting holds for it alone."""
    asked = _level(config["log_level"])
    logs.configure(max(asked, logging.WARNING), config["log_format"])
    logging.getLogger("notewright").setLevel(asked)
    if config.octarine.log_level:
        logging.getLogger("notewright.surfaces.octarine").setLevel(_level(config.octarine.log_level))


def _level(name: str) -> int:
    level = LEVELS.get({"warn": "warning"}.get(name.lower(), name.lower()))
    if level is None:
        raise Invalid(f"there is no log level {name!r}", hint=f"there is {', '.join(LEVELS)}", what="log_level")
    return level


def surface_named(name: str, config: Config, traffic: RateLimits | None = None) -> Surface:
    """A surface of the configuration, loaded now; call limits as configured, counted in `traffic`."""
    module = importlib.import_module(f"notewright.surfaces.{name}.tools")
    limiter = (traffic or RateLimits()) if config["rate_limits"] else None
    if name == "second_brain":
        surface: Surface = module.surface(limiter)
    elif name == "octarine":
        surface = module.surface(limiter, config.octarine)
    else:
        surface = module.SURFACE
    return surface


def _greet(config: Config, host: str, port: int) -> None:
    """A person is told everything; a program that reads JSON, that we are there, in a line like all others."""
    names = ", ".join(f"{workspace.name} ({workspace.location})" for workspace in config.workspaces)
    serves = f"Notewright serves {names or 'the workspaces that were added'} on {host} port {port}"
    if config["log_format"] == "json":
        logging.getLogger(__name__).warning("%s: %s/mcp", serves, _address(config, host, port))
    else:
        print(f"{serves}\n{_welcome(config, _address(config, host, port))}", file=sys.stderr, flush=True)


def _address(config: Config, host: str, port: int) -> str:
    """What clients have to call, as far as we know."""
    scheme = "https" if config["http.tls_cert"] else "http"
    ours = socket.gethostname() if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
    return str(config["http.public_url"] or f"{scheme}://{ours}:{port}").rstrip("/")


def _welcome(config: Config, base: str) -> str:
    """Where everything is, and the line to paste into a client."""
    endpoints = "\n".join(f"  {name:13}{base}/mcp/{name}" for name in SURFACES)
    with contextlib.closing(open_registry(config)) as registry:  # a client that finds an issuer gets its own token
        by_token = not config["auth.issuer"] and bool(registry.tokens())
    token = ' --header "Authorization: Bearer nw_…"' if by_token else ""
    return (
        f"See what agents do, search and read:\n  {base}/\nTools for agents:\n{endpoints}\n"
        f"Connect Claude Code:\n  claude mcp add --transport http notewright {base}/mcp{token}\n"
        "Other clients: add the notes address above as a streamable HTTP server. Stop with Ctrl-C."
    )


def serve_stdio(opened: Callable[[], Library], surfaces: Sequence[Surface]) -> NoReturn:
    """Speak MCP on standard input and output until the input ends, and end the process. The library opens meanwhile."""
    library = LazyLibrary(opened, [surface.begin for surface in surfaces if surface.begin is not None])
    caller = ClientConnection(library, Session(initialized=False), "stdio", user())

    async def serve_by_sdk(opening: Message, inbox: stdio.SdkInbox, out: LineWriter, fast_path: FastPath) -> None:
        """The SDK takes most of a second to load, so it comes when somebody asks for it."""
        mcp = await asyncio.to_thread(importlib.import_module, "notewright.mcp.sdk_server")
        bridge = await asyncio.to_thread(importlib.import_module, "notewright.mcp.stdio.sdk_bridge")
        changes = importlib.import_module("notewright.mcp.subscriptions")
        server = mcp.build(surfaces, lambda context: caller, ThreadPool(), changes.ChangeStreams(), push=True)
        await bridge.serve(server, opening, inbox, out, fast_path)

    def make_fast_path(out: LineWriter) -> FastPath:
        return FastPath(caller, surfaces, out, library.begin)

    with stdio.take_over_stdio() as (read_fd, write_fd):
        asyncio.run(stdio.serve(make_fast_path, serve_by_sdk, read_fd, write_fd))
        library.close()
    logging.shutdown()
    sys.stderr.flush()
    os._exit(0)  # Python takes half a second to take itself apart, and a call that hangs could trip it


def listening(host: str, port: int) -> socket.socket:
    """Where clients will come to; port 0 is any that is free. Unavailable if somebody else is there."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(2048)  # who comes before we are ready waits
    except OSError as error:
        listener.close()
        words = f"port {port} of {host} cannot be had: {(error.strerror or str(error)).lower()}"
        raise Unavailable(words, hint="choose another, as in --http 8485") from None
    return listener
