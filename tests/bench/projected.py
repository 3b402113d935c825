"""What projections cost appends.

    python -m tests.bench.projected [--seconds 3] [--rounds 1] [--only PATTERN] [--json FILE]

projected/0, projected/1, projected/5    appends to 1,000 aggregates, as append/streams, where so many
                                         projections of two increments follow them in the same gateway
projected/apart                          as projected/1, followed in `sluice relay`, a process of its own

Names end in the number of connections. CPU is that of an append in each process; how many events a projection
is behind at the end is printed for each: what it has not folded is not in its CPU.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import asyncpg

from gateway.dev.prepare import bundled_spec
from tests.bench import orders
from tests.bench.http_load import deploy, post
from tests.bench.measured import Measured
from tests.bench.stand import POLL_S, START_S, Served, Stand
from tests.bench.suite import Options, Scenario, main

COUNTS = (0, 1, 5)
PROJECTION: dict[str, Any] = {
    "on": {
        f"{orders.TYPE}.{orders.EVENT}": {
            "key": "$.key",
            "do": [
                {"increment": {"target": "orders"}},
                {"increment": {"target": "spent", "value": "$.data.total"}},
            ],
        }
    },
    "by": ["spent"],
}


def scenarios(options: Options) -> list[Scenario]:
    n = options.usual_connections
    every = [
        Scenario(
            f"projected/{count}/{n}", "append", (201,), partial(_append, options, n, count),
            f"projected/0/{n}" if count else "",
        )
        for count in COUNTS
    ]  # fmt: skip
    apart = partial(_append_beside_a_relay, options, n)
    return [*every, Scenario(f"projected/apart/{n}", "append", (201,), apart, f"projected/0/{n}")]


async def _append(options: Options, connections: int, count: int, stand: Stand) -> Measured:
    async with stand.gateway() as served:
        return await _post(options, connections, count, stand, served)


async def _append_beside_a_relay(options: Options, connections: int, stand: Stand) -> Measured:
    async with stand.gateway(settings={"SLUICE_RELAY": "off"}) as gateway:
        with stand.relay(gateway) as served:
            return await _post(options, connections, 1, stand, served)


async def _post(options: Options, connections: int, count: int, stand: Stand, served: Served) -> Measured:
    paths = [orders.append_path(key) for key in orders.keys(options.streams)]
    await begin(served, stand.key, count)
    measured = await post(options, connections, stand, served, paths, orders.append_body())
    if count:
        print(f"events behind at the end: {await _behind(served.postgres_url):,}", file=sys.stderr)
    return measured


async def begin(served: Served, key: str, count: int) -> None:
    """Deploys so many projections, and returns once they serve. Raises TimeoutError."""
    document = json.loads(bundled_spec())
    document["spec"]["projections"] = {f"p{n}": PROJECTION for n in range(count)}
    deploy(served, key, json.dumps(document).encode())
    if count:
        await _serve(served.postgres_url, count)


async def _serve(postgres_url: str, count: int) -> None:
    """Raises TimeoutError."""
    async with asyncio.timeout(START_S), _connected(postgres_url) as connection:
        while await connection.fetchval("SELECT count(*) FROM follower WHERE state = 'serving'") < count:
            await asyncio.sleep(POLL_S)


async def _behind(postgres_url: str) -> int:
    """Of the projection that is furthest: events that are committed, and not in it."""
    async with _connected(postgres_url) as connection:
        return int(
            await connection.fetchval(
                "SELECT max(l.seq - f.seq) FROM follower f JOIN partition_log l USING (p)"
            )
        )


@asynccontextmanager
async def _connected(postgres_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(postgres_url)
    try:
        yield connection
    finally:
        await connection.close()


if __name__ == "__main__":
    sys.exit(main(["tests.bench.projected"], scenarios, sys.argv[1:]))
