"""What comes many times in one turn of the event loop, done one behind the other at its end: the code and the
data that one needs are in the processor's caches for the next (docs/decisions/0060)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

AT_A_TIME_S: Final = 0.004
"""How long, before others that are ready have their turn."""

_T = TypeVar("_T")


class Together(Generic[_T]):
    """What `do` raises, for a bug, is the event loop's to tell; the others have their turn all the same."""

    def __init__(self, do: Callable[[_T], None]) -> None:
        self._do = do
        self._waiting: deque[_T] = deque()

    def add(self, item: _T, loop: asyncio.AbstractEventLoop) -> None:
        if not self._waiting:
            loop.call_soon(self._do_each, loop)
        self._waiting.append(item)

    def _do_each(self, loop: asyncio.AbstractEventLoop) -> None:
        ends = loop.time() + AT_A_TIME_S
        try:
            while self._waiting:
                self._do(self._waiting.popleft())
                if loop.time() > ends:
                    return
        finally:
            if self._waiting:
                loop.call_soon(self._do_each, loop)
