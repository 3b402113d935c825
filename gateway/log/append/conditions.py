"""Asks Postgres about the conditions of appends, beside the queue: none waits behind another's look.

Owns: how far a condition is judged. What Postgres has up to a seq is judged here; what was sequenced behind
that seq, the script judges, or asks for another look. A look holds in the epoch in which it was made: there
the same seq stays the same event.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from gateway.events import NotCommitted, UnknownPosition
from gateway.log.append.pending import Look, Pending
from gateway.log.epoch.partition import Partition
from gateway.log.postgres import Postgres, PostgresTrouble
from gateway.log.read.matches import first_match

AT_ONCE: Final = 4
"""Looks under way for a partition: others of the gateway need connections too."""
WAITING_MAX: Final = 2_000
"""Appends that wait for their look, or are looked at."""
_AGAIN_S: Final = 0.05
_FULL: Final = NotCommitted("too many conditions are waiting to be judged on this gateway")


class Conditions:
    """One for each sequencer. `judged` takes those that have their look."""

    def __init__(self, partition: Partition, postgres: Postgres, judged: Callable[[Pending], None]) -> None:
        self._partition = partition
        self._postgres = postgres
        self._judged = judged
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()

    def ask(self, pending: Pending) -> None:
        if len(self._tasks) >= WAITING_MAX:
            pending.resolve(_FULL)
            return
        pending.look = None
        task = asyncio.get_running_loop().create_task(self._look(pending, self._partition.rewinds))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _look(self, pending: Pending, rewinds: int) -> None:
        while not pending.done:
            async with self._turns:
                try:
                    lost = await self._look_once(pending)
                except PostgresTrouble:
                    lost = None
            if self._partition.rewinds != rewinds:  # it was decided on a history that was given up
                pending.in_doubt |= pending.sent
                pending.expire()
            elif lost:
                pending.resolve(UnknownPosition())
            elif lost is not None:
                self._judged(pending)
                return
            await asyncio.sleep(_AGAIN_S)

    async def _look_once(self, pending: Pending) -> bool:
        """Whether there is no such event as the condition begins behind. Raises PostgresTrouble."""
        condition, tenant = pending.append.condition, pending.append.stream.tenant
        assert condition is not None
        found = await first_match(
            self._postgres, self._partition.number, tenant, condition.items, condition.after
        )
        pending.look = Look(found.epoch, found.seq, found.matched)
        return condition.after > 0 and found.mark != condition.mark
