"""Implied events: written with what implies them, all or nothing."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import asyncpg
import httpx
import pytest

from gateway.aggregates.folder import Folder
from gateway.aggregates.several import RuledSeveral
from gateway.log.append.pending import Pending
from gateway.log.append.sequencer import Sequencer
from gateway.postgres.errors import PostgresTrouble
from gateway.state import Folded
from tests.support.accounts import Account, open_account
from tests.support.calls import (
    ACTOR,
    JSON,
    append,
    appended,
    envelope,
    new_client,
    new_event_id,
    new_id,
    refused,
)
from tests.support.serving import Served

POINTS: dict[str, Any] = {
    "aggregate_type": "loyalty",
    "id": "$.metadata.actor.id",
    "event_type": "had_points_credited",
    "data": {"points": "$.data.amount", "paid": "@.paid"},
}
SHOP: dict[str, Any] = {
    "aggregate_types": {
        "order": {
            "events": {
                "was_paid": {
                    "schema": {"type": "object"},
                    "handler": {"increment": {"target": "paid", "value": "$.data.amount"}},
                    "implications": [
                        {"condition": {"gte": ["$.data.amount", 100]}, "emit": POINTS},
                        {
                            "condition": {"exists": "$.data.items"},
                            "map": {
                                "in": "$.data.items",
                                "as": "$item",
                                "emit": {
                                    "aggregate_type": "stock",
                                    "id": "$item.sku",
                                    "event_type": "was_reserved",
                                    "data": {"quantity": "$item.quantity"},
                                },
                            },
                        },
                    ],
                },
            }
        },
        "loyalty": {
            "events": {
                "had_points_credited": {
                    "schema": {"type": "object", "properties": {"points": {"type": "integer"}}},
                    "implications": [
                        {
                            "condition": {"gte": ["$.data.points", 1000]},
                            "emit": {
                                "aggregate_type": "letter",
                                "id": {"mint": True},
                                "event_type": "was_ordered",
                                "data": {"points": "$.data.points"},
                            },
                        }
                    ],
                }
            }
        },
        "stock": {
            "events": {
                "was_stocked": {"schema": {}, "handler": {"increment": {"target": "n", "value": "$.data.n"}}},
                "was_reserved": {
                    "schema": {},
                    "handler": {"decrement": {"target": "n", "value": "$.data.quantity"}},
                    "rules": [
                        {"require": {"gte": ["@.n", "$.data.quantity"]}, "error": "Only {@.n} are left."}
                    ],
                },
            }
        },
        "letter": {"events": {"was_ordered": {"schema": {}}}},
        "visit": {
            "events": {
                "was_begun": {
                    "schema": {},
                    "implications": [
                        {
                            "condition": {"exists": "$.data.points"},
                            "emit": {
                                "aggregate_type": "letter",
                                "id": "$.metadata.actor.id",
                                "event_type": "was_ordered",
                                "data": {"points": "$.data.points", "key": "$.key"},
                            },
                        },
                        {
                            "condition": {"exists": "$.data.sku"},
                            "emit": {
                                "aggregate_type": "stock",
                                "id": "$.data.sku",
                                "event_type": "was_reserved",
                                "data": {"quantity": 1},
                            },
                        },
                    ],
                }
            }
        },
    },
    "agent_types": ["user"],
}


@pytest.fixture
async def shop(gateway: Served, outbox: asyncpg.Pool) -> Account:
    return await open_account(outbox, SHOP)


@pytest.fixture
async def client(gateway: Served, shop: Account) -> Any:
    async with new_client(gateway.url, shop.admin) as client:
        yield client


async def events(client: httpx.AsyncClient) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await client.get("/_/feed?limit=100")).json()["events"]
    return found


async def test_an_event_brings_what_it_implies_of_all_levels(client: httpx.AsyncClient) -> None:
    key, actor = new_id(), new_id()
    body = envelope({"amount": 1500}) | {"metadata": {"actor": {"type": "user", "id": actor}}}
    receipt = (await client.post(f"/order/{key}/was_paid", json=body)).json()
    assert (receipt["length"], receipt["implied_count"]) == (1, 2)
    paid, credited, ordered = await events(client)
    assert (credited["aggregate_type"], credited["key"]) == ("loyalty", actor)
    assert credited["data"] == {"points": 1500, "paid": 1500}
    assert ordered["aggregate_type"] == "letter"
    assert [each["metadata"]["causation_id"] for each in (credited, ordered)] == [paid["id"], credited["id"]]
    assert {each["metadata"]["correlation_id"] for each in (paid, credited, ordered)} == {
        paid["metadata"]["correlation_id"]
    }
    assert credited["metadata"]["actor"] == paid["metadata"]["actor"]


async def test_what_implies_nothing_is_as_ever(client: httpx.AsyncClient) -> None:
    receipt = await appended(client, "order", new_id(), "was_paid", {"amount": 1})
    assert "implied_count" not in receipt
    assert len(await events(client)) == 1


async def test_a_repeat_is_the_original_receipt_and_implies_nothing_again(client: httpx.AsyncClient) -> None:
    headers = {"idempotency-key": "once"}
    key, body = new_id(), envelope({"amount": 200})
    first, again = [await client.post(f"/order/{key}/was_paid", json=body, headers=headers) for _ in range(2)]
    assert first.json() == again.json()
    assert again.headers["idempotency-replayed"] == "true"
    assert len(await events(client)) == 2


async def test_what_can_t_be_written_refuses_the_whole(client: httpx.AsyncClient) -> None:
    key = new_id()
    response = await append(client, "order", key, "was_paid", {"amount": 150.5})
    refused(response, 422, "schema_violation", "implications[0].data.points")
    response = await append(client, "order", key, "was_paid", {"amount": 1, "items": [{"sku": "a b"}]})
    refused(response, 422, "invalid_identifier", "implications[1][0].id")
    for items, given in (([{}], "null"), ([{"sku": 7}], "a number")):
        response = await append(client, "order", key, "was_paid", {"amount": 1, "items": items})
        why = refused(response, 422, "invalid_identifier", "implications[1][0].id")["error"]
        assert why == f"`id` gives {given}, not a string, so there is no identifier."
    response = await append(client, "order", key, "was_paid", {"amount": 1, "items": 7})
    refused(response, 422, "schema_violation", "implications[1]")
    batch = {
        "events": [
            {"type": "was_paid", "data": {"amount": 1}},
            {"type": "was_paid", "data": {"amount": 150.5}},
        ],
        "metadata": envelope({})["metadata"],
    }
    response = await client.post(f"/order/{key}", json=batch)
    refused(response, 422, "schema_violation", "events[1].implications[0].data.points")
    assert await events(client) == []


async def test_a_rule_of_an_implied_event_refuses_the_whole(client: httpx.AsyncClient) -> None:
    sku = new_id()
    await appended(client, "stock", sku, "was_stocked", {"n": 3})
    data = {"amount": 1, "items": [{"sku": sku, "quantity": 2}, {"sku": sku, "quantity": 2}]}
    response = await append(client, "order", new_id(), "was_paid", data)
    more = ("length", "aggregate_type", "key")
    body = refused(response, 422, "rule_violated", "implications[1][1]", more)
    assert (body["error"], body["aggregate_type"], body["key"]) == ("Only 1 are left.", "stock", sku)
    data["items"] = [{"sku": sku, "quantity": 2}]
    assert (await appended(client, "order", new_id(), "was_paid", data))["implied_count"] == 1


async def test_an_append_implies_events_of_as_many_aggregates_as_it_implies_events(
    gateway: Served, outbox: asyncpg.Pool
) -> None:
    """With those of the request there are up to 127; beyond 100 it had been refused."""
    emit = {"aggregate_type": "part", "id": "$part", "event_type": "was_used"}
    implied = {"map": {"in": "$.data.parts", "as": "$part", "emit": emit}}
    events = {"was_built": {"schema": {}, "implications": [implied]}}
    types = {"thing": {"events": events}, "part": {"events": {"was_used": {"schema": {}}}}}
    tenant = await open_account(outbox, {"aggregate_types": types, "agent_types": ["user"]})
    async with new_client(gateway.url, tenant.admin) as client:
        for things, refuses in ((1, False), (27, False), (28, True)):
            parts = [new_id() for _ in range(100)]
            own = [
                {"aggregate_type": "thing", "key": new_id(), "type": "was_built", "data": {"parts": []}}
                for _ in range(things)
            ]
            own[-1]["data"] = {"parts": parts}
            answer = await client.post("/_/append", json={"events": own, "metadata": {"actor": ACTOR}})
            if refuses:
                refused(answer, 422, "invalid_field", "events[27].implications[0][99]")
                continue
            assert (answer.status_code, answer.json()["implied_count"]) == (201, 100), answer.text
            feed = (await client.get("/_/feed?limit=1000")).json()["events"]
            assert [each["key"] for each in feed[-100:]] == parts
            assert {each["version"] for each in feed} == {1}


async def test_a_narrowed_key_hears_of_the_aggregate_that_refused_if_it_may_read_it(
    client: httpx.AsyncClient, gateway: Served
) -> None:
    sku = new_id()
    await appended(client, "stock", sku, "was_stocked", {"n": 1})
    data = {"items": [{"sku": sku, "quantity": 2}]}
    for only, more in (
        (["order"], ("length",)),
        (["order", f"stock/{sku}"], ("aggregate_type", "key", "length")),
        (["order.was_paid", "stock.was_reserved"], ("length",)),
    ):
        made = (await client.post("/_/keys", json={"scope": "write", "only": only})).json()
        async with new_client(gateway.url, made["key"]) as narrow:
            response = await append(narrow, "order", new_id(), "was_paid", data)
            told = refused(response, 422, "rule_violated", "implications[1][0]", more)
            assert told["error"] == "Only 1 are left."


async def test_a_value_of_an_implied_event_that_another_has_is_refused_with_its_place(
    gateway: Served, outbox: asyncpg.Pool
) -> None:
    emit = {
        "aggregate_type": "person",
        "id": "$.data.person",
        "event_type": "signed_up",
        "data": {"email": "$.data.email"},
    }
    spec = {
        "aggregate_types": {
            "visit": {"events": {"was_begun": {"schema": {}, "implications": [{"emit": emit}]}}},
            "person": {
                "events": {"signed_up": {"schema": {}, "claims": {"email": {"value": "$.data.email"}}}}
            },
        },
        "agent_types": ["user"],
    }
    account = await open_account(outbox, spec)
    async with new_client(gateway.url, account.admin) as client:
        await appended(client, "visit", new_id(), "was_begun", {"person": new_id(), "email": "a@b.c"})
        taken, free = [{"person": new_id(), "email": email} for email in ("a@b.c", "d@e.f")]
        response = await append(client, "visit", new_id(), "was_begun", taken)
        refused(response, 409, "not_unique", "implications[0].data.email", ("holder",))
        metadata = envelope({})["metadata"]
        several = {
            "events": [{"type": "was_begun", "data": each} for each in (free, taken)],
            "metadata": metadata,
        }
        one = {**several, "events": several["events"][1:]}
        key = new_id()
        for path, body, n in (
            (f"/visit/{key}", several, 1),
            (f"/visit/{key}", one, 0),
            ("/_/append", with_places(several, key), 1),
            ("/_/append", with_places(one, key), 0),
        ):
            response = await client.post(path, json=body)
            place = f"events[{n}].implications[0].data.email"
            refused(response, 409, "not_unique", place, ("holder",))


def with_places(batch: dict[str, Any], key: str) -> dict[str, Any]:
    """The same for `POST /_/append`."""
    events = [{"aggregate_type": "visit", "key": key, **each} for each in batch["events"]]
    return {**batch, "events": events}


async def test_a_conflict_comes_before_what_is_implied(client: httpx.AsyncClient) -> None:
    key = new_id()
    await appended(client, "order", key, "was_paid", {"amount": 1})
    headers = {"if-match": '"5"'}
    response = await client.post(f"/order/{key}/was_paid", json=envelope({"amount": 150.5}), headers=headers)
    refused(response, 409, "version_conflict", more=("length", "missed", "missed_next"))


@pytest.mark.parametrize("lengths", [(5, 5), (5, None), (None, 5)])
async def test_of_several_conflicts_the_first_is_told_though_what_is_implied_is_refused(
    client: httpx.AsyncClient, lengths: tuple[int | None, int | None]
) -> None:
    sent = [
        {"aggregate_type": "visit", "key": new_id(), "type": "was_begun", "data": {"sku": 7}}
        | ({} if length is None else {"previous_length": length})
        for length in lengths
    ]
    body = {"events": sent, "metadata": envelope({})["metadata"]}
    response = await client.post("/_/append", json=body)
    path = f"events[{lengths.index(5)}].previous_length"
    refused(response, 409, "version_conflict", path, ("length", "missed", "missed_next"))
    for each in sent:
        each.pop("previous_length", None)
    response = await client.post("/_/append", json=body)
    refused(response, 422, "invalid_identifier", "events[0].implications[1].id")


async def test_implied_events_are_bounded(client: httpx.AsyncClient) -> None:
    sku = new_id()
    await appended(client, "stock", sku, "was_stocked", {"n": 1000})
    data = {"amount": 1, "items": [{"sku": sku, "quantity": 1}] * 101}
    refused(
        await append(client, "order", new_id(), "was_paid", data),
        422,
        "invalid_field",
        "implications[1][100]",
    )
    data["items"].pop()
    assert (await appended(client, "order", new_id(), "was_paid", data))["implied_count"] == 100


async def test_the_state_that_is_seen_is_the_one_after_the_event(client: httpx.AsyncClient) -> None:
    key, actor = new_id(), new_id()
    body = envelope({"amount": 100}) | {"metadata": {"actor": {"type": "user", "id": actor}}}
    answers = await asyncio.gather(*(client.post(f"/order/{key}/was_paid", json=body) for _ in range(20)))
    assert {each.status_code for each in answers} == {201}
    seen = [each["data"]["paid"] for each in await events(client) if each["aggregate_type"] == "loyalty"]
    assert seen == [100 * n for n in range(1, 21)]


async def test_bulk_lines_and_appends_to_several_imply_too(client: httpx.AsyncClient) -> None:
    metadata = envelope({})["metadata"]
    line = {"aggregate_type": "order", "key": new_id(), "type": "was_paid", "data": {"amount": 100}}
    bulk = json.dumps({**line, "metadata": metadata}) + "\n"
    answer = await client.post("/_/bulk", content=bulk, headers={"content-type": "application/x-ndjson"})
    assert '"implied_count":1' in answer.text
    body = {"events": [line, {**line, "key": new_id()}], "metadata": metadata}
    receipt = (await client.post("/_/append", json=body, headers=JSON)).json()
    assert (receipt["count"], receipt["implied_count"]) == (2, 2)
    assert len(await events(client)) == 6


async def test_it_does_not_take_rules_to_imply(gateway: Served, outbox: asyncpg.Pool) -> None:
    emit = {"aggregate_type": "account", "id": "$.key", "event_type": "was_credited"}
    spec = {
        "aggregate_types": {
            "order": {"events": {"was_placed": {"schema": {}, "implications": [{"emit": emit}]}}},
            "account": {"events": {"was_credited": {"schema": {}}}},
        },
        "agent_types": ["user"],
    }
    account = await open_account(outbox, spec)
    async with new_client(gateway.url, account.write) as client:
        assert (await appended(client, "order", new_id(), "was_placed"))["implied_count"] == 1
        assert (await appended(client, "order", new_id(), "was_placed"))["implied_count"] == 1


async def test_of_a_new_aggregate_postgres_is_asked_only_where_the_client_could_have_made_it(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    warm = Sequencer._warm

    async def told(self: Sequencer, cold: list[Pending], as_of: str) -> None:
        asked.extend(stream.aggregate_type for each in cold for stream in each.append.streams)
        await warm(self, cold, as_of)

    monkeypatch.setattr(Sequencer, "_warm", told)
    key = new_id()
    await appended(client, "order", key, "was_paid", {"amount": 1500})
    assert asked[:2] == ["order", "loyalty"]
    asked.clear()
    receipt = await appended(client, "order", key, "was_paid", {"amount": 1500})
    assert (receipt["implied_count"], asked) == (2, [])
    sent = {"aggregate_type": "letter", "type": "was_ordered", "data": 1}
    body = {"events": [sent, sent], "metadata": {"actor": ACTOR}}
    assert (await client.post("/_/append", json=body)).status_code == 201
    assert (
        await client.post("/letter", json={**body, "events": [{"type": "was_ordered", "data": 1}]})
    ).is_success
    assert asked == []
    await append(client, "order", key, "was_paid", {"amount": 1500}, event_id=new_event_id())
    assert asked == ["order", "loyalty", "letter"]


async def test_where_no_state_decides_none_is_read(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, stock = new_id(), new_id()
    await appended(client, "stock", stock, "was_stocked", {"n": 1})

    async def broken(*_: object) -> Folded:
        raise PostgresTrouble("no state")

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "committed", broken)
        for n in (1, 2):
            receipt = await appended(client, "visit", key, "was_begun", {"points": n}, previous_length=n - 1)
            assert (receipt["length"], receipt["implied_count"]) == (n, 1)
        refused(
            await append(client, "visit", key, "was_begun", {"points": 3}, previous_length=1),
            409,
            "version_conflict",
            more=("length", "missed", "missed_next"),
        )
        told = await append(client, "visit", key, "was_begun", {"sku": "no id"})
        refused(told, 422, "invalid_identifier", "implications[1].id")
        refused(await append(client, "visit", key, "was_begun", {"sku": stock}), 503, "not_committed")
    assert (await appended(client, "visit", key, "was_begun", {"sku": stock}))["implied_count"] == 1
    told = await append(client, "visit", key, "was_begun", {"sku": stock})
    more = ("aggregate_type", "key", "length")
    refused(told, 422, "rule_violated", "implications[1]", more)
    assert [each["data"] for each in (await events(client)) if each["aggregate_type"] == "letter"] == [
        {"points": 1, "key": key},
        {"points": 2, "key": key},
    ]


@pytest.mark.bug
async def test_a_bug_while_it_is_judged_on_states_is_an_unknown_outcome_and_not_a_hang(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def failing(*_: object) -> object:
        raise RuntimeError("a bug")

    await appended(client, "order", new_id(), "was_paid", {"amount": 1})  # the key is known from here on
    monkeypatch.setattr(RuledSeveral, "at_once", lambda *_: None)
    monkeypatch.setattr(RuledSeveral, "append", failing)
    refused(
        await append(client, "order", new_id(), "was_paid", {"amount": 100}),
        504,
        "outcome_unknown",
        more=("event_id",),
    )
    body = {
        "events": [{"aggregate_type": "order", "key": new_id(), "type": "was_paid", "data": {"amount": 100}}],
        "metadata": {"actor": ACTOR},
    }
    refused(await client.post("/_/append", json=body), 504, "outcome_unknown", more=("event_id",))
