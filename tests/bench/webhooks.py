"""Acknowledging webhooks, commit included, beside plain appends of the same bytes in the same run.

    python -m tests.bench.webhooks [--seconds 3] [--workers 1] [--rounds 1] [--only PATTERN] [--json FILE]

plain/hot, plain/streams        appends of 1 KB, to one stream and to 64
webhook/hot, webhook/streams    signed requests of 1 KB with a delivery id each
paced/append_half/…             webhooks, each at its own time, at half the rate that plain appends reach
paced/webhook_half/…            at half the rate that webhooks reach

Names end in the number of connections. The rate of which paced rows take half is measured just before, on a
gateway of its own.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import sys
from collections.abc import Awaitable, Callable
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
Run = Callable[[Options, int, list[str], Stand], Awaitable[Measured]]
# A source each makes as many streams; no tenant has a thousand sources.
SOURCES_MAX = 64


def spec_of(keys: list[str]) -> bytes:
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


def body() -> str:
    """JSON of exactly BODY_BYTES."""
    bare = json.dumps({"action": "opened", "text": ""}, separators=(",", ":"))
    return bare[:-2] + "x" * (BODY_BYTES - len(bare)) + bare[-2:]


def plain_body() -> str:
    """An append of the same."""
    return json.dumps({"data": json.loads(body()), "metadata": {"actor": _ACTOR}}, separators=(",", ":"))


def append_path(key: str) -> str:
    return f"/webhook_log/{key}/was_received"


def source_path(number: int) -> str:
    return f"/_/webhooks/{TENANT}/s{number}"


def signed_headers(text: str) -> dict[str, str]:
    """With a delivery id of its own for each request."""
    mac = hmac.new(SECRET, text.encode(), hashlib.sha256).hexdigest()
    return {
        "Content-Type": "application/json",
        "X-Hub-Signature-256": f"sha256={mac}",
        "X-GitHub-Delivery": f"bench-{SERIAL}",
        "X-GitHub-Event": "issues",
    }


def scenarios(options: Options) -> list[Scenario]:
    streams = orders.keys(min(options.streams, SOURCES_MAX))
    kinds = [("hot", ["stripe_webhook"]), ("streams", streams)]
    greatest = [
        Scenario(f"{how}/{name}/{connections}", "append", (status,), partial(run, options, connections, keys))
        for connections in options.busy_connections
        for name, keys in kinds
        for how, status, run in (("plain", 201, _plain), ("webhook", 202, _webhook))
    ]
    usual = options.usual_connections
    paced = [
        Scenario(
            f"paced/{how}_half/{name}/{usual}", "append", (202,), partial(_paced, run, options, usual, keys)
        )
        for name, keys in kinds
        for how, run in (("append", _plain), ("webhook", _webhook))
    ]
    return [*greatest, *paced]


async def _paced(run: Run, options: Options, connections: int, keys: list[str], stand: Stand) -> Measured:
    """Webhooks at half the rate that `run` reaches; as that, where its answers were not the expected ones."""
    greatest = await run(options, connections, keys, stand)
    if greatest.unexpected is not None or not greatest.count:
        return greatest
    return await _webhook(options, connections, keys, stand, greatest.per_s / 2)


async def _plain(options: Options, connections: int, keys: list[str], stand: Stand) -> Measured:
    paths = [append_path(key) for key in keys]
    async with stand.gateway() as served:
        deploy(served, stand.key, spec_of(keys))
        return await post(options, connections, stand, served, paths, plain_body())


async def _webhook(
    options: Options, connections: int, keys: list[str], stand: Stand, per_s: float | None = None
) -> Measured:
    text = body()
    paths = [source_path(number) for number in range(len(keys))]
    async with stand.gateway() as served:
        deploy(served, stand.key, spec_of(keys))
        return await post(
            options, connections, stand, served, paths, text, signed_headers(text), expected=202, per_s=per_s
        )


if __name__ == "__main__":
    sys.exit(main(["tests.bench.webhooks"], scenarios, sys.argv[1:]))
