"""A server by itself, with a fast path and an application that note what they are asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import uvicorn

from gateway.http.server.protocol import HEADER_BYTES_MAX, StrictProtocol, make_protocol

LINES = b"Host: h\r\nAuthorization: Bearer %b\r\nContent-Type: application/json\r\n"


def post(target: bytes, body: bytes, key: bytes = b"k", more: bytes = b"") -> bytes:
    lines = LINES % key + more + b"Content-Length: %d\r\n\r\n" % len(body)
    return b"POST %b HTTP/1.1\r\n%b%b" % (target, lines, body)


def get(target: bytes) -> bytes:
    return b"GET %b HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer k\r\n\r\n" % target


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written = b""

    def write(self, data: Any) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return False

    def close(self) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name.endswith("name") else default

    def set_protocol(self, protocol: Any) -> None: ...

    def can_write_eof(self) -> bool:
        return False

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class FastPath:
    """Answers what it takes; declines what ends with `/no`, and at `/bug` fails, and answers later."""

    def __init__(self) -> None:
        self.asked: list[tuple[bytes, dict[bytes, bytes], bytes]] = []

    def take(
        self,
        method: bytes,
        target: bytes,
        headers: dict[bytes, bytes],
        body: bytes,
        reply: Callable[[int, bytes, bytes], None],
        give_up: Callable[[], None],
    ) -> bool:
        self.asked.append((target, headers, body))
        if target.endswith(b"/no"):
            return False
        if target.endswith(b"/bug"):
            asyncio.get_running_loop().call_soon(reply, 500, b"", b"")
            raise RuntimeError("a bug")
        reply(200, b"", b"")
        return True


class Peer:
    """One connection to a server of its own."""

    def __init__(self, header_bytes_max: int = HEADER_BYTES_MAX) -> None:
        self.fast_path = FastPath()
        self.application: list[tuple[bytes, bytes]] = []
        self.parsed = 0
        peer = self

        class Counting(make_protocol(header_bytes_max=header_bytes_max, fast_path=self.fast_path)):  # type: ignore[misc]
            def on_headers_complete(self) -> None:
                peer.parsed += 1
                super().on_headers_complete()

        config = uvicorn.Config(self._app, http=Counting, ws="none", interface="asgi3", log_config=None)
        config.load()
        self._connect = partial(Counting, config, uvicorn.server.ServerState(), {})
        self.protocol, self.transport = self.connect()

    def connect(self) -> tuple[StrictProtocol, Transport]:
        """One more connection to the same server."""
        protocol, transport = self._connect(), Transport()
        protocol.connection_made(transport)
        return protocol, transport

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        body = (await receive())["body"]
        while len(body) < int(dict(scope["headers"])[b"content-length"]):
            body += (await receive())["body"]
        self.application.append((scope["raw_path"], body))
        start = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]}
        await send(start)
        await send({"type": "http.response.body", "body": b""})

    async def send(self, *chunks: bytes) -> None:
        """Each chunk in a turn of its own of the event loop."""
        for chunk in chunks:
            self.protocol.data_received(chunk)
            await asyncio.sleep(0)
        await asyncio.gather(*self.protocol.tasks)
