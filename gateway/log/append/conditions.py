"""Asks Postgres about the conditions of appends, beside the queue: none waits behind another's look.

Owns: how far a condition is judged. What Postgres has up to a seq is judged here; what was sequenced behind
that seq, the script judges, or asks for another look. A look holds in the epoch in which it was made: there
the same seq stays the same event.

Mostly none is needed: Redis knows the tags of what was sequenced behind the condition's position, and the
mark of that position is known here. Else one statement for all that wait mostly tells that nothing can match:
of each item, some tag has no event behind the position. What it leaves open is looked up one by one.

Whether Redis is asked first is a guess, which costs a call where it is wrong and is never trusted.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from gateway.appends import Append
from gateway.items import Condition, Items
from gateway.log.append.calls import boundary
from gateway.log.append.pending import Look, Pending
from gateway.log.epoch.partition import Partition
from gateway.log.postgres import Postgres
from gateway.log.read.matches import LastTagged, first_match, last_tagged
from gateway.outcomes import NotCommitted, UnknownPosition
from gateway.postgres.errors import PostgresTrouble

AT_ONCE: Final = 4
"""Single looks under way for a partition: others of the gateway need connections too."""
TOGETHER: Final = 250
"""Conditions that one statement is about."""
WAITING_MAX: Final = 2_000
"""Appends that wait for their look, or are looked at."""
LOOKED_AT_MAX: Final = 1_000
"""Queries, short ones, whose tags Redis should remember from a look."""
_AGAIN_S: Final = 0.05
_FULL: Final = NotCommitted("too many conditions are waiting to be judged on this gateway")


class Conditions:
    """One for each sequencer. `judged` takes those that have their look."""

    def __init__(self, partition: Partition, postgres: Postgres, judged: Callable[[Pending], None]) -> None:
        self._partition = partition
        self._postgres = postgres
        self._judged = judged
        self._waiting: deque[tuple[Pending, int]] = deque()
        self._under_way = 0
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._work: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._epoch = 0  # of the following two
        self._told_from = 0  # Redis knows the tags of what lies behind that seq
        self._looked_at: dict[tuple[bytes, Items], None] = {}

    def told_by_redis(self, append: Append) -> Look | None:
        """What the append's condition may be sequenced with, where Redis will probably know the rest: that
        nothing matches up to its position. None: Postgres is to be asked."""
        condition, partition = append.condition, self._partition
        assert condition is not None
        if not partition.in_redis:
            return None
        for item in condition.items:
            if not item.tags:
                return None
        if condition.after and not partition.marks.has(condition.after, condition.mark):
            return None
        self._in(partition.epoch)
        query = append.stream.tenant, condition.items
        if condition.after < self._told_from and query not in self._looked_at:
            return None
        return Look(partition.epoch, condition.after, 0)

    def not_told(self, pending: Pending, told_from: bytes) -> None:
        """Redis can tell only of what lies behind that seq."""
        condition = pending.append.condition
        assert condition is not None
        pending.look = None
        self._in(self._partition.epoch)
        self._told_from = int(told_from)
        self._looked_at.pop((pending.append.stream.tenant, condition.items), None)

    def _in(self, epoch: int) -> None:
        if epoch != self._epoch:
            self._epoch, self._told_from = epoch, 0
            self._looked_at.clear()

    def _remembered(self, tenant: bytes, items: Items) -> None:
        if not boundary(tenant, items).is_short:
            return
        if len(self._looked_at) >= LOOKED_AT_MAX:
            del self._looked_at[next(iter(self._looked_at))]
        self._looked_at[tenant, items] = None

    def ask(self, pending: Pending) -> None:
        """One that was sent has room in any case: it may be committed, and `not_committed` would be wrong."""
        if len(self._waiting) + self._under_way >= WAITING_MAX and not pending.sent:
            pending.resolve(_FULL)
            return
        pending.look = None
        self._waiting.append((pending, self._partition.rewinds))
        if self._work is None:
            self._work = asyncio.get_running_loop().create_task(self._look_together())
            self._work.add_done_callback(self._rest)

    def _rest(self, work: asyncio.Task[None]) -> None:
        self._work = None
        if self._waiting and not work.cancelled():
            self._work = asyncio.get_running_loop().create_task(self._look_together())
            self._work.add_done_callback(self._rest)

    async def _look_together(self) -> None:
        """All that wait, a statement after the other; those that come meanwhile are in the next."""
        while self._waiting:
            await asyncio.sleep(0)  # a request of the same turn of the loop comes along
            asked = [self._waiting.popleft() for _ in range(min(len(self._waiting), TOGETHER))]
            asked = [each for each in asked if not each[0].done]
            if not asked:
                continue
            self._under_way += len(asked)
            try:
                conditions = [_condition(pending) for pending, _ in asked]
                found = await last_tagged(self._postgres, self._partition.number, conditions)
            except PostgresTrouble:
                self._waiting.extendleft(reversed(asked))
                await asyncio.sleep(_AGAIN_S)
                continue
            finally:
                self._under_way -= len(asked)
            for (pending, rewinds), of in zip(asked, found, strict=True):
                self._settle(pending, rewinds, of)

    def _settle(self, pending: Pending, rewinds: int, found: LastTagged) -> None:
        condition = pending.append.condition
        assert condition is not None
        if self._given_up(pending, rewinds):
            return
        if condition.after and found.mark != condition.mark:
            pending.resolve(UnknownPosition())
            return
        if condition.after:
            self._partition.marks.keep_one(condition.after, condition.mark)
        if found.none:
            pending.look = Look(found.epoch, found.seq, 0, found.lasts)
            self._remembered(pending.append.stream.tenant, condition.items)
            self._judged(pending)
        else:
            task = asyncio.get_running_loop().create_task(self._look_by_itself(pending, rewinds))
            self._tasks.add(task)
            self._under_way += 1
            task.add_done_callback(self._looked)

    def _looked(self, task: asyncio.Task[None]) -> None:
        self._under_way -= 1
        self._tasks.discard(task)

    async def _look_by_itself(self, pending: Pending, rewinds: int) -> None:
        tenant, condition = _condition(pending)
        number = self._partition.number
        while not pending.done:
            try:
                async with self._turns:
                    postgres = self._postgres.of(tenant)
                    found = await first_match(postgres, number, tenant, condition.items, condition.after)
            except PostgresTrouble:
                await asyncio.sleep(_AGAIN_S)
                continue
            if not self._given_up(pending, rewinds):
                pending.look = Look(found.epoch, found.seq, found.matched)
                self._judged(pending)
            return

    def _given_up(self, pending: Pending, rewinds: int) -> bool:
        """Whether it was decided on a history that was given up meanwhile; then it is answered."""
        if self._partition.rewinds == rewinds:
            return False
        pending.in_doubt |= pending.sent
        pending.expire()
        return True


def _condition(pending: Pending) -> tuple[bytes, Condition]:
    """With its tenant."""
    condition = pending.append.condition
    assert condition is not None
    return pending.append.stream.tenant, condition
