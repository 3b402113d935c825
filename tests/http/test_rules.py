"""Rules: what must hold of an aggregate's state before an event is appended to it, by every way in."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import asyncpg
import httpx
import pytest

from gateway.catalog.migrate import migrate
from gateway.config import Config
from tests.http.webhooks import SOURCES, open_hooks
from tests.support.accounts import SPEC, open_account
from tests.support.calls import (
    ACTOR,
    append,
    appended,
    batch,
    bulk,
    bulk_line,
    length_of,
    new_client,
    new_id,
    refused,
    until,
)
from tests.support.servers import Servers
from tests.support.serving import Served, serving

CONFLICT = ("length", "missed", "missed_next")
NEEDS = {"gte": ["@.available", "$.data.quantity"]}
RULED: dict[str, Any] = {
    "mint": "uuid",
    "events": {
        "was_stocked": {
            "schema": True,
            "handler": {"increment": {"target": "available", "value": "$.data.quantity"}},
        },
        "was_reserved": {
            "schema": {"type": "object", "properties": {"quantity": {"type": "integer"}}},
            "handler": {"decrement": {"target": "available", "value": "$.data.quantity"}},
            "rules": [
                {"require": {"not": {"exists": "@.closed"}}, "error": "{$.key} is closed by {@.closed}."},
                {"require": NEEDS, "error": "Only {@.available} are left."},
            ],
        },
        "was_closed": {"schema": True, "handler": {"set": {"target": "closed", "value": "$.data.by"}}},
        "was_opened": {
            "schema": True,
            "handler": {"set": {"target": "opened", "value": True}},
            "rules": [{"require": {"not": {"exists": "@.opened"}}, "error": "It is open already."}],
        },
    },
}


@pytest.fixture
async def shop(outbox: asyncpg.Pool, gateway: Served) -> AsyncIterator[httpx.AsyncClient]:
    account = await open_account(outbox)
    async with new_client(gateway.url, account.admin) as client:
        spec = {**SPEC, "aggregate_types": {**SPEC["aggregate_types"], "item": RULED}}
        deployed = await client.put("/_/spec", json=spec)
        assert deployed.status_code == 200, deployed.text
        yield client


async def stocked(client: httpx.AsyncClient, quantity: int) -> str:
    key = new_id()
    await appended(client, "item", key, "was_stocked", {"quantity": quantity})
    return key


async def test_the_first_rule_that_is_false_refuses_with_its_sentence(shop: httpx.AsyncClient) -> None:
    key = await stocked(shop, 3)
    assert (await appended(shop, "item", key, "was_reserved", {"quantity": 2}))["length"] == 2
    response = await append(shop, "item", key, "was_reserved", {"quantity": 2})
    refused(response, 422, "rule_violated", "rules[1]")
    assert response.json() == {
        "ok": False,
        "code": "rule_violated",
        "error": "Only 1 are left.",
        "path": "rules[1]",
        "length": 2,
    }
    await appended(shop, "item", key, "was_closed", {"by": "ada"})
    response = await append(shop, "item", key, "was_reserved", {"quantity": 2})
    refused(response, 422, "rule_violated", "rules[0]")
    assert (response.json()["error"], response.json()["length"]) == (f"{key} is closed by ada.", 3)
    assert (await shop.get(f"/item/{key}")).json()["data"] == {"available": 1, "closed": "ada"}


async def test_a_batch_is_judged_event_by_event_and_refused_whole(shop: httpx.AsyncClient) -> None:
    key = await stocked(shop, 1)
    one = ("was_reserved", {"quantity": 1})
    body = batch(("was_stocked", {"quantity": 1}), one, one, one)
    response = await shop.post(f"/item/{key}", json=body)
    refused(response, 422, "rule_violated", "events[3].rules[1]")
    assert response.json()["length"] == await length_of(shop, key, "item") == 1
    response = await shop.post(f"/item/{key}", json=batch(*body["events"][:3]))
    assert response.json()["length"] == 4


async def test_a_new_aggregate_has_an_empty_state(shop: httpx.AsyncClient) -> None:
    response = await shop.post("/item", json=batch(("was_reserved", {"quantity": 1})))
    refused(response, 422, "rule_violated", "events[0].rules[1]")
    assert (response.json()["error"], response.json()["length"]) == ("Only null are left.", 0)
    response = await shop.post("/item", json=batch(("was_opened", {}), ("was_opened", {})))
    refused(response, 422, "rule_violated", "events[1].rules[0]")
    assert (await shop.post("/item", json=batch(("was_opened", {})))).status_code == 201


async def test_lines_of_bulk_are_judged_one_by_one(shop: httpx.AsyncClient) -> None:
    key = await stocked(shop, 2)

    def line(quantity: int, **more: Any) -> dict[str, Any]:
        return bulk_line(key, {"quantity": quantity}, "was_reserved", aggregate_type="item", **more)

    answers = await bulk(shop, line(1), line(2), line(1), bulk_line(new_id()), line(1, idempotency_key="k"))
    assert [each["status"] for each in answers] == [201, 422, 201, 201, 422]
    assert [each.get("path") for each in answers] == [None, "rules[1]", None, None, "rules[1]"]
    assert answers[4]["length"] == 3


async def test_a_version_conflict_comes_first(shop: httpx.AsyncClient) -> None:
    key = await stocked(shop, 0)
    for stale in (0, 2, 7):
        response = await append(shop, "item", key, "was_reserved", {"quantity": 1}, previous_length=stale)
        refused(response, 409, "version_conflict", more=CONFLICT)
        assert response.json()["length"] == 1
    response = await append(shop, "item", key, "was_reserved", {"quantity": 1}, previous_length=1)
    refused(response, 422, "rule_violated", "rules[1]")
    response = await append(shop, "item", new_id(), "was_reserved", {}, headers={"if-match": "*"})
    refused(response, 409, "version_conflict", more=CONFLICT)
    response = await append(shop, "item", key, "was_opened", {}, headers={"if-match": "*"})
    assert response.status_code == 201


async def test_a_repeat_of_what_was_accepted_is_answered_whatever_rules_say(shop: httpx.AsyncClient) -> None:
    key = new_id()
    first = await appended(shop, "item", key, "was_opened", {}, headers={"idempotency-key": key})
    again = await append(shop, "item", key, "was_opened", {}, headers={"idempotency-key": key})
    assert (again.status_code, again.json()) == (201, first)
    assert again.headers["idempotency-replayed"] == "true"
    response = await append(shop, "item", key, "was_opened", {"a": 1}, headers={"idempotency-key": key})
    refused(response, 422, "idempotency_mismatch")
    response = await append(shop, "item", key, "was_opened", {}, headers={"idempotency-key": "2" + key})
    refused(response, 422, "rule_violated", "rules[0]")


async def test_a_repeat_of_what_was_refused_is_judged_again(shop: httpx.AsyncClient) -> None:
    key, again = await stocked(shop, 0), {"idempotency-key": new_id()}
    response = await append(shop, "item", key, "was_reserved", {"quantity": 1}, again)
    refused(response, 422, "rule_violated", "rules[1]")
    await appended(shop, "item", key, "was_stocked", {"quantity": 1})
    assert (await append(shop, "item", key, "was_reserved", {"quantity": 1}, again)).status_code == 201


async def test_many_writers_through_two_gateways_take_no_more_than_there_is(
    shop: httpx.AsyncClient, second_gateway: Served
) -> None:
    key = await stocked(shop, 60)
    async with new_client(second_gateway.url, shop.headers["authorization"].removeprefix("Bearer ")) as other:
        await second_knows(other)

        async def write(client: httpx.AsyncClient, n: int) -> list[int]:
            statuses = []
            for turn in range(6):
                headers = {"idempotency-key": f"{key}:{n}:{turn}"} if n % 2 else None
                event = "was_reserved" if turn % 3 or n % 5 else "was_closed"
                data: dict[str, Any] = {"quantity": 1} if event == "was_reserved" else {"by": None}
                if event == "was_closed":
                    event, data = "was_stocked", {"quantity": 1}
                statuses.append((await append(client, "item", key, event, data, headers)).status_code)
            return statuses

        told = await asyncio.gather(*(write((shop, other)[n % 2], n) for n in range(30)))
        counts = Counter(status for each in told for status in each)
        state = (await shop.get(f"/item/{key}")).json()
        assert set(counts) == {201, 422}
        assert counts[201] == state["metadata"]["length"] - 1
        assert state["data"]["available"] == 0


async def second_knows(client: httpx.AsyncClient) -> None:
    """Returns once this gateway serves by the spec that the other one deployed."""
    async with asyncio.timeout(20):
        while "item" not in (await client.get("/_/spec")).json().get("spec", {}).get("aggregate_types", {}):
            await asyncio.sleep(0.02)


async def test_a_refusal_sees_what_another_gateway_acknowledged(
    shop: httpx.AsyncClient, second_gateway: Served
) -> None:
    key = await stocked(shop, 0)
    async with new_client(second_gateway.url, shop.headers["authorization"].removeprefix("Bearer ")) as other:
        await second_knows(other)
        for _ in range(20):
            refused(
                await append(shop, "item", key, "was_reserved", {"quantity": 1}),
                422,
                "rule_violated",
                "rules[1]",
            )
            await appended(other, "item", key, "was_stocked", {"quantity": 1})
            assert (await append(shop, "item", key, "was_reserved", {"quantity": 1})).status_code == 201


async def test_an_append_to_several_is_judged_on_all_of_its_aggregates(shop: httpx.AsyncClient) -> None:
    one, other = await stocked(shop, 2), await stocked(shop, 9)

    def event(key: str, event_type: str, quantity: int, **more: Any) -> dict[str, Any]:
        return {
            "aggregate_type": "item",
            "key": key,
            "type": event_type,
            "data": {"quantity": quantity},
            **more,
        }

    async def moved(*events: dict[str, Any]) -> httpx.Response:
        return await shop.post("/_/append", json={"events": events, "metadata": {"actor": ACTOR}})

    response = await moved(event(other, "was_stocked", 3), event(one, "was_reserved", 3))
    refused(response, 422, "rule_violated", "events[1].rules[1]")
    assert (response.json()["error"], response.json()["length"]) == ("Only 2 are left.", 1)
    stale = event(other, "was_stocked", 3, previous_length=7)
    refused(await moved(stale, event(one, "was_reserved", 3)), 409, "version_conflict",
            "events[0].previous_length", CONFLICT)  # fmt: skip
    pair = (event(one, "was_reserved", 1), event(other, "was_stocked", 1))
    told = Counter([each.status_code for each in await asyncio.gather(*(moved(*pair) for _ in range(12)))])
    assert told == {201: 2, 422: 10}
    left = [(await shop.get(f"/item/{key}")).json()["data"]["available"] for key in (one, other)]
    assert left == [0, 11]


async def test_as_many_events_as_may_be_are_judged_on_as_many_aggregates(shop: httpx.AsyncClient) -> None:
    """In blocks of each, so that nearly all events stand before the last aggregates' first ones."""
    keys = [new_id() for _ in range(100)]

    async def moved(event_type: str, count: int) -> httpx.Response:
        events = [
            {"aggregate_type": "item", "key": key, "type": event_type, "data": {"quantity": 1}}
            for key in keys
            for _ in range(count)
        ]
        return await shop.post("/_/append", json={"events": events, "metadata": {"actor": ACTOR}})

    assert (await moved("was_stocked", 10)).status_code == 201
    response = await moved("was_reserved", 10)
    assert response.status_code == 201, response.text
    refused(await moved("was_reserved", 1), 422, "rule_violated", "events[0].rules[1]", ("length",))


async def test_what_can_not_be_judged_in_time_is_not_committed(
    start_servers: Callable[..., Awaitable[Servers]],
) -> None:
    servers = await start_servers()
    await migrate(servers.postgres_url, 2)
    async with asyncpg.create_pool(servers.postgres_url, min_size=1, max_size=1) as pool:
        spec = {**SPEC, "aggregate_types": {**SPEC["aggregate_types"], "item": RULED}}
        account = await open_account(pool, spec)
    config = Config(redis_url=servers.redis_url, postgres_url=servers.postgres_url, append_deadline_s=3.0)
    async with serving(config) as served, new_client(served.url, account.admin) as client:
        key = await stocked(client, 5)
        servers.postgres.pause()
        try:
            begun = time.monotonic()
            told = await asyncio.gather(
                *(append(client, "item", each, "was_reserved", {"quantity": 1}) for each in (key, new_id()))
            )
            assert time.monotonic() - begun < 20
        finally:
            servers.postgres.resume()
        assert {each.status_code for each in told} <= {503, 504}

        async def accepted() -> bool:
            return (await append(client, "item", key, "was_reserved", {"quantity": 1})).status_code == 201

        await until(accepted)


async def test_rules_count_from_their_deployment(shop: httpx.AsyncClient) -> None:
    key = await stocked(shop, 1)
    ruled = {**RULED["events"]["was_stocked"], "rules": [{"require": {"exists": "@.never"}, "error": "No."}]}
    events = {**RULED["events"], "was_stocked": ruled}
    spec = {**SPEC, "aggregate_types": {**SPEC["aggregate_types"], "item": {"events": events}}}
    assert (await shop.put("/_/spec", json=spec)).status_code == 200
    refused(await append(shop, "item", key, "was_stocked", {"quantity": 1}), 422, "rule_violated", "rules[0]")
    assert (await shop.get(f"/item/{key}")).json()["data"] == {"available": 1}


async def test_an_operation_that_does_not_fit_the_state_refuses_nothing(shop: httpx.AsyncClient) -> None:
    rule = {"require": {"not": {"exists": "@.closed"}}, "error": "It is closed."}
    handler = [
        {"map": {"target": "lines", "value": {"sku": "@"}}},
        {"increment": {"target": "n"}},
    ]
    events = {"was_counted": {"schema": {}, "handler": handler, "rules": [rule]}}
    spec = {
        **SPEC,
        "aggregate_types": {**SPEC["aggregate_types"], "item": RULED, "tally": {"events": events}},
    }
    assert (await shop.put("/_/spec", json=spec)).status_code == 200
    key = new_id()
    for n in (1, 2):
        assert (await appended(shop, "tally", key, "was_counted"))["length"] == n
    body = batch(("was_counted", {}), ("was_counted", {}))
    assert (await shop.post(f"/tally/{key}", json=body)).json()["length"] == 4
    told = (await shop.get(f"/tally/{key}?explain=true")).json()
    assert told["data"] == {"n": 4}
    assert {each["error"] for each in told["metadata"]["misfits"]} == {
        "`lines` is absent; `map` takes a list."
    }


async def test_a_heavy_rule_is_judged_beside_the_loop(shop: httpx.AsyncClient) -> None:
    rule = {"require": {"not_in": ["$.data.n", "@.numbers"]}, "error": "{$.data.n} was there before."}
    handler = {"append": {"target": "numbers", "value": "$.data.n"}}
    events = {
        "was_filled": {"schema": True, "handler": {"set": {"target": "numbers", "value": "$.data"}}},
        "was_added": {"schema": True, "handler": handler, "rules": [rule]},
    }
    spec = {**SPEC, "aggregate_types": {**SPEC["aggregate_types"], "list": {"events": events}}}
    assert (await shop.put("/_/spec", json=spec)).status_code == 200
    key = new_id()
    await appended(shop, "list", key, "was_filled", list(range(30_000)))
    told = await asyncio.gather(*(append(shop, "list", key, "was_added", {"n": n}) for n in (1, 30_001, 2)))
    assert [each.status_code for each in told] == [422, 201, 422]
    assert told[0].json()["error"] == "1 was there before."


async def test_a_delivery_that_a_rule_refuses_is_quarantined_with_its_sentence(
    outbox: asyncpg.Pool, stranger: httpx.AsyncClient
) -> None:
    hooks = await open_hooks(outbox, stranger, SOURCES)
    spec = json.loads(json.dumps(hooks.spec))
    received = spec["aggregate_types"]["webhook_log"]["events"]["was_received"]
    received["handler"] = {"set": {"target": "last", "value": "$.data.body.n"}}
    received["rules"] = [
        {"require": {"or": [{"not": {"exists": "@.last"}}, {"gt": ["$.data.body.n", "@.last"]}]},
         "error": "{$.data.body.n} is not after {@.last}."}
    ]  # fmt: skip
    async with new_client(str(stranger.base_url), hooks.account.admin) as client:
        assert (await client.put("/_/spec", json=spec)).status_code == 200
        await hooks.taken("stripe", {"id": "evt_1", "n": 2})
        for delivery in ("evt_2", "evt_2"):
            told = await hooks.taken("stripe", {"id": delivery, "n": 1})
            assert told == {"ok": True, "quarantined": True, "event_id": None}
        assert (await hooks.taken("stripe", {"id": "evt_1", "n": 2}))["duplicate"] is True
        assert (await hooks.taken("stripe", {"id": "evt_3", "n": 3}))["duplicate"] is False
    held = await outbox.fetch("SELECT reason, error FROM webhook_delivery WHERE verdict = 'quarantined'")
    assert ("rule_violated", "1 is not after 2.") in {(row["reason"], row["error"]) for row in held}


async def test_each_aggregate_of_an_append_to_several_keeps_its_rules(shop: httpx.AsyncClient) -> None:
    one, two = new_id(), new_id()

    def named(kind: str, key: str, event_type: str, data: object) -> dict[str, Any]:
        return {"aggregate_type": kind, "key": key, "type": event_type, "data": data}

    async def moved(*events: dict[str, Any]) -> httpx.Response:
        sent = {"events": events, "metadata": {"actor": ACTOR}}
        return await shop.post("/_/append", json=sent)

    stock = [named("item", key, "was_stocked", {"quantity": 5}) for key in (one, two)]
    assert (await moved(*stock)).status_code == 201
    move = [
        named("item", two, "was_stocked", {"quantity": 2}),
        named("order", two, "was_noted", 1),
        named("item", one, "was_reserved", {"quantity": 2}),
    ]
    answers = await asyncio.gather(*(moved(*move) for _ in range(5)))
    assert sorted(each.status_code for each in answers) == [201, 201, 422, 422, 422]
    for each in answers:
        if each.status_code == 422:
            told = refused(each, 422, "rule_violated", "events[2].rules[1]", ("length",))
            assert told["error"] == "Only 1 are left."
    assert [await length_of(shop, key, "item") for key in (one, two)] == [3, 3]
    assert await length_of(shop, two) == 2
    late = [{**move[0], "previous_length": 1}, *move[1:]]
    told = (await moved(*late)).json()
    assert (told["code"], told["path"]) == ("version_conflict", "events[0].previous_length")
