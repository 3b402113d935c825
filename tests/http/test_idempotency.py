"""A request that is repeated is written once: by its Idempotency-Key, or by ids that its client chose."""

from __future__ import annotations

import asyncio
import copy
import json
from typing import Any

import httpx
import pytest

from tests.support.accounts import SPEC, Account
from tests.support.calls import (
    ACTOR,
    JSON,
    append,
    appended,
    batch,
    bulk,
    bulk_line,
    envelope,
    events_of,
    length_of,
    new_client,
    new_event_id,
    new_id,
    noted,
    refused,
)
from tests.support.serving import Served

KEYED = {"idempotency-key": "the-key"}


def is_replay(response: httpx.Response, of: httpx.Response) -> bool:
    """The same answer once more, marked as such."""
    assert "idempotency-replayed" not in of.headers
    return (
        response.status_code == of.status_code == 201
        and response.headers.get("idempotency-replayed") == "true"
        and response.content == of.content
        and all(response.headers[name] == of.headers[name] for name in ("etag", "location", "sluice-api"))
    )


async def test_the_same_request_gets_the_original_receipt(client: httpx.AsyncClient) -> None:
    key = new_id()
    first = await append(client, "order", key, "was_noted", 1, KEYED)
    await appended(client, "order", key, "was_noted", 2)
    for _ in range(2):
        assert is_replay(await append(client, "order", key, "was_noted", 1, KEYED), first)
    assert await length_of(client, key) == 2


async def test_both_spellings_of_the_header_are_one_key(client: httpx.AsyncClient) -> None:
    key = new_id()
    first = await append(client, "order", key, "was_noted", 1, KEYED)
    again = await append(client, "order", key, "was_noted", 1, {"x-idempotency-key": "the-key"})
    assert is_replay(again, first)
    both = {**KEYED, "x-idempotency-key": "the-key"}
    assert is_replay(await append(client, "order", key, "was_noted", 1, both), first)
    different = {**KEYED, "x-idempotency-key": "another"}
    response = await append(client, "order", key, "was_noted", 1, different)
    refused(response, 422, "invalid_field", "Idempotency-Key")


async def test_the_path_counts_in_canonical_form(client: httpx.AsyncClient) -> None:
    key = new_id()
    first = await append(client, "order", key, "was_noted", 1, KEYED)
    for spelling in (key.upper(), key.replace("-", "%2D"), f"%{ord(key[0]):x}{key[1:]}"):
        assert is_replay(await append(client, "order", spelling, "was_noted", 1, KEYED), first)


async def test_other_headers_do_not_count(client: httpx.AsyncClient) -> None:
    key = new_id()
    sent = json.dumps(envelope(1)).encode()
    url = f"/order/{key}/was_noted"
    first = await client.post(url, content=sent, headers={**JSON, **KEYED})
    others = {
        "content-type": "application/json; charset=utf-8",
        "x-correlation-id": new_id(),
        "prefer": "return=minimal",
        "user-agent": "another",
        "accept": "*/*",
    }
    again = await client.post(url, content=sent, headers={**KEYED, **others})
    assert is_replay(again, first)


async def test_another_request_under_the_same_key_is_refused(client: httpx.AsyncClient) -> None:
    key = new_id()
    await appended(client, "order", key, "was_noted", {"n": 1}, KEYED)
    others = [
        append(client, "order", new_id(), "was_noted", {"n": 1}, KEYED),
        append(client, "order", key, "was_named", {"n": 1}, KEYED),
        append(client, "ticket", key, "was_opened", {"n": 1}, KEYED),
        append(client, "order", key, "was_noted", {"n": 2}, KEYED),
        append(client, "order", key, "was_noted", {"n": 1}, KEYED, previous_length=0),
        append(client, "order", key, "was_noted", {"n": 1}, {**KEYED, "if-match": '"0"'}),
        append(client, "order", key, "was_noted", {"n": 1}, {**KEYED, "if-none-match": "*"}),
        append(client, "order", key, "was_noted", {"n": 1}, KEYED, event_id=new_event_id()),
        client.post(f"/order/{key}", json=batch(("was_noted", {"n": 1})), headers=KEYED),
        client.post("/order", json=batch(("was_noted", {"n": 1})), headers=KEYED),
        client.post(
            f"/order/{key}/was_noted",
            content=json.dumps(envelope({"n": 1}), indent=1).encode(),
            headers={**JSON, **KEYED},
        ),
    ]
    for response in await asyncio.gather(*others):
        refused(response, 422, "idempotency_mismatch")
    assert await length_of(client, key) == 1


async def test_a_mismatch_tells_what_is_taken_and_the_receipt_of_the_original(
    client: httpx.AsyncClient,
) -> None:
    key, event_id = new_id(), new_event_id()
    first = await append(client, "order", key, "was_noted", 1, {"idempotency-key": "one"})
    chosen = await append(client, "order", key, "was_noted", 2, event_id=event_id)
    several = {"idempotency-key": "several"}
    both = await client.post(f"/order/{key}", json=batch(("was_noted", 3), ("was_noted", 4)), headers=several)
    minted = first.json()["event_id"]
    one: dict[str, str] = {"idempotency-key": "one"}
    for headers, more, by, original in (
        (one, {"previous_length": 4}, "idempotency_key", first),
        (several, {}, "idempotency_key", both),
        ({}, {"event_id": event_id}, "event_id", chosen),
        ({}, {"event_id": minted}, "event_id", first),
        ({"idempotency-key": "new"}, {"event_id": event_id}, "event_id", chosen),
        (one, {"event_id": event_id}, "idempotency_key", first),
    ):
        other = await append(client, "order", key, "was_noted", 9, headers, **more)
        told = refused(other, 422, "idempotency_mismatch")
        assert (told["by"], told["receipt"]) == (by, original.json())
    assert await length_of(client, key) == 4


async def test_a_bulk_line_tells_the_receipt_of_the_original_too(client: httpx.AsyncClient) -> None:
    key = new_id()
    first, other = await bulk(
        client, bulk_line(key, 1, idempotency_key="line"), bulk_line(key, 2, idempotency_key="line")
    )
    assert (other["code"], other["by"]) == ("idempotency_mismatch", "idempotency_key")
    assert other["receipt"] == {name: first[name] for name in other["receipt"]}


async def test_the_key_is_checked_before_the_version(client: httpx.AsyncClient) -> None:
    key = new_id()
    first = await append(client, "order", key, "was_noted", 1, KEYED, previous_length=0)
    await noted(client, key, 3)
    assert is_replay(await append(client, "order", key, "was_noted", 1, KEYED, previous_length=0), first)
    response = await append(client, "order", key, "was_noted", 2, KEYED, previous_length=0)
    refused(response, 422, "idempotency_mismatch")


async def test_if_match_is_a_part_of_the_request(client: httpx.AsyncClient) -> None:
    key = new_id()
    first = await append(client, "order", key, "was_noted", 1, {**KEYED, "if-match": '"0"'})
    for form in ('"0"', '"0.r1"'):
        again = await append(client, "order", key, "was_noted", 1, {**KEYED, "if-match": form})
        assert is_replay(again, first)
    for headers in ({}, {"if-match": '"1"'}, {"if-match": "*"}):
        response = await append(client, "order", key, "was_noted", 1, {**KEYED, **headers})
        refused(response, 422, "idempotency_mismatch")


async def test_a_header_that_repeats_the_body_makes_no_other_request(client: httpx.AsyncClient) -> None:
    key = new_id()
    none_yet: list[dict[str, str]] = [{"if-match": '"0"'}, {"if-none-match": "*"}, {}]
    first = await append(client, "order", key, "was_noted", 1, KEYED, previous_length=0)
    for header in none_yet:
        again = await append(client, "order", key, "was_noted", 1, {**KEYED, **header}, previous_length=0)
        assert is_replay(again, first)
    body, another = batch(("was_noted", 1)), {"idempotency-key": "another"}
    first = await client.post("/order", json=body, headers=another)
    for header in none_yet:
        assert is_replay(await client.post("/order", json=body, headers={**another, **header}), first)


async def test_a_refused_request_does_not_burn_its_key(client: httpx.AsyncClient) -> None:
    key = new_id()
    refusals = [
        (await append(client, "order", key, "was_placed", 5, KEYED), 422),
        (await append(client, "nope", key, "was_placed", {}, KEYED), 404),
        (await append(client, "order", key, "was_placed", {}, KEYED, previous_length=4), 409),
        (await append(client, "order", key, "was_placed", {}, KEYED, note=1), 422),
        (await client.post(f"/order/{key}/was_noted", content=b"{", headers={**JSON, **KEYED}), 400),
    ]
    assert [response.status_code for response, _ in refusals] == [status for _, status in refusals]
    first = await append(client, "order", key, "was_placed", {"total": 1}, KEYED)
    assert "idempotency-replayed" not in first.headers
    assert is_replay(await append(client, "order", key, "was_placed", {"total": 1}, KEYED), first)


async def test_a_conflict_is_decided_again_at_each_try(client: httpx.AsyncClient) -> None:
    key = new_id()
    response = await append(client, "order", key, "was_noted", 1, KEYED, previous_length=1)
    assert response.status_code == 409
    await noted(client, key, 1)
    first = await append(client, "order", key, "was_noted", 1, KEYED, previous_length=1)
    assert first.status_code == 201
    assert is_replay(await append(client, "order", key, "was_noted", 1, KEYED, previous_length=1), first)


@pytest.mark.parametrize("value", ["x" * 255, "!", "~", 'a"b,c;d', "a0000000-0000-4000-a000-000000000001"])
async def test_a_key_is_1_to_255_visible_characters(client: httpx.AsyncClient, value: str) -> None:
    first = await append(client, "order", "global", "was_noted", 1, {"idempotency-key": value})
    assert is_replay(
        await append(client, "order", "global", "was_noted", 1, {"idempotency-key": value}), first
    )


@pytest.mark.parametrize("value", ["", "x" * 256, "a b", "a\tb", "é"])
async def test_any_other_key_is_refused(client: httpx.AsyncClient, value: str) -> None:
    for name, path in (("idempotency-key", "Idempotency-Key"), ("x-idempotency-key", "X-Idempotency-Key")):
        headers = [(name.encode(), value.encode("latin-1"))]
        response = await client.post("/order/global/was_noted", json=envelope(), headers=headers)
        refused(response, 422, "invalid_field", path)


async def test_keys_are_told_apart_by_case(client: httpx.AsyncClient) -> None:
    for value in ("key", "KEY", "Key"):
        response = await append(client, "order", "global", "was_noted", 1, {"idempotency-key": value})
        assert "idempotency-replayed" not in response.headers
    assert await length_of(client, "global") == 3


async def test_concurrent_duplicates_are_written_once(
    client: httpx.AsyncClient, second_gateway: Served, tenant: Account
) -> None:
    key = new_id()
    async with new_client(second_gateway.url, tenant.write) as other:
        for n in range(5):
            headers = {"idempotency-key": f"key-{n}"}
            tries = [append(each, "order", key, "was_noted", n, headers) for each in (client, other) * 12]
            answers = await asyncio.gather(*tries)
            assert {answer.status_code for answer in answers} == {201}
            assert len({answer.content for answer in answers}) == 1
            fresh = [answer for answer in answers if "idempotency-replayed" not in answer.headers]
            assert len(fresh) == 1
    assert [event["data"] for event in await events_of(client, "order", key)] == list(range(5))


async def test_of_concurrent_requests_under_one_key_one_is_accepted(client: httpx.AsyncClient) -> None:
    key = new_id()
    tries = [append(client, "order", key, "was_noted", n, KEYED) for n in range(20)]
    answers = await asyncio.gather(*tries)
    assert sorted(answer.status_code for answer in answers) == [201] + [422] * 19
    for answer in answers:
        if answer.status_code == 422:
            refused(answer, 422, "idempotency_mismatch")
    assert await length_of(client, key) == 1


async def test_a_chosen_event_id_protects_without_the_header(client: httpx.AsyncClient) -> None:
    key, event_id = new_id(), new_event_id()
    first = await append(client, "order", key, "was_noted", {"n": 1}, event_id=event_id)
    assert is_replay(await append(client, "order", key, "was_noted", {"n": 1}, event_id=event_id), first)
    for other in (
        await append(client, "order", key, "was_noted", 2, event_id=event_id),
        await append(client, "order", new_id(), "was_noted", {"n": 1}, event_id=event_id),
        await append(client, "order", key, "was_named", {"n": 1}, event_id=event_id),
        await append(client, "order", key, "was_noted", {"n": 1}, KEYED, event_id=event_id),
        await append(client, "order", key, "was_noted", {"n": 1}, {"if-match": '"1"'}, event_id=event_id),
    ):
        refused(other, 422, "idempotency_mismatch")
    assert await length_of(client, key) == 1


async def test_an_event_id_that_the_gateway_minted_is_taken(client: httpx.AsyncClient) -> None:
    key = new_id()
    minted = (await appended(client, "order", key, "was_noted", 1))["event_id"]
    response = await append(client, "order", key, "was_noted", 1, event_id=minted)
    refused(response, 422, "idempotency_mismatch")


async def test_batches_and_minted_aggregates_are_replayed_whole(client: httpx.AsyncClient) -> None:
    key, ids = new_id(), [new_event_id(), new_event_id()]
    chosen = [{"type": "was_noted", "data": n, "event_id": each} for n, each in enumerate(ids)]
    for url, body, headers in (
        (f"/order/{key}", batch(("was_noted", 1), ("was_noted", 2)), KEYED),
        ("/order", batch(("was_noted", 1)), {"idempotency-key": "minting"}),
        ("/ticket", batch(("was_opened", {})), {"idempotency-key": "humane"}),
        (f"/order/{key}", batch(*chosen), {}),
    ):
        first = await client.post(url, json=body, headers=headers)
        for _ in range(2):
            assert is_replay(await client.post(url, json=body, headers=headers), first), url
    assert await length_of(client, key) == 4


async def test_chosen_ids_protect_only_all_together(client: httpx.AsyncClient) -> None:
    key, ids = new_id(), [new_event_id() for _ in range(3)]
    two = [{"type": "was_noted", "data": n, "event_id": each} for n, each in enumerate(ids[:2])]
    await client.post(f"/order/{key}", json=batch(*two))
    three = [*two, {"type": "was_noted", "data": 2, "event_id": ids[2]}]
    for events in (three, two[:1], two[::-1]):
        refused(await client.post(f"/order/{key}", json=batch(*events)), 422, "idempotency_mismatch")
    assert await length_of(client, key) == 2


async def test_a_bulk_line_is_replayed_too(client: httpx.AsyncClient) -> None:
    key, event_id = new_id(), new_event_id()
    line = bulk_line(key, 1, idempotency_key="of-a-line")
    chosen = {**bulk_line(key, 2), "metadata": {"actor": ACTOR, "event_id": event_id}}
    first = await bulk(client, line, chosen)
    again = await bulk(client, line, chosen)
    assert again == [{**answer, "replayed": True} for answer in first]
    [other] = await bulk(client, bulk_line(key, 3, idempotency_key="of-a-line"))
    assert (other["status"], other["code"]) == (422, "idempotency_mismatch")
    assert await length_of(client, key) == 2


def without(spec: dict[str, Any], *path: str) -> dict[str, Any]:
    changed = copy.deepcopy(spec)
    place = changed
    for name in path[:-1]:
        place = place[name]
    if isinstance(place, list):
        place.remove(path[-1])
    else:
        del place[path[-1]]
    return changed


def stricter() -> dict[str, Any]:
    changed = copy.deepcopy(SPEC)
    changed["aggregate_types"]["order"]["events"]["was_noted"]["schema"] = {"type": "string"}
    return changed


CHANGES = {
    "schema_violation": stricter(),
    "unknown_event_type": without(SPEC, "aggregate_types", "order", "events", "was_noted"),
    "unknown_aggregate_type": without(SPEC, "aggregate_types", "order"),
    "unknown_actor_type": without(SPEC, "agent_types", "user"),
    "unknown_target_type": without(SPEC, "target_types", "order"),
    "invalid_identifier": without(SPEC, "singletons", "main_webhook"),
}


@pytest.mark.parametrize("code", CHANGES)
async def test_a_retry_is_answered_although_the_spec_would_refuse_it_by_now(
    client: httpx.AsyncClient, code: str
) -> None:
    target = {"type": "order", "id": "main_webhook"}
    url, sent = "/order/main_webhook/was_noted", envelope(1, target=target)
    several = batch(("was_noted", 1), ("was_noted", 2), target=target)
    chosen = envelope(1, target=target, event_id=new_event_id())
    line = {**bulk_line("main_webhook", 1, idempotency_key="l"), "metadata": sent["metadata"]}
    first = [
        await client.post(url, json=sent, headers=KEYED),
        await client.post("/order/main_webhook", json=several, headers={"idempotency-key": "several"}),
        await client.post(url, json=chosen),
    ]
    if code != "invalid_identifier":
        first.append(await client.post("/order", json=several, headers={"idempotency-key": "minting"}))
    first_line = await bulk(client, line)
    assert {response.status_code for response in first} == {201}

    deployed = await client.put("/_/spec?force=true", json=CHANGES[code])
    assert deployed.status_code == 200, deployed.text

    again = [
        await client.post(url, json=sent, headers=KEYED),
        await client.post("/order/main_webhook", json=several, headers={"idempotency-key": "several"}),
        await client.post(url, json=chosen),
        await client.post("/order", json=several, headers={"idempotency-key": "minting"}),
    ]
    for response, original in zip(again, first, strict=False):
        assert is_replay(response, original), response.text
    assert await bulk(client, line) == [{**first_line[0], "replayed": True}]

    fresh = await client.post(url, json=sent)
    assert fresh.json()["code"] == code
    other = await client.post(url, json={**sent, "data": 2}, headers=KEYED)
    assert other.json()["code"] == code
    [fresh_line] = await bulk(client, {**line, "idempotency_key": "another"})
    assert fresh_line["code"] == code
