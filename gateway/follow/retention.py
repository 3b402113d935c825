"""How long deleted rows are remembered, so that a live reader that reconnects gets the deletions."""

from __future__ import annotations

import time
from typing import Final

import asyncpg

from gateway.follow.database import fetch

DELETED_S: Final = 7 * 86_400.0
"""By the times of the events that deleted them. A reader who was away for longer gets a `reset`."""

PRUNED_MAX: Final = 2000


async def prune(pool: asyncpg.Pool, deleted_s: float = DELETED_S) -> int:
    """Forgets some deleted rows of projections; how many. Raises PostgresTrouble."""
    before_ms = int((time.time() - deleted_s) * 1000)
    (row,) = await fetch(pool, "prune", before_ms, PRUNED_MAX)
    return int(row["pruned"])
