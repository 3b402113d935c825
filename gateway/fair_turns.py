"""Turns at what there are few of, such as connections: however many requests of one tenant wait, another
tenant's waits for one of them at most.

Owns: whose turn is next. Tenants that wait are served in rotation, the requests of one in their order. A
tenant that has `each_max` turns waits even while one is free: that one is for the others.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_Turn = asyncio.Future[None]


class FairTurns:
    """`total` turns at a time, of one tenant `each_max` at most. While one is free, only tenants that have
    as many wait."""

    def __init__(self, total: int, each_max: int) -> None:
        self._free = total
        self._each_max = each_max
        self._held: Counter[bytes] = Counter()
        self._waiting: dict[bytes, dict[_Turn, None]] = {}
        """By tenant, the one that is served next first; of each its requests in their order."""

    @asynccontextmanager
    async def of(self, tenant: bytes) -> AsyncIterator[None]:
        await self.begin(tenant)
        try:
            yield
        finally:
            self.end(tenant)

    async def begin(self, tenant: bytes) -> None:
        """Returns once it is the caller's turn; `end` has to follow."""
        if self._free and self._held[tenant] < self._each_max:
            self._give(tenant)
            return
        turn: _Turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, {})[turn] = None
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._leave(tenant, turn)
            else:  # it came at this very moment
                self.end(tenant)
            raise

    def end(self, tenant: bytes) -> None:
        self._free += 1
        self._held[tenant] -= 1
        if not self._held[tenant]:
            del self._held[tenant]
        for each, turns in self._waiting.items():
            if self._held[each] >= self._each_max:
                continue  # of these there are no more than there are turns
            turn = next((turn for turn in turns if not turn.done()), None)
            if turn is None:
                continue  # all of them were cancelled this very moment
            self._leave(each, turn)
            if each in self._waiting:  # behind the others
                self._waiting[each] = self._waiting.pop(each)
            self._give(each)
            turn.set_result(None)
            return

    def _give(self, tenant: bytes) -> None:
        self._free -= 1
        self._held[tenant] += 1

    def _leave(self, tenant: bytes, turn: _Turn) -> None:
        """The turn waits no more."""
        turns = self._waiting[tenant]
        del turns[turn]
        if not turns:
            del self._waiting[tenant]
