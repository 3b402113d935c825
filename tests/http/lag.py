"""How long the event loop was held while something went on.

Two things are measured. One is what the loop's thread computes in one callback, which is what the loop can't
interrupt: neither what else the machine does counts, nor what the test's own client does in callbacks of its
own. The other is for threads that do not let go of the interpreter: a task that runs every millisecond, and
between its runs the time on the clock, but no more of it than this process computed. Of several rounds the
least counts: what a request does by itself it does each time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

COMPUTED_MAX_S = 0.01
"""What is promised."""
HELD_MAX_S = 0.25
"""What tests are about took from 0.3 s to minutes."""

ROUNDS = 15
_BEAT_S = 0.001


@dataclass(slots=True)
class Lag:
    """The longest for which the loop did nothing else: computed by its thread, and by the clock."""

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
            clock, computed = time.perf_counter(), time.process_time()
            await asyncio.sleep(_BEAT_S)
            held = min(time.perf_counter() - clock - _BEAT_S, time.process_time() - computed)
            lag.held_s = max(lag.held_s, held)

    with _callbacks_timed(lag):
        task = asyncio.create_task(beat())
        await asyncio.sleep(_BEAT_S)
        try:
            yield lag
            await asyncio.sleep(2 * _BEAT_S)
        finally:
            task.cancel()


@contextmanager
def _callbacks_timed(lag: Lag) -> Iterator[None]:
    run = asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        computed = time.thread_time()
        try:
            run(handle)
        finally:
            lag.computed_s = max(lag.computed_s, time.thread_time() - computed)

    asyncio.Handle._run = timed  # type: ignore[method-assign]
    try:
        yield
    finally:
        asyncio.Handle._run = run  # type: ignore[method-assign]


async def holds_up_no_other(request: Callable[[], Awaitable[object]]) -> Lag:
    """What the request did at its best. Asserts that this is short."""
    seen = []
    for _ in range(ROUNDS):
        async with watched() as lag:
            await request()
        seen.append(lag)
        if lag.short:
            return lag
    raise AssertionError(f"the event loop was held in each of {ROUNDS} rounds: {seen}")
