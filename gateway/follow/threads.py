"""Folds beside the event loop: one at a time, so that what else runs here keeps most of the interpreter."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

LIGHT_EVENTS: Final = 30
"""So few are folded at once: that takes a few milliseconds at most, and a thread costs a part of one."""

_T = TypeVar("_T")
_threads: Final = ThreadPoolExecutor(1, thread_name_prefix="follow")


async def folding(events: int, work: Callable[[], _T]) -> _T:
    """What `work` returns, which folds so many events."""
    if events <= LIGHT_EVENTS:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_threads, work)
