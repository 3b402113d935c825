"""Connections to the gateway's Redis over TLS, for which no certificate is read on the event loop."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, Final

from redis.asyncio.connection import RedisSSLContext, SSLConnection

CERTIFICATES_READ_S: Final = 60.0
"""So long connections are made by the certificates that were read, whatever is in their files by then."""


class Certificates:
    """Those of a server's connections. redis-py reads them for each connection on the event loop, which takes
    30 ms and a megabyte: here a thread reads them for all, and again for the connections of a later minute,
    since files are replaced."""

    def __init__(self) -> None:
        self._reading = asyncio.Lock()
        self._context: ssl.SSLContext | None = None
        self._read_at = 0.0

    async def read(self, named: RedisSSLContext) -> ssl.SSLContext:
        async with self._reading:
            now = asyncio.get_running_loop().time()
            if self._context is None or now - self._read_at > CERTIFICATES_READ_S:
                self._context, self._read_at = await asyncio.to_thread(named.get), now
            return self._context


class TlsConnection(SSLConnection):
    def __init__(self, *, certificates: Certificates, **usual: Any) -> None:
        super().__init__(**usual)
        self._certificates = certificates

    async def _connect(self) -> None:
        self.ssl_context.context = None
        self.ssl_context.context = await self._certificates.read(self.ssl_context)
        await super()._connect()  # type: ignore[no-untyped-call]
