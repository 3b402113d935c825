"""How long timers and sagas are kept behind their end, and the count of timers that could not be set. The
events that they appended stay."""

from __future__ import annotations

import asyncio
from typing import Final

import asyncpg

from gateway.reactions.database import fetch

FORGET_EVERY_S: Final = 60.0
FORGET_MAX: Final = 2_000
"""Of one statement: some tens of milliseconds of Postgres."""
FORGET_PAUSE_S: Final = 0.05


async def forget(pool: asyncpg.Pool, keep_s: float) -> None:
    """Deletes what ended longer ago, so many at a time, until a time is not full. Raises PostgresTrouble."""
    for name in ("forget_schedules", "forget_sagas"):
        while True:
            (gone,) = await fetch(pool, name, keep_s, FORGET_MAX)
            if gone["count"] < FORGET_MAX:
                break
            await asyncio.sleep(FORGET_PAUSE_S)
    await fetch(pool, "forget_not_set", keep_s)
