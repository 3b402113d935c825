"""Several gateways before one Redis and one Postgres: what they carry, and what one that stops costs.

    python -m tests.bench.gateways [--seconds 5] [--rounds 3] [--connections 64] [--only PATTERN]

one            one gateway with all connections, all appends to one partition
even           two gateways on that partition, half of the connections each
skewed         the same, all but 4 and 4
four           four gateways on that partition, a quarter of the connections each
stopped        as `even`; one gateway is stopped (SIGSTOP) for a third of the time and then continues
tenants/one    one gateway with all connections, to 4 tenants of different partitions
tenants/two    two gateways, each with half of the connections of each tenant
tenants/apart  two gateways, each with all connections of two of the tenants

Two generators send, each half of the connections (but `skewed`, and `four` of them a quarter each), so that
rows differ in nothing else. Rounds go over all of them in turn. A row's ratio is to the row of one gateway in
the same round, of its rate and of the CPU of all servers for an append. `calls` are of the script that
sequences, how many appends each carried, and how many carried none; then the mean time of a call and of a
commit. `swaps` are commits that failed for one that succeeded; `standstill` is the longest time in which
nothing was committed; `cores` how many were busy.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import re
import signal
import statistics
import sys
import urllib.request
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import astuple, dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from uuid import UUID

import asyncpg

from gateway.catalog.bootstrap import bootstrap
from gateway.dev.prepare import bundled_spec
from gateway.partitions import partition_of
from tests.bench import machine, orders
from tests.bench.load import Traffic, drive
from tests.bench.machine import CORES
from tests.bench.measured import Measured
from tests.bench.stand import METRICS_TOKEN, Served, Stand, open_stand

FEW = 4
TENANTS = 4
STREAMS = 1000
WARM_UP_S = 1.0
LOOK_EVERY_S = 0.005


@dataclass(frozen=True, slots=True)
class Plan:
    """`connections` of each generator; each has a gateway of its own, if there are so many `gateways`.
    `tenants`: how many, each in a partition of its own; `apart`: each generator has its own share of them;
    `stops`: the last gateway stands still for the second third of the time. `to` is the row that its ratio is
    to."""

    name: str
    connections: tuple[int, ...]
    gateways: int = 2
    tenants: int = 1
    apart: bool = False
    stops: bool = False
    to: str = "one"

    def keys(self, keys: Sequence[str], generator: int) -> list[str]:
        """Those of its tenants."""
        return list(keys[generator :: len(self.connections)] if self.apart else keys)


def plans(connections: int) -> list[Plan]:
    halves = (connections // 2, connections // 2)
    return [
        Plan("one", halves, 1),
        Plan("even", halves),
        Plan("skewed", (connections - FEW, FEW)),
        Plan("four", (connections // 4,) * 4, 4),
        Plan("stopped", halves, stops=True),
        Plan("tenants/one", halves, 1, TENANTS, to="tenants/one"),
        Plan("tenants/two", halves, 2, TENANTS, to="tenants/one"),
        Plan("tenants/apart", halves, 2, TENANTS, apart=True, to="tenants/one"),
    ]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a plan came to in one round."""

    per_s: float
    each_per_s: tuple[float, ...]
    p99_ms: float
    calls_per_s: float
    appends_a_call: float
    empty_calls: float
    call_ms: float
    commit_ms: float
    failed_swaps: float
    standstill_ms: float
    cpu_us: dict[str, float]
    """Of an append, gateways together."""
    cores: float
    unexpected: str | None

    @property
    def servers_us(self) -> float:
        """CPU of an append, of all but the generators."""
        return sum(each for name, each in self.cpu_us.items() if name != "generator")


@dataclass(frozen=True, slots=True)
class Counts:
    """What a gateway has counted since its start, seconds and numbers."""

    calls: float
    calls_s: float
    carrying: float
    appends: float
    commits: float
    commits_s: float
    failed: float
    succeeded: float


async def measure(stand: Stand, plan: Plan, seconds: float, keys: dict[int, list[str]]) -> Outcome:
    """`keys` of so many tenants; they are made with the first plan that needs them."""

    async def prepare(postgres_url: str) -> None:
        keys[plan.tenants] = await _keys(postgres_url, plan.tenants)

    template = await stand.template(f"tenants_{plan.tenants}", prepare)
    async with stand.apart(plan.gateways, template) as gateways:
        sending = [
            (gateways[n % plan.gateways], plan.keys(keys[plan.tenants], n), connections)
            for n, connections in enumerate(plan.connections)
        ]
        pids = [pid for served in gateways for pid in served.pids]
        cpu = stand.cpu(pids)
        async with _watching(gateways[0].postgres_url) as looks:
            begun, busy = asyncio.get_running_loop().time(), _busy_s()
            cpu.start()
            stopping = _stop(gateways[-1], seconds) if plan.stops else asyncio.sleep(0)
            driving = asyncio.gather(
                *(
                    drive(_traffic(served, shown, connections, seconds), stand.cpu(list(served.pids)))
                    for served, shown, connections in sending
                )
            )
            measured, _ = await asyncio.gather(driving, stopping)
            used_s, ended, busy = cpu.stop(), asyncio.get_running_loop().time(), _busy_s() - busy
        counts = [await asyncio.to_thread(_counts, served) for served in gateways]
    during = [each for each in looks if begun < each[0] < ended]
    return _outcome(measured, used_s, busy / (ended - begun), counts, during)


def _outcome(
    measured: Sequence[Measured],
    used_s: dict[str, float],
    cores: float,
    counts: Sequence[Counts],
    looks: Sequence[tuple[float, int]],
) -> Outcome:
    each = [one.per_s for one in measured]
    committed = looks[-1][1] - looks[0][1]
    all_of_them = Counts(*(sum(column) for column in zip(*map(astuple, counts), strict=True)))
    appends_a_call = all_of_them.appends / all_of_them.carrying
    sent = sum(one.count for one in measured)
    generators_s = sum(one.cpu_us.get("generator", 0.0) * one.count for one in measured)
    cpu_us = {name: used / committed * 1e6 for name, used in used_s.items()}
    return Outcome(
        per_s=sum(each),
        each_per_s=tuple(each),
        p99_ms=max(one.latency_ms.get("p99", 0.0) for one in measured),
        calls_per_s=sum(each) / appends_a_call,
        appends_a_call=appends_a_call,
        empty_calls=all_of_them.calls / all_of_them.carrying - 1,
        call_ms=all_of_them.calls_s / all_of_them.calls * 1e3,
        commit_ms=all_of_them.commits_s / all_of_them.commits * 1e3,
        failed_swaps=all_of_them.failed / all_of_them.succeeded,
        standstill_ms=_standstill_s(looks) * 1e3,
        cpu_us=cpu_us | {"generator": generators_s / sent},
        cores=cores,
        unexpected=next((one.unexpected for one in measured if one.unexpected), None),
    )


def _busy_s() -> float:
    """Of all cores together, since the machine's start; 0 where the system does not tell."""
    try:
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    except OSError:
        return 0.0
    user, nice, system, _idle, _waiting, irq, softirq, *_ = map(int, fields)
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def _standstill_s(looks: Sequence[tuple[float, int]]) -> float:
    """Between the first commit and the last: what is before and after is the generators' start and end."""
    moved = [at for (at, seq), (_, before) in zip(looks[1:], looks, strict=False) if seq > before]
    return max((later - at for at, later in itertools.pairwise(moved)), default=0.0)


async def _stop(served: Served, seconds: float) -> None:
    await asyncio.sleep(WARM_UP_S + seconds / 3)
    for pid in served.pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        await asyncio.sleep(seconds / 3)
    finally:
        for pid in served.pids:
            os.kill(pid, signal.SIGCONT)


@asynccontextmanager
async def _watching(postgres_url: str) -> AsyncIterator[list[tuple[float, int]]]:
    """How many events were committed, and when that was seen, as long as this lasts."""
    looks: list[tuple[float, int]] = []
    loop = asyncio.get_running_loop()
    connection = await asyncpg.connect(postgres_url)

    async def look() -> None:
        while True:
            seq = await connection.fetchval("SELECT sum(seq)::int8 FROM partition_log")
            looks.append((loop.time(), seq))
            await asyncio.sleep(LOOK_EVERY_S)

    task = asyncio.create_task(look())
    try:
        yield looks
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        connection.terminate()


async def _keys(postgres_url: str, count: int) -> list[str]:
    """Of so many tenants, each in a partition of its own."""
    keys: list[str] = []
    taken: set[int] = set()
    connection = await asyncpg.connect(postgres_url)
    try:
        partitions = await connection.fetchval("SELECT partitions FROM instance")
        number = 0
        while len(keys) < count:
            number += 1
            name = f"bench-{number}"
            made = await bootstrap(
                postgres_url, tenant=name, spec_document=bundled_spec(), replace_spec=False, have_key=None
            )
            tenant = await connection.fetchval("SELECT id FROM tenant WHERE name = $1", name)
            partition = partition_of(UUID(str(tenant)).bytes, partitions)
            if partition not in taken:
                taken.add(partition)
                keys.append(made.key)
    finally:
        await connection.close()
    return keys


def _traffic(served: Served, keys: list[str], connections: int, seconds: float) -> Traffic:
    return Traffic(
        host=served.host,
        port=served.port,
        connections=max(connections, 1),
        seconds=seconds,
        warm_up_s=WARM_UP_S,
        paths=[orders.append_path(each) for each in orders.keys(STREAMS)],
        expected=(201,),
        first_pass=False,
        method="POST",
        headers={"Content-Type": "application/json"},
        keys=keys,
        body=orders.append_body(),
    )


def _counts(served: Served) -> Counts:
    request = urllib.request.Request(
        f"http://{served.host}:{served.port}/_/metrics",
        headers={"Authorization": f"Bearer {METRICS_TOKEN}"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        text = answer.read().decode()
    found = {name: float(value) for name, value in re.findall(r"^(\S+) (\S+)$", text, re.MULTILINE)}
    return Counts(
        calls=found["sluice_sequence_seconds_count"],
        calls_s=found["sluice_sequence_seconds_sum"],
        carrying=found["sluice_sequence_batch_appends_count"],
        appends=found["sluice_sequence_batch_appends_sum"],
        commits=found["sluice_commit_seconds_count"],
        commits_s=found["sluice_commit_seconds_sum"],
        failed=found['sluice_commit_swaps_total{result="failed"}'],
        succeeded=found['sluice_commit_swaps_total{result="succeeded"}'],
    )


def _median_of(ratios: Sequence[float]) -> str:
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})" if ratios else "–"


def _tell(plan: Plan, outcomes: dict[str, list[Outcome]]) -> str:
    mine, base = outcomes[plan.name], outcomes.get(plan.to, [])
    median = sorted(mine, key=lambda each: each.per_s)[len(mine) // 2]
    pairs = list(zip(mine, base, strict=False))
    rate = _median_of([each.per_s / one.per_s for each, one in pairs])
    dearer = _median_of([each.servers_us / one.servers_us for each, one in pairs])
    shares = " + ".join(f"{each:,.0f}" for each in median.each_per_s)
    cpu = ", ".join(f"{name} {each:.0f}" for name, each in median.cpu_us.items())
    return (
        f"{plan.name:13} {median.per_s:>7,.0f}/s ({shares}); ratio {rate}, of CPU {dearer}; "
        f"p99 {median.p99_ms:.0f} ms; calls {median.calls_per_s:,.0f}/s of {median.appends_a_call:.1f} "
        f"(+ {median.empty_calls:.0%} empty), {median.call_ms:.1f} ms + {median.commit_ms:.1f} ms; "
        f"swaps {median.failed_swaps:.2f}; standstill {median.standstill_ms:.0f} ms; "
        f"CPU µs {cpu}; cores {median.cores:.2f}"
    )


async def _main(options: argparse.Namespace) -> int:
    chosen = [
        plan
        for plan in plans(options.connections)
        if any(fnmatchcase(plan.name, each) for each in options.only)
    ]
    keys: dict[int, list[str]] = {}
    outcomes: dict[str, list[Outcome]] = {plan.name: [] for plan in chosen}
    async with open_stand(len(CORES)) as stand:  # no process is confined
        for name, value in (await machine.describe(stand.servers)).items():
            print(f"{name}: {value}")
        for number in range(options.rounds):
            for plan in chosen:
                outcome = await measure(stand, plan, options.seconds, keys)
                outcomes[plan.name].append(outcome)
                print(f"{number + 1} {plan.name}: {outcome.per_s:,.0f}/s", file=sys.stderr, flush=True)
    for plan in chosen:
        print(_tell(plan, outcomes))
    wrong = [each.unexpected for of in outcomes.values() for each in of if each.unexpected]
    for each in wrong:
        print(f"unexpected: {each[:300]}")
    return int(bool(wrong))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="tests.bench.gateways")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--only", action="append")
    given = parser.parse_args()
    given.only = given.only or ["*"]
    sys.exit(asyncio.run(_main(given)))
