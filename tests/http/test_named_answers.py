"""Aliases in answers, in place of keys if asked for; children and parents; one prefix for two kinds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import asyncpg
import httpx
import pytest

from gateway.names import hash_ids
from tests.support.accounts import SPEC, Account, open_account
from tests.support.calls import ACTOR, append, appended, batch, new_client, new_id, refused
from tests.support.serving import Served

WAIT = {"prefer": "wait"}
NAMES: dict[str, Any] = {
    **SPEC,
    "public_ids": {"key": "BD", "types": ["order"]},
    "hash_ids": {"prefix": "bd", "types": ["order"]},
}


async def client_of(
    gateway: Served, outbox: asyncpg.Pool, spec: dict[str, Any]
) -> tuple[httpx.AsyncClient, Account]:
    account = await open_account(outbox, spec)
    return new_client(gateway.url, account.admin), account


async def placed(client: httpx.AsyncClient, data: object = None, **more: object) -> dict[str, Any]:
    response = await client.post("/order", json={**batch(("was_placed", data or {})), **more}, headers=WAIT)
    assert response.status_code == 201, response.text
    return dict(response.json())


async def test_sequential_and_hash_ids_may_share_a_prefix(gateway: Served, outbox: asyncpg.Pool) -> None:
    client, account = await client_of(gateway, outbox, NAMES)
    async with client:
        made = await placed(client)
        body = hash_ids.bodies(UUID(account.id).bytes, "order", made["key"])[0]
        assert made["aliases"] == ["BD-1", f"bd-{body}"]
        for alias in ("BD-1", "bd-1", f"bd-{body}", f"BD-{body.upper()}"):
            assert (await client.get(f"/order/@{alias}")).json()["key"] == made["key"]


async def test_answers_tell_aliases_and_may_leave_out_keys(gateway: Served, outbox: asyncpg.Pool) -> None:
    client, _ = await client_of(gateway, outbox, {**NAMES, "hash_ids": {}})
    async with client:
        made = await placed(client, {"key": "value", "a": 1.0})
        key, other = made["key"], new_id()
        await appended(client, "config", other, "was_changed", {})
        event_id = made["event_ids"][0]
        for path, inner in (
            (f"/order/{key}", None),
            (f"/order/{key}/events", "events"),
            (f"/order/{key}/events/1", "event"),
            (f"/_/events/{event_id}", "event"),
            ("/_/feed?types=order", "events"),
        ):
            joint = "&" if "?" in path else "?"
            plain, told, hidden = [
                (await client.get(path + more)).json()
                for more in ("", f"{joint}aliases=true", f"{joint}keys=alias")
            ]
            for answer, has_key in ((told, True), (hidden, False)):
                place = answer if inner is None else answer[inner]
                place = place[0] if isinstance(place, list) else place
                assert (place["aliases"], "key" in place) == (["BD-1"], has_key), path
                assert place["data"] == {"key": "value", "a": 1.0}
            assert key not in str(hidden), path
            assert "aliases" not in str(plain)
        nameless = (await client.get(f"/config/{other}?keys=alias")).json()
        assert (nameless["key"], nameless["aliases"]) == (other, [])
        by_name = await client.get("/order/@BD-1?keys=alias")
        assert by_name.headers["content-location"] == "/order/@BD-1"
        refused(await client.get(f"/order/{key}?keys=uuid"), 422, "invalid_field", "keys")
        stream = {"accept": "application/cloudevents-batch+json"}
        refused(await client.get("/_/feed?aliases=true", headers=stream), 422, "invalid_field", "aliases")


@pytest.mark.parametrize("asked", ["?aliases=true", "?keys=alias"])
async def test_an_answer_with_aliases_is_whole_since_they_come_without_an_event(
    gateway: Served, outbox: asyncpg.Pool, asked: str
) -> None:
    client, _ = await client_of(gateway, outbox, {**NAMES, "hash_ids": {}})
    async with client:
        key = (await placed(client))["key"]
        etag = {"if-none-match": (await client.get(f"/order/{key}")).headers["etag"]}
        assert (await client.get(f"/order/{key}", headers=etag)).status_code == 304
        answer = await client.get(f"/order/{key}{asked}", headers=etag)
        assert (answer.status_code, answer.json()["aliases"]) == (200, ["BD-1"])


@asynccontextmanager
async def following(client: httpx.AsyncClient, path: str) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
    """The events of a stream of server-sent events."""

    async def events() -> AsyncIterator[dict[str, Any]]:
        async for line in response.aiter_lines():
            if line.startswith("data: "):
                yield json.loads(line[6:])

    async with (
        asyncio.timeout(30),
        client.stream("GET", path, headers={"accept": "text/event-stream"}) as response,
    ):
        assert response.status_code == 200
        yield events()


@pytest.mark.parametrize("told_by_type", [False, True])
async def test_streams_tell_aliases_and_may_leave_out_keys(
    gateway: Served, outbox: asyncpg.Pool, told_by_type: bool
) -> None:
    order = {**SPEC["aggregate_types"]["order"], "aliases": told_by_type}
    types = {**SPEC["aggregate_types"], "order": order}
    client, _ = await client_of(gateway, outbox, {**NAMES, "aggregate_types": types, "hash_ids": {}})
    async with client:
        key, other = (await placed(client, {"key": "value"}))["key"], new_id()
        await appended(client, "config", other, "was_changed", {})
        asked = "" if told_by_type else "&aliases=true"
        for path in ("/_/feed?types=order", f"/order/{key}/events?from=1"):
            for more, shown in ((asked, key), ("&keys=alias", None)):
                lines = await client.get(path + more, headers={"accept": "application/x-ndjson"})
                async with following(client, path + more) as events:
                    for event in (json.loads(lines.text), await anext(events)):
                        assert (event["aliases"], event.get("key")) == (["BD-1"], shown)
                        assert event["data"] == {"key": "value"}
        if told_by_type:
            plain = await client.get("/_/feed?aliases=false", headers={"accept": "application/x-ndjson"})
            assert plain.text and "aliases" not in plain.text
            async with following(client, "/_/feed") as events:
                assert [(await anext(events)).get("aliases") for _ in range(2)] == [["BD-1"], None]
        async with following(client, "/_/feed?types=config&keys=alias") as events:
            nameless = await anext(events)
            assert (nameless["key"], nameless["aliases"]) == (other, [])


@pytest.mark.parametrize("coding", ["identity", "gzip"])
async def test_live_events_tell_aliases_in_place_of_keys(
    gateway: Served, outbox: asyncpg.Pool, coding: str
) -> None:
    client, _ = await client_of(gateway, outbox, {**NAMES, "hash_ids": {}})
    async with client:
        keys = [(await placed(client, {"n": n}))["key"] for n in range(3)]
        client.headers["accept-encoding"] = coding
        feed, one = "/_/feed?types=order&keys=alias&upcast=true", "/order/@bd-1/events?keys=alias"
        async with following(client, feed) as all_events, following(client, one) as of_one:
            assert [(await anext(all_events))["aliases"] for _ in range(3)] == [["BD-1"], ["BD-2"], ["BD-3"]]
            assert (await anext(of_one))["data"] == {"n": 0}
            for n in range(3, 9):
                await appended(client, "order", keys[n % 3], "was_placed", {"n": n})
            told = [await anext(all_events) for _ in range(6)]
            assert [(each["data"]["n"], each["aliases"]) for each in told] == [
                (n, [f"BD-{n % 3 + 1}"]) for n in range(3, 9)
            ]
            told += [await anext(of_one) for _ in range(2)]
            assert [each["data"]["n"] for each in told[-2:]] == [3, 6]
            assert not any("key" in each for each in told)


async def test_a_type_may_tell_its_aliases_by_itself(gateway: Served, outbox: asyncpg.Pool) -> None:
    types = {**SPEC["aggregate_types"], "order": {**SPEC["aggregate_types"]["order"], "aliases": True}}
    client, _ = await client_of(gateway, outbox, {**NAMES, "aggregate_types": types, "hash_ids": {}})
    async with client:
        key = (await placed(client))["key"]
        for _ in range(3):
            assert (await client.get(f"/order/{key}")).json()["aliases"] == ["BD-1"]
        assert "aliases" not in (await client.get(f"/order/{key}?aliases=false")).json()
        other = new_id()
        await appended(client, "config", other, "was_changed", {})
        page = (await client.get("/_/feed?types=order,config")).json()
        assert [(each["key"], each.get("aliases")) for each in page["events"]] == [
            (key, ["BD-1"]),
            (other, None),
        ]
        event = page["events"][0]
        assert (await client.get(f"/_/events/{event['id']}")).json()["event"]["aliases"] == ["BD-1"]
        assert "aliases" not in (await client.get("/_/feed?types=order&aliases=false")).json()["events"][0]


async def test_children_are_listed_and_say_whose_they_are(gateway: Served, outbox: asyncpg.Pool) -> None:
    client, _ = await client_of(gateway, outbox, {**NAMES, "public_ids": {}})
    async with client:
        parent = await placed(client)
        (name,) = parent["aliases"]
        children = [await placed(client, parent=f"@{name}") for _ in range(12)]
        grandchild = await placed(client, parent=f"@{name}.2")
        first = (await client.get(f"/order/@{name}/children?limit=10")).json()
        assert [each["alias"] for each in first["children"]] == [f"{name}.{n}" for n in range(1, 11)]
        assert first["children"][0]["key"] == children[0]["key"]
        rest = (await client.get(f"/order/{parent['key']}/children?after={first['next']}")).json()
        assert ([each["alias"] for each in rest["children"]], rest["next"]) == (
            [f"{name}.11", f"{name}.12"],
            None,
        )
        assert (children[0]["parent"], grandchild["parent"]) == (name, f"{name}.2")
        assert "parent" not in parent
        for path in ("events", "events/1"):
            assert (await client.get(f"/order/@{name}.1/{path}")).json()["parent"] == name
        for _ in range(2):
            assert (await client.get(f"/order/{children[0]['key']}")).json()["parent"] == name
            assert (await client.get(f"/order/@{name}.2.1")).json()["parent"] == f"{name}.2"
            assert "parent" not in (await client.get(f"/order/{parent['key']}")).json()
        assert (await client.get(f"/order/{grandchild['key']}/aliases")).json()["parent"] == f"{name}.2"
        none = (await client.get(f"/order/{grandchild['key']}/children")).json()
        assert (none["children"], none["next"]) == ([], None)
        refused(await client.get(f"/order/{new_id()}/children"), 404, "not_found")
        refused(await client.get(f"/order/@{name}/children?after=x"), 422, "invalid_field", "after")


@pytest.mark.parametrize("length", [9, 16])
async def test_hash_ids_may_be_longer_and_of_what_an_event_says(
    gateway: Served, outbox: asyncpg.Pool, length: int
) -> None:
    of = {"title": "$.data.t", "description": "$.data.d", "created": "$.data.at"}
    hashed = {"prefix": "bd", "types": ["order"], "length": length, "of": of}
    client, account = await client_of(gateway, outbox, {**NAMES, "public_ids": {}, "hash_ids": hashed})
    async with client:
        at = "2026-11-25T10:00:00.123456789+01:00"
        first = await placed(client, {"t": "T", "d": "D", "at": at})
        (name,) = first["aliases"]
        changed = {"t": "another", "d": "D", "at": at}
        await appended(client, "order", first["key"], "was_placed", changed)
        assert (await client.get(f"/order/{first['key']}/aliases")).json()["aliases"] == [name]
        created = hash_ids.nanoseconds("2026-11-25T09:00:00.123456789Z")
        assert created is not None
        bodies = hash_ids.bodies_of_instant("T", "D", created, account.id)
        assert name == "bd-" + next(body for body in bodies if len(body) >= length)
        later = {"t": "T", "d": "D", "at": at.replace("789", "790")}
        assert (await placed(client, later))["aliases"] != [name]
        made = await placed(client, {"t": 1})
        by_key = hash_ids.bodies(UUID(account.id).bytes, "order", made["key"])
        assert made["aliases"] == ["bd-" + next(body for body in by_key if len(body) >= length)]
        assert len({len(each) for each in bodies}) == len(bodies)


@pytest.mark.parametrize("key", ["global", "b0000000-0000-4000-a000-000000000001:2026"])
async def test_only_roots_are_numbered(gateway: Served, outbox: asyncpg.Pool, key: str) -> None:
    client, _ = await client_of(gateway, outbox, {**NAMES, "hash_ids": {}})
    async with client:
        told = await append(client, "order", key, "was_placed", {}, WAIT)
        assert told.json()["aliases"] == []
        assert (await placed(client))["aliases"] == ["BD-1"]


async def test_a_client_works_by_names_and_reads_no_key(gateway: Served, outbox: asyncpg.Pool) -> None:
    order = {**SPEC["aggregate_types"]["order"], "list": {"by": ["customer.name"]}}
    spec = {
        **SPEC,
        "aggregate_types": {**SPEC["aggregate_types"], "order": order},
        "public_ids": {"key": "ORD", "types": ["order"]},
        "hash_ids": {"prefix": "bd", "types": ["order"]},
        "subscriptions": {"work": {"start": "beginning", "keys": "alias", "target": {"type": "pull"}}},
    }
    account = await open_account(outbox, spec)
    async with new_client(gateway.url, account.admin) as client:
        body = {"events": [{"type": "was_named", "data": {"name": "Ada"}}], "metadata": {"actor": ACTOR}}
        made = (await client.post("/order", json=body, headers={"prefer": "wait"})).json()
        number, name = made["aliases"]
        assert number == "ORD-1"
        child = {**body, "parent": f"@{name}"}
        below = (await client.post("/order", json=child, headers={"prefer": "wait"})).json()
        assert f"{name}.1" in below["aliases"]
        renamed = {"data": {"name": "Eve"}, "metadata": {"actor": ACTOR}}
        answer = await client.post("/order/@ord-1/was_named", json=renamed)
        covered = {"after": answer.json()["position"], "wait": "5"}
        for path, params in (
            ("/order/@ORD-1", {}),
            (f"/order/@{name}/events", {}),
            ("/order/@ord-1/events/2", {}),
            (f"/order/@{name}.1", {}),
            ("/order", covered),
            ("/_/feed", {}),
        ):
            read = await client.get(path, params={"keys": "alias", **params})
            assert read.status_code == 200, read.text
            told = read.text + read.headers.get("content-location", "")
            assert name in told
            assert made["key"] not in told and below["key"] not in told, path
        for method, path in (("QUERY", "/order"), ("POST", "/order/_query")):
            query = {"after": answer.json()["position"], "wait": 5}
            told = (await client.request(method, path, json=query, params={"keys": "alias"})).text
            assert name in told
            assert made["key"] not in told and below["key"] not in told, path
            garbled = await client.request(method, path, content=b"{", params={"keys": "x"})
            refused(garbled, 422, "invalid_field", "keys")
        claimed = await client.post("/_/subscriptions/work/claim", json={})
        assert [each["aliases"] for each in claimed.json()["events"]] != []
        assert made["key"] not in claimed.text and below["key"] not in claimed.text
