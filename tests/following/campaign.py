"""Writers at work while gateways, relays and Postgres are killed, Redis is wiped and definitions change; all
the while rows are held against a fold of what is committed."""

from __future__ import annotations

import asyncio
import copy
import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import httpx

from gateway.catalog import specs
from tests.following.bad import argv
from tests.following.checker import (
    RECORD_SWITCHES,
    Seen,
    Stored,
    Violation,
    check,
    check_switches,
    observe,
    recorded_switches,
)
from tests.outgoing.stand import Killer, Stand, open_stand
from tests.support.bugs import bugs_in
from tests.support.calls import new_id
from tests.support.servers import open_folder

WRITERS = 16
CUSTOMERS, ORDERS = 40, 300
LOOK_EVERY_S = 0.7
CHANGE_EVERY_S = 2.5
LOSE_EVERY_S = 4.0
QUIET_S = 40.0
ERRORS = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
"""What a Postgres that is restarted brings."""

SPEC: dict[str, Any] = {
    "aggregate_types": {
        "order": {
            "events": {
                "was_placed": {"schema": {}},
                "had_item": {"schema": {}, "handler": {"increment": {"target": "items", "value": 1}}},
                "was_cancelled": {
                    "schema": {},
                    "handler": {"set": {"target": "status", "value": "cancelled"}},
                },
            },
            "list": {"by": ["status", "total", "items"]},
        },
        "customer": {"events": {"was_named": {"schema": {}}, "was_closed": {"schema": {}}}},
    },
    "agent_types": ["user"],
    "projections": {
        "totals": {
            "on": {
                "order.was_placed": {
                    "key": "$.data.customer_id",
                    "do": [
                        {"increment": {"target": "orders"}},
                        {"increment": {"target": "spent", "value": "$.data.total"}},
                    ],
                },
                "order.had_item": {
                    "key": "^.customer_id",
                    "do": {"increment": {"target": "items", "value": 1}},
                },
                "order.was_cancelled": {"key": "^.customer_id", "do": {"decrement": {"target": "orders"}}},
                "customer.was_closed": {"key": "$.key", "do": "delete"},
            },
            "by": ["spent", "orders"],
        },
        "details": {
            "join": {
                "for_each": "order",
                "sources": {
                    "order": "$key",
                    "customer": {"type": "customer", "id": "$.order.customer_id"},
                },
                "select": {"items": "$.order.items", "name": "$.customer.name", "factor": {"$literal": 1}},
            },
            "by": ["name"],
        },
    },
}


def spec_with(factor: int) -> dict[str, Any]:
    """Another definition of everything for each factor."""
    spec = copy.deepcopy(SPEC)
    spec["aggregate_types"]["order"]["events"]["had_item"]["handler"]["increment"]["value"] = factor
    spec["projections"]["totals"]["on"]["order.had_item"]["do"]["increment"]["value"] = factor
    spec["projections"]["details"]["join"]["select"]["factor"] = {"$literal": factor}
    return spec


def counts_with(factor: int) -> dict[str, Any]:
    """The neighbour's: its projection only counts, so a busy gateway folds it while its rows rest."""
    spec = spec_with(factor)
    del spec["aggregate_types"]["order"]["list"]
    do = [
        {"increment": {"target": "orders", "value": factor}},
        {"increment": {"target": "spent", "value": "$.data.total"}},
    ]
    spec["projections"] = {"counts": {"on": {"order.was_placed": {"key": "$.data.customer_id", "do": do}}}}
    return spec


@dataclass(slots=True)
class Result:
    seed: int
    committed: int = 0
    looks: int = 0
    changes: int = 0
    reads: int = 0
    switches: int = 0
    kills: dict[str, int] = field(default_factory=dict)
    stops: dict[str, int] = field(default_factory=dict)
    losses: dict[str, int] = field(default_factory=lambda: {"redis": 0, "postgres": 0})
    violations: list[Violation] = field(default_factory=list)


class Campaign:
    def __init__(self, stand: Stand, seed: int) -> None:
        self._stand = stand
        self._rng = random.Random(f"{seed}/following")
        self._customers = [new_id() for _ in range(CUSTOMERS)]
        self._orders = [new_id() for _ in range(ORDERS)]
        self._ended = False
        self._floor: dict[str, int] = {}
        self._tenants = stand.tenant.id, stand.neighbour.id
        self._headers = {"authorization": f"Bearer {stand.tenant.admin}"}
        self.result = Result(seed)

    async def run(self, seconds: float) -> Result:
        await self._record_switches()
        await self._deploy(1)
        killer = Killer(self._stand, self.result.seed)
        async with asyncio.TaskGroup() as group:
            for number in range(WRITERS):
                group.create_task(self._write(number))
            for work in (self._look, self._change, self._lose):
                group.create_task(work())
            await killer.run(seconds)
            self._ended = True
        self.result.kills, self.result.stops = killer.kills, killer.stops
        await self._settled()
        switches = await recorded_switches(self._stand.servers.postgres_url)
        self.result.switches = len(switches)
        self.result.violations += check_switches(switches)
        return self.result

    async def _record_switches(self) -> None:
        conn = await asyncpg.connect(self._stand.servers.postgres_url)
        try:
            await conn.execute(RECORD_SWITCHES)
        finally:
            await conn.close()

    # -- at work

    async def _write(self, number: int) -> None:
        rng = random.Random(f"{self.result.seed}/{number}")
        async with httpx.AsyncClient(headers=self._headers, timeout=15, trust_env=False) as client:
            while not self._ended:
                gateway = await self._stand.living(rng)
                try:
                    await self._append(client, gateway.url, rng)
                except httpx.TransportError:
                    await asyncio.sleep(0.05)

    async def _append(self, client: httpx.AsyncClient, url: str, rng: random.Random) -> None:
        actor = {"actor": {"type": "user", "id": "global"}}
        if rng.random() < 0.3:
            await self._count(client, url, rng)
            return
        if rng.random() < 0.1:
            key, kind = rng.choice(self._customers), rng.choice(("was_named", "was_named", "was_closed"))
            body = {"data": {"name": f"n{rng.randrange(100)}"}, "metadata": actor}
            await client.post(f"{url}/customer/{key}/{kind}", json=body)
            return
        key = rng.choice(self._orders)
        placed = {"customer_id": rng.choice(self._customers), "total": rng.randrange(100), "status": "open"}
        events: list[dict[str, Any]] = [{"type": "was_placed", "data": placed}]
        events += [{"type": "had_item", "data": {}}] * rng.randrange(6)
        if rng.random() < 0.2:
            events.append({"type": "was_cancelled", "data": {}})
        response = await client.post(f"{url}/order/{key}", json={"events": events, "metadata": actor})
        if response.status_code == 201 and rng.random() < 0.1:
            await self._read_own(client, url, key, response.json())

    async def _count(self, client: httpx.AsyncClient, url: str, rng: random.Random) -> None:
        events = [
            {
                "type": "was_placed",
                "data": {"customer_id": rng.choice(self._customers), "total": rng.randrange(100)},
            }
            for _ in range(rng.choice((1, 3, 50)))
        ]
        body = {"events": events, "metadata": {"actor": {"type": "user", "id": "global"}}}
        headers = {"authorization": f"Bearer {self._stand.neighbour.admin}"}
        await client.post(f"{url}/order/{rng.choice(self._orders)}", json=body, headers=headers)

    async def _read_own(self, client: httpx.AsyncClient, url: str, key: str, receipt: Any) -> None:
        """Who waits for the position of a receipt sees the append, or is told that it can't yet."""
        params = {"after": receipt["position"], "wait": 3}
        response = await client.get(f"{url}/_/projections/list:order/{key}", params=params)
        if response.status_code == 200:
            self.result.reads += 1
            if response.json()["metadata"]["length"] < receipt["length"]:
                self._violated("own write", f"{response.text} for {receipt}")
        elif response.status_code not in (503, 401):
            self._violated("read", f"{response.status_code} {response.text}")

    async def _look(self) -> None:
        while not self._ended:
            await asyncio.sleep(LOOK_EVERY_S)
            try:
                for tenant in self._tenants:
                    self._check(*await observe(self._stand.servers.postgres_url, tenant))
            except ERRORS:
                continue
            self.result.looks += 1

    def _check(self, events: list[Stored], seen: list[Seen]) -> None:
        self.result.violations += check(events, seen)
        for each in seen:
            if each.state == "serving":
                if each.seq < self._floor.get(each.name, 0):
                    self._violated("back", f"{each.name} serves {each.seq} after {self._floor[each.name]}")
                self._floor[each.name] = each.seq

    async def _change(self) -> None:
        factor = 1
        while not self._ended:
            await asyncio.sleep(CHANGE_EVERY_S)
            factor += 1
            try:
                await self._deploy(factor)
            except ERRORS:
                continue
            self.result.changes += 1

    async def _deploy(self, factor: int) -> None:
        import uuid

        async with asyncpg.create_pool(self._stand.servers.postgres_url, min_size=0, max_size=1) as pool:
            for tenant, spec in zip(self._tenants, (spec_with(factor), counts_with(factor)), strict=True):
                done = await specs.deploy(pool, uuid.UUID(tenant), json.dumps(spec).encode(), {}, force=True)
                assert isinstance(done, specs.Accepted), done

    async def _lose(self) -> None:
        """Redis loses all that it has; Postgres is restarted, and may lose what it had not written yet."""
        while not self._ended:
            await asyncio.sleep(self._rng.uniform(0.5, 1.5) * LOSE_EVERY_S)
            if self._rng.random() < 0.5:
                self._stand.servers.wipe_redis()
                await self._stand.servers.redis.start()
                self.result.losses["redis"] += 1
            else:
                await self._stand.servers.postgres.restart()
                self._floor.clear()
                self.result.losses["postgres"] += 1

    # -- at rest

    async def _settled(self) -> None:
        """All that is committed has to get into the last definition of everything."""
        until = asyncio.get_running_loop().time() + QUIET_S
        for tenant, followers in zip(self._tenants, (3, 1), strict=True):
            await self._settle(tenant, followers, until)
        for line in bugs_in(self._stand.servers.folder):
            self._violated("bug", line)

    async def _settle(self, tenant: str, followers: int, until: float) -> None:
        while True:
            events, seen = await observe(self._stand.servers.postgres_url, tenant)
            serving = {each.name for each in seen if each.state == "serving"}
            last = events[-1].seq if events else 0
            done = len(serving) == len(seen) == followers and all(each.seq >= last for each in seen)
            if done or asyncio.get_running_loop().time() > until:
                self.result.committed += len(events)
                self._check(events, seen)
                if not done:
                    stands = {f"{each.name} {each.state}": each.seq for each in seen}
                    self._violated("stuck", f"{stands} for {last}")
                return
            await asyncio.sleep(0.2)

    def _violated(self, kind: str, told: str) -> None:
        self.result.violations.append(Violation(kind, told))


async def run_campaign(seconds: float, seed: int, build: str | None = None) -> Result:
    """Raises what the campaign itself fails at; a violation is a result."""
    with open_folder() as folder:
        async with open_stand(Path(folder), build, argv, gateways_relay=True) as stand:
            return await Campaign(stand, seed).run(seconds)
