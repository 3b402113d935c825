"""While a deployment looks whether what it removes has events, that is not appended. The deployment may be
refused yet: what would be refused waits for how it ends, and what is stored is read as before."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import asyncpg
import httpx
import pytest

from gateway.catalog import closing
from gateway.config import Config
from gateway.log.read import cold
from gateway.reactions import coordinator
from tests.http import test_sagas
from tests.http.test_schedules import fired
from tests.http.webhooks import SOURCES, declared, open_hooks
from tests.support.accounts import Account, open_account
from tests.support.calls import (
    ACTOR,
    append,
    appended,
    batch,
    bulk,
    bulk_line,
    new_client,
    new_id,
    refused,
    until,
)
from tests.support.serving import Served, serving

POINTS: dict[str, Any] = {"aggregate_type": "loyalty", "id": "$.key", "event_type": "had_points"}
SPEC: dict[str, Any] = {
    "aggregate_types": {
        "order": {
            "events": {
                "was_noted": {"schema": {}},
                "was_placed": {"schema": {}, "implications": [{"emit": POINTS}]},
                "was_counted": {
                    "schema": {},
                    "handler": {"increment": {"target": "n", "value": "$.data.by"}},
                },
                "was_reminded": {"schema": {}},
            }
        },
        "loyalty": {"events": {"had_points": {"schema": {}}}},
    },
    "agent_types": ["user"],
}
LEFT: dict[str, Any] = {
    "aggregate_types": {"order": {"events": {"was_noted": {"schema": {}}, "was_placed": {"schema": {}}}}},
    "agent_types": ["user"],
}
TRIED = "SELECT state <> 'pending' OR (lease_until IS NOT NULL AND attempts = 0) FROM schedule WHERE id = $1"


@asynccontextmanager
async def removing(pool: asyncpg.Pool, account: Account, left: dict[str, Any]) -> AsyncIterator[None]:
    """As a deployment of `left` does between its two looks at what is stored, of which the second one finds
    something: it is refused."""
    tenant = UUID(account.id)
    async with pool.acquire() as conn:
        async with closing.open_afterwards(conn, tenant):
            await closing.close(conn, tenant, json.dumps(left).encode())
            yield
        await closing.followed(conn)


@pytest.fixture
async def account(own_gateway: Served, own_outbox: asyncpg.Pool) -> Account:
    return await open_account(own_outbox, SPEC)


@pytest.fixture
async def client(own_gateway: Served, account: Account) -> AsyncIterator[httpx.AsyncClient]:
    async with new_client(own_gateway.url, account.admin) as client:
        yield client


async def state(client: httpx.AsyncClient, key: str) -> Any:
    return (await client.get(f"/order/{key}")).json()["data"]


async def test_a_timer_is_not_parked(
    client: httpx.AsyncClient, account: Account, own_outbox: asyncpg.Pool
) -> None:
    emit = {"aggregate_type": "order", "id": new_id(), "event_type": "was_reminded"}
    body, headers = {"delay": "24h", "emit": emit}, {"idempotency-key": "once"}
    set_ = await client.post("/_/schedules", json=body, headers=headers)
    timer = set_.json()["schedule"]["id"]

    async def tried() -> bool:
        return bool(await own_outbox.fetchval(TRIED, UUID(timer)))

    async with removing(own_outbox, account, LEFT):
        assert (await client.post(f"/_/schedules/{timer}/run", json={})).status_code == 200
        await until(tried)
        assert (await client.get(f"/_/schedules/{timer}")).json()["schedule"]["state"] == "pending"
    await fired(client, timer)


async def test_a_saga_does_not_fail(
    own_gateway: Served,
    own_outbox: asyncpg.Pool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(coordinator, "APPEND_S", 0.2)
    spec, cart, sku = test_sagas.SHOP, new_id(), new_id()
    left = {name: part for name, part in spec.items() if name != "sagas"}
    cart_left = {"events": {"checkout_started": {"schema": {}}}}
    left["aggregate_types"] = {**spec["aggregate_types"], "cart": cart_left}
    account = await open_account(own_outbox, spec)
    async with new_client(own_gateway.url, account.admin) as client:

        async def waits() -> bool:
            sagas = (await client.get("/_/sagas")).json()["items"]
            delayed = "reactions_delayed" in [record.message for record in caplog.records]
            return delayed or [each["state"] for each in sagas] != ["running"]

        await appended(client, "cart", cart, "checkout_started", {"sku": sku})
        await test_sagas.until(client, "inventory", sku, "reservation_asked")
        async with removing(own_outbox, account, left):
            await appended(client, "inventory", sku, "was_reserved", {"price": 12})
            await test_sagas.until(client, "payment", cart, "charge_asked")
            await until(waits)
            (saga,) = (await client.get("/_/sagas")).json()["items"]
            assert saga["state"] == "running"
        await test_sagas.only(client, "completed")
        assert await test_sagas.types(client, "cart", cart) == ["checkout_started", "was_shipped"]


async def test_what_implies_it_is_not_committed(
    client: httpx.AsyncClient, account: Account, own_outbox: asyncpg.Pool
) -> None:
    key = new_id()
    async with removing(own_outbox, account, LEFT):
        refused(await append(client, "order", key, "was_placed", {}), 503, "not_committed")
        await appended(client, "order", key, "was_noted", {})
    receipt = await appended(client, "order", key, "was_placed", {})
    assert receipt["implied_count"] == 1


async def test_a_delivery_comes_again(own_gateway: Served, own_outbox: asyncpg.Pool) -> None:
    left = declared()
    del left["aggregate_types"]["webhook_log"]["events"]["was_received"]
    async with new_client(own_gateway.url, None) as stranger:
        hooks = await open_hooks(own_outbox, stranger, {"stripe": SOURCES["stripe"]})
        async with removing(own_outbox, hooks.account, left):
            refused(await hooks.send("stripe", {"id": "evt_1"}), 503, "not_committed")
        told = await hooks.taken("stripe", {"id": "evt_1"})
        assert [each["id"] for each in await hooks.events()] == [told["event_id"]]


async def test_its_appends_never_appear_and_may_be_repeated(
    client: httpx.AsyncClient, account: Account, own_outbox: asyncpg.Pool
) -> None:
    key, one, other, keyed = new_id(), new_id(), new_id(), {"idempotency-key": "k"}
    done = await appended(client, "order", key, "was_counted", {"by": 1}, keyed)
    event = {"aggregate_type": "order", "key": new_id(), "type": "was_counted", "data": {"by": 1}}
    several = {"events": [event], "metadata": {"actor": ACTOR}}
    gone = {
        "events": [event | {"aggregate_type": "loyalty", "type": "had_points"}],
        "metadata": {"actor": ACTOR},
    }
    record = (b'{"by": 1}', {"content-type": "application/x-ndjson"})
    async with removing(own_outbox, account, LEFT):
        for response in (
            await append(client, "order", one, "was_counted", {"by": 1}),
            await append(client, "loyalty", one, "had_points"),
            await client.post(f"/order/{one}", json=batch(("was_noted", {}), ("was_counted", {"by": 1}))),
            await client.post("/_/append", json=several),
            await client.post("/_/append", json=gone),
            await client.post("/_/import?type=order&event=was_counted", content=record[0], headers=record[1]),
            await client.post(
                "/_/import?type=loyalty&event=had_points", content=record[0], headers=record[1]
            ),
        ):
            refused(response, 503, "not_committed")
        again = await append(client, "order", key, "was_counted", {"by": 1}, keyed)
        assert (again.status_code, again.json()) == (201, done)
        told = await bulk(
            client,
            bulk_line(one, {"by": 1}, "was_counted"),
            bulk_line(one, {}),
            several,
            bulk_line(event["key"], {}),
            bulk_line(other, {}),
        )
        assert [each["status"] for each in told] == [503, 503, 503, 503, 201]
        assert {each["code"] for each in told[:4]} == {"not_committed"}
        assert (await append(client, "order", one, "was_never")).status_code == 404
    for each in (one, event["key"]):
        await appended(client, "order", each, "was_counted", {"by": 1})
        assert await state(client, each) == {"n": 1}


async def test_states_are_read_as_before(
    client: httpx.AsyncClient, account: Account, own_outbox: asyncpg.Pool
) -> None:
    """An event that came between its two looks is what it is refused for."""
    key = new_id()
    await appended(client, "order", key, "was_counted", {"by": 2})
    async with removing(own_outbox, account, LEFT):
        assert await state(client, key) == {"n": 2}
    assert await state(client, key) == {"n": 2}


async def test_types_are_read_as_before(own_gateway: Served, own_outbox: asyncpg.Pool) -> None:
    counted: dict[str, Any] = {"schema": {}}
    events: dict[str, Any] = {"was_noted": {"schema": {}}, "was_counted": counted}
    types = {"order": {"events": events}, "memo": {"list": {"by": ["by"]}, "events": {"was_sent": counted}}}
    spec: dict[str, Any] = {"aggregate_types": types, "agent_types": ["user"], "singletons": ["desk"]}
    account, key = await open_account(own_outbox, spec), new_id()
    upcast = {"1": [{"set": {"target": "unit", "value": "m"}}]}
    events["was_counted"] = {"schema": {}, "revision": 2, "upcast": upcast}
    async with new_client(own_gateway.url, account.admin) as client:
        await appended(client, "order", key, "was_counted", {"n": 1})
        assert (await client.put("/_/spec", json=spec)).status_code == 200
        paths = ("/memo/desk/length", "/memo", f"/order/{key}/events?upcast=true", "/_/schedules?type=memo")

        async def built() -> bool:
            return (await client.get("/memo")).status_code == 200

        await until(built)
        before = [(await client.get(path)).json() for path in paths]
        assert [each["data"] for each in before[2]["events"]] == [{"n": 1, "unit": "m"}]
        async with removing(own_outbox, account, LEFT):
            for path, told in zip(paths, before, strict=True):
                assert (await client.get(path)).json() == told, path
        assert all(each["ok"] for each in before)


async def test_states_that_redis_is_not_asked_for_are_read_as_before(
    client: httpx.AsyncClient,
    account: Account,
    own_config: Config,
    own_outbox: asyncpg.Pool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cold, "_MISSES", 0)
    monkeypatch.setattr(cold, "_LOOK_EVERY", 1000)
    key = new_id()
    await appended(client, "order", key, "was_counted", {"by": 2})
    async with (
        serving(own_config) as second,
        new_client(second.url, account.admin) as other,
        removing(own_outbox, account, LEFT),
    ):
        await other.get(f"/order/{key}/length")
        assert await state(other, key) == {"n": 2}


async def test_filters_still_name_it(
    client: httpx.AsyncClient, account: Account, own_outbox: asyncpg.Pool
) -> None:
    await appended(client, "order", new_id(), "was_counted", {"by": 2})
    wanted = {"filter": {"types": ["order"], "event_types": ["was_counted"]}, "target": {"type": "pull"}}
    async with removing(own_outbox, account, LEFT):
        feed = await client.get("/_/feed?event_types=was_counted")
        assert [each["type"] for each in feed.json()["events"]] == ["was_counted"]
        assert (await client.put("/_/subscriptions/counts", json=wanted)).status_code == 201
        made = await client.post("/_/keys", json={"scope": "read", "only": ["order.was_counted"]})
        assert made.status_code == 201
