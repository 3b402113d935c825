"""Commits in Postgres what the sequencer proposed; then resolves the waiting callers.

Owns: the order of commits of one partition in this gateway. Source: the append protocol, step 2.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from gateway.log.append.journal import CannotHelp, Journal, quarantine
from gateway.log.append.pending import Pending, SequencedBatch
from gateway.log.commit_connection import ChainBroken, CommitConnection, RefusedByPostgres, made_ready
from gateway.log.entries import chain_over
from gateway.log.epoch.partition import Partition
from gateway.log.epoch.settling import Settling
from gateway.log.limits import Limits
from gateway.log.postgres import DIRECT, PartitionRow, Postgres
from gateway.log.read.followers import Followers
from gateway.outcomes import Quarantined
from gateway.postgres.errors import PostgresTrouble
from gateway.telemetry.steps import Telemetry

logger = logging.getLogger("sluice.log")

_RETRY_FIRST_S = 0.01
_RETRY_MOST_S = 0.5


class LineageLost(Exception):
    """Sequenced appends can't be committed any more: the epoch was sealed, or another history was
    committed."""


class Overtaken(LineageLost):
    """In direct mode another gateway committed first: the batch is decided again, on that commit."""


class Committer:
    """One for each partition of this gateway."""

    def __init__(
        self,
        partition: Partition,
        postgres: Postgres,
        settling: Settling,
        connection: CommitConnection,
        journal: Journal,
        limits: Limits,
        requeue: Callable[[Iterable[Pending]], None],
        wake: Callable[[], None],
        followers: Followers,
        telemetry: Telemetry,
    ) -> None:
        self._partition = partition
        self._postgres = postgres
        self._settling = settling
        self._connection = connection
        self._journal = journal
        self._limits = limits
        self._requeue = requeue
        self._wake = wake
        self._followers = followers
        self._telemetry = telemetry
        self._loop = asyncio.get_running_loop()
        self._queue: deque[SequencedBatch] = deque()
        self._run: SequencedBatch | None = None  # what commits now
        self._work = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._settled = asyncio.Event()
        self._settled.set()

    # -- what the sequencer calls

    @property
    def appends(self) -> int:
        """The number of appends that are sequenced and not committed yet."""
        running = 0 if self._run is None else len(self._run.placed)
        return running + sum(len(each.placed) for each in self._queue)

    @property
    def commits_next(self) -> bool:
        """Whether the next events of the partition are being committed by this gateway, without waiting for
        another."""
        return self._run is not None and self._run.before[0] <= self._partition.committed_seq

    def deadlines(self) -> Iterator[float]:
        """Of the oldest append of each call that is not committed."""
        for each in (self._run, *self._queue):
            if each is not None and each.pendings:
                yield each.pendings[0].deadline

    def put(self, sequenced: SequencedBatch) -> None:
        if self._run is not None:
            self._make_ready(sequenced)
        self._queue.append(sequenced)
        self._room.clear()
        self._settled.clear()
        self._work.set()

    def _make_ready(self, sequenced: SequencedBatch) -> None:
        """While another commits: Postgres would wait for it afterwards."""
        try:
            sequenced.ready = made_ready(sequenced.before, sequenced.after, sequenced.placed)
        except ChainBroken:
            pass  # found once more by its own commit, which ends the epoch
        except Exception:  # a bug: its own commit prepares the rows instead
            logger.exception("commit_not_prepared", extra={"partition": self._partition.number})

    async def room(self) -> None:
        """Returns when the next call may be sequenced: at most one call waits while another one commits. A
        longer pipeline only adds latency, as measured."""
        await self._room.wait()

    async def settled(self) -> None:
        """Returns when no commit is under way, or those under way need a verification of the partition
        first."""
        await self._settled.wait()

    # -- the loop

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            if not self._queue:
                self._settled.set()
                self._work.clear()
                await self._work.wait()
            run = self._run = self._take()
            try:
                await self._commit(run)
            except Overtaken:
                self._take_back(run.pendings)
            except LineageLost as loss:
                await self._give_up(run, str(loss))
            finally:
                self._run = None

    def _take(self) -> SequencedBatch:
        """The next call's appends, together with those of later calls that follow without a gap."""
        run = self._queue.popleft()
        while (
            self._queue
            and self._queue[0].before == run.after
            and self._queue[0].epoch == run.epoch
            and run.events + self._queue[0].events <= self._limits.commit_rows_max
        ):
            more = self._queue.popleft()
            run.after = more.after
            run.events += more.events
            run.placed += more.placed
            run.pendings += more.pendings
        if not self._queue:
            self._room.set()
        return run

    async def _commit(self, run: SequencedBatch) -> None:
        """Returns when all of the run is committed. Raises LineageLost when some never will be; the run then
        holds only those."""
        retry_s = _RETRY_FIRST_S
        while run.placed:
            try:
                await self._commit_once(run)
            except PostgresTrouble as trouble:
                self._telemetry.metrics.swaps_unanswered.inc()
                told = {"partition": self._partition.number, "reason": str(trouble)}
                logger.warning("commit_outcome_unknown", extra=told)
                await asyncio.sleep(retry_s)
                retry_s = min(retry_s * 2, _RETRY_MOST_S)

    async def _commit_once(self, run: SequencedBatch) -> None:
        """One attempt, and what follows from its outcome. Raises PostgresTrouble when that is unknown."""
        try:
            with self._telemetry.committing.of(self._partition.number, run.events, run.pendings):
                held = await self._swap(run)
        except ChainBroken as broken:
            told = {"partition": self._partition.number, "reason": str(broken)}
            logger.critical("chain_broken", extra=told)
            await self._postgres.seal(self._partition.number, run.epoch, "", run.mode)
            raise LineageLost(str(broken)) from broken
        except RefusedByPostgres as refused:
            if await self._bisect(run, refused):
                return
            held = False
        if held:
            self._telemetry.metrics.swaps_succeeded.inc()
            self._acknowledge(run, len(run.placed), *run.after)
        else:
            self._telemetry.metrics.swaps_failed.inc()
            await self._after_failed_swap(run)

    async def _swap(self, run: SequencedBatch) -> bool:
        partition = self._partition
        others_first = run.before[0] > partition.committed_seq  # as far as we know
        return await self._connection.swap(
            partition.number, run.epoch, run.before, run.after, run.placed, run.mode, others_first, run.ready
        )

    def _acknowledge(self, run: SequencedBatch, count: int, seq: int, chain: str) -> None:
        """The first `count` appends of the run are committed, up to (seq, chain)."""
        self._partition.known(seq, chain)
        self._partition.confirmed(seq)
        waited_s = self._loop.time() - (run.pendings[0].deadline - self._limits.append_deadline_s)
        answered = 0
        for pending, placed in zip(run.pendings[:count], run.placed[:count], strict=True):
            pending.in_doubt = False
            version, versions = placed.first_version, placed.versions
            answered += pending.resolve_at(version, self._partition.number, placed.last_seq, versions)
        self._partition.marks.keep(
            run.before[0] + 1, b"".join([placed.digests for placed in run.placed[:count]])
        )
        self._telemetry.metrics.committed(answered, seq - run.before[0], waited_s)
        self._followers.committed(self._partition.number, run.placed[:count])
        del run.pendings[:count], run.placed[:count]
        run.before = (seq, chain)
        if not self._queue:
            self._wake()

    async def _after_failed_swap(self, run: SequencedBatch) -> None:
        """The partition stands elsewhere than where the run begins: see how far it got without us."""
        row = await self._postgres.partition(self._partition.number)
        if row.epoch == run.epoch and row.seq < run.before[0]:
            await self._commit_what_comes_before(run)
            return
        helped, chain = await self._helped(run, row)
        if helped:
            last = run.placed[helped - 1]
            await self._settling.found(self._partition, last.last_seq, last.events[-1].id)
            self._acknowledge(run, helped, last.last_seq, chain)
        if row.epoch != run.epoch:
            raise LineageLost(f"epoch {run.epoch} was sealed")
        goes_on = (row.mode, row.chain) == (run.mode, chain)
        if run.placed and (run.placed[0].first_seq <= row.seq or not goes_on):
            raise Overtaken if run.mode == DIRECT else LineageLost("another history was committed")

    async def _helped(self, run: SequencedBatch, row: PartitionRow) -> tuple[int, str]:
        """How many of the run's appends stand in Postgres at their places, and the chain after them."""
        first, last = run.placed[0].first_seq, run.placed[-1].last_seq
        there = await self._postgres.fetch("placed", self._partition.number, first, min(last, row.seq))
        # By digest and version, not only by id: in a later epoch the same place may be taken by another
        # request whose client chose the same id.
        rows = {each["seq"]: (each["version"], each["digest"]) for each in there}
        count = 0
        for placed in run.placed:
            if any(rows.get(seq) != row for seq, row in placed.rows()):
                break
            count += 1
        return count, chain_over(run.before[1], run.placed[:count])

    async def _commit_what_comes_before(self, run: SequencedBatch) -> None:
        """Events of another gateway come before ours, and they were not committed while our swap waited."""
        try:
            await self._journal.commit(self._partition, run.before[0])
            if self._partition.committed_seq < run.before[0]:
                raise CannotHelp("the journal lacks the events that come before")
        except CannotHelp as trouble:
            # Only a verification can tell: the journal is readable again, or the epoch is sealed.
            logger.info(
                "journal_recovery_failed", extra={"partition": self._partition.number, "reason": str(trouble)}
            )
            self._partition.distrust()
            self._settled.set()
            self._room.set()
            self._wake()
            await asyncio.sleep(_RETRY_MOST_S if self._partition.halted else _RETRY_FIRST_S)

    async def _give_up(self, run: SequencedBatch, why: str) -> None:
        """Back to the sequencer with all that was sequenced in a lost lineage, in order."""
        told = {"partition": self._partition.number, "appends": len(run.pendings), "reason": why}
        logger.warning("epoch_superseded", extra=told)
        self._partition.distrust()
        self._take_back(run.pendings)

    def _take_back(self, lost: list[Pending]) -> None:
        for pending in lost:
            pending.reset()
            pending.in_doubt = False
        self._requeue(lost)
        self._wake()

    # -- what only a bug can bring

    async def _bisect(self, run: SequencedBatch, refused: RefusedByPostgres) -> bool:
        """Commits what is good before the append that Postgres refuses; quarantines that one; ends the epoch,
        since all that was sequenced after it rests on it.

        False where another gateway was faster, with this or with that. The next swap need not tell: Postgres
        may refuse rows before it looks at the partition.
        """
        if len(run.placed) > 1:
            half = len(run.placed) // 2
            first = SequencedBatch(run.epoch, run.before, run.after, run.mode)
            for pending, placed in zip(run.pendings[:half], run.placed[:half], strict=True):
                first.add(pending, placed)
            first.after = (first.placed[-1].last_seq, chain_over(run.before[1], first.placed))
            await self._commit(first)
            run.before = first.after
            del run.pendings[:half], run.placed[:half]
            return True
        if not await quarantine(self._postgres, self._partition, run.epoch, run.placed[0], str(refused)):
            return False
        run.pendings[0].in_doubt = False
        run.pendings[0].resolve(Quarantined(str(refused)))
        run.pendings.clear()
        run.placed.clear()
        self._wake()
        return True
