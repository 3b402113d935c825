"""Folds beside the event loop: one at a time, so that what else runs here keeps most of the interpreter."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

from gateway.follow.model import Event, Row
from gateway.state import AT_ONCE_LOOKS, Budget, TakesLong

LIGHT_EVENTS: Final = 30
LIGHT_BYTES: Final = 32 * 1024
"""So few events, which with the states and rows that they change are so short, are folded at once: that takes
a few milliseconds at most, and a thread costs a part of one."""

_T = TypeVar("_T")
_threads: Final = ThreadPoolExecutor(1, thread_name_prefix="follow")


def data_bytes(events: Iterable[Event]) -> int:
    return sum([len(each.recorded.event.payload or b"") for each in events])


def row_bytes(rows: Mapping[str, Row | None]) -> int:
    return sum([len(each.data or b"") for each in rows.values() if each is not None])


async def folding(events: int, size: int, work: Callable[[Budget], _T]) -> _T:
    """What `work` returns, which folds so many events, and reads so many bytes of them and of what they
    change. It is called once more where its budget ended it by TakesLong."""
    if events <= LIGHT_EVENTS and size <= LIGHT_BYTES:
        with suppress(TakesLong):
            return work(Budget(at_once=AT_ONCE_LOOKS))
    return await asyncio.get_running_loop().run_in_executor(_threads, partial(work, Budget()))
