"""The feed of what a query matches: by QUERY, by POST and by ?tags=, once and live."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import asyncpg
import httpx
import pytest

from gateway.admit.items import read_items
from gateway.errors import Refusal
from gateway.items import matches
from spec.model import Spec
from spec.parse import parse
from tests.http.conftest import Served
from tests.support.accounts import open_account
from tests.support.calls import JSON, append, appended, batch, bulk, bulk_line, new_client, new_id, refused

LETTERS = "abcd"
SPEC: dict[str, Any] = {
    "aggregate_types": {
        "course": {
            "events": {
                "was_defined": {"schema": {}, "tags": ["topic:$.data.topic"]},
                "was_closed": {"schema": {}},
            }
        },
        "order": {
            "events": {
                "was_made": {
                    "schema": {},
                    "tags": [
                        "student:$.data.student",
                        "course:$.data.courses[*]",
                        {"hash": "email:$.data.email"},
                    ],
                },
                "was_noted": {"schema": {}},
            }
        },
    },
    "agent_types": ["user"],
}


@asynccontextmanager
async def declared(gateway: Served, outbox: asyncpg.Pool) -> AsyncIterator[httpx.AsyncClient]:
    account = await open_account(outbox, SPEC)
    async with new_client(gateway.url, account.admin) as client:
        client.headers["x-tenant"] = account.id
        yield client


@pytest.fixture
async def client(gateway: Served, outbox: asyncpg.Pool) -> AsyncIterator[httpx.AsyncClient]:
    async with declared(gateway, outbox) as client:
        yield client


@pytest.fixture
async def own_client(own_gateway: Served, own_outbox: asyncpg.Pool) -> AsyncIterator[httpx.AsyncClient]:
    async with declared(own_gateway, own_outbox) as client:
        yield client


async def queried(client: httpx.AsyncClient, *items: Any, after: str = "", **params: Any) -> dict[str, Any]:
    asked = {**({"after": after} if after else {}), **params}
    response = await client.request("QUERY", "/_/feed", json={"items": list(items)}, params=asked)
    assert response.status_code == 200, response.text
    return dict(response.json())


def ids(page: dict[str, Any]) -> list[str]:
    return [event["id"] for event in page["events"]]


async def made(client: httpx.AsyncClient, key: str, **data: Any) -> str:
    return str((await appended(client, "order", key, "was_made", data))["event_id"])


async def test_a_query_finds_events_by_types_and_tags_in_their_order(client: httpx.AsyncClient) -> None:
    order, course = new_id(), new_id()
    defined = (await appended(client, "course", course, "was_defined", {"topic": "a"}))["event_id"]
    first = await made(client, order, student="s1", courses=[course, "c2"])
    second = await made(client, order, student="s2", courses=[course])
    await appended(client, "order", order, "was_noted", {"student": "s1"})
    assert ids(await queried(client, {"tags": ["student:s1"]})) == [first]
    assert ids(await queried(client, {"tags": [f"course:{course}"]})) == [defined, first, second]
    assert ids(await queried(client, {"tags": [f"course:{course}", "student:s2"]})) == [second]
    either = [{"types": ["course.was_defined"]}, {"tags": ["student:s2", f"order:{order}"]}]
    page = await queried(client, *either)
    assert (ids(page), page["caught_up"]) == ([defined, second], True)
    assert ids(await queried(client, {"tags": ["student:s3"]})) == []
    posted = await client.post("/_/feed/query", json={"items": either})
    assert (posted.status_code, posted.json()) == (200, page)


async def test_tags_in_the_query_string_are_one_item(client: httpx.AsyncClient) -> None:
    order = new_id()
    first = await made(client, order, student="s1", courses=["c1"])
    await made(client, order, student="s1", courses=["c2"])
    response = await client.get("/_/feed", params={"tags": "student:s1,course:c1"})
    assert ids(response.json()) == [first]
    response = await client.get("/_/feed", params={"tags": "student:s1", "types": "course"})
    assert ids(response.json()) == []
    refused(await client.get("/_/feed?tags=student"), 422, "invalid_field", "tags")
    many = ",".join([f"student:s{n}" for n in range(18)])
    refused(await client.get(f"/_/feed?tags={many}"), 422, "invalid_field", "tags")
    query = {"items": [{"tags": [f"student:s{n}"]} for n in range(100)]}
    more = await client.post("/_/feed/query?tags=course:c1,course:c2", json=query)
    refused(more, 422, "invalid_field", "tags")
    refused(await client.get("/_/feed?tags=studnt:s1"), 422, "unknown_tag", "tags")


async def test_a_hashed_tag_is_found_by_its_value_and_not_as_plain_text(client: httpx.AsyncClient) -> None:
    event = await made(client, new_id(), email="a@b.c")
    assert ids(await queried(client, {"tags": [{"hash": "email:a@b.c"}]})) == [event]
    assert ids(await queried(client, {"tags": ["email:a@b.c"]})) == []


async def test_tags_are_found_whichever_way_an_event_came(client: httpx.AsyncClient) -> None:
    key = new_id()
    await made(client, key, student="s1")
    events = [
        ("was_made", {"student": "s1"}),
        ("was_made", {"student": "s2"}),
        ("was_made", {"student": "s1"}),
    ]
    assert (await client.post(f"/order/{key}", json=batch(*events))).status_code == 201
    assert (await client.post("/order", json=batch(*events[:1]))).status_code == 201
    await bulk(client, *(bulk_line(new_id(), {"student": "s1"}, "was_made") for _ in range(3)))
    assert len((await queried(client, {"tags": ["student:s1"]}))["events"]) == 7


async def test_another_tenant_finds_nothing(client: httpx.AsyncClient, gateway: Served, outbox: Any) -> None:
    await made(client, new_id(), student="s1")
    other = await open_account(outbox, SPEC)
    async with new_client(gateway.url, other.admin) as stranger:
        assert ids(await queried(stranger, {"tags": ["student:s1"]})) == []


async def test_a_query_that_is_none_is_refused(client: httpx.AsyncClient) -> None:
    async def asked(content: bytes, headers: dict[str, str] = JSON) -> httpx.Response:
        return await client.request("QUERY", "/_/feed", content=content, headers=headers)

    refused(await asked(b'{"items": []}'), 422, "invalid_field", "items")
    refused(await asked(b'{"items": [{}]}'), 422, "invalid_field", "items[0]")
    refused(await asked(b"{}"), 422, "missing_field", "items")
    refused(await asked(b"["), 400, "invalid_json")
    refused(await asked(b"{}", {"content-type": "text/plain"}), 415, "unsupported_media_type", "Content-Type")
    refused(
        await asked(b'{"items": [{"types": ["course.was_definde"]}]}'),
        422,
        "unknown_event_type",
        "items[0].types[0]",
    )
    refused(
        await append(client, "order", new_id(), "was_made", {"student": {}}),
        422,
        "invalid_tag",
        "data.student",
    )
    told = (await client.get("/_/capabilities")).json()
    assert told["ok"] and told["dcb"]["read"]["query"]


async def test_any_query_in_pages_is_what_its_items_match_one_by_one(
    own_client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.log.read.matches.EVENTS_OF_A_TAG", 7)
    monkeypatch.setattr("gateway.relay.outbox.STRETCH", 11)
    chance = random.Random(7)
    keys = [new_id() for _ in range(3)]

    def line() -> dict[str, Any]:
        if chance.random() < 0.3:
            data = {"topic": chance.choice(LETTERS)}
            return {**bulk_line(chance.choice(keys), data, "was_defined"), "aggregate_type": "course"}
        data = {"student": chance.choice(LETTERS), "courses": chance.sample([*LETTERS, *keys], 2)}
        return bulk_line(chance.choice(keys), data, chance.choice(("was_made", "was_made", "was_noted")))

    for _ in range(3):
        await bulk(own_client, *(line() for _ in range(80)))
    spec = parse(SPEC)
    assert isinstance(spec, Spec)
    whole = (await own_client.get("/_/feed")).json()["events"]
    assert len(whole) == 240

    def item() -> dict[str, Any]:
        types = chance.sample(
            ["course.was_defined", "order.was_made", "order.was_noted"], chance.choice((0, 0, 1, 2))
        )
        tags = chance.sample(
            [*(f"student:{each}" for each in LETTERS), *(f"course:{each}" for each in [*LETTERS, *keys]),
             *(f"order:{each}" for each in keys), "topic:a"], chance.choice((1, 1, 2, 0 if types else 1)),
        )  # fmt: skip
        return {"types": types, "tags": tags}

    for _ in range(25):
        asked = [item() for _ in range(chance.choice((1, 1, 2, 3)))]
        items = read_items(asked, spec, b"", "items")
        assert not isinstance(items, Refusal)
        expected = [
            event["id"]
            for event in whole
            if matches(items, event["aggregate_type"], event["key"], event["type"], _tags_of(event))
        ]
        for order, wanted in (("asc", expected), ("desc", expected[::-1])):
            found, position = [], ""
            while True:
                page = await queried(own_client, *asked, after=position, limit=9, order=order)
                found += ids(page)
                position = page["position"]
                if page["caught_up"]:
                    break
            assert found == wanted, (order, asked)


def _tags_of(event: dict[str, Any]) -> list[str]:
    data = event["data"]
    match event["type"]:
        case "was_defined":
            return [f"topic:{data['topic']}"]
        case "was_made":
            return [f"student:{data['student']}", *(f"course:{each}" for each in data["courses"])]
    return []


async def test_a_query_is_followed_live_at_any_gateway(
    client: httpx.AsyncClient, second_gateway: Served
) -> None:
    """What this gateway commits, and what the other one does."""
    query = {"items": [{"tags": ["student:s1"]}, {"types": ["course.was_closed"]}]}
    headers = {"accept": "text/event-stream", "authorization": client.headers["authorization"]}
    expected = [await made(client, new_id(), student="s1")]
    async with new_client(second_gateway.url, None) as other, asyncio.timeout(30):
        other.headers["authorization"] = client.headers["authorization"]
        async with client.stream("QUERY", "/_/feed", json=query, headers=headers) as response:
            assert response.status_code == 200
            lines = response.aiter_lines()
            found = [await _next(lines)]
            for writer in (client, other, client, other):
                await made(writer, new_id(), student="s2")
                await appended(writer, "order", new_id(), "was_noted", {"student": "s1"})
                expected.append(await made(writer, new_id(), student="s1"))
                closed = await appended(writer, "course", new_id(), "was_closed")
                expected.append(closed["event_id"])
                found += [await _next(lines), await _next(lines)]
    assert found == expected


async def _next(lines: Any) -> str:
    async for line in lines:
        if line.startswith("data: "):
            return str(json.loads(line[6:])["id"])
    raise AssertionError("the stream ended")


async def test_a_query_waits_for_its_next_match(client: httpx.AsyncClient) -> None:
    page = await queried(client, {"tags": ["student:s1"]})
    waiting = asyncio.create_task(queried(client, {"tags": ["student:s1"]}, after=page["position"], wait=20))
    await made(client, new_id(), student="s2")
    event = await made(client, new_id(), student="s1")
    assert ids(await waiting) == [event]
    assert UUID(event)
