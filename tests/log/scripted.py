"""One partition of an instance of its own, on which a test calls the scripts with arguments of its choice."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from redis.asyncio import Redis

from gateway.appends import Append
from gateway.log.append.calls import CallHead, sequence_call
from gateway.log.append.pending import Look
from gateway.log.redis.keys import PartitionKeys, partition_keys
from gateway.log.redis.scripts import Scripts

WINDOW = 10_000


@dataclass(slots=True)
class Partition:
    """One partition of an instance that no other test knows, and a gateway that calls scripts on it."""

    redis: Redis
    scripts: Scripts
    epoch: int = 1
    instance: uuid.UUID = field(default_factory=uuid.uuid4)
    calls: int = 0

    @property
    def keys(self) -> PartitionKeys:
        return partition_keys(self.instance, 3, self.epoch)

    async def replid(self) -> str:
        return (await self.redis.info("replication"))["master_replid"]

    async def install(self, epoch: int = 1, seq: int = 0, chain: str = "", w: int = 20_000) -> bytes:
        args = (epoch, await self.replid(), seq, chain, w)
        (answer,) = await self.scripts.run("install", (self.keys.meta, self.keys.heads), args)
        if answer == b"OK":
            self.epoch = epoch
        return answer

    async def sequence(
        self, *appends: Append, hints: Sequence[str] | None = None, window: int = WINDOW,
        told: tuple[int, str] = (0, ""), tail: int = 256, looked_up: int = 0, number: int | None = None,
        caller: str = "me", expected: Sequence[float] | None = None,
        looks: Sequence[Look | None] = (),
    ) -> list[Any]:  # fmt: skip
        self.calls += 1
        number = self.calls if number is None else number
        head = CallHead(self.epoch, window, *told, tail, looked_up, caller, number)
        hints = hints or self._fresh(appends)
        names, args = sequence_call(self.keys, head, appends, hints, expected, (), looks)
        return await self.scripts.run("sequence", names, args)

    def _fresh(self, appends: Sequence[Append]) -> list[str]:
        return [" ".join([self.fresh] * len(each.streams)) for each in appends]

    @property
    def fresh(self) -> str:
        """Postgres says that the stream is new, at any time."""
        return f"{self.epoch}.{2**52}:0"

    async def answers(self, *appends: Append, **how: Any) -> list[Any]:
        reply = await self.sequence(*appends, **how)
        assert reply[0] == b"OK", reply
        return reply[7:]

    async def meta(self) -> dict[str, str]:
        return {k.decode(): v.decode() for k, v in (await self.redis.hgetall(self.keys.meta)).items()}

    async def entries(self, key: str) -> list[Any]:
        return await self.redis.eval("return redis.call('XRANGE', KEYS[1], '-', '+')", 1, key)
