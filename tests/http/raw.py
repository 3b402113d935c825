"""HTTP as bytes over a socket, for what a client library would correct before it sends it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket as socketlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

DEADLINE_S = 40.0


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str | None:
        """Of a refusal."""
        told = self.json if self.headers.get("content-type") == "application/json" and self.body else {}
        return told.get("code")


class Connection:
    """One connection; every wait has a deadline."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await asyncio.wait_for(self._writer.drain(), DEADLINE_S)

    def read_no_more(self) -> None:
        """Whatever comes stays in the sockets."""
        transport = self._writer.transport
        assert isinstance(transport, asyncio.Transport)
        transport.pause_reading()

    def read_again(self) -> None:
        transport = self._writer.transport
        assert isinstance(transport, asyncio.Transport)
        transport.resume_reading()

    def send_no_more(self) -> None:
        """Ends our direction; the other one stays open."""
        self._writer.write_eof()

    async def answer(self, method: bytes = b"GET") -> Answer | None:
        """The next answer, None where the connection ends instead of one."""
        try:
            return await asyncio.wait_for(self._answer(method), DEADLINE_S)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    async def ask(self, data: bytes) -> Answer | None:
        with contextlib.suppress(ConnectionError):  # it may have answered before it had read all
            await self.send(data)
        return await self.answer(data.split(b" ", 1)[0])

    async def rest(self) -> bytes:
        """All that comes until the other side ends."""
        return await asyncio.wait_for(self._reader.read(), DEADLINE_S)

    async def some(self) -> bytes:
        """What has come, or comes first."""
        return await asyncio.wait_for(self._reader.read(65536), DEADLINE_S)

    async def line(self) -> bytes:
        return await asyncio.wait_for(self._reader.readline(), DEADLINE_S)

    async def _answer(self, method: bytes) -> Answer:
        head = await self._reader.readuntil(b"\r\n\r\n")
        first, *lines = head[:-4].decode("latin-1").split("\r\n")
        status = int(first.split(" ")[1])
        headers: dict[str, str] = {}
        for line in lines:
            name, _, value = line.partition(": ")
            assert name.lower() not in headers, head
            headers[name.lower()] = value
        if status == 100:
            return await self._answer(method)
        body = b""
        if method == b"HEAD" or status in (204, 304):
            pass
        elif headers.get("transfer-encoding") == "chunked":
            body = await self._chunks()
        else:
            body = await self._reader.readexactly(int(headers["content-length"]))
        return Answer(status, headers, body)

    async def _chunks(self) -> bytes:
        parts = []
        while size := int(await self._reader.readline(), 16):
            parts.append(await self._reader.readexactly(size))
            await self._reader.readexactly(2)
        await self._reader.readexactly(2)
        return b"".join(parts)


@asynccontextmanager
async def connected(port: int, receive_bytes: int | None = None) -> AsyncIterator[Connection]:
    """`receive_bytes`: how much the socket holds of an answer that is not read."""
    socket = socketlib.socket()
    socket.setblocking(False)
    if receive_bytes is not None:
        socket.setsockopt(socketlib.SOL_SOCKET, socketlib.SO_RCVBUF, receive_bytes)
    await asyncio.get_running_loop().sock_connect(socket, ("127.0.0.1", port))
    reader, writer = await asyncio.open_connection(sock=socket, limit=1 << 20)
    try:
        yield Connection(reader, writer)
    finally:
        writer.transport.abort()


async def ask(port: int, data: bytes) -> Answer | None:
    """The answer to one request on a connection of its own."""
    async with connected(port) as connection:
        return await connection.ask(data)


def request(
    method: str | bytes,
    path: str | bytes,
    key: str | None = None,
    body: bytes | None = None,
    headers: list[tuple[bytes, bytes]] | None = None,
    content_type: bytes = b"application/json",
) -> bytes:
    """Bytes of a request; nothing in them is looked at or mended."""
    method, path = _bytes(method), _bytes(path)
    lines = [method + b" " + path + b" HTTP/1.1", b"Host: sluice.test"]
    if key is not None:
        lines.append(b"Authorization: Bearer " + key.encode())
    if body is not None:
        lines += [b"Content-Type: " + content_type, b"Content-Length: %d" % len(body)]
    lines += [name + b": " + value for name, value in headers or ()]
    return b"\r\n".join(lines) + b"\r\n\r\n" + (body or b"")


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text
