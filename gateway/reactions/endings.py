"""Records the ends of timers together: one statement for all that ended while the one before was written.

Owns: which of them are noted at a time. One that could not be noted is fired again after its lease, by any
process, and its append is the same.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import asyncpg

from gateway.reactions.database import fetch
from gateway.tasks import ended

NOTED_AT_ONCE: Final = 400


@dataclass(frozen=True, slots=True)
class Ending:
    """`state` is fired, cancelled or parked; `event` the id of the one that was appended."""

    timer: UUID
    state: str
    reason: str | None = None
    event: UUID | None = None


class Endings:
    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool
        self._waiting: list[tuple[Ending, asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None

    async def note(self, ending: Ending) -> None:
        """Returns once it is written. Raises PostgresTrouble."""
        written = asyncio.get_running_loop().create_future()
        self._waiting.append((ending, written))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())
        await written

    async def stop(self) -> None:
        if self._writing is not None:
            await ended([self._writing])

    async def _write(self) -> None:
        try:
            while self._waiting:
                now, self._waiting = self._waiting[:NOTED_AT_ONCE], self._waiting[NOTED_AT_ONCE:]
                trouble = await self._written([ending for ending, _ in now])
                for _, written in now:
                    if not written.done():  # its firing was cancelled
                        written.set_result(None) if trouble is None else written.set_exception(trouble)
        finally:
            self._writing = None

    async def _written(self, endings: list[Ending]) -> Exception | None:
        columns = zip(*((each.timer, each.state, each.reason, each.event) for each in endings), strict=True)
        try:
            await fetch(self._pool, "end_schedules", *(list(column) for column in columns))
        except Exception as trouble:  # a bug too: each of them waits for an answer
            return trouble
        return None
