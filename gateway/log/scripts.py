"""The seam to Redis: one call of one script, its reply checked for the caller's nonce.

Foreign exceptions are mapped here; nothing above this file knows redis-py.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Awaitable, Callable, Sequence
from hashlib import sha1
from importlib.resources import files
from typing import Any, Final

from redis.asyncio import Redis
from redis.exceptions import NoScriptError, RedisError

from gateway.telemetry.redact import reason

_PRELUDE: Final = "prelude.lua"
_SCRIPTS: Final = ("sequence", "read", "journal", "inspect", "install", "fill", "entries", "probe")


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
    """Runs the append protocol's scripts on one Redis."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._scripts = {name: _Script(name) for name in _SCRIPTS}
        # Unique among all callers of this Redis, so that no reply can be taken for another's.
        self.caller = os.urandom(8).hex()
        self._calls = itertools.count()

    async def run(self, name: str, keys: Sequence[str], args: Sequence[str | bytes | int]) -> list[Any]:
        """The reply without its nonce.

        Raises RedisTrouble when there is none: the script may have run, may run yet, or never will.
        """
        script = self._scripts[name]
        nonce = b"%s-%d" % (self.caller.encode(), next(self._calls))
        command = (script.digest, len(keys), *keys, nonce, *args)
        try:
            reply = await self._evaluate(script, command)
        except (RedisError, OSError) as error:
            raise RedisTrouble(f"{name}: {reason(error)}") from error
        if reply[0] != nonce:
            await self._redis.connection_pool.disconnect()
            raise ForeignReply(f"{name}: the reply belongs to another call")
        return reply[1:]

    async def _evaluate(self, script: _Script, command: tuple[Any, ...]) -> list[Any]:
        execute: Callable[..., Awaitable[list[Any]]] = self._redis.execute_command
        try:
            return await execute("EVALSHA", *command)
        except NoScriptError:
            # Not run: the server is new, or its script cache was flushed.
            await execute("SCRIPT LOAD", script.text)
            return await execute("EVALSHA", *command)


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
