"""The network as whoever calls out sees it: a name is resolved once, judged, and the connection goes to what
was judged.

So no second answer of the name server can lead elsewhere (DNS rebinding), and nothing that a tenant declares
or a stranger sends reaches into the network of the gateway (server-side request forgery).
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Iterable
from typing import Any

import httpcore

from spec.subscriptions import is_public


class RefusedAddress(OSError):
    """A name leads where nothing may go."""


async def resolve(host: str, port: int, *, allow_private: bool) -> list[str]:
    """The addresses of a name, in the order to try them in. Raises RefusedAddress if any of them is not
    public, and OSError if there is none."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError:  # a label that is empty, or longer than 63 characters
        raise socket.gaierror(socket.EAI_NONAME, f"{host} is no name of a host") from None
    addresses = list(dict.fromkeys(str(each[4][0]) for each in found))
    if not allow_private:
        for address in addresses:
            _require_public(host, address)
    return addresses


def _require_public(host: str, address: str) -> None:
    if not is_public(ipaddress.ip_address(address.partition("%")[0])):
        raise RefusedAddress(f"{host} is at a private address, {address}: only public ones are called")


class GuardedNetwork(httpcore.AsyncNetworkBackend):
    """The network as a client of HTTP sees it."""

    def __init__(self, *, allow_private: bool) -> None:
        self._allow_private = allow_private
        self._network = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 (the signature is httpcore's)
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        addresses = await resolve(host, port, allow_private=self._allow_private)
        for address in addresses[:-1]:
            try:
                return await self._network.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                continue
        return await self._network.connect_tcp(addresses[-1], port, timeout, local_address, socket_options)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
