"""Orders that imply and expire, carts with a saga: two gateways, killed at random, and Redis restarted."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import httpx

from gateway.catalog.migrate import migrate
from tests.reacting.checker import Row
from tests.support.accounts import open_account
from tests.support.servers import Servers
from tests.support.serving import Child, child_serving

ACTOR = {"type": "user", "id": "a0000000-0000-4000-a000-000000000001"}
DELAY_S = 1.5
EXPIRY = {"aggregate_type": "order", "id": "$.key", "event_type": "had_expired"}
PAID = {"aggregate_type": "order", "id": "$.key", "event_type": "was_paid"}
ANSWERS = ["was_reserved", "reservation_failed"]
SETTLE_S = 90.0
SPEC: dict[str, Any] = {
    "aggregate_types": {
        "order": {
            "events": {
                "was_placed": {
                    "schema": {},
                    "implications": [
                        {"emit": {"aggregate_type": "account", "id": "$.key", "event_type": "was_credited"}},
                        {
                            "schedule": {
                                "delay_ms": int(DELAY_S * 1000),
                                "emit": {
                                    "aggregate_type": "order",
                                    "id": "$.key",
                                    "event_type": "had_expired",
                                },
                                "cancel_on": [
                                    {"aggregate_type": "order", "id": "$.key", "event_type": "was_paid"}
                                ],
                            }
                        },
                    ],
                },
                "was_paid": {"schema": {}},
                "had_expired": {"schema": {}},
            }
        },
        "account": {"events": {"was_credited": {"schema": {}}}},
        "cart": {"events": {"was_checked_out": {"schema": {}}, "was_shipped": {"schema": {}}}},
        "stock": {
            "events": {
                "reservation_asked": {"schema": {}},
                "was_reserved": {"schema": {}},
                "reservation_failed": {"schema": {}},
                "was_released": {"schema": {}},
            }
        },
        "payment": {"events": {"charge_asked": {"schema": {}}, "was_refunded": {"schema": {}}}},
    },
    "agent_types": ["user"],
    "sagas": {
        "checkout": {
            "trigger": {"aggregate_type": "cart", "event_type": "was_checked_out"},
            "steps": [
                {
                    "name": "reserve",
                    "emit": {"aggregate_type": "stock", "id": "$.key", "event_type": "reservation_asked"},
                    "await": {
                        "aggregate_type": "stock",
                        "event_types": ["was_reserved", "reservation_failed"],
                    },
                    "fail_on": ["reservation_failed"],
                    "compensate": {"aggregate_type": "stock", "id": "$.key", "event_type": "was_released"},
                    "timeout_ms": 3000,
                },
                {
                    "name": "charge",
                    "emit": {"aggregate_type": "payment", "id": "$.key", "event_type": "charge_asked"},
                    "compensate": {"aggregate_type": "payment", "id": "$.key", "event_type": "was_refunded"},
                },
                {
                    "name": "ship",
                    "emit": {"aggregate_type": "cart", "id": "$.key", "event_type": "was_shipped"},
                },
            ],
        }
    },
}
STORED = """
SELECT seq, id, causation_id, aggregate_type, aggregate_id, type,
    extract(epoch FROM recorded_at)::float8 AS at
FROM outbox ORDER BY p, seq
"""
LEFT = """
SELECT (SELECT count(*) FROM schedule WHERE state = 'pending')
    + (SELECT count(*) FROM saga WHERE state = 'running')
"""


@dataclass(slots=True)
class Campaign:
    servers: Servers
    folder: Path
    seed: int
    key: str = ""
    gateways: list[Child | None] = field(default_factory=lambda: [None, None])
    kills: dict[str, int] = field(default_factory=lambda: {"gateway": 0, "redis": 0})
    begun: int = 0
    _stop: bool = False

    async def run(self, seconds: float, writers: int) -> list[Row]:
        """What is stored once nothing is pending any more. Raises TimeoutError where something is stuck."""
        await migrate(self.servers.postgres_url, 4)
        async with (
            asyncpg.create_pool(self.servers.postgres_url, min_size=1, max_size=1) as pool,
            AsyncExitStack() as ends,
            httpx.AsyncClient(timeout=30, trust_env=False) as client,
        ):
            self.key = (await open_account(pool, SPEC)).write
            places = [await ends.enter_async_context(AsyncExitStack()) for _ in self.gateways]
            for n, place in enumerate(places):
                await self._start(n, place)
            working = [asyncio.create_task(self._writer(client, n)) for n in range(writers)]
            await self._break(places, seconds)
            self._stop = True
            async with asyncio.timeout(SETTLE_S):
                await asyncio.gather(*working)
                quiet_since = time.monotonic()
                while time.monotonic() - quiet_since < DELAY_S + 1:
                    if await pool.fetchval(LEFT):
                        quiet_since = time.monotonic()
                    await asyncio.sleep(0.1)
            return [
                Row(
                    row["seq"],
                    str(row["id"]),
                    None if row["causation_id"] is None else str(row["causation_id"]),
                    row["aggregate_type"],
                    row["aggregate_id"],
                    row["type"],
                    row["at"],
                )
                for row in await pool.fetch(STORED)
            ]

    async def _start(self, n: int, place: AsyncExitStack) -> None:
        folder = self.folder / f"gateway-{n}"
        folder.mkdir(exist_ok=True)
        urls = (self.servers.postgres_url, self.servers.redis_url)
        self.gateways[n] = await place.enter_async_context(child_serving(*urls, folder))

    async def _break(self, places: list[AsyncExitStack], seconds: float) -> None:
        chance, ends = random.Random(self.seed), time.monotonic() + seconds
        while time.monotonic() < ends:
            await asyncio.sleep(chance.uniform(0.5, 2))
            if chance.random() < 0.25:
                self.kills["redis"] += 1
                await self.servers.redis.restart()
                continue
            n = chance.randrange(len(places))
            gateway = self.gateways[n]
            assert gateway is not None
            gateway.process.kill()
            self.gateways[n] = None
            self.kills["gateway"] += 1
            await places[n].aclose()
            await self._start(n, places[n])

    async def _writer(self, client: httpx.AsyncClient, n: int) -> None:
        chance = random.Random(self.seed * 1_000 + n)
        while not self._stop:
            key = str(UUID(int=chance.getrandbits(128), version=4))
            self.begun += 1
            if n % 2:
                await self._append(client, chance, "order", key, "was_placed")
                if chance.random() < 0.5:
                    await asyncio.sleep(chance.uniform(0, 2 * DELAY_S))
                    await self._append(client, chance, "order", key, "was_paid")
            else:
                await self._append(client, chance, "cart", key, "was_checked_out")
                await asyncio.sleep(chance.uniform(0, 0.5))
                luck = chance.random()
                if luck < 0.8:
                    answer = "was_reserved" if luck < 0.6 else "reservation_failed"
                    await self._append(client, chance, "stock", key, answer)

    async def _append(
        self, client: httpx.AsyncClient, chance: random.Random, of: str, key: str, event: str
    ) -> None:
        """One request, until it is answered 201."""
        headers = {"Authorization": f"Bearer {self.key}", "Idempotency-Key": f"{of}-{key}-{event}"}
        until = time.monotonic() + SETTLE_S
        while time.monotonic() < until:
            gateway = chance.choice(self.gateways)
            if gateway is None:
                await asyncio.sleep(0.05)
                continue
            url = f"{gateway.served.url}/{of}/{key}/{event}"
            try:
                body = {"data": {}, "metadata": {"actor": ACTOR}}
                response = await client.post(url, json=body, headers=headers)
            except httpx.HTTPError:
                await asyncio.sleep(0.05)
                continue
            if response.status_code == 201:
                return
            assert response.status_code in (429, 503, 504), response.text
            await asyncio.sleep(0.05)
        raise TimeoutError(f"{event} was never acknowledged")
