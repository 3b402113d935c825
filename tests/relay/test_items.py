"""Subscriptions whose filter has items: what a query matches goes out, and nothing else."""

from __future__ import annotations

from typing import Any

import httpx

from tests.relay.conftest import Bench, until
from tests.relay.receivers import Answer, WebReceiver
from tests.relay.test_webhook import target
from tests.support.accounts import SPEC
from tests.support.calls import appended, new_id, refused


def tagged() -> dict[str, Any]:
    order = SPEC["aggregate_types"]["order"]
    events = {**order["events"], "was_noted": {"schema": True, "tags": [{"hash": "of:$.data.n"}]}}
    return {**SPEC, "aggregate_types": {**SPEC["aggregate_types"], "order": {**order, "events": events}}}


async def test_what_matches_goes_out_in_order_also_behind_what_failed(
    bench: Bench, client: httpx.AsyncClient, receiver: WebReceiver
) -> None:
    response = await client.put("/_/spec", json=tagged())
    assert response.status_code == 200, response.text
    keys = [new_id() for _ in range(3)]
    items = [{"tags": [{"hash": "of:2"}]}, {"types": ["order.was_named"], "tags": [f"order:{keys[0]}"]}]
    receiver.answer = lambda _: Answer(500)
    await bench.put("some", target(receiver, retry_s=[0.2] * 50), items=items)
    async with bench.relaying():
        await bench.append(keys, 5)
        await until(lambda: len(receiver.deliveries) >= 3)
        for key in keys:
            await appended(client, "order", key, "was_named", {"name": "x"})
        await bench.append(keys, 5)
        receiver.answer = lambda _: Answer()
        await until(lambda: len(receiver.accepted) == 7)
    sent = sorted((keys.index(each.aggregate[1]), each.event["version"]) for each in receiver.accepted)
    assert sent == [(0, 3), (0, 6), (0, 9), (1, 3), (1, 9), (2, 3), (2, 9)]


async def test_items_are_held_to_the_spec_and_shown_as_they_were_put(client: httpx.AsyncClient) -> None:
    items = [{"types": ["order.was_noted"]}, {"tags": ["order:global", {"hash": "order:x"}]}]
    document = {"filter": {"items": items}, "target": {"type": "pull"}}
    response = await client.put("/_/subscriptions/some", json=document)
    assert response.status_code == 201, response.text
    assert response.json()["filter"] == {"items": items}
    await appended(client, "order", new_id(), "was_named", {"name": "x"})
    noted = await appended(client, "order", new_id(), "was_noted", {})
    claimed = (await client.post("/_/subscriptions/some/claim", json={"limit": 10})).json()
    assert [event["id"] for event in claimed["events"]] == [noted["event_id"]]
    document["filter"] = {"items": [{"tags": ["ordr:global"]}]}
    response = await client.put("/_/subscriptions/other", json=document)
    refused(response, 422, "unknown_tag", "filter.items[0].tags[0]")


async def test_a_filter_has_no_more_tags_than_a_query(client: httpx.AsyncClient) -> None:
    """Also where its names are not held to the spec, and in a declared one."""

    async def put(*items: dict[str, Any]) -> httpx.Response:
        document = {"filter": {"items": list(items), "include_undeclared": True}, "target": {"type": "pull"}}
        return await client.put("/_/subscriptions/some", json=document)

    def tags(n: int, count: int) -> dict[str, Any]:
        return {"tags": [f"order:n{n}-{k}" for k in range(count)]}

    refused(await put(tags(0, 18)), 422, "invalid_field", "filter.items[0].tags")
    refused(await put(*(tags(n, 17) for n in range(12))), 422, "invalid_field", "filter.items")
    assert (await put(*(tags(n, 17) for n in range(11)))).status_code == 201
