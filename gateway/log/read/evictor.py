"""Keeps Redis within its memory: it has the working set, Postgres the history.

Owns: what leaves Redis, and when. The journal keeps what was committed within `journal_retention_s`. Near the
bound of a server's memory, what was untouched for longest goes first, be it a stream or the front of a
journal. Keys of epochs that have ended go at once, at the same pace; their journals, from which lost commits
are repaired, when they are as old as the rest of it would be.

How long a stream was untouched is told by Redis itself, to the second (docs/decisions/0018). Several
gateways may do this at once: each looks before each step, and no step does harm twice.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gateway.events import Stream
from gateway.log.epoch.partition import Partition
from gateway.log.limits import Limits
from gateway.log.redis.keys import PartitionKeys
from gateway.log.redis.scripts import RedisTrouble, Scripts
from gateway.log.redis.servers import Server
from gateway.tasks import to_tick
from gateway.telemetry.metrics import Metrics, Reading

logger = logging.getLogger("sluice.log")

LOOK_EVERY_S = 0.1
REST_MOST_S: Final = 1.0
"""Between two looks while nothing is committed, and nothing is found to do in any partition."""
FILLED_A_SECOND: Final = 256 * 1024 * 1024
"""More bytes than a server takes in, by its one thread: so much room is left for each second of a rest."""
BOUND_WITHOUT_MAXMEMORY: Final = 1024 * 1024 * 1024
"""Of a server that has no limit of its own, and for which no bound is set."""
# Eviction begins here. The rest is for what comes between two looks, for clients' buffers and for a rewrite
# of the append-only file.
_NEAR = 0.85
# From here on it takes short rests and more at once, or appends would be refused before long.
_HURRY = 0.92
_NOTHING_HELPS = 0.97
_SAMPLE = 512
"""Streams named a step: the script that looks at them holds Redis up for less than a millisecond."""
_RELIEVE_S = 1.0
_FRUITLESS_MOST = 16
# A step is followed by a rest of so many times its length.
_REST, _REST_IN_A_HURRY = 3.0, 1.0
# So many ages of a step are kept, so many in all. The oldest quarter goes, in a hurry the older half.
_AGES_A_STEP, _AGES_KEPT = 128, 1024
_OLD, _OLD_IN_A_HURRY = 0.75, 0.5


@dataclass(frozen=True, slots=True)
class Look:
    """What a script saw of the server and of one partition's keys in an epoch."""

    used: int
    maxmemory: int
    journal: int
    streams: int
    old_epochs: tuple[int, ...]
    old_journals: tuple[int, ...]
    named: tuple[bytes, ...]

    @classmethod
    def from_reply(cls, reply: Sequence[Any]) -> Look:
        used, maxmemory, journal, streams, old, journals, *named = reply
        epochs, due = (tuple(map(int, each.split())) for each in (old, journals))
        return cls(int(used), int(maxmemory), journal, streams, epochs, due, tuple(named))

    def room(self, bytes_max: int | None) -> int:
        """The bytes until eviction begins."""
        return int(_NEAR * (bytes_max or self.maxmemory or BOUND_WITHOUT_MAXMEMORY)) - self.used

    def fullness(self, bytes_max: int | None) -> float:
        """The share of its bound that the server uses."""
        return self.used / (bytes_max or self.maxmemory or BOUND_WITHOUT_MAXMEMORY)


class CommitTimes:
    """When so much of a partition was known committed: what its journal holds, by age."""

    def __init__(self, keep_s: float) -> None:
        self._grain_s = max(1.0, keep_s / 600)
        self._marks: deque[tuple[float, int]] = deque(maxlen=2_000)
        self._noted = 0

    def note(self, now: float, seq: int) -> None:
        """Called often; `now` is the loop's clock."""
        if seq < self._noted:
            self._marks.clear()  # a rewind has given up what these positions were of
            self._noted = seq
        elif seq > self._noted and (not self._marks or now - self._marks[-1][0] >= self._grain_s):
            self._marks.append((now, seq))
            self._noted = seq

    def by(self, then: float) -> int:
        """The last seq known to have been committed by then; 0: none."""
        found = 0
        for noted, seq in self._marks:
            if noted > then:
                break
            found = seq
        return found

    def trimmed(self, seq: int) -> None:
        """The journal does not hold what lies below any more."""
        while self._marks and self._marks[0][1] <= seq:
            self._marks.popleft()

    def front_s(self, now: float) -> float:
        """How long ago the oldest that the journal holds was committed, as far as this gateway knows."""
        return now - self._marks[0][0] if self._marks else 0.0


class Evictor:
    """One for each gateway."""

    def __init__(
        self,
        scripts: Scripts,
        partitions: Sequence[Partition],
        limits: Limits,
        metrics: Metrics,
        in_touch: Callable[[], bool],
    ) -> None:
        """`in_touch`: whether Postgres has just told where the partitions stand."""
        self._scripts = scripts
        self._in_touch = in_touch
        self._partitions = partitions
        self._bytes_max = limits.redis_bytes_max
        self._journal_keep_s = limits.journal_retention_s
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._commits = [CommitTimes(limits.journal_retention_s) for _ in partitions]
        self._weights = [1] * len(partitions)  # how much there may be to evict
        self._ages: deque[int] = deque(maxlen=_AGES_KEPT)
        self._one_server = isinstance(scripts.servers, Server)
        self._fullness: dict[int, float] = {}
        self._room: dict[int, int] = {}
        self._stands: list[tuple[int, int]] = []  # epoch and seq of each partition, at the last look
        self._quiet = 0  # looks in a row that found nothing, while nothing was committed
        self._age_s = 0.0

    def readings(self) -> Iterator[Reading]:
        """For metrics: how full the fullest server is, and how old is what is evicted."""
        yield Reading("sluice_redis_fullness_ratio", self._fullest)
        yield Reading("sluice_eviction_age_seconds", self._age_s)

    @property
    def _fullest(self) -> float:
        return max(self._fullness.values(), default=0.0)

    async def run(self) -> None:
        """Until cancelled. Looks at one partition after another; gateways begin anywhere."""
        count = len(self._partitions)
        for number in itertools.count(random.randrange(count)):  # noqa: S311
            await asyncio.sleep(to_tick(self._pause_s()))
            try:
                if await self.run_once(self._partitions[number % count]):
                    await self._relieve()
            except RedisTrouble as trouble:
                logger.warning("eviction_failed", extra={"reason": str(trouble)})

    def _pause_s(self) -> float:
        count = len(self._partitions)
        if self._quiet < count:
            return LOOK_EVERY_S
        looks = 1 if self._one_server else count  # until each server was looked at
        rest_s = min(self._room.values(), default=0) / FILLED_A_SECOND / looks
        return max(LOOK_EVERY_S, min(rest_s, REST_MOST_S))

    async def run_once(self, partition: Partition) -> bool:
        """The routine work on a partition. Returns whether its server is near its memory limit. Raises
        RedisTrouble."""
        if not _in_redis(partition):
            return False
        now = self._loop.time()
        for commits, each in zip(self._commits, self._partitions, strict=True):
            commits.note(now, each.committed_seq)
        stands, self._stands = self._stands, [(each.epoch, each.committed_seq) for each in self._partitions]
        look = await self._look(partition, partition.keys, 0, self._journal_keep_s)
        for epoch in look.old_epochs:
            await self._clear(partition, epoch)
        await self._clear_journals(partition, look)
        trimmed = await self._trim(partition, self._journal_keep_s)
        found = look.old_epochs or look.old_journals or trimmed
        self._quiet = 0 if found or stands != self._stands else self._quiet + 1
        return look.fullness(self._bytes_max) >= _NEAR

    async def _look(self, partition: Partition, keys: PartitionKeys, most: int, keep_s: float) -> Look:
        names, bytes_max = (keys.meta, keys.journal, keys.heads), self._bytes_max
        look = Look.from_reply(await self._scripts.run("look", names, (most, int(keep_s))))
        if keys is partition.keys:
            server = self._server(partition)
            self._fullness[server], self._room[server] = look.fullness(bytes_max), look.room(bytes_max)
            self._weights[partition.number] = 1 + look.streams + look.journal
        return look

    def _server(self, partition: Partition) -> int:
        """Partitions of one number are at one server."""
        return 0 if self._one_server else partition.number

    # -- near the bound

    async def _relieve(self) -> None:
        """Evicts until there is room, for a while, or as long as it helps. Raises RedisTrouble."""
        until, fruitless = self._loop.time() + _RELIEVE_S, 0
        while self._loop.time() < until and fruitless < _FRUITLESS_MOST:
            begun = self._loop.time()
            (partition,) = random.choices(self._partitions, self._weights)  # noqa: S311
            fruitless = 0 if await self.evict(partition) else fruitless + 1
            hurry = self._fullness.get(self._server(partition), 0) >= _HURRY
            await asyncio.sleep((_REST_IN_A_HURRY if hurry else _REST) * (self._loop.time() - begun))
        if fruitless and self._fullest >= _NOTHING_HELPS:
            logger.warning("redis_full", extra={"fullness": round(self._fullest, 3)})

    async def evict(self, partition: Partition) -> int:
        """One step, if the partition's server is near its bound; how much it took away, in streams and
        entries of the journal. Raises RedisTrouble."""
        if not _in_redis(partition):
            return 0
        hurry = self._fullness.get(self._server(partition), 0) >= _HURRY
        age_s = min(self._old_s(_OLD_IN_A_HURRY if hurry else _OLD), self._journal_keep_s)
        look = await self._look(partition, partition.keys, _SAMPLE, age_s)
        if look.fullness(self._bytes_max) < _NEAR:
            return 0
        self._age_s = age_s
        trimmed = await self._clear_journals(partition, look) + await self._trim(partition, age_s)
        if trimmed or not look.named:
            return trimmed
        _, evicted, *touched = await self._run(partition, 0, look.named, int(age_s), _SAMPLE // 2)
        self._ages.extend([age for age in touched if age >= 0][:_AGES_A_STEP])
        self._metrics.streams_evicted.inc(evicted)
        return evicted

    async def forget(self, partition: Partition, streams: Sequence[Stream]) -> None:
        """Evicts these streams, however recently they were used. Raises RedisTrouble."""
        if not _in_redis(partition):
            return
        names = [partition.keys.stream(each).encode() for each in streams]
        for first in range(0, len(names), _SAMPLE):
            await self._run(partition, 0, names[first : first + _SAMPLE], 0, _SAMPLE)

    def _old_s(self, share: float) -> float:
        """What was untouched for so long goes first: by the ages of streams, and of the oldest journal."""
        now, ages = self._loop.time(), sorted(self._ages)
        of_streams = ages[int(share * len(ages))] if ages else 0
        return max(float(of_streams), share * max(each.front_s(now) for each in self._commits))

    async def _trim(self, partition: Partition, age_s: float) -> int:
        """The journal loses what was committed so long ago; the number of entries that it lost. What Redis
        does not know to be committed stays, and goes the next time."""
        commits = self._commits[partition.number]
        seq = min(commits.by(self._loop.time() - age_s), partition.watermark)
        if seq == 0 or not self._may_forget(partition):
            return 0
        trimmed, *_ = await self._run(partition, seq + 1)
        commits.trimmed(seq)
        return trimmed

    async def _run(
        self,
        partition: Partition,
        journal_from: int,
        streams: Sequence[bytes] = (),
        least_s: int = 0,
        most: int = 0,
    ) -> list[int]:
        """Entries trimmed, streams evicted, and the age of each that was named."""
        keys = partition.keys
        args = (
            partition.epoch, partition.committed_seq, partition.committed_chain, journal_from, least_s, most,
        )  # fmt: skip
        reply = await self._scripts.run(
            "evict", (keys.meta, keys.journal, keys.heads, *keys.tags, *streams), args
        )
        return [0, 0] if reply[0] == b"FENCED" else reply[1:]

    # -- epochs that have ended

    async def _clear(self, partition: Partition, epoch: int) -> None:
        """Unlinks the epoch's keys but for the journal; its heads know the names. Raises RedisTrouble."""
        keys = partition.keys_in(epoch)
        until = self._loop.time() + _RELIEVE_S
        while self._loop.time() < until:
            begun = self._loop.time()
            look = await self._look(partition, keys, _SAMPLE, 0)
            if not look.named:
                await self._unlink(keys, epoch, "old", (keys.heads, keys.calls, *keys.identities, *keys.tags))
                return
            if not await self._unlink(keys, epoch, "streams", look.named):
                return
            self._metrics.streams_cleared.inc(len(look.named))
            await asyncio.sleep(_REST * (self._loop.time() - begun))

    async def _clear_journals(self, partition: Partition, look: Look) -> int:
        """Unlinks journals of epochs that ended, as the look found them old enough; how many."""
        if not look.old_journals or not self._may_forget(partition):
            return 0
        for epoch in look.old_journals:
            keys = partition.keys_in(epoch)
            await self._unlink(keys, epoch, "journals", (keys.journal,))
        return len(look.old_journals)

    def _may_forget(self, partition: Partition) -> bool:
        """Postgres is there, and has all that was seen committed. While it is away, perhaps to come back
        with less, nothing goes from which that could be repaired."""
        return partition.open and self._in_touch()

    async def _unlink(self, keys: PartitionKeys, epoch: int, what: str, names: Sequence[str | bytes]) -> bool:
        (answer,) = await self._scripts.run("clear", (keys.meta, keys.heads, *names), (epoch, what))
        return bool(answer == b"OK")


def _in_redis(partition: Partition) -> bool:
    """Whether it has keys of its epoch, in a Redis that answers."""
    return partition.epoch > 0 and not partition.direct and not partition.reach.failing
