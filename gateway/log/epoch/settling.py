"""Makes sure of what was found in Postgres: it may stand on this server only, because the wait of its commit
for a standby was cancelled or its backend ended, and then a fail-over loses it.

Owns: what counts as settled. A commit that was answered is, with all that was committed before it; what was
only read is settled by one more write that is answered. Nothing rests on what is not settled: no answer, no
read, no watermark, no memory of a gateway.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

from gateway.log.commit_connection import CommitConnection
from gateway.log.epoch.commit_evidence import contains
from gateway.log.epoch.partition import Partition
from gateway.log.postgres import PartitionRow, Postgres
from gateway.postgres.errors import PostgresTrouble

PLACES_MAX: Final = 1_000
"""Places that one write settles; the others wait for the next."""


class Place(NamedTuple):
    """Where something was found: partition and seq, 0 for nothing but the partition's row."""

    p: int
    seq: int


class Standing(NamedTuple):
    """A partition's row, and the id of the event at the place that was asked for, on a server that has made
    both durable."""

    row: PartitionRow
    event_id: bytes | None


class _Asked(NamedTuple):
    place: Place
    told: asyncio.Future[Standing]


class _Seen(NamedTuple):
    """How far a partition was settled, by a connection's session."""

    session: int
    epoch: int
    seq: int


class Settling:
    """One for each process. All who ask while a write is under way share the next one."""

    def __init__(
        self,
        connection: CommitConnection,
        postgres: Postgres,
        partitions: Mapping[int, Partition],
        deadline_s: float,
    ) -> None:
        """`partitions`: which are to learn how far they are settled; none in a process without a log.
        `deadline_s`: how long a caller waits for the standby."""
        self._connection = connection
        self._postgres = postgres
        self._partitions = partitions
        self._deadline_s = deadline_s
        self._asked: list[_Asked] = []
        self._seen: dict[int, _Seen] = {}
        self._task: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()

    async def found(self, partition: Partition, seq: int, event_id: bytes | None = None) -> None:
        """Returns once it is settled that this event, or any, stands there; at once where the gateway knows.
        Raises PostgresTrouble: Postgres, or its standby, does not answer, or something else stands there."""
        if seq <= partition.committed_seq:
            return
        there = (await self.settle(partition, seq)).event_id
        if there is None or event_id not in (None, there):
            raise PostgresTrouble(f"partition {partition.number}: the event read at seq {seq} is missing")

    async def stands(self, p: int, epoch: int, seq: int, event_id: bytes) -> None:
        """The same of an event that was read while the partition was in this epoch."""
        partition, seen = self._partitions.get(p), self._seen.get(p)
        if partition is not None and partition.epoch == epoch and seq <= partition.committed_seq:
            return
        if seen is not None and seen[:2] == (self._connection.session, epoch) and seq <= seen.seq:
            return
        if (await self._answered(self._ask(p, seq))).event_id != event_id:
            raise PostgresTrouble(f"partition {p}: the event read at seq {seq} is missing")

    async def settle(self, partition: Partition, seq: int = 0) -> Standing:
        """Afterwards all that had been committed when this was called is settled, and the partition knows how
        far that is, if it is in the same epoch. Raises PostgresTrouble."""
        return await self._answered(self.soon(partition, seq))

    async def _answered(self, told: asyncio.Future[Standing]) -> Standing:
        try:
            async with asyncio.timeout(self._deadline_s):
                return await asyncio.shield(told)
        except TimeoutError:
            why = f"no write becomes durable within {self._deadline_s:g} s: is a standby unavailable?"
            raise PostgresTrouble(why) from None

    def soon(self, partition: Partition, seq: int = 0) -> asyncio.Future[Standing]:
        """The same, without waiting for it."""
        return self._ask(partition.number, seq)

    def _ask(self, p: int, seq: int) -> asyncio.Future[Standing]:
        told: asyncio.Future[Standing] = self._loop.create_future()
        told.add_done_callback(_retrieved)
        self._asked.append(_Asked(Place(p, seq), told))
        if self._task is None:
            self._task = self._loop.create_task(self._run())
        return told

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        await self._connection.close()

    # -- one write after another, as long as there are requests

    async def _run(self) -> None:
        asked: list[_Asked] = []
        try:
            while self._asked:
                asked, self._asked = self._asked[:PLACES_MAX], self._asked[PLACES_MAX:]
                try:
                    standings = await self._settle([each.place for each in asked])
                except Exception as error:  # theirs to handle, whatever it is
                    for each in asked:
                        _fail(each.told, error)
                else:
                    for each, standing in zip(asked, standings, strict=True):
                        if not each.told.done():
                            each.told.set_result(standing)
        finally:
            self._task = None
            for each in (*asked, *self._asked):
                _fail(each.told, PostgresTrouble("this gateway is stopping"))

    async def _settle(self, places: Sequence[Place]) -> list[Standing]:
        partitions = {p: self._partitions[p] for p, _ in places if p in self._partitions}
        before = {p: (each.epoch, each.committed_seq) for p, each in partitions.items()}
        rows = await self._written(places)
        if len(rows) != len(places):
            raise PostgresTrouble("settle: a partition has no row")
        standings = [_standing(row) for row in rows]
        for place, standing in zip(places, standings, strict=True):
            self._seen[place.p] = _Seen(self._connection.session, standing.row.epoch, standing.row.seq)
            partition = partitions.pop(place.p, None)
            if partition is not None:
                await self._learn(partition, standing.row, *before[place.p])
        return standings

    async def _written(self, places: Sequence[Place]) -> list[Any]:
        """One connection waits as long as the standby does: to send it again on others would take all that
        Postgres has."""
        sent = self._loop.create_task(
            self._connection.settle([p for p, _ in places], [seq for _, seq in places])
        )
        try:
            while not (await asyncio.wait((sent,), timeout=self._deadline_s))[0]:
                if not await self._waits_for_a_standby():
                    self._connection.drop()
        except BaseException:
            sent.cancel()
            raise
        return sent.result()

    async def _waits_for_a_standby(self) -> bool:
        pid = self._connection.pid
        try:
            return pid is not None and bool((await self._postgres.fetch("waits", pid))[0][0])
        except PostgresTrouble:
            return False

    async def _learn(self, partition: Partition, row: PartitionRow, epoch: int, seq: int) -> None:
        """`epoch` and `seq`: what the gateway knew before. Another session may be with another Postgres, so
        there what it has committed since is followed from what is known."""
        if row.epoch != epoch or partition.epoch != epoch:
            return  # for a verification to find out
        session = self._connection.session
        memory = partition.memory
        if row.seq < seq or (row.seq == memory.seq and row.chain != memory.chain):
            partition.distrust()
        elif row.seq > memory.seq:
            if partition.settled_in != session and not await contains(
                self._postgres, partition.number, row, memory
            ):
                partition.distrust()
                return
            partition.settled_in = session
            partition.known(row.seq, row.chain)


@asynccontextmanager
async def settling_without_log(url: str, postgres: Postgres, deadline_s: float) -> AsyncIterator[Settling]:
    """For a process that reads what others commit. Connects at first use."""
    settling = Settling(CommitConnection(url, deadline_s), postgres, {}, deadline_s)
    try:
        yield settling
    finally:
        await settling.close()


def _standing(row: Any) -> Standing:
    event_id = row["id"]
    return Standing(
        PartitionRow(
            row["epoch"], row["seq"], row["chain"], row["mode"], row["owner"], row["rewound"], row["alarm"]
        ),
        None if event_id is None else event_id.bytes,
    )


def _fail(told: asyncio.Future[Standing], error: Exception) -> None:
    if not told.done():
        told.set_exception(error)


def _retrieved(told: asyncio.Future[Standing]) -> None:
    """It may have had no waiter."""
    if not told.cancelled():
        told.exception()
