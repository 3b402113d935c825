"""The storage of each tenant's events and specs in Postgres, and whether a tenant has reached its limit.

Counted behind the commits, in steps, from a mark on: an append pays one look into a set. One gateway at a
time counts a partition; all of them read the totals. What is appended within `EVERY_S` of reaching the
bound is still accepted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Final

from gateway.errors import Refusal
from gateway.log.postgres import Postgres
from gateway.postgres.errors import PostgresTrouble
from gateway.telemetry.metrics import Reading

logger = logging.getLogger("sluice.log")

ROW_BYTES: Final = 700
"""What a row of the outbox takes with its indexes beside data, extra and aggregate id."""

EVERY_S: Final = 1.0

_STEP_ROWS: Final = 5_000
"""Rows counted by one statement: some milliseconds of Postgres."""

_PAUSE_S: Final = 0.05
"""Between two steps, where a partition lags behind."""

_SHOWN: Final = 20
"""Tenants that the metric names: those that store the most."""


class Storage:
    """One a gateway. `bytes_max`: of one tenant; 0: no bound."""

    def __init__(self, postgres: Postgres, bytes_max: int) -> None:
        self._postgres = postgres
        self._bytes_max = bytes_max
        self._full: frozenset[bytes] = frozenset()
        self._most: list[tuple[str, int]] = []
        self._refusal = Refusal(
            "storage_full",
            f"The stored events and specs of this tenant have reached the limit of {bytes_max} bytes. "
            "The operator of the gateway can raise the limit.",
        )

    @property
    def full(self) -> frozenset[bytes]:
        """Tenants of which nothing more is stored."""
        return self._full

    def refusal(self, tenant: bytes) -> Refusal | None:
        """The refusal of this tenant's appends; None if they may be stored."""
        return self._refusal if tenant in self._full else None

    async def run(self) -> None:
        """Until cancelled."""
        marked = False
        while True:
            try:
                if not marked:
                    await self._postgres.fetch("storage_marks")
                    marked = True
                await self.run_once()
            except PostgresTrouble as trouble:  # what was known still counts
                logger.warning("storage_not_counted", extra={"reason": str(trouble)})
            await asyncio.sleep(EVERY_S)

    async def run_once(self) -> None:
        """Counts what is there by now, and reads the totals. Raises PostgresTrouble."""
        await self._read()
        for behind in await self._postgres.fetch("storage_behind"):
            while counted := await self._postgres.fetch("storage_count", behind["p"], _STEP_ROWS, ROW_BYTES):
                await self._read()
                if counted[0]["rows"] < _STEP_ROWS:
                    break
                await asyncio.sleep(_PAUSE_S)

    async def _read(self) -> None:
        rows = await self._postgres.fetch("storage_totals", self._bytes_max, _SHOWN)
        self._full = frozenset(row["tenant"].bytes for row in rows if row["is_full"])
        largest = sorted(rows, key=lambda row: -row["bytes"])[:_SHOWN]
        self._most = [(row["handle"], row["bytes"]) for row in largest]

    def readings(self) -> Iterator[Reading]:
        for handle, size in self._most:
            yield Reading("sluice_tenant_bytes", size, (handle,))
