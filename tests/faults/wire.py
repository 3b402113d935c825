"""A small HTTP/1.1 client that tells apart what matters here: answered, not answered, never sent.

One connection for each port it is asked for, one request at a time on it. Never sends anything twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

_HEAD_BYTES_MAX = 64 * 1024


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: dict[str, str]
    """By lower-case name."""
    body: bytes


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """`reached` False: no byte was sent, so the request can't have had an effect."""

    why: str
    reached: bool


class Caller:
    """The connections of one client."""

    def __init__(self) -> None:
        self._connections: dict[int, tuple[asyncio.StreamReader, asyncio.StreamWriter]] = {}

    async def call(
        self,
        port: int,
        method: str,
        target: str,
        headers: Iterable[tuple[str, str]],
        body: bytes = b"",
        *,
        timeout_s: float,
    ) -> Answer | NoAnswer:
        """One request to 127.0.0.1:`port`. After a failure, the next one is sent on a new connection."""
        lines = [
            f"{method} {target} HTTP/1.1",
            "Host: sluice",
            *(f"{name}: {text}" for name, text in headers),
        ]
        if body:
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        reached = False
        try:
            async with asyncio.timeout(timeout_s):
                reader, writer = await self._connected(port)
                reached = True
                writer.write("\r\n".join([*lines, "\r\n"]).encode() + body)
                answer = await _read(reader)
        except (OSError, EOFError, TimeoutError, ValueError, asyncio.LimitOverrunError) as fault:
            self._drop(port)
            return NoAnswer(f"{type(fault).__name__}: {fault}", reached)
        except asyncio.CancelledError:
            self._drop(port)
            raise
        if answer.headers.get("connection") == "close":
            self._drop(port)
        return answer

    def close(self) -> None:
        for port in list(self._connections):
            self._drop(port)

    async def _connected(self, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        known = self._connections.get(port)
        if known is not None:
            if not (known[0].at_eof() or known[0].exception() or known[1].is_closing()):
                return known
            self._drop(port)
        made = await asyncio.open_connection("127.0.0.1", port, limit=_HEAD_BYTES_MAX)
        self._connections[port] = made
        return made

    def _drop(self, port: int) -> None:
        known = self._connections.pop(port, None)
        if known is not None:
            known[1].transport.abort()


async def _read(reader: asyncio.StreamReader) -> Answer:
    """Raises EOFError, OSError, or ValueError for what is no answer."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    status = int(head[0].split(" ", 2)[1])
    headers = dict(_header(line) for line in head[1:] if line)
    if headers.get("transfer-encoding") == "chunked":
        return Answer(status, headers, await _chunks(reader))
    return Answer(status, headers, await reader.readexactly(int(headers.get("content-length", "0"))))


def _header(line: str) -> tuple[str, str]:
    name, _, text = line.partition(":")
    return name.strip().lower(), text.strip()


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readexactly(2)
    return body
