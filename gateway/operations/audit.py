"""`sluice audit`: the invariants of docs/guarantees.md, checked on the live system.

Owns: what is looked at in which order. Memory stays constant, and no statement runs for long; gateways go on
appending meanwhile. Source: docs/audit.md.
"""

from __future__ import annotations

from typing import Any, Protocol

from gateway.events import Stream
from gateway.log.redis.scripts import RedisTrouble
from gateway.operations import postgres_check, redis_check
from gateway.operations.kept_states import check_kept_states
from gateway.operations.place import OperationFailed, Place
from gateway.operations.redis_check import Looked
from gateway.operations.report import Report
from gateway.operations.rows import Anchors, RowWalk
from gateway.operations.standing import alarms
from gateway.operations.unique_values import check_unique_values
from gateway.postgres.errors import PostgresTrouble


class Watcher(Protocol):
    """Who is told how far the audit has come."""

    def begin(self, rows: int) -> None:
        """About so many rows are to be looked at."""

    def advance(self, rows: int) -> None: ...

    def now(self, doing: str) -> None: ...


async def audit(
    place: Place, watcher: Watcher, *, partition: int | None = None, deep: bool = False
) -> Report:
    """All partitions, or one. `deep` looks at every journal entry and every stream that Redis holds, and
    needs a Redis user who may SCAN. Raises OperationFailed when Postgres can't be read."""
    report = Report()
    if partition is not None and not 0 <= partition < place.instance.partitions:
        raise OperationFailed(
            f"there is no partition {partition}: the last one is {place.instance.partitions - 1}"
        )
    numbers = range(place.instance.partitions) if partition is None else (partition,)
    try:
        rows = await place.postgres.fetch("partitions")
        watcher.begin(2 * sum(row["seq"] for row in rows if row["p"] in numbers))
        for p in numbers:
            watcher.now(f"partition {p}")
            await _check_partition(place, p, report, watcher, deep=deep)
        watcher.now("streams")
        await postgres_check.check_streams(place, partition, report, watcher.advance)
        watcher.now("identities")
        await postgres_check.check_identities(place, partition, report)
        if partition is None:
            await postgres_check.check_partitions(place, report)
            watcher.now("unique values")
            await check_unique_values(place, report)
            watcher.now("kept states")
            await check_kept_states(place, report, deep=deep)
    except PostgresTrouble as trouble:
        raise OperationFailed(f"Postgres can't be read: {trouble}") from trouble
    return report


async def _check_partition(place: Place, p: int, report: Report, watcher: Watcher, *, deep: bool) -> None:
    looked = None
    try:
        looked = await redis_check.look(place, p, report, deep=deep)
    except RedisTrouble as trouble:
        report.unchecked.append(f"partition {p}: Redis was not checked: {trouble}")
    standing = await place.fetch("standing", p)
    if not standing:
        report.violated("order", p, "partition_log", "the partition has no row")
        return
    row = standing[0]
    anchors = await _seen(place, p, row, looked, report)
    walk = RowWalk(p, place.instance.partitions, report, anchors)
    await postgres_check.check_rows(place, p, walk, row, watcher.advance)
    await postgres_check.check_storage(place, p, report)
    if looked is not None and looked.meta.epoch == row["epoch"]:
        await _check_streams(place, p, row["epoch"], walk.streams, report, deep=deep)


async def _seen(place: Place, p: int, row: Any, looked: Looked | None, report: Report) -> Anchors:
    """What was seen committed: reports what Postgres has not come to, returns what its rows must give."""
    seen = [each.witness for each in await alarms(place, p)]
    if looked is not None and looked.meta.epoch >= 0:
        report.count("epochs")
        if looked.meta.epoch > row["epoch"]:
            what = f"Redis is in epoch {looked.meta.epoch}, Postgres in {row['epoch']}"
            report.violated("epochs", p, "partition_log", what)
        seen += looked.committed
        if looked.meta.epoch == row["epoch"]:
            seen += [each for each in looked.sequenced if each.seq <= row["seq"]]
    if row["alarm"] is not None:
        report.violated("seen", p, "partition_log", f"halted: {row['alarm']}")
    anchors: Anchors = {}
    for each in seen:
        if each.epoch < row["rewound"]:
            continue  # a person has given it up
        report.count("seen")
        if each.seq <= row["seq"]:
            anchors.setdefault(each.seq, []).append((each.chain, each.who))
        else:
            what = f"{each.who} saw it committed in epoch {each.epoch}, Postgres is at seq {row['seq']}"
            report.violated("seen", p, f"seq {each.seq}", what)
    return anchors


async def _check_streams(
    place: Place, p: int, epoch: int, sample: list[Stream], report: Report, *, deep: bool
) -> None:
    try:
        await redis_check.check_streams(place, p, sample, report)
        if deep:
            async for stream in redis_check.every_stream(place, p, epoch):
                await redis_check.check_streams(place, p, [stream], report)
    except RedisTrouble as trouble:
        report.unchecked.append(f"partition {p}: streams in Redis were not all checked: {trouble}")
