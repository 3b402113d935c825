"""A gateway that keeps lists and projections, on a database of its own; a tenant for each test, whose spec
declares some."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import asyncpg
import httpx
import pytest

from gateway.config import Config
from gateway.log.postgres import open_pool
from gateway.state import Budget
from tests.support.accounts import Account, open_account
from tests.support.calls import new_client
from tests.support.databases import cloned
from tests.support.servers import Servers
from tests.support.serving import Served, serving

ORDER: dict[str, Any] = {
    "events": {
        "was_placed": {"schema": {}},
        "was_paid": {"schema": {}, "handler": {"set": {"target": "status", "value": "paid"}}},
        "had_item": {"schema": {}, "handler": {"append": {"target": "items", "value": "$.data.item"}}},
        "was_cancelled": {"schema": {}, "handler": {"set": {"target": "status", "value": "cancelled"}}},
        "was_split": {"schema": {}, "handler": []},
    },
    "list": {"by": ["status", "total", "customer_id", "metadata.length", "address.city"]},
}
SPEC: dict[str, Any] = {
    "aggregate_types": {"order": ORDER, "customer": {"events": {"was_closed": {"schema": {}}}}},
    "agent_types": ["user"],
    "projections": {
        "customer_totals": {
            "on": {
                "order.was_placed": {
                    "key": "$.data.customer_id",
                    "do": [
                        {"increment": {"target": "orders"}},
                        {"increment": {"target": "spent", "value": "$.data.total"}},
                    ],
                },
                "order.was_cancelled": {"key": "^.customer_id", "do": [{"decrement": {"target": "orders"}}]},
                "order.was_split": {
                    "keys": "$.data.parts[*].customer_id",
                    "do": [{"increment": {"target": "parts"}}],
                },
                "customer.was_closed": {"key": "$.key", "do": "delete"},
            },
            "by": ["spent", "orders"],
        }
    },
}


@pytest.fixture(scope="module")
async def config(servers: Servers, template: str) -> AsyncIterator[Config]:
    async with cloned(servers, template) as url:
        yield Config(redis_url=servers.redis_url, postgres_url=url)


@pytest.fixture(scope="module")
async def gateway(config: Config) -> AsyncIterator[Served]:
    async with serving(config) as served:
        yield served


@pytest.fixture(scope="module")
async def pool(config: Config) -> AsyncIterator[asyncpg.Pool]:
    opened = await open_pool(config.postgres_url, 4, 5.0)
    yield opened
    await opened.close()


@pytest.fixture
async def tenant(pool: asyncpg.Pool) -> Account:
    return await open_account(pool, SPEC)


@pytest.fixture
async def client(gateway: Served, tenant: Account) -> AsyncIterator[httpx.AsyncClient]:
    async with new_client(gateway.url, tenant.admin) as client:
        yield client


@dataclass(frozen=True)
class Shop:
    """What tests do to a tenant."""

    client: httpx.AsyncClient

    async def append(self, key: str, event_type: str, data: Any = None, of: str = "order") -> None:
        body = {"data": data or {}, "metadata": {"actor": {"type": "user", "id": "global"}}}
        response = await self.client.post(f"/{of}/{key}/{event_type}", json=body)
        assert response.status_code == 201, response.text

    async def position(self) -> str:
        """Of the feed, behind all that is committed."""
        position, caught_up = "beginning", False
        while not caught_up:
            page = (await self.client.get("/_/feed", params={"after": position, "limit": 1000})).json()
            position, caught_up = page["position"], page["caught_up"]
        return position

    async def get(self, path: str, **query: Any) -> dict[str, Any]:
        """A read that sees all that was appended."""
        params = {"after": await self.position(), "wait": 10, **query}
        response = await self.client.get(path, params=params)
        assert response.status_code == 200, response.text
        return dict(response.json())


@pytest.fixture
def shop(client: httpx.AsyncClient) -> Shop:
    return Shop(client)


class Turns:
    """What was counted in turns of the event loop; `most` in one of them."""

    def __init__(self) -> None:
        self.most = self._now = 0

    def add(self, count: int) -> None:
        if not self._now:
            asyncio.get_running_loop().call_soon(self._over)
        self._now += count
        self.most = max(self.most, self._now)

    def _over(self) -> None:
        self._now = 0


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> Turns:
    counted, work = Turns(), Budget.work

    def counting(budget: Budget, count: int) -> None:
        work(budget, count)
        if threading.current_thread() is threading.main_thread():
            counted.add(count)

    monkeypatch.setattr(Budget, "work", counting)
    return counted
