"""Connections to a Redis at an address that was judged (gateway/network.py)."""

from __future__ import annotations

import asyncio
from typing import Any

from redis.asyncio.connection import Connection, SSLConnection

from gateway.network import resolve, trusted_by_system


class GuardedConnection(Connection):
    """A connection to a Redis at an address that was judged."""

    allow_private = False

    async def _connect(self) -> None:
        self._address = (await resolve(self.host, self.port, allow_private=self.allow_private))[0]
        await super()._connect()  # type: ignore[no-untyped-call]

    def _connection_arguments(self) -> dict[str, Any]:
        return {**super()._connection_arguments(), "host": self._address}


class GuardedTlsConnection(SSLConnection, GuardedConnection):
    """The same over TLS: the certificate is the name's. redis-py reads the certificate authorities for each
    connection, which holds the event loop for 30 ms and takes a megabyte: here they are read once."""

    async def _connect(self) -> None:
        self.ssl_context.context = await asyncio.to_thread(trusted_by_system)
        await super()._connect()

    def _connection_arguments(self) -> dict[str, Any]:
        return {**super()._connection_arguments(), "host": self._address, "server_hostname": self.host}


class DevelopmentConnection(GuardedConnection):
    allow_private = True


class DevelopmentTlsConnection(GuardedTlsConnection):
    allow_private = True
