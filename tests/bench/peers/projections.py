"""Read models of others, in the same Postgres and the same run: the same events into the same rows.

    python -m tests.bench.peers.projections [--events 20000] [--rows 2000] [--singly 200] [--rounds 2]

sluice          a projection of two increments in a process of its own; pages of rows, each with the position
                in one transaction
emmett          a consumer with Pongo's projection over several streams, 1,000 events a page, a look each 5 ms
eventsourcing   a subscription and a tracking recorder, a transaction for each event

First the events that are there already are projected; then some are appended one at a time, and the row is
looked for each millisecond by SQL from the answer on. The peers are installed as for tests.bench.peers.suite;
where one can't be had, its line says so.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

import asyncpg
import httpx

from gateway.aside import SWITCH_S
from gateway.catalog.migrate import migrate
from tests.bench.cpu import CpuMeter
from tests.bench.peers.install import NotInstalled, Peers, install
from tests.bench.projections import PARTITIONS, Built, build, spec
from tests.support.accounts import open_account
from tests.support.servers import Servers, open_folder, servers_in
from tests.support.serving import child_serving

HERE = Path(__file__).parent
NAMES = ("sluice", "emmett", "eventsourcing")
TIMEOUT_S = 600.0


async def measure(name: str, peers: Peers | None, servers: Servers, options: argparse.Namespace) -> str:
    url = await _database(servers)
    if name == "sluice":
        built = await build(servers, url, options.events, options.rows, 1)
        waits = await _sluice_singly(servers, await _database(servers), options.singly)
    else:
        assert peers is not None
        built, waits = await _peer(_argv(name, peers), peers, servers, url, options)
    waits = sorted(waits)
    p99 = waits[int(len(waits) * 0.99)]
    return f"{built}; visible after p50 {statistics.median(waits):.1f} ms, p99 {p99:.1f} ms"


async def _database(servers: Servers) -> str:
    """An empty one."""
    name = f"b{uuid.uuid4().hex}"
    connection = await asyncpg.connect(servers.database_url("postgres"))
    await connection.execute(f"CREATE DATABASE {name}")
    await connection.close()
    return servers.database_url(name)


async def _sluice_singly(servers: Servers, url: str, count: int) -> list[float]:
    """By a gateway that keeps the projection beside its other work."""
    await migrate(url, PARTITIONS)
    waits = []
    async with asyncpg.create_pool(url, min_size=1, max_size=2) as pool:
        account = await open_account(pool, spec(1))
        headers = {"authorization": f"Bearer {account.admin}"}
        async with (
            child_serving(url, servers.redis_url, servers.folder) as child,
            httpx.AsyncClient(base_url=child.served.url, headers=headers, trust_env=False) as client,
        ):
            while not await pool.fetchval("SELECT count(*) FROM follower WHERE state = 'serving'"):
                await asyncio.sleep(0.1)
            for _ in range(count):
                row = str(uuid.uuid4())
                data = {"customer_id": row, "total": 1, "currency": "EUR"}
                body = {"data": data, "metadata": {"actor": {"type": "user", "id": "global"}}}
                response = await client.post(f"/order/{uuid.uuid4()}/was_placed", json=body)
                assert response.status_code == 201, response.text
                answered = time.perf_counter()
                while not await pool.fetchval("SELECT count(*) FROM follower_row WHERE key = $1", row):
                    await asyncio.sleep(0.001)
                waits.append(1000 * (time.perf_counter() - answered))
    return waits


def _argv(name: str, peers: Peers) -> Sequence[str]:
    if name == "emmett":
        return str(peers.node), str(HERE / "projected.mjs")
    return str(peers.python), str(HERE / "projected_rows.py")


async def _peer(
    argv: Sequence[str], peers: Peers, servers: Servers, url: str, options: argparse.Namespace
) -> tuple[Built, list[float]]:
    """It says when all events are there, then what it took to project them, then what those took that came
    one at a time."""
    child = await asyncio.create_subprocess_exec(
        *argv, str(options.events), str(options.rows), str(options.singly),
        env={**os.environ, "PEER_POSTGRES_URL": url, "PEER_MODULES": str(peers.folder)},
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=1 << 20,
    )  # fmt: skip
    assert child.stdin is not None and child.stdout is not None and servers.postgres.pid is not None
    meter = CpuMeter({"postgres": [servers.postgres.pid]})
    try:
        async with asyncio.timeout(TIMEOUT_S):
            ready = await child.stdout.readline()
            if not ready:
                raise RuntimeError(f"{argv[-1]} failed before its events were there")
            meter.start()
            child.stdin.write(b"go\n")
            told = json.loads(await child.stdout.readline())
            used = meter.stop().get("postgres", 0.0)
            waits = json.loads(await child.stdout.readline())["waits"]
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()
    return Built(options.events, told["seconds"], told["cpu"], used), waits


async def run(options: argparse.Namespace) -> int:
    try:
        peers, fault = await asyncio.to_thread(install), None
    except NotInstalled as error:
        peers, fault = None, error
    print(f"{options.events:,} events into {options.rows:,} rows; {options.singly} one at a time")
    with open_folder() as folder:
        servers = servers_in(folder, durable=True)
        await servers.start()
        try:
            for _ in range(options.rounds):
                for name in options.only or NAMES:
                    if name != "sluice" and peers is None:
                        print(f"{name}: not installed: {fault}", flush=True)
                    else:
                        print(f"{name}: {await measure(name, peers, servers, options)}", flush=True)
        finally:
            servers.close()
    return int(fault is not None)


def _options(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "tests.bench.peers.projections", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--rows", type=int, default=2_000)
    parser.add_argument("--singly", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", action="append", choices=NAMES)
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.setswitchinterval(SWITCH_S)
    sys.exit(asyncio.run(run(_options(sys.argv[1:]))))
