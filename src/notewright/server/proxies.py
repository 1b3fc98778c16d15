"""Which machines in front of us are believed when they say who the client is."""

from collections.abc import Iterable
from ipaddress import ip_address, ip_network

from notewright.errors import Invalid


class Proxies:
    """Addresses and networks, as the owner named them. Nobody is believed by default."""

    def __init__(self, named: Iterable[str]) -> None:
        try:
            self._networks = [ip_network(name, strict=False) for name in named]
        except ValueError as error:
            hint = "write addresses or networks, as in 127.0.0.1 or 10.0.0.0/8"
            raise Invalid(f"http.trusted_proxies: {error}", hint=hint, what="http.trusted_proxies") from None

    def __call__(self, address: str) -> bool:
        try:
            asked = ip_address(address)
        except ValueError:
            return False
        return any(asked in network for network in self._networks)
