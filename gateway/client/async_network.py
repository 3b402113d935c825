"""Connections with asyncio: a protocol that hands on what arrives. Errors are OSErrors, as everywhere."""

from __future__ import annotations

import asyncio
import ssl
from typing import cast

from gateway.client.http1 import Address

UNREAD_BYTES_MAX = 1 << 20
"""Beyond this a slow reader has the sender wait."""


class Connection(asyncio.Protocol):
    """To be read by one task at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received: list[bytes] = []
        self._unread = 0
        self._paused = False
        self._ended = False
        self._why: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    async def send(self, data: bytes) -> None:
        """Raises OSError where the connection has ended."""
        if self._ended or self._transport is None:
            raise self._why or ConnectionResetError("the connection has ended")
        self._transport.write(data)

    async def receive(self, timeout_s: float) -> bytes:
        """What has arrived, b"" once the connection has ended. Raises OSError, also in time: TimeoutError."""
        while not self._received:
            if self._ended:
                if self._why is not None:
                    raise self._why
                return b""
            loop = asyncio.get_running_loop()
            waiter = self._waiter = loop.create_future()
            timer = loop.call_later(timeout_s, _time_out, waiter)
            try:
                await waiter
            finally:
                timer.cancel()
                self._waiter = None
        received = self._received[0] if len(self._received) == 1 else b"".join(self._received)
        self._received.clear()
        self._unread = 0
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return received

    @property
    def idle(self) -> bool:
        """Whether it could serve a request: it is there, and nothing arrived that was not asked for."""
        return not self._ended and not self._received

    async def close(self) -> None:
        self._ended = True
        if self._transport is not None:
            self._transport.abort()

    # -- asyncio calls these

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its class

    def data_received(self, data: bytes) -> None:
        self._received.append(data)
        self._unread += len(data)
        if self._unread > UNREAD_BYTES_MAX and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        self._ended = True
        self._wake()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = True
        self._why = exc
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _time_out(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_exception(TimeoutError("it took too long"))


async def connect(address: Address, tls: ssl.SSLContext | None, timeout_s: float) -> Connection:
    """Raises OSError."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeout_s):
            _, connection = await loop.create_connection(Connection, address.host, address.port, ssl=tls)
    except TimeoutError:
        raise TimeoutError(f"no connection within {timeout_s:g} s") from None
    return connection
