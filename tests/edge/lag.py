"""How long the event loop was held while something went on.

A task beside it runs every millisecond. Two things are measured between its runs: what the loop's own thread
computed, which does not depend on what else the machine does, and the time on the clock, which shows a thread
that does not let go of the interpreter. Of several rounds the least counts: what a request does by itself it
does each time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

COMPUTED_MAX_S = 0.012
"""10 ms are promised; the client and the drivers of Redis and Postgres share the loop of a test."""
HELD_MAX_S = 0.25
"""On the clock, for machines that do other things too. What tests are about took from 0.3 s to minutes."""

ROUNDS = 15
_BEAT_S = 0.001


@dataclass(slots=True)
class Lag:
    """The longest for which the loop did nothing else: computed by its thread, and on the clock."""

    computed_s: float = 0.0
    held_s: float = 0.0

    @property
    def short(self) -> bool:
        return self.computed_s < COMPUTED_MAX_S and self.held_s < HELD_MAX_S


@asynccontextmanager
async def watched() -> AsyncIterator[Lag]:
    lag = Lag()

    async def beat() -> None:
        while True:
            clock, computed = time.perf_counter(), time.thread_time()
            await asyncio.sleep(_BEAT_S)
            lag.held_s = max(lag.held_s, time.perf_counter() - clock - _BEAT_S)
            lag.computed_s = max(lag.computed_s, time.thread_time() - computed)

    task = asyncio.create_task(beat())
    await asyncio.sleep(_BEAT_S)
    try:
        yield lag
        await asyncio.sleep(2 * _BEAT_S)
    finally:
        task.cancel()


async def holds_nobody_up(request: Callable[[], Awaitable[object]]) -> Lag:
    """What the request did at its best. Asserts that this is short."""
    seen = []
    for _ in range(ROUNDS):
        async with watched() as lag:
            await request()
        seen.append(lag)
        if lag.short:
            return lag
    raise AssertionError(f"the event loop was held in each of {ROUNDS} rounds: {seen}")
