"""Timers and sagas of one tenant go on while another's appends wait."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import UUID

import asyncpg
import httpx
import pytest

from gateway.aggregates.records import Records
from gateway.appends import Append
from gateway.config import Config
from gateway.outcomes import NotCommitted, Outcome
from gateway.reactions import coordinator, reactor
from tests.http.test_sagas import SHOP as CARTS
from tests.http.test_schedules import SHOP as ORDERS
from tests.support.accounts import Account, open_account
from tests.support.calls import ACTOR, appended, new_client, new_id
from tests.support.serving import Served, serving

DEADLINE_S = 20.0
SHOP: dict[str, Any] = {
    **CARTS,
    "aggregate_types": {**CARTS["aggregate_types"], **ORDERS["aggregate_types"]},
}


class Waiting:
    """Whose reactions are not appended for now: firings are not answered, turns of sagas not committed."""

    def __init__(self) -> None:
        self.tenants: set[bytes] = set()
        self.tries = 0
        self.holds_turns = False
        self.unanswered: list[asyncio.Future[Outcome]] = []

    def end(self) -> None:
        self.tenants.clear()
        for each in self.unanswered:
            if not each.done():
                each.set_result(NotCommitted("the test says so"))

    def answer(self, append: Append) -> asyncio.Future[Outcome] | None:
        actor = append.events[0].actor_type
        if append.stream.tenant not in self.tenants or not actor.startswith("system_"):
            return None
        self.tries += 1
        answer: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        if actor == "system_saga" and not self.holds_turns:
            answer.set_result(NotCommitted("the test says so"))
        else:
            self.unanswered.append(answer)
        return answer


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> Waiting:
    waiting, append = Waiting(), Records.append

    def delayed(self: Records, asked: Append) -> asyncio.Future[Outcome]:
        return waiting.answer(asked) or append(self, asked)

    monkeypatch.setattr(Records, "append", delayed)
    monkeypatch.setattr(coordinator, "APPEND_S", 0.5)
    return waiting


@pytest.fixture
async def own_gateway(own_config: Config, waiting: Waiting) -> AsyncIterator[Served]:
    async with serving(own_config) as served:
        yield served


async def fired_and_stepped(client: httpx.AsyncClient, order: str, sku: str) -> None:
    async with asyncio.timeout(DEADLINE_S):
        for of, key, event_type in (
            ("inventory", sku, "reservation_asked"),
            ("order", order, "had_expired"),
        ):
            while event_type not in await types(client, of, key):
                await asyncio.sleep(0.02)


async def types(client: httpx.AsyncClient, of: str, key: str) -> list[str]:
    return [each["type"] for each in (await client.get(f"/{of}/{key}/events")).json().get("events", ())]


async def test_more_tenants_than_one_process_looks_after_take_turns(
    own_config: Config, own_outbox: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reactor, "TENANTS_MAX", 1)
    accounts = [await open_account(own_outbox, SHOP) for _ in range(3)]
    async with serving(own_config) as served, contextlib.AsyncExitStack() as ending:
        clients = [await ending.enter_async_context(client_of(served, each)) for each in accounts]
        orders = [new_id() for _ in clients]
        for client, order in zip(clients, orders, strict=True):
            await appended(client, "order", order, "was_placed", {})
        async with asyncio.timeout(DEADLINE_S):
            for client, order in zip(clients, orders, strict=True):
                while "had_expired" not in await types(client, "order", order):
                    await asyncio.sleep(0.02)


async def test_a_tenant_whose_appends_wait_keeps_no_other_waiting(
    own_gateway: Served, own_outbox: asyncpg.Pool, waiting: Waiting
) -> None:
    stalled, other = await open_account(own_outbox, SHOP), await open_account(own_outbox, SHOP)
    waiting.tenants = {UUID(stalled.id).bytes}
    async with client_of(own_gateway, stalled) as first, client_of(own_gateway, other) as second:
        order, cart, sku = new_id(), new_id(), new_id()
        await appended(first, "order", order, "was_placed", {})
        await until(lambda: waiting.unanswered)
        await appended(first, "cart", cart, "checkout_started", {"sku": sku})
        await until(lambda: waiting.tries > 1)
        another, further, its = new_id(), new_id(), new_id()
        await appended(second, "order", another, "was_placed", {})
        await appended(second, "cart", further, "checkout_started", {"sku": its})
        await fired_and_stepped(second, another, its)
        assert await types(first, "order", order) == ["was_placed"]
        waiting.end()
        await fired_and_stepped(first, order, sku)
        assert await types(first, "order", order) == ["was_placed", "had_expired"]


async def test_sagas_of_a_tenant_take_their_turns_beside_each_other(
    own_gateway: Served, own_outbox: asyncpg.Pool, waiting: Waiting
) -> None:
    account = await open_account(own_outbox, SHOP)
    waiting.tenants, waiting.holds_turns = {UUID(account.id).bytes}, True
    async with client_of(own_gateway, account) as client:
        skus = [new_id() for _ in range(3)]
        events = [
            {"aggregate_type": "cart", "key": new_id(), "type": "checkout_started", "data": {"sku": sku}}
            for sku in skus
        ]
        body = {"events": events, "metadata": {"actor": ACTOR}}
        assert (await client.post("/_/append", json=body)).status_code == 201
        await until(lambda: len(waiting.unanswered) == len(skus))
        waiting.end()
        async with asyncio.timeout(DEADLINE_S):
            for sku in skus:
                while await types(client, "inventory", sku) != ["reservation_asked"]:
                    await asyncio.sleep(0.02)


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not holds():
            await asyncio.sleep(0.02)


def client_of(served: Served, account: Account) -> httpx.AsyncClient:
    return new_client(served.url, account.admin)
