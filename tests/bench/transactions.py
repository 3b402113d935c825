"""What appends to several aggregates, tags and conditions cost.

    python -m tests.bench.transactions [--seconds 3] [--rounds 1] [--only PATTERN] [--json FILE]

transactions/plain         appends to 1,000 aggregates, as append/streams
transactions/tagged        the same, each event with two tags
transactions/one           POST /_/append of one event to a singleton
transactions/1, 2, 10, 100 the same, each event of a new aggregate; counts events
transactions/cold          as one, with a condition on a tag that no event has, another one each time
transactions/known         as one, with a condition on a tag that an event has, behind that

The conditions' tags are of events of another type: those of the load are the same in all rows, and have tags
in `tagged` only.
Names end in the number of connections.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from functools import partial

from gateway.dev.prepare import bundled_spec
from tests.bench import orders
from tests.bench.http_load import FILL_TIMEOUT_S, deploy, post, usual_headers
from tests.bench.load import SERIAL
from tests.bench.measured import Measured
from tests.bench.stand import Served, Stand
from tests.bench.suite import Options, Scenario, main

PATH = "/_/append"
TAGS = ["sku:$.data.items[*].sku"]
"""Two in each event of the bench."""
SHIPPED = "was_shipped"
KNOWN = "LAMP-1042"


def scenarios(options: Options) -> list[Scenario]:
    n = options.usual_connections
    plain = f"transactions/plain/{n}"
    several = [
        Scenario(f"transactions/{count}/{n}", "event", (201,), partial(_several, options, n, count), plain)
        for count in (1, 2, 10, 100)
    ]
    return [
        Scenario(plain, "append", (201,), partial(_plain, options, n, tagged=False)),
        Scenario(
            f"transactions/tagged/{n}", "append", (201,), partial(_plain, options, n, tagged=True), plain
        ),
        Scenario(f"transactions/one/{n}", "append", (201,), partial(_one, options, n), plain),
        *several,
        Scenario(f"transactions/cold/{n}", "append", (201,), partial(_cold, options, n), plain),
        Scenario(f"transactions/known/{n}", "append", (201,), partial(_known, options, n), plain),
    ]


async def _plain(options: Options, connections: int, stand: Stand, *, tagged: bool) -> Measured:
    paths = [orders.append_path(key) for key in orders.keys(options.streams)]
    async with stand.gateway() as served:
        if tagged:
            _declare(served, stand, orders.EVENT, TAGS)
        return await post(options, connections, stand, served, paths, orders.append_body())


async def _several(options: Options, connections: int, count: int, stand: Stand) -> Measured:
    async with stand.gateway() as served:
        return await post(options, connections, stand, served, [PATH], _body(count), units=count)


async def _one(options: Options, connections: int, stand: Stand) -> Measured:
    async with stand.gateway() as served:
        return await post(options, connections, stand, served, [PATH], _body(1, key=orders.SINGLETON))


async def _cold(options: Options, connections: int, stand: Stand) -> Measured:
    async with stand.gateway() as served:
        _declare(served, stand, SHIPPED, ["sku:$.data.sku"])
        return await post(
            options, connections, stand, served, [PATH], _body(1, f"sku:{SERIAL}", key=orders.SINGLETON)
        )


async def _known(options: Options, connections: int, stand: Stand) -> Measured:
    async with stand.gateway() as served:
        _declare(served, stand, SHIPPED, ["sku:$.data.sku"])
        shipped = json.dumps({"data": {"sku": KNOWN}, "metadata": {"actor": orders.ACTOR}}).encode()
        path = f"/{orders.TYPE}/{orders.SINGLETON}/{SHIPPED}"
        request = urllib.request.Request(
            f"http://{served.host}:{served.port}{path}", shipped, usual_headers(stand.key)
        )
        with urllib.request.urlopen(request, timeout=FILL_TIMEOUT_S) as answer:
            after = json.load(answer)["position"]
        body = _body(1, f"sku:{KNOWN}", after, key=orders.SINGLETON)
        return await post(options, connections, stand, served, [PATH], body)


def _body(
    count: int,
    tag: str | None = None,
    after: str | None = None,
    key: str | None = None,
) -> str:
    named = "" if key is None else f'"key":"{key}",'
    event = f'{{"aggregate_type":"{orders.TYPE}",{named}"type":"{orders.EVENT}","data":{orders.DATA}}}'
    events = ",".join([event] * count)
    condition = ""
    if tag is not None:
        said = {"fail_if_events_match": {"items": [{"tags": [tag]}]}, "after": after}
        condition = f',"condition":{json.dumps(said)}'
    return f'{{"events":[{events}],"metadata":{{"actor":{json.dumps(orders.ACTOR)}}}{condition}}}'


def _declare(served: Served, stand: Stand, event: str, tags: list[str]) -> None:
    document = json.loads(bundled_spec())
    document["spec"]["aggregate_types"][orders.TYPE]["events"][event]["tags"] = tags
    deploy(served, stand.key, json.dumps(document).encode())


if __name__ == "__main__":
    sys.exit(main(["tests.bench.transactions"], scenarios, sys.argv[1:]))
