"""Whose request it is, as far as the proxies in front may be believed."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

from gateway.http.request import Head

Network = IPv4Network | IPv6Network

PROXIES_MAX: Final = 8
"""Proxies in a row that are looked behind."""

_OF_ONE_SUBSCRIBER: Final = 64
"""Bits of an IPv6 address that a provider gives out at once: the rest is the subscriber's to choose."""


class Addresses:
    """`trusted` are proxies of ours: they set X-Forwarded-For, or add to it, and all requests pass them."""

    def __init__(self, trusted: Sequence[Network]) -> None:
        self._trusted = tuple(trusted)

    def client(self, head: Head) -> str | None:
        """The address that reached the outermost trusted proxy, an IPv6 one as its /64. None over a Unix
        socket, and where a proxy names none that can be read."""
        if head.client is None:
            return None
        address = head.client
        hops = (head.joined(b"x-forwarded-for") or b"").decode("latin-1").rsplit(",", PROXIES_MAX)
        while self.is_trusted(address) and hops:
            address = hops.pop().strip() or address
        return subscriber(address)

    def is_trusted(self, address: str) -> bool:
        try:
            parsed = ip_address(address)
        except ValueError:
            return False
        return any(parsed in network for network in self._trusted)


def subscriber(address: str) -> str | None:
    """An address as one that is counted by: an IPv6 one as its /64. None for what is no address."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return None
    if isinstance(parsed, IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(IPv6Network((int(parsed), _OF_ONE_SUBSCRIBER), strict=False))
    return str(parsed)
