"""How long ended timers and sagas are kept, and what waits while a tenant is full."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import httpx
import pytest

from gateway.config import Config
from gateway.reactions import retention
from gateway.setting_rows import KIB
from tests.support.accounts import open_account
from tests.support.calls import append, new_client, new_id, refused
from tests.support.serving import serving

DEADLINE_S = 20.0
ADD_TIMER = """
INSERT INTO schedule (id, tenant, trigger_id, seq, mark, due_at, emit, cancel_on, correlation_id, state,
    reason, ended_at)
VALUES ($1, $2, $3, 0, '', now(), '{}', '[]', $1, $4, $5, now() - $6::float8 * interval '1 day')
"""
ADD_SAGA = """
INSERT INTO saga (id, tenant, name, state, length, seq, data, correlation_id, changed_at)
VALUES ($1, $2, 'checkout', $3, 1, 1, '{}', $1, now() - $4::float8 * interval '1 day')
"""


async def test_what_ended_is_deleted_after_a_while_and_what_waits_for_a_person_stays(
    own_outbox: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "FORGET_MAX", 2)
    tenant, event = UUID((await open_account(own_outbox)).id), uuid4()
    stays, goes = [], []
    for trigger, state, reason, days, ends in (
        (event, "fired", None, 31, True),
        (event, "fired", None, 29, False),
        (event, "cancelled", "an event that cancels it was committed first", 31, True),
        (event, "cancelled", None, 31, False),  # by a person: set again where events are looked at again
        (None, "cancelled", None, 31, True),
        (event, "parked", "It is locked.", 31, False),
        (None, "fired", None, 40, True),
    ):
        (goes if ends else stays).append(timer := uuid4())
        await own_outbox.execute(ADD_TIMER, timer, tenant, trigger, state, reason, days)
    for state, days, ends in (
        ("completed", 31, True),
        ("compensated", 31, True),
        ("abandoned", 31, True),
        ("completed", 29, False),
        ("running", 31, False),
        ("stuck", 31, False),
    ):
        (goes if ends else stays).append(saga := uuid4())
        await own_outbox.execute(ADD_SAGA, saga, tenant, state, days)
    await retention.forget(own_outbox, 30 * 86_400)
    left = await own_outbox.fetch(
        "SELECT id FROM schedule WHERE tenant = $1 UNION ALL SELECT id FROM saga WHERE tenant = $1", tenant
    )
    assert sorted(row["id"] for row in left) == sorted(stays)


async def test_timers_of_a_full_tenant_wait_for_room(own_config: Config, own_outbox: asyncpg.Pool) -> None:
    full, other = await open_account(own_outbox), await open_account(own_outbox)
    bounded = replace(own_config, tenant_bytes_max=40 * KIB)
    async with (
        serving(bounded) as served,
        new_client(served.url, full.admin) as first,
        new_client(served.url, other.admin) as second,
    ):
        async with asyncio.timeout(DEADLINE_S):
            while (await append(first, "order", new_id(), "was_noted", "x" * 20 * KIB)).status_code == 201:
                pass
        waits = await set_timer(first)
        await reaches(second, await set_timer(second), "fired")
        assert (await shown(first, waits))["state"] == "pending"
    async with serving(own_config) as served, new_client(served.url, full.admin) as first:
        await reaches(first, waits, "fired")


async def test_a_tenant_sets_so_many_timers_and_no_more_until_some_have_ended(
    own_config: Config, own_outbox: asyncpg.Pool
) -> None:
    account = await open_account(own_outbox)
    async with (
        serving(replace(own_config, schedules_max=2)) as served,
        new_client(served.url, account.admin) as client,
    ):
        first, _ = [await later(client, key) for key in ("a", "b")]
        refused(await later(client, "c"), 403, "storage_full")
        assert (await later(client, "a")).json() == first.json()
        timer = first.json()["schedule"]["id"]
        assert (await client.post(f"/_/schedules/{timer}/cancel", json={})).status_code == 200
        async with asyncio.timeout(DEADLINE_S):
            while (await later(client, "c")).status_code != 201:
                await asyncio.sleep(0.1)
        refused(await later(client, "d"), 403, "storage_full")


async def later(client: httpx.AsyncClient, key: str) -> httpx.Response:
    emit = {
        "aggregate_type": "order",
        "id": "a0000000-0000-4000-a000-000000000001",
        "event_type": "was_noted",
    }
    return await client.post(
        "/_/schedules", json={"delay": "24h", "emit": emit}, headers={"idempotency-key": key}
    )


async def set_timer(client: httpx.AsyncClient) -> str:
    """One that is due."""
    emit = {"aggregate_type": "order", "id": new_id(), "event_type": "was_noted", "data": "y"}
    body = {"due_at": "2020-01-01T00:00:00Z", "emit": emit}
    answer = await client.post("/_/schedules", json=body, headers={"idempotency-key": new_id()})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["schedule"]["id"])


async def shown(client: httpx.AsyncClient, timer: str) -> dict[str, Any]:
    found: dict[str, Any] = (await client.get(f"/_/schedules/{timer}")).json()["schedule"]
    return found


async def reaches(client: httpx.AsyncClient, timer: str, state: str) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while (await shown(client, timer))["state"] != state:
            await asyncio.sleep(0.02)
