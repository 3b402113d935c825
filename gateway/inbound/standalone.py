"""An intake without a gateway: for commands that append deliveries once more, beside gateways that run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final
from uuid import UUID

import asyncpg
from prometheus_client import CollectorRegistry

from gateway.aggregates.folder import Folder
from gateway.aggregates.placing import Placing
from gateway.aggregates.records import Records
from gateway.aggregates.ruled import Ruled
from gateway.aside import Aside
from gateway.catalog.model import CatalogError, Deployed
from gateway.catalog.source_ids import mapped_by
from gateway.config import Config
from gateway.inbound.appending import KeyOf
from gateway.inbound.intake import Intake
from gateway.inbound.recorder import Recorder
from gateway.inbound.verify.amazon import Amazon
from gateway.log.limits import limits_of
from gateway.log.log import Log
from gateway.log.postgres import Postgres
from gateway.log.redis.cluster import open_redis
from gateway.network import GuardedNetwork
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.steps import Telemetry
from spec.errors import Faults
from spec.parse import parse_deployed

_REDIS_CONNECTIONS_MAX: Final = 8


@asynccontextmanager
async def standalone(
    config: Config, pool: asyncpg.Pool, key_of: Callable[[Log], KeyOf], deployed: Mapping[UUID, Deployed]
) -> AsyncIterator[Intake]:
    """Its log is a gateway's like any other: it opens partitions as appends need them. `key_of` finds aliases
    beside that log; `deployed` are the specs whose rules hold."""
    redis = open_redis(config.redis_url, config.redis_timeout_s, _REDIS_CONNECTIONS_MAX)
    metrics = Metrics(CollectorRegistry())
    instance = await Postgres(pool).instance()
    amazon = Amazon(GuardedNetwork(allow_private=False), config.webhook_response_timeout_s)  # is never asked
    log = Log(redis, pool, config.postgres_url, instance, limits_of(config), Telemetry(metrics, None))
    aside = Aside(config.heavy_waiting_max, config.heavy_wait_s)
    await log.start()
    try:
        recorder = Recorder(pool, 0, 0)
        work_max = config.schema_work_max
        answer_s = config.append_deadline_s
        folder = Folder(log, aside, config.state_bytes_max)
        placing = Placing(log, deployed.get, metrics, lambda _: False)
        event_bytes_max = config.event_bytes_max
        ruled = Ruled(log, placing, deployed.get, folder, aside, metrics, answer_s, event_bytes_max, work_max)
        records = Records(log, ruled, deployed.get, aside, answer_s, mapped_by(pool))
        yield Intake(log, records, key_of(log), pool, recorder, amazon, aside, metrics, answer_s, work_max)
    finally:
        aside.close()
        await log.stop(config.shutdown_grace_s)
        await redis.aclose()


def deployed_of(revision: int, document: bytes, salt: bytes) -> Deployed:
    """What is deployed, without its secrets. Raises CatalogError for a spec of another release."""
    spec = parse_deployed(document)
    if isinstance(spec, Faults):
        raise CatalogError(f"the spec can't be used by this release: {spec[0].pointer}: {spec[0].error}")
    return Deployed(revision, spec, document, salt=salt)
