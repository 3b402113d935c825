"""What tags and unique values cost.

    python -m tests.bench.tags [--seconds 3] [--rounds 1] [--only PATTERN] [--json FILE]

tags/plain             appends to 1,000 streams, as append/streams
tags/two               the same, where each event has two declared tags
tags/hashed            the same with two tags, one of them hashed
tags/claims            the same, where each event claims a unique value
tags/others            as tags/plain, where another type has tags and claims

Names end in the number of connections.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import Any, Final

from gateway.dev.prepare import bundled_spec
from tests.bench import orders
from tests.bench.http_load import deploy, post
from tests.bench.load import SERIAL
from tests.bench.measured import Measured
from tests.bench.stand import Served, Stand
from tests.bench.suite import Options, Scenario, main

EMAIL, CURRENCY = "email:$.data.customer.email", "currency:$.data.currency"
DECLARED: Final[dict[str, dict[str, Any]]] = {
    "two": {"tags": [EMAIL, CURRENCY]},
    "hashed": {"tags": [{"hash": EMAIL}, CURRENCY]},
    "claims": {"claims": {"note": {"value": "$.data.note"}}},
}
OTHER = {"events": {"was_noted": {"schema": {}, **DECLARED["two"], **DECLARED["claims"]}}}


def scenarios(options: Options) -> list[Scenario]:
    n = options.usual_connections
    plain = f"tags/plain/{n}"
    return [
        Scenario(f"tags/{name}/{n}", "append", (201,), partial(_append, options, n, name), against)
        for name, against in (
            ("plain", ""), ("two", plain), ("hashed", plain), ("claims", plain), ("others", plain),
        )
    ]  # fmt: skip


async def _append(options: Options, connections: int, name: str, stand: Stand) -> Measured:
    data = json.dumps({**json.loads(orders.DATA), "note": SERIAL}, separators=(",", ":"))
    async with stand.gateway() as served:
        if name != "plain":
            _declare(served, stand, name)
        paths = [orders.append_path(key) for key in orders.keys(options.streams)]
        return await post(options, connections, stand, served, paths, orders.append_body(data=data))


def _declare(served: Served, stand: Stand, name: str) -> None:
    document = json.loads(bundled_spec())
    types = document["spec"]["aggregate_types"]
    if name == "others":
        types[name] = OTHER
    else:
        types[orders.TYPE]["events"][orders.EVENT] |= DECLARED[name]
    deploy(served, stand.key, json.dumps(document).encode())


if __name__ == "__main__":
    sys.exit(main(["tests.bench.tags"], scenarios, sys.argv[1:]))
