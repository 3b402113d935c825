"""The seam to Redis: one call of one script, its reply checked for the caller's nonce.

Foreign exceptions are mapped here; nothing above this file knows redis-py.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Sequence
from hashlib import sha1
from importlib.resources import files
from typing import Any, Final

from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import NoScriptError, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from gateway.telemetry.redact import reason

_PRELUDE: Final = "prelude.lua"
_SCRIPTS: Final = (
    "sequence", "read", "fill", "journal", "inspect", "install", "look", "evict", "clear", "entries", "probe",
)  # fmt: skip


class RedisTrouble(Exception):
    """Redis did not give a usable answer. The script may or may not have run."""


class ForeignReply(RedisTrouble):
    """A reply that carries another call's nonce: the connection is out of step and was closed."""


class _Script:
    __slots__ = ("digest", "name", "text")

    def __init__(self, name: str) -> None:
        folder = files("gateway.log") / "redis"
        self.name = name
        self.text = (folder / _PRELUDE).read_text() + (folder / f"{name}.lua").read_text()
        self.digest = sha1(self.text.encode(), usedforsecurity=False).hexdigest()


class Scripts:
    """Runs the append protocol's scripts on one Redis, over connections of its own.

    redis-py makes, secures and reads the connections. What it does around each command (a pool's checks, a
    task for each deadline, packing argument by argument) costs more than the script, so that is done here.
    """

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._pool = redis.connection_pool
        # Of the whole call, and ours to keep: redis-py starts a timer for the write and one for the read.
        self._timeout_s: float | None = self._pool.connection_kwargs.get("socket_timeout")
        self._idle: list[AbstractConnection] = []
        self._scripts = {name: _Script(name) for name in _SCRIPTS}
        # Unique among all callers of this Redis, so that no reply can be taken for another's.
        self.caller = os.urandom(8).hex()
        self._nonce = f"{self.caller}-".encode()
        self._calls = itertools.count()

    async def run(
        self, name: str, keys: Sequence[str | bytes], args: Sequence[str | bytes | int]
    ) -> list[Any]:
        """The reply without its nonce.

        Raises RedisTrouble when there is none: the script may have run, may run yet, or never will.
        """
        script = self._scripts[name]
        nonce = b"%b%d" % (self._nonce, next(self._calls))
        packed = pack(("EVALSHA", script.digest, len(keys), *keys, nonce, *args))
        try:
            reply = (await self.send(packed))[0]
            if isinstance(reply, NoScriptError):
                # Not run: the server is new, or its script cache was flushed.
                await self.send(pack(("SCRIPT", "LOAD", script.text)))
                reply = (await self.send(packed))[0]
            if isinstance(reply, ResponseError):
                raise reply
        except (RedisError, OSError) as error:
            raise RedisTrouble(f"{name}: {reason(error)}") from error
        if reply[0] != nonce:
            await self.close()
            raise ForeignReply(f"{name}: the reply belongs to another call")
        return reply[1:]  # type: ignore[no-any-return]

    async def send(self, packed: bytes, replies: int = 1) -> list[Any]:
        """The replies to so many packed commands; one may be a ResponseError. Raises RedisError and OSError.

        Never sent twice. A connection that did not bring every reply is closed: it would be out of step.
        """
        connection = self._idle.pop() if self._idle else self._new_connection()
        in_step = False
        try:
            async with asyncio.timeout(self._timeout_s):
                if not connection.is_connected:
                    await connection.connect()  # type: ignore[no-untyped-call]
                    connection.socket_timeout = None
                await connection.send_packed_command(packed, check_health=False)
                found = [await _reply(connection) for _ in range(replies)]
            in_step = True
            return found
        except TimeoutError as late:
            raise RedisTimeoutError(f"no answer within {self._timeout_s:g} s") from late
        finally:
            if in_step:
                self._idle.append(connection)
            else:
                await connection.disconnect(nowait=True)
                await self.close()  # what broke this one broke the others too: a server that restarted, say

    def _new_connection(self) -> AbstractConnection:
        return self._pool.make_connection()  # type: ignore[no-any-return,no-untyped-call]

    async def close(self) -> None:
        """Closes what is idle; calls under way keep their connections."""
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.disconnect(nowait=True)


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
        parts.append(b"$%d\r\n%b\r\n" % (len(part), part))
    return b"".join(parts)


def connect(url: str, timeout_s: float, connections_max: int) -> Redis:
    """A client that never resends by itself: a command whose reply was lost may have been carried out,
    and only the protocol knows how to ask (`retry=None`)."""
    return Redis.from_url(
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
    )
