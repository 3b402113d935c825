"""The end of tasks, and a wait that has one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

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
