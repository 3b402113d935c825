"""The seam to Redis: one call of one script, its reply checked for the caller's nonce.

Foreign exceptions are mapped here; nothing above this file knows redis-py.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from hashlib import sha1
from importlib.resources import files
from typing import Any, Final

from redis.asyncio import Redis
from redis.exceptions import (
    BusyLoadingError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)

from gateway.log.redis.cluster import NOT_RUN, Cluster, servers_of
from gateway.log.redis.keys import PartitionKeys
from gateway.log.redis.servers import Server, pack
from gateway.telemetry.redact import reason

_PRELUDE: Final = "prelude.lua"
_BEFORE: Final = {"sequence": ("conditions.lua",)}
"""What is put between the prelude and a script."""
_SCRIPTS: Final = (
    "sequence", "read", "fill", "journal", "inspect", "install", "look", "evict", "clear", "entries", "probe",
)  # fmt: skip


class RedisTrouble(Exception):
    """Redis did not give a usable answer. The script may or may not have run."""


class NotRun(RedisTrouble):
    """The script has written nothing and will not: its slot is on its way to another server, or has none."""


class Refused(NotRun):
    """The server refused the script before its first write: it is full, its disk or replicas are unavailable,
    it is a replica, it loads its file, or this user may not write."""


class ForeignReply(RedisTrouble):
    """A reply that carries another call's nonce: the connection is out of step and was closed."""


_REFUSALS: Final = (OutOfMemoryError, ReadOnlyError, BusyLoadingError)
# Those that redis-py has no class for. They hold for all writes of a script alike, so for its first one.
_REFUSAL_CODES: Final = ("MISCONF ", "NOREPLICAS ", "MASTERDOWN ", "BUSY ")
# What a server adds to an error that came up inside a script: perhaps after a write.
_INSIDE: Final = " script: "


class _Script:
    __slots__ = ("digest", "name", "text")

    def __init__(self, name: str) -> None:
        folder = files("gateway.log.redis")
        self.name = name
        parts = (_PRELUDE, *_BEFORE.get(name, ()), f"{name}.lua")
        self.text = "".join([(folder / part).read_text() for part in parts])
        self.digest = sha1(self.text.encode(), usedforsecurity=False).hexdigest()


class Scripts:
    """Runs the append protocol's scripts on the server that holds their keys."""

    def __init__(self, redis: Redis | Cluster) -> None:
        self.servers = servers_of(redis)
        self._scripts = {name: _Script(name) for name in _SCRIPTS}
        # Unique among all callers of this Redis, so that no reply can be taken for another's.
        self.caller = os.urandom(8).hex()
        self._nonce = f"{self.caller}-".encode()
        self._calls = itertools.count()

    async def run(
        self, name: str, keys: Sequence[str | bytes], args: Sequence[str | bytes | int]
    ) -> list[Any]:
        """The reply without its nonce. All keys share one slot.

        Raises RedisTrouble when there is none: the script may have run, may run yet, or never will; NotRun
        where it did not run and will not.
        """
        script = self._scripts[name]
        nonce = b"%b%d" % (self._nonce, next(self._calls))
        packed = pack(("EVALSHA", script.digest, len(keys), *keys, nonce, *args))
        try:
            reply = (await self.servers.send(packed, 1, keys[0]))[0]
            if isinstance(reply, NoScriptError):
                # Not run: the server is new, or its script cache was flushed.
                load = pack(("SCRIPT", "LOAD", script.text))
                reply = (await self.servers.send_after(load, packed, 1, keys[0]))[0]
            if isinstance(reply, ResponseError):
                raise reply
        except NOT_RUN as refused:
            raise NotRun(f"{name}: {reason(refused)}") from refused
        except (RedisError, OSError) as error:
            if _is_refusal(error):
                raise Refused(f"{name}: {reason(error)}") from error
            raise RedisTrouble(f"{name}: {reason(error)}") from error
        if reply[0] != nonce:
            await self.close()
            raise ForeignReply(f"{name}: the reply belongs to another call")
        return reply[1:]  # type: ignore[no-any-return]

    async def hindrance(self, unused: PartitionKeys) -> str | None:
        """What hinders scripts on a partition's server, by trying each command that they use; None: nothing.
        `unused` are its keys of an epoch that there never is. Raises RedisTrouble."""
        wrong = await self.run("probe", (unused.meta, f"{unused.prefix}h", f"{unused.prefix}s"), ())
        return "; ".join(each.decode() for each in wrong) or None

    async def server_of(self, key: str) -> Server:
        """Where scripts on this key are run now. Raises RedisTrouble."""
        try:
            return await self.servers.holding(key)
        except (RedisError, OSError) as error:
            raise RedisTrouble(reason(error)) from error

    async def close(self) -> None:
        """Closes what is idle; calls under way keep their connections."""
        await self.servers.close()


def _is_refusal(error: Exception) -> bool:
    """Whether the server refused the script before its first write."""
    if isinstance(error, NoPermissionError):
        return _INSIDE not in str(error)
    return isinstance(error, _REFUSALS) or str(error).startswith(_REFUSAL_CODES)
