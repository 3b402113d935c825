"""Empties tenants that are being deleted, step by step, in the background.

Owns the pace, and what leaves Redis: copies of their streams there go before the events in Postgres do. What
the journal holds of them goes with its age. Any number of gateways may do this: a step waits for no other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

import asyncpg

from gateway.catalog.closing import READER_GONE_S
from gateway.catalog.database import statement
from gateway.catalog.tag_deletion import delete_tags
from gateway.events import Stream
from gateway.log.log import Log
from gateway.log.redis.scripts import RedisTrouble
from gateway.postgres.connection_errors import UNANSWERED
from gateway.telemetry.redact import reason

logger = logging.getLogger("sluice.catalog")

LOOK_EVERY_S: Final = 1.0
STEP_ROWS: Final = 2_000
"""Of one statement: some tens of milliseconds of Postgres."""
PAUSE_S: Final = 0.05
"""Between two steps, so that appends of other tenants come first."""


class Deletions:
    def __init__(self, pool: asyncpg.Pool, log: Log, any_resting: Callable[[], bool]) -> None:
        """`any_resting`: whether there may be something to do."""
        self._pool = pool
        self._log = log
        self._any_resting = any_resting

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            if not self._any_resting():
                continue
            try:
                await self.run_once()
            except (*UNANSWERED, RedisTrouble) as trouble:
                logger.warning("tenant_deletion_failed", extra={"reason": reason(trouble)})

    async def run_once(self) -> None:
        """Deletes what is due. Raises UNANSWERED and RedisTrouble."""
        for row in await self._pool.fetch(statement("deletable"), READER_GONE_S):
            tenant = UUID(bytes=row["tenant"].bytes)
            await self._delete(tenant)
            logger.info("tenant_deleted", extra={"tenant": str(tenant)})

    async def _delete(self, tenant: UUID) -> None:
        async for _ in delete_tags(self._pool, tenant):  # before the events that say which
            await asyncio.sleep(PAUSE_S)
        finished = False
        while not finished:
            finished = await self._step(tenant)
            await asyncio.sleep(PAUSE_S)

    async def _step(self, tenant: UUID) -> bool:
        rows: list[Any] = await self._pool.fetch(statement("doomed_streams"), tenant, STEP_ROWS)
        streams = [Stream(tenant.bytes, row["aggregate_type"], row["aggregate_id"]) for row in rows]
        await self._log.forget(tenant.bytes, streams)
        return bool(await self._pool.fetchval(statement("delete_step"), tenant, STEP_ROWS))
