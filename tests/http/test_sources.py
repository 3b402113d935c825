"""/_/sources: what foreign systems call aggregates, over HTTP; /_/ids/hash and /_/ids/base62."""

from __future__ import annotations

import asyncio
import hashlib
import json
from urllib.parse import unquote
from uuid import UUID

import httpx

from gateway.names.content import content_of_json, content_of_text, context_of
from gateway.names.source_ids import derived_key
from tests.http.lag import holds_up_no_other
from tests.support.accounts import Account
from tests.support.calls import JSON, NDJSON, batch, envelope, new_client, new_id, refused, told_in
from tests.support.serving import Served

TU1 = {"source": "xliff", "scope": "dir/a.xlf", "id": "tu1"}
PATH = "/_/sources/xliff/dir%2Fa.xlf/tu1"


async def resolved(client: httpx.AsyncClient, *sources: object, **more: object) -> list[str | None]:
    response = await client.post("/_/sources/resolve", json={"sources": sources, **more})
    assert response.status_code == 200, response.text
    return list(response.json()["keys"])


async def test_an_id_is_linked_asked_and_found_again(
    client: httpx.AsyncClient, reader: httpx.AsyncClient
) -> None:
    key = new_id()
    refused(await reader.get(PATH), 404, "not_found")
    refused(await reader.put(PATH, json={}), 403, "forbidden")
    linked = await client.put(PATH, json={"aggregate_type": "order", "key": key.upper()})
    assert linked.json() == {"ok": True, "key": key, "aggregate_type": "order"}
    assert (await client.put(PATH, json={"aggregate_type": "order", "key": key})).status_code == 200
    for other in ({"aggregate_type": "order", "key": new_id()}, {"aggregate_type": "config", "key": key}):
        refused(await client.put(PATH, json=other), 409, "source_taken")
    assert (await reader.get(PATH)).json() == {**linked.json(), "last_event": None}
    found = (await reader.get(f"/_/sources?key={key}")).json()
    assert found["sources"] == [{**TU1, "aggregate_type": "order"}]
    assert (await reader.get(f"/_/sources?key={new_id()}")).json()["sources"] == []


async def test_equal_ids_of_twenty_files_are_twenty_keys_minted_once_by_forty_requests(
    client: httpx.AsyncClient, tenant: Account
) -> None:
    wanted = [{"source": "xliff", "scope": f"{n}.xlf", "id": "tu1"} for n in range(20)]
    assert await resolved(client, *wanted) == [None] * 20
    minted = await asyncio.gather(
        *[
            resolved(client, *wanted[n % 20 :], *wanted[: n % 20], mint=True, aggregate_type="order")
            for n in range(40)
        ]
    )
    keys = minted[0]
    assert len(set(keys)) == 20
    assert all(each[-(n % 20) :] + each[: -(n % 20)] == keys for n, each in enumerate(minted) if n % 20)
    assert keys[3] == derived_key(UUID(tenant.id), "xliff", "3.xlf", 0, "tu1")
    exported = told_in((await client.get("/_/sources/xliff/export")).content)
    assert sorted((each["scope"], each["key"]) for each in exported) == sorted(
        (wanted[n]["scope"], key) for n, key in enumerate(keys)
    )
    other = await client.post("/_/sources/resolve", json={"sources": wanted[:1], "aggregate_type": "config"})
    refused(other, 409, "source_taken", "sources[0]")


async def test_minted_keys_are_of_version_4_and_those_of_sources_of_version_5(
    client: httpx.AsyncClient,
) -> None:
    minted = [(await client.post("/order", json=batch(("was_noted", n)))).json()["key"] for n in range(5)]
    derived = await resolved(client, TU1, mint=True, aggregate_type="order")
    assert [UUID(each).version for each in minted] == [4] * 5
    assert [UUID(each).version for each in derived if each] == [5]
    assert len({*minted}) == 5


async def test_what_can_be_no_source_is_refused(client: httpx.AsyncClient) -> None:
    for body, status, code, path in (
        ({}, 422, "missing_field", "sources"),
        ({"sources": {}}, 422, "invalid_field", "sources"),
        ({"sources": [1]}, 422, "invalid_field", "sources[0]"),
        ({"sources": [{"source": "x"}]}, 422, "missing_field", "sources[0].id"),
        ({"sources": [{"source": "x", "id": True}]}, 422, "invalid_field", "sources[0].id"),
        ({"sources": [{"source": "", "id": "y"}]}, 422, "invalid_field", "sources[0].source"),
        (
            {"sources": [{"source": "x", "scope": "c" * 1025, "id": "y"}]},
            422,
            "invalid_field",
            "sources[0].scope",
        ),
        ({"sources": [{"source": "x", "id": "y", "z": 1}]}, 422, "unknown_field", "sources[0].z"),
        ({"sources": [], "mint": 1}, 422, "invalid_field", "mint"),
        ({"sources": [], "aggregate_type": "no"}, 422, "unknown_aggregate_type", "aggregate_type"),
        ({"sources": [{"source": "x", "id": "y"}] * 1001}, 422, "invalid_field", "sources"),
    ):
        refused(await client.post("/_/sources/resolve", json=body), status, code, path)
    for key, code in (("x", "invalid_identifier"), ("@ORD-1", "invalid_identifier"), (5, "invalid_field")):
        refused(await client.put(PATH, json={"aggregate_type": "order", "key": key}), 422, code, "key")
    for path, part in (
        ("s" * 1025 + "/c/i", "source"),
        ("s/" + "c" * 1025 + "/i", "scope"),
        ("s/c/" + "i" * 1025, "id"),
    ):
        refused(await client.get(f"/_/sources/{path}"), 422, "invalid_field", part)
    refused(await client.get("/_/sources"), 422, "missing_field", "key")
    refused(await client.get("/_/sources?key=x"), 422, "invalid_identifier", "key")
    assert await resolved(client, {"source": "x", "id": 42}, mint=True) == await resolved(
        client, {"source": "x", "scope": "", "id": "42"}
    )


async def test_hashes_are_those_of_the_library(client: httpx.AsyncClient) -> None:
    context = {"name": "greeting", "type": "label", "properties": {"b": "2", "a": "1", "@line": "7"}}
    told = (await client.post("/_/ids/hash", json={"text": " Hello world\n", "context": context})).json()
    assert told["content"] == content_of_text("Hello world") == hashlib.sha256(b"Hello world").hexdigest()
    assert told["context"] == context_of("greeting", "label", {"a": "1", "b": "2"})
    for spelled in ('{"b":1.0,"a":"\\u0061"}', '{ "a": "a", "b": 1 }'):
        sent = f'{{"json": {spelled}}}'
        hashed = await client.post("/_/ids/hash", content=sent, headers={"content-type": "application/json"})
        assert hashed.json()["content"] == content_of_json(b'{"a":"a","b":1}')
        assert (hashed.json()["context"], hashed.json()["record"]) == (None, None)
    values = [
        (await client.post("/_/ids/hash", json={"text": "", "context": {"properties": {"a": each}}})).json()[
            "context"
        ]
        for each in (1, "1", [1], {"a": 1}, True, None, "null", 2**70, str(2**70))
    ]
    assert len(set(values)) == len(values)
    for body in (
        {},
        {"text": "a", "json": 1},
        {"text": 1},
        {"text": "", "context": []},
        {"text": "", "x": 1},
    ):
        assert (await client.post("/_/ids/hash", json=body)).status_code == 422


async def test_base62_ids_are_fresh(client: httpx.AsyncClient) -> None:
    ids = (await client.get("/_/ids/base62?count=1000")).json()["ids"]
    assert len(set(ids)) == 1000
    assert all(len(each) == 8 and each.isascii() and each.isalnum() for each in ids)
    refused(await client.get("/_/ids/base62?count=1001"), 422, "invalid_field", "count")
    assert json.loads((await client.get("/_/ids/base62")).content)["ids"] != ids[:1]


async def test_a_narrowed_key_does_not_hear_what_an_id_of_another_type_stands_for(
    client: httpx.AsyncClient, gateway: Served
) -> None:
    key = new_id()
    assert (await client.put(PATH, json={"aggregate_type": "config", "key": key})).status_code == 200
    source, scope, identity = [unquote(each) for each in PATH.split("/")[3:]]
    body = {**batch(("was_noted", {})), "source": {"source": source, "scope": scope, "id": identity}}
    for only in (["order"], ["order", "config"]):
        made = (await client.post("/_/keys", json={"scope": "write", "only": only})).json()
        async with new_client(gateway.url, made["key"]) as narrow:
            told = refused(await narrow.post("/order", json=body), 409, "source_taken", "source")
            assert (key in told["error"], "config" in told["error"]) == ("config" in only,) * 2


async def test_large_bodies_that_name_a_source_hold_up_no_other_request(client: httpx.AsyncClient) -> None:
    """One with an escaped colon is read by Python."""
    source = '"source":{"source":"s","scope":"a","id":"large"}'
    data = '{"a":"\\u003a","b":[' + ",".join(["1"] * 450_000) + "]}"
    event, meta = f'"type":"was_noted","data":{data}', json.dumps(envelope()["metadata"])
    bodies = {
        "/order": (f'{{{source},"events":[{{{event}}}],"metadata":{meta}}}', JSON),
        "/_/append": (
            f'{{"events":[{{"aggregate_type":"order",{source},{event}}}],"metadata":{meta}}}',
            JSON,
        ),
        "/_/bulk": (f'{{"aggregate_type":"order",{source},{event},"metadata":{meta}}}\n', NDJSON),
    }
    for path, (body, kind) in bodies.items():

        async def asking(path: str = path, body: str = body, kind: dict[str, str] = kind) -> None:
            answer = await client.post(path, content=body, headers=kind)
            assert answer.status_code in (200, 413), answer.text

        await holds_up_no_other(asking)
