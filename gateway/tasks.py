"""The end of tasks, a wait that has one, and times at which loops wake together."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from typing import Any, Final

TICK_S: Final = 0.1
_PHASE_S: Final = random.random() * TICK_S  # noqa: S311 - the gateways of a machine wake at different times
_AGAIN_S: Final = 0.1


async def ended(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancels until they have ended: a wait that is over as its task is cancelled may swallow the
    cancellation (asyncpg's does, before Python 3.12). What they raised stays theirs."""
    running = {task for task in tasks if not task.done()}
    while running:
        for task in running:
            task.cancel()
        _, running = await asyncio.wait(running, timeout=_AGAIN_S)


async def set_within(event: asyncio.Event, seconds: float) -> bool:
    """Whether the event is set by then; returns as soon as it is."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


def to_tick(seconds: float) -> float:
    """A pause of so many seconds, ended at the tick of the process that is nearest to that; where it is
    shorter than from tick to tick, as it is. A process that wakes once for several loops takes less of a
    core."""
    if seconds < TICK_S:
        return seconds
    now = asyncio.get_running_loop().time() - _PHASE_S
    return round((now + seconds) / TICK_S) * TICK_S - now
