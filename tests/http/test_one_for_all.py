"""No request holds up the others: the event loop is never held for long, whatever one asks for."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import asyncpg
import httpx
import pytest

from gateway.config import Config
from gateway.http.openapi import endpoint
from gateway.http.openapi.document import document
from tests.http.lag import ROUNDS, holds_up_no_other
from tests.support.accounts import ANYTHING, SPEC, Account, open_account
from tests.support.calls import JSON, NDJSON, batch, envelope, lines, new_client, new_id, refused, told_in
from tests.support.serving import Served, serving

CONSTANTS = [{"const": f"v{n}"} for n in range(1000)]


def items_of(schema: dict[str, Any]) -> dict[str, Any]:
    return {"properties": {"a": {"items": schema}}}


BUMP = {"increment": {"target": "n", "by": "$by"}}
DOUBLED = {"schema": ANYTHING, "handler": {"set": {"target": "a", "value": ["@.a", "@.a"]}}}
HEAVY: dict[str, Any] = {
    "aggregate_types": {
        "order": {
            "events": {
                **SPEC["aggregate_types"]["order"]["events"],
                "had_one_of": {"schema": items_of({"anyOf": CONSTANTS}), "handler": []},
                "had_none_of": {
                    "schema": items_of({"allOf": [{"not": each} for each in CONSTANTS]}),
                    "handler": [],
                },
                "had_text": {
                    "schema": {"properties": {"a": {"pattern": "(.{0,500}a.{0,500}b)c"}}},
                    "handler": [],
                },
                "had_names": {
                    "schema": {"patternProperties": {f"^a{n}.*b$": {"type": "string"} for n in range(700)}},
                    "handler": [],
                },
            }
        },
        "list": {
            "events": {
                "was_set": {"schema": ANYTHING},
                "was_cleaned": {
                    "schema": ANYTHING,
                    "handler": {"remove": {"target": "a", "where": {"gt": ["@.n", "$.data.n"]}}},
                },
                "had_bumped": {
                    "schema": ANYTHING,
                    "handler": {
                        "let": {"by": "$.data.n"},
                        "do": {"map": {"target": "a", "do": {"map": {"target": "a", "do": BUMP}}}},
                    },
                },
                "had_removed": {
                    "schema": ANYTHING,
                    "handler": {"remove": {"target": "a", "where": {"equals": ["@.n", "$.data.n"]}}},
                },
                "had_looked": {
                    "schema": ANYTHING,
                    "handler": {
                        "if": {"in": ["$.data.n", "@.a"]},
                        "then": {"set": {"target": "found", "value": True}},
                    },
                },
            }
        },
        "double": {"events": {"was_set": {"schema": ANYTHING}, "had_doubled": DOUBLED}},
        "ruled": {
            "events": {
                "was_set": {"schema": ANYTHING},
                "had_doubled": {**DOUBLED, "rules": [{"require": {"exists": "@.a"}, "error": "No."}]},
                "had_implied": {
                    "schema": ANYTHING,
                    "implications": [
                        {
                            "condition": {"in": ["$.data.n", "$.data.of"]},
                            "emit": {"aggregate_type": "double", "id": "global", "event_type": "was_set"},
                        }
                    ]
                    * 4,
                },
            }
        },
    },
    "agent_types": ["user"],
}


@pytest.fixture(scope="module")
async def gateway(own_config: Config) -> AsyncIterator[Served]:
    """On a database of its own: each gateway that starts later would read these specs for seconds."""
    async with serving(own_config) as served:
        yield served


@pytest.fixture(scope="module")
def outbox(own_outbox: asyncpg.Pool) -> asyncpg.Pool:
    return own_outbox


@pytest.fixture(scope="module")
async def heavy_account(outbox: asyncpg.Pool) -> Account:
    """Of a tenant whose schemas take long, to be compiled too. The tests share it, with aggregates of their
    own."""
    return await open_account(outbox, HEAVY)


@pytest.fixture
async def heavy(gateway: Served, heavy_account: Account) -> AsyncIterator[httpx.AsyncClient]:
    """With its admin key."""
    async with new_client(gateway.url, heavy_account.admin) as client:
        yield client


META = envelope()["metadata"]


def body(data: object) -> bytes:
    return json.dumps(envelope(data), separators=(",", ":")).encode()


@pytest.mark.parametrize(
    ("event_type", "data", "status"),
    [
        ("had_one_of", {"a": ["v999"] * 20_000}, 201),
        ("had_one_of", {"a": ["v999"] * 20_000 + ["w"]}, 422),
        ("had_none_of", {"a": ["w"] * 4_000}, 201),
        ("had_none_of", {"a": ["w"] * 4_000 + ["v1"]}, 422),
        ("had_names", {f"k{n}": 1 for n in range(6_000)}, 201),
        ("had_text", {"a": "aB3" * 1_000}, 422),
        ("had_text", {"a": "aB3" * 80_000}, 422),
        ("was_noted", [[]] * 40_000, 201),
        ("was_noted", [[]] * 80_000, 400),
        ("was_noted", {"\\u0000": [1] * 100_000}, 400),
    ],
)
async def test_checking_the_data_of_an_event(
    heavy: httpx.AsyncClient, event_type: str, data: object, status: int
) -> None:
    sent = body(data).replace(b"\\\\u0000", b"\\u0000")

    async def post() -> None:
        response = await heavy.post(f"/order/{new_id()}/{event_type}", content=sent, headers=JSON)
        assert response.status_code == status, response.text

    await holds_up_no_other(post)


async def test_checking_a_batch(heavy: httpx.AsyncClient) -> None:
    event = {"type": "had_none_of", "data": {"a": ["w"] * 50}}
    sent = json.dumps({"events": [event] * 80, "metadata": envelope()["metadata"]}).encode()

    async def post() -> None:
        response = await heavy.post(f"/order/{new_id()}", content=sent, headers=JSON)
        assert response.status_code == 201, response.text

    await holds_up_no_other(post)


async def test_checking_the_lines_of_a_bulk_request(heavy: httpx.AsyncClient) -> None:
    datas = [["w"] * 30] * 64 + [["w"] * 2_000] * 3 + [["v1"]]

    async def post() -> None:
        line = {"aggregate_type": "order", "key": new_id(), "type": "had_none_of"}
        sent = lines(*[{**line, **envelope({"a": data})} for data in datas])
        response = await heavy.post("/_/bulk", content=sent, headers=NDJSON)
        told = [each["status"] for each in told_in(response.content)]
        assert told == [201] * 67 + [422]

    await holds_up_no_other(post)


async def test_data_that_would_take_too_long_to_check_are_refused(heavy: httpx.AsyncClient) -> None:
    response = await heavy.post(
        f"/order/{new_id()}/had_none_of", content=body({"a": [0] * 100_000}), headers=JSON
    )
    told = refused(response, 422, "schema_violation", "data")
    assert told["error"].startswith(
        "Checking this against the schema of had_none_of could take over 10000000"
    )


async def test_the_events_of_a_batch_that_would_take_too_long_are_refused(heavy: httpx.AsyncClient) -> None:
    event = {"type": "had_none_of", "data": {"a": [0] * 1_000}}
    sent = json.dumps({"events": [event] * 40, "metadata": envelope()["metadata"]}).encode()
    response = await heavy.post(f"/order/{new_id()}", content=sent, headers=JSON)
    assert refused(response, 422, "schema_violation", "events[4].data")["error"].endswith("alternatives.")


# ---- bodies that are refused ----

ZEROS = b'{"data":[%b],"metadata":%b}' % (b",".join([b"0"] * 500_000), json.dumps(META).encode())
EVENTS = b'{"events":[%b],"metadata":%b}' % (
    b",".join([b'{"type":"was_noted","data":{}}'] * 30_000),
    json.dumps(META).encode(),
)


@pytest.mark.parametrize(
    ("path", "sent", "headers", "status"),
    [
        ("/nothing/KEY", EVENTS, {}, 404),
        ("/order/!!", EVENTS, {}, 422),
        ("/order/KEY", EVENTS, {"If-Match": "nothing"}, 422),
        ("/nothing", EVENTS, {"Idempotency-Key": "a"}, 404),
        ("/nothing/KEY/was_noted", ZEROS, {"Idempotency-Key": "b"}, 404),
        ("/order/KEY/was_nothing", ZEROS, {"Idempotency-Key": "c"}, 404),
        ("/_/ids/check", b'{"ids":[%b]}' % b",".join([b'"a"'] * 250_000), {}, 422),
    ],
)
async def test_a_large_body_that_is_refused(
    heavy: httpx.AsyncClient, path: str, sent: bytes, headers: dict[str, str], status: int
) -> None:
    async def post() -> None:
        response = await heavy.post(path.replace("KEY", new_id()), content=sent, headers={**JSON, **headers})
        assert response.status_code == status, response.text

    await holds_up_no_other(post)


@pytest.mark.parametrize(
    ("path", "sent", "status"),
    [
        ("/_/spec", b'{"types":[%b]}' % b",".join([b"0"] * 500_000), 422),
        ("/_/spec", b'{"webhooks":"***","types":[%b]}' % b",".join([b'{"a":0}'] * 49_000), 422),
        ("/_/spec", b'{"webhooks":"***","types":[%b]}' % b",".join([b'{"a":0}'] * 100_000), 400),
        ("/_/subscriptions/s", b'{"target":[%b]}' % b",".join([b"0"] * 500_000), 422),
    ],
)
async def test_a_large_document_that_is_refused(
    heavy: httpx.AsyncClient, path: str, sent: bytes, status: int
) -> None:
    async def put() -> None:
        response = await heavy.put(path, content=sent, headers=JSON)
        assert response.status_code == status, response.text

    await holds_up_no_other(put)


@pytest.mark.parametrize(("event_type", "status"), [("was_nothing", 404), ("was_noted", 413)])
async def test_a_line_as_long_as_can_be_that_is_refused(
    heavy: httpx.AsyncClient, event_type: str, status: int
) -> None:
    line = {"aggregate_type": "order", "key": new_id(), "type": event_type, "idempotency_key": "a"}
    sent = json.dumps({**line, **envelope([0] * 500_000)}, separators=(",", ":")).encode() + b"\n"

    async def post() -> None:
        response = await heavy.post("/_/bulk", content=sent, headers=NDJSON)
        assert [each["status"] for each in told_in(response.content)] == [status]

    await holds_up_no_other(post)


# ---- states ----


async def listed(client: httpx.AsyncClient, event_type: str, count: int) -> str:
    """A list of 12,000 items, and events that each look for one which is not there."""
    key, items = new_id(), [{"n": n} for n in range(12_000)]
    rest = [{"type": event_type, "data": {"n": 20_000}}] * (count - 1)
    sent = {"events": [{"type": "was_set", "data": {"a": items}}, *rest], "metadata": envelope()["metadata"]}
    assert (await client.post(f"/list/{key}", json=sent)).status_code == 201
    return key


@pytest.mark.parametrize("query", ["", "?synchronous=true", "?at_length=6"])
@pytest.mark.parametrize("event_type", ["was_cleaned", "had_removed"])
async def test_a_fold_that_takes_long(heavy: httpx.AsyncClient, event_type: str, query: str) -> None:
    keys = [await listed(heavy, event_type, 8) for _ in range(ROUNDS)]
    answers = []

    async def get() -> None:
        answers.append(await heavy.get(f"/list/{keys.pop()}{query}"))

    await holds_up_no_other(get)
    for response in answers:
        assert response.status_code == 200
        assert len(response.json()["data"]["a"]) == 12_000


async def test_a_fold_that_changes_items_of_items(heavy: httpx.AsyncClient) -> None:
    items = [{"a": [{"n": 1}] * 3} for _ in range(3_000)]
    keys = [new_id() for _ in range(ROUNDS)]
    for key in keys:
        sent = batch(("was_set", {"a": items}), ("had_bumped", {"n": 2}))
        assert (await heavy.post(f"/list/{key}", json=sent)).status_code == 201

    async def get() -> None:
        response = await heavy.get(f"/list/{keys.pop()}")
        assert response.json()["data"]["a"][-1] == {"a": [{"n": 3}] * 3}

    await holds_up_no_other(get)


async def test_a_state_that_doubles_with_each_event(heavy: httpx.AsyncClient) -> None:
    keys = [new_id() for _ in range(ROUNDS)]
    for key in keys:
        sent = batch(("was_set", {"a": 1}), *[("had_doubled", {})] * 16)
        assert (await heavy.post(f"/double/{key}", json=sent)).status_code == 201

    async def get() -> None:
        assert (await heavy.get(f"/double/{keys.pop()}")).status_code == 200

    await holds_up_no_other(get)


async def test_looking_into_a_long_list_of_numbers(heavy: httpx.AsyncClient) -> None:
    keys = [new_id() for _ in range(ROUNDS)]
    for key in keys:
        sent = batch(("was_set", {"a": [7] * 20_000}), *[("had_looked", {"n": 3})] * 8)
        assert (await heavy.post(f"/list/{key}", json=sent)).status_code == 201

    async def get() -> None:
        assert (await heavy.get(f"/list/{keys.pop()}")).status_code == 200

    await holds_up_no_other(get)


@pytest.mark.parametrize("path", ["/ruled/KEY", "/_/append"])
async def test_rules_of_a_state_that_doubles_within_an_append(heavy: httpx.AsyncClient, path: str) -> None:
    async def post() -> None:
        key = new_id()
        events = [{"type": "was_set", "data": {"a": 1}}, *[{"type": "had_doubled", "data": {}}] * 16]
        if path == "/_/append":
            events = [{"aggregate_type": "ruled", "key": key, **each} for each in events]
        response = await heavy.post(path.replace("KEY", key), json={"events": events, "metadata": META})
        assert response.status_code == 201, response.text

    await holds_up_no_other(post)


async def test_conditions_that_compare_a_long_list(heavy: httpx.AsyncClient) -> None:
    data = {"n": 3, "of": [7] * 7_000}

    async def post() -> None:
        response = await heavy.post(f"/ruled/{new_id()}/had_implied", content=body(data), headers=JSON)
        assert response.status_code == 201, response.text

    await holds_up_no_other(post)


async def test_items_are_looked_up_and_not_compared_again_for_each_event(heavy: httpx.AsyncClient) -> None:
    key = await listed(heavy, "had_removed", 1000)
    begun = time.process_time()
    assert (await heavy.get(f"/list/{key}")).json()["metadata"]["length"] == 1000
    assert time.process_time() - begun < 10, "by comparisons it would be some 40 s"


async def test_a_state_as_long_as_can_be_is_kept(heavy: httpx.AsyncClient) -> None:
    key = new_id()
    for n in range(16):
        sent = envelope({f"f{n}": "x" * 259_000})
        assert (await heavy.post(f"/list/{key}/was_set", json=sent)).status_code == 201
    first = await heavy.get(f"/list/{key}")
    assert len(first.content) > 4_000_000
    begun = time.process_time()
    for _ in range(10):
        assert len((await heavy.get(f"/list/{key}")).content) == len(first.content)
    assert time.process_time() - begun < 1.5


async def test_a_fold_beyond_its_deadline_is_a_503_and_continues_where_it_was(
    own_config: Config, heavy_account: Account
) -> None:
    async with (
        serving(replace(own_config, fold_deadline_s=0.0)) as served,
        new_client(served.url, heavy_account.admin) as client,
    ):
        key = await listed(client, "was_cleaned", 30)
        told = refused(await client.get(f"/list/{key}"), 503, "unavailable")
        assert "of 30 events so far" in told["error"]
        answers = [told["error"]]
        while (response := await client.get(f"/list/{key}")).status_code == 503:
            answers.append(response.json()["error"])
        assert response.json()["metadata"]["length"] == 30
        assert len(set(answers)) == len(answers), "each began where the one before had ended"


# ---- documents ----


def many_types(count: int) -> dict[str, Any]:
    types = {f"t{n}": {"events": {"was_set": {"schema": ANYTHING}}} for n in range(count)}
    return {"aggregate_types": types, "agent_types": ["user"]}


async def test_the_document_of_a_large_spec_is_made_once_for_all_who_ask(
    gateway: Served, outbox: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    def counted(*args: Any) -> dict[str, Any]:
        made.append(args)
        return document(*args)

    monkeypatch.setattr(endpoint, "document", counted)
    account = await open_account(outbox, many_types(100))
    async with new_client(gateway.url, account.read) as client:
        answers = await asyncio.gather(*[client.get("/_/openapi.json") for _ in range(8)])
    assert [each.status_code for each in answers] == [200] * 8
    assert len(made) == 1


@pytest.mark.parametrize("count", [1_001, 900])
async def test_a_document_that_would_be_too_large_is_refused(
    gateway: Served, outbox: asyncpg.Pool, count: int
) -> None:
    account = await open_account(outbox, many_types(count))
    async with new_client(gateway.url, account.read) as client:
        for _ in range(2):
            told = refused(await client.get("/_/openapi.json"), 413, "too_large")
    assert told["error"].startswith("The OpenAPI document of this spec would be longer than 8388608 bytes")
