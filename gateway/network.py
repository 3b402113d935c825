"""The network as calls to the outside see it: a name is resolved once, judged, and the connection goes to
what was judged.

So no second answer of the name server can lead elsewhere (DNS rebinding), and nothing that a tenant declares
or a stranger sends reaches into the network of the gateway (server-side request forgery).
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from contextvars import ContextVar
from functools import lru_cache, partial
from typing import Any, Final

import httpcore

from spec.targets.addresses import is_public


def trusted() -> ssl.SSLContext:
    """The certificate authorities that httpx trusts, for all connections of the process: to read them takes
    some 50 ms and a megabyte, and httpx 30 ms and 3 MB. Call it in a thread."""
    import httpx

    return _read_once(httpx.create_ssl_context, *_named())


def trusted_by_system() -> ssl.SSLContext:
    """Those of the system, which redis-py trusts, likewise."""
    return _read_once(ssl.create_default_context, *_named())


def _named() -> tuple[str | None, str | None]:
    """Where both look for them, if it is set."""
    return os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")


@lru_cache(2)
def _read_once(read: Callable[[], ssl.SSLContext], _file: str | None, _folder: str | None) -> ssl.SSLContext:
    return read()


class RefusedAddress(OSError):
    """A name leads where nothing may go."""


async def resolve(host: str, port: int, *, allow_private: bool) -> list[str]:
    """The addresses of a name, in the order to try them in. Raises RefusedAddress if any of them is not
    public, and OSError if there is none."""
    try:
        found = await _looked_up(host, port)
    except UnicodeError:  # a label that is empty, or longer than 63 characters
        raise socket.gaierror(socket.EAI_NONAME, f"{host} is not the name of a host") from None
    addresses = list(dict.fromkeys(str(each[4][0]) for each in found))
    if not allow_private:
        for address in addresses:
            _require_public(host, address)
    return addresses


LOOKUPS_MAX: Final = 128
"""Names that are looked up at once: each holds a thread for as long as its name server is silent."""

LOOKUPS_OF_ONE: Final = 32
"""Of a tenant: silent name servers of its targets keep no other tenant's names from being looked up."""

asker: Final[ContextVar[str]] = ContextVar("asker", default="")
"""The tenant for which names are looked up; none: the gateway itself."""

_looking: dict[tuple[str, int], asyncio.Future[list[Any]]] = {}
_asked: Counter[str] = Counter()


async def _looked_up(host: str, port: int) -> list[Any]:
    """What `getaddrinfo` says, by a thread of its own, one for all who ask for a name at once. The loop's own
    few threads are for the servers of the gateway: names of others may be silent for a minute."""
    key = host, port
    looking = _looking.get(key)
    if looking is None or looking.get_loop() is not asyncio.get_running_loop():
        who = asker.get()
        most = LOOKUPS_OF_ONE if who and _asked[who] >= LOOKUPS_OF_ONE else LOOKUPS_MAX
        if most == LOOKUPS_OF_ONE or len(_looking) >= LOOKUPS_MAX:
            raise OSError(f"{host} is not looked up: {most} look-ups of other names are unanswered")
        looking = _looking[key] = _look_up(host, port)
        _asked[who] += 1
        looking.add_done_callback(lambda _: _looked(key, who))
    return await asyncio.shield(looking)


def _looked(key: tuple[str, int], who: str) -> None:
    _looking.pop(key, None)
    _asked[who] -= 1
    if not _asked[who]:
        del _asked[who]


def _look_up(host: str, port: int) -> asyncio.Future[list[Any]]:
    loop = asyncio.get_running_loop()
    looking: asyncio.Future[list[Any]] = loop.create_future()
    looking.add_done_callback(lambda done: done.exception())  # not told where all callers have gone

    def tell(outcome: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(outcome)

    def look() -> None:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as fault:
            tell(partial(looking.set_exception, fault))
        else:
            tell(partial(looking.set_result, found))

    threading.Thread(target=look, name=f"resolving {host}", daemon=True).start()
    return looking


def _require_public(host: str, address: str) -> None:
    if not is_public(ipaddress.ip_address(address.partition("%")[0])):
        raise RefusedAddress(f"{host} is at the private address {address}; only public ones are permitted")


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
