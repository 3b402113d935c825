"""One episode: fresh servers, clients and faults for a while, then rest, then the check.

Everything of it follows from its seed, as far as processes on a real clock can be made to follow anything.
"""

from __future__ import annotations

import asyncio
import random
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg
import msgspec
from redis.exceptions import RedisError

from tests.faults.checker import RECOVERY_S, Violation, check, without_cpu
from tests.faults.cluster import Cluster
from tests.faults.cpu_wait import CpuWait
from tests.faults.evidence import Evidence, gather, read_meta
from tests.faults.gateway_at import SERVE, Earlier
from tests.faults.history import History, Recovery, Sample, now
from tests.faults.nemesis import Nemesis
from tests.faults.slow_postgres import DISK_FULL, DISK_SLOW
from tests.faults.webhooks import receivers
from tests.faults.workload import Workload
from tests.support.bugs import bugs_in
from tests.support.servers import open_folder

SAMPLE_EVERY_S = 0.25
_STANDS = "SELECT p, epoch, seq, chain, mode = 'direct' FROM partition_log"
REST_S = 15.0
"""For q = c after the faults; more than the promise, to be able to say how much more."""
VIOLATIONS_TOLD_MAX = 20

# Small windows and short deadlines bring out what large ones hide for hours.
SETTINGS: dict[str, tuple[str, ...]] = {
    "SLUICE_APPEND_DEADLINE_S": ("2", "4", "10"),
    "SLUICE_REDIS_TIMEOUT_S": ("0.3", "0.5", "2"),
    "SLUICE_IDENTITY_WINDOW": ("20", "300", "20000"),
    "SLUICE_INFLIGHT_EVENTS_MAX": ("20", "200", "10000"),
    "SLUICE_SEQUENCE_APPENDS_MAX": ("2", "16", "250"),
    "SLUICE_COMMIT_ROWS_MAX": ("20", "500"),
    "SLUICE_JOURNAL_RETENTION_S": ("0", "1", "600"),
    "SLUICE_STREAM_TAIL": ("2", "8", "256"),
    "SLUICE_REDIS_BYTES_MAX": ("", "1048576"),  # less than an empty Redis takes: eviction never ends
    "SLUICE_DIRECT_AFTER_S": ("0.1", "0.5", "1"),
    "SLUICE_REDIS_RECOVERY_S": ("1",),
}


SAME = {"SLUICE_SHUTDOWN_GRACE_S": "5", "SLUICE_RELAY_LEASE_S": "1", "SLUICE_ALLOW_PRIVATE_TARGETS": "on"}
"""In every episode."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What an episode is to be. `argv` starts a gateway; `check_every_s` looks for violations while it runs,
    and ends it at the first."""

    seed: int
    seconds: float
    gateways: int
    faults: tuple[str, ...]
    argv: Sequence[str] = SERVE
    check_every_s: float | None = None
    digests: bool = True
    harm: frozenset[str] | None = None
    """The kinds of violations that count; None: all."""
    spread: bool = False
    """Over a Redis Cluster of three masters with a replica each, instead of a pair."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Of the gateways, instead of those that the seed chooses."""
    standby: str = ""
    """That Postgres has: SYNCHRONOUS, ASYNCHRONOUS, PATRONI, or none."""
    keeps: bool = True
    """Whether everything is kept where there is a violation."""
    earlier: Earlier | None = None
    """The release that half of the gateways begin as."""

    @property
    def partitions(self) -> int:
        """Few: they are busy. Many: each stands still for moments at a time."""
        return random.Random(f"{self.seed}/partitions").choice((6, 14) if self.spread else (2, 5, 14))


@dataclass(slots=True)
class Result:
    """What came of it. `seconds` is how long it ran, up to the violation where there was one."""

    seed: int
    seconds: float
    settings: dict[str, str]
    operations: dict[str, Counter[str]]
    """By kind, how many of each verdict."""
    answers: Counter[str]
    reads: Counter[str]
    faults: Counter[str]
    recoveries: list[Recovery]
    rested_s: float | None
    """From the last fault to q = c everywhere; None where it never came to that."""
    events: int
    quarantined: int
    violations: list[Violation] = field(default_factory=list)
    starved_s: float = 0.0
    """Of `rested_s`, how long the rig had no CPU because of other programs."""
    told: list[str] = field(default_factory=list)
    """What was done exactly, fault by fault."""
    folder: str | None = None
    """Where everything was kept, if there was a violation."""


async def run_episode(plan: Plan) -> Result:
    """Raises what the rig itself fails at; a violation is a result."""
    with open_folder() as folder:
        cluster = await Cluster.prepare(
            folder, plan.partitions, spread=plan.spread, standby=plan.standby,
            small_disk=DISK_FULL in plan.faults, flushes=DISK_SLOW in plan.faults, earlier=plan.earlier,
        )  # fmt: skip
        episode = _Episode(plan, cluster)
        try:
            result = await episode.run()
            cluster.keeps = bool(result.violations) and plan.keeps
        finally:
            await cluster.close()
        if result.violations and plan.keeps:
            result.folder = str(episode.keep(folder, result))
    return result


class _Episode:
    def __init__(self, plan: Plan, cluster: Cluster) -> None:
        self._plan = plan
        self._cluster = cluster
        self._history = History()
        self._loop = asyncio.get_running_loop()
        self._starved_s = 0.0
        """From the last fault to the rest, how long the rig had no CPU because of other programs."""
        rng = random.Random(f"{plan.seed}/settings")
        self._settings = {name: rng.choice(choices) for name, choices in SETTINGS.items()}
        self._settings |= {**SAME, **plan.settings}

    async def run(self) -> Result:
        await self._cluster.start_gateways(self._plan.gateways, self._plan.argv, self._settings)
        async with receivers(self._cluster, self._plan.seed) as self._receivers:
            return await self._run()

    async def _run(self) -> Result:
        plan = self._plan
        workload = Workload(self._cluster, self._history, plan.seed)
        nemesis = Nemesis(self._cluster, self._history, plan.seed, plan.faults, workload.forget)
        begun = now()
        sampling = self._loop.create_task(self._sample())
        attack = self._loop.create_task(nemesis.run(begun + plan.seconds))
        workload.start()
        try:
            violations = await self._watch(attack, workload)
            seconds = now() - begun
            if violations:
                evidence, rested_s = await gather(self._cluster, with_redis=False), None
            else:
                evidence, rested_s = await self._rest(workload)
                violations = self._check(evidence, rested_s)
        finally:
            for task in (attack, sampling):
                task.cancel()
            await asyncio.gather(attack, sampling, workload.end(), return_exceptions=True)
        return self._result(seconds, rested_s, evidence, violations)

    async def _rest(self, workload: Workload) -> tuple[Evidence, float | None]:
        """What there is once all clients have ended; and how long after the last fault Redis and
        Postgres stood at the same place, None where they never did."""
        last = self._history.recoveries[-1]
        waiting = CpuWait.begin()
        rested_s, _ = await asyncio.gather(self._equal(last.at), workload.stop())
        self._starved_s = last.starved_s + waiting.because_of_others_s()
        await self._equal(now())  # the last clients are gone only now
        evidence = await gather(self._cluster, with_redis=True)
        await self._receivers.until_all(evidence.rows)
        return evidence, rested_s

    def _check(self, evidence: Evidence, rested_s: float | None) -> list[Violation]:
        violations = self._found(self._history, evidence, whole=True)
        if self._plan.harm is None:
            violations += [Violation("bug", line) for line in bugs_in(self._cluster.folder)]
        if rested_s is None or rested_s - self._starved_s > RECOVERY_S:
            told = f"q = c only after {rested_s:.1f} s" if rested_s else f"q = c not within {REST_S} s"
            violations.append(Violation("stuck", told + without_cpu(self._starved_s)))
        return violations

    def _found(self, history: History, evidence: Evidence, *, whole: bool) -> list[Violation]:
        """`whole`: nothing more is to come."""
        harm = self._plan.harm
        partitions = [tenant.partition for tenant in self._cluster.tenants]
        found = check(history, evidence, digests=self._plan.digests, partitions=partitions)
        given_up = frozenset(p for back in history.set_backs for p in back.given_up)
        given = self._receivers.found(evidence.rows, whole=whole, but=given_up)
        found += [Violation(*each) for each in given]
        return [each for each in found if harm is None or each.kind in harm]

    async def _watch(self, attack: asyncio.Task[None], workload: Workload) -> list[Violation]:
        """Until the attack is over; violations if they show before."""
        plan, due = self._plan, now()
        while True:
            due += plan.check_every_s or plan.seconds
            while not attack.done() and now() < due:
                await asyncio.wait((attack,), timeout=0.5)
                if workload.broken is not None:
                    raise workload.broken
            if attack.done():
                attack.result()
                return []
            if plan.check_every_s is not None and self._history.mended:
                cutoff = now()
                try:
                    evidence = await gather(self._cluster, with_redis=False)
                except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                    continue  # Postgres is down just now
                found = self._found(self._history.until(cutoff), evidence, whole=False)
                if found and self._history.mended:
                    return found

    async def _sample(self) -> None:
        while True:
            try:
                connection = await asyncpg.connect(self._cluster.postgres_url, timeout=2)
                led = len(self._history.set_backs)
                try:
                    # The Postgres that gateways were led away from may live, and would be sampled.
                    while led == len(self._history.set_backs):
                        for row in await connection.fetch(_STANDS):
                            self._history.samples.append(Sample(now(), *row))
                        await asyncio.sleep(SAMPLE_EVERY_S)
                finally:
                    connection.terminate()
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
                await asyncio.sleep(SAMPLE_EVERY_S)

    async def _equal(self, healed: float) -> float | None:
        """Seconds from then until Redis and Postgres stand at the same place in every partition."""
        connection = await asyncpg.connect(self._cluster.postgres_url)
        redis = self._cluster.redis.client(self._cluster.redis.master)
        try:
            while now() < healed + REST_S:
                rows = await connection.fetch(_STANDS)
                resting = 0
                for row in rows:
                    meta = await read_meta(redis, self._cluster, row["p"])
                    here = None if meta is None else (meta.epoch, meta.q, meta.c, meta.chain_at_c)
                    resting += here == (row["epoch"], row["seq"], row["seq"], row["chain"])
                if resting == self._cluster.partitions:
                    return now() - healed
                await asyncio.sleep(0.05)
        except RedisError:
            return None
        finally:
            await redis.aclose()
            await connection.close()
        return None

    def _result(
        self,
        seconds: float,
        rested_s: float | None,
        evidence: Evidence,
        violations: list[Violation],
    ) -> Result:
        operations: dict[str, Counter[str]] = {}
        answers: Counter[str] = Counter()
        for each in self._history.operations:
            operations.setdefault(each.kind, Counter())[each.verdict.value] += 1
            answers.update(f"{one.status} {one.code}".strip() if one.status else "none" for one in each.tries)
        reads = Counter(each.what for each in self._history.observations)
        reads.update({f"refused: {why}": count for why, count in self._history.reads_refused.items()})
        faults = Counter(each.name for each in self._history.faults)
        return Result(
            self._plan.seed, seconds, self._settings, operations, answers, reads, faults,
            self._history.recoveries, rested_s, len(evidence.rows), len(evidence.quarantined), violations,
            self._starved_s, [f"{each.name}: {each.told}" for each in self._history.faults],
        )  # fmt: skip

    def keep(self, folder: Path, result: Result) -> Path:
        """Moves everything aside: servers' files, logs, the history and what was wrong with it."""
        kept = folder.with_name(f"{folder.name}-seed-{self._plan.seed}")
        shutil.move(folder, kept)
        (kept / "history.json").write_bytes(msgspec.json.encode(self._history, enc_hook=str))
        lines = (f"{kind}: {told}" for kind, told in result.violations)
        (kept / "violations.txt").write_text("\n".join(lines) + "\n")
        return kept
