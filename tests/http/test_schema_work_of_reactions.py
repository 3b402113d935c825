"""What schemas take to check what reactions make counts as of a client's own events."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from typing import Any

import asyncpg
import pytest

from gateway.config import Config
from gateway.http.api import schedules
from tests.support.accounts import open_account
from tests.support.calls import append, appended, new_client, new_id, refused
from tests.support.serving import serving

DEADLINE_S = 20.0
ALTERNATIVES = {"anyOf": [{"type": "object", "required": [f"f{n}"]} for n in range(100)]}
CHECKED = {"type": "object", "properties": {"items": {"type": "array", "items": ALTERNATIVES}}}
EMIT = {
    "aggregate_type": "report",
    "id": "$.key",
    "event_type": "was_checked",
    "data": {"items": "$.data.items"},
}
SPEC: dict[str, Any] = {
    "aggregate_types": {
        "order": {
            "events": {
                "was_placed": {"schema": {}, "implications": [{"emit": EMIT}]},
                "was_timed": {"schema": {}, "implications": [{"schedule": {"delay_ms": 1000, "emit": EMIT}}]},
                "was_begun": {"schema": {}},
            }
        },
        "report": {"events": {"was_checked": {"schema": CHECKED}}},
    },
    "agent_types": ["user"],
    "sagas": {
        "checking": {
            "trigger": {"aggregate_type": "order", "event_type": "was_begun"},
            "steps": [{"name": "check", "emit": EMIT}],
        }
    },
}
FEW, MANY = ({"items": [{"f0": n} for n in range(count)]} for count in (5, 500))
WHY = "Checking this against the schema of was_checked could take over 10000 comparisons"


async def test_they_are_refused_and_parked_where_the_same_event_of_a_client_is_refused(
    own_config: Config, own_outbox: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = await open_account(own_outbox, SPEC)
    beside: list[bool] = []
    admitted = schedules.admitted

    def noted(*args: Any) -> Any:
        beside.append(threading.current_thread() is not threading.main_thread())
        return admitted(*args)

    monkeypatch.setattr(schedules, "admitted", noted)
    async with (
        serving(replace(own_config, schema_work_max=10_000)) as served,
        new_client(served.url, account.admin) as client,
        asyncio.timeout(DEADLINE_S),
    ):
        refused(
            await append(client, "report", new_id(), "was_checked", MANY), 422, "schema_violation", "data"
        )
        implied = await append(client, "order", new_id(), "was_placed", MANY)
        refused(implied, 422, "schema_violation", "implications[0].data")
        assert implied.json()["error"].startswith(WHY)
        for data in (FEW, MANY):
            body = {"delay": "1h", "emit": {**EMIT, "id": new_id(), "data": data}}
            own = await client.post("/_/schedules", json=body, headers={"idempotency-key": new_id()})
            assert own.status_code == (201 if data is FEW else 422), own.text
        refused(own, 422, "schema_violation", "emit.data")
        await appended(client, "order", new_id(), "was_timed", MANY)
        await appended(client, "order", new_id(), "was_begun", MANY)
        few = [new_id() for _ in range(3)]
        for key, event_type in zip(few, ("was_placed", "was_timed", "was_begun"), strict=True):
            await appended(client, "order", key, event_type, FEW)
        parked = await _one(client, "/_/schedules?state=parked")
        assert parked["reason"].startswith(f"data: {WHY}")
        compensated = await _one(client, "/_/sagas?state=compensated")
        assert WHY in str(compensated), compensated
        for key in few:
            while (await client.get(f"/report/{key}/events")).status_code != 200:
                await asyncio.sleep(0.02)
    assert beside == [False, True]


async def _one(client: Any, path: str) -> dict[str, Any]:
    while not (found := (await client.get(path)).json()["items"]):
        await asyncio.sleep(0.02)
    (only,) = found
    return dict(only)
