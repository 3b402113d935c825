"""What this gateway knows of one partition: its epoch, how far Postgres has committed, whether Redis is
believed, or done without. Shared by the partition's sequencer, committer, verifier and sweeper, all on one
event loop."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from uuid import UUID

from gateway.log.epoch.commit_evidence import CommitEvidence
from gateway.log.epoch.marks import Marks
from gateway.log.epoch.redis_health import RedisHealth
from gateway.log.redis.keys import PartitionKeys, partition_keys


class Partition:
    """A copy of what was last read: Postgres' row decides."""

    def __init__(self, instance: UUID, number: int, reach: RedisHealth) -> None:
        self.number = number
        self.reach = reach
        self.epoch = 0
        self.open = False  # verified in `epoch`, and nothing has contradicted it since
        self.direct = False  # appends of `epoch` take no Redis
        self.halted: str | None = None  # why nothing may be appended until a person has decided
        # Settled too: as durable as what this gateway commits itself (settling.py).
        self.committed_seq = 0
        self.committed_chain = ""
        self.settled_in: int | None = None  # the session in which Postgres was last found to continue that
        self.rewinds = 0  # how often what this gateway had seen was given up, or found to be missing
        self.rewound = 0  # the epoch of the last rewind; 0: there was none. Part of the ETags of its streams
        self.watermark = 0  # c, as Redis last told
        self.marks = Marks()  # of committed events
        self._confirmed_seq = 0
        self._instance = instance
        self._keys: PartitionKeys | None = None
        self._waiters: list[tuple[int, int, asyncio.Future[bool]]] = []
        self._tickets = itertools.count()

    @property
    def confirmed_seq(self) -> int:
        return self._confirmed_seq

    @property
    def curious(self) -> bool:
        """Whether a call without appends is of use: the watermark lags behind what is known committed, or an
        answer waits for what another gateway commits."""
        return not self.direct and (self.watermark < self.committed_seq or self.awaited)

    @property
    def awaited(self) -> bool:
        """Whether an answer waits for what another gateway commits."""
        return bool(self._waiters)

    @property
    def in_redis(self) -> bool:
        """Whether Redis may be believed, and asked."""
        return self.open and not self.direct

    @property
    def keys(self) -> PartitionKeys:
        if self._keys is None:
            self._keys = partition_keys(self._instance, self.number, self.epoch)
        return self._keys

    def keys_in(self, epoch: int) -> PartitionKeys:
        return partition_keys(self._instance, self.number, epoch)

    def adopt(self, epoch: int, seq: int, chain: str, *, direct: bool = False) -> None:
        """Redis was verified: it continues what Postgres committed up to (seq, chain) in this epoch, and that
        is settled. Or, if `direct`, it is not asked."""
        self.direct = direct
        if epoch != self.epoch:
            self.epoch, self._keys, self._confirmed_seq = epoch, None, 0
            self._release(epoch_ended=True)
        self.watermark = 0
        self.known(seq, chain)
        self.confirmed(seq)
        self.open = True

    def distrust(self) -> None:
        """Redis contradicts Postgres or this gateway: nothing is sequenced before the next verification."""
        self.open = False

    @property
    def memory(self) -> CommitEvidence:
        """What this gateway knows to be committed, and settled."""
        return CommitEvidence("this gateway", self.epoch, self.committed_seq, self.committed_chain)

    def forget(self) -> None:
        """A rewind has given up what this gateway saw committed."""
        self.committed_seq, self.committed_chain = 0, ""
        self.rewinds += 1
        self.marks.forget()

    def halt(self, why: str) -> None:
        """Postgres lacks events that were seen committed: nothing is appended until an operator has decided,
        and cached reads of its streams are not shown any more."""
        if self.halted is None:
            self.rewinds += 1
            self.marks.forget()
        self.halted = why

    def reconnected(self) -> None:
        """What commits here may lead to another Postgres than before, or to the same with less in it."""
        self.settled_in = None
        self.distrust()

    def known(self, seq: int, chain: str) -> None:
        """Postgres stands at (seq, chain), or beyond, and that is settled: what was only found in Postgres is
        not known. It continues what was known before. Whether this Redis does too is another matter."""
        if seq > self.committed_seq:
            self.committed_seq, self.committed_chain = seq, chain

    def confirmed(self, seq: int) -> None:
        """Postgres and this epoch's Redis hold the same up to `seq`: what was decided on it may be told."""
        if seq > self._confirmed_seq:
            self._confirmed_seq = seq
            if self._waiters:
                self._release(epoch_ended=False)

    def when_committed(self, seq: int) -> asyncio.Future[bool]:
        """Resolves True once everything up to `seq` of this epoch is confirmed, False when the epoch ended
        before: then what was decided on it must be decided again."""
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        if seq <= self._confirmed_seq:
            future.set_result(True)
        else:
            heapq.heappush(self._waiters, (seq, next(self._tickets), future))
        return future

    def _release(self, *, epoch_ended: bool) -> None:
        while self._waiters and (epoch_ended or self._waiters[0][0] <= self._confirmed_seq):
            _, _, future = heapq.heappop(self._waiters)
            if not future.done():
                future.set_result(not epoch_ended)
