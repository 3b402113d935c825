"""The composition root: what a gateway has running, and its start and stop. edge.py composes of it what
answers requests.

Start: Postgres, Redis, log, catalog. Stop: finish what was accepted, flush the log, close. Operators can look
on until the end. serve.py puts a socket in front.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import asyncpg
from prometheus_client import CollectorRegistry

from gateway import __version__
from gateway.aggregates.folder import Folder
from gateway.aggregates.keeper import Keeper
from gateway.aggregates.kept import KeptStates
from gateway.aggregates.placing import Placing
from gateway.aggregates.records import Records
from gateway.aggregates.ruled import Ruled
from gateway.aliases.assigner import Assigner
from gateway.aliases.children import Children
from gateway.aliases.projects import ProjectKeys
from gateway.aliases.resolver import Resolver
from gateway.aliases.store import Store
from gateway.aliases.writer import Writer
from gateway.aside import SWITCH_S, Aside
from gateway.catalog.catalog import Catalog
from gateway.catalog.model import Deployed
from gateway.catalog.secrets import Secrets
from gateway.catalog.source_ids import mapped_by
from gateway.config import Config
from gateway.console.instance import InstanceReader
from gateway.console.rates import Rates
from gateway.console.sessions import Sessions
from gateway.edge import ConsoleParts, Edge, Operators, edge_of
from gateway.events import Stream
from gateway.http.api.aliases import Aliases
from gateway.http.api.health import Health
from gateway.http.api.reads import Reads
from gateway.http.api.specs import DEPLOYED_AT_ONCE
from gateway.http.api.upcasts import Upcasts
from gateway.http.metrics import MetricsPage
from gateway.http.ops import Ops, ops_listening
from gateway.inbound.intake import Intake
from gateway.inbound.recorder import recording
from gateway.inbound.verify.amazon import Amazon
from gateway.json_values import decode_data
from gateway.log import postgres
from gateway.log.limits import limits_of
from gateway.log.log import Log
from gateway.log.redis.cluster import open_redis
from gateway.network import GuardedNetwork
from gateway.operations.audit_loop import AuditLoop
from gateway.operations.deletions import Deletions
from gateway.outbound import heard, outgoing
from gateway.partitions import PARTITION_RULE
from gateway.pools import CannotStart, check_redis, close_pool, open_postgres, ops_listener
from gateway.postgres.errors import PostgresTrouble
from gateway.postgres.shares import Shares
from gateway.reactions.reactor import Reactor
from gateway.relay.due import looking
from gateway.relay.live import Live
from gateway.relay.outbox import Outbox
from gateway.relay.repeated import Repeated
from gateway.tasks import ended
from gateway.telemetry import logs
from gateway.telemetry.metrics import Metrics, Reading
from gateway.telemetry.steps import Telemetry

if TYPE_CHECKING:  # the SDK is there only where traces are on
    from gateway.telemetry.tracing import OtelTracing

logger = logging.getLogger("sluice")

_POOL_MAX = 8
_CATALOG_POOL_MAX = 2
_ADMIN_POOL_MAX = DEPLOYED_AT_ONCE  # a deployment that waits never makes the catalog stale
_KEY_POOL_MAX = 1  # one statement at a time
_CONSOLE_POOL_MAX = 1  # only where there is a console: its sessions never hold up a key
_OUTBOX_POOL_MAX = 4  # readers of the whole history do not stand in the way of appends
_REDIS_CONNECTIONS_MAX = 64
_AGAIN_S = 1.0
_OTLP_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


@asynccontextmanager
async def gateway(
    config: Config, stopping: asyncio.Event, amazon: Amazon | None = None
) -> AsyncIterator[Edge]:
    """What a server is given, with all that it needs started; afterwards all of it is stopped, nothing lost.
    `stopping` is set when no more requests come: live followers are let go. `amazon` is asked in place
    of Amazon, if there is one.

    Raises CannotStart.
    """
    pool = await open_postgres(config, _POOL_MAX)
    catalog_pool = await open_postgres(config, _CATALOG_POOL_MAX)
    admin_pool = await open_postgres(config, _ADMIN_POOL_MAX)
    key_pool = await open_postgres(config, _KEY_POOL_MAX)
    outbox_pool = await open_postgres(config, _OUTBOX_POOL_MAX)
    redis = open_redis(config.redis_url, config.redis_timeout_s, _REDIS_CONNECTIONS_MAX)
    metrics = Metrics(CollectorRegistry())
    amazon = amazon or _amazon(config)
    aside = Aside(config.heavy_waiting_max, config.heavy_wait_s)
    sys.setswitchinterval(SWITCH_S)
    try:
        await check_redis(redis, config)
        instance = await postgres.Postgres(pool).instance()
        if instance.rule != PARTITION_RULE:
            raise CannotStart(f"this release can't spread tenants by the rule {instance.rule!r}")
        with logs.counted(metrics.logged):
            async with _tracing(config) as tracing, _auditing(config, pool, instance, metrics):
                log = Log(
                    redis, pool, config.postgres_url, instance, limits_of(config), Telemetry(metrics, tracing)
                )
                outbox = Outbox(
                    postgres.Reads(Shares(outbox_pool, spare=1), config.read_deadline_s),
                    instance.partitions,
                    log.stands,
                )
                live = Live(outbox, log.followers, log.announcements, stopping)
                metrics.read_at_scrape(lambda: [Reading("sluice_feed_followers", live.count)])
                catalog = Catalog(
                    catalog_pool,
                    Secrets(os.environ).of,
                    key_pool=key_pool,
                    under_way_since=log.under_way_since,
                )
                placing = Placing(log, catalog.deployed, metrics, catalog.resting)
                store = Store(pool, log.shares)
                writer = Writer(placing, store)
                states_of_names = Folder(log, aside, config.state_bytes_max)

                async def state_of(stream: Stream, deployed: Deployed) -> object:
                    return decode_data((await states_of_names.committed(stream, deployed)).data_json)

                projects = ProjectKeys(log, pool, state_of)
                assigner = Assigner(log, catalog, store, writer, projects)
                async with (
                    _running(config, log, catalog, catalog_pool, assigner, metrics) as operators,
                    recording(
                        pool,
                        config.webhook_retention_days * 86_400,
                        config.webhook_quarantine_retention_days * 86_400,
                    ) as recorder,
                    looking(outbox_pool) as due,
                    outgoing(
                        config,
                        outbox,
                        metrics,
                        heard(log),
                        due,
                        relayed=config.relay,
                        tapped=log.followers.tapped,
                        deployed=lambda: catalog.serving,
                    ) as going_out,
                    _console(config, metrics) as console,
                ):
                    answer_s, work_max = config.webhook_response_timeout_s, config.schema_work_max
                    resolver = Resolver(log, store)
                    states = postgres.Postgres(outbox_pool, config.read_deadline_s)
                    kept = KeptStates(states, log, metrics, config.state_bytes_max)
                    folder = Folder(log, aside, config.state_bytes_max, kept)
                    keeper = Keeper(log, folder, kept, lambda: catalog.serving)
                    folder.due = keeper.due
                    ruled = Ruled(
                        log,
                        placing,
                        catalog.deployed,
                        folder,
                        aside,
                        metrics,
                        config.append_deadline_s,
                        config.event_bytes_max,
                        config.schema_work_max,
                    )
                    deadline_s = config.append_deadline_s
                    records = Records(
                        log, ruled, catalog.deployed, aside, deadline_s, mapped_by(outbox_pool),
                        projects.refused,
                    )  # fmt: skip
                    reactor = Reactor(
                        outbox_pool,
                        outbox,
                        catalog,
                        folder,
                        records.append,
                        config.event_bytes_max,
                        heard(log),
                        lambda: log.storage.full | catalog.at_rest,
                        config.reactions_retention_days * 86_400,
                        config.relay_lease_s,
                        config.schema_work_max,
                        due,
                    )
                    metrics.read_at_scrape(reactor.readings)
                    intake = Intake(
                        log,
                        records,
                        resolver.key_of,
                        pool,
                        recorder,
                        amazon,
                        aside,
                        metrics,
                        answer_s,
                        work_max,
                    )
                    reads = Reads(log, catalog, Upcasts(catalog, aside, config))
                    aliases = Aliases(log, reads, store, resolver, assigner)
                    edge = edge_of(
                        config=config,
                        log=log,
                        ruled=ruled,
                        reactor=reactor,
                        records=records,
                        folder=folder,
                        outbox=outbox,
                        live=live,
                        catalog=catalog,
                        admin_pool=admin_pool,
                        console=console,
                        reads=reads,
                        store=store,
                        aliases=aliases,
                        children=Children(log, writer),
                        stopping=stopping,
                        operators=operators,
                        intake=intake,
                        going_out=going_out,
                        aside=aside,
                        metrics=metrics,
                        tracing=tracing,
                    )
                    told = {
                        "version": __version__,
                        "instance": str(instance.id),
                        "partitions": instance.partitions,
                        "traces": tracing is not None,
                    }
                    logger.info("gateway_started", extra=told)
                    async with keeper.running(), _reacting(config, reactor):
                        yield edge
                logger.info("gateway_stopped")
    finally:
        aside.close()
        await amazon.close()
        await redis.aclose()
        await asyncio.gather(
            *(close_pool(each) for each in (pool, catalog_pool, admin_pool, key_pool, outbox_pool))
        )


def _amazon(config: Config) -> Amazon:
    """Over a network on which its hosts are at public addresses, unless private ones are allowed."""
    return Amazon(
        GuardedNetwork(allow_private=config.allow_private_targets), config.webhook_response_timeout_s
    )


@asynccontextmanager
async def _auditing(
    config: Config, pool: asyncpg.Pool, instance: postgres.Instance, metrics: Metrics
) -> AsyncIterator[None]:
    """What Postgres holds is checked all the while, if that is wanted."""
    if not config.audit_rows_per_s:
        yield
        return
    async with _beside(AuditLoop(pool, instance, config.audit_rows_per_s, metrics).run):
        yield


@asynccontextmanager
async def _beside(work: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """A task continues until this is left, after a bug too."""
    task = asyncio.create_task(Repeated(logger).run(work, _AGAIN_S))
    try:
        yield
    finally:
        await ended((task,))


@asynccontextmanager
async def _reacting(config: Config, reactor: Reactor) -> AsyncIterator[None]:
    """Timers are set and fired and sagas take their turns meanwhile, unless others are to do so."""
    await reactor.start(at_work=config.reactions)
    try:
        yield
    finally:
        await reactor.stop()


@asynccontextmanager
async def _running(
    config: Config,
    log: Log,
    catalog: Catalog,
    pool: asyncpg.Pool,
    assigner: Assigner,
    metrics: Metrics,
) -> AsyncIterator[Operators]:
    """Log, catalog and assigner at work, looked at by operators from before their start to after their
    end."""
    await catalog.start()
    log.watch.on_look(catalog.refresh)
    metrics.read_at_scrape(log.readings)
    metrics.read_at_scrape(lambda: _readings(catalog))
    health = Health(lambda: log.ready(), "No append could commit now", lambda: log.mode)
    page = MetricsPage(metrics, config.metrics_token)
    operators = Operators(health, page, Ops(health, page))
    async with health.looking(), ops_listening(operators.page, ops_listener(config)):
        await log.start()
        try:
            async with assigner.running(), _beside(Deletions(pool, log, lambda: catalog.any_resting).run):
                yield operators
        finally:
            await log.stop(config.shutdown_grace_s)
            try:
                await catalog.close()
            except PostgresTrouble as trouble:
                logger.warning("catalog_not_closed", extra={"reason": str(trouble)})


@asynccontextmanager
async def _console(config: Config, metrics: Metrics) -> AsyncIterator[ConsoleParts | None]:
    """None where there is no console."""
    if not config.console:
        yield None
        return
    rates, pool = Rates(metrics), await open_postgres(config, _CONSOLE_POOL_MAX)
    try:
        async with rates.sampled():
            yield ConsoleParts(rates, Sessions(pool), InstanceReader(pool))
    finally:
        await close_pool(pool)


def _readings(catalog: Catalog) -> Iterator[Reading]:
    yield Reading("sluice_catalog_age_seconds", catalog.stale_s())
    yield Reading("sluice_catalog_unreadable_specs", len(catalog.unreadable))


@asynccontextmanager
async def _tracing(config: Config) -> AsyncIterator[OtelTracing | None]:
    """Where traces go; None where they are off."""
    endpoint = any(os.environ.get(name) for name in _OTLP_ENDPOINTS)
    wanted = endpoint if config.otel is None else config.otel
    if not wanted or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        yield None
        return
    try:
        from gateway.telemetry import tracing
    except ImportError as absent:
        why = "the OpenTelemetry SDK is not installed; install sluice-gateway[otel]"
        if config.otel:
            raise CannotStart(f"SLUICE_OTEL is set, but {why}") from absent
        logger.warning("tracing_disabled", extra={"reason": why})
        yield None
        return
    sending = tracing.to_otlp(__version__)
    try:
        yield sending
    finally:
        await asyncio.to_thread(sending.close)
