"""Looks up the identities of waiting appends in Postgres, during the call before theirs.

Owns: when it is asked, and of which appends. An answer tells how far the partition was committed when it was
given: what was sequenced since, the script finds in Redis, or asks for another look (docs/decisions/0028).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from gateway.log.append.identities import ClaimedByAnother, Original, look_up
from gateway.log.append.known_identities import KnownIdentities
from gateway.log.append.pending import Pending
from gateway.log.epoch.partition import Partition
from gateway.log.limits import Limits
from gateway.log.postgres import Postgres
from gateway.names.unique import Holders, holders_of, values_of
from gateway.postgres.errors import PostgresTrouble
from gateway.telemetry.metrics import Metrics

_RETRY_S = 0.05
_COMMITTED_S = 1.0

Claimed = tuple[Pending, Original | ClaimedByAnother]


class LookUps:
    """One for each sequencer. `claimed` takes those that need not be sequenced, with the verdicts on them;
    `looked` hears that others may be sequenced now."""

    def __init__(
        self,
        partition: Partition,
        postgres: Postgres,
        limits: Limits,
        metrics: Metrics,
        known: KnownIdentities,
        claimed: Callable[[list[Claimed]], None],
        looked: Callable[[], None],
    ) -> None:
        self._partition = partition
        self._postgres = postgres
        self._limits = limits
        self._metrics = metrics
        self.known = known
        self._claimed = claimed
        self._looked = looked
        self._waiting: deque[Pending] = deque()
        self._work = asyncio.Event()
        self._verified = 0  # how often the partition was, while this gateway runs

    def ask(self, pending: Pending) -> None:
        """Of an append that waits in the queue. Mostly it is known at once that its identities are new;
        not of one that was sequenced before, perhaps by ids that the gateway minted."""
        if not pending.again and not pending.append.claims:
            pending.looked_up = self.known.absent(pending.append)
            if pending.looked_up is not None:
                return
        self._waiting.append(pending)
        if not self._work.is_set():
            self._work.set()

    @property
    def holds_any(self) -> bool:
        return bool(self._waiting)

    def let_go(self) -> None:
        """Keeps none at the head that has its outcome."""
        while self._waiting and self._waiting[0].done:
            self._waiting.popleft()

    def ask_again(self, queue: Iterable[Pending]) -> None:
        """Of all that wait in it: the partition was verified, and what was looked up before tells nothing."""
        self._verified += 1
        self.known.verified()
        self._waiting.clear()
        for pending in queue:
            pending.looked_up, pending.beyond = None, 0
            if pending.to_look_up:
                self.ask(pending)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            if not self._waiting:
                self._work.clear()
                await self._work.wait()
            await self._gather()
            asked = self._take()
            if not self._partition.in_redis:
                continue  # all are asked for again once Redis was verified
            told = False
            try:
                told = await self._ask(asked)
            finally:
                if not told:  # else they, and all who wait behind them, would wait for nothing
                    self._waiting.extendleft(reversed(asked))
            self._looked()
            if not told:
                await asyncio.sleep(_RETRY_S)

    async def _gather(self) -> None:
        """An append that comes just after a look waits for it and for another one: it takes along what each
        turn of the event loop brings, as long as one brings any."""
        before = 0
        while before < len(self._waiting):
            before = len(self._waiting)
            await asyncio.sleep(0)

    def _take(self) -> list[Pending]:
        asked: list[Pending] = []
        while self._waiting and len(asked) < self._limits.sequence_appends_max:
            pending = self._waiting.popleft()
            if not pending.done:
                asked.append(pending)
        return asked

    async def _committed(self, seq: int) -> None:
        """Where it is not: who holds a value that was claimed there, Postgres does not know before."""
        if seq > self._partition.committed_seq:
            await asyncio.wait((self._partition.when_committed(seq),), timeout=_COMMITTED_S)

    async def _holders(self, asked: list[Pending]) -> Holders:
        """Of the values that they claim. Raises PostgresTrouble."""
        values = values_of([pending.append for pending in asked])
        return holders_of(await self._postgres.fetch("holders", values)) if values else holders_of(())

    async def _ask(self, asked: list[Pending]) -> bool:
        """False where Postgres could not be asked."""
        if not asked:
            return True
        partition, verified = self._partition, self._verified
        self._metrics.identity_lookups.inc(len(asked))
        minted = [(each.append.stream.tenant, each.append.append_id) for each in asked if each.again]
        retries = [pending.append.retry for pending in asked]
        try:
            await self._committed(max([each.beyond for each in asked]))
            claims = await look_up(self._postgres, partition.number, retries, minted)
            holders = await self._holders(asked)
        except PostgresTrouble:
            return verified != self._verified
        if verified != self._verified or not partition.in_redis:
            return True  # they are asked for again, or will be
        if claims.epoch != partition.epoch:
            partition.distrust()
            return True
        claimed: list[Claimed] = []
        for pending in asked:
            verdict = claims.judge(pending.append)
            if verdict is None:
                # Not there in the epoch that it would be sequenced in now: an earlier call that carried it
                # ended with its epoch, or will find the identity taken.
                pending.looked_up = claims.seq
                pending.taken = holders.judge(pending.append) if pending.append.claims else None
            elif not pending.done:
                claimed.append((pending, verdict))
        if claimed:
            self._claimed(claimed)
        return True
