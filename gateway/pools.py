"""Connections to the servers for a process's life, and the port for operators; what keeps a process from
starting."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Final

import asyncpg
from redis.asyncio import Redis
from redis.exceptions import RedisError

from gateway.catalog.migrate import require_prepared
from gateway.catalog.model import CatalogError
from gateway.config import Config
from gateway.http.ops import bind_ops
from gateway.log import postgres
from gateway.log.redis.cluster import Cluster, servers_of
from gateway.log.redis.servers import Server
from gateway.postgres.connection_errors import UNANSWERED
from gateway.server_urls import redacted
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
    except UNANSWERED as fault:
        raise CannotStart(f"Postgres at {redacted(config.postgres_url)} can't be used: {fault}") from fault
    return pool


async def close_pool(pool: asyncpg.Pool) -> None:
    """In order, or by force."""
    try:
        await asyncio.wait_for(pool.close(), _CLOSE_S)
    except TimeoutError:
        pool.terminate()


async def check_redis(redis: Redis | Cluster, config: Config) -> None:
    """A Redis that evicts what it likes would lose what is sequenced, and one node of a cluster holds but
    some partitions: refuse them. One that does not answer is waited for: the log opens its partitions when
    it comes. Raises CannotStart."""
    try:
        for server in await servers_of(redis).all():
            await _check_server(server, config, as_cluster=isinstance(redis, Cluster))
    except (RedisError, OSError) as trouble:
        told = {"redis": redacted(config.redis_url), "reason": reason(trouble)}
        logger.warning("redis_policy_unknown", extra=told)


async def _check_server(server: Server, config: Config, *, as_cluster: bool) -> None:
    where = server.name if as_cluster else redacted(config.redis_url)
    try:
        info = await server.client.info("memory", "cluster")  # CONFIG GET would show secrets too
    except (RedisError, OSError) as trouble:
        logger.warning("redis_policy_unknown", extra={"redis": where, "reason": reason(trouble)})
        return
    if (policy := info.get("maxmemory_policy")) != "noeviction":
        raise CannotStart(
            f"Redis at {where} has maxmemory-policy {policy!r}: it may drop what is not committed yet. Set "
            "it to noeviction."
        )
    if info.get("cluster_enabled") and not as_cluster:
        raise CannotStart(
            f"Redis at {where} is a node of a cluster: let SLUICE_REDIS_URL begin with redis+cluster:// (or "
            "rediss+cluster://) and name some of its nodes."
        )


def ops_listener(config: Config) -> socket.socket | None:
    """For operators, if they asked for one and no other process has it. Raises CannotStart."""
    if config.ops_port is None:
        return None
    try:
        return bind_ops(config.ops_host, config.ops_port)
    except OSError as fault:
        where = f"SLUICE_OPS_HOST {config.ops_host}, SLUICE_OPS_PORT {config.ops_port}"
        raise CannotStart(f"can't listen on {where}: {fault.strerror}") from fault
