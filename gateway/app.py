"""The composition root: the one module that knows every class, and the life of a gateway process.

Start: settings, Postgres, Redis, log, catalog, then the socket. Stop: no new connections, finish what was
accepted, flush the log, close.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import uvicorn
import uvloop
from redis.asyncio import Redis
from redis.exceptions import RedisError

from gateway.catalog.catalog import Catalog
from gateway.catalog.migrate import require_prepared
from gateway.catalog.model import CatalogError, CatalogUnavailable
from gateway.config import Config, redacted
from gateway.edge.appends import Appends
from gateway.edge.bulk import Bulk
from gateway.edge.callers import Callers
from gateway.edge.follow import Follow
from gateway.edge.gate import Gate
from gateway.edge.health import Health
from gateway.edge.ids import Ids
from gateway.edge.outcomes import Outcomes
from gateway.edge.protocol import make_protocol
from gateway.edge.reads import Reads
from gateway.edge.specs import Specs
from gateway.edge.states import States
from gateway.edge.system import System
from gateway.log import postgres, scripts
from gateway.log.limits import Limits
from gateway.log.log import Log
from gateway.log.partition import PARTITION_RULE

logger = logging.getLogger("sluice")

_POOL_MAX = 8
_CATALOG_POOL_MAX = 4
_REDIS_CONNECTIONS_MAX = 64
_QUEUE_BYTES_MAX = 64 * 1024 * 1024
_BACKLOG = 2048
_LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"


class CannotStart(Exception):
    """Something a person has to put right before a gateway can serve."""


@asynccontextmanager
async def gateway(config: Config, stopping: asyncio.Event) -> AsyncIterator[Gate]:
    """The application, with all that it needs started; afterwards all of it is stopped, nothing lost.
    `stopping` is set when no more requests come: whoever follows live is let go.

    Raises CannotStart.
    """
    pool = await _open_postgres(config, _POOL_MAX)
    catalog_pool = await _open_postgres(config, _CATALOG_POOL_MAX)
    redis = scripts.connect(config.redis_url, config.redis_timeout_s, _REDIS_CONNECTIONS_MAX)
    try:
        await _check_redis(redis, config)
        instance = await postgres.Postgres(pool).instance()
        if instance.rule != PARTITION_RULE:
            raise CannotStart(f"this release can't spread tenants by the rule {instance.rule!r}")
        log = Log(redis, pool, config.postgres_url, instance, _limits(config))
        catalog = Catalog(catalog_pool, os.environ)
        await catalog.start()
        log.on_watch(catalog.refresh)
        await log.start()
        outcomes = Outcomes(log)
        try:
            callers = Callers(catalog)
            yield Gate(
                callers,
                Appends(log, catalog, outcomes, config),
                Reads(log, catalog),
                States(log),
                Follow(log, stopping),
                System(
                    callers,
                    Health(log),
                    Bulk(log, catalog, outcomes, config),
                    Specs(catalog, catalog_pool, config.body_bytes_max),
                    Ids(catalog, config.body_bytes_max),
                    log,
                ),
            )
        finally:
            await log.stop(config.shutdown_s)
    finally:
        await redis.aclose()
        await asyncio.gather(_close(pool), _close(catalog_pool))


async def _open_postgres(config: Config, size_max: int) -> asyncpg.Pool:
    try:
        pool = await postgres.open_pool(config.postgres_url, size_max, config.read_deadline_s)
        async with pool.acquire() as connection:
            await require_prepared(connection)
    except CatalogError as fault:
        raise CannotStart(str(fault)) from fault
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as fault:
        raise CannotStart(f"Postgres at {redacted(config.postgres_url)} can't be used: {fault}") from fault
    return pool


async def _close(pool: asyncpg.Pool) -> None:
    try:
        await asyncio.wait_for(pool.close(), 5)
    except TimeoutError:
        pool.terminate()


async def _check_redis(redis: Redis, config: Config) -> None:
    """A Redis that evicts what it likes would lose what is sequenced; refuse it. One that does not answer is
    waited for: the log opens its partitions when it comes."""
    try:
        policy = (await redis.config_get("maxmemory-policy")).get("maxmemory-policy")
    except (RedisError, OSError) as trouble:
        logger.warning(
            "can't ask Redis for its eviction policy",
            extra={"redis": redacted(config.redis_url), "why": str(trouble)},
        )
        return
    if policy not in ("noeviction", b"noeviction"):
        raise CannotStart(
            f"Redis at {redacted(config.redis_url)} has maxmemory-policy {policy!r}: it may drop what is not "
            "committed yet. Set it to noeviction."
        )


def _limits(config: Config) -> Limits:
    return Limits(
        sequence_appends_max=config.sequence_appends_max,
        sequence_bytes_max=config.sequence_bytes_max,
        commit_rows_max=config.commit_rows_max,
        inflight_events_max=config.inflight_events_max,
        queue_bytes_max=_QUEUE_BYTES_MAX,
        append_deadline_s=config.append_deadline_s,
        commit_timeout_s=config.append_deadline_s / 2,
        journal_keep_s=config.journal_keep_s,
        identity_window=config.identity_window,
    )


def serve(config: Config) -> None:
    """Runs a gateway until SIGTERM or SIGINT. Exits 1 with a sentence when it can't start."""
    logging.basicConfig(
        level=config.log_level.upper(),
        stream=sys.stderr,
        format=_LOG_FORMAT,
    )
    try:
        uvloop.run(_serve(config))
    except (CannotStart, CatalogUnavailable, postgres.PostgresTrouble) as fault:
        sys.exit(f"sluice serve: {fault}")


async def _serve(config: Config) -> None:
    stopping = asyncio.Event()
    async with gateway(config, stopping) as application:
        server = _Server(
            stopping,
            uvicorn.Config(
                application,
                http=make_protocol(config.headers_max, config.header_bytes_max, config.body_timeout_s),
                ws="none",
                lifespan="off",
                loop="none",
                interface="asgi3",
                access_log=False,
                log_config=None,
                server_header=False,
                date_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=int(config.shutdown_s),
            ),
        )
        with _listen(config) as listening:
            await server.serve(sockets=[listening])


class _Server(uvicorn.Server):
    """Tells live followers to go before it waits for its connections to end."""

    def __init__(self, stopping: asyncio.Event, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._stopping = stopping

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._stopping.set()
        await super().shutdown(sockets)


def _listen(config: Config) -> socket.socket:
    """The socket that a supervisor handed over, or one of our own."""
    if config.listen_fd is not None:
        return socket.socket(fileno=config.listen_fd)
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((config.host, config.port))
    except OSError as fault:
        raise CannotStart(f"can't listen on {config.host}:{config.port}: {fault.strerror}") from fault
    listening.listen(_BACKLOG)
    return listening
