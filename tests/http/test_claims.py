"""Unique values: claimed in the commit, exactly one aggregate's at a time."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import httpx
import pytest

from tests.http.conftest import Served
from tests.support.accounts import open_account
from tests.support.calls import (
    ACTOR,
    append,
    appended,
    batch,
    bulk,
    bulk_line,
    envelope,
    length_of,
    new_client,
    new_id,
    refused,
)

SPEC: dict[str, Any] = {
    "aggregate_types": {
        "order": {
            "events": {
                "was_signed_up": {
                    "schema": {},
                    "claims": {"email": {"value": "$.data.email", "fold": "case"}},
                },
                "was_listed": {
                    "schema": {},
                    "claims": {"sku": {"value": "$.data.sku", "scope": "$.data.shop_id"}},
                },
                "was_closed": {"schema": {}, "releases": ["email", "sku"]},
                "was_noted": {"schema": {}},
            }
        },
        "user": {
            "events": {"was_made": {"schema": {}, "claims": {"email": {"value": "$.data.email"}}}},
        },
    },
    "agent_types": ["user"],
}


@pytest.fixture
async def client(gateway: Served, outbox: asyncpg.Pool) -> Any:
    account = await open_account(outbox, SPEC)
    async with new_client(gateway.url, account.admin) as client:
        yield client


async def signed_up(client: httpx.AsyncClient, key: str, email: Any, **more: Any) -> httpx.Response:
    return await append(client, "order", key, "was_signed_up", {"email": email}, **more)


def taken(response: httpx.Response, holder: str, path: str = "data.email") -> None:
    told = refused(response, 409, "not_unique", path, ["holder"])
    assert told["holder"] == {"aggregate_type": "order", "key": holder}


async def test_a_narrowed_key_hears_of_a_holder_that_it_may_read(
    client: httpx.AsyncClient, gateway: Served
) -> None:
    one, other = new_id(), new_id()
    assert (await signed_up(client, one, "a@b.c")).status_code == 201
    for only in ([f"order/{other}"], ["order.was_signed_up"], ["order"]):
        made = (await client.post("/_/keys", json={"scope": "write", "only": only})).json()
        async with new_client(gateway.url, made["key"]) as narrow:
            response = await signed_up(narrow, other, "a@b.c")
            if only == ["order"]:
                taken(response, one)
            else:
                assert one not in refused(response, 409, "not_unique", "data.email")["error"]


async def test_a_value_is_one_aggregates_until_it_takes_another_or_releases_it(
    client: httpx.AsyncClient,
) -> None:
    ada, bob = new_id(), new_id()
    await appended(client, "order", ada, "was_signed_up", {"email": "ada@x.y"})
    taken(await signed_up(client, bob, "ada@x.y"), ada)
    taken(await signed_up(client, bob, "ADA@X.Y"), ada)
    assert await length_of(client, bob) == 0
    assert (await signed_up(client, ada, "Ada@x.y")).status_code == 201
    assert (await signed_up(client, ada, "new@x.y")).status_code == 201
    assert (await signed_up(client, bob, "ada@x.y")).status_code == 201
    taken(await signed_up(client, ada, "ada@x.y"), bob)
    await appended(client, "order", bob, "was_closed")
    assert (await signed_up(client, ada, "ada@x.y")).status_code == 201
    assert (await signed_up(client, new_id(), None)).status_code == 201
    assert (await signed_up(client, new_id(), None)).status_code == 201


async def test_a_name_belongs_to_its_aggregate_type_and_a_value_to_its_scope(
    client: httpx.AsyncClient,
) -> None:
    ada, bob = new_id(), new_id()
    await appended(client, "order", ada, "was_signed_up", {"email": "ada@x.y"})
    await appended(client, "user", bob, "was_made", {"email": "ada@x.y"})
    await appended(client, "user", new_id(), "was_made", {"email": "ADA@x.y"})
    await appended(client, "order", ada, "was_listed", {"sku": "a", "shop_id": 1})
    await appended(client, "order", ada, "was_listed", {"sku": "a", "shop_id": 2})
    taken(await append(client, "order", bob, "was_listed", {"sku": "a", "shop_id": 2}), ada, "data.sku")
    await appended(client, "order", bob, "was_listed", {"sku": "a", "shop_id": 3})
    await appended(client, "order", ada, "was_closed")
    await appended(client, "order", bob, "was_listed", {"sku": "a", "shop_id": 1})
    await appended(client, "order", bob, "was_listed", {"sku": "a", "shop_id": 2})
    refused(await signed_up(client, bob, ["a"]), 422, "invalid_claim", "data.email")


async def test_of_an_append_each_event_is_judged_after_the_one_before(client: httpx.AsyncClient) -> None:
    ada, bob = new_id(), new_id()
    await appended(client, "order", ada, "was_signed_up", {"email": "a"})
    await appended(client, "order", bob, "was_signed_up", {"email": "b"})

    def event(key: str, name: str, email: str | None = None) -> dict[str, Any]:
        return {"aggregate_type": "order", "key": key, "type": name, "data": {"email": email}}

    async def all_of(*events: dict[str, Any]) -> httpx.Response:
        return await client.post("/_/append", json={"events": events, "metadata": {"actor": ACTOR}})

    taken(
        await all_of(event(ada, "was_signed_up", "b"), event(bob, "was_signed_up", "a")),
        bob, "events[0].data.email",
    )  # fmt: skip
    swapped = await all_of(
        event(ada, "was_closed"), event(bob, "was_signed_up", "a"), event(ada, "was_signed_up", "b")
    )
    assert swapped.status_code == 201, swapped.text
    taken(await signed_up(client, new_id(), "a"), bob)
    taken(await signed_up(client, new_id(), "b"), ada)
    both = batch(("was_signed_up", {"email": "c"}), ("was_signed_up", {"email": "a"}))
    taken(await client.post(f"/order/{ada}", json=both), bob, "events[1].data.email")
    assert (await signed_up(client, new_id(), "c")).status_code == 201


async def test_an_aggregate_that_the_refused_append_would_have_created_is_not_told_as_the_holder(
    client: httpx.AsyncClient,
) -> None:
    ada, data = new_id(), {"email": "a"}
    await appended(client, "order", ada, "was_noted")
    new = {"aggregate_type": "order", "type": "was_signed_up", "data": data}
    named, there = new | {"key": new_id()}, new | {"key": ada}
    for first, holder in (
        (new, None),
        (named | {"previous_length": 0}, None),
        (named, named),
        (there, there),
    ):
        body = {"events": [first, new], "metadata": {"actor": ACTOR}}
        for response in (await client.post("/_/append", json=body), await bulk(client, body)):
            told = response[0] if isinstance(response, list) else response.json()
            assert (told["code"], told["path"]) == ("not_unique", "events[1].data.email")
            if holder is None:
                assert "holder" not in told
                assert told["error"] == "This value is claimed by another new order of the same append."
            else:
                assert told["holder"] == {"aggregate_type": "order", "key": holder["key"]}


async def test_a_repeat_gets_the_original_receipt(client: httpx.AsyncClient) -> None:
    ada, headers = new_id(), {"idempotency-key": "k"}
    first = await signed_up(client, ada, "a", headers=headers)
    await appended(client, "order", ada, "was_closed")
    await appended(client, "order", new_id(), "was_signed_up", {"email": "a"})
    again = await signed_up(client, ada, "a", headers=headers)
    assert (again.status_code, again.json()) == (201, first.json())
    assert again.headers["idempotency-replayed"] == "true"


async def test_the_length_is_judged_before_the_values(client: httpx.AsyncClient) -> None:
    ada = new_id()
    await appended(client, "order", ada, "was_signed_up", {"email": "a"})
    response = await signed_up(client, new_id(), "a", previous_length=1)
    assert (response.status_code, response.json()["code"]) == (409, "version_conflict")


async def test_lines_of_one_request_are_refused_one_by_one(client: httpx.AsyncClient) -> None:
    keys = [new_id() for _ in range(40)]
    lines = [bulk_line(key, {"email": f"e{n % 20}"}, "was_signed_up") for n, key in enumerate(keys)]
    answers = await bulk(client, *lines)
    by_email: dict[str, list[int]] = {}
    for line, answer in zip(lines, answers, strict=True):
        by_email.setdefault(line["data"]["email"], []).append(answer["status"])
    assert all(sorted(statuses) == [201, 409] for statuses in by_email.values()), by_email
    notes = [bulk_line(key, {}, "was_noted") for key in keys]
    assert {answer["status"] for answer in await bulk(client, *notes)} == {201}


async def test_of_many_who_race_for_a_value_through_two_gateways_one_gets_it(
    client: httpx.AsyncClient, second_gateway: Served, outbox: asyncpg.Pool
) -> None:
    async with new_client(second_gateway.url, None) as other:
        other.headers["authorization"] = client.headers["authorization"]
        for turn in range(8):
            keys = [new_id() for _ in range(32)]
            answers = await asyncio.gather(
                *(signed_up((client, other)[n % 2], key, f"race{turn}") for n, key in enumerate(keys))
            )
            done = [key for key, answer in zip(keys, answers, strict=True) if answer.status_code == 201]
            assert len(done) == 1
            for key, answer in zip(keys, answers, strict=True):
                if key != done[0]:
                    taken(answer, done[0])


async def test_values_change_hands_as_fast_as_they_can(
    client: httpx.AsyncClient, second_gateway: Served
) -> None:
    """An aggregate whose claim got a 201 has it until its release is answered: two never have it at once."""
    held: set[str] = set()
    wins = 0
    async with new_client(second_gateway.url, None) as other:
        other.headers["authorization"] = client.headers["authorization"]

        async def take_turns(of: httpx.AsyncClient) -> None:
            nonlocal wins
            key = new_id()
            for _ in range(12):
                if (await signed_up(of, key, "one")).status_code != 201:
                    continue
                assert not held
                held.add(key)
                wins += 1
                await asyncio.sleep(0)
                held.discard(key)
                assert (await of.post(f"/order/{key}/was_closed", json=envelope())).status_code == 201

        await asyncio.gather(*(take_turns((client, other)[n % 2]) for n in range(6)))
    assert wins >= 6
