"""Subscriptions whose events carry the aliases of their aggregates."""

from __future__ import annotations

from typing import Any

import httpx

from tests.relay.conftest import Bench, until
from tests.relay.receivers import WebReceiver
from tests.relay.test_webhook import target
from tests.support.accounts import SPEC
from tests.support.calls import appended, envelope, new_id, refused

PULL = {"filter": {"types": ["order"]}, "start": "beginning", "target": {"type": "pull"}}


async def numbered(client: httpx.AsyncClient, **of_type: object) -> str:
    """The key of an order that has the number ORD-1."""
    types = {**SPEC["aggregate_types"], "order": {**SPEC["aggregate_types"]["order"], **of_type}}
    spec = {**SPEC, "aggregate_types": types, "public_ids": {"key": "ORD", "types": ["order"]}}
    assert (await client.put("/_/spec", json=spec)).status_code == 200
    key, prefer = new_id(), {"prefer": "wait"}
    made = await client.post(f"/order/{key}/was_noted", json=envelope({"n": 1}), headers=prefer)
    assert made.json()["aliases"] == ["ORD-1"], made.text
    return key


async def test_what_is_sent_carries_the_aliases_that_its_subscription_asks_for(
    bench: Bench, client: httpx.AsyncClient, receiver: WebReceiver
) -> None:
    key = await numbered(client)
    for name, asked in (("named", {"aliases": True}), ("plain", {})):
        document = {"start": "beginning", "target": target(receiver), **asked}
        made = await bench.subscriptions.put(bench.tenant, name, document)
        assert (await bench.stands(name))["aliases"] is asked.get("aliases"), made
    async with bench.relaying():
        await until(lambda: len(receiver.accepted) == 2)
    told = sorted([each.event.get("aliases", ()) for each in receiver.accepted], key=len)
    assert told == [(), ["ORD-1"]]
    assert {each.event["key"] for each in receiver.accepted} == {key}


async def test_what_is_claimed_carries_aliases_as_the_claim_or_the_subscription_asks(
    bench: Bench, client: httpx.AsyncClient
) -> None:
    await numbered(client)
    at = "/_/subscriptions/some"

    async def claimed(**body: Any) -> Any:
        answer = (await client.post(f"{at}/claim", json=body)).json()
        (event,) = answer["events"]
        assert (await client.post(f"{at}/ack", json={"claim": answer["claim"]})).json()["aggregates"] == 1
        return event

    assert (await client.put(at, json={**PULL, "aliases": True})).status_code == 201
    assert list(await claimed())[-2:] == ["position", "aliases"]
    for document, body, told in (
        (PULL, {"aliases": True}, ["ORD-1"]),
        ({**PULL, "aliases": True}, {"aliases": False}, None),
        ({**PULL, "aliases": False}, {}, None),
    ):
        assert (await client.delete(at)).status_code == 200
        assert (await client.put(at, json=document)).status_code == 201
        assert (await claimed(**body)).get("aliases") == told
    refused(await client.post(f"{at}/claim", json={"aliases": "yes"}), 422, "invalid_field", "aliases")
    refused(await client.put(at, json={**PULL, "aliases": "yes"}), 422, "invalid_field", "aliases")


async def test_an_aggregate_without_a_name_has_no_aliases_in_a_claim(client: httpx.AsyncClient) -> None:
    key, other = await numbered(client), new_id()
    await appended(client, "order", key, "was_noted", {"n": 2})
    await appended(client, "ticket", other, "was_opened", {})
    document = {**PULL, "filter": {"types": ["order", "ticket"]}, "aliases": True}
    assert (await client.put("/_/subscriptions/some", json=document)).status_code == 201
    events = (await client.post("/_/subscriptions/some/claim", json={})).json()["events"]
    found = [(each["key"], each["aliases"]) for each in events]
    assert sorted(found) == sorted([(key, ["ORD-1"]), (key, ["ORD-1"]), (other, [])])


async def test_a_type_that_tells_its_aliases_tells_them_in_what_goes_out(
    bench: Bench, client: httpx.AsyncClient, receiver: WebReceiver
) -> None:
    await numbered(client, aliases=True)
    await appended(client, "ticket", new_id(), "was_opened", {})
    for name, asked in (("silent", {}), ("without", {"aliases": False})):
        at = f"/_/subscriptions/{name}"
        document = {**PULL, "filter": {"types": ["order", "ticket"]}, **asked}
        assert (await client.put(at, json=document)).status_code == 201
        events = (await client.post(f"{at}/claim", json={})).json()["events"]
        told = {each["aggregate_type"]: each.get("aliases") for each in events}
        assert told == {"order": None if asked else ["ORD-1"], "ticket": None}
    await bench.put("sent", target(receiver), types=["order"])
    async with bench.relaying():
        await until(lambda: len(receiver.accepted) == 1)
    assert receiver.accepted[0].event["aliases"] == ["ORD-1"]


async def test_a_later_spec_decides_whether_a_type_tells_its_aliases(
    bench: Bench, client: httpx.AsyncClient
) -> None:
    at = "/_/subscriptions/some"
    assert (await client.put(at, json={**PULL, "start": "now"})).status_code == 201
    key = await numbered(client)

    async def told() -> object:
        answer = (await client.post(f"{at}/claim", json={"wait": 1})).json()
        if not answer["events"]:
            return "nothing"
        ids = [each["id"] for each in answer["events"]]
        assert (await client.post(f"{at}/ack", json={"ids": ids})).status_code == 200
        return answer["events"][-1].get("aliases")

    assert await told() is None
    types = {**SPEC["aggregate_types"], "order": {**SPEC["aggregate_types"]["order"], "aliases": True}}
    spec = {**SPEC, "aggregate_types": types, "public_ids": {"key": "ORD", "types": ["order"]}}
    assert (await client.put("/_/spec", json={"spec": spec})).status_code == 200

    async def told_by_now() -> bool:
        await appended(client, "order", key, "was_noted", {"n": 1})
        return await told() == ["ORD-1"]

    await until(told_by_now)


async def test_an_alias_stands_for_the_key_where_that_is_asked_for(
    bench: Bench, client: httpx.AsyncClient, receiver: WebReceiver
) -> None:
    key, other = await numbered(client), new_id()
    await appended(client, "ticket", other, "was_opened", {"key": "value"})
    both = {**PULL, "filter": {"types": ["order", "ticket"]}}
    for name, asked, body in (
        ("asked", {}, {"keys": "alias"}),
        ("declared", {"keys": "alias"}, {}),
        ("both", {"keys": "alias", "aliases": False}, {}),
    ):
        at = f"/_/subscriptions/{name}"
        assert (await client.put(at, json={**both, **asked})).status_code == 201
        assert (await client.get(at)).json()["keys"] == asked.get("keys")
        answer = (await client.post(f"{at}/claim", json=body)).json()
        named, nameless = sorted(answer["events"], key=lambda each: each["aggregate_type"])
        assert (named["aliases"], "key" in named, key in str(answer)) == (["ORD-1"], False, False)
        assert (nameless["key"], nameless["aliases"], nameless["data"]) == (other, [], {"key": "value"})
        waiting = (await client.get(f"{at}/waiting?keys=alias")).json()["waiting"]
        told = {each["aggregate_type"]: (each.get("key"), each["aliases"]) for each in waiting}
        assert told == {"order": (None, ["ORD-1"]), "ticket": (other, [])}
    document = {"start": "beginning", "target": target(receiver), "keys": "alias"}
    await bench.subscriptions.put(bench.tenant, "sent", {**document, "filter": {"types": ["order"]}})
    async with bench.relaying():
        await until(lambda: len(receiver.accepted) == 1)
    (sent,) = receiver.accepted
    assert ("key" in sent.event, sent.event["aliases"]) == (False, ["ORD-1"])
    refused(await client.put(at, json={**PULL, "keys": "uuid"}), 422, "invalid_field", "keys")
    refused(await client.post(f"{at}/claim", json={"keys": "uuid"}), 422, "invalid_field", "keys")
