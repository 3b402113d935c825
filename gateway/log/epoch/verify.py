"""Decides whether a Redis may be believed, and makes it believable: adopt, or seal and install. Or that
appends do without it: direct mode, and the way back.

Source: the append protocol, steps 5 and 7. Postgres' row is the truth; Redis is never rolled back silently.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.log.epoch.commit_evidence import CommitEvidence, contains
from gateway.log.epoch.notices import EpochChanges
from gateway.log.epoch.partition import Partition
from gateway.log.epoch.settling import Settling
from gateway.log.postgres import DIRECT, REDIS, PartitionRow, Postgres
from gateway.log.redis.scripts import RedisTrouble, Scripts
from gateway.postgres.errors import PostgresTrouble

# A gateway that finds Postgres sealed further than Redis lets the gateway that sealed it finish the
# installation.
_INSTALL_PATIENCE_S = (0.05, 0.2)
_ATTEMPTS = 6


class CannotVerify(Exception):
    """The partition can't be opened now; try again shortly."""


class PostgresLostCommits(Exception):
    """Postgres lacks commits that were seen. An operator must decide. `witness` is None if another gateway,
    or this one earlier, has raised the alarm."""

    def __init__(self, why: str, witness: CommitEvidence | None) -> None:
        super().__init__(why)
        self.witness = witness


@dataclass(frozen=True, slots=True)
class Inspection:
    """What a server says of a partition; epochs and seqs are -1 where it says nothing."""

    master: bool
    replid: str
    epoch: int
    fence: str
    torn: bool
    q: int
    c: int
    chain_at_c: str
    chain_at_seq: str  # its chain where Postgres stands; '' when it has none there
    format: int  # of the epoch's keys; one that names none is of format 1
    known_format: int  # to the scripts of this release

    @classmethod
    def from_reply(cls, reply: Sequence[Any]) -> Inspection:
        master, *rest = reply
        replid, epoch, fence, torn, q, _h, c, chain_at_c, chain_at_seq, written, known = (
            each.decode() for each in rest
        )
        return cls(
            master=bool(master),
            replid=replid,
            epoch=int(epoch or -1),
            fence=fence,
            torn=torn != "",
            q=int(q or -1),
            c=int(c or -1),
            chain_at_c=chain_at_c,
            chain_at_seq=chain_at_seq,
            format=int(written or 1),
            known_format=int(known),
        )

    @property
    def newer(self) -> bool:
        """Whether a release that writes a newer format has begun the epoch."""
        return self.format > self.known_format

    @property
    def witness(self) -> CommitEvidence:
        """The commits that this Redis knows."""
        return CommitEvidence("Redis", self.epoch, max(self.c, 0), self.chain_at_c)

    def knows(self, row: PartitionRow) -> bool:
        """Whether its watermark is where the row stands: a watermark moves only to what is settled."""
        return self.epoch == row.epoch and self.c == row.seq and self.chain_at_c == row.chain

    def continues(self, row: PartitionRow) -> bool:
        """Whether this server is still in the life in which it was verified for this epoch, by a release that
        writes this format, and its history contains all that Postgres committed. In another life (a restart,
        a promotion) it may have forgotten what a gateway is committing at this moment, so it is never
        believed again (docs/decisions/0010)."""
        if row.mode != REDIS or self.format != self.known_format:
            return False
        if self.epoch != row.epoch or self.fence != self.replid or self.torn or self.q < row.seq:
            return False
        return self.chain_at_seq == row.chain and (self.chain_at_seq != "" or row.seq == 0)


class Verifier:
    """Opens partitions. One verification a partition at a time in this gateway; others may verify too."""

    def __init__(
        self,
        scripts: Scripts,
        postgres: Postgres,
        settling: Settling,
        owner: str,
        identity_window: int,
        changes: EpochChanges,
    ) -> None:
        self._scripts = scripts
        self._postgres = postgres
        self._settling = settling
        self._owner = owner
        self._identity_window = identity_window
        self._changes = changes
        self._now = asyncio.get_running_loop().time

    async def verify(self, partition: Partition) -> None:
        """Afterwards `partition` is open, over Redis or directly.

        Raises CannotVerify (Redis unreachable for a moment or Postgres at all, a replica, another gateway at
        work) or PostgresLostCommits, which is then kept in Postgres too, if it takes writes.
        """
        try:
            await self._verify(partition)
        except PostgresLostCommits as loss:
            if (saw := loss.witness) is not None:
                who = f"{saw.who} ({self._owner})"
                told = (saw.epoch, saw.seq, saw.chain, str(loss))
                await self._postgres.keep_alarm(partition.number, who, *told)
            raise

    async def _verify(self, partition: Partition) -> None:
        patient = True
        for _ in range(_ATTEMPTS):
            row = await self._row(partition)
            if await self._without_redis(partition, row):
                return
            seen = await self._inspect(partition, row)
            if not (_remembers(partition, row) or seen.knows(row)):
                row = await self._settled(partition)
                seen = await self._inspect(partition, row)
            if seen.witness.ahead_of(row):
                row = await self._row(partition)
                # What it sequenced in an epoch whose seal Postgres has lost may have been committed too.
                sealed_away = seen.epoch > row.epoch and seen.q > row.seq
                if seen.witness.saw_more_than(row) or sealed_away:
                    raise PostgresLostCommits(seen.witness.against(partition.number, row), seen.witness)
                if not seen.witness.ahead_of(row):
                    continue  # another gateway went on between the two looks
            if row.alarm is not None:
                raise PostgresLostCommits(row.alarm, None)
            if not seen.master:
                raise CannotVerify(f"partition {partition.number}: this Redis is a replica")
            if seen.newer:
                raise CannotVerify(
                    f"partition {partition.number}: a newer release has begun epoch {seen.epoch} in Redis, "
                    f"in format {seen.format}; this one reads and writes format {seen.known_format}"
                )
            if seen.continues(row):
                self._adopt(partition, row)
                return
            installing = row.mode == REDIS and seen.epoch < row.epoch
            if patient and installing and row.owner not in ("", self._owner):
                patient = False
                await asyncio.sleep(random.uniform(*_INSTALL_PATIENCE_S))  # noqa: S311
            elif await self._seal_and_install(partition, row, seen):
                return
        raise CannotVerify(f"partition {partition.number}: other gateways keep changing it")

    async def _without_redis(self, partition: Partition, row: PartitionRow) -> bool:
        """Whether the partition is open without a look at Redis: it has been away for too long, here or at
        another gateway, or has not been back for long. The swap of the mode ends the epoch, for gateways too
        that still reach Redis."""
        now, reach = self._now(), partition.reach
        if row.mode == REDIS and not reach.failing:
            return False
        if row.mode == DIRECT and partition.direct and reach.steady(now):
            return False
        if row.alarm is not None:
            raise PostgresLostCommits(row.alarm, None)
        if row.mode == REDIS and not reach.lost(now):
            raise CannotVerify(f"partition {partition.number}: Redis does not answer")
        if row.mode == REDIS or row.epoch < partition.epoch:
            if await self._seal(partition, row, DIRECT) is None:
                raise CannotVerify(f"partition {partition.number}: another gateway changes it")
            row = await self._settled(partition)
        elif not _remembers(partition, row):
            row = await self._settled(partition)
        if row.mode == REDIS:
            raise CannotVerify(f"partition {partition.number}: another gateway changes it")
        self._adopt(partition, row)
        return True

    def _adopt(self, partition: Partition, row: PartitionRow) -> None:
        direct = row.mode == DIRECT
        if direct != partition.direct:
            partition.reach.begin_again(self._now())
            self._changes.mode(partition.number, direct=direct)
        partition.rewound = row.rewound
        partition.adopt(row.epoch, row.seq, row.chain, direct=direct)

    async def _inspect(self, partition: Partition, row: PartitionRow) -> Inspection:
        """Redis after Postgres: it may have gone on meanwhile."""
        keys = partition.keys_in(row.epoch)
        try:
            reply = await self._scripts.run(
                "inspect", (keys.meta, keys.journal, keys.heads), (row.epoch, row.seq)
            )
        except RedisTrouble as error:
            partition.reach.refused(self._now())
            raise CannotVerify(f"partition {partition.number}: {error}") from error
        return Inspection.from_reply(reply)

    async def _row(self, partition: Partition) -> PartitionRow:
        """Raises PostgresLostCommits where it does not hold what this gateway saw committed."""
        return await self._holding(partition, self._postgres.partition(partition.number))

    async def _settled(self, partition: Partition) -> PartitionRow:
        """The same, once what it tells is settled."""
        return await self._holding(partition, self._settled_row(partition))

    async def _settled_row(self, partition: Partition) -> PartitionRow:
        return (await self._settling.settle(partition)).row

    async def _holding(self, partition: Partition, read: Coroutine[None, None, PartitionRow]) -> PartitionRow:
        memory = partition.memory  # before the row is read: what is learned meanwhile may be beyond it
        try:
            row = await read
        except PostgresTrouble as error:
            raise CannotVerify(f"partition {partition.number}: {error}") from error
        await self._hold(partition.number, row, memory)
        if memory.epoch < row.rewound:
            partition.forget()
        return row

    async def _hold(self, p: int, row: PartitionRow, witness: CommitEvidence) -> None:
        """Raises PostgresLostCommits unless Postgres has what the witness saw committed, in its order."""
        try:
            held = await contains(self._postgres, p, row, witness)
        except PostgresTrouble as error:
            raise CannotVerify(f"partition {p}: {error}") from error
        if not held:
            raise PostgresLostCommits(witness.against(p, row), witness)

    async def _seal_and_install(self, partition: Partition, row: PartitionRow, seen: Inspection) -> bool:
        # Before a Redis is given up: what it knew to be committed must be in Postgres.
        await self._hold(partition.number, row, seen.witness)
        sealed = await self._seal(partition, row, REDIS, seen.epoch)
        if sealed is None:
            return False
        if row.mode == REDIS:
            self._changes.sealed(partition.number, row.epoch, sealed.seq)
        if not _remembers(partition, sealed) and (await self._settled(partition)).epoch != sealed.epoch:
            return False
        keys = partition.keys_in(sealed.epoch)
        args = (sealed.epoch, seen.replid, sealed.seq, sealed.chain, self._identity_window)
        try:
            reply = await self._scripts.run("install", (keys.meta, keys.heads), args)
        except RedisTrouble as error:
            partition.reach.refused(self._now())
            raise CannotVerify(f"install: {error}") from error
        if reply[0] != b"OK":
            return False
        self._adopt(partition, sealed)
        return True

    async def _seal(
        self, partition: Partition, row: PartitionRow, mode: str, seen_epoch: int = 0
    ) -> PartitionRow | None:
        beyond = max(partition.epoch, seen_epoch)
        try:
            return await self._postgres.seal(partition.number, row.epoch, self._owner, mode, beyond)
        except PostgresTrouble as error:
            raise CannotVerify(f"partition {partition.number}: {error}") from error


def _remembers(partition: Partition, row: PartitionRow) -> bool:
    """Whether the gateway knows already that what the row tells is settled."""
    return (row.seq, row.chain) == (partition.committed_seq, partition.committed_chain)
