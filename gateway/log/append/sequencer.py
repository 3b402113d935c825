"""Gives appends their order: sends the waiting appends of a partition in one script call.

Owns: the partition's queue of appends. Decides nothing for good: what it sequences, the committer commits.
A request only hands its append over and awaits the outcome, so a request that is cancelled can't leave a
connection out of step, and load makes batches larger instead of queues longer.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import msgspec
from asyncpg.pgproto.pgproto import UUID

from gateway.appends import Append
from gateway.log.append.calls import CallHead, ClaimingAppend, sequence_call
from gateway.log.append.conditions import Conditions
from gateway.log.append.deferred_outcomes import DeferredOutcomes
from gateway.log.append.direct import Direct
from gateway.log.append.identities import ClaimedByAnother, Original
from gateway.log.append.known_identities import KnownIdentities
from gateway.log.append.look_ups import Claimed, LookUps
from gateway.log.append.pacing import BatchPolicy, GatewayLoad
from gateway.log.append.pending import (
    Backlog,
    Commits,
    Link,
    Outstanding,
    Pending,
    Queue,
    SequencedBatch,
    Waiter,
    expected_of,
)
from gateway.log.entries import sequenced_append
from gateway.log.epoch.partition import Partition
from gateway.log.epoch.settling import Settling
from gateway.log.epoch.verify import CannotVerify, PostgresLostCommits, Verifier
from gateway.log.limits import Limits
from gateway.log.postgres import Postgres
from gateway.log.redis.scripts import NotRun, RedisTrouble, Refused, Scripts
from gateway.names.unique import values_of
from gateway.outcomes import ConditionFailed, Conflict, NotCommitted, Outcome
from gateway.postgres.errors import PostgresTrouble
from gateway.telemetry.steps import Telemetry

logger = logging.getLogger("sluice.log")

# How long the watermark may lag behind, and an answer wait for another gateway's commit, when no further
# append comes along to carry the one and ask for the other.
_WATERMARK_LAG_S = 0.003
# The same while a commit of ours is under way, after which there is more to tell; and beside another gateway,
# whose next call tells it too.
_BUSY_WATERMARK_LAG_S = 0.03
_RETRY_FIRST_S = 0.01
_RETRY_MOST_S = 0.5


class Sequencer:
    """One for each partition of this gateway."""

    def __init__(
        self,
        partition: Partition,
        scripts: Scripts,
        postgres: Postgres,
        reads: Postgres,
        settling: Settling,
        verifier: Verifier,
        commits: Commits,
        limits: Limits,
        crowd: GatewayLoad,
        backlog: Backlog,
        known: KnownIdentities,
        telemetry: Telemetry,
    ) -> None:
        self._partition = partition
        self._scripts = scripts
        self._postgres = postgres
        self._verifier = verifier
        self._commits = commits
        self._limits = limits
        self._telemetry = telemetry
        self._tracing = telemetry.tracing
        self._told = telemetry.metrics.told
        self._loop = asyncio.get_running_loop()
        self._queue = Queue(backlog)
        self.outstanding = Outstanding()
        self._numbers = itertools.count()
        self._calls = itertools.count(1)
        self._work = asyncio.Event()
        self._waited = False  # long enough for appends
        self._hurry = asyncio.Event()
        self._verdicts = DeferredOutcomes(partition, postgres, settling, self.requeue)
        self._direct = Direct(partition, postgres, commits, self._verdicts, self.requeue, telemetry)
        self._retry_s = _RETRY_FIRST_S
        self._pace = BatchPolicy(self._queue, commits, crowd)
        self._conditions = Conditions(partition, reads, self._condition_judged)
        metrics = telemetry.metrics
        self.look_ups = LookUps(partition, postgres, limits, metrics, known, self._claimed, looked=self.wake)

    # -- what the rest of the gateway calls

    def submit(self, append: Append) -> asyncio.Future[Outcome]:
        """The outcome; at the deadline it is OutcomeUnknown or NotCommitted at the latest."""
        future: asyncio.Future[Outcome] = self._loop.create_future()
        self._take_on(append, future, self._loop.time() + self._limits.append_deadline_s)
        return future

    def submit_told(self, append: Append, waiter: Waiter) -> None:
        """The waiter is told as `submit`'s future is, perhaps before this returns."""
        self._take_on(append, waiter, self._loop.time() + self._limits.append_deadline_s)

    def submit_linked(self, append: Append, waiter: Waiter, link: Link, deadline: float) -> None:
        """Where the append that it was decided on has its place (Link), else it is told a Conflict; by the
        deadline, of the loop's clock, as `submit`'s future is."""
        self._take_on(append, waiter, deadline, link)

    def submit_each(self, asked: Iterable[tuple[Append, Waiter]]) -> None:
        """In this order, each as by `submit_told`."""
        deadline = self._loop.time() + self._limits.append_deadline_s
        for append, waiter in asked:
            self._take_on(append, waiter, deadline)

    def _take_on(self, append: Append, waiter: Waiter, deadline: float, link: Link | None = None) -> None:
        pending = Pending(append, next(self._numbers), deadline, waiter, self._told, link=link)
        if self._partition.halted is not None:
            pending.resolve(NotCommitted(self._partition.halted, retry_after_s=30))
            return
        if self._queue.full(self._limits.queue_bytes_max):
            pending.resolve(NotCommitted("too many appends are waiting on this gateway"))
            return
        if self._tracing is not None:
            pending.span = self._tracing.current()
        self.outstanding.append(pending)
        if append.condition is not None:
            pending.look = self._conditions.told_by_redis(append)
            if pending.look is None:
                self._conditions.ask(pending)
                return
        self._queue.put(pending)
        if append.retry.chosen or append.claims:
            self.look_ups.ask(pending)
        if not self._work.is_set():
            self._work.set()

    def _condition_judged(self, pending: Pending) -> None:
        """As far as Postgres has events: it takes its place in the queue."""
        if self._partition.halted is not None:
            pending.in_doubt |= pending.sent
            pending.expire()
            return
        pending.looked_up = None  # perhaps in an epoch that has ended while it was not in the queue
        self._queue.put(pending)
        if pending.to_look_up:
            self.look_ups.ask(pending)
        self._work.set()

    def requeue(self, pendings: Iterable[Pending]) -> None:
        """Back into the queue, in the order of admission."""
        back = []
        for pending in pendings:
            if pending.append.condition is not None and pending.look is None and not pending.done:
                self._conditions.ask(pending)
            elif not pending.done:
                back.append(pending)
        if back:
            self._queue.put_back(back)
            for pending in back:
                if pending.to_look_up:
                    self.look_ups.ask(pending)
            self._work.set()

    @property
    def waiting(self) -> tuple[int, int]:
        """Appends in the queue, and the bytes that they hold."""
        return len(self._queue), self._queue.size_bytes

    @property
    def holds_any(self) -> bool:
        """Whether `expire` may find anything."""
        return bool(self.outstanding or self._queue or self.look_ups.holds_any)

    def expire(self, now: float) -> None:
        """Answers what has waited too long, and holds it no more, although commits may stand still. Called a
        few times a second."""
        self.outstanding.expire(now)
        self.look_ups.let_go()
        if self._queue.let_go():  # others may have waited behind it to be looked up
            self._work.set()

    @property
    def commits_next(self) -> bool:
        """Whether what comes next in the partition is this gateway's, which commits it."""
        return self._commits.commits_next

    def wake(self) -> None:
        """Wakes the task for work other than appends: a partition to open, a watermark to move."""
        self._work.set()

    def hurry(self) -> None:
        """Redis is bypassed from now on: ends any wait for it."""
        self._hurry.set()
        self._work.set()

    # -- the loop

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._pace.calling = 0
            self.outstanding.let_go()
            await self._wait_for_work()
            if not self._partition.open and not await self._open():
                continue
            await self._pace.turn()
            if not self._partition.open:
                continue
            most = self._pace.largest if self._partition.direct else self._pace.most
            batch = self._queue.take(most, self._limits, looked_up=not self._partition.direct)
            self._pace.calling = len(batch)
            try:
                if self._partition.direct:
                    if not await self._direct.append(batch):
                        await self._back_off()
                elif batch or self._partition.curious:
                    await self._sequence(batch)
            except Exception:  # a bug: it is unknown how far they came, as after a reply that was lost
                for pending in batch:
                    pending.sent = True
                self._distrust(batch)
                raise

    async def _wait_for_work(self) -> None:
        """A wake-up that comes while there is work is not lost: it brings one look more. What a call without
        appends would tell or ask waits a moment for appends to carry it: just after a commit those who were
        answered are on their way with their next ones, which would have to wait for such a call."""
        while not self._ready:
            timer = None
            if self._partition.open and self._partition.curious:
                timer = self._loop.call_later(self._lag_s, self._wait_no_longer)
            await self._work.wait()
            self._work.clear()
            if timer is not None:
                timer.cancel()
            if self._waited or not self._partition.open:
                break
        self._waited = False

    @property
    def _ready(self) -> bool:
        """Whether anything in the queue may be sequenced now."""
        return bool(self._queue) and (self._partition.direct or not self._queue[0].to_look_up)

    @property
    def _lag_s(self) -> float:
        told_anyway = self._pace.shared and not self._partition.awaited
        return _BUSY_WATERMARK_LAG_S if told_anyway or self._commits.appends else _WATERMARK_LAG_S

    def _wait_no_longer(self) -> None:
        self._waited = True
        self._work.set()

    async def _open(self) -> bool:
        """Verifies Redis once what was sequenced under the former belief is settled, or can't be."""
        await self._commits.settled()
        rewound = self._partition.rewound
        try:
            await self._verifier.verify(self._partition)
        except CannotVerify as trouble:
            told = {"partition": self._partition.number, "reason": str(trouble)}
            logger.warning("partition_not_open", extra=told)
            await self._back_off()
            return False
        except PostgresLostCommits as loss:
            self._halt(str(loss))
            await self._back_off()
            return False
        await self._commits.settled()
        if self._partition.rewound != rewound:
            self._refuse_decided_before()
        if self._partition.halted is not None:
            self._partition.halted = None
            logger.warning("partition_resumed", extra={"partition": self._partition.number})
        self._retry_s = _RETRY_FIRST_S
        self.look_ups.ask_again(self._queue)
        return True

    def _halt(self, why: str) -> None:
        if self._partition.halted is None:
            logger.critical(
                "postgres_lost_commits", extra={"partition": self._partition.number, "reason": why}
            )
        self._partition.halt(f"{why}; appends are refused until `sluice repair` or `sluice rewind` has run")
        for pending in self._queue:
            # What this Postgres says will never commit, a repaired one may commit from the journal.
            pending.in_doubt |= pending.sent
            pending.expire()
        self._queue.empty()

    def _refuse_decided_before(self) -> None:
        """What waits was decided on a history that a rewind has given up."""
        for pending in self._queue:
            pending.in_doubt |= pending.sent
            pending.expire()
        self._queue.empty()

    async def _back_off(self) -> None:
        waiter = self._loop.call_later(self._retry_s, self._hurry.set)
        await self._hurry.wait()
        waiter.cancel()
        self._hurry.clear()
        self._retry_s = min(self._retry_s * 2, _RETRY_MOST_S)
        self._work.set()

    async def _sequence(self, batch: list[Pending]) -> None:
        partition = self._partition
        batch = self._looked_in_this_epoch(batch)
        told = partition.committed_seq
        looks = [pending.looked_up for pending in batch if pending.looked_up is not None]
        reply = await self._call(batch, looked_up=min(looks, default=told))
        if reply is not None:
            await self._settle(batch, reply)
            if partition.watermark < told:
                # This Redis' chain is not the one that Postgres committed.
                partition.distrust()

    def _looked_in_this_epoch(self, batch: list[Pending]) -> list[Pending]:
        """The others' conditions are looked at again."""
        epoch = self._partition.epoch
        outdated = [each for each in batch if each.look is not None and each.look.epoch != epoch]
        for pending in outdated:
            self._conditions.ask(pending)
        return [each for each in batch if each not in outdated] if outdated else batch

    def _claimed(self, claimed: list[Claimed]) -> None:
        """These are committed already, or never will be."""
        self._queue.drop({pending for pending, _ in claimed})
        for pending, verdict in claimed:
            # Of itself, perhaps: as where Redis says so.
            pending.in_doubt |= pending.sent and isinstance(verdict, Original)
            self._verdicts.answer(pending, verdict)

    async def _call(self, batch: Sequence[Pending], looked_up: int) -> list[Any] | None:
        """The script's reply, or None when there is none: then the batch is back in the queue."""
        partition = self._partition
        head = CallHead(
            partition.epoch,
            self._limits.inflight_events_max,
            partition.committed_seq,
            partition.committed_chain,
            self._limits.stream_tail,
            looked_up,
            self._scripts.caller,
            next(self._calls),
        )
        appends = [each.append for each in batch]
        hints = [each.hint_in(head.epoch) if each.append.fresh else each.hint for each in batch]
        claims = [
            ClaimingAppend(n, each.looked_up or 0, each.taken is not None, values_of((each.append,)))
            for n, each in enumerate(batch, 1)
            if each.append.claims
        ]
        looks, expected = [each.look for each in batch], expected_of(batch, head.epoch)
        names, args = sequence_call(partition.keys, head, appends, hints, expected, claims, looks)
        doubts = [pending.in_doubt for pending in batch]
        for pending in batch:
            pending.in_doubt = True
        try:
            with self._telemetry.sequencing.of(partition.number, len(batch), batch):
                reply = await self._scripts.run("sequence", names, args)
        except NotRun as refused:
            logger.info("sequence_not_run", extra={"partition": partition.number, "reason": str(refused)})
            if isinstance(refused, Refused):
                partition.reach.refused(self._loop.time())
            self._undoubt(batch, doubts)
            await self._slot_moves()
            return None
        except RedisTrouble as trouble:
            # It may run yet, or have run: the identities in Redis and Postgres settle a second try.
            told = {"partition": partition.number, "reason": str(trouble)}
            logger.warning("sequence_timeout", extra=told)
            for pending in batch:
                pending.sent = True
            partition.reach.refused(self._loop.time())
            self._distrust(batch)
            await self._back_off()
            return None
        if reply[0] == b"FENCED":
            self._undoubt(batch, doubts)
            return None
        partition.reach.carried_out()
        self._retry_s = _RETRY_FIRST_S
        return reply

    async def _slot_moves(self) -> None:
        await self._back_off()

    def _undoubt(self, batch: Sequence[Pending], doubts: Sequence[bool]) -> None:
        """Nothing of the call was sequenced, nor will be."""
        for pending, doubt in zip(batch, doubts, strict=True):
            pending.in_doubt = doubt
        self._distrust(batch)

    def _distrust(self, batch: Sequence[Pending]) -> None:
        self._partition.distrust()
        for pending in batch:
            pending.reset()
        self.requeue(batch)

    async def _settle(self, batch: list[Pending], reply: list[Any]) -> None:
        _, q_before, h_before, q_after, h_after, watermark, as_of, *answers = reply
        partition = self._partition
        partition.watermark = int(watermark)
        partition.confirmed(partition.watermark)
        before, after = (int(q_before), h_before.decode()), (int(q_after), h_after.decode())
        sequenced = SequencedBatch(partition.epoch, before, after)
        self._pace.called(before[0], after[0])
        seq = before[0]
        back: list[Pending] = []
        cold: list[Pending] = []
        for pending, answer in zip(batch, answers, strict=True):
            firsts = (answer,) if type(answer) is int else _first_versions(answer)
            if firsts:
                append = pending.append
                pending.sent = True
                if pending.link is not None:
                    pending.placed_at(firsts[0], sequenced.epoch)
                seq += len(append.events)
                sequenced.add(pending, sequenced_append(append, firsts, seq))
                continue
            pending.in_doubt = False
            match answer[:1]:
                case b"D":
                    # Of itself, perhaps: then it may be there although its time is up before that is known.
                    pending.in_doubt = pending.sent
                    last, count = map(int, answer[1:].split(b":"))
                    original = Original(partition.number, last - count + 1, last)
                    self._verdicts.answer_after(pending, last, original)
                case b"M":
                    self._verdicts.answer_after(pending, after[0], ClaimedByAnother())
                case b"C":
                    self._verdicts.answer_after(
                        pending, after[0], Conflict(*map(int, answer[1:].split(b":")))
                    )
                case b"K":
                    matched = int(answer[1:])
                    self._verdicts.answer_after(pending, matched, ConditionFailed(matched))
                case b"L":
                    self._conditions.not_told(pending, answer[1:])
                    back.append(pending)
                case b"X":
                    cold.append(pending)
                    back.append(pending)
                case b"U":
                    assert pending.taken is not None
                    self._verdicts.answer_after(pending, pending.looked_up or 0, pending.taken)
                case b"S":
                    pending.again = True
                    pending.looked_up = None
                    pending.beyond = int(answer[1:] or 0)
                    back.append(pending)
                case _:
                    self._telemetry.metrics.busy_appends.inc()
                    back.append(pending)
        if sequenced.placed:
            self._commits.put(sequenced)
        if cold:
            await self._warm(cold, as_of.decode())
        if back:
            self.requeue(back)
            if not sequenced.placed and not cold:
                await self._until_committed_further()

    async def _until_committed_further(self) -> None:
        """Back-pressure: the window of uncommitted events is full."""
        further = self._partition.when_committed(self._partition.confirmed_seq + 1)
        done, _ = await asyncio.wait((further,), timeout=0.05)
        if not done:
            self._work.set()

    async def _warm(self, cold: list[Pending], as_of: str) -> None:
        """One batched look-up for all streams of the call that Redis does not have."""
        self._telemetry.metrics.cold_streams.inc(len(cold))
        streams = [stream for pending in cold for stream in pending.append.streams]
        try:
            rows = await self._postgres.fetch(
                "heads",
                [UUID(stream.tenant) for stream in streams],
                [stream.aggregate_type for stream in streams],
                [stream.key for stream in streams],
            )
        except PostgresTrouble:
            await self._back_off()
            return
        hints = iter([f"{as_of}:{row['head']}" for row in rows])
        for pending in cold:
            pending.hint = " ".join(islice(hints, len(pending.append.streams)))


def _first_versions(answer: bytes) -> tuple[int, ...]:
    """Of an append to several streams, in each of them; empty where it has no place."""
    return _numbers(b"[%b]" % answer[1:]) if answer[:1] == b"V" else ()


_numbers = msgspec.json.Decoder(tuple[int, ...]).decode
