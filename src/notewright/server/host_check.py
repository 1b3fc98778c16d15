"""The first checks of every request and WebSocket: the Host it names, the page it comes from, the proxy it came by."""

import re
import socket
from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from notewright.config.load import Config
from notewright.errors import Invalid
from notewright.server.request_context import note_refusal

WELL_KNOWN = "/.well-known/oauth-protected-resource"  # documents that pages of other origins may read
LOOPBACK = ("127.0.0.1", "localhost", "::1")
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^][\s:/?#@\\]+?))\.?(?::\d{1,5})?", re.IGNORECASE | re.ASCII)


class HostCheck:
    """Refuses what a web page could send here behind its user's back: strange Host names and strange Origins.

    Every route there is or will be is refused, unless the request comes from our own page, from an origin that the
    owner named, or from no page at all.
    """

    def __init__(self, app: ASGIApp, config: Config) -> None:
        public, host, own = urlsplit(config["http.public_url"] or ""), config["http.host"], socket.gethostname()
        names = (*LOOPBACK, *config["http.hosts"], public.hostname, host, own, f"{own}.local")
        self._app = app
        self._allows_addresses = host not in LOOPBACK  # a page can make a name resolve to us, but not an address
        self._hosts = frozenset(name.lower() for name in names if name)
        self._origins = frozenset(origin.lower().rstrip("/") for origin in config["http.origins"])
        self._public = public.netloc.lower()  # where browsers find our own page, if not at the Host that they name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._find_refusal(scope) if scope["type"] in ("http", "websocket") else None
        if refusal is None:
            return await self._app(scope, receive, send)
        reason, status, words = refusal
        note_refusal(reason)
        await JSONResponse({"error": words}, status)(scope, receive, send)

    def _find_refusal(self, scope: Scope) -> tuple[str, int, str] | None:
        headers = Headers(scope=scope)
        host = ", ".join(headers.getlist("host")).strip().lower()
        name = _host_name(host)
        if name not in self._hosts and not (self._allows_addresses and _is_address(name)):
            return "host", 421, "this server does not answer to that Host name"
        origin = ", ".join(headers.getlist("origin")).lower() if "origin" in headers else None
        public = scope.get("method") in SAFE_METHODS and scope["path"].startswith(WELL_KNOWN)
        if origin is None or public or origin.rstrip("/") in self._origins:
            return None
        # A page is ours only if its port is, too: other ports may be other people's.
        scheme, _, origin_host = origin.partition("://")
        ours = scheme in ("http", "https") and origin_host != "" and origin_host in (host, self._public)
        return None if ours else ("origin", 403, "this server does not answer pages of that Origin")


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _host_name(host: str) -> str:
    """`[::1]:8000` is `::1`, `LocalHost:80` is `localhost`; "" for what is no name and port."""
    match = _HOST.fullmatch(host.strip())
    return (match[1] or match[2]).lower() if match else ""


class TrustedProxies:
    """The addresses and networks in front of us that are believed when they name the client. None by default."""

    def __init__(self, addresses: Iterable[str]) -> None:
        self._networks: list[IPv4Network | IPv6Network] = []
        try:
            for network in (ip_network(address, strict=False) for address in addresses):
                self._networks.append(network)
                if isinstance(network, IPv4Network):  # on a socket for both kinds of address, IPv4 comes as IPv6
                    mapped = f"::ffff:{network.network_address}/{96 + network.prefixlen}"
                    self._networks.append(IPv6Network(mapped))
        except ValueError as error:
            hint = "write addresses or networks, as in 127.0.0.1 or 10.0.0.0/8"
            raise Invalid(f"http.trusted_proxies: {error}", hint=hint, what="http.trusted_proxies") from None
        self.names = [str(network) for network in self._networks]

    def __call__(self, address: str) -> bool:
        return _is_address(address) and any(ip_address(address) in network for network in self._networks)
