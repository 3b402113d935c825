"""Answers that depend on events that are not committed yet: a conflict, a mismatch, a replay.

No answer is given before the events that it depends on are committed and settled (settling.py). If the epoch
ends first, the append is decided again: never on events of a sealed epoch, and no conflict on a Redis that
appends bypass.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable

import msgspec

from gateway.log.append.identities import ClaimedByAnother, Original, look_up, mismatch, receipt
from gateway.log.append.pending import Pending
from gateway.log.epoch.partition import Partition
from gateway.log.epoch.settling import Settling
from gateway.log.postgres import Postgres
from gateway.outcomes import ConditionFailed, Conflict, NotUnique
from gateway.postgres.errors import PostgresTrouble

logger = logging.getLogger("sluice.log")

_AGAIN_S = 0.1

Verdict = Original | ClaimedByAnother | Conflict | ConditionFailed | NotUnique


class DeferredOutcomes:
    """One for each sequencer; `reset` takes back what must be decided again."""

    def __init__(
        self,
        partition: Partition,
        postgres: Postgres,
        settling: Settling,
        again: Callable[[Iterable[Pending]], None],
    ) -> None:
        self._partition = partition
        self._postgres = postgres
        self._settling = settling
        self._again = again
        self._tasks: set[asyncio.Task[None]] = set()
        self._next_look: asyncio.Future[int | None] | None = None
        self._looking = False

    def answer(self, pending: Pending, verdict: Verdict, seq: int = 0) -> None:
        """Its basis is committed; a conflict's up to `seq`."""
        self._spawn(self._answer(pending, verdict, seq))

    def answer_after(self, pending: Pending, seq: int, verdict: Verdict) -> None:
        """Its basis, in Redis, is committed once everything up to `seq` is."""
        epoch, committed = self._partition.epoch, self._partition.when_committed(seq)
        self._spawn(self._answer_when(committed, epoch, pending, verdict))

    async def _answer_when(
        self, committed: asyncio.Future[bool], epoch: int, pending: Pending, verdict: Verdict
    ) -> None:
        if await committed and (not isinstance(verdict, Conflict | NotUnique) or await self._look() == epoch):
            await self._answer(pending, verdict)
        else:
            self._decide_again(pending)

    # -- whether the epoch of a conflict still stands: another gateway may have gone on without this Redis

    def _look(self) -> asyncio.Future[int | None]:
        """The epoch in Postgres, read after this call; None if it can't be. All who wait share one look."""
        if self._next_look is None:
            self._next_look = asyncio.get_running_loop().create_future()
            if not self._looking:
                self._looking = True
                self._spawn(self._look_on())
        return self._next_look

    async def _look_on(self) -> None:
        while self._next_look is not None:
            asked, self._next_look = self._next_look, None
            try:
                asked.set_result((await self._postgres.partition(self._partition.number)).epoch)
            except PostgresTrouble:
                asked.set_result(None)
            except Exception:  # a bug, or asyncpg's: the next conflicts are looked at all the same
                logger.exception("task_restarted")
                asked.set_result(None)
        self._looking = False

    async def _answer(self, pending: Pending, verdict: Verdict, seq: int = 0) -> None:
        try:
            await self._tell(pending, verdict, seq)
        except PostgresTrouble:
            await asyncio.sleep(_AGAIN_S)  # else it would be found again at once, and asked about again
            self._decide_again(pending)

    async def _tell(self, pending: Pending, verdict: Verdict, seq: int) -> None:
        """Raises PostgresTrouble where what it rests on can't be read, or settled."""
        partition = self._partition
        match verdict:
            case Conflict():
                await self._settling.found(partition, seq)
                pending.resolve(verdict)
            case ConditionFailed() | NotUnique():
                await self._settling.found(partition, verdict.seq)
                pending.resolve(verdict)
            case ClaimedByAnother():
                await self._settling.found(partition, verdict.seq)
                retry = pending.append.retry
                claims = await look_up(self._postgres, partition.number, (retry,))
                pending.resolve(await mismatch(self._postgres, claims, retry))
            case Original():
                found = await receipt(self._postgres, verdict, replayed=True)
                await self._settling.found(partition, verdict.last_seq, found.event_ids[-1])
                own = pending.sent and found.event_ids[0] == pending.append.append_id
                pending.resolve(msgspec.structs.replace(found, replayed=not own))

    def _decide_again(self, pending: Pending) -> None:
        pending.reset()
        self._again((pending,))

    def _spawn(self, coroutine: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
