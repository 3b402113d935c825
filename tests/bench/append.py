"""Appends over HTTP, beside the floor of the same run.

    python -m tests.bench.append [--seconds 3] [--workers 1] [--rounds 1] [--only PATTERN] [--json FILE]

append/streams            to 1,000 streams, unconditionally
append/hot                to one singleton: all connections to one stream
append/previous_length    to 1,000 streams, each append with the version it expects
append/idempotency_key    to 1,000 streams, each append with a key of its own
append/4k, append/64k     to 1,000 streams, data of so many bytes in place of 300
batch/100                 100 events a request, to 1,000 streams; counts events
mixed/80_20               four reads of a stream's state after each append to it; counts both
two_workers/…             append/…, at two gateway processes, whatever --workers says
floor/…                   what each part costs by itself (floor.py)

Names end in the number of connections.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from functools import partial

from tests.bench import floor, orders
from tests.bench.http_load import post, post_and_get, usual_headers
from tests.bench.load import LENGTH, SERIAL
from tests.bench.measured import Measured
from tests.bench.stand import Stand
from tests.bench.suite import Options, Scenario, main

BATCH = 100
BATCH_CONNECTIONS_MAX = 64
"""More of them would have more events under way than SLUICE_INFLIGHT_EVENTS_MAX allows."""
GETS = 4
KIB = 1024


@dataclass(frozen=True, slots=True)
class Kind:
    """What is appended, and where."""

    name: str
    paths: list[str]
    body: str
    headers: dict[str, str] = field(default_factory=dict)
    unit: str = "append"
    units: int = 1


def scenarios(options: Options) -> list[Scenario]:
    keys = orders.keys(options.streams)
    streams = [orders.append_path(key) for key in keys]
    plain = Kind("append/streams", streams, orders.append_body())
    hot = Kind("append/hot", [orders.append_path(orders.SINGLETON)], orders.append_body())
    usual = [
        plain,
        hot,
        Kind("append/previous_length", streams, orders.append_body(previous_length=LENGTH)),
        Kind("append/idempotency_key", streams, orders.append_body(), {"Idempotency-Key": f"bench-{SERIAL}"}),
    ]
    large = [
        Kind(f"append/{size}k", streams, orders.append_body(data=orders.data_of(size * KIB)))
        for size in (4, 64)
    ]
    aggregates = [f"/{orders.TYPE}/{key}" for key in keys]
    batch = Kind("batch/100", aggregates, orders.batch_body(BATCH), unit="event", units=BATCH)
    counts = options.connections
    return [
        *(_scenario(options, kind, n) for kind in usual for n in counts),
        *(_scenario(options, kind, options.usual_connections) for kind in large),
        *(_scenario(options, batch, n) for n in counts if n <= BATCH_CONNECTIONS_MAX),
        *(Scenario(f"mixed/80_20/{n}", "request", (200, 201), partial(_mixed, options, n)) for n in counts),
        *(_at_two_workers(options, kind, n) for kind in (plain, hot) for n in options.busy_connections),
        *floor.scenarios(options),
    ]


def _scenario(options: Options, kind: Kind, connections: int) -> Scenario:
    return Scenario(
        f"{kind.name}/{connections}", kind.unit, (201,), partial(_append, options, connections, kind, None)
    )


def _at_two_workers(options: Options, kind: Kind, connections: int) -> Scenario:
    name = kind.name.replace("append", "two_workers")
    return Scenario(
        f"{name}/{connections}", kind.unit, (201,), partial(_append, options, connections, kind, 2)
    )


async def _append(
    options: Options, connections: int, kind: Kind, workers: int | None, stand: Stand
) -> Measured:
    async with stand.gateway(workers=workers) as served:
        headers = usual_headers(stand.key) | kind.headers
        return await post(options, connections, stand, served, kind.paths, kind.body, headers, kind.units)


async def _mixed(options: Options, connections: int, stand: Stand) -> Measured:
    keys = orders.keys(options.streams)
    async with stand.gateway() as served:
        posted = [orders.append_path(key) for key in keys]
        read = [f"/{orders.TYPE}/{key}" for key in keys]
        return await post_and_get(
            options, connections, stand, served, posted, orders.append_body(), read, GETS
        )


if __name__ == "__main__":
    sys.exit(main(["tests.bench.append"], scenarios, sys.argv[1:]))
