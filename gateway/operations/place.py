"""The servers of one instance, as a command looks at them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import asyncpg
from redis.asyncio import Redis

from gateway.catalog.migrate import require_prepared
from gateway.catalog.model import CatalogError
from gateway.log import postgres
from gateway.log.postgres import Instance, Postgres
from gateway.log.redis import scripts
from gateway.log.redis.cluster import Cluster, open_redis
from gateway.log.redis.keys import PartitionKeys, partition_keys
from gateway.postgres.connection_errors import CONNECTION_ERRORS, UNANSWERED, mapped_to
from gateway.postgres.errors import PostgresTrouble
from gateway.postgres.statements import statement_of
from gateway.server_urls import redacted

statement: Final = partial(statement_of, "operations")

# A page of an audit reads a few hundred rows, and a loss may be hidden behind a long roll of them.
_STATEMENT_S: Final = 60.0
_CONNECTIONS_MAX: Final = 4


class OperationFailed(Exception):
    """Something that a person has to put right first; its text is the sentence to show."""


@dataclass(frozen=True, slots=True)
class Place:
    """An instance: its Postgres, and the Redis that its gateways use."""

    pool: asyncpg.Pool
    postgres_url: str
    redis: Redis | Cluster
    scripts: scripts.Scripts
    instance: Instance

    @property
    def postgres(self) -> Postgres:
        return Postgres(self.pool, _STATEMENT_S)

    async def fetch(self, name: str, *args: object) -> list[Any]:
        """Rows of the statement `name`. Raises PostgresTrouble."""
        return await fetch(self.pool, name, *args)

    def keys(self, p: int, epoch: int) -> PartitionKeys:
        return partition_keys(self.instance.id, p, epoch)


async def fetch(pool: asyncpg.Pool, name: str, *args: object) -> list[Any]:
    """Rows of the statement `name`. Raises PostgresTrouble, also where the role may not do it."""
    with mapped_to(PostgresTrouble, errors=(*CONNECTION_ERRORS, asyncpg.InsufficientPrivilegeError)):
        async with pool.acquire(timeout=10) as connection:
            return list(await connection.fetch(statement(name), *args))


@asynccontextmanager
async def open_place(postgres_url: str, redis_url: str, redis_timeout_s: float) -> AsyncIterator[Place]:
    """Raises OperationFailed where Postgres can't be used or is not prepared for this release. Redis is
    connected to when it is asked something."""
    async with open_database(postgres_url) as pool:
        redis = open_redis(redis_url, redis_timeout_s, _CONNECTIONS_MAX)
        try:
            instance = await Postgres(pool).instance()
            yield Place(pool, postgres_url, redis, scripts.Scripts(redis), instance)
        finally:
            await redis.aclose()


@asynccontextmanager
async def open_database(postgres_url: str) -> AsyncIterator[asyncpg.Pool]:
    """Of an instance. Raises OperationFailed where it can't be used or is not prepared for this release."""
    try:
        pool = await postgres.open_pool(postgres_url, _CONNECTIONS_MAX, _STATEMENT_S)
        async with pool.acquire() as connection:
            await require_prepared(connection)
    except CatalogError as fault:
        raise OperationFailed(str(fault)) from fault
    except UNANSWERED as fault:
        raise OperationFailed(f"Postgres at {redacted(postgres_url)} can't be used: {fault}") from fault
    try:
        yield pool
    finally:
        await pool.close()
