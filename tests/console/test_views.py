"""What pages show, over plain HTTP: no browser is needed for it."""

from __future__ import annotations

import html
import re
import time
from typing import Any

import asyncpg
import httpx
import pytest

from gateway.console.drawing import BOXES_MAX, leads
from gateway.console.views import views
from tests.console.test_site import SIGN_IN, person, signed_in, token_of
from tests.http.webhooks import open_hooks, to
from tests.relay.receivers import SECRET, Answer, web_receiver
from tests.support.accounts import Account
from tests.support.calls import appended, new_client, new_id, noted, until
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


async def test_one_delivery_has_a_page_with_each_attempt_and_is_replayed_from_it(
    signed_in: httpx.AsyncClient, gateway: Served, shop: Account
) -> None:
    async with web_receiver() as receiver, new_client(gateway.url, shop.admin) as client:
        receiver.answer = lambda _: Answer(503, body=b"<b>closed</b>")
        target = {"type": "webhook", "url": receiver.url, "secret": SECRET, "retry_s": []}
        assert (await client.put("/_/subscriptions/hooks", json={"target": target})).status_code == 201
        event = (await appended(client, "order", new_id(), "was_noted"))["event_id"]

        async def parked() -> bool:
            return bool((await client.get("/_/subscriptions/hooks")).json()["parked"] == 1)

        await until(parked)
        at = f"{CONSOLE}/out/hooks/deliveries/{event}"
        assert f'href="{at}"' in (await signed_in.get(f"{CONSOLE}/out/hooks")).text
        shown = (await signed_in.get(at)).text
        assert "It is parked since 20" in shown
        assert "failed, HTTP 503" in shown and "&lt;b&gt;closed&lt;/b&gt;" in shown
        assert re.search(r"<td>\d+ ms</td>", shown)
        receiver.answer = lambda _: Answer(200)
        act = {"csrf": await token_of(signed_in), "event_id": event, "of": "delivery"}
        asked = await signed_in.post(f"{CONSOLE}/out/hooks/skip", data=act)
        assert "Delivery of" in asked.text and 'name="sure"' in asked.text
        replayed = await signed_in.post(f"{CONSOLE}/out/hooks/replay", data=act)
        assert (replayed.status_code, replayed.headers["location"]) == (303, at)

        async def confirmed() -> bool:
            shown = (await signed_in.get(at)).text
            return "confirmed, HTTP 200" in shown and "It does not wait." in shown

        await until(confirmed)
        assert (await signed_in.get(f"{CONSOLE}/out/hooks/deliveries/nonsense")).status_code == 422
        await client.delete("/_/subscriptions/hooks")


async def test_several_deliveries_are_discarded_once_a_person_is_sure_of_each(
    person: httpx.AsyncClient, gateway: Served, pool: asyncpg.Pool
) -> None:
    async with new_client(gateway.url, None) as client:
        hooks = await open_hooks(pool, client, {"typed": {"unsigned": True, "to": to("was_typed")}})
        assert (await person.post(SIGN_IN, data={"key": hooks.account.admin})).status_code == 303
        for n in range(3):
            assert (await client.post(hooks.path("typed"), json={"n": n})).json()["quarantined"]
        reason = {"verdict": "quarantined", "reason": "schema_violation"}
        listed = (await person.get(f"{CONSOLE}/webhooks", params=reason)).text
        first, second, third = re.findall(r'form="chosen" name="(id\.[0-9a-f-]{36})"', listed)
        assert "None." in (await person.get(f"{CONSOLE}/webhooks", params={"verdict": "accepted"})).text
        path = f"{CONSOLE}/webhooks/discard"
        chosen = {"csrf": await token_of(person), first: "yes", second: "yes"}
        asked = await person.post(path, data=chosen, params=reason)
        sure = {f"sure.{name[3:]}": "yes" for name in (first, second)}
        assert all(f'name="{name}"' in asked.text for name in sure)
        assert "was discarded" not in (await person.post(path, data={**chosen, **sure, third: "yes"})).text
        done = await person.post(path, data={**chosen, **sure}, params=reason)
        assert "2 deliveries were discarded." in done.text
        left = re.findall(r'form="chosen" name="(id\.[0-9a-f-]{36})"', done.text)
        assert left == [third]
        assert 'value="schema_violation"' in done.text, "the filter stays"
        replayed = await person.post(f"{CONSOLE}/webhooks/replay", data={**chosen, third: "yes"})
        assert replayed.status_code == 404, "two of them are no more"


@pytest.mark.parametrize("act", ["run", "cancel", "move"])
async def test_an_act_on_a_timer_comes_back_to_the_part_of_the_list(
    signed_in: httpx.AsyncClient, gateway: Served, shop: Account, act: str
) -> None:
    async with new_client(gateway.url, shop.admin) as client:
        emit = {"aggregate_type": "order", "id": new_id(), "event_type": "was_noted"}
        body = {"due_at": "2090-01-01T00:00:00Z", "emit": emit}
        made = await client.post("/_/schedules", json=body, headers={"idempotency-key": new_id()})
    at = f"/schedules/{made.json()['schedule']['id']}/{act}?state=pending"
    assert f'action="{CONSOLE}{at}"' in (await signed_in.get(f"{CONSOLE}/schedules?state=pending")).text
    form = {"csrf": await token_of(signed_in), "sure": "yes", "due_at": "2091-01-01T00:00:00Z"}
    answer = await signed_in.post(f"{CONSOLE}{at}", data=form)
    assert (answer.status_code, answer.headers["location"]) == (303, f"{CONSOLE}/schedules?state=pending")


async def test_an_act_on_a_saga_comes_back_to_the_part_of_the_list(signed_in: httpx.AsyncClient) -> None:
    form = {"csrf": await token_of(signed_in)}
    answer = await signed_in.post(f"{CONSOLE}/sagas/{new_id()}/retry?state=stuck", data=form)
    assert answer.status_code == 404
    assert '<option value="stuck" selected>' in answer.text


async def test_a_page_of_an_aggregate_of_10_000_events_costs_little(
    signed_in: httpx.AsyncClient, gateway: Served, shop: Account
) -> None:
    """In time of the CPU, since others use the machine: gateway and client, the better of two looks.
    `tests.bench.console` measures what a person waits for."""
    key, used_s = new_id(), []
    async with new_client(gateway.url, shop.write) as client:
        for _ in range(10):
            receipt = await noted(client, key, 1000, {"text": "x" * 100})
    assert receipt["length"] == 10_000
    for version in (10_000, 5_000, 1, 10_000, 5_000, 1):
        began = time.process_time()
        page = await signed_in.get(f"{CONSOLE}/aggregates/order/{key}", params={"version": version})
        used_s.append(time.process_time() - began)
        assert f"{version} of 10000</output>" in page.text
    assert max(min(used_s[n], used_s[n + 3]) for n in range(3)) < 0.15


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
    ends = sorted(line.y2 for line in drawing.lines)
    begins = {line.y1 for line in drawing.lines}
    middle = begins.pop() - at["stripe"]
    assert not begins
    assert ends == [at[f"order.{event}"] + middle for event in events]


def test_a_picture_of_a_spec_has_all_that_follows_an_event() -> None:
    emit = {"aggregate_type": "order", "event_type": "was_closed", "id": "$.key", "data": {"emit": {}}}
    drawing = leads(
        {
            "aggregate_types": {
                "order": {
                    "events": {
                        "was_made": {
                            "implications": [{"emit": emit}, {"schedule": {"delay": "1h", "emit": emit}}]
                        },
                        "was_closed": {},
                    }
                }
            },
            "projections": {"shipping": {"on": {"order.was_made": {}}}},
            "sagas": {
                "shipping": {
                    "trigger": {"aggregate_type": "order", "event_type": "was_made"},
                    "steps": [{"emit": emit, "compensate": {**emit, "event_type": "was_made"}}],
                }
            },
            "subscriptions": {"shipping": {"filter": {"event_types": ["was_closed"]}}},
        }
    )
    at = {(box.x, box.y): (box.kind, box.name) for box in drawing.boxes}
    width, middle = 230, 15
    found = sorted(
        (at[line.x1 - width, line.y1 - middle], line.how, at[line.x2, line.y2 - middle])
        for line in drawing.lines
    )
    made, closed = ("event", "order.was_made"), ("event", "order.was_closed")
    assert found == sorted(
        [
            (made, "leads", closed),
            (made, "schedules", closed),
            (made, "leads", ("projection", "shipping")),
            (made, "leads", ("saga", "shipping")),
            (closed, "leads", ("subscription", "shipping")),
            (("saga", "shipping"), "leads", ("emitted", "order.was_closed")),
            (("saga", "shipping"), "leads", ("emitted", "order.was_made")),
        ]
    )
    links = {(box.kind, box.name): box.link for box in drawing.boxes}
    assert links["projection", "shipping"] == "/projections/shipping"
    assert links["subscription", "shipping"] == "/out/shipping"


def test_a_picture_that_is_cut_says_so() -> None:
    events: dict[str, Any] = {f"was_{n}": {} for n in range(BOXES_MAX + 7)}
    drawing = leads({"aggregate_types": {"order": {"events": events}}})
    assert (len(drawing.boxes), drawing.cut) == (BOXES_MAX, 7)


ACTS = sorted(path for method, path in views() if method == "POST")


@pytest.mark.parametrize("path", ACTS)
async def test_no_act_is_done_by_a_key_that_may_only_read(
    person: httpx.AsyncClient, gateway: Served, shop: Account, path: str
) -> None:
    """Each act of the console: the API judges it, as it would from any client."""
    assert (await person.post(SIGN_IN, data={"key": shop.read})).status_code == 303
    form = {"csrf": await token_of(person), "sure": "yes", f"id.{new_id()}": "yes", f"sure.{new_id()}": "yes"}
    form |= {
        "spec": '{"agent_types": ["user"]}',
        "name": "x",
        "scope": "read",
        "due_at": "2090-01-01T00:00:00Z",
    }
    form |= {"event_type": "was_noted", "actor_type": "user", "actor_id": new_id()}
    acts = {"/out/": ("pause", "resume", "replay", "skip", "test"), "/sagas/": ("retry", "abandon")}
    acts["/schedules/"] = ("run", "cancel", "move")
    name = "till" if path.startswith("/out/") else new_id()
    filled = path.replace("{type}", "order").replace("{id}", name).replace("{name}", name)
    filled = filled.replace("{handle}", "k_nobody")
    for act in next((each for start, each in acts.items() if path.startswith(start)), ("",)):
        answer = await person.post(CONSOLE + filled.replace("{act}", act), data=form)
        assert answer.status_code in (403, 422), (act, answer.status_code)
        assert "needs" in answer.text and "This key has the scope read" in answer.text, act
