"""Connections to the servers for a process's life; what keeps a process from starting."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

import asyncpg
from redis.asyncio import Redis
from redis.exceptions import RedisError

from gateway.catalog.migrate import require_prepared
from gateway.catalog.model import CatalogError
from gateway.config import Config, redacted
from gateway.log import postgres
from gateway.telemetry.redact import reason

logger = logging.getLogger("sluice")

_CLOSE_S: Final = 5.0


class CannotStart(Exception):
    """Something a person has to put right before a process can do its work."""


async def open_postgres(config: Config, size_max: int) -> asyncpg.Pool:
    """A pool on a database of this release. Raises CannotStart."""
    try:
        pool = await postgres.open_pool(config.postgres_url, size_max, config.read_deadline_s)
        async with pool.acquire() as connection:
            await require_prepared(connection)
    except CatalogError as fault:
        raise CannotStart(str(fault)) from fault
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as fault:
        raise CannotStart(f"Postgres at {redacted(config.postgres_url)} can't be used: {fault}") from fault
    return pool


async def close_pool(pool: asyncpg.Pool) -> None:
    """In order, or by force."""
    try:
        await asyncio.wait_for(pool.close(), _CLOSE_S)
    except TimeoutError:
        pool.terminate()


async def check_redis(redis: Redis, config: Config) -> None:
    """A Redis that evicts what it likes would lose what is sequenced; refuse it. One that does not answer is
    waited for: the log opens its partitions when it comes."""
    try:
        policy = (await redis.info("memory")).get("maxmemory_policy")  # CONFIG GET would show secrets too
    except (RedisError, OSError) as trouble:
        told = {"redis": redacted(config.redis_url), "why": reason(trouble)}
        logger.warning("redis_policy_unknown", extra=told)
        return
    if policy != "noeviction":
        raise CannotStart(
            f"Redis at {redacted(config.redis_url)} has maxmemory-policy {policy!r}: it may drop what is not "
            "committed yet. Set it to noeviction."
        )
