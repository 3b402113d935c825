"""POST /{type}/{id} and POST /{type}: several events, all or nothing."""

from __future__ import annotations

import asyncio
import json
import re

import httpx
import pytest

from tests.support.calls import (
    ACTOR,
    JSON,
    append,
    appended,
    batch,
    events_of,
    length_of,
    new_event_id,
    new_id,
    noted,
    refused,
)

UUID_V4 = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
HUMANE = re.compile("[0-9A-HJKMNP-TV-Z]{9}")


async def test_the_receipt_of_several(client: httpx.AsyncClient) -> None:
    key, event_id = new_id(), new_event_id()
    await noted(client, key, 5)
    second = {"type": "was_noted", "data": "b", "event_id": event_id}
    response = await client.post(f"/order/{key}", json=batch(("was_noted", "a"), second, ("was_noted", "c")))
    receipt = response.json()
    assert response.status_code == 201
    assert list(receipt) == ["ok", "key", "event_ids", "stream_ids", "count", "length", "position"]
    assert (receipt["ok"], receipt["key"], receipt["count"], receipt["length"]) == (True, key, 3, 8)
    assert receipt["stream_ids"] == ["6-0", "7-0", "8-0"]
    assert receipt["event_ids"][1] == event_id
    assert response.headers["etag"] == '"8"'
    assert response.headers["location"] == f"/order/{key}/events/8"
    events = (await events_of(client, "order", key))[5:]
    assert [event["id"] for event in events] == receipt["event_ids"]
    assert [event["data"] for event in events] == ["a", "b", "c"]


async def test_metadata_is_that_of_every_event(client: httpx.AsyncClient) -> None:
    key, causation, correlation = new_id(), new_id(), new_id()
    target = {"type": "user", "id": new_id()}
    body = batch(("was_placed", {}), ("was_noted", 1), target=target, causation_id=causation, extra={"a": 1})
    await client.post(f"/order/{key}", json=body, headers={"x-correlation-id": correlation})
    events = await events_of(client, "order", key)
    metadata = [event["metadata"] for event in events]
    assert metadata[0] == metadata[1]
    del metadata[0]["timestamp"]
    assert metadata[0] == {
        "actor": ACTOR,
        "target": target,
        "correlation_id": correlation,
        "causation_id": causation,
        "extra": {"a": 1},
        "revision": 1,
    }


async def test_a_metadata_event_id_names_a_single_event(client: httpx.AsyncClient) -> None:
    event_id = new_event_id()
    response = await client.post("/order/global", json=batch(("was_noted", 1), event_id=event_id))
    assert response.json()["event_ids"] == [event_id]


async def test_an_event_id_twice_in_one_request_is_refused(client: httpx.AsyncClient) -> None:
    event_id = new_event_id()
    one = {"type": "was_noted", "data": 1, "event_id": event_id}
    upper = {**one, "event_id": event_id.upper()}
    response = await client.post("/order/global", json=batch(one, ("was_noted", 1), upper))
    refused(response, 422, "invalid_field", "events[2].event_id")
    response = await client.post(
        "/order/global", json=batch(("was_noted", 1), ("was_noted", 2), event_id=event_id)
    )
    refused(response, 422, "invalid_field", "metadata.event_id")
    for other in (event_id, new_event_id()):
        response = await client.post("/order/global", json=batch(one, event_id=other))
        refused(response, 422, "invalid_field", "metadata.event_id")
    assert await length_of(client, "global") == 0


async def test_there_is_one_check_of_the_length(client: httpx.AsyncClient) -> None:
    key = new_id()
    body = batch(("was_noted", 1), ("was_noted", 2))
    for headers, metadata in (
        ({}, {"previous_length": 0}),
        ({"if-match": '"2"'}, {}),
        ({"if-match": "*"}, {}),
    ):
        sent = batch(("was_noted", 1), ("was_noted", 2), **metadata)
        assert (await client.post(f"/order/{key}", json=sent, headers=headers)).status_code == 201
    response = await client.post(f"/order/{key}", json=body, headers={"if-none-match": "*"})
    told = refused(response, 409, "version_conflict", more=("length", "missed", "missed_next"))
    assert (told["length"], len(told["missed"])) == (6, 6)
    assert await length_of(client, key) == 6


@pytest.mark.parametrize(
    ("fault", "status", "code", "path"),
    [
        ({"type": "was_placed", "data": {"total": "x"}}, 422, "schema_violation", "events[1].data.total"),
        ({"type": "was_placed", "data": []}, 422, "schema_violation", "events[1].data"),
        ({"type": "nope", "data": 1}, 422, "unknown_event_type", "events[1].type"),
        ({"type": "_nope", "data": 1}, 422, "reserved_event_type", "events[1].type"),
        ({"type": "was_noted"}, 422, "missing_field", "events[1].data"),
        ({"data": 1}, 422, "missing_field", "events[1].type"),
        ({"type": 5, "data": 1}, 422, "invalid_field", "events[1].type"),
        ({"type": "was_noted", "data": 1, "metadata": {}}, 422, "unknown_field", "events[1].metadata"),
        ({"type": "was_noted", "data": 1, "event_id": "x"}, 422, "invalid_field", "events[1].event_id"),
        ({"type": "was_noted", "data": "x" * 262_144}, 413, "too_large", "events[1].data"),
        (5, 422, "invalid_field", "events[1]"),
    ],
)
async def test_one_fault_refuses_all(
    client: httpx.AsyncClient, fault: object, status: int, code: str, path: str
) -> None:
    key = new_id()
    body = {"events": [{"type": "was_noted", "data": 1}, fault], "metadata": {"actor": ACTOR}}
    for url in (f"/order/{key}", "/order"):
        refused(await client.post(url, json=body), status, code, path)
    assert await length_of(client, key) == 0


@pytest.mark.parametrize(
    ("body", "code", "path"),
    [
        ({"metadata": {"actor": ACTOR}}, "missing_field", "events"),
        ({"events": [{"type": "was_noted", "data": 1}]}, "missing_field", "metadata"),
        ({"events": [], "metadata": {"actor": ACTOR}}, "invalid_field", "events"),
        ({"events": {}, "metadata": {"actor": ACTOR}}, "invalid_field", "events"),
        ({**batch(("was_noted", 1)), "data": 1}, "unknown_field", "data"),
        ({**batch(("was_noted", 1)), "key": "x"}, "unknown_field", "key"),
        (batch(("was_noted", 1), previous_length="x"), "invalid_field", "metadata.previous_length"),
        (
            batch(("was_noted", 1), actor={"type": "x", "id": "x"}),
            "unknown_actor_type",
            "metadata.actor.type",
        ),
        (
            batch(("was_noted", 1), actor={"type": "user", "id": "x"}),
            "invalid_identifier",
            "metadata.actor.id",
        ),
        ([], "invalid_field", None),
    ],
)
async def test_the_body_of_a_batch(
    client: httpx.AsyncClient, body: object, code: str, path: str | None
) -> None:
    for url in ("/order/global", "/order"):
        sent = json.dumps(body).encode()
        refused(await client.post(url, content=sent, headers=JSON), 422, code, path)
    assert await length_of(client, "global") == 0


async def test_at_most_a_thousand_events_at_once(client: httpx.AsyncClient) -> None:
    key = new_id()
    response = await client.post(f"/order/{key}", json=batch(*[("was_noted", n) for n in range(1000)]))
    assert (response.json()["count"], response.json()["length"]) == (1000, 1000)
    assert [event["data"] for event in await events_of(client, "order", key)] == list(range(1000))
    response = await client.post(f"/order/{key}", json=batch(*[("was_noted", n) for n in range(1001)]))
    refused(response, 422, "invalid_field", "events")


async def test_no_client_sees_or_writes_between_the_events_of_a_batch(client: httpx.AsyncClient) -> None:
    key = new_id()
    bodies = [batch(*[("was_noted", [writer, n]) for n in range(5)]) for writer in range(15)]
    writes = [client.post(f"/order/{key}", json=body) for body in bodies]
    singles = [append(client, "order", key, "was_noted", ["one", n]) for n in range(15)]
    lengths = [length_of(client, key) for _ in range(15)]
    await asyncio.gather(*(each for group in zip(writes, singles, lengths, strict=True) for each in group))
    data = [event["data"] for event in await events_of(client, "order", key)]
    for writer in range(15):
        start = data.index([writer, 0])
        assert data[start : start + 5] == [[writer, n] for n in range(5)]


async def test_the_gateway_mints_the_key_of_a_new_aggregate(client: httpx.AsyncClient) -> None:
    for aggregate_type, event_type, grammar in (
        ("order", "was_noted", UUID_V4),
        ("ticket", "was_opened", HUMANE),
    ):
        seen = set()
        for _ in range(5):
            response = await client.post(
                f"/{aggregate_type}", json=batch((event_type, {}), (event_type, {"b": 2}))
            )
            receipt = response.json()
            assert response.status_code == 201
            assert grammar.fullmatch(receipt["key"])
            assert (receipt["count"], receipt["length"]) == (2, 2)
            assert receipt["stream_ids"] == ["1-0", "2-0"]
            assert response.headers["location"] == f"/{aggregate_type}/{receipt['key']}"
            assert response.headers["etag"] == '"2"'
            state = await client.get(response.headers["location"])
            assert state.json()["metadata"]["length"] == 2
            seen.add(receipt["key"])
        assert len(seen) == 5


async def test_a_new_aggregate_has_no_events_before(client: httpx.AsyncClient) -> None:
    zero = {"previous_length": 0}
    for headers, metadata in (
        ({}, zero),
        ({"if-match": '"0"'}, {}),
        ({"if-none-match": "*"}, zero),
        ({}, {"skip_occ": True}),
    ):
        body = batch(("was_noted", 1), **metadata)
        assert (await client.post("/order", json=body, headers=headers)).status_code == 201
    body = batch(("was_noted", 1), previous_length=1)
    refused(await client.post("/order", json=body), 422, "invalid_field", "metadata.previous_length")
    for form in ('"1"', "*"):
        response = await client.post("/order", json=batch(("was_noted", 1)), headers={"if-match": form})
        refused(response, 422, "invalid_field", "If-Match")


async def test_a_minted_key_that_is_taken_is_minted_again_and_the_first_aggregate_stays(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, free = new_id(), new_id()
    await appended(client, "order", taken, "was_noted", "first")
    minted = iter([taken, taken, free])
    monkeypatch.setattr("gateway.http.api.appends.minted_key", lambda _type: next(minted))
    once = {"idempotency-key": new_id()}
    response = await client.post("/order", json=batch(("was_noted", "second")), headers=once)
    assert (response.status_code, response.json()["key"]) == (201, free), response.text
    assert response.headers["location"] == f"/order/{free}"
    assert [each["data"] for each in await events_of(client, "order", taken)] == ["first"]
    monkeypatch.setattr("gateway.http.api.appends.minted_key", lambda _type: taken)
    again = await client.post("/order", json=batch(("was_noted", "second")), headers=once)
    assert (again.status_code, again.json()) == (201, response.json())
    refused_for_now = await client.post("/order", json=batch(("was_noted", "third")))
    assert refused_for_now.status_code == 409
    assert len(await events_of(client, "order", taken)) == 1


async def test_a_minting_request_is_refused_as_others_are(client: httpx.AsyncClient) -> None:
    refused(await client.post("/nope", json=batch(("was_noted", 1))), 404, "unknown_aggregate_type", "type")
    refused(await client.post("/order", content=b"{}"), 415, "unsupported_media_type", "Content-Type")
    refused(await client.post("/order", content=b"{", headers=JSON), 400, "invalid_json")
