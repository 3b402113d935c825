"""What is stored when another spec is deployed: in its way, or read differently from then on."""

from __future__ import annotations

import asyncio
import copy
import time
from contextlib import AsyncExitStack
from typing import Any

import asyncpg
import httpx
import pytest

from gateway.catalog import spec_use
from gateway.http.api.specs import DEPLOYED_AT_ONCE
from tests.changes.twelve import NAMED, TWELVE, append_what_is_in_the_way
from tests.support.accounts import Account, open_account
from tests.support.calls import DEADLINE_S, append, appended, new_client, new_id, refused
from tests.support.serving import Served

SHOP: dict[str, Any] = {
    "aggregate_types": {
        "order": {
            "events": {
                "was_placed": {
                    "schema": {"type": "object", "properties": {"total": {"type": ["integer", "null"]}}},
                },
                "was_paid": {"schema": {"type": "object"}},
            }
        },
    },
    "agent_types": ["user", "service"],
    "target_types": ["user"],
    "singletons": ["order_service", "quiet_service"],
}

LOCK = "SELECT pg_advisory_lock(hashtextextended($1, 0))"
WAITING = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"


@pytest.fixture
async def shop(gateway: Served, outbox: asyncpg.Pool) -> Account:
    return await open_account(outbox, SHOP)


@pytest.fixture
async def client(gateway: Served, shop: Account) -> Any:
    async with new_client(gateway.url, shop.admin) as client:
        yield client


async def place(client: httpx.AsyncClient, total: object = 5, **metadata: object) -> str:
    key = new_id()
    await appended(client, "order", key, "was_placed", {"total": total}, **metadata)
    return key


def changed(**change: Any) -> dict[str, Any]:
    return {**copy.deepcopy(SHOP), **change}


def with_schema(schema: object, **more: object) -> dict[str, Any]:
    spec = copy.deepcopy(SHOP)
    spec["aggregate_types"]["order"]["events"]["was_placed"] = {"schema": schema, **more}
    return spec


async def conflicts(client: httpx.AsyncClient, spec: object) -> list[tuple[str, str]]:
    answer = await client.put("/_/spec", json=spec)
    told = refused(answer, 409, "spec_conflict", more=["revision", "conflicts"])
    return [(each["pointer"], each["error"]) for each in told["conflicts"]]


async def test_a_schema_that_stored_events_do_not_match_is_in_the_way(client: httpx.AsyncClient) -> None:
    key = await place(client)
    await place(client, None)
    schema = {"type": "object", "required": ["email"], "properties": {"total": {"type": ["string", "null"]}}}
    ((pointer, error),) = await conflicts(client, with_schema(schema))
    assert pointer == "/aggregate_types/order/events/was_placed/schema"
    assert error.startswith("2 of 2 stored was_placed events do not match the schema. The first is of ")
    ((_, error),) = await conflicts(
        client, with_schema({"properties": {"total": {"type": ["string", "null"]}}})
    )
    assert error.startswith("1 of 2 ")
    assert f"{key}, version 1: data.total: " in error
    wider = with_schema({"properties": {"total": {"type": ["integer", "null", "string"]}}})
    assert (await client.put("/_/spec", json=wider)).json() == {"ok": True, "revision": 2, "changed": True}


async def test_types_and_singletons_that_events_name_are_in_the_way(client: httpx.AsyncClient) -> None:
    await place(
        client, actor={"type": "service", "id": "order_service"}, target={"type": "user", "id": new_id()}
    )
    spec = changed(agent_types=["user"], target_types=[], singletons=[])
    assert await conflicts(client, spec) == [
        ("/agent_types", "Stored events have actors of the type service."),
        ("/target_types", "Stored events have targets of the type user."),
        ("/singletons/0", "Stored events have the singleton order_service as actor or target."),
    ]
    assert (await client.put("/_/spec", json=changed(singletons=["order_service"]))).status_code == 200


async def test_force_deploys_it_by_the_query_or_in_the_body(client: httpx.AsyncClient) -> None:
    await place(client)
    narrow = with_schema({"required": ["email"]})
    assert (await client.put("/_/spec", json={"spec": narrow, "force": False})).status_code == 409
    answer = await client.put("/_/spec", json={"spec": narrow, "force": "yes"})
    refused(answer, 422, "invalid_field", "force")
    assert (await client.put("/_/spec", json={"spec": narrow, "force": True})).json()["revision"] == 2
    assert (await client.get("/_/spec")).json()["spec"] == narrow
    refused(await append(client, "order", new_id(), "was_placed", {}), 422, "schema_violation", "data.email")


async def test_another_handler_is_deployed_and_its_aggregates_are_counted(client: httpx.AsyncClient) -> None:
    for _ in range(3):
        await place(client)
    spec = with_schema(SHOP["aggregate_types"]["order"]["events"]["was_placed"]["schema"], handler=[])
    answer = await client.put("/_/spec", json=spec)
    assert answer.status_code == 200
    (notice,) = answer.json()["notices"]
    assert notice["pointer"] == "/aggregate_types/order/events/was_placed/handler"
    text = "was_placed has another handler. 3 aggregates of the type order may show another state."
    assert notice["notice"] == text


async def test_more_events_than_are_checked_are_a_sample_and_said_so(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spec_use, "EVENTS_CHECKED_MAX", 2)
    for _ in range(3):
        await place(client)
    answer = await client.put("/_/spec", json=with_schema({"type": "object", "minProperties": 1}))
    (notice,) = answer.json()["notices"]
    assert (
        notice["notice"] == "The schema was compared with a sample (2 events of order were checked, not all)."
    )
    ((_, error),) = await conflicts(client, with_schema({"type": "object", "minProperties": 2}))
    assert error.startswith("2 of 2 stored was_placed events do not match")
    assert "(2 events of order were checked, not all)" in error


async def test_a_search_through_all_events_that_takes_too_long_ends_with_a_sample(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await place(client)
    monkeypatch.setattr(spec_use, "USE_S", 1e-6)
    answer = await client.put("/_/spec", json=changed(agent_types=["user"]))
    (notice,) = answer.json()["notices"]
    assert notice == {"pointer": "/agent_types", "notice": "Only 100,000 events were searched for service."}
    ((pointer, _),) = await conflicts(client, changed(agent_types=["service"]))
    assert pointer == "/agent_types"


@pytest.mark.slow
async def test_a_hundred_thousand_events_are_checked_in_less_than_10_s(
    client: httpx.AsyncClient, shop: Account, outbox: asyncpg.Pool
) -> None:
    await place(client)
    await outbox.execute(
        """
        INSERT INTO outbox (p, seq, version, recorded_at, id, tenant, correlation_id, spec_rev, append_id,
                            digest, aggregate_type, aggregate_id, type, actor_type, actor_id, payload)
        SELECT 10000, n, 1, now(), gen_random_uuid(), $1, gen_random_uuid(), 1, '', '', 'order',
               gen_random_uuid()::text, 'was_placed', 'user', 'global',
               convert_to('{"total": ' || n || '}', 'UTF8')
        FROM generate_series(1, 99999) AS n
        """,
        shop.id,
    )
    try:
        begun = time.process_time()  # others use the machine; it is the gateway that checks
        ((_, error),) = await conflicts(client, with_schema({"properties": {"total": {"type": "string"}}}))
        assert time.process_time() - begun < 10
        assert error.startswith("100,000 of 100,000 stored was_placed events do not match the schema. ")
    finally:
        await outbox.execute("DELETE FROM outbox WHERE p = 10000")


async def test_deployments_that_wait_hold_up_no_other_tenant(
    gateway: Served, outbox: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.http.api.specs.DEPLOY_WAIT_S", 0.2)
    shops = [await open_account(outbox, SHOP) for _ in range(DEPLOYED_AT_ONCE + 1)]
    changed = {**SHOP, "singletons": [*SHOP["singletons"], "new_service"]}
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(new_client(gateway.url, each.admin)) for each in shops]
        neighbour = await stack.enter_async_context(
            new_client(gateway.url, (await open_account(outbox, SHOP)).write)
        )
        async with outbox.acquire() as conn:
            for each in shops:  # as another gateway that deploys for them all the while
                await conn.execute(LOCK, f"sluice.spec.{each.id}")
            held = [asyncio.create_task(client.put("/_/spec", json=changed)) for client in clients[:-1]]
            async with asyncio.timeout(DEADLINE_S):
                while await conn.fetchval(WAITING) < len(held):
                    await asyncio.sleep(0.01)
            refused(await clients[-1].put("/_/spec", json=changed), 503, "unavailable")
            await appended(neighbour, "order", new_id(), "was_placed", {"total": 1})
            await conn.execute("SELECT pg_advisory_unlock_all()")
        assert [response.status_code for response in await asyncio.gather(*held)] == [200] * len(held)


async def test_twelve_changes_are_told_before_they_are_refused_and_force_deploys_them(
    gateway: Served, outbox: asyncpg.Pool
) -> None:
    account = await open_account(outbox, NAMED)
    async with new_client(gateway.url, account.admin) as client:
        await append_what_is_in_the_way(client)
        for name, (spec, pointer) in TWELVE.items():
            plan = (await client.post("/_/spec/diff", json=spec)).json()
            assert [each["pointer"] for each in plan["conflicts"]] == [pointer], name
            told = await conflicts(client, spec)
            assert told == [(each["pointer"], each["error"]) for each in plan["conflicts"]], name
        for name, (spec, _) in TWELVE.items():
            assert (await client.put("/_/spec?force=true", json=spec)).json()["changed"], name
            assert (await client.put("/_/spec", json={"spec": NAMED, "force": True})).status_code == 200, name


async def test_many_deployments_of_a_tenant_hold_up_no_other_tenants(
    gateway: Served, outbox: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.http.api.specs.DEPLOY_WAIT_S", 0.5)
    one, other = [await open_account(outbox, SHOP) for _ in range(2)]
    changed = {**SHOP, "singletons": [*SHOP["singletons"], "new_service"]}
    async with new_client(gateway.url, one.admin) as many, new_client(gateway.url, other.admin) as client:
        async with outbox.acquire() as conn:
            await conn.execute(LOCK, f"sluice.spec.{one.id}")  # each takes long
            held = [
                asyncio.create_task(many.put("/_/spec", json=changed)) for _ in range(3 * DEPLOYED_AT_ONCE)
            ]
            async with asyncio.timeout(DEADLINE_S):
                while not await conn.fetchval(WAITING):
                    await asyncio.sleep(0.01)
            assert (await client.put("/_/spec", json=changed)).status_code == 200
            await conn.execute("SELECT pg_advisory_unlock_all()")
        answers = await asyncio.gather(*held)
    assert {answer.status_code for answer in answers} <= {200, 503}


async def test_trials_of_a_tenant_hold_up_no_other_tenants(gateway: Served, outbox: asyncpg.Pool) -> None:
    one, other = [await open_account(outbox, SHOP) for _ in range(2)]
    async with new_client(gateway.url, one.admin) as many, new_client(gateway.url, other.admin) as client:
        for each in (many, client):
            await appended(each, "order", new_id(), "was_placed", {"total": 1})
        asking = [asyncio.create_task(many.post("/_/spec/try", json=SHOP)) for _ in range(8)]
        assert (await client.post("/_/spec/try", json=SHOP)).status_code == 200
        assert {answer.status_code for answer in await asyncio.gather(*asking)} == {200}
