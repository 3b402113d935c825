"""Whether a tenant has as many pending timers as it may.

Counted by Postgres every few seconds, and by this process in between: what other gateways set meanwhile is
still accepted.
"""

from __future__ import annotations

import time
from typing import Final
from uuid import UUID

from gateway.postgres.shares import Shares
from gateway.reactions.database import fetch

COUNT_EVERY_S: Final = 10.0
"""A count of a million takes Postgres some tens of milliseconds."""
FULL_COUNT_EVERY_S: Final = 1.0
"""Of a tenant that has as many as it may, so that it continues soon after some fired."""
TENANTS_MAX: Final = 10_000
"""In memory; beyond it all are counted again."""


class Pending:
    """One a gateway. `most`: of one tenant."""

    def __init__(self, shares: Shares, most: int) -> None:
        self._shares = shares
        self.most = most
        self._counts: dict[UUID, tuple[float, int]] = {}

    async def full(self, tenant: UUID) -> bool:
        """Raises PostgresTrouble."""
        counted_at, count = self._counts.get(tenant, (float("-inf"), 0))
        every_s = COUNT_EVERY_S if count < self.most else FULL_COUNT_EVERY_S
        if time.monotonic() - counted_at < every_s:
            return count >= self.most
        counted_at = time.monotonic()
        (row,) = await fetch(self._shares.of(tenant.bytes), "count_pending", tenant, self.most)
        if len(self._counts) >= TENANTS_MAX:
            self._counts.clear()
        self._counts[tenant] = counted_at, row["count"]
        return bool(row["count"] >= self.most)

    def added(self, tenant: UUID) -> None:
        counted_at, count = self._counts.get(tenant, (float("-inf"), 0))
        self._counts[tenant] = counted_at, count + 1
