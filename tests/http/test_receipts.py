"""A program that comes back from a crash asks what it did: GET /_/receipts."""

from __future__ import annotations

import uuid

import httpx
import pytest

from tests.support.calls import (
    append,
    appended,
    batch,
    bulk,
    bulk_line,
    envelope,
    new_event_id,
    new_id,
    refused,
)

KEYED = {"idempotency-key": "charge-42"}


async def receipt(client: httpx.AsyncClient, **query: str) -> dict[str, object]:
    response = await client.get("/_/receipts", params=query)
    assert response.status_code == 200, response.text
    found: dict[str, object] = response.json()
    return found


async def test_an_idempotency_key_finds_the_receipt_of_its_append(client: httpx.AsyncClient) -> None:
    key = new_id()
    done = (await append(client, "order", key, "was_noted", 1, KEYED)).json()
    await appended(client, "order", key, "was_noted", 2)
    found = await receipt(client, idempotency_key="charge-42")
    assert found == done
    position = found["position"]
    page = (await client.get("/_/feed", params={"after": position})).json()
    assert [event["data"] for event in page["events"]] == [2], (
        "the position is behind the append, and no further"
    )


@pytest.mark.parametrize("idempotency_key", [".", "..", "a+b&c=%41", '"5"'])
async def test_any_idempotency_key_can_be_asked_for(client: httpx.AsyncClient, idempotency_key: str) -> None:
    done = await append(client, "order", new_id(), "was_noted", 1, {"idempotency-key": idempotency_key})
    assert await receipt(client, idempotency_key=idempotency_key) == done.json()


async def test_an_event_id_finds_it_whether_the_client_chose_it_or_not(client: httpx.AsyncClient) -> None:
    key, chosen = new_id(), new_event_id()
    body = envelope(1, event_id=chosen)
    done = (await client.post(f"/order/{key}/was_noted", json=body)).json()
    minted = await appended(client, "order", key, "was_noted", 2)
    for event_id, expected in ((chosen, done), (minted["event_id"], minted)):
        for spelled in (event_id, event_id.upper()):
            assert await receipt(client, event_id=spelled) == expected


async def test_each_event_of_a_batch_finds_the_receipt_of_the_whole(client: httpx.AsyncClient) -> None:
    key = new_id()
    for headers in ({}, {"idempotency-key": "batch-7"}):
        sent = batch(("was_noted", 1), ("was_noted", 2), ("was_noted", 3))
        await appended(client, "order", key, "was_noted", 0)
        done = (await client.post(f"/order/{key}", json=sent, headers=headers)).json()
        await appended(client, "order", key, "was_noted", 4)
        for event_id in done["event_ids"]:
            assert await receipt(client, event_id=event_id) == done
    found = await receipt(client, idempotency_key="batch-7")
    assert found["event_ids"] == done["event_ids"]


async def test_every_receipt_has_the_position_behind_its_last_event(client: httpx.AsyncClient) -> None:
    key = new_id()
    sent = batch(("was_noted", 1), ("was_noted", 2))
    receipts = [
        await appended(client, "order", key, "was_noted", 0),
        (await client.post(f"/order/{key}", json=sent)).json(),
        (await client.post("/order", json=sent)).json(),
        *await bulk(client, bulk_line(key, 3), bulk_line(key, 4, idempotency_key="line")),
    ]
    receipts += await bulk(client, bulk_line(key, 4, idempotency_key="line"))
    fed = (await client.get("/_/feed")).json()["events"]
    positions = {event["id"]: event["position"] for event in fed}
    for each in receipts:
        last = each.get("event_id") or each["event_ids"][-1]
        assert each["position"] == positions[last]


async def test_another_tenants_receipts_are_not_there(
    client: httpx.AsyncClient, neighbour: httpx.AsyncClient
) -> None:
    done = (await append(client, "order", new_id(), "was_noted", 1, KEYED)).json()
    for query in ({"idempotency_key": "charge-42"}, {"event_id": done["event_id"]}):
        refused(await neighbour.get("/_/receipts", params=query), 404, "not_found")


async def test_what_never_committed_is_not_found(client: httpx.AsyncClient) -> None:
    refused(await client.get("/_/receipts?idempotency_key=never"), 404, "not_found")
    refused(await client.get(f"/_/receipts?event_id={new_event_id()}"), 404, "not_found")


@pytest.mark.parametrize(
    ("query", "code", "path"),
    [
        ("", "missing_field", "idempotency_key"),
        ("?idempotency_key=", "invalid_field", "idempotency_key"),
        ("?idempotency_key=a%20b", "invalid_field", "idempotency_key"),
        ("?idempotency_key=a&event_id=b", "invalid_field", "idempotency_key"),
        ("?event_id=nothing", "invalid_field", "event_id"),
        ("?event_id=a&event_id=b", "invalid_field", "event_id"),
    ],
)
async def test_a_query_names_one_append(client: httpx.AsyncClient, query: str, code: str, path: str) -> None:
    refused(await client.get(f"/_/receipts{query}"), 422, code, path)


async def test_a_key_of_scope_read_suffices(reader: httpx.AsyncClient, client: httpx.AsyncClient) -> None:
    await append(client, "order", new_id(), "was_noted", 1, {"idempotency-key": "read-by-another"})
    assert (await receipt(reader, idempotency_key="read-by-another"))["ok"] is True


async def test_an_event_id_that_is_derived_from_its_cause_is_a_uuid_of_version_5(
    client: httpx.AsyncClient, neighbour: httpx.AsyncClient
) -> None:
    key, cause = new_id(), "webhook 4711"
    derived = str(uuid.uuid5(uuid.NAMESPACE_URL, cause))
    body = envelope(1, event_id=derived)
    first = await client.post(f"/order/{key}/was_noted", json=body)
    assert (first.status_code, first.json()["event_id"]) == (201, derived)
    again = await client.post(f"/order/{key}/was_noted", json=body)
    assert (again.content, again.headers["idempotency-replayed"]) == (first.content, "true")
    assert (await client.get(f"/_/events/{derived}")).json()["event"]["id"] == derived
    found = await receipt(client, event_id=derived)
    assert found == first.json()
    other = await neighbour.post(f"/order/{key}/was_noted", json=body)
    assert (other.status_code, "idempotency-replayed" in other.headers) == (201, False), (
        "ids are a tenant's own"
    )


@pytest.mark.parametrize("version", [1, 4, 6, 8])
async def test_an_event_id_of_another_version_is_refused(client: httpx.AsyncClient, version: int) -> None:
    event_id = f"01900000-0000-{version}000-8000-000000000001"
    response = await client.post(f"/order/{new_id()}/was_noted", json=envelope(1, event_id=event_id))
    refused(response, 422, "invalid_field", "metadata.event_id")
