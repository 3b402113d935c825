"""Versions of events: each is stored with its revision, and is seen as the present spec has it."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import asyncpg
import httpx
import pytest

from tests.http.test_follow import messages, take
from tests.support.accounts import open_account
from tests.support.calls import (
    append,
    appended,
    batch,
    bulk,
    bulk_line,
    new_client,
    new_id,
    refused,
    told_in,
    until,
)
from tests.support.serving import Served

PRICE: dict[str, Any] = {
    "type": "object",
    "properties": {"total": {"type": "number"}},
    "required": ["total"],
    "additionalProperties": False,
}
FIRST: dict[str, Any] = {
    "aggregate_types": {
        "order": {
            "events": {
                "was_placed": {"schema": {**PRICE, "examples": [{"total": 1}, {"total": 2.5}]}},
                "was_noted": {"schema": True, "handler": {"append": {"target": "notes", "value": "$.data"}}},
            }
        }
    },
    "agent_types": ["user"],
}
TO_SECOND = [
    {"set": {"target": "amount", "value": {"n": "$.data.total", "currency": "EUR"}}},
    {"remove": {"target": "total"}},
]
NDJSON = {"accept": "application/x-ndjson"}


def second(upcast: Any = TO_SECOND, revision: int = 2, **event: Any) -> dict[str, Any]:
    spec = copy.deepcopy(FIRST)
    schema = {"type": "object", "properties": {"amount": {"type": "object", "required": ["n", "currency"]}}}
    spec["aggregate_types"]["order"]["events"]["was_placed"] = {
        "revision": revision,
        "schema": {**schema, "required": ["amount"], "additionalProperties": False},
        "upcast": {"1": upcast},
        **event,
    }
    return spec


@pytest.fixture
async def shop(gateway: Served, outbox: asyncpg.Pool) -> Any:
    account = await open_account(outbox, FIRST)
    async with new_client(gateway.url, account.admin) as client:
        yield client


async def deployed(client: httpx.AsyncClient, spec: dict[str, Any], **query: str) -> None:
    response = await client.put("/_/spec", json=spec, params=query)
    assert response.status_code == 200, response.text
    revision = response.json()["revision"]

    async def follows() -> bool:
        return bool((await client.get("/_/spec")).json()["revision"] == revision)

    await until(follows)


def seen(events: list[dict[str, Any]]) -> list[tuple[int, Any]]:
    return [(each["metadata"]["revision"], each["data"]) for each in events]


OLD, NEW = {"total": 5}, {"amount": {"n": 7, "currency": "CHF"}}
BROUGHT = {"amount": {"n": 5, "currency": "EUR"}}


async def test_reads_give_what_was_sent_or_what_folds_see(shop: httpx.AsyncClient) -> None:
    key = new_id()
    told = await appended(shop, "order", key, "was_placed", OLD)
    assert (await shop.get(f"/order/{key}")).json()["data"] == OLD
    await deployed(shop, second())
    refused(await append(shop, "order", key, "was_placed", OLD), 422, "schema_violation", "data.amount")
    await appended(shop, "order", key, "was_placed", NEW)
    await appended(shop, "order", key, "was_noted", "x")
    sent, brought = [(1, OLD), (2, NEW), (1, "x")], [(1, BROUGHT), (2, NEW), (1, "x")]
    assert (await shop.get(f"/order/{key}?at_length=1")).json()["data"] == BROUGHT
    assert (await shop.get(f"/order/{key}")).json()["data"] == {**NEW, "notes": ["x"]}

    path = f"/order/{key}/events"
    for query, expected in (("", sent), ("?upcast=false", sent), ("?upcast=true", brought)):
        assert seen((await shop.get(path + query)).json()["events"]) == expected
        assert seen((await shop.get(f"/_/feed{query}")).json()["events"]) == expected
        for each in (path, "/_/feed"):
            lines = told_in((await shop.get(each + query, headers=NDJSON)).content)
            assert seen(lines) == expected
        assert seen([(await shop.get(f"{path}/1{query}")).json()["event"]]) == expected[:1]
        by_id = await shop.get(f"/_/events/{told['event_id']}{query}")
        assert seen([by_id.json()["event"]]) == expected[:1]
    assert b'"data":{"total": 5}' in (await shop.get(path)).content.replace(b'"total":5', b'"total": 5')
    refused(await shop.get(path + "?upcast=perhaps"), 422, "invalid_field", "upcast")


async def test_followers_may_see_the_present_data_too(shop: httpx.AsyncClient) -> None:
    key = new_id()
    await appended(shop, "order", key, "was_placed", OLD)
    await deployed(shop, second())
    for path in (f"/order/{key}/events?upcast=true", "/_/feed?upcast=true"):
        sse = {"accept": "text/event-stream"}
        async with asyncio.timeout(20), shop.stream("GET", path, headers=sse) as response:
            stream = messages(response)
            (first,) = await take(stream, 1)
            assert seen([first.event]) == [(1, BROUGHT)]
            await appended(shop, "order", key, "was_placed", NEW)
            while (await take(stream, 1))[0].event["data"] != NEW:
                pass


async def test_events_of_each_way_in_are_stored_with_their_revision(
    shop: httpx.AsyncClient, outbox: asyncpg.Pool
) -> None:
    key = new_id()
    await appended(shop, "order", key, "was_placed", OLD)
    await deployed(shop, second())
    sent = batch(("was_placed", NEW), ("was_noted", 1), ("was_placed", NEW))
    assert (await shop.post(f"/order/{key}", json=sent)).status_code == 201
    (told,) = await bulk(shop, bulk_line(key, NEW, "was_placed"))
    assert told["status"] == 201
    rows = await outbox.fetch("SELECT revision FROM outbox WHERE aggregate_id = $1 ORDER BY version", key)
    assert [row["revision"] for row in rows] == [None, 2, None, 2, 2]


async def test_stored_events_are_held_to_a_schema_as_it_will_see_them(shop: httpx.AsyncClient) -> None:
    key = new_id()
    await appended(shop, "order", key, "was_placed", OLD)
    nothing = second(upcast=[], schema={"required": ["amount"]})
    told = refused(await shop.put("/_/spec", json=nothing), 422, "invalid_spec", more=["faults"])
    assert [(each["code"], each["pointer"]) for each in told["faults"]] == [
        ("refused_example", "/aggregate_types/order/events/was_placed/upcast/1")
    ] * 2
    assert "Example 0 of the schema of revision 1" in told["faults"][0]["error"]
    negative = second(schema={"properties": {"amount": {"properties": {"n": {"maximum": 3}}}}})
    told = refused(
        await shop.put("/_/spec", json=negative), 409, "spec_conflict", more=["revision", "conflicts"]
    )
    assert "1 of 1 stored was_placed events do not match" in told["conflicts"][0]["error"]
    response = await shop.put("/_/spec", json=second())
    notices = [each["pointer"] for each in response.json()["notices"]]
    assert "/aggregate_types/order/events/was_placed/upcast" in notices


async def test_a_revision_never_falls_unless_it_is_forced(shop: httpx.AsyncClient) -> None:
    key = new_id()
    await deployed(shop, second())
    await appended(shop, "order", key, "was_placed", NEW)
    back = copy.deepcopy(FIRST)
    back["aggregate_types"]["order"]["events"]["was_placed"]["schema"] = True
    told = refused(await shop.put("/_/spec", json=back), 409, "spec_conflict", more=["revision", "conflicts"])
    assert told["conflicts"][0]["pointer"] == "/aggregate_types/order/events/was_placed/revision"
    await deployed(shop, back, force="true")
    assert (await shop.get(f"/order/{key}")).json()["data"] == NEW


async def test_a_page_of_many_old_events_is_brought_to_the_present(shop: httpx.AsyncClient) -> None:
    key = new_id()
    sent = batch(*[("was_placed", {"total": n}) for n in range(200)])
    assert (await shop.post(f"/order/{key}", json=sent)).status_code == 201
    await deployed(shop, second())
    events = (await shop.get(f"/order/{key}/events?limit=1000&upcast=true")).json()["events"]
    assert [each["data"]["amount"]["n"] for each in events] == list(range(200))
    assert {each["metadata"]["revision"] for each in events} == {1}
    assert (await shop.get(f"/order/{key}")).json()["data"]["amount"]["n"] == 199
