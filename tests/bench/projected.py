"""What projections cost appends.

    python -m tests.bench.projected [--seconds 3] [--rounds 1] [--only PATTERN] [--json FILE]

projected/0, projected/1, projected/5    appends to 1,000 aggregates, as append/streams, where so many
                                         projections of two increments follow them in the same gateway

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
from tests.bench.stand import Stand
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
    return [
        Scenario(
            f"projected/{count}/{n}", "append", (201,), partial(_append, options, n, count),
            f"projected/0/{n}" if count else "",
        )
        for count in COUNTS
    ]  # fmt: skip


async def _append(options: Options, connections: int, count: int, stand: Stand) -> Measured:
    paths = [orders.append_path(key) for key in orders.keys(options.streams)]
    document = json.loads(bundled_spec())
    document["spec"]["projections"] = {f"p{n}": PROJECTION for n in range(count)}
    async with stand.gateway() as served:
        deploy(served, stand, json.dumps(document).encode())
        return await post(options, connections, stand, served, paths, orders.append_body())


if __name__ == "__main__":
    sys.exit(main(["tests.bench.projected"], scenarios, sys.argv[1:]))
