"""The log as the rest of the gateway sees it: append, read, and whether an append could commit now.

Owns: the tasks of every partition and their order of start and stop.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import asyncpg
from redis.asyncio import Redis

from gateway.events import Append, Appended, Mismatch, Outcome, Page, Recorded, Retry, Stream
from gateway.log.committer import Committer
from gateway.log.committing import CommitConnection
from gateway.log.followers import Followers
from gateway.log.identities import ClaimedByAnother, Original, look_up, receipt
from gateway.log.journal import Journal
from gateway.log.limits import Limits
from gateway.log.partition import Partition, partition_of
from gateway.log.postgres import Instance, Postgres, PostgresTrouble
from gateway.log.reader import Range, Reader
from gateway.log.scripts import RedisTrouble, Scripts
from gateway.log.sequencer import Sequencer
from gateway.log.sweeper import Sweeper
from gateway.log.verify import Verifier

logger = logging.getLogger("sluice.log")

WATCH_EVERY_S = 0.5
# Reads trust Redis only while this gateway knows the partitions' epochs: under a split that bounds staleness.
TRUST_S = 1.0
EXPIRE_EVERY_S = 0.1
# Commits of this gateway wake their followers; those of other gateways are seen at the next look.
FOLLOW_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Lane:
    """All that serves one partition."""

    partition: Partition
    sequencer: Sequencer
    committer: Committer
    reader: Reader
    connection: CommitConnection


class Log:
    """Every public method may be called from any request; none of them blocks another."""

    def __init__(
        self,
        redis: Redis,
        pool: asyncpg.Pool,
        postgres_url: str,
        instance: Instance,
        limits: Limits,
    ) -> None:
        self.instance = instance
        self._limits = limits
        self._scripts = Scripts(redis)
        self._postgres = Postgres(pool)
        owner = f"{socket.gethostname()}:{os.getpid()}:{self._scripts.caller}"
        self.followers = Followers()
        self._verifier = Verifier(self._scripts, self._postgres, owner, limits.identity_window)
        self._help_connection = CommitConnection(postgres_url, limits.commit_timeout_s)
        self._journal = Journal(self._scripts, self._postgres, self._help_connection)
        self._lanes = [self._lane(number, postgres_url) for number in range(instance.partitions)]
        self._sweeper = Sweeper(
            redis, self._journal, [(lane.partition, lane.sequencer) for lane in self._lanes]
        )
        self._lane_of: dict[bytes, Lane] = {}
        self._watched_at = 0.0
        self._tasks: list[asyncio.Task[None]] = []
        self._loop = asyncio.get_running_loop()
        self._on_watch: list[Callable[[], Awaitable[None]]] = []

    def _lane(self, number: int, postgres_url: str) -> Lane:
        partition = Partition(self.instance.id, number, self._limits.journal_keep_s)
        connection = CommitConnection(postgres_url, self._limits.commit_timeout_s)
        sequencer: Sequencer
        committer = Committer(
            partition,
            self._postgres,
            connection,
            self._journal,
            self._limits,
            requeue=lambda pendings: sequencer.requeue(pendings),
            wake=lambda: sequencer.wake(),
            followers=self.followers,
        )
        sequencer = Sequencer(
            partition, self._scripts, self._postgres, self._verifier, committer, self._limits
        )
        reader = Reader(partition, self._scripts, self._postgres)
        return Lane(partition, sequencer, committer, reader, connection)

    # -- appends and reads

    def append(self, append: Append) -> asyncio.Future[Outcome]:
        """The outcome, at the latest when the append's deadline has passed."""
        return self._lane_for(append.stream.tenant).sequencer.submit(append)

    async def settled(self, retry: Retry) -> Appended | Mismatch | None:
        """The receipt of an append that is committed already, whatever the spec says of it by now; None when
        nobody holds its identities. Raises PostgresTrouble."""
        lane = self._lane_for(retry.tenant)
        claims = await look_up(self._postgres, lane.partition.number, (retry,))
        match claims.judge_retry(retry):
            case None:
                return None
            case ClaimedByAnother():
                return Mismatch()
            case Original() as original:
                return await receipt(self._postgres, original, replayed=True)

    async def page(self, wanted: Range, *, strong: bool = False) -> Page:
        """Committed events and the stream's committed length; `strong`: as Postgres has them, whatever Redis
        says. Raises PostgresTrouble."""
        trusted = not strong and self._loop.time() - self._watched_at < TRUST_S
        return await self._lane_for(wanted.stream.tenant).reader.page(wanted, trusted=trusted)

    async def version_at(self, stream: Stream, at_ms: int) -> int:
        """The last version recorded at or before a time; 0: none. Raises PostgresTrouble."""
        return await self._lane_for(stream.tenant).reader.version_at(stream, at_ms)

    async def event(self, tenant: bytes, event_id: bytes) -> Recorded | None:
        """An event of the tenant by its id. Raises PostgresTrouble."""
        return await self._lane_for(tenant).reader.event(tenant, event_id)

    async def reached(self, stream: Stream, length: int, timeout_s: float) -> bool:
        """Waits until the stream is that long; False when it is not by then. Raises PostgresTrouble."""
        until = self._loop.time() + timeout_s
        with self.followers.follow(stream) as follower:
            while await self.length(stream) < length:
                left = until - self._loop.time()
                if left <= 0:
                    return False
                await follower.wait(min(left, FOLLOW_POLL_S))
        return True

    async def length(self, stream: Stream) -> int:
        """Raises PostgresTrouble."""
        return (await self.page(Range(stream, limit=0))).length

    def _lane_for(self, tenant: bytes) -> Lane:
        lane = self._lane_of.get(tenant)
        if lane is None:
            lane = self._lane_of[tenant] = self._lanes[partition_of(tenant, self.instance.partitions)]
        return lane

    # -- life

    def on_watch(self, call: Callable[[], Awaitable[None]]) -> None:
        """Called at each look at Postgres, twice a second; may raise PostgresTrouble."""
        self._on_watch.append(call)

    async def start(self) -> None:
        """Starts every task; partitions open in the background."""
        for lane in self._lanes:
            lane.sequencer.wake()
            for loop in (lane.sequencer.run, lane.committer.run, lane.reader.run):
                self._tasks.append(self._loop.create_task(_for_ever(loop)))
        for loop in (self._sweeper.run, self._watch, self._expire):
            self._tasks.append(self._loop.create_task(_for_ever(loop)))

    async def stop(self, timeout_s: float) -> None:
        """Call when no more appends come: settles what was accepted, then ends the tasks."""
        draining = asyncio.gather(*(lane.sequencer.drained() for lane in self._lanes))
        try:
            await asyncio.wait_for(draining, timeout_s)
        except TimeoutError:
            logger.warning("stopped with appends whose outcome is unknown")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(lane.connection.close() for lane in self._lanes))
        await self._help_connection.close()

    async def ready(self) -> str | None:
        """None when an append could commit now, else what is in the way."""
        halted = [lane.partition for lane in self._lanes if lane.partition.halted]
        if halted:
            return f"partition {halted[0].number}: {halted[0].halted}"
        closed = [lane.partition.number for lane in self._lanes if not lane.partition.open]
        if closed:
            return f"{len(closed)} of {len(self._lanes)} partitions are not open"
        try:
            if not await self._postgres.takes_writes():
                return "Postgres takes no writes"
            await self._probe_redis(self._lanes[0].partition)
        except (PostgresTrouble, RedisTrouble) as trouble:
            return str(trouble)
        return None

    async def _probe_redis(self, partition: Partition) -> None:
        args = (partition.epoch, partition.committed_seq, 1)
        reply = await self._scripts.run("journal", (partition.keys.meta, partition.keys.journal), args)
        if reply[0] == b"FENCED":
            raise RedisTrouble(f"partition {partition.number} is fenced ({reply[1].decode()})")

    async def _watch(self) -> None:
        while True:
            begun = self._loop.time()
            try:
                for row in await self._postgres.fetch("partitions"):
                    self._learn(row["p"], row["epoch"], row["seq"], row["chain"])
                for call in self._on_watch:
                    await call()
                self._watched_at = begun
            except PostgresTrouble as trouble:
                logger.warning("Postgres does not answer", extra={"why": str(trouble)})
            await asyncio.sleep(WATCH_EVERY_S)

    def _learn(self, number: int, epoch: int, seq: int, chain: str) -> None:
        lane = self._lanes[number]
        if epoch == lane.partition.epoch:
            lane.partition.known(seq, chain)
            if lane.partition.curious:
                lane.sequencer.wake()
        elif lane.partition.open:
            lane.partition.open = False
            lane.sequencer.wake()

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(EXPIRE_EVERY_S)
            now = self._loop.time()
            for lane in self._lanes:
                lane.sequencer.expire(now)


async def _for_ever(loop: Callable[[], Awaitable[None]]) -> None:
    """A loop of the log ends only by being cancelled: what it did not foresee is logged, and it goes on."""
    while True:
        try:
            await loop()
        except Exception:
            logger.exception("a task of the log failed and is started again")
            await asyncio.sleep(0.1)
