"""What rules cost.

    python -m tests.bench.rules [--seconds 3] [--rounds 1] [--only PATTERN] [--json FILE]

rules/plain            appends to one aggregate, as append/hot
rules/hot              the same, where the event's type has two rules that each append keeps
rules/streams          the same over 1,000 aggregates; rules/streams_plain: without rules
rules/others           as rules/plain, where another type has rules

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

RULES: list[dict[str, Any]] = [
    {"require": {"not": {"exists": "@.cancelled"}}, "error": "{$.key} is cancelled."},
    {"require": {"gte": ["$.data.total", 0]}, "error": "{$.data.total} is below nothing."},
]
OTHER = {"events": {"was_noted": {"schema": {}, "rules": RULES[:1]}}}


def scenarios(options: Options) -> list[Scenario]:
    n = options.usual_connections
    hot, streams = [orders.SINGLETON], orders.keys(options.streams)
    return [
        Scenario(f"rules/{name}/{n}", "append", (201,), partial(_append, options, n, ruled, keys), against)
        for name, ruled, keys, against in (
            ("plain", None, hot, ""),
            ("hot", orders.TYPE, hot, f"rules/plain/{n}"),
            ("streams_plain", None, streams, ""),
            ("streams", orders.TYPE, streams, f"rules/streams_plain/{n}"),
            ("others", "other", hot, f"rules/plain/{n}"),
        )
    ]


async def _append(
    options: Options, connections: int, ruled: str | None, keys: list[str], stand: Stand
) -> Measured:
    paths = [orders.append_path(key) for key in keys]
    async with stand.gateway() as served:
        if ruled is not None:
            declare(served, stand.key, ruled)
        return await post(options, connections, stand, served, paths, orders.append_body())


def declare(served: Served, key: str, ruled: str) -> None:
    """Two rules for the events of the type that the load appends, or one for those of another type."""
    document = json.loads(bundled_spec())
    types = document["spec"]["aggregate_types"]
    if ruled == orders.TYPE:
        types[orders.TYPE]["events"][orders.EVENT]["rules"] = RULES
    else:
        types[ruled] = OTHER
    deploy(served, key, json.dumps(document).encode())


if __name__ == "__main__":
    sys.exit(main(["tests.bench.rules"], scenarios, sys.argv[1:]))
