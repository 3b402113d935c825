"""Timers: set by events or over HTTP, fired once when they are due, cancelled by what is committed first."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import asyncpg
import httpx
import pytest

from tests.support.accounts import Account, open_account
from tests.support.calls import appended, envelope, new_client, new_id, refused
from tests.support.serving import Served

EXPIRY: dict[str, Any] = {
    "delay_ms": 1000,
    "emit": {"aggregate_type": "order", "id": "$.key", "event_type": "had_expired", "data": {"n": "@.n"}},
    "cancel_on": [{"aggregate_type": "order", "id": "$.key", "event_type": "was_paid"}],
}
SHOP: dict[str, Any] = {
    "aggregate_types": {
        "order": {
            "events": {
                "was_placed": {"schema": {}, "implications": [{"schedule": EXPIRY}]},
                "was_paid": {"schema": {}},
                "had_expired": {
                    "schema": {},
                    "rules": [{"require": {"not": {"exists": "@.locked"}}, "error": "It is locked."}],
                },
                "was_locked": {"schema": {}},
                "was_unlocked": {"schema": {}, "handler": {"remove": {"target": "locked"}}},
            }
        }
    },
    "agent_types": ["user"],
}
DEADLINE_S = 20.0


@pytest.fixture
async def shop(gateway: Served, outbox: asyncpg.Pool) -> Account:
    return await open_account(outbox, SHOP)


@pytest.fixture
async def client(gateway: Served, shop: Account) -> Any:
    async with new_client(gateway.url, shop.admin) as client:
        yield client


async def types(client: httpx.AsyncClient, key: str) -> list[str]:
    return [each["type"] for each in (await client.get(f"/order/{key}/events")).json()["events"]]


async def ended(client: httpx.AsyncClient, key: str, state: str | None) -> dict[str, Any]:
    """The timer of an aggregate, once it is in this state; None: in any."""
    asked = {"key": key} if state is None else {"key": key, "state": state}
    async with asyncio.timeout(DEADLINE_S):
        while True:
            answer = await client.get("/_/schedules", params=asked)
            if answer.json()["items"]:
                found: dict[str, Any] = answer.json()["items"][0]
                return found
            await asyncio.sleep(0.02)


async def test_a_timer_fires_once_and_not_early(client: httpx.AsyncClient) -> None:
    key, began = new_id(), time.time()
    receipt = await appended(client, "order", key, "was_placed", {"n": 7})
    timer = await ended(client, key, None)
    assert timer["trigger"]["event_id"] == receipt["event_id"]
    fired = await ended(client, key, "fired")
    assert time.time() - began >= 1.0
    events = (await client.get(f"/order/{key}/events")).json()["events"]
    assert [each["type"] for each in events] == ["was_placed", "had_expired"]
    metadata = events[1]["metadata"]
    assert metadata["actor"] == {"type": "system_scheduler", "id": "event_scheduler"}
    assert metadata["causation_id"] == receipt["event_id"]
    assert metadata["correlation_id"] == events[0]["metadata"]["correlation_id"]
    assert (events[1]["data"], events[1]["id"]) == ({"n": 7}, fired["fired_event"])


async def test_what_is_committed_before_cancels_it(client: httpx.AsyncClient) -> None:
    key = new_id()
    await appended(client, "order", key, "was_placed", {})
    await appended(client, "order", key, "was_paid", {})
    cancelled = await ended(client, key, "cancelled")
    assert "first" in cancelled["reason"]
    assert await types(client, key) == ["was_placed", "was_paid"]


async def test_one_that_is_refused_is_parked_and_can_be_run_again(client: httpx.AsyncClient) -> None:
    key = new_id()
    await appended(client, "order", key, "was_placed", {})
    await appended(client, "order", key, "was_locked", {"locked": True})
    parked = await ended(client, key, "parked")
    assert parked["reason"] == "It is locked."
    await appended(client, "order", key, "was_unlocked", {})
    assert (await client.post(f"/_/schedules/{parked['id']}/run", json={})).status_code == 200
    await ended(client, key, "fired")
    assert (await types(client, key))[-1] == "had_expired"
    answer = await client.post(f"/_/schedules/{parked['id']}/cancel", json={})
    refused(answer, 409, "schedule_ended")


async def test_a_client_sets_moves_and_cancels_one_of_its_own(client: httpx.AsyncClient) -> None:
    key = new_id()
    body = {"delay": "24h", "emit": {"aggregate_type": "order", "id": key, "event_type": "was_paid"}}
    headers = {"idempotency-key": f"own {key}".replace(" ", "-")}
    first, again = [await client.post("/_/schedules", json=body, headers=headers) for _ in range(2)]
    assert (first.status_code, again.status_code) == (201, 201)
    timer = first.json()["schedule"]
    assert again.json()["schedule"]["id"] == timer["id"]
    for due in ({"delay": "48h"}, {"due_at": 5}):
        answer = await client.post("/_/schedules", json={"emit": body["emit"], **due}, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (422, "idempotency_mismatch")
    refused(await client.post(f"/_/schedules/{timer['id']}/move", json={}), 422, "missing_field", "due_at")
    moved = await client.post(f"/_/schedules/{timer['id']}/move", json={"due_at": "2020-01-01T00:00:00Z"})
    assert moved.status_code == 200
    assert (await client.post("/_/schedules", json=body, headers=headers)).status_code == 201
    async with asyncio.timeout(DEADLINE_S):
        while (await client.get(f"/_/schedules/{timer['id']}")).json()["schedule"]["state"] != "fired":
            await asyncio.sleep(0.02)
    assert await types(client, key) == ["was_paid"]
    headers["idempotency-key"] += "-2"
    other = (await client.post("/_/schedules", json=body, headers=headers)).json()["schedule"]
    cancelled = await client.post(f"/_/schedules/{other['id']}/cancel", json={})
    assert cancelled.json()["schedule"]["state"] == "cancelled"


def emitting(**more: str) -> dict[str, Any]:
    return {"delay": "5m", "emit": {"aggregate_type": "order", "event_type": "was_paid", "id": "a b", **more}}


@pytest.mark.parametrize(
    ("body", "code", "path"),
    [
        ({}, "missing_field", "due_at"),
        ({"delay": "1w"}, "invalid_field", "delay"),
        ({"due_at": "soon"}, "invalid_field", "due_at"),
        ({"delay": "5m"}, "missing_field", "emit"),
        ({"delay": "5m", "due_at": 5}, "invalid_field", "due_at"),
        (emitting(aggregate_type="ordr"), "unknown_aggregate_type", "emit.aggregate_type"),
        (emitting(event_type="x"), "unknown_event_type", "emit.event_type"),
        (emitting(), "invalid_identifier", "emit.id"),
    ],
)
async def test_what_can_t_be_set_is_refused_with_its_place(
    client: httpx.AsyncClient, body: dict[str, Any], code: str, path: str
) -> None:
    answer = await client.post("/_/schedules", json=body, headers={"idempotency-key": new_id()})
    refused(answer, 422, code, path)


async def test_pages_of_timers_are_in_the_order_of_their_times(client: httpx.AsyncClient) -> None:
    for n in range(5):
        emit = {"aggregate_type": "order", "id": new_id(), "event_type": "was_paid"}
        body = {"due_at": f"2099-01-0{5 - n}T00:00:00Z", "emit": emit}
        assert (
            await client.post("/_/schedules", json=body, headers={"idempotency-key": new_id()})
        ).is_success
    seen, cursor = [], {}
    while True:
        answer = (await client.get("/_/schedules", params={"limit": 2, **cursor})).json()
        seen += [each["due_at"][:10] for each in answer["items"]]
        if answer["next"] is None:
            break
        cursor = {"cursor": answer["next"]}
    assert seen == [f"2099-01-0{n}" for n in range(1, 6)]


async def test_two_gateways_fire_each_timer_once(
    client: httpx.AsyncClient, second_gateway: Served, shop: Account
) -> None:
    keys = [new_id() for _ in range(20)]
    async with new_client(second_gateway.url, shop.admin) as other:
        for n, key in enumerate(keys):
            via = client if n % 2 else other
            assert (await via.post(f"/order/{key}/was_placed", json=envelope({}))).status_code == 201
        for key in keys:
            await ended(client, key, "fired")
    for key in keys:
        assert await types(client, key) == ["was_placed", "had_expired"]
