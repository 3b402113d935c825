"""Commits from the journal what another gateway, or an earlier life of this one, has sequenced."""

from __future__ import annotations

import logging
from uuid import UUID

from gateway.events import pack_event
from gateway.log.committing import ChainBroken, CommitConnection, RefusedByPostgres
from gateway.log.entries import Placed, placed_from_journal
from gateway.log.partition import Partition
from gateway.log.postgres import PartitionRow, Postgres, PostgresTrouble
from gateway.log.scripts import RedisTrouble, Scripts

logger = logging.getLogger("sluice.log")

_ENTRIES_A_CALL = 100


class CannotHelp(Exception):
    """The journal can't be read or committed now; the partition needs to be verified first."""


class Journal:
    """Helping: whoever sees sequenced events that nobody commits, commits them."""

    def __init__(self, scripts: Scripts, postgres: Postgres, connection: CommitConnection) -> None:
        self._scripts = scripts
        self._postgres = postgres
        self._connection = connection

    async def commit(self, partition: Partition, to_seq: int | None = None) -> int:
        """Commits what the journal holds beyond Postgres, at least up to `to_seq` or all of it; the number
        of appends committed here (another gateway may have been faster with others).

        Raises CannotHelp.
        """
        committed = 0
        entries = _ENTRIES_A_CALL
        while True:
            try:
                row = await self._postgres.partition(partition.number)
                if row.epoch != partition.epoch:
                    raise CannotHelp(f"partition {partition.number} is in epoch {row.epoch} now")
                partition.known(row.seq, row.chain)
                if to_seq is not None and row.seq >= to_seq:
                    return committed
                run, chain = await self._read(partition, row, entries)
                if not run:
                    return committed
                after = (run[-1].last_seq, chain)
                if await self._connection.swap(partition.number, row.epoch, (row.seq, row.chain), after, run):
                    committed += len(run)
                    partition.known(*after)
            except RefusedByPostgres as refused:
                # One at a time up to the append that Postgres refuses, so that it holds up nobody.
                if len(run) == 1:
                    await quarantine(self._postgres, partition, row.epoch, run[0], str(refused))
                    raise CannotHelp(f"partition {partition.number}: {refused}") from refused
                entries = 1
            except (PostgresTrouble, RedisTrouble, ChainBroken) as trouble:
                partition.open = False
                raise CannotHelp(str(trouble)) from trouble

    async def _read(self, partition: Partition, row: PartitionRow, entries: int) -> tuple[list[Placed], str]:
        keys = partition.keys
        args = (partition.epoch, row.seq, entries)
        reply = await self._scripts.run("journal", (keys.meta, keys.journal), args)
        if reply[0] == b"FENCED":
            raise CannotHelp(f"partition {partition.number}: Redis is fenced ({reply[1].decode()})")
        run: list[Placed] = []
        chain, seq = row.chain, row.seq
        for entry in reply[4]:
            placed, chain = placed_from_journal(entry)
            if placed.first_seq != seq + 1:
                raise CannotHelp(f"partition {partition.number}: the journal has a hole after seq {seq}")
            seq = placed.last_seq
            run.append(placed)
        return run, chain


async def quarantine(postgres: Postgres, partition: Partition, epoch: int, bad: Placed, error: str) -> None:
    """Keeps whole an append that Postgres refuses, and ends the epoch: all that was sequenced after it rests
    on it. Raises PostgresTrouble."""
    told = {"partition": partition.number, "seq": bad.first_seq, "why": error}
    told["correlation_id"] = str(UUID(bytes=bad.events[0].correlation_id))
    logger.critical("append_quarantined", extra=told)
    entry = b"".join(pack_event(event) for event in bad.events)
    await postgres.fetch("quarantine", partition.number, epoch, bad.first_seq, entry, error)
    await postgres.seal(partition.number, epoch, "")
    partition.open = False
