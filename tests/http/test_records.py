"""Records: what an event's type declares as its content, how it is graded, what is skipped, who has it."""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import AsyncIterator
from hashlib import sha256
from typing import Any
from uuid import UUID, uuid5

import asyncpg
import httpx
import pytest

from gateway.catalog.source_ids import rename_scope
from gateway.names.content import content_of_json, content_of_text, context_of
from tests.support.accounts import SPEC, Account, open_account
from tests.support.calls import (
    ACTOR,
    append,
    batch,
    bulk,
    events_of,
    length_of,
    new_client,
    new_id,
    refused,
    until,
)
from tests.support.records import source_of_units
from tests.support.serving import Served

SECRET = "a secret that nobody guesses"
CONTEXT = {"name": "$.data.name", "type": "$.type", "properties": "$.data.properties"}
DECLARED: dict[str, Any] = {
    **SPEC,
    "aggregate_types": {
        "unit": {
            "identity": {"content": {"text": "$.data.text"}, "context": CONTEXT},
            "events": {"was_seen": {"schema": True}, "was_noted": {"schema": True}},
        },
        "issue": {
            "identity": {"content": {"json": ["$.data.title", "$.data.body"]}},
            "events": {"was_seen": {"schema": True}},
        },
        "block": {
            "mint": "content",
            "identity": {"content": {"text": "$.data.text"}},
            "events": {"was_seen": {"schema": True}, "was_noted": {"schema": True}},
        },
        "order": SPEC["aggregate_types"]["order"],
    },
    "singletons": ["cat_webhook"],
    "webhooks": {"cat": source_of_units(SECRET)},
}


@pytest.fixture
async def tenant(outbox: asyncpg.Pool) -> Account:
    return await open_account(outbox, DECLARED)


@pytest.fixture
async def client(gateway: Served, tenant: Account) -> AsyncIterator[httpx.AsyncClient]:
    async with new_client(gateway.url, tenant.admin) as client:
        yield client


async def seen(
    client: httpx.AsyncClient, key: str, data: object, headers: dict[str, str] | None = None
) -> dict[str, Any]:
    """The identity of the event."""
    response = await append(client, "unit", key, "was_seen", data, headers)
    assert response.status_code == 201, response.text
    event = (await client.get(f"/_/events/{response.json()['event_id']}")).json()["event"]
    identity: dict[str, Any] = event["metadata"]["identity"]
    return identity


async def test_each_event_says_its_content_its_context_and_what_became_of_the_record(
    client: httpx.AsyncClient,
) -> None:
    key = new_id()
    first = await seen(client, key, {"text": " Hello ", "name": "a", "properties": {"n": "1"}})
    assert first == {
        "content": content_of_text("Hello"),
        "context": context_of("a", "was_seen", {"n": "1"}),
        "grade": "new",
    }
    grades = []
    for data in (
        {"text": "Hello", "properties": {"@line": 7, "n": "1"}, "name": "a"},
        {"text": "Hello", "name": "b", "properties": {"n": "1"}},
        {"text": "Bye", "name": "b", "properties": {"n": "1"}},
        {"text": "Other", "name": "c"},
    ):
        await append(client, "unit", key, "was_noted", {"not": "a record"})
        grades.append((await seen(client, key, data))["grade"])
    assert grades == ["unchanged", "moved", "edited", "new"]
    events = await events_of(client, "unit", key)
    assert [each["metadata"]["identity"] is None for each in events] == [False, True] * 4 + [False]
    assert {each["metadata"]["extra"] for each in events} == {None}
    fed = (await client.get("/_/feed")).json()["events"]
    assert fed[0]["metadata"]["identity"] == first


async def test_extra_comes_back_byte_for_byte_whatever_it_looks_like(client: httpx.AsyncClient) -> None:
    for of_type, event in (("unit", "was_seen"), ("order", "was_noted")):
        for sent in ('{"$identity":{"content":"x"},"$extra":1}', '{"b": 1.0,\n "a":"\\u00e9"}', "{}"):
            key = new_id()
            metadata = f'{{"actor":{json.dumps(ACTOR)},"extra":{sent}}}'
            body = f'{{"data":{{"text":"t"}},"metadata":{metadata}}}'
            headers = {"content-type": "application/json"}
            told = await client.post(f"/{of_type}/{key}/{event}", content=body, headers=headers)
            assert told.status_code == 201, told.text
            read = (await client.get(f"/{of_type}/{key}/events")).text
            assert f'"extra":{sent}' in read
            assert ('"identity":' in read) == (of_type == "unit")


async def test_an_unchanged_record_is_skipped_where_that_is_asked_for(client: httpx.AsyncClient) -> None:
    key, skip = new_id(), {"sluice-if-unchanged": "skip"}
    first = await append(client, "unit", key, "was_seen", {"text": "one"}, skip)
    assert first.status_code == 201
    again = await append(client, "unit", key, "was_seen", {"text": "one"}, skip)
    assert (again.status_code, again.json()) == (200, {**first.json(), "unchanged": True})
    assert "idempotency-replayed" not in again.headers
    body = {"data": {"text": "one"}, "metadata": {"actor": ACTOR}, "if_unchanged": "skip"}
    assert (await client.post(f"/unit/{key}/was_seen", json=body)).json()["unchanged"] is True
    assert (await append(client, "unit", key, "was_seen", {"text": "two"}, skip)).status_code == 201
    assert await length_of(client, key, "unit") == 2
    wrong = await client.post(f"/unit/{key}/was_seen", json={**body, "if_unchanged": "no"})
    refused(wrong, 422, "invalid_field", "if_unchanged")
    undeclared = await append(client, "order", key, "was_noted", None, skip)
    refused(undeclared, 422, "invalid_field", "if_unchanged")


async def test_many_writers_of_one_aggregate_are_graded_one_after_the_other(
    client: httpx.AsyncClient, second_gateway: Served, tenant: Account
) -> None:
    key = new_id()
    async with new_client(second_gateway.url, tenant.admin) as other:
        told = await asyncio.gather(
            *[
                append(each, "unit", key, "was_seen", {"text": "same"}, {"sluice-if-unchanged": "skip"})
                for each in (client, other)
                for _ in range(10)
            ]
        )
    assert sorted({each.status_code for each in told}) == [200, 201]
    assert [each.status_code for each in told].count(201) == 1
    assert await length_of(client, key, "unit") == 1


def line(scope: str, number: int, text: str, **more: object) -> dict[str, Any]:
    return {
        "aggregate_type": "unit",
        "source": {"source": "cat", "scope": scope, "id": f"tu{number}"},
        "type": "was_seen",
        "data": {"text": text, "name": more.pop("name", "")},
        "metadata": {"actor": ACTOR},
        "if_unchanged": "skip",
        **more,
    }


async def test_lines_that_name_a_source_go_to_what_that_stands_for_and_are_graded_by_it(
    client: httpx.AsyncClient,
) -> None:
    lines = [line(f"{file}.xlf", number, f"text {number}") for file in range(3) for number in range(20)]
    first, again = await bulk(client, *lines), await bulk(client, *lines)
    assert {each["status"] for each in first} == {201}
    assert len({each["key"] for each in first}) == 60
    assert [each["key"] for each in again] == [each["key"] for each in first]
    assert {(each["status"], each.get("unchanged")) for each in again} == {(200, True)}
    changed = await bulk(client, line("0.xlf", 0, "new words"), line("1.xlf", 0, "text 0", name="moved"))
    assert [each["status"] for each in changed] == [201, 201]
    events = [(await events_of(client, "unit", each["key"]))[-1] for each in changed]
    assert [each["metadata"]["identity"]["grade"] for each in events] == ["edited", "moved"]
    found = (await client.get("/_/sources/cat/0.xlf/tu0")).json()
    assert found["last_event"] == events[0]["id"]
    assert (found["content"], found["aggregate_type"]) == (content_of_text("new words"), "unit")
    wrong = await bulk(client, {**line("0.xlf", 0, "x"), "source": {"source": "cat"}})
    assert (wrong[0]["status"], wrong[0]["path"]) == (422, "source.id")
    (other,) = await bulk(client, {**line("0.xlf", 0, "x"), "aggregate_type": "issue"})
    assert (other["status"], other["code"]) == (409, "source_taken")


async def test_two_ids_of_one_aggregate_are_graded_each_by_its_own_records(client: httpx.AsyncClient) -> None:
    key = new_id()
    for scope in ("a", "b"):
        await client.put(f"/_/sources/cat/{scope}/tu1", json={"aggregate_type": "unit", "key": key})
    told = await bulk(client, line("a", 1, "A"), line("b", 1, "B"), line("a", 1, "A"), line("b", 1, "C"))
    assert [(each["status"], each["length"]) for each in told] == [(201, 1), (201, 2), (200, 1), (201, 3)]


async def test_records_are_graded_by_those_of_before_their_scope_was_renamed(
    client: httpx.AsyncClient, tenant: Account, outbox: asyncpg.Pool
) -> None:
    async def sent(scope: str, text: str) -> dict[str, Any]:
        body = batch(("was_seen", {"text": text}))
        source = {"source": "xliff", "scope": scope, "id": "tu1"}
        response = await client.post("/unit", json={**body, "source": source, "if_unchanged": "skip"})
        assert response.status_code in (200, 201), response.text
        return dict(response.json())

    first = await sent("a", "one")
    await rename_scope(outbox, UUID(tenant.id), "xliff", "a", "b")
    assert (await client.get("/_/sources/xliff/b/tu1")).json()["last_event"] == first["event_ids"][0]
    assert (await sent("b", "one"))["unchanged"] is True
    new = await sent("a", "other")
    assert new["key"] != first["key"]
    assert (await sent("b", "one"))["unchanged"] is True
    await sent("b", "two")
    identities = [each["metadata"]["identity"] for each in await events_of(client, "unit", first["key"])]
    assert [each["grade"] for each in identities] == ["new", "edited"]
    # Another scope that leads here too has records of its own.
    linked = {"aggregate_type": "unit", "key": first["key"]}
    assert (await client.put("/_/sources/xliff/c/tu1", json=linked)).status_code == 200
    assert "unchanged" not in await sent("c", "two")
    asked = (await client.get("/_/sources/xliff/c/tu1")).json()
    assert asked["content"] == content_of_text("two")


async def test_an_append_without_a_key_may_name_a_source(client: httpx.AsyncClient) -> None:
    source = {"source": "cat", "scope": "x", "id": "1"}
    bodies = [{**batch(("was_seen", {"text": text})), "source": source} for text in ("one", "two")]
    first, second = [await client.post("/unit", json=body) for body in bodies]
    assert (first.json()["key"], first.json()["length"]) == (second.json()["key"], 1)
    assert second.json()["length"] == 2
    assert second.headers["location"] == f"/unit/{second.json()['key']}"
    both = await client.post("/unit", json={**bodies[0], "parent": "@bd-k86gaq"})
    refused(both, 422, "invalid_field", "source")


async def test_a_line_has_a_key_or_a_source(client: httpx.AsyncClient) -> None:
    lines = [{**line("k.xlf", 0, "one"), **more} for more in ({"key": new_id()}, {"key": None}, {})]
    both, null, neither = await bulk(client, *lines[:2], {**lines[2], "key": new_id(), "source": None})
    assert (both["code"], both["path"]) == ("contradiction", "source")
    assert (null["status"], neither["status"]) == (201, 201)
    assert neither["key"] != null["key"]


async def test_a_source_of_another_type_is_no_place_for_an_event_of_several(
    client: httpx.AsyncClient,
) -> None:
    source = {"source": "cat", "scope": "y", "id": "1"}
    key = new_id()
    await client.put("/_/sources/cat/y/1", json={"aggregate_type": "unit", "key": key})
    event = {"aggregate_type": "unit", "source": source, "type": "was_seen", "data": {"text": "t"}}
    metadata = {"actor": ACTOR}
    done = await client.post("/_/append", json={"events": [event], "metadata": metadata})
    assert done.json()["events"][0]["key"] == key
    other = {**event, "aggregate_type": "issue"}
    sent = {"events": [event, other], "metadata": metadata}
    refused(await client.post("/_/append", json=sent), 409, "source_taken", "events[1].source")


async def test_who_has_a_content_is_told_by_the_last_records(client: httpx.AsyncClient) -> None:
    keys = sorted(new_id() for _ in range(3))
    for key in keys:
        await append(client, "issue", key, "was_seen", {"title": "t", "body": [1.0]})
    content = content_of_json(b'["t",[1]]')
    found = (await client.get(f"/issue?content={content}&limit=2")).json()
    assert ([each["key"] for each in found["items"]], found["next"]) == (keys[:2], keys[1])
    rest = (await client.get(f"/issue?content={content}&cursor={found['next']}")).json()
    assert [each["key"] for each in rest["items"]] == keys[2:]
    await append(client, "issue", keys[0], "was_seen", {"title": "t"})
    assert len((await client.get(f"/issue?content={content}")).json()["items"]) == 2
    key = new_id()
    await append(client, "unit", key, "was_seen", {"text": "x", "name": "n"})
    context = context_of("n", "was_seen", {})
    by_context = (await client.get(f"/unit?context={context}")).json()["items"]
    both = (await client.get(f"/unit?content={content_of_text('x')}&context={context}")).json()["items"]
    assert [each["key"] for each in by_context] == [each["key"] for each in both] == [key]
    refused(await client.get("/order?content=" + "0" * 64), 422, "invalid_field", "content")
    refused(await client.get("/unit?content=x"), 422, "invalid_field", "content")
    refused(await client.get("/unit"), 405, "method_not_allowed")


async def test_equal_content_is_one_aggregate_whose_key_is_the_content(
    client: httpx.AsyncClient, tenant: Account
) -> None:
    body = batch(("was_seen", {"text": " Hello "}))
    first, again = [await client.post("/block", json=body) for _ in range(2)]
    assert first.status_code == 201
    key = str(uuid5(UUID(tenant.id), content_of_text("Hello")))
    assert first.json()["key"] == key
    assert (again.status_code, again.json()["unchanged"], again.json()["length"]) == (200, True, 1)
    other = await append(client, "block", key, "was_seen", {"text": "Bye"})
    refused(other, 409, "content_differs")
    refused(await append(client, "block", new_id(), "was_seen", {"text": "Bye"}), 409, "content_differs")
    for n in (1, 2):  # layers over the block, each with events of its own
        layer = await append(client, "block", f"{key}:de", "was_seen", {"text": f"Hallo {n}"})
        assert (layer.status_code, layer.json()["length"]) == (201, n)
    missing = await client.post("/block", json=batch(("was_noted", {})))
    refused(missing, 422, "missing_field", "events[0].data")


async def test_webhooks_are_records_of_their_scope_and_skip_what_is_unchanged(
    client: httpx.AsyncClient, tenant: Account, gateway: Served
) -> None:
    async def delivered(number: int, **body: object) -> httpx.Response:
        text = json.dumps(body).encode()
        signature = hmac.new(SECRET.encode(), text, sha256).hexdigest()
        headers = {"content-type": "application/json", "x-signature": signature, "x-id": str(number)}
        return await client.post(f"/_/webhooks/{tenant.name}/cat", content=text, headers=headers)

    async def is_known() -> bool:
        return (await client.post(f"/_/webhooks/{tenant.name}/cat", content=b"{}")).status_code == 401

    await until(is_known)
    told = [
        await delivered(n, file=file, id="tu1", text=text)
        for n, (file, text) in enumerate((("a", "one"), ("b", "one"), ("a", "one"), ("a", "two")))
    ]
    assert {each.status_code for each in told} == {202}
    events = [(await client.get(f"/_/events/{each.json()['event_id']}")).json()["event"] for each in told]
    assert events[0]["key"] == events[2]["key"] == events[3]["key"] != events[1]["key"]
    assert events[2]["id"] == events[0]["id"]
    assert told[2].json()["duplicate"] is True
    assert events[3]["metadata"]["identity"]["grade"] == "edited"
    assert events[3]["metadata"]["extra"]["webhook"]["scope"] == "a"
