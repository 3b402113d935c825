"""Sagas: steps over several aggregates, each once; what fails is compensated, last first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import httpx
import pytest

from tests.support.accounts import Account, open_account
from tests.support.calls import ACTOR, append, appended, new_client, new_id, refused
from tests.support.serving import Served

DEADLINE_S = 40.0
CHECKOUT: dict[str, Any] = {
    "trigger": {"aggregate_type": "cart", "event_type": "checkout_started"},
    "steps": [
        {
            "name": "reserve",
            "emit": {
                "aggregate_type": "inventory",
                "id": "$.data.sku",
                "event_type": "reservation_asked",
                "data": {"cart": "$.key"},
            },
            "await": {"aggregate_type": "inventory", "event_types": ["was_reserved", "reservation_failed"]},
            "fail_on": ["reservation_failed"],
            "compensate": {"aggregate_type": "inventory", "id": "$.data.sku", "event_type": "was_released"},
            "timeout_ms": 600_000,
        },
        {
            "name": "charge",
            "condition": {"equals": ["$prev.type", "was_reserved"]},
            "emit": {
                "aggregate_type": "payment",
                "id": "$.key",
                "event_type": "charge_asked",
                "data": {"price": "$steps.reserve.data.price"},
            },
            "compensate": {"aggregate_type": "payment", "id": "$.key", "event_type": "was_refunded"},
        },
        {
            "name": "ship",
            "emit": {"aggregate_type": "cart", "id": "$.key", "event_type": "was_shipped"},
        },
    ],
}
SHOP: dict[str, Any] = {
    "aggregate_types": {
        "cart": {
            "events": {
                "checkout_started": {"schema": {}},
                "was_locked": {"schema": {}},
                "was_shipped": {
                    "schema": {},
                    "rules": [{"require": {"not": {"exists": "@.locked"}}, "error": "It is locked."}],
                },
            }
        },
        "inventory": {
            "events": {
                "reservation_asked": {"schema": {}},
                "was_reserved": {"schema": {}},
                "reservation_failed": {"schema": {}},
                "was_released": {
                    "schema": {},
                    "rules": [{"require": {"not": {"exists": "@.jammed"}}, "error": "It is jammed."}],
                },
                "was_jammed": {"schema": {}},
                "was_freed": {"schema": {}, "handler": {"remove": {"target": "jammed"}}},
            }
        },
        "payment": {"events": {"charge_asked": {"schema": {}}, "was_refunded": {"schema": {}}}},
    },
    "agent_types": ["user"],
    "sagas": {"checkout": CHECKOUT},
}
RESERVE, *FURTHER = CHECKOUT["steps"]
HASTY: dict[str, Any] = {
    **SHOP,
    "sagas": {"checkout": {**CHECKOUT, "steps": [{**RESERVE, "timeout_ms": 500}, *FURTHER]}},
}
"""No step of it is answered in time."""


@pytest.fixture
async def shop(gateway: Served, outbox: asyncpg.Pool) -> Account:
    return await open_account(outbox, SHOP)


@pytest.fixture
async def client(gateway: Served, shop: Account) -> AsyncIterator[httpx.AsyncClient]:
    async with new_client(gateway.url, shop.admin) as client:
        yield client


@pytest.fixture
async def hasty(gateway: Served, outbox: asyncpg.Pool) -> AsyncIterator[httpx.AsyncClient]:
    async with new_client(gateway.url, (await open_account(outbox, HASTY)).admin) as client:
        yield client


async def types(client: httpx.AsyncClient, of: str, key: str) -> list[str]:
    answer = await client.get(f"/{of}/{key}/events")
    return [each["type"] for each in answer.json().get("events", ())]


async def until(client: httpx.AsyncClient, of: str, key: str, event_type: str) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while event_type not in await types(client, of, key):
            await asyncio.sleep(0.02)


async def only(client: httpx.AsyncClient, state: str) -> dict[str, Any]:
    """The tenant's saga, once it is in this state."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            found = (await client.get("/_/sagas", params={"state": state})).json()["items"]
            if found:
                assert len(found) == 1
                saga: dict[str, Any] = found[0]
                return saga
            await asyncio.sleep(0.02)


async def test_steps_follow_each_other_and_the_history_is_the_state(client: httpx.AsyncClient) -> None:
    cart, sku = new_id(), new_id()
    started = await appended(client, "cart", cart, "checkout_started", {"sku": sku})
    await until(client, "inventory", sku, "reservation_asked")
    await appended(client, "inventory", sku, "was_reserved", {"price": 12})
    saga = await only(client, "completed")
    assert await types(client, "cart", cart) == ["checkout_started", "was_shipped"]
    events = (await client.get(f"/payment/{cart}/events")).json()["events"]
    assert [(each["type"], each["data"]) for each in events] == [("charge_asked", {"price": 12})]
    assert events[0]["metadata"]["actor"] == {"type": "system_saga", "id": "saga_coordinator"}
    trigger = (await client.get(f"/cart/{cart}/events/1")).json()["event"]
    assert events[0]["metadata"]["correlation_id"] == trigger["metadata"]["correlation_id"]
    assert await types(client, "_saga", saga["id"]) == [
        "_was_started", "_step_was_emitted", "_step_was_awaited", "_step_was_emitted", "_step_was_emitted",
        "_was_completed",
    ]  # fmt: skip
    state = (await client.get(f"/_saga/{saga['id']}")).json()
    assert (state["data"]["state"], state["data"]["trigger"]["id"]) == ("completed", started["event_id"])
    shown = (await client.get("/_/feed?limit=100")).json()["events"]
    assert not [each for each in shown if each["aggregate_type"] == "_saga"]
    asked = (await client.get("/_/feed?limit=100&types=_saga")).json()["events"]
    assert len(asked) == 6


SEEN: dict[str, Any] = {
    "all": "$.metadata",
    "at": "$.metadata.timestamp",
    "of": "$.metadata.target.id",
    "cause": "$.metadata.causation_id",
    "note": "$.metadata.extra.note",
}
SHOWN: dict[str, Any] = {"aggregate_type": "cart", "id": "$.key", "event_type": "was_seen", "data": SEEN}
SEEING: dict[str, Any] = {
    "aggregate_types": {"cart": {"events": {"was_begun": {"schema": {}}, "was_seen": {"schema": {}}}}},
    "agent_types": ["user"],
    "target_types": ["order"],
    "sagas": {
        "seeing": {
            "trigger": {"aggregate_type": "cart", "event_type": "was_begun"},
            "steps": [
                {"name": "one", "emit": SHOWN, "compensate": SHOWN},
                {"name": "two", "condition": {"lt": ["$.metadata.timestamp", 1]}, "emit": SHOWN},
            ],
        }
    },
}


async def test_steps_see_the_metadata_of_their_trigger(gateway: Served, outbox: asyncpg.Pool) -> None:
    """Only its actor and its correlation id were there; its time was 0, so the second step went ahead."""
    async with new_client(gateway.url, (await open_account(outbox, SEEING)).admin) as client:
        for metadata in (
            {"target": {"type": "order", "id": "global"}, "causation_id": new_id(), "extra": {"note": [1]}},
            {},
        ):
            cart = new_id()
            sent = {"data": {}, "metadata": {"actor": ACTOR, **metadata}}
            assert (await client.post(f"/cart/{cart}/was_begun", json=sent)).status_code == 201
            async with asyncio.timeout(DEADLINE_S):
                while len(await types(client, "cart", cart)) < 3:
                    await asyncio.sleep(0.02)
            trigger, *seen = (await client.get(f"/cart/{cart}/events")).json()["events"]
            told = {name: value for name, value in trigger["metadata"].items() if name != "revision"}
            assert [each["data"] for each in seen] == [
                {
                    "all": told,
                    "at": told["timestamp"],
                    "of": metadata.get("target", {}).get("id"),
                    "cause": metadata.get("causation_id"),
                    "note": metadata.get("extra", {}).get("note"),
                }
            ] * 2
            assert [each["metadata"]["actor"]["id"] for each in seen] == [
                "saga_coordinator",
                "saga_compensator",
            ]


async def test_pages_of_sagas_are_in_the_order_of_their_changes(
    hasty: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        await appended(hasty, "cart", new_id(), "checkout_started", {"sku": new_id()})

    async def page(**more: Any) -> Any:
        return (await hasty.get("/_/sagas", params={"state": "compensated", **more})).json()

    async with asyncio.timeout(DEADLINE_S):
        while len((whole := await page())["items"]) < 3:
            await asyncio.sleep(0.02)
    first = await page(limit=2)
    rest = await page(limit=2, cursor=first["next"])
    ids = [each["id"] for each in whole["items"]]
    assert [each["id"] for each in first["items"] + rest["items"]] == ids
    assert (len(ids), whole["next"], rest["next"]) == (3, None, None)
    monkeypatch.setattr("gateway.http.api.sagas.PAGE_BYTES", 1)
    short, cursor = [], {}
    while cursor is not None:
        one = await page(**cursor)
        short += [each["id"] for each in one["items"]]
        assert len(one["items"]) == 1
        cursor = {"cursor": one["next"]} if one["next"] else None
    assert short == ids


async def test_a_step_that_fails_is_compensated_too_last_first(client: httpx.AsyncClient) -> None:
    cart, sku = new_id(), new_id()
    await appended(client, "cart", cart, "checkout_started", {"sku": sku})
    await until(client, "inventory", sku, "reservation_asked")
    await appended(client, "inventory", sku, "reservation_failed")
    saga = await only(client, "compensated")
    assert await types(client, "inventory", sku) == [
        "reservation_asked",
        "reservation_failed",
        "was_released",
    ]
    released = (await client.get(f"/inventory/{sku}/events/3")).json()["event"]
    assert released["metadata"]["actor"] == {"type": "system_saga", "id": "saga_compensator"}
    assert "reservation_failed" in saga["data"]["reason"]


async def test_a_step_that_waits_too_long_fails(hasty: httpx.AsyncClient) -> None:
    cart, sku = new_id(), new_id()
    await appended(hasty, "cart", cart, "checkout_started", {"sku": sku})
    saga = await only(hasty, "compensated")
    assert "timed out" in saga["data"]["reason"]
    assert await types(hasty, "inventory", sku) == ["reservation_asked", "was_released"]


async def test_an_emit_that_is_refused_compensates_what_was_emitted(client: httpx.AsyncClient) -> None:
    cart, sku = new_id(), new_id()
    await appended(client, "cart", cart, "was_locked", {"locked": True})
    await appended(client, "cart", cart, "checkout_started", {"sku": sku})
    await until(client, "inventory", sku, "reservation_asked")
    await appended(client, "inventory", sku, "was_reserved", {"price": 1})
    saga = await only(client, "compensated")
    assert "It is locked." in saga["data"]["reason"]
    assert await types(client, "payment", cart) == ["charge_asked", "was_refunded"]
    assert (await types(client, "inventory", sku))[-1] == "was_released"
    feed = (await client.get("/_/feed?limit=100")).json()["events"]
    assert [each["type"] for each in feed[-2:]] == ["was_refunded", "was_released"]


async def test_one_that_can_t_be_compensated_is_stuck_until_a_person_acts(client: httpx.AsyncClient) -> None:
    cart, sku = new_id(), new_id()
    await appended(client, "inventory", sku, "was_jammed", {"jammed": True})
    await appended(client, "cart", cart, "checkout_started", {"sku": sku})
    await until(client, "inventory", sku, "reservation_asked")
    await appended(client, "inventory", sku, "reservation_failed")
    saga = await only(client, "stuck")
    assert "It is jammed." in saga["data"]["reason"]
    told = (await client.post(f"/_/sagas/{saga['id']}/retry", json={})).json()
    again = told["saga"]
    assert told == {"ok": True, **again, "saga": again}
    assert (again["state"], again["length"]) == ("stuck", saga["length"] + 1)
    await appended(client, "inventory", sku, "was_freed")
    retried = (await client.post(f"/_/sagas/{saga['id']}/retry", json={})).json()["saga"]
    assert retried["state"] == "compensated"
    assert all(retried[name].endswith("Z") for name in ("started_at", "changed_at"))
    answer = await client.post(f"/_/sagas/{saga['id']}/abandon", json={})
    refused(answer, 409, "saga_not_stuck")


async def test_no_client_writes_to_a_saga(client: httpx.AsyncClient) -> None:
    answer = await append(client, "_saga", new_id(), "_was_completed", {})
    assert answer.status_code in (404, 422)


async def test_two_gateways_take_each_turn_once(
    client: httpx.AsyncClient, second_gateway: Served, shop: Account
) -> None:
    carts = [(new_id(), new_id()) for _ in range(10)]
    async with new_client(second_gateway.url, shop.admin) as other:
        for cart, sku in carts:
            await appended(other, "cart", cart, "checkout_started", {"sku": sku})
        for _, sku in carts:
            await until(client, "inventory", sku, "reservation_asked")
            await appended(other, "inventory", sku, "was_reserved", {"price": 1})
        for cart, sku in carts:
            await until(client, "cart", cart, "was_shipped")
            assert await types(client, "cart", cart) == ["checkout_started", "was_shipped"]
            assert await types(client, "payment", cart) == ["charge_asked"]
            assert await types(client, "inventory", sku) == ["reservation_asked", "was_reserved"]
