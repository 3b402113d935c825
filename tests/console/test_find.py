"""Where an identifier of any kind leads; and what the page says of one that leads nowhere."""

from __future__ import annotations

from urllib.parse import quote

import asyncpg
import httpx
import pytest

from tests.console.test_site import SIGN_IN, person, signed_in
from tests.http.webhooks import open_hooks
from tests.support.accounts import Account
from tests.support.calls import ACTOR, appended, envelope, new_client, new_id
from tests.support.serving import Served

__all__ = ("person", "signed_in")
FIND = "/_/console/find"


async def leads(person: httpx.AsyncClient, text: str) -> str:
    answer = await person.get(FIND, params={"q": text})
    assert answer.status_code == 303, answer.text
    return answer.headers["location"].removeprefix("/_/console")


async def test_an_event_a_correlation_a_tag_and_an_idempotency_key_are_found(
    signed_in: httpx.AsyncClient, gateway: Served, shop: Account
) -> None:
    key, correlation, identity = new_id(), new_id(), f"of-{new_id()}"
    async with new_client(gateway.url, shop.write) as client:
        headers = {"idempotency-key": identity, "x-correlation-id": correlation}
        receipt = await appended(
            client,
            "order",
            key,
            "was_placed",
            {"total": 1, "label": "a&types=x b"},
            headers,
        )
    event = f"/events/{receipt['event_id']}"
    assert await leads(signed_in, f" {receipt['event_id'].upper()} ") == event
    assert await leads(signed_in, correlation) == f"/feed?correlation_id={correlation}"
    assert await leads(signed_in, identity) == event
    assert await leads(signed_in, f"order:{key}") == f"/feed?tags=order%3A{key}"
    assert await leads(signed_in, key) == f"/aggregates/order/{key}"
    place = await leads(signed_in, "label:a&types=x b")
    assert place == "/feed?tags=label%3Aa%26types%3Dx%20b"
    assert receipt["event_id"] in (await signed_in.get(f"/_/console{place}")).text


async def test_the_key_of_an_append_to_several_aggregates_leads_to_its_first_event(
    signed_in: httpx.AsyncClient, gateway: Served, shop: Account
) -> None:
    identity = f"of-{new_id()}"
    event = {"aggregate_type": "order", "type": "was_placed", "data": {"total": 1}}
    body = {"events": [{**event, "key": new_id()} for _ in range(2)], "metadata": {"actor": ACTOR}}
    async with new_client(gateway.url, shop.write) as client:
        answer = await client.post("/_/append", json=body, headers={"idempotency-key": identity})
    assert await leads(signed_in, identity) == f"/events/{answer.json()['events'][0]['event_id']}"


async def test_a_foreign_id_is_found_by_its_name_and_by_the_id_only(
    person: httpx.AsyncClient, gateway: Served, pool: asyncpg.Pool
) -> None:
    async with new_client(gateway.url, None) as client:
        target = {"type": "repository", "source_id": "$.body.id", "event": "was_notified"}
        hooks = await open_hooks(pool, client, {"hub": {"unsigned": True, "to": target}})
        taken = await client.post(hooks.path("hub"), json={"id": "r 1"})
        assert taken.status_code == 202 and "quarantined" not in taken.json(), taken.text
    async with new_client(gateway.url, hooks.account.admin) as client:
        key = (await client.get(f"/_/events/{taken.json()['event_id']}")).json()["event"]["key"]
    assert (await person.post(SIGN_IN, data={"key": hooks.account.admin})).status_code == 303
    assert await leads(person, "r 1") == f"/aggregates/repository/{key}"
    assert await leads(person, "hub/repository/r 1") == f"/aggregates/repository/{key}"
    missing = await person.get(FIND, params={"q": "hub/repository/2"})
    assert missing.status_code == 404
    assert "hub has no &#39;2&#39; in scope &#39;repository&#39;." in missing.text


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("broadcasting", "is not a declared singleton"),
        ("@ORD-1", "ORD-1"),
        ("label:nothing", "No event has the tag label:nothing."),
        ("a0000000-0000-4000-a000-00000000000", "singleton"),
        ("a0000000-0000-4000-a000-000000000009", "nothing that this key may read has it"),
        ("<img src=x>\r\nx: y", "&lt;img"),
        ("\x00", "U+0000"),
        ("x" * 5000, "singleton"),
    ],
)
async def test_what_leads_nowhere_is_said_as_the_api_says_it(
    signed_in: httpx.AsyncClient, text: str, fault: str
) -> None:
    answer = await signed_in.get(f"{FIND}?q={quote(text)}")
    assert answer.status_code == 404
    assert fault in answer.text
    assert "<img" not in answer.text


async def test_an_event_shows_its_tags_and_what_led_to_it_whatever_its_correlation(
    signed_in: httpx.AsyncClient, gateway: Served, shop: Account
) -> None:
    async with new_client(gateway.url, shop.write) as client:
        first = await appended(client, "order", new_id(), "was_placed", {"total": 1})
        key = new_id()
        body = envelope({"total": 2, "label": "<b>"}, causation_id=first["event_id"])
        apart = {"x-correlation-id": new_id()}
        second = (await client.post(f"/order/{key}/was_placed", json=body, headers=apart)).json()
    page = (await signed_in.get(f"/_/console/events/{second['event_id']}")).text
    assert f'Caused by <a href="/_/console/events/{first["event_id"]}">' in page
    assert f"order.was_placed · {first['event_id'][-6:]}" in page, "the cause is drawn"
    assert '<a href="/_/console/feed?tags=label%3A%3Cb%3E"><bdi>label:&lt;b&gt;</bdi></a>' in page
    of_key = (await signed_in.get(f"/_/console/aggregates/order/{key}")).text
    assert f"<bdi>order:{key}</bdi>" in of_key and "<bdi>label:&lt;b&gt;</bdi>" in of_key
    assert f'hx-get="/_/console/events/{second["event_id"]}"' in of_key
    assert "&#34;causation_id&#34;" in of_key
