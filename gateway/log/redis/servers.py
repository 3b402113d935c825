"""One Redis server: commands that are never sent twice, over connections of their own.

redis-py makes, secures and reads the connections. What it does around each command (a pool's checks, a task
for each deadline, packing argument by argument) costs more than a script, so that is done here.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha1
from importlib.resources import files
from typing import Any, Final

from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection, SSLConnection
from redis.driver_info import DriverInfo
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from gateway.log.redis.tls import Certificates, TlsConnection


class Server:
    """`client` is redis-py's, for what is not on the way of an append; `name`: its address in a cluster."""

    def __init__(self, client: Redis, name: str = "") -> None:
        self.client = client
        self.name = name
        self.host = name.rpartition(":")[0].strip("[]")
        self.silent = False
        """In a cluster: whether it did not answer the last look, or no node told where to look."""
        self._pool = client.connection_pool
        # Of the whole call, and ours to keep: redis-py starts a timer for the write and one for the read.
        self._timeout_s: float | None = self._pool.connection_kwargs.get("socket_timeout")
        self._idle: list[AbstractConnection] = []
        self._under_way: set[asyncio.Timeout] = set()
        self._ended = False

    async def send(self, packed: bytes, replies: int = 1, key: str | bytes = "") -> list[Any]:
        """The replies to so many packed commands; one may be a ResponseError. Raises RedisError and OSError.
        `key`, which they are about, only tells a cluster's server.

        Never sent twice. A connection that did not bring every reply is closed: it would be out of step.
        """
        connection = self._idle.pop() if self._idle else self._new_connection()
        in_step = False
        try:
            async with asyncio.timeout(self._timeout_s) as patience:
                self._under_way.add(patience)
                if not connection.is_connected:
                    await connection.connect()  # type: ignore[no-untyped-call]
                    connection.socket_timeout = None
                await connection.send_packed_command(packed, check_health=False)
                found = [await _reply(connection) for _ in range(replies)]
            in_step = True
            return found
        except RuntimeError as closed:  # uvloop, of a connection that the other side has reset
            raise RedisConnectionError(str(closed)) from closed
        except TimeoutError as late:
            raise RedisTimeoutError(
                f"no answer within {self._timeout_s or 0:g} s, or before Redis was given up"
            ) from late
        finally:
            self._under_way.discard(patience)
            if in_step and not self._ended:
                self._idle.append(connection)
            else:
                await connection.disconnect(nowait=True)
                await self.close()  # what broke this one broke the others too: a server that restarted, say

    async def hashes(
        self, keys: tuple[str, ...], fields: tuple[str, ...], timeout_s: float | None
    ) -> list[Any]:
        """The values of these fields of hashes, as of a master that takes writes, each hash's with the id of
        its data's history; one that lacks any has None. Raises RedisError and OSError, also where something
        is refused; `timeout_s` where that is sooner than as usual."""
        packed = _look_at(keys, fields)
        async with asyncio.timeout(timeout_s):
            replies = await self.send(packed, 3)
            if isinstance(replies[0], NoScriptError):
                replies = await self.send_after(_LOAD_HASHES, packed, 3)
        for each in replies:
            if isinstance(each, RedisError):
                raise each
        lines, _, replication = replies
        if b"role:master" not in replication:
            raise RedisError("it is a replica")
        history = history_of(replication)
        return [(line.split(b" ") if line else (None,), history) for line in lines.split(b"\n")]

    async def send_after(
        self, before: bytes, packed: bytes, replies: int = 1, key: str | bytes = ""
    ) -> list[Any]:
        """As `send`, with a command before it that concerns no key and may be refused."""
        await self.send(before)
        return await self.send(packed, replies, key)

    @property
    def under_way(self) -> bool:
        """Whether a call is."""
        return bool(self._under_way)

    async def holding(self, key: str) -> Server:
        """Whichever key it is."""
        return self

    async def all(self) -> Sequence[Server]:
        """Those that hold keys, or may come to."""
        return (self,)

    def give_up(self) -> None:
        """The server has not answered for too long: callers stop waiting for calls under way."""
        now = asyncio.get_running_loop().time()
        for patience in self._under_way:
            if not patience.expired():
                patience.reschedule(now)

    def _new_connection(self) -> AbstractConnection:
        return self._pool.make_connection()  # type: ignore[no-any-return,no-untyped-call]

    async def close(self) -> None:
        """Closes what is idle; calls under way keep their connections."""
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.disconnect(nowait=True)

    async def aclose(self) -> None:
        """No connection is left, but those of calls under way until they have ended; nor is the client's."""
        self._ended = True
        await self.close()
        await self.client.aclose()


async def _reply(connection: AbstractConnection) -> Any:
    try:
        return await connection.read_response()
    except ResponseError as refused:
        return refused


def pack(command: Sequence[str | bytes | int]) -> bytes:
    """A command as Redis reads it (RESP)."""
    parts = [b"*%d\r\n" % len(command)]
    for part in command:
        if type(part) is not bytes:
            part = (part if type(part) is str else str(part)).encode()
        parts += (b"$%d\r\n" % len(part), part, b"\r\n")  # the long ones are copied once
    return b"".join(parts)


def no_write(key: str) -> bytes:
    """A command about the key's slot that changes nothing, for there never is a key of that name; and is
    refused, or waits, as any write would."""
    return pack(("UNLINK", key + ":none"))


REPLICATION: Final = pack(("INFO", "replication"))


_HASHES: Final = (files("gateway.log.redis") / "hashes.lua").read_text()
_LOAD_HASHES: Final = pack(("SCRIPT", "LOAD", _HASHES))


@lru_cache(8)
def _look_at(keys: tuple[str, ...], fields: tuple[str, ...]) -> bytes:
    digest = sha1(_HASHES.encode(), usedforsecurity=False).hexdigest()
    return pack(("EVALSHA", digest, len(keys), *keys, *fields)) + no_write(keys[0]) + REPLICATION


def history_of(told: bytes) -> bytes:
    """The id of the history that a server's data have, by its INFO replication: another one after a restart
    or a promotion. Partitions are fenced by it (redis/prelude.lua)."""
    found = re.search(rb"master_replid:([0-9a-f]+)", told)
    return b"" if found is None else found[1]


def connect(url: str, timeout_s: float, connections_max: int) -> Redis:
    """A client that never resends by itself: a command whose reply was lost may have been carried out,
    and only the protocol knows how to ask (`retry=None`)."""
    client: Redis = Redis.from_url(
        url,
        retry=None,
        retry_on_error=[],
        socket_timeout=timeout_s,
        socket_connect_timeout=timeout_s,
        socket_read_size=256 * 1024,
        health_check_interval=0,
        max_connections=connections_max,
        decode_responses=False,
        protocol=2,
        client_name="sluice",
        driver_info=DriverInfo(),  # else each connection reads redis-py's version from a file
    )
    pool = client.connection_pool
    if pool.connection_class is SSLConnection:
        pool.connection_class = TlsConnection
        pool.connection_kwargs["certificates"] = Certificates()
    return client
