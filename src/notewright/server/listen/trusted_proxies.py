"""Which machines in front of us are believed when they say who the client is."""

from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from notewright.errors import Invalid

_Network = IPv4Network | IPv6Network


class Proxies:
    """Addresses and networks, as the owner named them. Nobody is believed by default."""

    def __init__(self, named: Iterable[str]) -> None:
        try:
            given = [ip_network(name, strict=False) for name in named]
        except ValueError as error:
            hint = "write addresses or networks, as in 127.0.0.1 or 10.0.0.0/8"
            raise Invalid(f"http.trusted_proxies: {error}", hint=hint, what="http.trusted_proxies") from None
        self._networks = [network for one in given for network in _ways_to_meet(one)]

    @property
    def names(self) -> list[str]:
        """For whoever else must know them."""
        return [str(network) for network in self._networks]

    def __call__(self, address: str) -> bool:
        try:
            asked = ip_address(address)
        except ValueError:
            return False
        return any(asked in network for network in self._networks)


def _ways_to_meet(network: _Network) -> list[_Network]:
    """On a socket for both kinds of address, IPv4 comes as IPv6."""
    if isinstance(network, IPv6Network):
        return [network]
    return [network, IPv6Network(f"::ffff:{network.network_address}/{96 + network.prefixlen}")]
