"""Appends while Redis is unavailable: judged on Postgres, committed by the same compare-and-swap.

No lock is held while a batch is decided, so a gateway that hangs delays no other: a batch is decided on one
snapshot, and its swap succeeds only if nothing was committed to the partition since.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence

from asyncpg.pgproto.pgproto import UUID

from gateway.events import Stream
from gateway.log.append.deferred_outcomes import DeferredOutcomes, Verdict
from gateway.log.append.direct_sequencer import DirectSequencer
from gateway.log.append.identities import Original, claims_of
from gateway.log.append.pending import Commits, Pending, SequencedBatch, expected_of
from gateway.log.entries import SequencedAppend
from gateway.log.epoch.chain import roll
from gateway.log.epoch.partition import Partition
from gateway.log.postgres import DIRECT, Postgres
from gateway.log.read.matches import first_match
from gateway.names.unique import holders_of, values_of
from gateway.postgres.errors import PostgresTrouble
from gateway.telemetry.steps import Telemetry

# A gateway that was overtaken by another one gives it a head start of at most this: both get their turns.
_OVERTAKEN_S = 0.002
# Rows that others have committed since this gateway did, of which one look takes the chain on. With more, the
# partition is verified, which reads them in parts.
_SINCE_MAX = 5_000


class Direct:
    """One for each partition of this gateway; `requeue` takes back what must be decided again."""

    def __init__(
        self,
        partition: Partition,
        postgres: Postgres,
        commits: Commits,
        verdicts: DeferredOutcomes,
        requeue: Callable[[Iterable[Pending]], None],
        telemetry: Telemetry,
    ) -> None:
        self._partition = partition
        self._postgres = postgres
        self._commits = commits
        self._verdicts = verdicts
        self._requeue = requeue
        self._metrics = telemetry.metrics

    async def append(self, batch: Sequence[Pending]) -> bool:
        """Afterwards each append is committed, answered, or back in the queue; False if Postgres did not
        answer."""
        if not batch:
            return True
        try:
            placing = await self._look(batch)
            failing = {} if placing is None else await self._failing(batch, placing.seq)
        except PostgresTrouble:
            self._requeue(batch)
            return False
        if placing is None:
            self._partition.distrust()
            self._requeue(batch)
            return True
        # What its deadline answered meanwhile must not be placed: it was told that it never will be.
        run, resting = self._judge([pending for pending in batch if not pending.done], placing, failing)
        if not run.placed:
            return True
        self._commits.put(run)
        await self._commits.settled()
        if run.before == run.after:
            for pending, verdict in resting:
                self._verdicts.answer(pending, verdict, run.before[0])
            return True
        self._requeue(pending for pending, _ in resting)
        await asyncio.sleep(random.uniform(0, _OVERTAKEN_S))  # noqa: S311
        return True

    async def _look(self, batch: Sequence[Pending]) -> DirectSequencer | None:
        """All that the batch is judged on, in one snapshot; None when the partition does not stand where this
        gateway believes it to."""
        asked = [pending.append for pending in batch if pending.append.chosen or pending.again]
        retries = [append.retry for append in asked]
        self._metrics.identity_lookups.inc(len(asked))
        identities = [(each.tenant, identity) for each in retries for identity in each.chosen]
        events = [(each.tenant, event_id) for each in retries for event_id in each.chosen_events]
        events += [(append.stream.tenant, append.append_id) for append in asked]
        streams = list({stream: None for pending in batch for stream in pending.append.streams})
        known, chain = self._partition.committed_seq, self._partition.committed_chain
        rows = await self._postgres.fetch(
            "look_directly",
            self._partition.number,
            [UUID(tenant) for tenant, _ in identities],
            [identity for _, identity in identities],
            [UUID(tenant) for tenant, _ in events],
            [UUID(event_id) for _, event_id in events],
            [UUID(stream.tenant) for stream in streams],
            [stream.aggregate_type for stream in streams],
            [stream.key for stream in streams],
            known,
            _SINCE_MAX,
        )
        row = next(row for row in rows if row["kind"] == "partition")
        partition = self._partition
        if (row["epoch"], row["mode"], row["alarm"]) != (partition.epoch, DIRECT, None):
            return None
        # Another Postgres than before, with other events in it, is not gone on from.
        since = [each for each in rows if each["kind"] == "since"]
        if known + len(since) != row["seq"] or roll(chain, since, row["seq"]) != row["chain"]:
            return None
        heads: dict[Stream, int] = {
            streams[each["version"] - 1]: each["seq"] for each in rows if each["kind"] == "head"
        }
        # Read later: where anything was committed in between, the swap fails.
        values = values_of([pending.append for pending in batch])
        held = await self._postgres.fetch("holders", values) if values else ()
        return DirectSequencer(partition.number, claims_of(rows), heads, row["chain"], holders_of(held))

    async def _failing(self, batch: Sequence[Pending], seq: int) -> dict[int, int]:
        """By the numbers of the appends whose conditions fail, up to `seq`, the seq of a match. Raises
        PostgresTrouble."""
        failing: dict[int, int] = {}
        for pending in batch:
            condition, look = pending.append.condition, pending.look
            if condition is None:
                continue
            assert look is not None
            here = look.epoch == self._partition.epoch
            matched, judged = (look.matched, look.seq) if here else (0, condition.after)
            if not matched and judged < seq:
                p, tenant = self._partition.number, pending.append.stream.tenant
                matched = (await first_match(self._postgres, p, tenant, condition.items, judged, seq)).matched
            if matched:
                failing[pending.number] = matched
        return failing

    def _judge(
        self, batch: Sequence[Pending], placing: DirectSequencer, failing: dict[int, int]
    ) -> tuple[SequencedBatch, list[tuple[Pending, Verdict]]]:
        """What is to be committed, and the verdicts that may rest on it. The others are answered."""
        before = (placing.seq, placing.chain)
        run = SequencedBatch(self._partition.epoch, before, before, DIRECT)
        resting: list[tuple[Pending, Verdict]] = []
        for pending, expected in zip(batch, expected_of(batch, run.epoch), strict=True):
            verdict = placing.judge(pending.append, expected, failing.get(pending.number, 0))
            if isinstance(verdict, SequencedAppend):
                pending.in_doubt = pending.sent = True
                pending.placed_at(verdict.first_version, run.epoch)
                run.add(pending, verdict)
                continue
            # Its original is its own first try, perhaps: then it may be there when its time is up.
            pending.in_doubt = pending.sent and isinstance(verdict, Original)
            if run.placed:
                resting.append((pending, verdict))
            else:
                self._verdicts.answer(pending, verdict, placing.seq)
        run.after = (placing.seq, placing.chain)
        return run, resting
