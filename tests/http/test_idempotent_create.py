"""`idempotent_create`: the append that creates an aggregate, sent again, is the original receipt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import httpx
import pytest

from tests.support.accounts import SPEC, open_account
from tests.support.calls import append, batch, bulk, bulk_line, length_of, new_client, new_id, refused
from tests.support.serving import Served

DECLARED = {
    **SPEC,
    "aggregate_types": {
        **SPEC["aggregate_types"],
        "order": {**SPEC["aggregate_types"]["order"], "idempotent_create": True},
    },
}


@pytest.fixture
async def client(gateway: Served, outbox: asyncpg.Pool) -> AsyncIterator[httpx.AsyncClient]:
    tenant = await open_account(outbox, DECLARED)
    async with new_client(gateway.url, tenant.write) as client:
        yield client


async def test_the_creating_append_sent_again_is_the_original_receipt_whatever_came_after(
    client: httpx.AsyncClient,
) -> None:
    key = new_id()
    first = await append(client, "order", key, "was_placed", {"total": 1})
    assert (first.status_code, "idempotency-replayed" in first.headers) == (201, False)
    await append(client, "order", key, "was_noted", {"n": 1})
    again = await append(client, "order", key.upper(), "was_placed", {"total": 1})
    assert (again.status_code, again.headers["idempotency-replayed"]) == (201, "true")
    assert again.json() == first.json()
    assert await length_of(client, key) == 2


async def test_other_bodies_and_later_appends_are_appends_like_any_other(client: httpx.AsyncClient) -> None:
    key = new_id()
    await append(client, "order", key, "was_placed", {"total": 1})
    for total in (2, 2, 2):  # not the one that created it
        await append(client, "order", key, "was_placed", {"total": total})
    assert await length_of(client, key) == 4
    await append(client, "order", key, "was_placed", {"total": 1}, {"idempotency-key": new_id()})
    assert await length_of(client, key) == 5
    asked = await append(client, "order", key, "was_placed", {"total": 9}, previous_length=0)
    refused(asked, 409, "version_conflict", more=("length", "missed", "missed_next"))


async def test_many_at_once_create_one_event(client: httpx.AsyncClient) -> None:
    key = new_id()
    told = await asyncio.gather(
        *[append(client, "order", key, "was_placed", {"total": 1}) for _ in range(20)]
    )
    assert {each.status_code for each in told} == {201}
    assert len({each.json()["event_id"] for each in told}) == 1
    assert await length_of(client, key) == 1


async def test_batches_and_bulk_lines_are_known_again_too(client: httpx.AsyncClient) -> None:
    key, other = new_id(), new_id()
    body = batch(("was_placed", {"total": 1}), ("was_noted", None))
    first, again = [await client.post(f"/order/{key}", json=body) for _ in range(2)]
    assert (first.json(), again.headers["idempotency-replayed"]) == (again.json(), "true")
    lines = [bulk_line(other, {"n": 1}), bulk_line(other, {"n": 2}), bulk_line(other, {"n": 1})]
    told = await bulk(client, *lines, lines[1])
    assert [line["status"] for line in told] == [201] * 4
    assert [line.get("replayed", False) for line in told] == [False, False, True, False]
    assert [line["length"] for line in told] == [1, 2, 1, 3]
