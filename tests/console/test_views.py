"""What pages show, over plain HTTP: no browser is needed for it."""

from __future__ import annotations

import html
import re
from typing import Any

import httpx
import pytest

from gateway.console.drawing import leads
from tests.console.test_site import SIGN_IN, person, signed_in, token_of
from tests.relay.receivers import SECRET, Answer, web_receiver
from tests.support.accounts import Account
from tests.support.calls import appended, new_client, new_id, until
from tests.support.serving import Served

__all__ = ("person", "signed_in")
CONSOLE = "/_/console"


async def test_the_overview_says_what_a_key_may_not_read(
    person: httpx.AsyncClient, gateway: Served, shop: Account
) -> None:
    await person.post(SIGN_IN, data={"key": shop.admin})
    assert "Nothing." in (await person.get(f"{CONSOLE}/overview")).text
    await person.post(SIGN_IN, data={"key": shop.read})
    shown = (await person.get(f"{CONSOLE}/overview")).text
    assert "Nothing." not in shown
    assert "<li>Deliveries: " in shown and "<li>Subscriptions: " in shown


async def test_the_feed_leads_to_the_first_event(
    signed_in: httpx.AsyncClient, gateway: Served, shop: Account
) -> None:
    async with new_client(gateway.url, shop.write) as client:
        key = new_id()
        written = [await appended(client, "order", key, "was_noted", {"n": n}) for n in range(110)]
    shown: list[str] = []
    query: dict[str, str] = {"types": "order"}
    while query:
        page = (await signed_in.get(f"{CONSOLE}/feed", params=query)).text
        shown += re.findall(r'scope="row"><a href="/_/console/events/([0-9a-f-]{36})"', page)
        after = re.search(r'name="after" value="([^"]+)"><button>Earlier', page)
        query = {"types": "order", "after": html.unescape(after[1])} if after else {}
    assert shown == [each["event_id"] for each in written][::-1]


async def test_an_event_is_skipped_only_where_it_was_asked_for_twice(
    signed_in: httpx.AsyncClient, gateway: Served, shop: Account
) -> None:
    async with web_receiver() as receiver, new_client(gateway.url, shop.admin) as client:
        receiver.answer = lambda _: Answer(500)
        target = {"type": "webhook", "url": receiver.url, "secret": SECRET, "retry_s": []}
        assert (await client.put("/_/subscriptions/hooks", json={"target": target})).status_code == 201
        events = [(await appended(client, "order", new_id(), "was_noted"))["event_id"] for _ in range(2)]

        async def parked() -> bool:
            return bool((await client.get("/_/subscriptions/hooks")).json()["parked"] == 2)

        await until(parked)
        act = {"csrf": await token_of(signed_in), "event_id": events[0]}
        asked = await signed_in.post(f"{CONSOLE}/out/hooks/skip", data=act)
        assert await parked()
        sure = re.findall(r'name="event_id" value="([^"]+)">\s*<input type="hidden" name="sure"', asked.text)
        assert sure == [events[0]]
        skipped = await signed_in.post(f"{CONSOLE}/out/hooks/skip", data={**act, "sure": "yes"})
        assert skipped.status_code == 303
        waiting = (await client.get("/_/subscriptions/hooks/waiting?state=parked")).json()["waiting"]
        assert [each["event_id"] for each in waiting] == [events[1]]
        await client.delete("/_/subscriptions/hooks")


@pytest.mark.parametrize(
    ("to", "events"),
    [
        ({"event": "was_paid"}, ["was_paid"]),
        ({"types": {"a": "was_paid", "b": "was_made"}}, ["was_made", "was_paid"]),
        ({"event": "$.body.kind"}, ["was_made", "was_paid"]),
    ],
)
def test_an_arrow_leads_from_a_source_to_each_of_its_events(to: dict[str, Any], events: list[str]) -> None:
    drawing = leads(
        {
            "aggregate_types": {
                "order": {"events": {"was_made": {}, "was_paid": {}}},
                "x": {"events": {"y": {}}},
            },
            "webhooks": {"stripe": {"to": {"type": "order", "id": "$.body.id", **to}}},
        }
    )
    at = {box.name: box.y for box in drawing.boxes}
    ends = sorted(y for *_, y in drawing.lines)
    begins = {y for _, y, *_ in drawing.lines}
    middle = begins.pop() - at["stripe"]
    assert not begins
    assert ends == [at[f"order.{event}"] + middle for event in events]
