"""Which gateways share the instance, and which partitions wait for a person. Read from Postgres by look only:
nothing is kept."""

from __future__ import annotations

from functools import partial
from typing import Any, Final, NamedTuple

import asyncpg

from gateway.catalog.closing import READER_GONE_S
from gateway.console.sessions import ANSWER_S
from gateway.log.watch import REACH_KEPT_S
from gateway.postgres.statements import statement_of

KNOWN_MAX: Final = 100
"""Gateways, and partitions with an alarm, of one page."""

_statement: Final = partial(statement_of, "console")


class Gateway(NamedTuple):
    """`silent_s`: since its last report, which comes once a second."""

    id: str
    silent_s: float

    @property
    def gone(self) -> bool:
        return self.silent_s > READER_GONE_S


class WithoutRedis(NamedTuple):
    """A gateway that cannot reach the Redis of some partitions."""

    gateway: str
    partitions: int


class Alarm(NamedTuple):
    partition: int
    reason: str


class Instance(NamedTuple):
    gateways: tuple[Gateway, ...]
    without_redis: tuple[WithoutRedis, ...]
    alarms: tuple[Alarm, ...]


class InstanceReader:
    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def read(self) -> Instance:
        """Raises what asyncpg raises where Postgres does not answer."""
        async with self._pool.acquire(timeout=ANSWER_S) as conn:

            async def rows(name: str, *arguments: object) -> Any:
                return await conn.fetch(_statement(name), *arguments, KNOWN_MAX, timeout=ANSWER_S)

            return Instance(
                tuple(Gateway(str(row["gateway"]), row["silent_s"]) for row in await rows("known_gateways")),
                tuple(
                    WithoutRedis(row["gateway"], row["count"])
                    for row in await rows("without_redis", REACH_KEPT_S)
                ),
                tuple(Alarm(row["p"], row["alarm"]) for row in await rows("alarms")),
            )
