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


async def numbered(client: httpx.AsyncClient) -> str:
    """The key of an order that has the number ORD-1."""
    spec = {**SPEC, "public_ids": {"key": "ORD", "types": ["order"]}}
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
        assert (await bench.stands(name))["aliases"] is bool(asked), made
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
