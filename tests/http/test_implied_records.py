"""Records among implied events; and that no reaction writes an aggregate that is its content."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any
from uuid import UUID, uuid5

import asyncpg
import httpx
import pytest

from gateway.names.content import content_of_text
from tests.support.accounts import Account, open_account
from tests.support.calls import append, appended, events_of, new_client, new_id, refused
from tests.support.serving import Served

TEXT: dict[str, Any] = {"content": {"text": "$.data.text"}}


def _emit(of: str, key: object) -> dict[str, Any]:
    data = {"text": "$.data.text"}
    return {"emit": {"aggregate_type": of, "id": key, "event_type": "was_seen", "data": data}}


DECLARED: dict[str, Any] = {
    "aggregate_types": {
        "page": {
            "events": {
                "was_read": {"schema": True, "implications": [_emit("unit", "$.data.unit")]},
                "was_quoted": {"schema": True, "implications": [_emit("block", "$.data.block")]},
                "was_printed": {"schema": True, "implications": [_emit("sheet", {"mint": True})]},
            },
        },
        "unit": {
            "identity": TEXT,
            "events": {
                "was_seen": {"schema": True},
                "was_split": {"schema": True, "implications": [_emit("unit", "$.key")]},
            },
        },
        "block": {"mint": "content", "identity": TEXT, "events": {"was_seen": {"schema": True}}},
        "sheet": {
            "mint": "humane",
            "identity": TEXT,
            "events": {
                "was_seen": {
                    "schema": True,
                    "rules": [{"require": {"equals": ["$.data.text", "x"]}, "error": "It is not x."}],
                }
            },
        },
    },
    "agent_types": ["user"],
}


@pytest.fixture
async def tenant(outbox: asyncpg.Pool) -> Account:
    return await open_account(outbox, DECLARED)


@pytest.fixture
async def client(gateway: Served, tenant: Account) -> Any:
    async with new_client(gateway.url, tenant.admin) as client:
        yield client


async def grades(client: httpx.AsyncClient, of: str, key: str) -> list[str | None]:
    said = [each["metadata"]["identity"] for each in await events_of(client, of, key)]
    return [None if each is None else each["grade"] for each in said]


async def test_an_implied_event_is_a_record_of_its_aggregate(client: httpx.AsyncClient) -> None:
    unit = new_id()
    for text in ("Hello", "Hello", "Bye", None):
        data = {"unit": unit, "text": text}
        assert (await appended(client, "page", new_id(), "was_read", data))["implied_count"] == 1
    assert await grades(client, "unit", unit) == ["new", "unchanged", "edited", None]
    assert (await appended(client, "unit", unit, "was_seen", {"text": "Bye"}))["length"] == 5
    assert (await grades(client, "unit", unit))[-1] == "unchanged"
    found = (await client.get(f"/unit?content={content_of_text('Bye')}")).json()["items"]
    assert [each["key"] for each in found] == [unit]


async def test_many_at_once_are_graded_each_on_the_one_before(client: httpx.AsyncClient) -> None:
    unit = new_id()
    data = {"unit": unit, "text": "Hello"}
    answers = [append(client, "page", new_id(), "was_read", data) for _ in range(12)]
    answers += [append(client, "unit", unit, "was_seen", {"text": "Hello"}) for _ in range(4)]
    assert {each.status_code for each in await asyncio.gather(*answers)} == {201}
    assert Counter(await grades(client, "unit", unit)) == {"new": 1, "unchanged": 15}


async def test_an_event_and_what_it_implies_of_its_own_aggregate_are_graded_in_order(
    client: httpx.AsyncClient,
) -> None:
    unit = new_id()
    for text in ("Hello", "Bye"):
        await appended(client, "unit", unit, "was_split", {"text": text})
    assert await grades(client, "unit", unit) == ["new", "unchanged", "edited", "unchanged"]
    await appended(client, "unit", unit, "was_seen", {"text": None})
    await appended(client, "unit", unit, "was_split", {"text": None})
    assert (await grades(client, "unit", unit))[4:] == [None, None, None]


async def test_an_implied_new_aggregate_with_a_code_is_judged_by_its_rules(client: httpx.AsyncClient) -> None:
    assert (await appended(client, "page", new_id(), "was_printed", {"text": "x"}))["implied_count"] == 1
    answer = await append(client, "page", new_id(), "was_printed", {})
    more = ("length", "aggregate_type", "key")
    assert refused(answer, 422, "rule_violated", "implications[0]", more)["error"] == "It is not x."
    (sheet,) = (await client.get("/_/feed?types=sheet")).json()["events"]
    assert (len(sheet["key"]), sheet["metadata"]["identity"]["grade"]) == (9, "new")


async def test_no_reaction_writes_an_aggregate_that_is_its_content(
    client: httpx.AsyncClient, tenant: Account
) -> None:
    key = str(uuid5(UUID(tenant.id), content_of_text("Hello")))
    answer = await append(client, "page", new_id(), "was_quoted", {"block": key, "text": "Bye"})
    refused(answer, 422, "invalid_identifier", "implications[0].id")
    emit = {"aggregate_type": "block", "event_type": "was_seen", "data": {"text": "Bye"}}
    for identifier in (key, {"mint": True}):
        body = {"delay": "24h", "emit": emit | {"id": identifier}}
        answer = await client.post("/_/schedules", json=body, headers={"idempotency-key": new_id()})
        refused(answer, 422, "invalid_identifier", "emit.id")
    for _ in range(2):
        data = {"block": f"{key}:de", "text": "Hallo"}
        await appended(client, "page", new_id(), "was_quoted", data)
    assert await grades(client, "block", f"{key}:de") == ["new", "unchanged"]
