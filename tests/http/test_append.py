"""POST /{type}/{id}/{event_type}: what is accepted, and what the answer says."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator
from copy import deepcopy
from uuid import UUID

import asyncpg
import httpx
import pytest

from tests.http.raw import connected, request
from tests.support.accounts import SPEC, Account, open_account
from tests.support.calls import (
    ACTOR,
    JSON,
    NDJSON,
    append,
    appended,
    batch,
    envelope,
    events_of,
    length_of,
    new_client,
    new_event_id,
    new_id,
    refused,
)
from tests.support.serving import Served

UUID_V7 = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
ACTOR_ID = ACTOR["id"]


async def test_the_receipt_says_where_the_event_is(client: httpx.AsyncClient) -> None:
    key = new_id()
    for length in (1, 2, 3):
        response = await append(client, "order", key, "was_placed", {"sku": "A-1"})
        receipt = response.json()
        assert response.status_code == 201
        assert list(receipt) == ["ok", "key", "event_id", "stream_id", "length", "position"]
        assert receipt.pop("position")
        assert UUID_V7.fullmatch(receipt.pop("event_id"))
        assert receipt == {"ok": True, "key": key, "stream_id": f"{length}-0", "length": length}
        assert response.headers["content-type"] == "application/json"
        assert response.headers["etag"] == f'"{length}"'
        assert response.headers["location"] == f"/order/{key}/events/{length}"
        assert "idempotency-replayed" not in response.headers


async def test_location_leads_to_the_event(client: httpx.AsyncClient) -> None:
    for key in (new_id(), "ABC123XYZ", "global", f"{new_id()}:2026"):
        response = await append(client, "order", key, "was_noted", 5)
        event = (await client.get(response.headers["location"])).json()["event"]
        assert (event["id"], event["data"], event["key"]) == (response.json()["event_id"], 5, key)


async def test_everything_sent_comes_back(client: httpx.AsyncClient) -> None:
    key, event_id, causation_id, correlation_id = new_id(), new_event_id(), new_id(), new_id()
    target = {"type": "order", "id": "ABC123XYZ"}
    extra = {"note": "by hand", "nested": [1, {"a": None}]}
    before = time.time()
    receipt = await appended(
        client,
        "order",
        key,
        "was_placed",
        {"sku": "A-1"},
        {"x-correlation-id": correlation_id},
        target=target,
        previous_length=0,
        event_id=event_id,
        causation_id=causation_id,
        extra=extra,
    )
    assert receipt["event_id"] == event_id
    [event] = await events_of(client, "order", key)
    timestamp = event["metadata"].pop("timestamp")
    assert int(before * 1000) / 1000 <= timestamp <= time.time()
    assert event == {
        "id": event_id,
        "stream_id": "1-0",
        "version": 1,
        "key": key,
        "aggregate_type": "order",
        "type": "was_placed",
        "data": {"sku": "A-1"},
        "metadata": {
            "actor": ACTOR,
            "target": target,
            "correlation_id": correlation_id,
            "causation_id": causation_id,
            "extra": extra,
            "revision": 1,
        },
    }


async def test_what_is_absent_comes_back_as_null(client: httpx.AsyncClient) -> None:
    key = new_id()
    await appended(client, "order", key, "was_placed")
    [event] = await events_of(client, "order", key)
    metadata = event["metadata"]
    assert [metadata[name] for name in ("target", "causation_id", "extra")] == [None, None, None]
    assert UUID(metadata["correlation_id"])
    names = {"actor", "target", "timestamp", "correlation_id", "causation_id", "extra", "revision"}
    assert set(metadata) == names


async def test_an_optional_field_that_is_null_counts_as_absent(client: httpx.AsyncClient) -> None:
    nothing = dict.fromkeys(("target", "previous_length", "skip_occ", "event_id", "causation_id", "extra"))
    await appended(client, "order", new_id(), "was_placed", None, None, **nothing)


async def test_data_is_any_json_that_the_schema_accepts(client: httpx.AsyncClient) -> None:
    key = new_id()
    values = [None, True, False, 0, -1.5, "", "text", [], {}, [1, [2]], {"a": {"b": None}}]
    for value in values:
        body = {"data": value, "metadata": {"actor": ACTOR}}
        assert (await client.post(f"/order/{key}/was_noted", json=body)).status_code == 201
    assert [event["data"] for event in await events_of(client, "order", key)] == values


async def test_an_actor_and_a_target_are_of_all_four_kinds(client: httpx.AsyncClient) -> None:
    uuid = new_id()
    kinds = {
        uuid.upper(): uuid,
        "abc123xyi": "ABC123XY1",
        "global": "global",
        "stripe_webhook": "stripe_webhook",
        f"{uuid.upper()}:2026": f"{uuid}:2026",
    }
    key = new_id()
    for sent, canonical in kinds.items():
        body = {
            "data": {},
            "metadata": {"actor": {"type": "webhook", "id": sent}, "target": {"type": "user", "id": sent}},
        }
        assert (await client.post(f"/order/{key}/was_noted", json=body)).status_code == 201
        metadata = (await events_of(client, "order", key))[-1]["metadata"]
        assert metadata["actor"] == {"type": "webhook", "id": canonical}
        assert metadata["target"] == {"type": "user", "id": canonical}


async def test_minted_event_ids_are_of_version_7_distinct_and_in_the_order_of_time(
    client: httpx.AsyncClient,
) -> None:
    at_once = [appended(client, "order", new_id(), "was_noted") for _ in range(20)]
    ids = [receipt["event_id"] for receipt in await asyncio.gather(*at_once)]
    following = [(await appended(client, "order", "global", "was_noted"))["event_id"] for _ in range(10)]
    assert {UUID(each).version for each in (*ids, *following)} == {7}
    assert len({*ids, *following}) == 30
    assert max(ids) < following[0] and following == sorted(following)


async def test_a_chosen_event_id_is_kept_in_lower_case(client: httpx.AsyncClient) -> None:
    event_id = new_event_id()
    receipt = await appended(client, "order", new_id(), "was_noted", event_id=event_id.upper())
    assert receipt["event_id"] == event_id
    assert (await client.get(f"/_/events/{event_id}")).json()["event"]["id"] == event_id


@pytest.mark.parametrize(
    ("metadata", "code", "path"),
    [
        ({"actor": None}, "invalid_field", "metadata.actor"),
        ({"actor": ACTOR_ID}, "invalid_field", "metadata.actor"),
        ({"actor": {"id": ACTOR_ID}}, "missing_field", "metadata.actor.type"),
        ({"actor": {"type": "user"}}, "missing_field", "metadata.actor.id"),
        ({"actor": {"type": 1, "id": ACTOR_ID}}, "invalid_field", "metadata.actor.type"),
        ({"actor": {"type": "user", "id": 1}}, "invalid_field", "metadata.actor.id"),
        ({"actor": {**ACTOR, "name": "x"}}, "unknown_field", "metadata.actor.name"),
        ({"actor": {"type": "order", "id": ACTOR_ID}}, "unknown_actor_type", "metadata.actor.type"),
        ({"actor": {"type": "User", "id": ACTOR_ID}}, "unknown_actor_type", "metadata.actor.type"),
        ({"actor": {"type": "user", "id": "nobody"}}, "invalid_identifier", "metadata.actor.id"),
        ({"actor": {"type": "user", "id": "@VNO-42"}}, "invalid_identifier", "metadata.actor.id"),
        ({"actor": {"type": "user", "id": ""}}, "invalid_identifier", "metadata.actor.id"),
        ({"target": "order"}, "invalid_field", "metadata.target"),
        ({"target": {"type": "order"}}, "missing_field", "metadata.target.id"),
        ({"target": {"id": ACTOR_ID}}, "missing_field", "metadata.target.type"),
        ({"target": {"type": "cart", "id": ACTOR_ID}}, "unknown_target_type", "metadata.target.type"),
        ({"target": {"type": "webhook", "id": ACTOR_ID}}, "unknown_target_type", "metadata.target.type"),
        ({"target": {"type": "order", "id": "nope"}}, "invalid_identifier", "metadata.target.id"),
        ({"previous_length": -1}, "invalid_field", "metadata.previous_length"),
        ({"previous_length": 1.5}, "invalid_field", "metadata.previous_length"),
        ({"previous_length": "0"}, "invalid_field", "metadata.previous_length"),
        ({"previous_length": True}, "invalid_field", "metadata.previous_length"),
        ({"previous_length": 2**63}, "invalid_field", "metadata.previous_length"),
        ({"skip_occ": "true"}, "invalid_field", "metadata.skip_occ"),
        ({"skip_occ": 1}, "invalid_field", "metadata.skip_occ"),
        ({"skip_occ": True, "previous_length": 0}, "invalid_field", "metadata.skip_occ"),
        ({"event_id": 7}, "invalid_field", "metadata.event_id"),
        ({"event_id": "x"}, "invalid_field", "metadata.event_id"),
        ({"event_id": new_id()}, "invalid_field", "metadata.event_id"),
        ({"causation_id": "x"}, "invalid_field", "metadata.causation_id"),
        ({"causation_id": 1}, "invalid_field", "metadata.causation_id"),
        ({"extra": "note"}, "invalid_field", "metadata.extra"),
        ({"extra": []}, "invalid_field", "metadata.extra"),
        ({"note": "x"}, "unknown_field", "metadata.note"),
        ({"timestamp": 1}, "unknown_field", "metadata.timestamp"),
        ({"correlation_id": new_id()}, "unknown_field", "metadata.correlation_id"),
    ],
)
async def test_metadata_is_held_to_its_table(
    client: httpx.AsyncClient, metadata: dict[str, object], code: str, path: str
) -> None:
    body = {"data": {}, "metadata": {"actor": ACTOR, **metadata}}
    refused(await client.post("/order/global/was_noted", json=body), 422, code, path)
    assert await length_of(client, "global") == 0


async def test_system_actors_are_not_for_clients(client: httpx.AsyncClient) -> None:
    for actor_id in ("event_scheduler", "saga_coordinator", ACTOR_ID):
        for actor_type in ("system", "system_scheduler", "system_"):
            response = await append(
                client, "order", "global", "was_noted", actor={"type": actor_type, "id": actor_id}
            )
            refused(response, 422, "unknown_actor_type", "metadata.actor.type")
    response = await append(
        client, "order", "global", "was_noted", actor={"type": "user", "id": "event_scheduler"}
    )
    refused(response, 422, "invalid_identifier", "metadata.actor.id")


@pytest.mark.parametrize(
    ("body", "code", "path"),
    [
        ({"metadata": {"actor": ACTOR}}, "missing_field", "data"),
        ({"data": {}}, "missing_field", "metadata"),
        ({}, "missing_field", "data"),
        ({"data": {}, "metadata": {}}, "missing_field", "metadata.actor"),
        ({"data": {}, "metadata": []}, "invalid_field", "metadata"),
        ({"data": {}, "metadata": None}, "invalid_field", "metadata"),
        ({**envelope(), "more": 1}, "unknown_field", "more"),
        ({**envelope(), "type": "was_placed"}, "unknown_field", "type"),
        ([], "invalid_field", None),
        ("text", "invalid_field", None),
        (None, "invalid_field", None),
    ],
)
async def test_the_body_has_data_and_metadata_and_no_more(
    client: httpx.AsyncClient, body: object, code: str, path: str | None
) -> None:
    sent = json.dumps(body).encode()
    refused(await client.post("/order/global/was_noted", content=sent, headers=JSON), 422, code, path)


@pytest.mark.parametrize(
    ("data", "path"),
    [
        ({"total": "5"}, "data.total"),
        ({"total": -1}, "data.total"),
        ({"customer": {"email": "nobody"}}, "data.customer.email"),
        ([], "data"),
        ("x", "data"),
    ],
)
async def test_data_that_the_schema_refuses_names_its_place(
    client: httpx.AsyncClient, data: object, path: str
) -> None:
    refused(await append(client, "order", "global", "was_placed", data), 422, "schema_violation", path)


async def test_a_number_of_any_length_is_refused_by_the_schema(client: httpx.AsyncClient) -> None:
    sent = b'{"data": {"total": -%b}, "metadata": {"actor": %b}}' % (b"9" * 4_301, json.dumps(ACTOR).encode())
    response = await client.post("/order/global/was_placed", content=sent, headers=JSON)
    refused(response, 422, "schema_violation", "data.total")


async def test_reserved_event_types_are_refused_before_the_spec_is_looked_at(
    client: httpx.AsyncClient,
) -> None:
    for path in (
        "/order/global/_was_tombstoned",
        "/order/global/_",
        "/nope/global/_x",
        "/order/nope/_x",
        "/order/global/%5Fx",
    ):
        refused(await client.post(path, json=envelope()), 422, "reserved_event_type", "event_type")


async def test_what_the_spec_does_not_declare_is_unknown(client: httpx.AsyncClient) -> None:
    for aggregate_type in ("nope", "Order", "ORDER", "order%20", "ord%65r%00", "%ff", "o%72der."):
        response = await append(client, aggregate_type, "global", "was_noted")
        refused(response, 404, "unknown_aggregate_type", "type")
    for event_type in ("nope", "Was_noted", "was_opened", "was_noted%20", "%ff", "was_noted%0A", "state"):
        response = await append(client, "order", "global", event_type)
        refused(response, 404, "unknown_event_type", "event_type")
    assert (await append(client, "ord%65r", "global", "was_not%65d")).status_code == 201


async def test_the_correlation_id_is_the_clients_or_minted(client: httpx.AsyncClient) -> None:
    mine = new_id()
    response = await append(client, "order", "global", "was_noted", None, {"x-correlation-id": mine})
    assert response.headers["x-correlation-id"] == mine
    assert (await events_of(client, "order", "global"))[-1]["metadata"]["correlation_id"] == mine
    for other in (
        "nonsense",
        mine.upper(),
        mine.replace("-", ""),
        f"{{{mine}}}",
        f"urn:uuid:{mine}",
        mine + "0",
    ):
        response = await append(client, "order", "global", "was_noted", None, {"x-correlation-id": other})
        minted = response.headers["x-correlation-id"]
        assert UUID_V7.fullmatch(minted)
        assert other not in minted
        assert (await events_of(client, "order", "global"))[-1]["metadata"]["correlation_id"] == minted


async def test_a_refusal_carries_the_correlation_id_too(client: httpx.AsyncClient) -> None:
    mine = {"x-correlation-id": new_id()}
    for response in (
        await append(client, "order", "global", "was_noted", None, mine, previous_length=9),
        await append(client, "order", "global", "was_placed", 5, mine),
        await append(client, "nope", "global", "was_noted", None, mine),
    ):
        assert 400 <= response.status_code < 500
        assert response.headers["x-correlation-id"] == mine["x-correlation-id"]


async def test_every_refusal_of_an_append_carries_the_correlation_id(
    client: httpx.AsyncClient, stranger: httpx.AsyncClient, reader: httpx.AsyncClient
) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(11):
            yield b" " * 100_000

    url, mine = "/order/global/was_noted", {"x-correlation-id": new_id()}
    for response, status in (
        (await stranger.post(url, json=envelope(), headers=mine), 401),
        (await stranger.post("/_/bulk", content=b"", headers={**NDJSON, **mine}), 401),
        (await reader.post(url, json=envelope(), headers=mine), 403),
        (await client.post("/order/global/a/b/c", json=envelope(), headers=mine), 404),
        (await client.post("/order/global/events", json=envelope(), headers=mine), 405),
        (await client.post(url, content=endless(), headers={**JSON, **mine}), 413),
        (await client.post(url, content=b"", headers={"content-type": "text/plain", **mine}), 415),
        (await client.post("/_/bulk", content=b"", headers={**JSON, **mine}), 415),
        (await client.post(url, json=envelope(), headers={**mine, "if-match": "x"}), 422),
        (await client.post("/order/global", json={}, headers={**mine, "idempotency-key": "a b"}), 422),
        (await client.post("/order", json={}, headers={**mine, "if-none-match": "x"}), 422),
        (await client.post("/_/append", json={}, headers={**mine, "idempotency-key": "a b"}), 422),
    ):
        assert response.status_code == status
        assert response.headers.get_list("x-correlation-id") == [mine["x-correlation-id"]], status
    assert UUID_V7.fullmatch((await stranger.post(url, json=envelope())).headers["x-correlation-id"])


async def test_a_correlation_id_may_be_any_version_of_uuid(client: httpx.AsyncClient) -> None:
    for mine in (new_event_id(), "00000000-0000-1000-8000-000000000000"):
        response = await append(client, "order", "global", "was_noted", None, {"x-correlation-id": mine})
        assert response.headers["x-correlation-id"] == mine


async def test_concurrent_writers_of_a_singleton_are_all_accepted_in_one_order(
    client: httpx.AsyncClient,
) -> None:
    writes = [append(client, "config", "global", "was_changed", {"n": n}) for n in range(60)]
    answers = [response.json() for response in await asyncio.gather(*writes)]
    assert sorted(answer["length"] for answer in answers) == list(range(1, 61))
    by_version = {answer["length"]: answer["event_id"] for answer in answers}
    events = await events_of(client, "config", "global")
    assert [event["id"] for event in events] == [by_version[version] for version in range(1, 61)]


async def test_a_201_is_in_postgres_as_other_programs_read_it(
    client: httpx.AsyncClient, outbox: asyncpg.Pool, tenant: Account
) -> None:
    key = new_id()
    data = b'{"b": 1.50, "a":"\\u00e9"}'
    body = b'{"data":%b,"metadata":{"actor":{"type":"user","id":"%b"},"extra":{"n": 1}}}' % (
        data,
        ACTOR_ID.encode(),
    )
    response = await client.post(f"/order/{key}/was_noted", content=body, headers=JSON)
    row = await outbox.fetchrow("SELECT * FROM outbox WHERE id = $1", UUID(response.json()["event_id"]))
    assert (str(row["tenant"]), row["aggregate_type"], row["aggregate_id"]) == (tenant.id, "order", key)
    assert (row["version"], row["type"], row["payload"], row["extra"]) == (1, "was_noted", data, b'{"n": 1}')
    assert (row["actor_type"], row["actor_id"], row["target_type"], row["target_id"]) == (
        "user",
        ACTOR_ID,
        None,
        None,
    )
    assert str(row["correlation_id"]) == response.headers["x-correlation-id"]
    assert (row["causation_id"], row["spec_rev"]) == (None, 1)
    assert {"p", "seq", "append_id", "digest", "recorded_at"} <= set(dict(row))


async def test_what_one_gateway_acknowledged_every_gateway_shows(
    client: httpx.AsyncClient, second_gateway: Served
) -> None:
    key = new_id()
    for length in range(1, 20):
        await appended(client, "order", key, "was_placed", {"n": length})
        other = f"{second_gateway.url}/order/{key}"
        assert (await client.get(f"{other}/length")).json()["length"] == length
        assert (await client.get(other)).json()["data"] == {"n": length}
        assert (await client.get(f"{other}/events/{length}")).status_code == 200


@pytest.mark.parametrize(
    "path", ["/order/{id}/was_noted", "/order/{id}", "/_/import?type=order&event=was_noted"]
)
async def test_a_body_that_comes_slowly_is_judged_by_the_spec_of_when_it_is_whole(
    gateway: Served, outbox: asyncpg.Pool, path: str
) -> None:
    tenant, key = await open_account(outbox), new_id()
    spec = deepcopy(SPEC)
    spec["aggregate_types"]["order"]["events"]["was_noted"]["schema"] = {"type": "integer"}
    body = json.dumps({"data": {"a": 1}, "metadata": {"actor": ACTOR}}).encode()
    kind = b"application/json"
    if path == "/order/{id}":
        body = json.dumps(batch(("was_noted", {"a": 1}))).encode()
    elif "import" in path:
        body, kind = b'{"a":1}', b"application/x-ndjson"
    sent = request("POST", path.replace("{id}", key), tenant.admin, body, content_type=kind)
    async with new_client(gateway.url, tenant.admin) as client, connected(gateway.port) as slow:
        assert (await client.get("/order/global")).status_code == 200  # the key is known
        await slow.send(sent[:-2])
        assert (await client.put("/_/spec", json=spec)).status_code == 200
        await slow.send(sent[-2:])
        answer = await slow.answer(b"POST")
        assert answer is not None
        assert b"schema_violation" in answer.body
        assert (await client.get(f"/order/{key}/length")).json()["length"] == 0
