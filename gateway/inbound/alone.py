"""An intake without a gateway: for commands that append deliveries once more, beside gateways that run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from uuid import UUID

import asyncpg
from prometheus_client import CollectorRegistry

from gateway.aggregates.folder import Folder
from gateway.aggregates.records import Records
from gateway.aggregates.ruled import Ruled
from gateway.aside import Aside
from gateway.catalog.model import CatalogError, Deployed, Tenant
from gateway.config import Config
from gateway.inbound import store
from gateway.inbound.intake import Intake, KeyOf
from gateway.inbound.receipts import place_of
from gateway.inbound.recorder import Recorder
from gateway.inbound.results import Deferred, Told
from gateway.inbound.verify.amazon import Amazon
from gateway.log.limits import limits_of
from gateway.log.log import Log
from gateway.log.postgres import Postgres
from gateway.log.redis.cluster import open_redis
from gateway.network import GuardedNetwork
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.steps import Telemetry
from spec.errors import Faults
from spec.parse import parse
from spec.webhooks.sources import RedactedEnviron

_REDIS_CONNECTIONS_MAX: Final = 8


@asynccontextmanager
async def alone(
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
        ruled = Ruled(log, deployed.get, folder, aside, metrics, answer_s, config.event_bytes_max)
        records = Records(log, ruled, deployed.get, aside, answer_s)
        yield Intake(log, records, key_of(log), pool, recorder, amazon, aside, metrics, answer_s, work_max)
    finally:
        aside.close()
        await log.stop(config.shutdown_grace_s)
        await redis.aclose()


class Replayer:
    """Appends deliveries of one tenant by its deployed spec. No secret is needed: what is stored is verified.
    Raises CatalogError for a spec of another release."""

    def __init__(
        self, intake: Intake, pool: asyncpg.Pool, tenant: Tenant, revision: int, document: bytes
    ) -> None:
        spec = parse(document, RedactedEnviron())
        if isinstance(spec, Faults):
            raise CatalogError(f"the spec can't be used by this release: {spec[0].pointer}: {spec[0].error}")
        self._intake = intake
        self._pool = pool
        self._tenant = tenant
        self.deployed = Deployed(revision, spec, document)

    async def replay(self, delivery: bytes, *, again: bool) -> dict[str, Any]:
        """What became of it, as JSON shows it; without `event_id` it stays as it was, `error` says why."""
        stored = await store.stored(self._pool, self._tenant.id.bytes, delivery)
        assert stored is not None
        told = {name: stored.shown[name] for name in ("id", "source", "delivery_id")}
        source = self.deployed.spec.webhooks.get(stored.source)
        if source is None:
            why = f"The spec declares no source {stored.source!r} any more."
            return {**told, "event_id": None, "duplicate": False, "reason": "unknown_source", "error": why}
        place = place_of(self._tenant, self.deployed, source)
        outcome = await self._intake.replay(place, stored, again=again)
        if isinstance(outcome, Told) and outcome.event_id is None:
            why = "`to.when` or `to.types` leaves it out; it is no longer in quarantine."
            return {**told, "event_id": None, "duplicate": False, "reason": "ignored", "error": why}
        if isinstance(outcome, Told):
            assert outcome.event_id is not None
            event_id = _uuid(outcome.event_id)
            return {
                **told,
                "event_id": event_id,
                "duplicate": outcome.duplicate,
                "reason": None,
                "error": None,
            }
        if isinstance(outcome, Deferred):
            reason = "outcome_unknown" if outcome.unknown else "not_committed"
            return {**told, "event_id": None, "duplicate": False, "reason": reason, "error": outcome.why}
        why, code = outcome.error, outcome.code
        return {**told, "event_id": None, "duplicate": False, "reason": code, "error": why}


def _uuid(octets: bytes) -> str:
    digits = octets.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
