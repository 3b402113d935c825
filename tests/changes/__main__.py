"""Twelve incompatible changes of a spec, each deployed beside 100,000 stored events.

    python -m tests.changes [--events 100000] [--limit-s 10]

Prints what is in the way of each, and how long its refusal and its deployment with force took. Exit 0: each
was refused for what it changes, within the limit, and deployed with force.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import time
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import asyncpg
import httpx

from gateway.catalog.migrate import migrate
from gateway.config import Config
from gateway.partitions import partition_of
from tests.changes.twelve import NAMED, TWELVE, append_what_is_in_the_way
from tests.support.accounts import Account, open_account
from tests.support.calls import new_client
from tests.support.servers import open_folder, servers_in
from tests.support.serving import serving

PARTITIONS = 16
FILL = """
INSERT INTO outbox (p, seq, version, recorded_at, id, tenant, correlation_id, spec_rev, append_id, digest,
                    aggregate_type, aggregate_id, type, actor_type, actor_id, payload)
SELECT $2, 1000000 + n, 1, now(), gen_random_uuid(), $1, gen_random_uuid(), 1, '', '', 'order',
       gen_random_uuid()::text, 'was_placed', 'user', 'global',
       convert_to('{"total": ' || n || ', "status": "new", "note": ""}', 'UTF8')
FROM generate_series(1, $3::int) AS n
"""
"""Behind all that was appended, so that what is rare is the oldest."""


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.changes", description=__doc__.partition("\n")[0])
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--limit-s", type=float, default=10.0)
    asked = parser.parse_args(argv)
    return asyncio.run(_run(asked.events, asked.limit_s))


async def _run(events: int, limit_s: float) -> int:
    with open_folder() as folder, contextlib.closing(servers_in(folder)) as servers:
        await servers.start()
        await migrate(servers.postgres_url, PARTITIONS)
        async with asyncpg.create_pool(servers.postgres_url, min_size=1, max_size=1) as pool:
            account = await open_account(pool, NAMED)
            config = Config(redis_url=servers.redis_url, postgres_url=servers.postgres_url)
            async with serving(config) as served, new_client(served.url, account.admin) as client:
                client.timeout = httpx.Timeout(60)
                stored = await append_what_is_in_the_way(client)
                await _fill(pool, account, events - stored)
                return await _changes(client, limit_s)


async def _fill(pool: asyncpg.Pool, account: Account, events: int) -> None:
    await pool.execute(FILL, account.id, partition_of(UUID(account.id).bytes, PARTITIONS), events)
    await pool.execute("ANALYZE outbox")


async def _changes(client: httpx.AsyncClient, limit_s: float) -> int:
    wrong = 0
    for name, (spec, pointer) in TWELVE.items():
        refused, took = await _timed(client, spec)
        forced, took_by_force = await _timed(client, {"spec": spec, "force": True})
        back, _ = await _timed(client, {"spec": NAMED, "force": True})
        conflicts = refused.json().get("conflicts", [])
        held = (
            refused.status_code == 409
            and [each["pointer"] for each in conflicts] == [pointer]
            and took < limit_s
            and forced.status_code == back.status_code == 200
            and forced.json()["changed"]
        )
        wrong += not held
        print(
            f"{'ok' if held else 'WRONG'}  {name}: refused in {took:.2f} s, by force in {took_by_force:.2f} s"
        )
        for each in conflicts:
            print(f"      {each['pointer']}: {each['error']}", flush=True)
    print(f"{len(TWELVE) - wrong} of {len(TWELVE)} as they should be")
    return 1 if wrong else 0


async def _timed(client: httpx.AsyncClient, document: Any) -> tuple[httpx.Response, float]:
    began = time.perf_counter()
    answer = await client.put("/_/spec", json=document)
    return answer, time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
