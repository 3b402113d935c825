"""What a gateway costs at rest, and what admin calls take, beside tables that have grown.

    python -m tests.growth [--events 1000000] [--aggregates 100000] [--subscriptions 200]
                           [--quarantined 100000] [--idle 30] [--calls 20]

Tables are filled by SQL. Every subscription pulls, stands at the beginning and lags behind all events. Prints
the CPU of gateway, Redis and Postgres over the idle seconds, in percent of a core, then p50 and p99 of each
call. Exit code 1 where a call is not answered with a 200.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from functools import partial
from uuid import UUID

import asyncpg
import httpx

from gateway.partitions import partition_of
from gateway.relay.position import START
from tests.bench.stand import TENANT, open_stand
from tests.bench.stored import fill

_SUBSCRIBE = """
INSERT INTO subscription (tenant, name, kind, declared, document, types, event_types, p, seq, mark)
SELECT $1, 's' || n, 'pull', false, convert_to('{"target":{"type":"pull"},"start":"beginning"}', 'UTF8'),
    NULL, NULL, $2, 0, $4 FROM generate_series(1, $3::int) n
"""
_QUARANTINE = """
INSERT INTO webhook_delivery (id, tenant, source, delivery_id, digest, request, item, verdict, received_at,
    took_ms, secret)
SELECT id, $1, 's', n::text, '\\x', id, 0, 'quarantined', now() - interval '40 days', 1, 1
FROM (SELECT n, ('018f0000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid AS id
    FROM generate_series(1, $2::int) n) each
"""
CALLS = (
    ("GET", "/_/subscriptions"), ("GET", "/_/subscriptions/s1"), ("PUT", "/_/subscriptions/s2"),
    ("GET", "/_/spec"), ("GET", "/_/openapi.json"), ("GET", "/_/feed?limit=100"), ("GET", "/_/health/ready"),
)  # fmt: skip


async def _fill(url: str, wanted: argparse.Namespace) -> None:
    await fill(url, wanted.events, wanted.aggregates)
    connection = await asyncpg.connect(url)
    try:
        tenant: UUID = await connection.fetchval("SELECT id FROM tenant WHERE name = $1", TENANT)
        p = partition_of(tenant.bytes, await connection.fetchval("SELECT partitions FROM instance"))
        await connection.execute(_SUBSCRIBE, tenant, p, wanted.subscriptions, START.at(p).mark)
        await connection.execute(_QUARANTINE, tenant, wanted.quarantined)
    finally:
        await connection.close()


async def _timed(client: httpx.AsyncClient, method: str, path: str, calls: int) -> int:
    """Prints a line; the last status."""
    took, status = [], 0
    body = {"target": {"type": "pull"}} if method == "PUT" else None
    for _ in range(calls):
        began = time.perf_counter()
        answer = await client.request(method, path, json=body)
        took.append((time.perf_counter() - began) * 1000)
        status = answer.status_code
    took.sort()
    p50, p99 = took[len(took) // 2], took[min(len(took) - 1, len(took) * 99 // 100)]
    print(f"{method} {path:<28} {status}  p50 {p50:8.1f} ms  p99 {p99:8.1f} ms", flush=True)
    return status


async def _run(wanted: argparse.Namespace) -> int:
    async with open_stand(1) as stand:
        template = await stand.template("grown", partial(_fill, wanted=wanted))
        async with stand.gateway(template=template) as served:
            served.cpu.start()
            await asyncio.sleep(wanted.idle)
            used = served.cpu.stop()
            shares = ", ".join([f"{name} {used[name] / wanted.idle:.1%}" for name in used])
            print(f"idle for {wanted.idle} s, of a core: {shares}", flush=True)
            url, headers = f"http://{served.host}:{served.port}", {"Authorization": f"Bearer {stand.key}"}
            async with httpx.AsyncClient(base_url=url, headers=headers, timeout=30) as client:
                told = [await _timed(client, *call, wanted.calls) for call in CALLS]
            return int(any(status != 200 for status in told))


def _main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.growth")
    for name, default in (
        ("events", 1_000_000), ("aggregates", 100_000), ("subscriptions", 200), ("quarantined", 100_000),
        ("idle", 30), ("calls", 20),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=default)
    return asyncio.run(_run(parser.parse_args(argv)))


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
