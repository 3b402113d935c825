"""Where events go in the tests: a web server that answers as it is told, a real Redis behind a door."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@dataclass(frozen=True)
class Delivery:
    """One request as it arrived, and how it was answered."""

    headers: dict[str, str]
    body: bytes
    at: float
    status: int = 200
    target: str = ""

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def event(self) -> dict[str, Any]:
        return dict(json.loads(self.body))

    @property
    def aggregate(self) -> tuple[str, str]:
        return self.event["aggregate_type"], self.event["key"]


@dataclass(frozen=True)
class Answer:
    """`hang`: none at all, until the client goes."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b"thanks"
    hang: bool = False


OK = Answer()


class WebReceiver:
    """`answer` is asked what to answer each delivery; `deliveries` are all that came."""

    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []
        self.answer: Callable[[Delivery], Answer] = lambda _: OK
        self.port = 0
        self.path = "/in"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{self.path}"

    @property
    def accepted(self) -> list[Delivery]:
        return [each for each in self.deliveries if each.status < 300]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                headers = {
                    name.lower(): value.strip()
                    for name, _, value in (line.partition(":") for line in head[1:] if line)
                }
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                target = head[0].split(" ")[1]
                delivery = Delivery(headers, body, asyncio.get_running_loop().time(), target=target)
                told = self.answer(delivery)
                status = 0 if told.hang else told.status
                self.deliveries.append(replace(delivery, status=status or 599))
                if told.hang:
                    await reader.read()
                    return
                lines = "".join(f"{name}: {value}\r\n" for name, value in told.headers.items())
                start = f"HTTP/1.1 {told.status} Told\r\ncontent-length: {len(told.body)}\r\n{lines}\r\n"
                writer.write(start.encode() + told.body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


@asynccontextmanager
async def web_receiver(
    tls: ssl.SSLContext | None = None, host: str = "127.0.0.1", port: int = 0
) -> AsyncIterator[WebReceiver]:
    receiver = WebReceiver()
    connections: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        try:
            await receiver._serve(reader, writer)
        except asyncio.CancelledError:
            return
        finally:
            connections.discard(task)

    server = await asyncio.start_server(connected, host, port, ssl=tls)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
        for task in [*connections]:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)


class Door:
    """A TCP port in front of a server's socket; closed, it cuts connections and takes none."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.open = True
        self.silent = False
        """Takes everything and passes nothing on."""
        self.failing = 0.0
        """So much of what is sent through is cut off, at random."""
        self.taken = 0
        """Connections so far."""

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.taken += 1
        if not self.open or self.failing == 1.0:
            writer.close()
            return
        inner_reader, inner_writer = await asyncio.open_unix_connection(self._path)
        pipes = [
            asyncio.create_task(self._pipe(reader, inner_writer)),
            asyncio.create_task(self._pipe(inner_reader, writer)),
        ]
        self._tasks.update(pipes)
        await asyncio.wait(pipes, return_when=asyncio.FIRST_COMPLETED)
        for task in pipes:
            task.cancel()
        await asyncio.gather(*pipes, return_exceptions=True)
        self._tasks.difference_update(pipes)
        for each in (writer, inner_writer):
            each.close()

    async def _pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while part := await reader.read(65536):
                if b"XADD" in part and random.random() < self.failing:
                    return
                if not self.silent:
                    writer.write(part)
                    await writer.drain()

    def cut(self) -> None:
        for task in self._tasks:
            task.cancel()

    def close(self) -> None:
        self.open = False
        self.cut()


@asynccontextmanager
async def door(
    path: str, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1", port: int = 0
) -> AsyncIterator[Door]:
    made = Door(path)
    server = await asyncio.start_server(made.connected, host, port, ssl=tls)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        made.close()
        await asyncio.sleep(0)
