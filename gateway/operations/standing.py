"""The state of a partition in Postgres and in Redis, and the events that Postgres lacks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from gateway.log.epoch.commit_evidence import CommitEvidence, contains
from gateway.log.epoch.verify import Inspection
from gateway.log.postgres import PartitionRow
from gateway.operations.place import OperationFailed, Place


@dataclass(frozen=True, slots=True)
class Standing:
    """`missing`: what was seen committed and Postgres does not have. `seen`: Redis' word. `alarm`: the
    last of the trail that was taken into account."""

    p: int
    row: PartitionRow
    seen: Inspection
    missing: tuple[CommitEvidence, ...]
    alarm: int

    @property
    def in_need(self) -> bool:
        """Whether a person has to do something."""
        return bool(self.missing) or self.row.alarm is not None

    @property
    def in_redis(self) -> bool:
        """Whether Redis' history of this epoch contains what Postgres holds."""
        return self.seen.epoch == self.row.epoch and self.seen.chain_at_seq == self.row.chain


async def stand(place: Place, p: int) -> Standing:
    """Raises PostgresTrouble, RedisTrouble, and OperationFailed (a replica, a row that is gone)."""
    raised = await alarms(place, p)
    if not await place.postgres.fetch("partition", p):
        raise OperationFailed(f"partition {p} has no row in partition_log: was it edited?")
    row = await place.postgres.partition(p)
    keys = place.keys(p, row.epoch)
    args = (row.epoch, row.seq)
    seen = Inspection.from_reply(
        await place.scripts.run("inspect", (keys.meta, keys.journal, keys.heads), args)
    )
    if not seen.master:
        raise OperationFailed("this Redis is a replica: SLUICE_REDIS_URL must lead to the primary")
    if seen.witness.ahead_of(row):
        row = await place.postgres.partition(p)  # others may have gone on between the two looks
    witnesses = (seen.witness, *(each.witness for each in raised))
    missing = [
        each for each in witnesses if each.ahead_of(row) or not await contains(place.postgres, p, row, each)
    ]
    return Standing(p, row, seen, tuple(missing), max((each.id for each in raised), default=0))


class Alarm(NamedTuple):
    """A row of the trail: what a gateway saw committed and missed."""

    id: int
    witness: CommitEvidence


async def alarms(place: Place, p: int) -> list[Alarm]:
    """Those since it was last put in order. Raises PostgresTrouble."""
    return [
        Alarm(row["id"], CommitEvidence(row["who"], row["epoch"], row["seq"], row["chain"]))
        for row in await place.fetch("alarms", p)
    ]
