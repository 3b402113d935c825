"""How long a saga of three steps takes, none of which waits for an event of others.

    python -m tests.bench.sagas [--per-s 10,100] [--seconds 10]

So many carts are checked out in each second. From when Postgres stored the event that begins the saga to
when it stored the one that completes it: five turns, each one append behind the commit of the one before.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

import asyncpg
import httpx

from tests.bench import orders
from tests.bench.http_load import deploy
from tests.bench.stand import Stand, open_stand

SETTLE_S = 60.0
STEPS = ("reserve", "charge", "ship")
SPEC: dict[str, Any] = {
    "aggregate_types": {
        "cart": {"events": {"was_checked_out": {"schema": {}}}},
        "step": {"events": {f"{name}_asked": {"schema": {}} for name in STEPS}},
    },
    "agent_types": ["user"],
    "sagas": {
        "checkout": {
            "trigger": {"aggregate_type": "cart", "event_type": "was_checked_out"},
            "steps": [
                {
                    "name": name,
                    "emit": {"aggregate_type": "step", "id": "$.key", "event_type": f"{name}_asked"},
                }
                for name in STEPS
            ],
        }
    },
}
_TOOK = """
SELECT extract(epoch FROM ended.stored_at - begun.stored_at)::float8 AS s FROM outbox ended
JOIN outbox begun ON begun.correlation_id = ended.correlation_id AND begun.type = 'was_checked_out'
WHERE ended.type = '_was_completed' ORDER BY s
"""


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="tests.bench.sagas", description=__doc__.partition("\n")[0])
    parser.add_argument("--per-s", type=_counts, default=(10, 100), metavar="N,N,…")
    parser.add_argument("--seconds", type=float, default=10.0)
    asked = parser.parse_args(argv)
    asyncio.run(_measure(asked.per_s, asked.seconds))
    return 0


async def _measure(rates: Sequence[int], seconds: float) -> None:
    async with open_stand(1) as stand:
        for per_s in rates:
            took_ms = await _one(stand, per_s, seconds)
            p50, p99 = (took_ms[int((len(took_ms) - 1) * share)] for share in (0.5, 0.99))
            print(
                f"{per_s} sagas a second, {len(took_ms)} in all: p50 {p50:,.0f} ms, p99 {p99:,.0f} ms,"
                f" at most {took_ms[-1]:,.0f} ms",
                flush=True,
            )


async def _one(stand: Stand, per_s: int, seconds: float) -> list[float]:
    async with stand.gateway() as served:
        deploy(served, stand.key, json.dumps(SPEC).encode())
        connection = await asyncpg.connect(served.postgres_url)
        try:
            headers = {"Authorization": f"Bearer {stand.key}"}
            base = f"http://{served.host}:{served.port}"
            async with httpx.AsyncClient(base_url=base, headers=headers, trust_env=False) as client:
                keys = orders.keys(int(per_s * seconds))
                begun = time.monotonic()
                async with asyncio.TaskGroup() as group:
                    for number, key in enumerate(keys):
                        await asyncio.sleep(max(begun + number / per_s - time.monotonic(), 0))
                        group.create_task(_check_out(client, key))
            until = time.monotonic() + SETTLE_S
            while len(rows := await connection.fetch(_TOOK)) < len(keys):
                if time.monotonic() > until:
                    raise RuntimeError("sagas do not complete")
                await asyncio.sleep(0.2)
        finally:
            await connection.close()
    return [row["s"] * 1_000 for row in rows]


async def _check_out(client: httpx.AsyncClient, key: str) -> None:
    body = {"data": {}, "metadata": {"actor": orders.ACTOR}}
    response = await client.post(f"/cart/{key}/was_checked_out", json=body)
    if response.status_code != 201:
        raise RuntimeError(response.text)


def _counts(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
