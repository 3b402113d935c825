"""Rows as server-sent events: what there is, then each change."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, NamedTuple

import httpx
import pytest

from gateway.follow import moves
from gateway.follow.reading import Reading
from tests.follow.conftest import Shop
from tests.support.calls import new_id, refused


class Message(NamedTuple):
    event: str
    id: str
    data: dict[str, Any]


class Stream:
    """Messages of one connection, one after the other."""

    def __init__(self, lines: AsyncIterator[str]) -> None:
        self._lines = lines

    async def next(self) -> Message:
        fields: dict[str, str] = {}
        async with asyncio.timeout(20):
            async for line in self._lines:
                if line and not line.startswith(":"):
                    name, _, value = line.partition(": ")
                    fields[name] = value
                elif "data" in fields:
                    return Message(fields.get("event", ""), fields.get("id", ""), json.loads(fields["data"]))
                elif not line:
                    fields = {}
        raise AssertionError("the stream has ended")


@asynccontextmanager
async def following(client: httpx.AsyncClient, path: str, after: str | None = None) -> AsyncIterator[Stream]:
    headers = {"accept": "text/event-stream", **({"last-event-id": after} if after else {})}
    async with client.stream("GET", path, headers=headers) as response:
        assert response.status_code == 200
        yield Stream(aiter(response.aiter_lines()))


async def test_a_filtered_list_has_what_enters_changes_and_leaves(shop: Shop) -> None:
    there, other, late = (new_id() for _ in range(3))
    await shop.append(there, "was_placed", {"status": "open", "total": 1})
    await shop.append(other, "was_placed", {"status": "lost", "total": 2})
    await shop.get("/order")
    async with following(shop.client, "/order?filter[status]=open") as stream:
        first = await stream.next()
        assert (first.event, first.data["key"]) == ("upsert", there)
        await shop.append(late, "was_placed", {"status": "open", "total": 3})
        second = await stream.next()
        assert (second.event, second.data["key"], second.data["data"]["total"]) == ("upsert", late, 3)
        await shop.append(other, "was_placed", {"status": "lost"})  # it was not in the list, and is not
        await shop.append(there, "was_paid")
        third = await stream.next()
        assert (third.event, third.data) == ("delete", {"key": there})
    await shop.append(late, "was_placed", {"total": 4})
    async with following(shop.client, "/order?filter[status]=open", third.id) as stream:
        resumed = await stream.next()
        assert (resumed.event, resumed.data["data"]["total"]) == ("upsert", 4)


async def test_one_row_of_a_projection_is_followed_before_it_is_there(shop: Shop) -> None:
    customer = new_id()
    await shop.get("/_/projections/customer_totals")
    async with following(shop.client, f"/_/projections/customer_totals/{customer}") as stream:
        await shop.append(new_id(), "was_placed", {"total": 2, "customer_id": customer})
        made = await stream.next()
        assert (made.event, made.data["data"]) == ("upsert", {"orders": 1, "spent": 2})
        await shop.append(new_id(), "was_placed", {"total": 2, "customer_id": new_id()})
        await shop.append(customer, "was_closed", of="customer")
        assert (await stream.next())[::2] == ("delete", {"key": customer})


async def test_rows_are_live_without_aliases(shop: Shop) -> None:
    answer = await shop.client.get("/order?keys=alias", headers={"accept": "text/event-stream"})
    refused(answer, 422, "invalid_field", "aliases")


async def test_a_last_event_id_of_live_rows_comes_once(shop: Shop) -> None:
    known = (await shop.client.get("/order")).json()["position"]
    headers = [("accept", "text/event-stream"), ("last-event-id", known), ("last-event-id", known)]
    async with shop.client.stream("GET", "/order", headers=headers) as answer:
        assert answer.is_error
        await answer.aread()
        refused(answer, 400, "invalid_position", "Last-Event-ID")


async def test_a_ticket_is_refused_as_its_live_rows_would_be(shop: Shop) -> None:
    """The page of an EventSource is not told why its stream is refused."""
    for path in (
        "/order?filter[colour]=red",
        "/order?limit=0",
        "/order?after=x",
        "/order?aliases=true",
        "/_/projections/customer_totals?filter[colour]=red",
        "/_/projections/customer_totals/none?fields=spent",
        "/_/projections/list:customer",
    ):
        answer = await shop.client.post("/_/tickets", json={"path": path})
        itself = await shop.client.get(path, headers={"accept": "text/event-stream"})
        assert (answer.status_code, answer.json()) == (itself.status_code, itself.json())
        assert answer.status_code in (400, 404, 422)
    unlisted = await shop.client.post("/_/tickets", json={"path": "/customer"})
    refused(unlisted, 422, "not_listed", "type", ("listed",))
    for path in ("/order?filter[status]=open", f"/_/projections/customer_totals/{new_id()}"):
        assert (await shop.client.post("/_/tickets", json={"path": path})).status_code == 201


async def test_a_crowd_of_followers_asks_postgres_no_oftener_than_few(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of all tenants are read over few connections."""
    monkeypatch.setattr(moves, "_EACH_S", 0.01)  # together 100 looks a second
    looks, changed = 0, Reading.changed

    async def counted(*args: Any) -> Any:
        nonlocal looks
        looks += 1
        return await changed(*args)

    monkeypatch.setattr(Reading, "changed", counted)
    key = new_id()
    await shop.append(key, "was_placed")
    await shop.get("/order")
    async with AsyncExitStack() as ending, httpx.AsyncClient(
        base_url=shop.client.base_url, headers=shop.client.headers, limits=httpx.Limits(), timeout=30,
        trust_env=False,
    ) as client:  # fmt: skip
        crowd = [await ending.enter_async_context(following(client, "/order")) for _ in range(60)]
        for each in crowd:
            await each.next()
        looks, begun = 0, time.monotonic()
        while time.monotonic() < begun + 2:
            await shop.append(key, "was_paid")
        assert looks <= 100 * (time.monotonic() - begun) + len(crowd)
