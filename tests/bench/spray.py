"""The least that followers of everything could cost: who connects is sent bytes, and that is all.

Serves on the socket SLUICE_LISTEN_FD, like a gateway. As soon as SPRAY_FOLLOWERS have asked for server-sent
events, each is sent SPRAY_BYTES every SPRAY_S, SPRAY_ROUNDS times, written as a gateway writes them. Anything
else is a 200.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import cast

import uvloop

_ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


class Asked(asyncio.Protocol):
    """One connection, whose request comes in one piece."""

    def __init__(self, follows: Callable[[asyncio.Transport], None]) -> None:
        self._follows = follows

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are of no class of asyncio's

    def data_received(self, data: bytes) -> None:
        if b"text/event-stream" in data:
            self._transport.write(_STREAM)
            self._follows(self._transport)
        else:
            self._transport.write(_ANSWER)
            self._transport.close()


async def serve(followers: int, size: int, every_s: float, rounds: int) -> None:
    loop, following = asyncio.get_running_loop(), list[asyncio.Transport]()
    complete = asyncio.Event()

    def follows(transport: asyncio.Transport) -> None:
        following.append(transport)
        if len(following) == followers:
            complete.set()

    part = (b"%x\r\n" % size, bytes(size), b"\r\n")
    with socket.socket(fileno=int(os.environ["SLUICE_LISTEN_FD"])) as listening:
        async with await loop.create_server(lambda: Asked(follows), sock=listening):
            await complete.wait()
            due = loop.time()
            for _ in range(rounds):
                due += every_s
                await asyncio.sleep(due - loop.time())
                for each in following:
                    each.writelines(part)
            await loop.create_future()


if __name__ == "__main__":
    asked = os.environ
    uvloop.run(
        serve(
            int(asked["SPRAY_FOLLOWERS"]),
            int(asked["SPRAY_BYTES"]),
            float(asked["SPRAY_S"]),
            int(asked["SPRAY_ROUNDS"]),
        )
    )
