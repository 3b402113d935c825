"""Many writers reserve one item through two gateways, which are killed, and so is Redis."""

from __future__ import annotations

import asyncio
import json
import random
import time
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import httpx

from gateway.catalog.migrate import migrate
from tests.reserving.checker import RESERVED, STOCKED, Row, Told
from tests.support.accounts import open_account
from tests.support.servers import Servers
from tests.support.serving import Child, child_serving

ACTOR = {"type": "user", "id": "a0000000-0000-4000-a000-000000000001"}
ITEM = "a0000000-0000-4000-a000-000000000002"
SETTLE_S = 60.0
SPEC: dict[str, Any] = {
    "aggregate_types": {
        "item": {
            "events": {
                STOCKED: {
                    "schema": {"type": "object"},
                    "handler": {"increment": {"target": "available", "value": "$.data.quantity"}},
                },
                RESERVED: {
                    "schema": {"type": "object"},
                    "handler": {"decrement": {"target": "available", "value": "$.data.quantity"}},
                    "rules": [
                        {
                            "require": {"gte": ["@.available", "$.data.quantity"]},
                            "error": "Only {@.available} are left.",
                        }
                    ],
                },
            }
        }
    },
    "agent_types": ["user"],
}


@dataclass(slots=True)
class Campaign:
    servers: Servers
    folder: Path
    seed: int
    key: str = ""
    gateways: list[Child | None] = field(default_factory=lambda: [None, None])
    told: list[Told] = field(default_factory=list)
    kills: dict[str, int] = field(default_factory=lambda: {"gateway": 0, "redis": 0})
    states: list[tuple[int, int]] = field(default_factory=list)
    _stop: bool = False

    async def run(self, seconds: float, writers: int, *, reread: bool = False) -> list[Row]:
        """What is stored in the end."""
        await migrate(self.servers.postgres_url, 4)
        async with asyncpg.create_pool(self.servers.postgres_url, min_size=1, max_size=1) as pool:
            self.key = (await open_account(pool, SPEC)).write
        async with AsyncExitStack() as ends, httpx.AsyncClient(timeout=30, trust_env=False) as client:
            places = [await ends.enter_async_context(AsyncExitStack()) for _ in self.gateways]
            for n, place in enumerate(places):
                await self._start(n, place)
            await self._write(client, random.Random(self.seed), STOCKED, 20)
            working = [asyncio.create_task(self._writer(client, n)) for n in range(writers)]
            await self._break(places, seconds)
            self._stop = True
            async with asyncio.timeout(SETTLE_S):
                await asyncio.gather(*working)
            if reread:
                await self._reread(client, places[0])
        return await self._stored()

    async def _reread(self, client: httpx.AsyncClient, place: AsyncExitStack) -> None:
        """The state by a gateway that was just started: begun at what was kept, and from the first event."""
        await place.aclose()
        await self._start(0, place)
        gateway = self.gateways[0]
        assert gateway is not None
        headers = {"Authorization": f"Bearer {self.key}"}
        for query in ("", "?synchronous=true"):
            url = f"{gateway.served.url}/item/{ITEM}{query}"
            state = (await client.get(url, headers=headers)).json()
            self.states.append((state["metadata"]["length"], state["data"]["available"]))

    async def _start(self, n: int, place: AsyncExitStack) -> None:
        folder = self.folder / f"gateway-{n}"
        folder.mkdir(exist_ok=True)
        urls = (self.servers.postgres_url, self.servers.redis_url)
        self.gateways[n] = await place.enter_async_context(child_serving(*urls, folder))

    # -- faults

    async def _break(self, places: list[AsyncExitStack], seconds: float) -> None:
        chance, ends = random.Random(self.seed), time.monotonic() + seconds
        while time.monotonic() < ends:
            await asyncio.sleep(chance.uniform(0.3, 1.2))
            if chance.random() < 0.3:
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
            await asyncio.sleep(chance.uniform(0, 0.5))
            await self._start(n, places[n])

    # -- writers

    async def _writer(self, client: httpx.AsyncClient, n: int) -> None:
        chance = random.Random(self.seed * 1_000 + n)
        while not self._stop:
            if n % 10 == 0:
                await asyncio.sleep(chance.uniform(0, 0.2))
                await self._write(client, chance, STOCKED, chance.randrange(1, 10))
            else:
                await self._write(client, chance, RESERVED, chance.randrange(1, 4))

    async def _write(
        self, client: httpx.AsyncClient, chance: random.Random, event: str, quantity: int
    ) -> None:
        """One request, until its outcome is known."""
        name, doubtful = str(uuid4()), False
        body = {"data": {"id": name, "quantity": quantity}, "metadata": {"actor": ACTOR}}
        deadline = time.monotonic() + SETTLE_S
        while time.monotonic() < deadline:
            response = await self._sent(client, chance, event, name, body)
            if response is not None and response.status_code not in (503, 504):
                told = response.json()
                seen = (told.get("length"), told.get("error"), doubtful)
                self.told.append(Told(event, name, quantity, response.status_code, *seen))
                return
            doubtful = True
            await asyncio.sleep(chance.uniform(0, 0.05))
        self.told.append(Told(event, name, quantity, None, doubtful=True))

    async def _sent(
        self, client: httpx.AsyncClient, chance: random.Random, event: str, name: str, body: Any
    ) -> httpx.Response | None:
        gateway = chance.choice(self.gateways)
        if gateway is None:
            return None
        headers = {"Authorization": f"Bearer {self.key}", "Idempotency-Key": name}
        with suppress(httpx.TransportError):
            return await client.post(f"{gateway.served.url}/item/{ITEM}/{event}", json=body, headers=headers)
        return None

    async def _stored(self) -> list[Row]:
        connection = await asyncpg.connect(self.servers.postgres_url)
        rows = await connection.fetch(
            "SELECT version, type, payload FROM outbox WHERE aggregate_id = $1 ORDER BY version", ITEM
        )
        await connection.close()
        found = []
        for row in rows:
            data = json.loads(row["payload"])
            found.append(Row(row["version"], row["type"], data["id"], data["quantity"]))
        return found
