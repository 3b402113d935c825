"""Connections to one Redis server, on the event loop that gateways run on."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from urllib.parse import urlsplit

import pytest
import uvloop
from redis.exceptions import ConnectionError as RedisConnectionError

from gateway.log.redis.servers import Server, connect, pack
from tests.support.drive import until
from tests.support.servers import Servers

PING = pack(("PING",))


class Between:
    """Stands between a client and Redis, as what resets connections that are not used does."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._clients: list[asyncio.StreamWriter] = []
        self._over = asyncio.Condition()
        self._serving = 0

    async def listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._serve, "127.0.0.1", 0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._clients.append(writer)
        self._serving += 1
        there, to_redis = await asyncio.open_unix_connection(self._path)
        await asyncio.gather(_pass_on(reader, to_redis), _pass_on(there, writer))
        async with self._over:
            self._serving -= 1
            self._over.notify_all()

    def reset(self) -> None:
        for writer in self._clients:
            at_once = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
            writer.transport.abort()

    async def ended(self) -> None:
        """No client is left."""
        async with self._over:
            await self._over.wait_for(lambda: not self._serving)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Until either end is gone."""
    with contextlib.suppress(OSError, RuntimeError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def use_what_was_reset(path: str) -> None:
    between = Between(path)
    listening = await between.listen()
    server = Server(connect(f"redis://127.0.0.1:{listening.sockets[0].getsockname()[1]}", 5, 4))
    assert await server.send(PING) == [b"PONG"]
    (idle,) = server._idle
    between.reset()

    async def told() -> bool:
        return bool(idle._writer.transport.is_closing())  # type: ignore[attr-defined]

    await until(told)
    with pytest.raises(RedisConnectionError):
        await server.send(PING)
    assert await server.send(PING) == [b"PONG"], "over another connection"
    await server.aclose()
    await between.ended()
    listening.close()
    await listening.wait_closed()


async def test_an_idle_connection_that_was_reset_is_a_connection_that_failed(servers: Servers) -> None:
    await asyncio.to_thread(uvloop.run, use_what_was_reset(urlsplit(servers.redis_url).path))


async def test_fields_of_hashes_come_in_one_reply_also_where_the_script_is_new(
    servers: Servers,
) -> None:
    client = connect(servers.redis_url, 5, 4)
    server = Server(client)
    whole, part, none = (f"sluice-test:{{1}}:{name}" for name in ("whole", "part", "none"))
    await client.hset(whole, mapping={"epoch": "3", "fence": ""})
    await client.hset(part, mapping={"epoch": "3"})
    for _ in range(2):
        await client.script_flush()
        found = await server.hashes((whole, part, none), ("epoch", "fence"), None)
        assert [values for values, _ in found] == [[b"3", b""], (None,), (None,)]
        assert {len(history) for _, history in found} == {40}
    await client.delete(whole, part)
    await server.aclose()
