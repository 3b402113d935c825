"""The work that is due: one statement asks Postgres for all parts of this process.

Nearly always nothing is due, and each part would ask that several times a second.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import asyncpg

from gateway.relay.database import fetch
from gateway.relay.repeated import Repeated
from gateway.tasks import ended

LOOK_EVERY_S: Final = 0.2
"""So soon is found that a timer is due, or that a subscription is delivered by no process."""
RARELY: Final = 5
"""Each so manyth look finds the rest."""

logger = logging.getLogger("sluice.relay")


class Due:
    """One a process. Each event is set where its work may be due, and cleared by the task that asks for the
    work; the statements have a column of its name."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool
        self._looks = itertools.count()
        self.subscriptions = asyncio.Event()
        self.followers = asyncio.Event()
        self.dropped_rows = asyncio.Event()
        self.reactions = asyncio.Event()
        self.timers = asyncio.Event()

    async def look(self) -> None:
        """Raises PostgresTrouble."""
        for asked in ("due",) if next(self._looks) % RARELY else ("due", "due_rarely"):
            (row,) = await fetch(self._pool, asked)
            for name, is_due in row.items():
                if is_due:
                    getattr(self, name).set()


@asynccontextmanager
async def looking(pool: asyncpg.Pool) -> AsyncIterator[Due]:
    """It looks meanwhile."""
    due = Due(pool)
    task = asyncio.create_task(Repeated(logger).run(due.look, LOOK_EVERY_S))
    try:
        yield due
    finally:
        await ended((task,))


def taken(due: asyncio.Event | None) -> bool:
    """Whether to ask for what is due: without a look for all (None), always. It is cleared: what is left
    afterwards, the next look finds."""
    if due is None:
        return True
    was_set = due.is_set()
    due.clear()
    return was_set
