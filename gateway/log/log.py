"""The log as the rest of the gateway sees it: append, read, and whether an append could commit now.

Owns: the tasks of every partition and their order of start and stop.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import socket
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import asyncpg
from redis.asyncio import Redis

from gateway.appends import Append, Appended, Retry
from gateway.events import Page, Recorded, Stream
from gateway.log.append.committer import Committer
from gateway.log.append.identities import (
    ClaimedByAnother,
    Original,
    look_up,
    mismatch,
    receipt,
    receipt_by,
)
from gateway.log.append.identity_filter import Budget
from gateway.log.append.journal import Journal
from gateway.log.append.known_identities import KnownIdentities
from gateway.log.append.pacing import GatewayLoad
from gateway.log.append.pending import Backlog, Link, Waiter
from gateway.log.append.sequencer import Sequencer
from gateway.log.append.sweeper import Sweeper
from gateway.log.commit_connection import CommitConnection
from gateway.log.epoch.notices import EpochChanges, Outage
from gateway.log.epoch.partition import Partition
from gateway.log.epoch.redis_health import RedisHealth
from gateway.log.epoch.settling import Settling
from gateway.log.epoch.verify import Verifier
from gateway.log.limits import Limits
from gateway.log.postgres import DIRECT, REDIS, Instance, Postgres, Reads
from gateway.log.read.cold import COLD_READS
from gateway.log.read.evictor import Evictor
from gateway.log.read.followers import Followers
from gateway.log.read.ranges import Range
from gateway.log.read.reader import Reader
from gateway.log.redis.announcements import Announcements
from gateway.log.redis.cluster import Cluster
from gateway.log.redis.scripts import RedisTrouble, Scripts
from gateway.log.storage import Storage
from gateway.log.watch import Watch
from gateway.outcomes import Mismatch, Outcome
from gateway.partitions import partition_of
from gateway.postgres.errors import PostgresTrouble
from gateway.postgres.shares import Shares
from gateway.tasks import ended, to_tick
from gateway.telemetry.metrics import Reading
from gateway.telemetry.steps import Telemetry, unwatched

logger = logging.getLogger("sluice.log")

EXPIRE_EVERY_S = 0.1
TELL_EVERY_S = 0.25


@dataclass(frozen=True, slots=True)
class PartitionWorkers:
    """All that serves one partition."""

    partition: Partition
    sequencer: Sequencer
    committer: Committer
    reader: Reader
    connection: CommitConnection

    def deadlines(self) -> Iterator[float]:
        """Of the oldest appends that are not settled. Of a halted partition none will be before an operator
        has acted."""
        outstanding = self.sequencer.outstanding
        outstanding.let_go()
        if outstanding:
            yield outstanding[0].deadline
        if self.partition.halted is None:
            yield from self.committer.deadlines()


class _LaneOf(dict[bytes, PartitionWorkers]):
    """Of each tenant; found out once."""

    def __init__(self, lanes: Sequence[PartitionWorkers]) -> None:
        super().__init__()
        self._lanes = lanes

    def __missing__(self, tenant: bytes) -> PartitionWorkers:
        lane = self[tenant] = self._lanes[partition_of(tenant, len(self._lanes))]
        return lane


class Log:
    """Every public method may be called from any request; none of them blocks another."""

    def __init__(
        self,
        redis: Redis | Cluster,
        pool: asyncpg.Pool,
        postgres_url: str,
        instance: Instance,
        limits: Limits,
        telemetry: Telemetry | None = None,
    ) -> None:
        self.instance = instance
        self._telemetry = telemetry or unwatched()
        self._metrics = self._telemetry.metrics
        self._loop = asyncio.get_running_loop()
        self._changes = EpochChanges(self._metrics, instance.partitions)
        self._redis_outage, self._postgres_outage = Outage("redis"), Outage("postgres")
        self._limits = limits
        self._scripts = Scripts(redis)
        self._postgres = Postgres(pool, limits.read_deadline_s, keeps=True)
        # Two thirds of the pool: however slow what clients ask for is, there is a connection for what appends
        # wait for, and for the look that tells whether Redis may be believed.
        self.shares = Shares(pool, spare=pool.get_max_size() // 3 + 1)
        self._reads = Reads(self.shares, limits.read_deadline_s)
        self._owner = f"{socket.gethostname()}:{os.getpid()}:{self._scripts.caller}"
        self.announcements = Announcements(redis, instance.id)
        self.followers = Followers(self.announcements.committed)
        self._partitions = [self._partition(number) for number in range(instance.partitions)]
        self._settling = Settling(
            CommitConnection(postgres_url, limits.commit_timeout_s, postgres=self._postgres),
            self._postgres,
            dict(enumerate(self._partitions)),
            limits.read_deadline_s,
        )
        self._verifier = Verifier(
            self._scripts,
            self._postgres,
            self._settling,
            self._owner,
            limits.identity_window,
            self._changes,
        )
        self.storage = Storage(self._postgres, limits.tenant_bytes_max)
        self._help_connection = CommitConnection(
            postgres_url, limits.commit_timeout_s, postgres=self._postgres
        )
        self._journal = Journal(self._scripts, self._postgres, self._settling, self._help_connection)
        self._crowd = GatewayLoad()
        self._backlog = Backlog()
        self._filters = Budget(limits.identity_filter_bytes_max, instance.partitions)
        self._lanes = [self._lane(partition, postgres_url) for partition in self._partitions]
        partitions = [(lane.partition, lane.sequencer) for lane in self._lanes]
        self._sweeper = Sweeper(
            self._scripts,
            self._journal,
            partitions,
            self._redis_outage,
            self._metrics,
            limits.direct_after_s,
        )
        self.watch = Watch(
            self._postgres, self._settling, partitions, self._postgres_outage, self._changes, self._owner
        )
        self._evictor = Evictor(
            self._scripts,
            [lane.partition for lane in self._lanes],
            limits,
            self._metrics,
            self.watch.in_touch,
        )
        self._lane_of = _LaneOf(self._lanes)
        self._tasks: list[asyncio.Task[None]] = []

    def _partition(self, number: int) -> Partition:
        limits = self._limits
        reach = RedisHealth(limits.direct_after_s, limits.redis_recovery_s, self._loop.time())
        return Partition(self.instance.id, number, reach)

    def _lane(self, partition: Partition, postgres_url: str) -> PartitionWorkers:
        limits = self._limits
        connection = CommitConnection(
            postgres_url, limits.commit_timeout_s, partition.reconnected, self._postgres
        )
        sequencer: Sequencer
        committer = Committer(
            partition,
            self._postgres,
            self._settling,
            connection,
            self._journal,
            self._limits,
            requeue=lambda pendings: sequencer.requeue(pendings),
            wake=lambda: sequencer.wake(),
            followers=self.followers,
            telemetry=self._telemetry,
        )
        known = KnownIdentities(
            partition, self._postgres, self.followers.tapped, self._filters, limits.identity_window
        )
        sequencer = Sequencer(
            partition, self._scripts, self._postgres, self._reads, self._settling, self._verifier,
            committer, limits,
            self._crowd, self._backlog, known, self._telemetry,
        )  # fmt: skip
        reader = Reader(
            partition, self._scripts, self._reads, self._settling, self._metrics, limits.stream_tail
        )
        return PartitionWorkers(partition, sequencer, committer, reader, connection)

    # -- appends and reads

    def append(self, append: Append) -> asyncio.Future[Outcome]:
        """The outcome, at the append's deadline at the latest."""
        return self._lane_of[append.stream.tenant].sequencer.submit(append)

    def append_told(self, append: Append, waiter: Waiter) -> None:
        """The same, of which this waiter is told."""
        self._lane_of[append.stream.tenant].sequencer.submit_told(append, waiter)

    def append_each(self, tenant: bytes, asked: Iterable[tuple[Append, Waiter]]) -> None:
        """Many appends of one tenant, each with the waiter for its outcome. None of them waits for
        another."""
        self._lane_of[tenant].sequencer.submit_each(asked)

    def append_linked(self, append: Append, waiter: Waiter, link: Link, deadline: float) -> None:
        """One that was decided on the state that another append leaves (Link); what else it may be told,
        `append` says. `deadline` is by the loop's clock."""
        self._lane_of[append.stream.tenant].sequencer.submit_linked(append, waiter, link, deadline)

    def under_way_since(self) -> float:
        """When the oldest append was taken on that has no outcome, or may still be committed whatever it was
        told; by the loop's clock. Infinite where there is none."""
        deadlines = (each for lane in self._lanes for each in lane.deadlines())
        return min(deadlines, default=math.inf) - self._limits.append_deadline_s

    async def settled(self, retry: Retry) -> Appended | Mismatch | None:
        """The receipt of an append that is committed already, and settled, whatever the spec says of it by
        now; None when no append holds its identities. Raises PostgresTrouble."""
        lane = self._lane_of[retry.tenant]
        claims = await look_up(self._postgres, lane.partition.number, (retry,))
        outcome: Appended | Mismatch
        match claims.judge_retry(retry):
            case None:
                return None
            case ClaimedByAnother() as other:
                await self._settling.found(lane.partition, other.seq)
                outcome = await mismatch(self._postgres, claims, retry)
            case Original() as original:
                outcome = await receipt(self._postgres, original, replayed=True)
                await self._settling.found(lane.partition, original.last_seq, outcome.event_ids[-1])
        self._metrics.told(outcome)
        return outcome

    async def receipt(self, tenant: bytes, chosen: bytes, event_id: bytes | None) -> Appended | None:
        """The receipt of the committed append that has the identity `chosen`, or an event with this id, once
        it is settled; None where there is none. Raises PostgresTrouble."""
        found = await receipt_by(self._reads.of(tenant), tenant, chosen, event_id)
        if found is not None:
            assert found.last is not None
            partition = self._lane_of[tenant].partition
            await self._settling.found(partition, found.last.seq, found.event_ids[-1])
        return found

    async def stands(self, p: int, epoch: int, seq: int, event_id: bytes) -> None:
        """Returns once it is settled that this event, which was read in this epoch, stands there. Raises
        PostgresTrouble."""
        await self._settling.stands(p, epoch, seq, event_id)

    async def page(self, wanted: Range, *, strong: bool = False) -> Page:
        """Committed events and the stream's committed length; `strong`: as Postgres has them, whatever Redis
        says. Raises PostgresTrouble."""
        trusted = not strong and self.watch.in_touch()
        return await self._lane_of[wanted.stream.tenant].reader.page(wanted, trusted=trusted)

    def in_redis(self, tenant: bytes) -> bool:
        """Whether `look` may tell anything."""
        return self.watch.in_touch() and self._lane_of[tenant].partition.in_redis

    def look(self, wanted: Range, told: Callable[[Page | None], None]) -> None:
        """Without a task: `told` is called soon, with the page where Redis tells all of it, else None."""
        self._lane_of[wanted.stream.tenant].reader.look(wanted, told)

    async def version_at(self, stream: Stream, at_ms: int) -> int:
        """The last version recorded at or before a time; 0: none. Raises PostgresTrouble."""
        return await self._lane_of[stream.tenant].reader.version_at(stream, at_ms)

    async def event(self, tenant: bytes, event_id: bytes) -> Recorded | None:
        """An event of the tenant by its id. Raises PostgresTrouble."""
        return await self._lane_of[tenant].reader.event(tenant, event_id)

    async def reached(self, stream: Stream, length: int, timeout_s: float) -> bool:
        """Waits until the stream is that long; False when it is not by then. Raises PostgresTrouble."""
        until = self._loop.time() + timeout_s
        with self.followers.follow(stream) as follower:
            while await self.length(stream) < length:
                left = until - self._loop.time()
                if left <= 0:
                    return False
                await follower.wait(min(left, self.followers.look_every_s(stream.tenant)))
        return True

    async def length(self, stream: Stream) -> int:
        """Raises PostgresTrouble."""
        return (await self.page(Range(stream, limit=0))).length

    async def forget(self, tenant: bytes, streams: Sequence[Stream]) -> None:
        """Redis holds these streams of a tenant no more, as far as all of them is committed. Raises
        RedisTrouble."""
        await self._evictor.forget(self._lane_of[tenant].partition, streams)

    def partition(self, tenant: bytes) -> int:
        """The partition of the tenant."""
        return self._lane_of[tenant].partition.number

    def committed_seq(self, tenant: bytes) -> int:
        """How far the tenant's partition is known to be committed; 0 before that is known."""
        return self._lane_of[tenant].partition.committed_seq

    def epoch(self, tenant: bytes) -> int:
        """The epoch of the tenant's partition. What was read in another one may have been given up since."""
        return self._lane_of[tenant].partition.epoch

    def rewinds(self, tenant: bytes) -> int:
        """How often committed events of the tenant's partition were given up, or missed, since this
        gateway began. What was read before may have been among them; else what was committed stays as it
        is."""
        return self._lane_of[tenant].partition.rewinds

    def rewound(self, tenant: bytes) -> int:
        """The epoch in which committed events of the tenant's partition were last given up; 0: never. The
        same at every gateway, within a second."""
        return self._lane_of[tenant].partition.rewound

    # -- life

    async def start(self) -> None:
        """Starts every task; partitions open in the background."""
        for lane in self._lanes:
            sequencer = lane.sequencer
            sequencer.wake()
            reader = lane.reader
            reading = (reader.run, *[reader.cold.run] * COLD_READS)
            for loop in (
                sequencer.run,
                sequencer.look_ups.run,
                sequencer.look_ups.known.run,
                lane.committer.run,
                *reading,
            ):
                self._tasks.append(self._loop.create_task(_until_cancelled(loop)))
        telling, listening = self.announcements.run_telling, self.announcements.run_listening
        looks_after = (self._sweeper.run, self._evictor.run, self.storage.run)
        for loop in (
            *looks_after,
            self.watch.run,
            self.watch.run_marking,
            self._expire,
            self._tell,
            telling,
            listening,
        ):
            self._tasks.append(self._loop.create_task(_until_cancelled(loop)))

    async def stop(self, timeout_s: float) -> None:
        """Call when no more appends come: settles what was accepted, then ends the tasks."""
        draining = asyncio.gather(*(lane.sequencer.outstanding.drained() for lane in self._lanes))
        try:
            await asyncio.wait_for(draining, timeout_s)
        except TimeoutError:
            logger.warning(
                "appends_unsettled",
                extra={"appends": sum(lane.sequencer.outstanding.unsettled for lane in self._lanes)},
            )
        await ended(self._tasks)
        await asyncio.gather(*(lane.connection.close() for lane in self._lanes))
        await self._help_connection.close()
        await self._settling.close()
        await self._postgres.close()
        await self._scripts.close()

    async def ready(self) -> str | None:
        """None if an append could commit now, else the reason why not."""
        halted = [lane.partition for lane in self._lanes if lane.partition.halted]
        if halted:
            return f"partition {halted[0].number}: {halted[0].halted}"
        closed = [lane.partition.number for lane in self._lanes if not lane.partition.open]
        if closed:
            return f"{len(closed)} of {len(self._lanes)} partitions are not open"
        try:
            if not await self._postgres.takes_writes():
                return "Postgres takes no writes"
            for partition in await self._one_at_each_server():
                await self._probe_redis(partition)
        except (PostgresTrouble, RedisTrouble) as trouble:
            return str(trouble)
        return None

    @property
    def mode(self) -> str:
        """'direct' while appends to some partition take no Redis, else 'redis'."""
        return DIRECT if any(lane.partition.direct for lane in self._lanes) else REDIS

    async def _one_at_each_server(self) -> Iterable[Partition]:
        """Of those that take appends over Redis. Raises RedisTrouble."""
        of_server = {}
        for lane in self._lanes:
            if not lane.partition.direct:
                of_server[await self._scripts.server_of(lane.partition.keys.meta)] = lane.partition
        return of_server.values()

    async def _probe_redis(self, partition: Partition) -> None:
        args = (partition.epoch, partition.committed_seq, 1)
        try:
            reply = await self._scripts.run("journal", (partition.keys.meta, partition.keys.journal), args)
        except RedisTrouble:
            partition.reach.refused(self._loop.time())
            raise
        if reply[0] == b"FENCED":
            raise RedisTrouble(f"partition {partition.number} is fenced ({reply[1].decode()})")

    async def _expire(self) -> None:
        while True:
            pause_s = to_tick(EXPIRE_EVERY_S)
            due = self._loop.time() + pause_s
            await asyncio.sleep(pause_s)
            now = self._loop.time()
            self._metrics.loop_lag_s.observe(max(now - due, 0))
            for lane in self._lanes:
                if lane.sequencer.holds_any:
                    lane.sequencer.expire(now)

    async def _tell(self) -> None:
        while True:
            await asyncio.sleep(to_tick(TELL_EVERY_S))
            self._changes.tell(sum(lane.partition.open for lane in self._lanes))

    def readings(self) -> Iterator[Reading]:
        """The present figures of the log, for metrics."""
        states = {"open": 0, "closed": 0, "halted": 0}
        appends = size = 0
        for lane in self._lanes:
            partition = lane.partition
            states["halted" if partition.halted else "open" if partition.open else "closed"] += 1
            waiting, waiting_bytes = lane.sequencer.waiting
            appends, size = appends + waiting, size + waiting_bytes
        yield from (Reading("sluice_partitions", count, (state,)) for state, count in states.items())
        yield Reading("sluice_queue_appends", appends)
        yield Reading("sluice_queue_bytes", size)
        for number, lag in self._sweeper.lags().items():
            yield Reading("sluice_watermark_lag_events", lag, (str(number),))
        yield from self._evictor.readings()
        yield from self.storage.readings()
        for lane in self._lanes:
            yield Reading("sluice_direct_mode", lane.partition.direct, (str(lane.partition.number),))
        yield Reading("sluice_backend_up", not self._redis_outage.lasts, ("redis",))
        yield Reading("sluice_backend_up", not self._postgres_outage.lasts, ("postgres",))


async def _until_cancelled(loop: Callable[[], Awaitable[None]]) -> None:
    """A loop of the log ends only by being cancelled: what it did not foresee is logged, and it continues."""
    while True:
        try:
            await loop()
        except Exception:
            logger.exception("task_restarted")
            await asyncio.sleep(0.1)
