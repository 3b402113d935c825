"""Appends and reads over HTTP, beside the floor of the same run.

    python -m tests.bench.append [--seconds 5] [--workers 1] [--rounds 1] [--only PATTERN] [--json FILE]

append/streams            to 1,000 streams, unconditionally
append/hot                to one singleton: all connections to one stream
append/previous_length    to 1,000 streams, each append with the version it expects
append/idempotency_key    to 1,000 streams, each append with a key of its own
read/events, read/state   of streams with 10 events
floor/…                   what the parts cost alone (floor.py)

Names end in the number of connections.
"""

from __future__ import annotations

import http.client
import sys
from functools import partial

from tests.bench import floor, orders
from tests.bench.load import LENGTH, SERIAL, Traffic, drive
from tests.bench.measured import Measured
from tests.bench.stand import Served, Stand
from tests.bench.suite import Options, Scenario, main

READ_STREAMS = 100
READ_EVENTS = 10


def scenarios(options: Options) -> list[Scenario]:
    streams = [orders.append_path(key) for key in orders.keys(options.streams)]
    hot = [orders.append_path(orders.SINGLETON)]
    plain, guarded = orders.append_body(), orders.append_body(previous_length=LENGTH)
    kinds: list[tuple[str, list[str], str, dict[str, str]]] = [
        ("streams", streams, plain, {}),
        ("hot", hot, plain, {}),
        ("previous_length", streams, guarded, {}),
        ("idempotency_key", streams, plain, {"Idempotency-Key": f"bench-{SERIAL}"}),
    ]
    appends = [
        Scenario(
            f"append/{name}/{connections}",
            "append",
            201,
            partial(_append, options, connections, paths, body, headers),
        )
        for name, paths, body, headers in kinds
        for connections in options.connections
    ]
    reads = [
        Scenario(
            f"read/{name}/{options.usual_connections}", "read", 200, partial(_read, options, subresource)
        )
        for name, subresource in (("events", "/events"), ("state", ""))
    ]
    return [*appends, *reads, *floor.scenarios(options)]


async def _append(
    options: Options, connections: int, paths: list[str], body: str, headers: dict[str, str], stand: Stand
) -> Measured:
    async with stand.gateway() as served:
        traffic = Traffic(
            host=served.host,
            port=served.port,
            connections=connections,
            seconds=options.seconds,
            warm_up_s=options.warm_up_s,
            paths=paths,
            expected=201,
            method="POST",
            headers=_headers(stand) | headers,
            body=body,
        )
        return await drive(traffic, served.cpu)


async def _read(options: Options, subresource: str, stand: Stand) -> Measured:
    keys = orders.keys(READ_STREAMS)
    async with stand.gateway() as served:
        _fill(served, keys, _headers(stand))
        traffic = Traffic(
            host=served.host,
            port=served.port,
            connections=options.usual_connections,
            seconds=options.seconds,
            warm_up_s=options.warm_up_s,
            paths=[f"/{orders.TYPE}/{key}{subresource}" for key in keys],
            expected=200,
            headers=_headers(stand),
        )
        return await drive(traffic, served.cpu)


def _fill(served: Served, keys: list[str], headers: dict[str, str]) -> None:
    """Raises RuntimeError when an append is refused."""
    connection = http.client.HTTPConnection(served.host, served.port, timeout=30)
    for key in keys:
        connection.request("POST", f"/{orders.TYPE}/{key}", orders.batch_body(READ_EVENTS), headers)
        answer = connection.getresponse()
        told = answer.read()
        if answer.status != 201:
            raise RuntimeError(f"what is to be read can't be appended: {answer.status} {told.decode()}")
    connection.close()


def _headers(stand: Stand) -> dict[str, str]:
    return {"Authorization": f"Bearer {stand.key}", "Content-Type": "application/json"}


if __name__ == "__main__":
    sys.exit(main(["tests.bench.append"], scenarios, sys.argv[1:]))
