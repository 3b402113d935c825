"""How fast projections are built: `python -m tests.bench.projections [EVENTS] [ROWS] [PROJECTIONS]`.

Events are put into the outbox by SQL, since only what reads them is measured: one process with a runner, a
Postgres and nothing else. Prints events a second until all serve, and the process' memory.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from typing import Any

import asyncpg

from gateway.catalog import specs, tenants
from gateway.catalog.migrate import migrate
from gateway.follow.declarations import Declarations
from gateway.follow.runner import Runner
from gateway.log.epoch.partition import partition_of
from gateway.log.epoch.settling import settling_without_log
from gateway.log.postgres import Postgres, open_pool
from gateway.relay.outbox import Outbox
from tests.support.servers import open_folder, servers_in

PARTITIONS = 16

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


async def run(events: int, rows: int, projections: int) -> None:
    with open_folder() as folder:
        servers = servers_in(folder)
        await servers.start()
        try:
            url = servers.database_url("postgres")
            await migrate(url, PARTITIONS)
            pool = await open_pool(url, 6, 600.0)
            tenant = await tenants.create(pool, "main")
            p = partition_of(tenant.id.bytes, PARTITIONS)
            await pool.execute(FILL, p, tenant.id, events, rows, timeout=600)
            await pool.execute("VACUUM ANALYZE outbox", timeout=600)
            await specs.deploy(pool, tenant.id, json.dumps(spec(projections)).encode(), {})
            postgres = Postgres(pool, 60.0)
            async with settling_without_log(url, postgres, 60.0) as settling:
                outbox = Outbox(postgres, PARTITIONS, settling.stands)
                await measure(pool, outbox, events, rows, projections)
            await pool.close()
        finally:
            servers.close()


async def measure(pool: asyncpg.Pool, outbox: Outbox, events: int, rows: int, projections: int) -> None:
    runner = Runner(pool, outbox, Declarations(pool, outbox), 6.0)
    began, cpu = time.perf_counter(), time.process_time()
    await runner.start()
    serving = 0
    while serving < projections:
        await asyncio.sleep(0.2)
        serving = await pool.fetchval("SELECT count(*) FROM follower WHERE state = 'serving'")
    took = time.perf_counter() - began
    await runner.stop()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    share = (time.process_time() - cpu) / took
    print(
        f"{events:,} events into {rows:,} rows, {projections} projections: {events / took:,.0f} events/s, "
        f"{took:.1f} s, {100 * share:.0f} % of a core here, {memory:.0f} MB",
        flush=True,
    )


if __name__ == "__main__":
    asyncio.run(run(*(int(each) for each in [*sys.argv[1:], "200000", "20000", "1"][:3])))
