"""The properties that the benchmark of dcb.events asks of a store: consistent under 20 writers on one
boundary, positions in one order, and unrelated writers that never fail."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

from tests.http.test_feed_query import client, queried
from tests.support.calls import ACTOR, new_id

__all__ = ["client"]  # the fixture

WRITERS = 20
ROUNDS = 6


def made(data: dict[str, Any], items: list[dict[str, Any]], after: str | None) -> dict[str, Any]:
    return {
        "events": [{"aggregate_type": "order", "type": "was_made", "data": data}],
        "metadata": {"actor": ACTOR},
        "condition": {"fail_if_events_match": {"items": items}, "after": after},
    }


async def test_twenty_writers_on_one_boundary_keep_what_each_of_them_decides(
    client: httpx.AsyncClient,
) -> None:
    """A course has room for 7: each writer reads how many are in it, and subscribes while there is room."""
    course, room = f"course:{new_id()}", 7
    items = [{"types": ["order.was_made"], "tags": [course]}]

    async def subscribe(n: int) -> int:
        done = 0
        page = await queried(client, *items)
        there, after = len(page["events"]), page["position"]
        while there < room:
            data = {"courses": [course.partition(":")[2]], "student": f"s{n}"}
            response = await client.post("/_/append", json=made(data, items, after))
            told = response.json()
            if response.status_code == 201:
                done += 1
                there, after = there + 1, told["position"]
            else:
                assert told["code"] == "condition_failed", told
                assert told["matched"], "a refusal without an event that justifies it"
                there, after = there + len(told["matched"]), told["position"]
        return done

    done = await asyncio.gather(*(subscribe(n) for n in range(WRITERS)))
    page = await queried(client, *items)
    assert (sum(done), len(page["events"])) == (room, room)


async def test_positions_are_unique_and_grow_in_the_order_of_the_feed(client: httpx.AsyncClient) -> None:
    async def write(n: int) -> list[str]:
        positions = []
        for _ in range(ROUNDS):
            never = [{"tags": [f"student:never-{n}"]}]
            response = await client.post("/_/append", json=made({"student": f"s{n}"}, never, None))
            assert response.status_code == 201, response.text
            positions.append(response.json()["position"])
        return positions

    told = await asyncio.gather(*(write(n) for n in range(WRITERS)))
    page = (await client.get("/_/feed", params={"limit": "1000"})).json()
    fed = [event["position"] for event in page["events"]]
    assert len(set(fed)) == len(fed) == WRITERS * ROUNDS
    order = {position: n for n, position in enumerate(fed)}
    for positions in told:
        places = [order[each] for each in positions]
        assert places == sorted(places)


async def test_unrelated_writers_never_fail(client: httpx.AsyncClient) -> None:
    async def write(n: int) -> None:
        items, after = [{"tags": [f"student:s{n}"]}], None
        for _ in range(ROUNDS):
            response = await client.post("/_/append", json=made({"student": f"s{n}"}, items, after))
            assert response.status_code == 201, response.text
            after = response.json()["position"]

    await asyncio.gather(*(write(n) for n in range(WRITERS)))
