"""Timers: set by events or over HTTP, fired once when they are due, cancelled by what is committed first."""

from __future__ import annotations

import asyncio
import json
import time
from base64 import urlsafe_b64encode
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http.api.schedules import cursor_of, cursor_text
from tests.support.accounts import Account, open_account
from tests.support.calls import appended, batch, envelope, new_client, new_id, refused
from tests.support.serving import Served

EXPIRY: dict[str, Any] = {
    "delay_ms": 1000,
    "emit": {"aggregate_type": "order", "id": "$.key", "event_type": "had_expired", "data": {"n": "@.n"}},
    "cancel_on": [{"aggregate_type": "order", "id": "$.key", "event_type": "was_paid"}],
}
PROMISE: dict[str, Any] = {
    "at": "$.data.due_at",
    "emit": {"aggregate_type": "order", "id": "$.key", "event_type": "was_paid"},
}
REMINDER: dict[str, Any] = {
    "delay": "24h",
    "emit": {"aggregate_type": "order", "id": "$.data.to", "event_type": "was_paid"},
}
SHOP: dict[str, Any] = {
    "aggregate_types": {
        "order": {
            "events": {
                "was_placed": {"schema": {}, "implications": [{"schedule": EXPIRY}]},
                "was_promised": {"schema": {}, "implications": [{"schedule": PROMISE}]},
                "was_sent": {"schema": {}, "implications": [{"schedule": REMINDER}]},
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
PLACED: dict[str, Any] = SHOP["aggregate_types"]["order"]["events"]["was_placed"]
DAY_S = 86_400.0
LATER: dict[str, Any] = {
    **SHOP,
    "aggregate_types": {
        "order": {
            "events": {
                **SHOP["aggregate_types"]["order"]["events"],
                "was_placed": {
                    **PLACED,
                    "implications": [{"schedule": {**EXPIRY, "delay_ms": int(DAY_S * 1000)}}],
                },
            }
        }
    },
}
DEADLINE_S = 40.0


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


async def fired(client: httpx.AsyncClient, timer: str) -> None:
    """The timer is, within DEADLINE_S."""
    async with asyncio.timeout(DEADLINE_S):
        while (await client.get(f"/_/schedules/{timer}")).json()["schedule"]["state"] != "fired":
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


async def test_what_is_committed_before_cancels_it(gateway: Served, outbox: asyncpg.Pool) -> None:
    key = new_id()
    async with new_client(gateway.url, (await open_account(outbox, LATER)).admin) as client:
        await appended(client, "order", key, "was_placed", {})
        await appended(client, "order", key, "was_paid", {})
        timer = await ended(client, key, "pending")
        assert (await client.post(f"/_/schedules/{timer['id']}/run", json={})).status_code == 200
        cancelled = await ended(client, key, "cancelled")
        assert "first" in cancelled["reason"]
        assert await types(client, key) == ["was_placed", "was_paid"]


async def test_an_event_of_the_same_append_cancels_it_if_it_comes_behind_the_trigger(
    client: httpx.AsyncClient,
) -> None:
    paid, expired = new_id(), new_id()
    for key, order in ((paid, ("was_placed", "was_paid")), (expired, ("was_paid", "was_placed"))):
        body = batch(*[(each, {}) for each in order])
        assert (await client.post(f"/order/{key}", json=body)).status_code == 201
    await ended(client, expired, "fired")
    await ended(client, paid, "cancelled")
    assert await types(client, paid) == ["was_placed", "was_paid"]


async def test_one_that_is_refused_is_parked_and_can_be_run_again(client: httpx.AsyncClient) -> None:
    key = new_id()
    await appended(client, "order", key, "was_locked", {"locked": True})
    await appended(client, "order", key, "was_placed", {})
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
    assert first.json() == {"ok": True, **timer, "schedule": timer}
    assert again.json()["schedule"]["id"] == timer["id"]
    assert [each.headers.get("idempotency-replayed") for each in (first, again)] == [None, "true"]
    assert [each.headers["location"] for each in (first, again)] == [f"/_/schedules/{timer['id']}"] * 2
    for due in ({"delay": "48h"}, {"due_at": 5}):
        answer = await client.post("/_/schedules", json={"emit": body["emit"], **due}, headers=headers)
        told = refused(answer, 422, "idempotency_mismatch", None, ("by", "receipt"))
        assert (told["by"], told["receipt"]) == ("idempotency_key", again.json())
    headers = {"x-idempotency-key": headers["idempotency-key"]}
    assert (await client.post("/_/schedules", json=body, headers=headers)).json() == again.json()
    headers = {"idempotency-key": headers["x-idempotency-key"]}
    refused(await client.post(f"/_/schedules/{timer['id']}/move", json={}), 422, "missing_field", "due_at")
    moved = await client.post(f"/_/schedules/{timer['id']}/move", json={"due_at": "2020-01-01T00:00:00Z"})
    assert moved.status_code == 200
    assert (await client.post("/_/schedules", json=body, headers=headers)).status_code == 201
    await fired(client, timer["id"])
    assert await types(client, key) == ["was_paid"]
    headers["idempotency-key"] += "-2"
    other = (await client.post("/_/schedules", json=body, headers=headers)).json()["schedule"]
    cancelled = await client.post(f"/_/schedules/{other['id']}/cancel", json={})
    assert cancelled.json()["schedule"]["state"] == cancelled.json()["state"] == "cancelled"
    assert (await client.get(f"/_/schedules/{other['id']}")).json() == cancelled.json()


async def test_a_timer_names_the_aggregate_by_its_canonical_key(
    client: httpx.AsyncClient, shop: Account, outbox: asyncpg.Pool
) -> None:
    key = new_id()
    body = {"delay": "24h", "emit": {"aggregate_type": "order", "id": key.upper(), "event_type": "was_paid"}}
    headers = {"idempotency-key": new_id()}
    timer = (await client.post("/_/schedules", json=body, headers=headers)).json()
    assert timer["emit"]["id"] == key
    older = (
        "UPDATE schedule SET emit = convert_to(replace(convert_from(emit, 'UTF8'), $2, upper($2)), 'UTF8')"
    )
    await outbox.execute(f"{older} WHERE id = $1", UUID(timer["id"]), key)  # as an earlier release stored it
    again = await client.post("/_/schedules", json=body, headers=headers)
    assert (again.status_code, again.json()["emit"]["id"]) == (201, key.upper())
    await appended(client, "order", key, "was_sent", {"to": key.upper()})
    assert (await ended(client, key, None))["emit"]["id"] == key


async def test_a_repeat_of_a_timer_of_a_new_aggregate_is_the_same(client: httpx.AsyncClient) -> None:
    emit = {"aggregate_type": "order", "id": {"mint": True}, "event_type": "was_paid"}
    headers, body = {"idempotency-key": new_id()}, {"delay": "24h", "emit": emit}
    first, again = [await client.post("/_/schedules", json=body, headers=headers) for _ in range(2)]
    assert first.json() == again.json()
    assert first.json()["emit"]["id"] is None


async def test_the_data_of_a_timer_are_appended_byte_for_byte(client: httpx.AsyncClient) -> None:
    key = new_id()
    emit = f'{{"aggregate_type": "order", "id": "{key}", "event_type": "was_paid", "data": %s}}'
    sent = '{"b":1.10, "a": [1e400,12345678901234567890.5, 1E2],"c":"\\u00e9"}'
    headers = {"idempotency-key": new_id(), "content-type": "application/json"}

    async def set_timer(data: str) -> httpx.Response:
        content = f'{{"delay": "24h", "emit": {emit % data}}}'
        return await client.post("/_/schedules", content=content, headers=headers)

    timer = await set_timer(sent)
    assert f'"data":{sent}' in timer.text
    assert (await set_timer(sent.replace(" ", ""))).text == timer.text
    refused(
        await set_timer(sent.replace("1.10", "1.2")), 422, "idempotency_mismatch", None, ("by", "receipt")
    )
    assert (await client.post(f"/_/schedules/{timer.json()['id']}/run", json={})).status_code == 200
    await fired(client, timer.json()["id"])
    assert f'"data":{sent}' in (await client.get(f"/order/{key}/events")).text


PAID = {"aggregate_type": "order", "id": "global", "event_type": "was_paid"}


def setting(**more: Any) -> dict[str, Any]:
    due = {} if "due_at" in more else {"delay": "5m"}
    return {**due, "emit": PAID, **more}


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
        (setting(due_at="9999-12-31T23:59:59-12:00"), "invalid_field", "due_at"),
        (setting(due_at="0001-01-01T00:00:00+12:00"), "invalid_field", "due_at"),
        (setting(due_at="20300101T000000Z"), "invalid_field", "due_at"),
        (setting(due_at="2030-01-01T00:00:00"), "invalid_field", "due_at"),
        (setting(due_at=10**400), "invalid_field", "due_at"),
        (setting(due_at=True), "invalid_field", "due_at"),
        (setting(cancel_on=[{**PAID, "event_type": []}]), "invalid_field", "cancel_on[0].event_type"),
        (setting(cancel_on=[{**PAID, "id": 123456789}]), "invalid_field", "cancel_on[0].id"),
        (setting(cancel_on=[{**PAID, "id": "a b"}]), "invalid_identifier", "cancel_on[0].id"),
        (setting(cancel_on=[{**PAID, "when": 1}]), "unknown_field", "cancel_on[0].when"),
        (setting(cancel_on=[PAID, {**PAID, "id": None}]), "missing_field", "cancel_on[1].id"),
        (setting(cancel_on=[5]), "invalid_field", "cancel_on[0]"),
        (setting(emit=[]), "invalid_field", "emit"),
        (setting(emit={**PAID, "when": 1}), "unknown_field", "emit.when"),
        (setting(emit={**PAID, "id": None}), "missing_field", "emit.id"),
        (setting(emit={**PAID, "id": 123456789}), "invalid_field", "emit.id"),
        (setting(emit={**PAID, "event_type": None}), "missing_field", "emit.event_type"),
        (setting(emit={**PAID, "aggregate_type": 5}), "invalid_field", "emit.aggregate_type"),
        (emitting(aggregate_type="ordr", event_type="_x"), "reserved_event_type", "emit.event_type"),
        (
            setting(cancel_on=[PAID, {**PAID, "event_type": "x"}]),
            "unknown_event_type",
            "cancel_on[1].event_type",
        ),
    ],
)
async def test_what_can_t_be_set_is_refused_with_its_place(
    client: httpx.AsyncClient, body: dict[str, Any], code: str, path: str
) -> None:
    answer = await client.post("/_/schedules", json=body, headers={"idempotency-key": new_id()})
    refused(answer, 422, code, path)


async def test_a_key_that_is_none_is_refused_as_elsewhere(client: httpx.AsyncClient) -> None:
    answer = await client.post("/_/schedules", json=setting(), headers={"idempotency-key": "a" * 256})
    refused(answer, 422, "invalid_field", "Idempotency-Key")


@pytest.mark.parametrize(
    ("due_at", "shown"),
    [
        ("2099-01-01t00:00:00z", "2099-01-01T00:00:00.000Z"),
        ("2016-12-31T23:59:60Z", "2017-01-01T00:00:00.000Z"),
        ("9999-12-31T23:59:59.5Z", "9999-12-31T23:59:59.500Z"),
        ("1969-12-31T23:59:59Z", "1969-12-31T23:59:59.000Z"),
    ],
)
async def test_every_time_of_rfc_3339_is_one_and_its_timer_is_listed(
    client: httpx.AsyncClient, due_at: str, shown: str
) -> None:
    body = setting(due_at=due_at)
    for _ in range(2):
        answer = await client.post("/_/schedules", json=body, headers={"idempotency-key": new_id()})
        assert answer.json()["schedule"]["due_at"] == shown
    page = (await client.get("/_/schedules", params={"limit": 1})).json()
    assert [each["due_at"] for each in page["items"]] == [shown]
    following = (await client.get("/_/schedules", params={"limit": 1, "cursor": page["next"]})).json()
    assert [each["due_at"] for each in following["items"]] == [shown]
    assert (following["items"][0]["id"] != page["items"][0]["id"], following["next"]) == (True, None)


@pytest.mark.parametrize("path", ["/_/schedules", "/_/sagas"])
@pytest.mark.parametrize("first", ["7f", "80", "ff"])
async def test_a_cursor_of_no_time_is_refused(client: httpx.AsyncClient, path: str, first: str) -> None:
    made = urlsafe_b64encode(bytes.fromhex(first) + bytes(23)).decode()
    if first != "ff":
        refused(await client.get(path, params={"cursor": made}), 422, "invalid_field", "cursor")
    made = urlsafe_b64encode(bytes.fromhex(first) + b"\xff" * 23).decode()
    expected = 200 if first == "ff" else 422  # a microsecond before 1970
    assert (await client.get(path, params={"cursor": made})).status_code == expected


@given(st.datetimes(timezones=st.just(UTC)))
def test_a_cursor_has_the_microsecond_of_its_time(time: datetime) -> None:
    found = cursor_of(cursor_text(time, UUID(int=7)))
    assert found is not None
    assert datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=found[0]) == time
    assert found[1] == UUID(int=7)


async def test_an_event_whose_time_is_none_sets_no_timer_and_holds_up_no_other(
    client: httpx.AsyncClient,
) -> None:
    key = new_id()
    times = (
        "1" + "0" * 400,
        '"9999-12-31T23:59:59-12:00"',
        '"0001-01-01T00:00:00+12:00"',
        '"2099-01-01T00:00:00Z"',
    )
    for due_at in times:
        text = json.dumps(envelope()).replace('"data": {}', f'"data": {{"due_at": {due_at}}}')
        headers = {"content-type": "application/json"}
        answer = await client.post(f"/order/{key}/was_promised", content=text, headers=headers)
        assert answer.status_code == 201, answer.text
    assert (await ended(client, key, None))["due_at"] == "2099-01-01T00:00:00.000Z"
    assert len((await client.get("/_/schedules", params={"key": key})).json()["items"]) == 1


async def test_timers_are_listed_by_what_is_declared_and_any_spelling_of_a_key(
    client: httpx.AsyncClient,
) -> None:
    key = new_id()
    text = json.dumps(envelope()).replace('"data": {}', '"data": {"due_at": 4102444800}')
    headers = {"content-type": "application/json"}
    assert (await client.post(f"/order/{key}/was_promised", content=text, headers=headers)).is_success
    await ended(client, key, None)
    for asked in ({"key": key.upper()}, {"key": key, "type": "order"}):
        listed = (await client.get("/_/schedules", params=asked)).json()["items"]
        assert [each["trigger"]["key"] for each in listed] == [key]
    assert (await client.get("/_/schedules", params={"key": new_id()})).json()["items"] == []
    answer = await client.get("/_/schedules", params={"type": "ordr", "key": key})
    told = refused(answer, 422, "unknown_aggregate_type", "type")
    assert "did you mean `order`" in told["error"]
    refused(await client.get("/_/schedules", params={"key": "a b"}), 422, "invalid_identifier", "key")


@pytest.mark.parametrize(("bytes_max", "each"), [(1 << 20, 2), (1, 1)])
async def test_pages_of_timers_are_in_the_order_of_their_times(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, bytes_max: int, each: int
) -> None:
    monkeypatch.setattr("gateway.http.api.schedules.PAGE_BYTES", bytes_max)
    for n in range(5):
        emit = {"aggregate_type": "order", "id": new_id(), "event_type": "was_paid"}
        body = {"due_at": f"2099-01-0{5 - n}T00:00:00Z", "emit": emit}
        assert (
            await client.post("/_/schedules", json=body, headers={"idempotency-key": new_id()})
        ).is_success
    seen, cursor = [], {}
    while True:
        answer = (await client.get("/_/schedules", params={"limit": 2, **cursor})).json()
        assert len(answer["items"]) in (each, 1)
        seen += [timer["due_at"][:10] for timer in answer["items"]]
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
