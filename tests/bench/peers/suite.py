"""Other ways to keep events in the same Postgres, in the same run: what an append over HTTP costs with them.

peers/message-db      message-db's write_message, behind uvicorn and asyncpg
peers/emmett          Emmett's store for Postgres, behind fastify
peers/eventsourcing   the recorder of Python's eventsourcing, behind uvicorn and threads

    python -m tests.bench.peers.suite

To 1,000 streams, each append at the version it expects: compare append/previous_length. They do less for an
append: none checks keys, schemas and identifiers or knows a retry. Each has 32 connections to Postgres.
"""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from pathlib import Path

from tests.bench import orders
from tests.bench.http_load import post
from tests.bench.load import LENGTH
from tests.bench.measured import Measured, nothing
from tests.bench.peers.install import NotInstalled, Peers, install
from tests.bench.stand import Stand
from tests.bench.suite import Options, Scenario, main

HERE = Path(__file__).parent
POOL = 32


def scenarios(options: Options) -> list[Scenario]:
    return [
        Scenario(f"peers/{name}/{n}", "append", (201,), partial(_measure, options, n, name))
        for name in ("message-db", "emmett", "eventsourcing")
        for n in options.busy_connections
    ]


def _argv(name: str, peers: Peers) -> tuple[str, ...]:
    match name:
        case "message-db":
            return (sys.executable, "-m", "tests.bench.peers.message_db")
        case "emmett":
            return (sys.executable, "-m", "tests.bench.peers.emmett")
        case _:
            return (str(peers.python), str(HERE / "recorder.py"))


async def _measure(options: Options, connections: int, name: str, stand: Stand) -> Measured:
    """A peer that can't be had is a row that says so."""
    try:
        peers = await asyncio.to_thread(install)
    except NotInstalled as fault:
        return nothing(f"not installed: {fault}")
    settings = {"PEER_POOL": str(POOL), "PEER_MODULES": str(peers.folder), "PEER_NODE": str(peers.node)}
    paths = [orders.append_path(key) for key in orders.keys(options.streams)]
    async with stand.other(_argv(name, peers), settings) as served:
        body = orders.append_body(previous_length=LENGTH)
        return await post(options, connections, stand, served, paths, body)


if __name__ == "__main__":
    sys.exit(main(["tests.bench.peers.suite"], scenarios, sys.argv[1:]))
