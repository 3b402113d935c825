"""Acknowledging webhooks, commit included, beside plain appends of the same bytes in the same run.

    python -m tests.bench.webhooks [--seconds 3] [--workers 1] [--rounds 1] [--only PATTERN] [--json FILE]

plain/streams, plain/hot       appends of 1 KB, to 64 streams and to one
webhook/hot, webhook/streams   signed requests of 1 KB with a delivery id each, to 64 streams and to one

Names end in the number of connections.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import sys
from functools import partial

from tests.bench import orders
from tests.bench.http_load import deploy, post
from tests.bench.load import SERIAL
from tests.bench.measured import Measured
from tests.bench.stand import TENANT, Stand
from tests.bench.suite import Options, Scenario, main

SECRET = b"bench"
BODY_BYTES = 1024
_ACTOR = {"type": "webhook", "id": "stripe_webhook"}
_SCHEMA = {"type": "object"}
# A source each makes as many streams; nobody has a thousand sources.
_SOURCES_MAX = 64


def _spec(keys: list[str]) -> bytes:
    sources = {
        f"s{number}": {
            "provider": "github",
            "secrets": [SECRET.decode()],
            "actor": _ACTOR,
            "to": {"type": "webhook_log", "id": key, "event": "was_received"},
        }
        for number, key in enumerate(keys)
    }
    return json.dumps(
        {
            "aggregate_types": {"webhook_log": {"events": {"was_received": {"schema": _SCHEMA}}}},
            "agent_types": ["webhook"],
            "singletons": ["stripe_webhook"],
            "webhooks": sources,
        }
    ).encode()


def _body() -> str:
    """JSON of exactly BODY_BYTES."""
    bare = json.dumps({"action": "opened", "text": ""}, separators=(",", ":"))
    return bare[:-2] + "x" * (BODY_BYTES - len(bare)) + bare[-2:]


def scenarios(options: Options) -> list[Scenario]:
    streams = orders.keys(min(options.streams, _SOURCES_MAX))
    kinds = [("hot", ["stripe_webhook"]), ("streams", streams)]
    return [
        Scenario(f"{how}/{name}/{connections}", "append", (status,), partial(run, options, connections, keys))
        for connections in options.busy_connections
        for name, keys in kinds
        for how, status, run in (("plain", 201, _plain), ("webhook", 202, _webhook))
    ]


async def _plain(options: Options, connections: int, keys: list[str], stand: Stand) -> Measured:
    data = json.dumps({"data": json.loads(_body()), "metadata": {"actor": _ACTOR}}, separators=(",", ":"))
    paths = [f"/webhook_log/{key}/was_received" for key in keys]
    async with stand.gateway() as served:
        deploy(served, stand, _spec(keys))
        return await post(options, connections, stand, served, paths, data)


async def _webhook(options: Options, connections: int, keys: list[str], stand: Stand) -> Measured:
    body = _body()
    mac = hmac.new(SECRET, body.encode(), hashlib.sha256).hexdigest()
    headers = {
        "Content-Type": "application/json",
        "X-Hub-Signature-256": f"sha256={mac}",
        "X-GitHub-Delivery": f"bench-{SERIAL}",
        "X-GitHub-Event": "issues",
    }
    paths = [f"/_/webhooks/{TENANT}/s{number}" for number in range(len(keys))]
    async with stand.gateway() as served:
        deploy(served, stand, _spec(keys))
        return await post(options, connections, stand, served, paths, body, headers, expected=202)


if __name__ == "__main__":
    sys.exit(main(["tests.bench.webhooks"], scenarios, sys.argv[1:]))
