"""The state of a very long stream: read by a gateway that knows nothing, and what its neighbours notice.

    python -m tests.bench.long [--events 1000000] [--restarts 20]

A stream of so many events is stored. Then: how long its state takes to be kept for the first time; its first
read by each of some gateways that were just started, each after a cold neighbour's, beside that of a stream
of a thousand events; a neighbour's reads while nothing happens, while nothing is kept and the stream is
folded from the beginning, and while handlers are changed; and what is kept takes in Postgres.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import httpx

from gateway.dev.prepare import bundled_spec
from tests.bench import orders, stored
from tests.bench.stand import Stand, open_stand

KEPT_S = 600.0
NEIGHBOUR_S = 3.0
SHORTER = 1_000
"""Events of the stream that the long one is compared with."""


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="tests.bench.long", description=__doc__.partition("\n")[0])
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--restarts", type=int, default=20)
    asked = parser.parse_args(argv)
    asyncio.run(_measure(asked.events, asked.restarts))
    return 0


async def _measure(events: int, restarts: int) -> None:
    async with open_stand(1) as stand:
        template = await stand.template("long", lambda url: stored.fill(url, events, 1))
        async with stand.database(template) as url:
            path, neighbour = f"/{orders.TYPE}/{stored.key(0)}", f"/{orders.TYPE}/{orders.SINGLETON}"
            shorter = f"/{orders.TYPE}/{stored.key(1)}"
            async with _client(stand, url) as client:
                await _append(client, shorter)
                _tell("neighbour, nothing else", await _reads(client, neighbour, asyncio.sleep(NEIGHBOUR_S)))
                begun = time.perf_counter()
                during = await _reads(client, neighbour, _kept(client, path, url, events))
                print(f"first kept after {time.perf_counter() - begun:.1f} s")
                _tell("neighbour, while it is folded", during)
            first: list[float] = []
            base: list[float] = []
            for _ in range(restarts):
                async with _client(stand, url) as client:
                    await _timed(client, neighbour)
                    base.append(await _timed(client, shorter))
                    first.append(await _timed(client, path))
            _tell(f"first read of a gateway, {SHORTER:,} events", base)
            _tell(f"first read of a gateway, {events:,} events", first)
            async with _client(stand, url) as client:
                during = await _reads(client, neighbour, _remade(client, url))
                _tell("neighbour, while handlers changed", during)
                first = [await _timed(client, path)]
                _tell("first read by other handlers", first)
            connection = await asyncpg.connect(url)
            size = await connection.fetchval("SELECT pg_total_relation_size('kept_state')")
            states = await connection.fetchval("SELECT count(*) FROM kept_state")
            await connection.close()
            print(f"{states} states are kept, in {size / 1024:.0f} KiB")


@asynccontextmanager
async def _client(stand: Stand, url: str) -> AsyncIterator[httpx.AsyncClient]:
    """To a gateway that was just started."""
    async with stand.restarted(url) as served:
        headers = {"Authorization": f"Bearer {stand.key}"}
        base = f"http://{served.host}:{served.port}"
        async with httpx.AsyncClient(base_url=base, headers=headers, timeout=120, trust_env=False) as client:
            yield client


async def _append(client: httpx.AsyncClient, path: str) -> None:
    for _ in range(SHORTER // 100):
        response = await client.post(path, json=json.loads(orders.batch_body(100)))
        assert response.status_code == 201, response.text


async def _timed(client: httpx.AsyncClient, path: str) -> float:
    begun = time.perf_counter()
    response = await client.get(path)
    assert response.status_code == 200, response.text
    return time.perf_counter() - begun


async def _reads(client: httpx.AsyncClient, path: str, while_this: Any) -> list[float]:
    task, times = asyncio.ensure_future(while_this), []
    while not task.done():
        times.append(await _timed(client, path))
        await asyncio.sleep(0.002)
    await task
    return times


async def _kept(client: httpx.AsyncClient, path: str, url: str, events: int) -> None:
    connection = await asyncpg.connect(url)
    deadline = time.monotonic() + KEPT_S
    while (await client.get(path)).status_code == 503:
        assert time.monotonic() < deadline
    while await connection.fetchval("SELECT max(version) FROM kept_state") != events // 500 * 500:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
    await connection.close()


async def _remade(client: httpx.AsyncClient, url: str) -> None:
    connection = await asyncpg.connect(url)
    before = await connection.fetchval("SELECT min(handlers) FROM kept_state")
    document = json.loads(bundled_spec())
    handler = {"set": {"target": "last", "value": "$.data.total"}}
    document["spec"]["aggregate_types"][orders.TYPE]["events"][orders.EVENT]["handler"] = handler
    begun = time.perf_counter()
    assert (await client.put("/_/spec", json=document)).status_code == 200
    while await connection.fetchval("SELECT count(*) FROM kept_state WHERE handlers = $1", before):
        assert time.perf_counter() - begun < KEPT_S
        await asyncio.sleep(0.05)
    print(f"made again after {time.perf_counter() - begun:.1f} s")
    await connection.close()


def _tell(what: str, times: list[float]) -> None:
    ordered = sorted(times)
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    print(
        f"{what}: {len(times)} reads, ms: median {statistics.median(times) * 1000:.1f}, "
        f"p99 {p99 * 1000:.1f}, max {ordered[-1] * 1000:.1f}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
