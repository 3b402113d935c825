"""How fast projections are built: `python -m tests.bench.projections [EVENTS] [ROWS] [PROJECTIONS]`; and how
soon a live reader of a list has what was appended: `python -m tests.bench.projections live [APPENDS_A_SECOND]
[SECONDS]`.

Events are put into the outbox by SQL, since only what reads them is measured: one process with a runner, a
Postgres and nothing else. Prints events a second until all serve, the CPU time of an event (which says more
where other work uses the cores too), and the process' memory.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
import uuid
from dataclasses import dataclass
from typing import Any

import asyncpg
import httpx
import uvloop

from gateway.aside import SWITCH_S
from gateway.catalog import specs, tenants
from gateway.catalog.migrate import migrate
from gateway.collector import rarely_collect
from gateway.follow.declarations import Declarations
from gateway.follow.runner import Runner
from gateway.log.epoch.settling import settling_without_log
from gateway.log.postgres import Postgres, open_pool
from gateway.partitions import partition_of
from gateway.relay.outbox import Outbox
from tests.bench.cpu import CpuMeter
from tests.support.accounts import open_account
from tests.support.servers import Servers, open_folder, servers_in
from tests.support.serving import child_serving

PARTITIONS = 16
WRITERS = 16

FILL = """
WITH made AS (
    INSERT INTO outbox (p, seq, version, recorded_at, id, tenant, correlation_id, spec_rev, append_id, digest,
        aggregate_type, aggregate_id, type, actor_type, actor_id, payload)
    SELECT $1, n, 1, timestamptz 'epoch' + n * interval '1 s', gen_random_uuid(), $2, gen_random_uuid(), 1,
        uuid_send(gen_random_uuid()), sha256(n::text::bytea), 'order', gen_random_uuid()::text, 'was_placed',
        'user', 'global', convert_to(format(
            '{"customer_id":"a0000000-0000-4000-a000-%s","total":%s,"currency":"EUR"}',
            lpad((n * 7919 % $4)::text, 12, '0'), n % 100), 'UTF8')
    FROM generate_series(1, $3::bigint) n
)
UPDATE partition_log SET seq = $3 WHERE p = $1
"""


def spec(projections: int) -> dict[str, Any]:
    do = [{"increment": {"target": "orders"}}, {"increment": {"target": "spent", "value": "$.data.total"}}]
    one = {"on": {"order.was_placed": {"key": "$.data.customer_id", "do": do}}, "by": ["spent"]}
    return {
        "aggregate_types": {"order": {"events": {"was_placed": {"schema": {}}}}},
        "agent_types": ["user"],
        "projections": {f"p{n}": one for n in range(projections)},
    }


@dataclass(frozen=True, slots=True)
class Built:
    """Of builds that all serve: how long they took, and the CPU time of this process and of Postgres."""

    events: int
    seconds: float
    cpu_s: float
    postgres_cpu_s: float

    def __str__(self) -> str:
        cpu_us, postgres_us = 1e6 * self.cpu_s / self.events, 1e6 * self.postgres_cpu_s / self.events
        return (
            f"{self.events / self.seconds:,.0f} events/s; for an event {cpu_us:.0f} µs of CPU here, "
            f"{postgres_us:.0f} µs in Postgres"
        )


async def build(servers: Servers, url: str, events: int, rows: int, projections: int) -> Built:
    """In an empty database."""
    await migrate(url, PARTITIONS)
    pool = await open_pool(url, 6, 600.0)
    tenant = await tenants.create(pool, "main")
    p = partition_of(tenant.id.bytes, PARTITIONS)
    await pool.execute(FILL, p, tenant.id, events, rows, timeout=600)
    await pool.execute("VACUUM ANALYZE outbox", timeout=600)
    await specs.deploy(pool, tenant.id, json.dumps(spec(projections)).encode(), {})
    postgres = Postgres(pool, 60.0)
    assert servers.postgres.pid is not None
    meter = CpuMeter({"postgres": [servers.postgres.pid]})
    async with settling_without_log(url, postgres, 60.0) as settling:
        outbox = Outbox(postgres, PARTITIONS, settling.stands)
        runner = Runner(pool, outbox, Declarations(pool, outbox), 6.0)
        meter.start()
        began, cpu = time.perf_counter(), time.process_time()
        await runner.start()
        serving = 0
        while serving < projections:
            await asyncio.sleep(0.1)
            serving = await pool.fetchval("SELECT count(*) FROM follower WHERE state = 'serving'")
        took, used = time.perf_counter() - began, time.process_time() - cpu
        built = Built(events, took, used, meter.stop().get("postgres", 0.0))
        await runner.stop()
    await pool.close()
    return built


async def run(events: int, rows: int, projections: int) -> None:
    with open_folder() as folder:
        servers = servers_in(folder)
        await servers.start()
        try:
            built = await build(servers, servers.database_url("postgres"), events, rows, projections)
        finally:
            servers.close()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    told = f"{events:,} events into {rows:,} rows, {projections} projections"
    print(f"{told}: {built}; {built.seconds:.1f} s, {memory:.0f} MB", flush=True)


LIVE_SPEC: dict[str, Any] = {
    "aggregate_types": {
        "order": {"events": {"was_placed": {"schema": {}}}, "list": {"by": ["total"]}},
    },
    "agent_types": ["user"],
}


async def run_live(rate: int, seconds: int) -> None:
    """Milliseconds from the answer to an append until a live reader of the list has the row."""
    with open_folder() as folder:
        servers = servers_in(folder)
        await servers.start()
        try:
            await migrate(servers.postgres_url, PARTITIONS)
            async with asyncpg.create_pool(servers.postgres_url, min_size=0, max_size=2) as pool:
                account = await open_account(pool, LIVE_SPEC)
            async with child_serving(servers.postgres_url, servers.redis_url, folder) as child:
                headers = {"authorization": f"Bearer {account.admin}"}
                async with httpx.AsyncClient(
                    base_url=child.served.url, headers=headers, timeout=30, trust_env=False
                ) as client:
                    await _measure_live(client, rate, seconds)
        finally:
            servers.close()


async def _measure_live(client: httpx.AsyncClient, rate: int, seconds: int) -> None:
    answered: dict[str, float] = {}
    seen: dict[str, float] = {}

    async def read() -> None:
        accept = {"accept": "text/event-stream"}
        async with client.stream("GET", "/order?wait=10", headers=accept) as response:
            assert response.status_code == 200, response.status_code
            async for line in response.aiter_lines():
                if line.startswith("data: "):
                    seen.setdefault(json.loads(line[6:])["key"], time.perf_counter())

    async def write(number: int) -> None:
        while time.perf_counter() < until:
            began, key = time.perf_counter(), str(uuid.uuid4())
            body = {"data": {"total": number}, "metadata": {"actor": {"type": "user", "id": "global"}}}
            response = await client.post(f"/order/{key}/was_placed", json=body)
            assert response.status_code == 201, response.text
            answered[key] = time.perf_counter()
            await asyncio.sleep(max(WRITERS / rate - (time.perf_counter() - began), 0))

    until = time.perf_counter() + seconds
    reader = asyncio.create_task(read())
    await asyncio.sleep(1)
    await asyncio.gather(*(write(number) for number in range(WRITERS)))
    await asyncio.sleep(2)
    reader.cancel()
    waits = sorted(1000 * (seen[key] - at) for key, at in answered.items() if key in seen)
    print(
        f"{len(answered) / seconds:,.0f} appends/s, {len(waits):,} of {len(answered):,} seen live: "
        f"p50 {waits[len(waits) // 2]:.1f} ms, p99 {waits[int(len(waits) * 0.99)]:.1f} ms",
        flush=True,
    )


def numbers(given: list[str], *defaults: int) -> list[int]:
    """Those given, then the defaults of the places behind them."""
    return [int(each) for each in given] + list(defaults[len(given) :])


if __name__ == "__main__":
    if sys.argv[1:2] == ["live"]:
        uvloop.run(run_live(*numbers(sys.argv[2:], 500, 10)))
        sys.exit()
    sys.setswitchinterval(SWITCH_S)
    rarely_collect()  # as `sluice relay` does
    uvloop.run(run(*numbers(sys.argv[1:], 200_000, 20_000, 1)))
