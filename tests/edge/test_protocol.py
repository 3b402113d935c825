"""HTTP framing over a real socket: what uvicorn and llhttp let through, each pinned to one answer.

The server runs in a thread on a loop of its own; the clients are plain blocking sockets with a deadline.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvicorn

from gateway.edge.protocol import DRAINED_BYTES_MAX, make_protocol

DEADLINE_S = 10.0
HEADER_TIMEOUT_S = 0.5
HEADER_BYTES_MAX = 16 * 1024
HEADERS_MAX = 20
HOST = b"Host: sluice.test\r\n"


class App:
    """Answers with what it was asked. `/early` answers before the body, `/slow` when released, `/parts` in two
    parts with a release between."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        self.gate = asyncio.Event()
        self.started = threading.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        seen: dict[str, Any] = {
            "method": scope["method"],
            "raw_path": scope["raw_path"].decode(),
            "path": scope["path"],
            "query": scope["query_string"].decode(),
            "version": scope["http_version"],
            "headers": [[name.decode("latin-1"), value.decode("latin-1")] for name, value in scope["headers"]],
        }
        self.seen.append(seen)
        early = scope["path"] == "/early"
        seen["body"] = "" if early else await self._body(receive)
        if seen["body"] is None:
            return
        if scope["path"] == "/slow":
            self.started.set()
            await self.gate.wait()
        seen["headers"] = [[name.decode("latin-1"), value.decode("latin-1")] for name, value in scope["headers"]]
        body = json.dumps(seen).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
        if scope["path"] == "/parts":
            await send({"type": "http.response.body", "body": body[:10], "more_body": True})
            self.started.set()
            await self.gate.wait()
            body = body[10:]
        await send({"type": "http.response.body", "body": body})

    @staticmethod
    async def _body(receive: Any) -> str | None:
        body = b""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message["body"]
            if not message["more_body"]:
                return body.decode("latin-1")


@dataclass
class Running:
    app: App
    port: int
    server: uvicorn.Server
    loop: asyncio.AbstractEventLoop | None = None
    clients: list[Client] = field(default_factory=list)

    def connect(self) -> Client:
        client = Client(self.port)
        self.clients.append(client)
        return client

    def ask(self, data: bytes) -> Answer:
        return self.connect().ask(data)

    def release(self) -> None:
        assert self.server.servers[0].get_loop() is not None
        self.server.servers[0].get_loop().call_soon_threadsafe(self.app.gate.set)


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S)
        self.reader = self.socket.makefile("rb")

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def ask(self, data: bytes) -> Answer:
        self.send(data)
        return self.answer()

    def answer(self) -> Answer:
        """The next answer; fails at the end of the connection or after the deadline."""
        line = self.reader.readline()
        assert line, "the connection has ended"
        headers: dict[str, str] = {}
        while (raw := self.reader.readline()) != b"\r\n":
            name, _, value = raw.decode("latin-1").rstrip("\r\n").partition(": ")
            assert name.lower() not in headers
            headers[name.lower()] = value
        body = self.reader.read(int(headers.get("content-length", "0")))
        return Answer(int(line.split()[1]), headers, body)

    def ended(self) -> bool:
        """Waits for the server to end the connection."""
        try:
            return self.reader.read() == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self.reader.close()
        self.socket.close()
