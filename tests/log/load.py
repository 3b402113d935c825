"""Writers that do not stop while a test breaks something."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.appends import Appended
from gateway.events import Stream
from gateway.log.log import Log
from gateway.log.read.ranges import Range
from gateway.outcomes import Outcome
from tests.support.drive import append, ids, new_stream, new_tenant, until


class Load:
    """Writers that go on until told, and what they were answered."""

    def __init__(self, logs: list[Log]) -> None:
        self.logs = logs
        tenant = new_tenant()
        self.streams = [new_stream(tenant) for _ in range(4)]
        self.outcomes: list[tuple[Stream, tuple[bytes, ...], Outcome]] = []
        self._over = False

    @asynccontextmanager
    async def running(self, writers: int = 16) -> AsyncIterator[Load]:
        tasks = [asyncio.ensure_future(self._write(n)) for n in range(writers)]
        try:
            yield self
        finally:
            self._over = True
            await asyncio.gather(*tasks)

    async def _write(self, n: int) -> None:
        while not self._over:
            one = append(self.streams[n % 4], 1 + n % 2)
            outcome = await self.logs[n % len(self.logs)].append(one)
            self.outcomes.append((one.stream, ids(one), outcome))
            await asyncio.sleep(0)  # one that is refused at once waited for nothing

    async def more(self, count: int) -> None:
        """Returns once so many more appends were acknowledged."""
        goal = self.acknowledged + count
        await until(lambda: self.acknowledged >= goal)

    @property
    def acknowledged(self) -> int:
        return sum(isinstance(outcome, Appended) for *_, outcome in self.outcomes)

    async def check(self, log: Log) -> None:
        """Each acknowledged event stands where its receipt says."""
        pages = {
            stream: await log.page(Range(stream, limit=100_000, bytes_max=2**40)) for stream in self.streams
        }
        for stream, event_ids, outcome in self.outcomes:
            if isinstance(outcome, Appended):
                there = pages[stream].events[outcome.first_version - 1 : outcome.length]
                assert tuple(each.event.id for each in there) == outcome.event_ids == event_ids
