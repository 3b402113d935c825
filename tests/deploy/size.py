"""What an event costs in Redis and in Postgres, on the embedded servers, appended through the log.

python -m tests.deploy.size
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import time
from typing import Any

from redis.asyncio import Redis

from gateway.catalog.migrate import migrate
from tests.support.drive import Place, append, appended, event, new_stream, new_tenant, open_gateway
from tests.support.servers import DISK, Servers, open_folder, servers_in

EVENTS = 20_000
PAYLOAD = b'{"sku":"%b"}' % (b"x" * 282)
"""292 bytes of data."""


async def main() -> None:
    with open_folder(DISK) as folder:
        servers = servers_in(folder)
        try:
            await servers.start()
            await migrate(servers.postgres_url, 16)
            await _say_where(servers)
            for events_a_stream in (1, 10, 100):
                print(await _measure(servers, events_a_stream))
        finally:
            servers.close()


async def _say_where(servers: Servers) -> None:
    async with Redis.from_url(servers.redis_url, decode_responses=True) as redis:
        version = (await redis.info("server")).get("valkey_version", "?")
    (postgres,) = await Place(servers.postgres_url, servers.redis_url).fetch("SHOW server_version")
    where = f"{os.cpu_count()} cores, {platform.platform()}, Python {platform.python_version()}"
    print(f"{time.strftime('%Y-%m-%d')}, {where}, Valkey {version}, PostgreSQL {postgres[0]}")
    print(f"{EVENTS} events of {len(PAYLOAD)} B, each an append with an Idempotency-Key")


async def _measure(servers: Servers, events_a_stream: int) -> str:
    place = Place(servers.postgres_url, servers.redis_url)
    await place.execute("TRUNCATE outbox, append_identity, event_tag, partition_mark")
    await place.execute("UPDATE partition_log SET seq = 0, chain = ''")
    await place.execute("UPDATE instance SET id = gen_random_uuid()")
    gateway = await open_gateway(place)
    async with Redis.from_url(servers.redis_url) as redis:
        await redis.flushall()
        tenant = new_tenant()
        streams = [new_stream(tenant) for _ in range(EVENTS // events_a_stream)]
        for _ in range(events_a_stream):
            for first in range(0, len(streams), 500):
                batch = [_append(stream) for stream in streams[first : first + 500]]
                await appended(gateway.log, *batch)
        parts = {name: await _memory(redis, f"*:{name}*") for name in ("s", "j", "i", "h")}
    await gateway.close()
    (sizes,) = await place.fetch(
        "SELECT pg_total_relation_size('outbox'), pg_total_relation_size('append_identity')"
    )
    stream, journal, identities, heads = (round(parts[name] / EVENTS) for name in ("s", "j", "i", "h"))
    outbox, claims = (round(size / EVENTS) for size in sizes)
    return (
        f"{events_a_stream:>4} events a stream: Redis {stream} B an event in streams, {heads} in heads, "
        f"{journal} in journals, {identities} in identities; Postgres {outbox} B in outbox, {claims} in "
        "append_identity"
    )


def _append(stream: Any) -> Any:
    return append(stream, events=(event(None, PAYLOAD),), key=os.urandom(8))


async def _memory(redis: Redis, pattern: str) -> int:
    total = 0
    async for key in redis.scan_iter(match=pattern, count=1000):
        total += await redis.memory_usage(key, samples=0) or 0
    return total


if __name__ == "__main__":
    argparse.ArgumentParser(prog="python -m tests.deploy.size", description=__doc__).parse_args()
    asyncio.run(main())
