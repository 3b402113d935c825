"""What implied events cost.

    python -m tests.bench.implied [--seconds 3] [--rounds 1] [--only PATTERN] [--json FILE]

implied/plain              appends to 1,000 aggregates, as append/streams
implied/1, implied/10      the same, where the event's type implies so many events, each of a new aggregate
implied/append_2, append_11    POST /_/append of as many events as are stored then, each of a new aggregate
implied/others             as implied/plain, where another type implies an event

Names end in the number of connections.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import Any

from gateway.dev.prepare import bundled_spec
from tests.bench import orders
from tests.bench.http_load import deploy, post
from tests.bench.measured import Measured
from tests.bench.stand import Served, Stand
from tests.bench.suite import Options, Scenario, main

COUNTS = (1, 10)
NOTE, NOTED = "bench_note", "was_noted"
EMIT: dict[str, Any] = {
    "emit": {
        "aggregate_type": NOTE,
        "id": {"mint": True},
        "event_type": NOTED,
        "data": {"total": "$.data.total"},
    }
}


def scenarios(options: Options) -> list[Scenario]:
    n = options.usual_connections
    plain = f"implied/plain/{n}"
    return [
        Scenario(plain, "append", (201,), partial(_append, options, n, 0, 0)),
        *(
            Scenario(f"implied/{count}/{n}", "append", (201,), partial(_append, options, n, count, 0), plain)
            for count in COUNTS
        ),
        *(
            Scenario(
                f"implied/append_{count + 1}/{n}",
                "append",
                (201,),
                partial(_several, options, n, count),
                plain,
            )
            for count in COUNTS
        ),
        Scenario(f"implied/others/{n}", "append", (201,), partial(_append, options, n, 0, 1), plain),
    ]


async def _append(options: Options, connections: int, own: int, others: int, stand: Stand) -> Measured:
    """`own` events are implied by each append, `others` by events of another type."""
    paths = [orders.append_path(key) for key in orders.keys(options.streams)]
    async with stand.gateway() as served:
        _declare(served, stand, own, others)
        return await post(options, connections, stand, served, paths, orders.append_body())


async def _several(options: Options, connections: int, count: int, stand: Stand) -> Measured:
    order = f'{{"aggregate_type":"{orders.TYPE}","type":"{orders.EVENT}","data":{orders.DATA}}}'
    note = f'{{"aggregate_type":"{NOTE}","type":"{NOTED}","data":{{"total":141.7}}}}'
    events = ",".join([order, *[note] * count])
    body = f'{{"events":[{events}],"metadata":{{"actor":{json.dumps(orders.ACTOR)}}}}}'
    async with stand.gateway() as served:
        _declare(served, stand, 0, 0)
        return await post(options, connections, stand, served, ["/_/append"], body)


def _declare(served: Served, stand: Stand, own: int, others: int) -> None:
    document = json.loads(bundled_spec())
    types = document["spec"]["aggregate_types"]
    types[NOTE] = {"events": {NOTED: {"schema": {}}}}
    types["bench_other"] = {"events": {"was_done": {"schema": {}, "implications": [EMIT] * others}}}
    types[orders.TYPE]["events"][orders.EVENT]["implications"] = [EMIT] * own
    deploy(served, stand.key, json.dumps(document).encode())


if __name__ == "__main__":
    sys.exit(main(["tests.bench.implied"], scenarios, sys.argv[1:]))
