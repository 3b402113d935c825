"""The feed newest first, from a time on, of one correlation id, of one actor."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import asyncpg
import httpx
import pytest

from gateway.relay import outbox as reading
from tests.support.calls import ACTOR, append, appended, new_id, noted, refused

OTHER = {"type": "user", "id": "b0000000-0000-4000-a000-000000000002"}
CORRELATION = "01a211ec-45cf-76fa-a6db-87f0120fa6c9"


async def fed(client: httpx.AsyncClient, query: str = "") -> dict[str, Any]:
    response = await client.get(f"/_/feed{query}")
    assert response.status_code == 200, response.text
    return dict(response.json())


def ids(page: dict[str, Any]) -> list[str]:
    return [each["id"] for each in page["events"]]


async def written(client: httpx.AsyncClient, count: int = 7) -> list[str]:
    for n in range(count):
        await appended(client, ("order", "config")[n % 2], "global", ("was_noted", "was_changed")[n % 2], {})
    return ids(await fed(client))


async def back(client: httpx.AsyncClient, query: str = "") -> list[str]:
    """All of it by pages, the newest first."""
    found, after = [], ""
    while True:
        page = await fed(client, f"?order=desc&limit=3{query}{after}")
        found += ids(page)
        if page["caught_up"]:
            return found
        after = f"&after={page['position']}"


@pytest.mark.parametrize("stretch", [20_000, 3, 2])
async def test_newest_first_pages_lead_to_the_beginning(
    own_client: httpx.AsyncClient, stretch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "STRETCH", stretch)
    forth = await written(own_client)
    assert await back(own_client) == forth[::-1]
    assert await back(own_client, "&types=config") == forth[1::2][::-1]
    assert await back(own_client, "&tags=order:global") == forth[::2][::-1]
    first = await fed(own_client, "?order=desc&limit=1")
    assert (ids(first), first["caught_up"]) == ([forth[-1]], False)
    whole = await fed(own_client)
    middle = whole["events"][3]["position"]
    assert ids(await fed(own_client, f"?order=desc&after={middle}")) == forth[:3][::-1]
    assert ids(await fed(own_client, "?order=desc&after=beginning")) == []
    assert ids(await fed(own_client, "?order=desc&after=now")) == forth[:-1][::-1]


async def test_every_form_but_the_live_one_has_that_order(client: httpx.AsyncClient) -> None:
    forth = await written(client)
    ndjson = await client.get("/_/feed?order=desc", headers={"accept": "application/x-ndjson"})
    lines = [json.loads(line) for line in ndjson.content.splitlines()]
    assert [each["id"] for each in lines] == forth[::-1]
    rest = await fed(client, f"?order=desc&after={lines[2]['position']}")
    assert ids(rest) == forth[:-3][::-1]
    cloud = await client.get(
        "/_/feed?order=desc&limit=2", headers={"accept": "application/cloudevents-batch+json"}
    )
    assert [each["id"] for each in cloud.json()] == forth[:-3:-1]
    live = await client.get("/_/feed?order=desc", headers={"accept": "text/event-stream"})
    refused(live, 422, "invalid_field", "order")
    refused(await client.get("/_/feed?order=desc&wait=1"), 422, "invalid_field", "order")
    refused(await client.get("/_/feed?order=down"), 422, "invalid_field", "order")


async def test_a_position_that_is_none_is_refused_in_this_order_too(client: httpx.AsyncClient) -> None:
    await written(client, 2)
    page = await fed(client)
    position = page["position"]
    forged = position[:-2] + ("AA" if not position.endswith("AA") else "BB")
    refused(await client.get(f"/_/feed?order=desc&after={forged}"), 400, "invalid_position", "after")
    refused(await client.get("/_/feed?order=desc&after=x"), 400, "invalid_position", "after")


async def test_events_of_a_correlation_and_of_an_actor(client: httpx.AsyncClient) -> None:
    await written(client, 3)
    mine = await append(client, "order", new_id(), "was_noted", {}, {"x-correlation-id": CORRELATION})
    theirs = await append(client, "order", new_id(), "was_noted", {}, actor=OTHER)
    assert ids(await fed(client, f"?correlation_id={CORRELATION}")) == [mine.json()["event_id"]]
    assert ids(await fed(client, f"?correlation_id={CORRELATION.upper()}&order=desc")) == [
        mine.json()["event_id"]
    ]
    assert ids(await fed(client, f"?actor=user:{OTHER['id'].upper()}")) == [theirs.json()["event_id"]]
    assert ids(await fed(client, f"?actor=user:{ACTOR['id']}&correlation_id={new_id()}")) == []
    assert ids(await fed(client, "?actor=webhook:stripe_webhook")) == []
    refused(await client.get("/_/feed?correlation_id=x"), 422, "invalid_field", "correlation_id")
    refused(await client.get("/_/feed?actor=user"), 422, "invalid_field", "actor")
    told = refused(await client.get("/_/feed?actor=usr:global"), 422, "unknown_actor_type", "actor")
    assert "(did you mean `user`?)" in told["error"]
    refused(await client.get("/_/feed?actor=user:ada"), 422, "invalid_identifier", "actor")
    assert ids(await fed(client, "?actor=robot:ada&include_undeclared=true")) == []


async def test_a_live_reader_of_an_actor_gets_its_events_only(client: httpx.AsyncClient) -> None:
    await written(client, 3)
    query = f"/_/feed?actor=user:{OTHER['id']}&after=now"
    async with client.stream("GET", query, headers={"accept": "text/event-stream"}) as stream:
        lines = stream.aiter_lines()
        await appended(client, "order", new_id(), "was_noted")
        receipt = await appended(client, "order", new_id(), "was_noted", actor=OTHER)
        async with asyncio.timeout(20):
            data = [line async for line in _data(lines)]
    assert [json.loads(each)["id"] for each in data] == [receipt["event_id"]]


async def _data(lines: Any) -> Any:
    async for line in lines:
        if line.startswith("data: "):
            yield line.removeprefix("data: ")
            return


async def test_from_a_time_on_the_feed_begins_at_the_first_event_of_then(
    own_client: httpx.AsyncClient, own_outbox: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    await noted(own_client, "global", 40)
    events = (await fed(own_client))["events"]
    # Behind all that is stored beside them, a minute apart, by clocks that differ by some seconds.
    base = int(time.time()) + 3_600
    minutes = [60 * n + (7, -9, 0, 4)[n % 4] for n in range(40)]
    for event, seconds in zip(events, minutes, strict=True):
        await own_outbox.execute(
            "UPDATE outbox SET recorded_at = to_timestamp($2::float8) WHERE id = $1::uuid",
            event["id"],
            base + float(seconds),
        )
    for stretch in (20_000, 2):
        monkeypatch.setattr(reading, "STRETCH", stretch)
        for at in (0, 52, 60, 119, 120, 1_000, 2_344, 2_345):
            first = next((n for n, seconds in enumerate(minutes) if seconds >= at), 40)
            page = await fed(own_client, f"?from_time={base + at}")
            assert ids(page) == [each["id"] for each in events[first:]], at
            page = await fed(own_client, f"?order=desc&from_time={base + at}")
            assert ids(page) == [each["id"] for each in events[first:]][::-1], at
            assert page["caught_up"] is True
    assert len(ids(await fed(own_client, "?from_time=2023-11-14T22:13:20Z&types=order"))) == 40
    empty = await fed(own_client, "?from_time=4000000000")
    assert (empty["events"], empty["caught_up"]) == ([], True)
    receipt = await appended(own_client, "order", "global", "was_noted")
    assert ids(await fed(own_client, f"?after={empty['position']}")) == [receipt["event_id"]]
    refused(await own_client.get("/_/feed?from_time=5&after=now"), 422, "invalid_field", "from_time")
    refused(await own_client.get("/_/feed?from_time=yesterday"), 422, "invalid_field", "from_time")
    page = await fed(own_client, f"?order=desc&limit=2&from_time={base + 2_200}")
    rest = await fed(own_client, f"?order=desc&from_time={base + 2_200}&after={page['position']}")
    assert ids(page) + ids(rest) == [receipt["event_id"], *[each["id"] for each in events[37:][::-1]]]
