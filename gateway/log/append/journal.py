"""Commits from the journal appends that another gateway, or an earlier process of this one, has sequenced."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import msgspec

from gateway.log.commit_connection import ChainBroken, CommitConnection, RefusedByPostgres
from gateway.log.entries import SequencedAppend, placed_from_journal
from gateway.log.epoch.partition import Partition
from gateway.log.epoch.settling import Settling
from gateway.log.postgres import REDIS, PartitionRow, Postgres
from gateway.log.redis.scripts import RedisTrouble, Scripts
from gateway.postgres.errors import PostgresTrouble
from gateway.telemetry.redact import reason

logger = logging.getLogger("sluice.log")

# An entry has what one call sequenced: sequence_bytes_max at most, or one append that is larger.
_ENTRIES_A_CALL = 16


class CannotHelp(Exception):
    """The journal can't be read or committed now; the partition needs to be verified first."""


@dataclass(frozen=True, slots=True)
class _Tail:
    """What the journal holds beyond Postgres, without a gap, and the chain after it; `q` and `c` as Redis has
    them."""

    run: list[SequencedAppend]
    chain: str
    q: int
    c: int


class _Hole(Exception):
    """What was sequenced is not all in the journal any more, or can't be read."""


class Journal:
    """Commits sequenced events that stay uncommitted, for any gateway."""

    def __init__(
        self, scripts: Scripts, postgres: Postgres, settling: Settling, connection: CommitConnection
    ) -> None:
        self._scripts = scripts
        self._postgres = postgres
        self._settling = settling
        self._connection = connection
        self._one_at_a_time = asyncio.Lock()  # the connection serves all partitions

    async def commit(self, partition: Partition, to_seq: int | None = None) -> int:
        """Commits the journal's entries that Postgres lacks, at least up to `to_seq` or all of them. Returns
        the number of appends committed here (another gateway may have committed others).

        Raises CannotHelp. If the journal has lost sequenced events, the epoch has then ended, since nothing
        after them can be committed.
        """
        committed = 0
        most: int | None = None
        while True:
            try:
                row = await self._current(partition)
                if to_seq is not None and row.seq >= to_seq:
                    return committed
                tail = await self._read(partition, row, most)
                if tail.c > row.seq:
                    await self._refuse_if_lost(partition, tail.c)
                    continue
                if tail.q < (to_seq or 0) or (tail.q > row.seq and not tail.run):
                    raise _Hole(f"the journal ends at seq {tail.q if tail.run else row.seq}")
                if not tail.run:
                    return committed
                committed += await self._swap(partition, row, tail)
            except RefusedByPostgres as refused:
                # One at a time up to the append that Postgres refuses, so that it holds up no other.
                if len(tail.run) == 1:
                    await self._quarantine(partition, row.epoch, tail.run[0], str(refused))
                    raise CannotHelp(f"partition {partition.number}: {refused}") from refused
                most = 1
            except (_Hole, ChainBroken) as broken:
                await self._abandon(partition, row.epoch, str(broken))
                raise CannotHelp(f"partition {partition.number}: {broken}") from broken
            except (PostgresTrouble, RedisTrouble) as trouble:
                partition.distrust()
                raise CannotHelp(str(trouble)) from trouble

    async def _current(self, partition: Partition) -> PartitionRow:
        row = await self._postgres.partition(partition.number)
        if row.seq > partition.committed_seq:
            row = (await self._settling.settle(partition)).row
        if row.epoch != partition.epoch:
            raise CannotHelp(f"partition {partition.number} is in epoch {row.epoch} now")
        return row

    async def _read(self, partition: Partition, row: PartitionRow, most: int | None) -> _Tail:
        """At most so many appends. An entry may begin before the row: Postgres may have its first appends."""
        keys = partition.keys
        args = (partition.epoch, row.seq, _ENTRIES_A_CALL)
        reply = await self._scripts.run("journal", (keys.meta, keys.journal), args)
        if reply[0] == b"FENCED":
            raise CannotHelp(f"partition {partition.number}: Redis is fenced ({reply[1].decode()})")
        tail = _Tail([], row.chain, int(reply[1]), int(reply[3]))
        if tail.c > row.seq:
            return tail
        chain, seq = row.chain, row.seq
        for placed, after in _unpacked(reply[4]):
            if placed.last_seq <= row.seq:
                continue
            if placed.first_seq != seq + 1:
                raise _Hole(f"the journal has a gap after seq {seq}")
            if len(tail.run) == most:
                break
            seq, chain = placed.last_seq, after
            tail.run.append(placed)
        return replace(tail, chain=chain)

    async def _swap(self, partition: Partition, row: PartitionRow, tail: _Tail) -> int:
        before, after = (row.seq, row.chain), (tail.run[-1].last_seq, tail.chain)
        async with self._one_at_a_time:
            held = await self._connection.swap(partition.number, row.epoch, before, after, tail.run)
        if not held:
            return 0
        partition.known(*after)
        return len(tail.run)

    async def _refuse_if_lost(self, partition: Partition, c: int) -> None:
        """Redis saw more committed than Postgres held a moment ago: others go on, or Postgres lost commits,
        which are for a person to bring back. Raises CannotHelp."""
        if (await self._current(partition)).seq < c:
            partition.distrust()  # the verification finds the same, and says so
            raise CannotHelp(f"partition {partition.number}: Postgres lost commits up to seq {c}")

    async def _abandon(self, partition: Partition, epoch: int, why: str) -> None:
        told = {"partition": partition.number, "reason": why}
        logger.critical("chain_broken", extra=told)
        partition.distrust()
        try:
            await self._postgres.seal(partition.number, epoch, "", REDIS)
        except PostgresTrouble as trouble:
            raise CannotHelp(str(trouble)) from trouble

    async def _quarantine(self, partition: Partition, epoch: int, bad: SequencedAppend, error: str) -> None:
        try:
            await quarantine(self._postgres, partition, epoch, bad, error)
        except PostgresTrouble as trouble:
            raise CannotHelp(str(trouble)) from trouble


def _unpacked(entries: Sequence[Any]) -> Iterator[tuple[SequencedAppend, str]]:
    """Raises _Hole where an entry is not what this release writes."""
    for entry in entries:
        try:
            yield from placed_from_journal(entry)
        except (ValueError, TypeError, IndexError, msgspec.MsgspecError) as error:
            raise _Hole(f"the journal's entry {entry[0]!r} can't be read: {reason(error)}") from error


async def quarantine(
    postgres: Postgres, partition: Partition, epoch: int, bad: SequencedAppend, error: str
) -> bool:
    """Stores an append that Postgres rejects as a whole, and ends the epoch, since later appends depend on
    it. False if the partition has moved on meanwhile, and nothing was done. Raises PostgresTrouble."""
    entry = b"".join(bad.packed())
    kept = await postgres.fetch("quarantine", partition.number, epoch, bad.first_seq, entry, error)
    partition.distrust()
    if kept:
        told = {"partition": partition.number, "seq": bad.first_seq, "reason": error}
        told["correlation_id"] = str(UUID(bytes=bad.events[0].correlation_id))
        logger.critical("append_quarantined", extra=told)
    return bool(kept)
