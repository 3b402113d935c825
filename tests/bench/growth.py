"""What becomes of the figures when much is stored, and when there are many streams.

    python -m tests.bench.growth [--stored 10000,1000000] [--only PATTERN] [--json FILE]

growth/stored_N/append, …/state, …/events   beside N events in streams of 10: appends to 1,000 of the streams,
                                            reads of the state and of the events of 100
growth/stored_N/cold_state                  reads of streams that Redis does not have yet, from 10^6 events on
growth/streams_N                            appends to N streams, beside nothing else

Names end in the number of connections. Ten million stored events (--stored 10000000) take some minutes to
make, and 20 GB of disk.
"""

from __future__ import annotations

import sys
from functools import partial

from tests.bench import orders, stored
from tests.bench.http_load import get, post
from tests.bench.measured import Measured
from tests.bench.stand import Stand
from tests.bench.suite import Options, Scenario, main

EVENTS_A_STREAM = 10
APPENDED_TO = 1000
READ = 100
"""So few that all are in Redis when the warm-up ends, as in read.py."""
COLD_STREAMS = 100_000
"""More than can be read in the time: each is read once."""
STREAMS = (1, 1000, 100_000)


def scenarios(options: Options) -> list[Scenario]:
    n = options.usual_connections
    found = []
    for events in options.stored:
        name = f"growth/stored_{events}"
        found += [
            Scenario(f"{name}/append/{n}", "append", (201,), partial(_append_beside, options, events)),
            Scenario(f"{name}/state/{n}", "read", (200,), partial(_read_beside, options, events, "")),
            Scenario(f"{name}/events/{n}", "read", (200,), partial(_read_beside, options, events, "/events")),
        ]
        if events >= COLD_STREAMS * EVENTS_A_STREAM:
            found += [
                Scenario(f"{name}/cold_state/{n}", "read", (200,), partial(_read_cold, options, events))
            ]
    return found + [
        Scenario(f"growth/streams_{streams}/{n}", "append", (201,), partial(_append_to, options, streams))
        for streams in STREAMS
    ]


async def _append_beside(options: Options, events: int, stand: Stand) -> Measured:
    paths = [orders.append_path(key) for key in _some(events, APPENDED_TO)]
    async with stand.gateway(template=await _stored(stand, events)) as served:
        return await post(options, options.usual_connections, stand, served, paths, orders.append_body())


async def _read_beside(options: Options, events: int, subresource: str, stand: Stand) -> Measured:
    paths = [f"/{orders.TYPE}/{key}{subresource}" for key in _some(events, READ)]
    async with stand.gateway(template=await _stored(stand, events)) as served:
        return await get(options, options.usual_connections, stand, served, paths)


async def _read_cold(options: Options, events: int, stand: Stand) -> Measured:
    paths = [f"/{orders.TYPE}/{stored.key(number)}" for number in range(COLD_STREAMS)]
    async with stand.gateway(template=await _stored(stand, events)) as served:
        return await get(options, options.usual_connections, stand, served, paths, first_pass=False)


async def _append_to(options: Options, streams: int, stand: Stand) -> Measured:
    paths = [orders.append_path(key) for key in orders.keys(streams)]
    async with stand.gateway() as served:
        return await post(options, options.usual_connections, stand, served, paths, orders.append_body())


def _some(events: int, most: int) -> list[str]:
    """Keys of that many streams at most, evenly spread over all."""
    streams = events // EVENTS_A_STREAM
    return [stored.key(number) for number in range(0, streams, max(1, streams // most))][:most]


async def _stored(stand: Stand, events: int) -> str:
    return await stand.template(
        f"stored_{events}", lambda url: stored.fill(url, events, events // EVENTS_A_STREAM)
    )


if __name__ == "__main__":
    sys.exit(main(["tests.bench.growth"], scenarios, sys.argv[1:]))
