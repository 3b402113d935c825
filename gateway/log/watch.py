"""Twice a second, a look at all partitions in Postgres: what other gateways committed, whether an epoch or
history changed, and which gateways reach no Redis.

Owns: whether this gateway knows the partitions well enough to believe Redis.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

from gateway.log.append.sequencer import Sequencer
from gateway.log.epoch.commit_evidence import MARK_EVERY
from gateway.log.epoch.notices import EpochChanges, Outage
from gateway.log.epoch.partition import Partition
from gateway.log.epoch.settling import Settling
from gateway.log.postgres import Postgres
from gateway.postgres.errors import PostgresTrouble
from gateway.tasks import to_tick

WATCH_EVERY_S = 0.5
LOOK_FOR_MARKS_EVERY_S = 5.0
# Reads trust Redis only while this gateway knows the partitions' epochs: under a split that bounds staleness.
TRUST_S = 1.0
# A gateway that can't reach Redis says so at each look at Postgres; after this it is gone.
REACH_KEPT_S = 2.0


class Watch:
    """One a gateway. `owner` is this gateway's name in Postgres."""

    def __init__(
        self,
        postgres: Postgres,
        settling: Settling,
        lanes: Sequence[tuple[Partition, Sequencer]],
        outage: Outage,
        changes: EpochChanges,
        owner: str,
    ) -> None:
        self._postgres = postgres
        self._settling = settling
        self._lanes = lanes
        self._outage = outage
        self._changes = changes
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self.looked_at = 0.0
        self._told_missing = False
        self._calls: list[Callable[[], Awaitable[None]]] = []

    def on_look(self, call: Callable[[], Awaitable[None]]) -> None:
        """Called at each look at Postgres, twice a second; may raise PostgresTrouble."""
        self._calls.append(call)

    def in_touch(self) -> bool:
        """Whether the last look is recent enough for reads to believe Redis."""
        return self._loop.time() - self.looked_at < TRUST_S

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            begun = self._loop.time()
            before = [(partition.epoch, partition.committed_seq) for partition, _ in self._lanes]
            try:
                rows = await self._postgres.fetch("partitions")
                if self._outage.lasts:
                    # It may be another Postgres than before, or the same with less in it.
                    for partition, sequencer in self._lanes:
                        self._distrust(partition, sequencer)
                for row in rows:
                    self._learn(row, *before[row["p"]])
                for call in self._calls:
                    await call()
                self.looked_at = begun
                await self._compare_reach()
            except PostgresTrouble as trouble:
                self._outage.noticed(str(trouble))
            else:
                self._outage.over()
            await asyncio.sleep(to_tick(WATCH_EVERY_S))

    async def run_marking(self) -> None:
        """Keeps marks of the chains, so that a Redis is compared with a bounded part of the history."""
        marked: dict[int, int] = {}
        while True:
            await asyncio.sleep(LOOK_FOR_MARKS_EVERY_S)
            stand = {partition.number: partition.committed_seq for partition, _ in self._lanes}
            due = [p for p, seq in stand.items() if seq - marked.get(p, 0) >= MARK_EVERY]
            if due:
                with suppress(PostgresTrouble):  # the watch tells of it
                    await self._postgres.fetch("mark", due, MARK_EVERY)
                    marked.update((p, stand[p]) for p in due)

    async def _compare_reach(self) -> None:
        """Tells the other gateways which partitions' Redis this one can't reach, and hears what they can't:
        while any gateway can't, none goes back to it, or they would drive each other out without end."""
        missing = [partition.number for partition, _ in self._lanes if partition.reach.failing]
        if not (missing or self._told_missing or any(partition.direct for partition, _ in self._lanes)):
            return
        told = await self._postgres.fetch("reach", self._owner, missing, REACH_KEPT_S)
        self._told_missing = bool(missing)
        for partition, _ in self._lanes:
            number = partition.number
            partition.reach.heard(tuple(row["gateway"] for row in told if number in row["partitions"]))
        self._changes.kept_by([] if missing else sorted(row["gateway"] for row in told))

    def _learn(self, row: Any, known_epoch: int, known_seq: int) -> None:
        """What was known before the row was read: its epoch, and that `known_seq` was committed."""
        partition, sequencer = self._lanes[row["p"]]
        if not partition.epoch:
            partition.rewound = row["rewound"]  # reads do not wait until it is open
        if not partition.open or partition.epoch != known_epoch:
            return  # being verified, for which its memory is needed as is, or verified since the look began
        seq, known = row["seq"], partition.committed_seq
        another = seq == known and row["chain"] != partition.committed_chain
        if row["epoch"] != partition.epoch or seq < known_seq or another or row["alarm"] is not None:
            self._distrust(partition, sequencer)
            return
        if seq > known:
            self._settling.soon(partition).add_done_callback(lambda _: self._heed(partition, sequencer))
        elif partition.curious:
            sequencer.wake()

    def _heed(self, partition: Partition, sequencer: Sequencer) -> None:
        """How far its partition is committed may be known by now, or contradict what was known."""
        if partition.curious or not partition.open:
            sequencer.wake()

    def _distrust(self, partition: Partition, sequencer: Sequencer) -> None:
        partition.distrust()
        sequencer.wake()
