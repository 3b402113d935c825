"""Commits the appends that gateways that died have left in journals.

Ten times a second it asks Redis where each partition stands, or three times while all is committed and this
gateway has nothing under way. What was sequenced and not committed for two looks in a row is committed from
the journal, a gateway's own only after a second more; what contradicts this gateway's knowledge, or is of a
server that was restarted or promoted since, is verified again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from redis.exceptions import RedisError

from gateway.log.append.journal import CannotHelp, Journal
from gateway.log.append.sequencer import Sequencer
from gateway.log.epoch.notices import Outage
from gateway.log.epoch.partition import Partition
from gateway.log.redis.cluster import NOT_RUN
from gateway.log.redis.scripts import RedisTrouble, Scripts
from gateway.tasks import ended, to_tick
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.redact import reason

logger = logging.getLogger("sluice.log")

SWEEP_EVERY_S = 0.1
# At rest, one look in so many. An append or a call of Redis ends the rest: while a client of this gateway
# waits, what is wrong is found as soon as with all looks.
_AT_REST = 3
# For so many looks, a second, a gateway's own commits get no help.
OWN_LOOKS = 10
# Below that, a Redis that is well seems silent now and then, on a machine that is busy.
_LOOK_LEAST_S = 0.25
# How often a Redis that was done without is asked whether it writes again: each time, what all scripts do.
_TRY_EVERY_S = 0.5
_FIELDS = ("epoch", "q", "c", "fence")


@dataclass(frozen=True, slots=True)
class Standing:
    """A partition's meta hash, as far as the sweeper cares, and whether it is of its server's history."""

    epoch: int
    q: int
    c: int
    fenced: bool


class Sweeper:
    """One for each gateway."""

    def __init__(
        self,
        scripts: Scripts,
        journal: Journal,
        partitions: Sequence[tuple[Partition, Sequencer]],
        outage: Outage,
        metrics: Metrics,
        direct_after_s: float,
    ) -> None:
        self._scripts = scripts
        self._servers = scripts.servers
        self._journal = journal
        self._partitions = partitions
        self._metas = tuple([partition.keys.meta for partition, _ in partitions])
        self._last: dict[int, Standing] = {}
        self._all_committed = False
        self._helping: dict[int, asyncio.Task[int]] = {}  # by partition
        self._waited: dict[int, int] = {}  # looks, for this gateway's own commits
        self._tried_at: dict[int, float] = {}
        self._returning: set[int] = set()  # in direct mode, at a Redis that was steady and has just written
        self._outage = outage
        self._metrics = metrics
        self._look_most_s = max(direct_after_s / 2, _LOOK_LEAST_S)
        self._now = asyncio.get_running_loop().time

    def lags(self) -> dict[int, int]:
        """Events sequenced and not yet marked as committed, by partition, as Redis told at the last look."""
        return {number: max(standing.q - standing.c, 0) for number, standing in self._last.items()}

    async def run(self) -> None:
        """Until cancelled."""
        try:
            await self._run()
        finally:
            await ended(self._helping.values())

    async def _run(self) -> None:
        skipped = 0
        while True:
            await asyncio.sleep(to_tick(SWEEP_EVERY_S))
            skipped += 1
            if skipped < _AT_REST and self._at_rest():
                continue
            skipped = 0
            try:
                await self.run_once()
            except (RedisError, OSError) as error:
                self._noticed(error)
                for partition, sequencer in self._partitions:
                    self._miss(partition, sequencer)

    def _at_rest(self) -> bool:
        """Whether the last look found all committed, and nothing is wrong, or under way here, since."""
        return (
            self._all_committed
            and not self._servers.under_way
            and not any(
                sequencer.holds_any or not partition.in_redis or partition.awaited or partition.reach.failing
                for partition, sequencer in self._partitions
            )
        )

    async def run_once(self) -> int:
        """One look at every partition; the number of appends committed from journals. Where that takes long,
        since Redis or Postgres hangs, it continues beside the next looks, which find that out."""
        helping: list[asyncio.Task[int]] = []
        self._all_committed = False
        known = [partition.epoch if partition.open else None for partition, _ in self._partitions]
        looks = await self._look()
        looks = await self._try(looks)
        self._tell(looks)
        for (partition, sequencer), epoch, standing in zip(self._partitions, known, looks, strict=True):
            if isinstance(standing, Exception):
                self._miss(partition, sequencer)
                continue
            partition.reach.answered(self._now())
            if partition.open and partition.direct:
                if partition.number in self._returning:
                    partition.distrust()  # back to Redis
                    sequencer.wake()
                continue
            if partition.open and partition.epoch != epoch:
                continue  # verified since the look began
            if (
                standing is None
                or standing.fenced
                or standing.epoch != partition.epoch
                or not partition.open
                or partition.halted is not None
            ):
                partition.distrust()
                sequencer.wake()
                continue
            before = self._last.get(partition.number)
            self._last[partition.number] = standing
            if before is None or not before.c == standing.c < standing.q:
                self._waited.pop(partition.number, None)
            elif self._needs_help(partition.number, sequencer):
                helping.append(self._begin_help(partition, sequencer))
        self._all_committed = all(isinstance(each, Standing) and each.q == each.c for each in looks)
        if not helping:
            return 0
        done, _ = await asyncio.wait(helping, timeout=SWEEP_EVERY_S)
        return sum(each.result() for each in done)

    def _begin_help(self, partition: Partition, sequencer: Sequencer) -> asyncio.Task[int]:
        task = self._helping.get(partition.number)
        if task is None:
            task = self._helping[partition.number] = asyncio.create_task(self._help(partition, sequencer))
            task.add_done_callback(lambda _: self._helping.pop(partition.number))
        return task

    def _needs_help(self, number: int, sequencer: Sequencer) -> bool:
        """What this gateway commits itself takes long where it is overloaded: to commit it from the journal
        as well would be more work, and no gain. But its connection may hang."""
        waited = self._waited.get(number, 0) + 1 if sequencer.commits_next else 0
        self._waited[number] = waited
        return not 0 < waited < OWN_LOOKS

    async def _look(self) -> list[Standing | Exception | None]:
        """An exception: its server does not say, or is another one by now."""
        replies = await self._servers.hashes(self._metas, _FIELDS, self._look_s())
        return [reply if isinstance(reply, Exception) else _standing(*reply) for reply in replies]

    async def _try(self, looks: list[Standing | Exception | None]) -> list[Standing | Exception | None]:
        """The looks, with an exception in place of one at a server that answers and does not write. That is
        tried where a call or a look has failed since the last that was well, there and for partitions that
        no gateway uses; and before appends come back."""
        self._returning = {each.number for each, _ in self._partitions if self._may_return(each)}

        trying = any(each.reach.failing for each, _ in self._partitions)
        if not (trying or self._returning):
            return looks  # nearly always: without a task for each partition, ten times a second

        async def one(partition: Partition, look: Standing | Exception | None) -> Standing | Exception | None:
            failing = partition.reach.failing
            if isinstance(look, Exception) or not (trying or partition.number in self._returning):
                return look
            recently = self._now() < self._tried_at.get(partition.number, 0) + _TRY_EVERY_S
            if recently and (partition.direct or not failing):
                return RedisError("its last write failed a moment ago") if failing else look
            self._tried_at[partition.number] = self._now()
            try:
                async with asyncio.timeout(self._look_s()):
                    wrong = await self._scripts.hindrance(partition.keys_in(0))
            except (RedisTrouble, TimeoutError) as trouble:
                return trouble
            return look if wrong is None else RedisError(wrong)

        pairs = zip(self._partitions, looks, strict=True)
        return list(await asyncio.gather(*(one(partition, look) for (partition, _), look in pairs)))

    def _may_return(self, partition: Partition) -> bool:
        return partition.open and partition.direct and partition.reach.steady(self._now())

    def _tell(self, looks: Sequence[Standing | Exception | None]) -> None:
        refused = [each for each in looks if isinstance(each, Exception) and not isinstance(each, NOT_RUN)]
        if refused:
            self._noticed(refused[0])
        else:
            self._outage.over()

    def _look_s(self) -> float | None:
        """Between the last look that was answered and direct mode, appends wait: two looks have to fit in."""
        return None if all(each.direct for each, _ in self._partitions) else self._look_most_s

    def _noticed(self, trouble: Exception) -> None:
        """One look that fails is a hiccup."""
        if any(partition.reach.failing for partition, _ in self._partitions):
            self._outage.noticed(reason(trouble))

    def _miss(self, partition: Partition, sequencer: Sequencer) -> None:
        self._last.pop(partition.number, None)
        partition.reach.failed()
        if not partition.direct and partition.reach.lost(self._now()):
            partition.distrust()
            self._servers.give_up()
            sequencer.hurry()

    async def _help(self, partition: Partition, sequencer: Sequencer) -> int:
        try:
            committed = await self._journal.commit(partition)
        except CannotHelp as trouble:
            logger.info(
                "journal_recovery_failed", extra={"partition": partition.number, "reason": str(trouble)}
            )
            committed = 0
        except Exception:  # a bug, or an unforeseen entry: the other partitions need their help too
            logger.exception("help_ended", extra={"partition": partition.number})
            partition.distrust()
            committed = 0
        if committed:
            self._metrics.swept_appends.inc(committed)
            logger.warning("appends_swept", extra={"partition": partition.number, "appends": committed})
        sequencer.wake()  # moves the watermark, or opens the partition
        return committed


def _standing(reply: Sequence[Any], history: bytes) -> Standing | None:
    if None in reply:
        return None
    epoch, q, c, fence = reply
    return Standing(int(epoch), int(q), int(c), fenced=fence != history)
