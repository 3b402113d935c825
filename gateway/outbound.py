"""The composition root of what goes out: subscriptions, pulls, and the relay, within a gateway or as a
process of its own."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Final

import asyncpg
import uvloop
from prometheus_client import CollectorRegistry

from gateway import __version__
from gateway.aliases.shared_look_ups import AliasLookUps
from gateway.aliases.store import Store
from gateway.aside import SWITCH_S
from gateway.catalog.secrets import Secrets
from gateway.collector import rarely_collect
from gateway.config import Config
from gateway.follow.declarations import Declarations
from gateway.follow.moves import Moves
from gateway.follow.reading import Reading as RowReading
from gateway.follow.runner import Runner
from gateway.http.api.health import Health
from gateway.http.metrics import MetricsPage
from gateway.http.ops import Ops, ops_listening
from gateway.log import postgres
from gateway.log.epoch.settling import settling_without_log
from gateway.log.log import Log
from gateway.log.read.followers import Tapped
from gateway.log.redis.announcements import Announcements
from gateway.log.redis.cluster import open_redis
from gateway.partitions import PARTITION_RULE
from gateway.pools import CannotStart, close_pool, open_postgres, ops_listener
from gateway.postgres.errors import PostgresTrouble
from gateway.postgres.shares import Shares
from gateway.relay.due import Due, looking
from gateway.relay.home import WATCH_EVERY_S, not_adopted
from gateway.relay.named import EventNames
from gateway.relay.outbox import Outbox
from gateway.relay.pull import Pull
from gateway.relay.relay import Listen, Relay, RelayOptions
from gateway.relay.repeated import Repeated
from gateway.relay.subscriptions import Subscriptions
from gateway.relay.trial import Trials
from gateway.tasks import ended
from gateway.telemetry import logs
from gateway.telemetry.metrics import Metrics

logger = logging.getLogger("sluice.relay")

_POOL_MAX: Final = 6
_FOLLOW_POOL_MAX: Final = 4
_ROWS_POOL_MAX: Final = 4
_REDIS_CONNECTIONS_MAX: Final = 2
HEAR_AGAIN_S: Final = 1.0
"""After a bug."""


@dataclass(frozen=True, slots=True)
class Outbound:
    """What the edge needs of it. `relay` is None where none runs in this process."""

    subscriptions: Subscriptions
    trials: Trials
    pull: Pull
    relay: Relay | None
    rows: RowReading
    moves: Moves
    declarations: Declarations


@asynccontextmanager
async def outgoing(
    config: Config,
    outbox: Outbox,
    metrics: Metrics,
    listen: Listen,
    due: Due,
    *,
    relayed: bool,
    tapped: Tapped | None = None,
    deployed: Callable[[], object] | None = None,
) -> AsyncIterator[Outbound]:
    """At work meanwhile; afterwards what was under way has ended. AfterDeploys has `deployed`. Raises
    CannotStart."""
    pool = await open_postgres(config, _POOL_MAX)
    rows_pool = await open_postgres(config, _ROWS_POOL_MAX)
    try:
        allow_private = config.allow_private_targets
        secrets_of = Secrets(os.environ).of
        subscriptions = Subscriptions(pool, outbox, secrets_of, allow_private=allow_private)
        names = EventNames(pool, AliasLookUps(Store(pool)).of_each)
        relay = None
        if relayed:
            terms = RelayOptions(
                config.relay_inflight, config.relay_lease_s, config.relay_attempts_retention_s, allow_private
            )
            relay = Relay(
                pool, outbox, subscriptions, secrets_of, terms, metrics, names,
                listen=listen, deployed=deployed, due=due.subscriptions,
            )  # fmt: skip
            metrics.read_at_scrape(relay.readings)
        moves = Moves(rows_pool, listen)
        try:
            async with (
                nullcontext() if relay is None else _at_home(relay, pool),
                _following(config, outbox, metrics, listen, due, moves, tapped, deployed, relayed=relayed),
            ):
                pull = Pull(pool, outbox, subscriptions, names)
                rows, declarations = RowReading(rows_pool), Declarations(rows_pool, outbox)
                trials = Trials(pool, secrets_of, allow_private=allow_private)
                yield Outbound(subscriptions, trials, pull, relay, rows, moves, declarations)
        finally:
            if relay is not None:
                await relay.stop()
    finally:
        await close_pool(pool)
        await close_pool(rows_pool)


@asynccontextmanager
async def _following(
    config: Config,
    outbox: Outbox,
    metrics: Metrics,
    listen: Listen,
    due: Due,
    moves: Moves,
    tapped: Tapped | None,
    deployed: Callable[[], object] | None,
    *,
    relayed: bool,
) -> AsyncIterator[None]:
    """Lists and projections are kept meanwhile, where this process relays."""
    if not relayed:
        yield
        return
    pool = await open_postgres(config, _FOLLOW_POOL_MAX)
    try:
        runner = Runner(
            pool, outbox, Declarations(pool, outbox), config.relay_lease_s, listen=listen, moved=moves.moved,
            tapped=tapped, deployed=deployed, due=due,
        )  # fmt: skip
        metrics.read_at_scrape(runner.readings)
        await runner.start()
        try:
            with moves.kept_by(runner.hurry):
                yield
        finally:
            await runner.stop()
    finally:
        await close_pool(pool)


@asynccontextmanager
async def _at_home(relay: Relay, pool: asyncpg.Pool) -> AsyncIterator[None]:
    """The relay delivers meanwhile, as long as the database is where it was, or an operator adopted it."""
    delivering, off = await _switched(relay, pool, delivering=False, off=None)

    async def look() -> None:
        nonlocal delivering, off
        delivering, off = await _switched(relay, pool, delivering=delivering, off=off)

    watching = asyncio.create_task(Repeated(logger).run(look, WATCH_EVERY_S))
    try:
        yield
    finally:
        await ended((watching,))


async def _switched(
    relay: Relay, pool: asyncpg.Pool, *, delivering: bool, off: str | None
) -> tuple[bool, str | None]:
    """Whether it delivers from now on, and why not. Where Postgres does not say, it stays as it was."""
    try:
        why = await not_adopted(pool)
    except PostgresTrouble as trouble:
        if delivering:
            return delivering, off
        why = f"Postgres does not say whether it was copied or restored: {trouble}"
    if why is None and not delivering:
        await relay.start()
    if why is not None and delivering:
        await relay.stop()
    if why is not None and why != off:
        logger.warning("relay_not_adopted", extra={"reason": why})
    return why is None, why


def heard(log: Log) -> Listen:
    """What is committed here or announced by other gateways."""

    @contextmanager
    def listen(tell: Callable[[], None]) -> Iterator[None]:
        with ExitStack() as ends:
            for p in range(log.instance.partitions):
                ends.enter_context(log.followers.tapped(p, lambda _: tell()))
            ends.enter_context(log.announcements.hearing(lambda _: tell()))
            yield

    return listen


def serve_relay(config: Config) -> None:
    """Runs a relay until SIGTERM or SIGINT. Exits 1 with a sentence when it can't start."""
    logs.to_stderr(config.log_level, human=config.dev and sys.stderr.isatty())
    try:
        uvloop.run(_serve_relay(config))
    except (CannotStart, PostgresTrouble) as fault:
        sys.exit(f"sluice relay: {fault}")


async def _serve_relay(config: Config) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    metrics = Metrics(CollectorRegistry())
    sys.setswitchinterval(SWITCH_S)
    outbox_pool = await open_postgres(config, _POOL_MAX)
    try:
        instance = await postgres.Postgres(outbox_pool).instance()
        if instance.rule != PARTITION_RULE:
            raise CannotStart(f"this release can't spread tenants by the rule {instance.rule!r}")
        reach = postgres.Postgres(outbox_pool, config.read_deadline_s)
        outbox_reads = postgres.Reads(Shares(outbox_pool, spare=1), config.read_deadline_s)
        health = Health(lambda: _in_the_way(reach), "Nothing could be delivered now")
        operators = Ops(health, MetricsPage(metrics, None))
        with logs.counted(metrics.logged):
            async with (
                settling_without_log(config.postgres_url, reach, config.read_deadline_s) as settling,
                health.looking(),
                _announced(config, instance) as listen,
                looking(outbox_pool) as due,
                outgoing(
                    config,
                    Outbox(outbox_reads, instance.partitions, settling.stands),
                    metrics,
                    listen,
                    due,
                    relayed=True,
                ),
                ops_listening(operators, ops_listener(config)),  # last: what is ready to be asked runs
            ):
                rarely_collect()
                told = {"version": __version__, "instance": str(instance.id)}
                logger.info("relay_started", extra=told)
                await stopping.wait()
            logger.info("relay_stopped")
    finally:
        await close_pool(outbox_pool)


async def _in_the_way(reach: postgres.Postgres) -> str | None:
    """Of deliveries: they are noted in Postgres. Without Redis they are only later."""
    try:
        takes_writes = await reach.takes_writes()
    except PostgresTrouble as trouble:
        return str(trouble)
    return None if takes_writes else "Postgres takes no writes"


@asynccontextmanager
async def _announced(config: Config, instance: postgres.Instance) -> AsyncIterator[Listen]:
    """What gateways announce over Redis; without Redis, commits are found by looking."""
    redis = open_redis(config.redis_url, config.redis_timeout_s, _REDIS_CONNECTIONS_MAX)
    announcements = Announcements(redis, instance.id)
    task = asyncio.create_task(Repeated(logger).run(announcements.run_listening, HEAR_AGAIN_S))
    try:
        yield lambda tell: announcements.hearing(lambda _: tell())
    finally:
        await ended((task,))
        await redis.aclose()
