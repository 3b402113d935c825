"""Reads over HTTP, of 100 streams that Redis holds.

    python -m tests.bench.read [--seconds 3] [--workers 1] [--rounds 1] [--only PATTERN] [--json FILE]

read/state, read/state_1000     the state of streams with 10, with 1,000 events
read/events                     the events of streams with 10

Names end in the number of connections.
"""

from __future__ import annotations

import sys
from functools import partial

from tests.bench import orders
from tests.bench.http_load import fill, get
from tests.bench.measured import Measured
from tests.bench.stand import Stand
from tests.bench.suite import Options, Scenario, main

STREAMS = 100


def scenarios(options: Options) -> list[Scenario]:
    kinds = (("state", "", 10), ("state_1000", "", 1000), ("events", "/events", 10))
    return [
        Scenario(f"read/{name}/{n}", "read", (200,), partial(_read, options, n, subresource, events))
        for name, subresource, events in kinds
        for n in options.connections
    ]


async def _read(options: Options, connections: int, subresource: str, events: int, stand: Stand) -> Measured:
    aggregates = [f"/{orders.TYPE}/{key}" for key in orders.keys(STREAMS)]
    async with stand.gateway() as served:
        fill(served, stand.key, aggregates, orders.batch_body(events))
        return await get(options, connections, stand, served, [path + subresource for path in aggregates])


if __name__ == "__main__":
    sys.exit(main(["tests.bench.read"], scenarios, sys.argv[1:]))
