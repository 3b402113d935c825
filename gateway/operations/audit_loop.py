"""The continuous audit: checks Postgres' rows in the background of a gateway, slowly."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

import asyncpg

from gateway.log.postgres import Instance
from gateway.operations.place import fetch
from gateway.operations.postgres_check import walk_page
from gateway.operations.report import Report
from gateway.operations.rows import RowWalk
from gateway.postgres.errors import PostgresTrouble
from gateway.telemetry.metrics import Metrics

logger = logging.getLogger("sluice.audit")

_PAGE_ROWS: Final = 50
"""A page is checked in one go, in about half a millisecond: appends wait no longer than that."""
_PASS_LEAST_S: Final = 10.0
_AWAY_S: Final = 5.0


class AuditLoop:
    """Goes over all rows, round and round: digests, order, chains, partitions of tenants. What else an audit
    looks at, `sluice audit` does. `rows`, `violations` and `passes` count since the start."""

    def __init__(self, pool: asyncpg.Pool, instance: Instance, rows_per_s: int, metrics: Metrics) -> None:
        self.rows = self.violations = self.passes = 0
        self._pool = pool
        self._instance = instance
        self._rows_per_s = rows_per_s
        self._metrics = metrics

    async def run(self) -> None:
        """Until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            begun = loop.time()
            for p in range(self._instance.partitions):
                await self._partition(p)
            self.passes += 1
            self._metrics.audit_passes.inc()
            await asyncio.sleep(max(begun + _PASS_LEAST_S - loop.time(), 0))

    async def _partition(self, p: int) -> None:
        """Once from end to end, begun again when Postgres was away."""
        while True:
            try:
                await self.run_once(p)
                return
            except PostgresTrouble:
                await asyncio.sleep(_AWAY_S)

    async def run_once(self, p: int) -> Report:
        """One partition, from seq 1 to where it stands. Raises PostgresTrouble."""
        report = Report()
        standing = await fetch(self._pool, "standing", p)
        if not standing:
            report.violated("order", p, "partition_log", "the partition has no row")
            self._tell(report, 0)
            return report
        row = standing[0]
        walk = RowWalk(p, self._instance.partitions, report)
        page = min(_PAGE_ROWS, self._rows_per_s)
        while walk.seq < row["seq"]:
            told = len(report.violations)
            taken = await walk_page(self._pool, p, walk, row["seq"], page)
            self.rows += taken
            self._metrics.audit_rows.inc(taken)
            self._tell(report, told)
            if not taken:
                break
            await asyncio.sleep(taken / self._rows_per_s)
        told = len(report.violations)
        walk.finish(row["seq"], row["chain"], row["last_seq"])
        self._tell(report, told)
        return report

    def _tell(self, report: Report, told: int) -> None:
        """Of a partition with more than a hundred violations of one kind the rest are not told."""
        for each in report.violations[told:]:
            self.violations += 1
            self._metrics.audit_violations[each.invariant].inc()
            logger.critical(
                "audit_violation",
                extra={
                    "partition": each.partition,
                    "invariant": each.invariant,
                    "where": each.where,
                    "reason": each.what,
                },
            )
