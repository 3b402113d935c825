"""What names cost: appends to aggregates that get public ids, and reads by them, beside the same without.

    python -m tests.bench.names [--seconds 3] [--workers 1] [--rounds 1] [--only PATTERN] [--json FILE]

names/append_plain, …_public_id, …_hash_id   first appends, each to a new aggregate, whose type gets no names,
                                             public ids, hash ids
names/existing_plain, …_public_id            appends to 1,000 aggregates that are there
names/read_key, names/read_alias             the state of 100 aggregates of 10 events, by key and by public id

Names end in the number of connections. Each row is followed by what it comes to against the first of its
line, in the same round.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import Any

from gateway.dev.prepare import bundled_spec
from tests.bench import orders
from tests.bench.http_load import deploy, fill, get, post
from tests.bench.load import SERIAL
from tests.bench.measured import Measured
from tests.bench.stand import Served, Stand
from tests.bench.suite import Options, Scenario, main

READ = 100
EVENTS = 10
NEW = f"a0000000-0000-4000-a000-00{SERIAL}"
"""A key that no other request has."""
DECLARED: dict[str, dict[str, Any]] = {
    "plain": {},
    "public_id": {"public_ids": {"key": "VNO", "types": [orders.TYPE]}},
    "hash_id": {"hash_ids": {"prefix": "bd", "types": [orders.TYPE]}},
}


def scenarios(options: Options) -> list[Scenario]:
    existing = orders.keys(options.streams)
    n = options.usual_connections
    appends = [
        *(("append", names, [NEW]) for names in DECLARED),
        *(("existing", names, existing) for names in ("plain", "public_id")),
    ]
    found: list[Scenario] = []
    for what, names, keys in appends:
        against = "" if names == "plain" else f"names/{what}_plain/{n}"
        run = partial(_append, options, n, names, keys)
        found.append(Scenario(f"names/{what}_{names}/{n}", "append", (201,), run, against))
    for by, against in (("key", ""), ("alias", f"names/read_key/{n}")):
        run = partial(_read, options, n, by)
        found.append(Scenario(f"names/read_{by}/{n}", "read", (200,), run, against))
    return found


async def _append(options: Options, connections: int, names: str, keys: list[str], stand: Stand) -> Measured:
    paths = [orders.append_path(key) for key in keys]
    async with stand.gateway() as served:
        _declare(served, stand, names)
        return await post(options, connections, stand, served, paths, orders.append_body())


async def _read(options: Options, connections: int, by: str, stand: Stand) -> Measured:
    aggregates = [f"/{orders.TYPE}/{key}" for key in orders.keys(READ)]
    async with stand.gateway() as served:
        _declare(served, stand, "public_id")
        fill(served, stand.key, aggregates, orders.batch_body(EVENTS), {"Prefer": "wait"})
        aliases = [f"/{orders.TYPE}/@VNO-{number}" for number in range(1, READ + 1)]
        return await get(options, connections, stand, served, aggregates if by == "key" else aliases)


def _declare(served: Served, stand: Stand, names: str) -> None:
    document = json.loads(bundled_spec())
    document["spec"] |= DECLARED[names]
    deploy(served, stand.key, json.dumps(document).encode())


if __name__ == "__main__":
    sys.exit(main(["tests.bench.names"], scenarios, sys.argv[1:]))
