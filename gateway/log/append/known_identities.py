"""Which identities are in Postgres, up to a seq: most keys are new, and this shows it without a lookup.

Owns: up to which seq this gateway knows all identities of a partition, and in which belief in Redis. That one
of them is not among those is a look-up that was made at that seq (docs/decisions/0053): what was sequenced
since, the script finds in Redis, or asks for a look-up in Postgres. Identities of this gateway's own commits
are taken from these, where they continue what it knows; all others are read. Only what is settled is read, so
as long as this gateway misses nothing that it has seen committed (`Partition.rewinds`), what was read stays
true.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import Final

from gateway.appends import Append
from gateway.log.append.identity_filter import Budget, IdentityFilter
from gateway.log.entries import SequencedAppend
from gateway.log.epoch.partition import Partition
from gateway.log.postgres import Postgres
from gateway.log.read.followers import Tapped
from gateway.postgres.errors import PostgresTrouble

logger = logging.getLogger("sluice.log")

PAGE: Final = 2_000
"""Identities that are read at once; to take them in holds the event loop for some 3 ms."""
_PAUSE: Final = 3
"""After a full page the gateway does other things for so many times as long as that one took."""
_RETRY_S: Final = 0.5
_OWN_MAX: Final = 16
"""Commits of this gateway that are kept until what comes before them was read."""
_NEVER: Final = 2**63


class KnownIdentities:
    """One for each sequencer. Nothing is read before the first identity is asked for."""

    def __init__(
        self, partition: Partition, postgres: Postgres, tapped: Tapped, budget: Budget, window: int
    ) -> None:
        self._partition = partition
        self._postgres = postgres
        self._tapped = tapped
        self._filter = IdentityFilter(budget)
        self._enabled = budget.bytes_max > 0
        # Redis remembers what was sequenced in the last `window` events at least.
        self._behind_max = window // 2
        self._read_at = window // 4
        self._seq = 0  # all identities up to here are in the filter
        self._own: deque[tuple[int, int, bytes]] = deque(maxlen=_OWN_MAX)  # from behind a seq, up to one
        self._rewinds = partition.rewinds
        self._epoch = -1
        self._from = _NEVER  # what was committed when Redis was verified: before that it remembers nothing
        self._verified = 0
        self._work = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def verified(self) -> None:
        """Redis was, perhaps in another epoch: what it remembers begins here."""
        partition = self._partition
        self._verified += 1
        self._epoch, self._from = partition.epoch, partition.committed_seq

    def absent(self, append: Append) -> int | None:
        """The seq up to which Postgres has none of the append's identities; None: look them up."""
        partition, seq = self._partition, self._seq
        if not self._enabled:
            return None
        behind = partition.committed_seq - seq
        holds = seq >= self._from and self._epoch == partition.epoch and self._rewinds == partition.rewinds
        if behind > self._read_at or not holds:
            self._work.set()
            if behind > self._behind_max or not holds:
                return None
        retry = append.retry
        if retry.chosen_events:  # a gateway may have minted one of them: that is no identity in Postgres
            return None
        for identity in retry.chosen:
            if identity in self._filter:
                return None
        return seq

    def committed(self, run: Sequence[SequencedAppend]) -> None:
        """A tap: this gateway committed the run, and there is nothing else between its ends."""
        before = run[0].first_seq - 1
        began = before == 0 or self._seq > 0
        if began and self._enabled and self._rewinds == self._partition.rewinds:
            chosen = [identity for placed in run for identity in placed.chosen]
            self._own.append((before, run[-1].last_seq, b"".join(chosen)))
            self._take_own()

    def _take_own(self) -> None:
        while self._own and self._own[0][0] <= self._seq:
            _, after, identities = self._own.popleft()
            if after > self._seq and self._add(identities):
                self._seq = after

    def _add(self, identities: bytes) -> bool:
        """False, and no filter any more, where there is no room."""
        if self._filter.add(identities):
            return True
        self._enabled = False
        self._filter.empty()
        self._own.clear()
        return False

    async def run(self) -> None:
        """Until cancelled."""
        with self._tapped(self._partition.number, self.committed):
            await self._read()

    async def _read(self) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            try:
                while self._enabled:
                    began = self._loop.time()
                    if not await self._read_on():
                        break
                    await asyncio.sleep(_PAUSE * (self._loop.time() - began))
            except PostgresTrouble as trouble:
                told = {"partition": self._partition.number, "reason": str(trouble)}
                logger.warning("identities_not_read", extra=told)
                await asyncio.sleep(_RETRY_S)
                self._work.set()

    async def _read_on(self) -> bool:
        """Takes in the next page; whether there may be another. Raises PostgresTrouble."""
        partition, verified = self._partition, self._verified
        if self._rewinds != partition.rewinds:
            self._filter.empty()
            self._own.clear()
            self._seq, self._rewinds = 0, partition.rewinds
        upto, rewinds = partition.committed_seq, self._rewinds
        if self._seq >= upto:
            return False
        rows = await self._postgres.fetch("identities", partition.number, self._seq, upto, PAGE)
        (row,) = rows
        if verified != self._verified or rewinds != partition.rewinds or row["seq"] < upto:
            return False  # another Postgres may have told that: the next append asks for it again
        if not self._add(row["identities"] or b""):
            return False
        full = bool(row["count"] >= PAGE)
        self._seq = row["last"] if full else upto
        self._take_own()
        return full
