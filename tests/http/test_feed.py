"""GET /_/feed: every committed event of a tenant once, in the order of commits, from any position."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

import asyncpg
import httpx
import pytest

from gateway.relay.outbox import Outbox
from gateway.relay.position import Place, decode, encode
from tests.support.accounts import Account
from tests.support.calls import (
    JSON,
    appended,
    batch,
    events_of,
    new_client,
    new_id,
    noted,
    refused,
    told_in,
    until,
)
from tests.support.serving import Served

ND = {"accept": "application/x-ndjson"}
CLOUD = {"accept": "application/cloudevents-batch+json"}


async def fed(client: httpx.AsyncClient, query: str = "") -> dict[str, Any]:
    response = await client.get(f"/_/feed{query}")
    assert (response.status_code, response.headers["content-type"]) == (200, "application/json")
    page = response.json()
    assert list(page) == ["ok", "events", "position", "caught_up"]
    assert page["ok"] is True
    return dict(page)


async def fed_whole(client: httpx.AsyncClient, query: str = "", after: str = "") -> list[dict[str, Any]]:
    """All pages until caught up."""
    events: list[dict[str, Any]] = []
    while True:
        page = await fed(client, "?" + "&".join(part for part in (query, after and f"after={after}") if part))
        events += page["events"]
        after = page["position"]
        if page["caught_up"]:
            return events


def unplaced(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in event.items() if name != "position"} for event in events]


async def test_the_feed_has_every_event_of_a_tenant_in_the_order_of_commits(
    client: httpx.AsyncClient, neighbour: httpx.AsyncClient
) -> None:
    keys = [new_id() for _ in range(3)]
    sent = []
    for n in range(12):
        await appended(client, "order", keys[n % 3], "was_noted", n)
        await appended(neighbour, "order", keys[n % 3], "was_noted", n)
        sent.append((keys[n % 3], n))
    events = (await fed(client))["events"]
    assert [(event["key"], event["data"]) for event in events] == sent
    for key in keys:
        assert unplaced([each for each in events if each["key"] == key]) == await events_of(
            client, "order", key
        )
    assert all(list(event)[-1] == "position" for event in events)
    assert len({event["position"] for event in events}) == 12


async def test_each_member_of_an_event_is_the_same_in_the_feed_as_in_its_aggregate(
    client: httpx.AsyncClient,
) -> None:
    key = new_id()
    await appended(
        client,
        "order",
        key,
        "was_noted",
        {"n": 1},
        {"x-correlation-id": "01a1feb3-0000-7000-8000-000000000002"},
        target={"type": "order", "id": new_id()},
        causation_id="01a1feb3-0000-7000-8000-000000000001",
        extra={"x": 2},
    )
    (event,) = await events_of(client, "order", key)
    assert None not in event["metadata"].values()
    assert unplaced((await fed(client))["events"]) == [event]
    assert unplaced((await fed(client, "?order=desc"))["events"]) == [event]


async def test_event_ids_that_clients_choose_do_not_order_the_feed(client: httpx.AsyncClient) -> None:
    """A UUIDv7 tells the time of the client that chose it: a reader that went by ids would miss commits."""
    times = ("80000000-0000", "00000000-0001", "ffffffff-ffff", "00000000-0002", "01000000-0000")
    ids = [f"{time}-7000-8000-000000000000" for time in times]
    key, after = new_id(), ""
    seen: list[str] = []
    for n, event_id in enumerate(ids):
        await appended(client, "order", key, "was_noted", n, event_id=event_id)
        page = await fed(client, f"?after={after}" if after else "")
        seen += [event["id"] for event in page["events"]]
        after = page["position"]
    assert seen == ids
    assert [event["id"] for event in await fed_whole(client)] == ids
    assert [event["id"] for event in await events_of(client, "order", key)] == ids


async def test_an_empty_feed_has_a_position_to_go_on_from(client: httpx.AsyncClient) -> None:
    page = await fed(client)
    assert (page["events"], page["caught_up"]) == ([], True)
    await appended(client, "order", "global", "was_noted")
    assert len((await fed(client, f"?after={page['position']}"))["events"]) == 1


async def test_pages_follow_each_other_without_gap_or_repeat(client: httpx.AsyncClient) -> None:
    for _ in range(3):
        await noted(client, new_id(), 9)
    whole = (await fed(client))["events"]
    assert len(whole) == 27
    assert await fed_whole(client, "limit=4") == whole
    page = await fed(client, "?limit=27")
    assert page["caught_up"] is True
    page = await fed(client, "?limit=26")
    assert (page["caught_up"], page["position"]) == (False, whole[25]["position"])


async def test_any_events_position_resumes_behind_it(client: httpx.AsyncClient) -> None:
    await noted(client, new_id(), 6)
    whole = (await fed(client))["events"]
    for n, event in enumerate(whole):
        assert (await fed(client, f"?after={event['position']}"))["events"] == whole[n + 1 :]


async def test_a_page_is_1000_events_at_most_and_whole_appends_unless_asked_otherwise(
    client: httpx.AsyncClient,
) -> None:
    for _ in range(2):
        await noted(client, new_id(), 700)
    page = await fed(client)
    assert (len(page["events"]), page["caught_up"]) == (700, False)
    assert len((await fed(client, f"?after={page['position']}"))["events"]) == 700
    page = await fed(client, "?limit=1000")
    assert (len(page["events"]), page["caught_up"]) == (1000, False)
    assert len((await fed(client, f"?after={page['position']}"))["events"]) == 400
    refused(await client.get("/_/feed?limit=1001"), 422, "invalid_field", "limit")


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("limit=0", "limit"),
        ("limit=x", "limit"),
        ("types=", "types"),
        ("types=order,,user", "types"),
        ("types=Order", "types"),
        ("event_types=a%20b", "event_types"),
        ("types=order&types=user", "types"),
        ("after=a&after=b", "after"),
        ("after=%ff", "after"),
    ],
)
async def test_a_parameter_that_cannot_be_read_is_refused(
    client: httpx.AsyncClient, query: str, name: str
) -> None:
    refused(await client.get(f"/_/feed?{query}"), 422, "invalid_field", name)


@pytest.mark.parametrize(
    "after", ["", "0", "-1", "x", "AQ==", "A" * 20, "A" * 40000, "end", "%F0%9F%8C%8A", "1-0"]
)
async def test_a_position_that_is_none_is_refused(client: httpx.AsyncClient, after: str) -> None:
    refused(await client.get(f"/_/feed?after={after}"), 400, "invalid_position", "after")
    for headers in (ND, CLOUD):
        refused(await client.get(f"/_/feed?after={after}", headers=headers), 400, "invalid_position", "after")


async def test_a_position_of_another_history_is_refused(client: httpx.AsyncClient) -> None:
    await noted(client, new_id(), 3)
    position = decode((await fed(client))["position"])
    assert position is not None
    ((p, place),) = position.places
    for other in (
        Place(place.seq, bytes(4)),
        Place(place.seq - 1, place.mark),
        Place(place.seq + 1, place.mark),
        Place(2**53, place.mark),
    ):
        response = await client.get(f"/_/feed?after={encode(position.moved(p, other))}")
        refused(response, 400, "invalid_position", "after")


async def test_a_position_of_another_partition_is_refused(client: httpx.AsyncClient) -> None:
    await noted(client, new_id(), 1)
    position = decode((await fed(client))["position"])
    assert position is not None
    ((p, place),) = position.places
    for elsewhere in (position.moved((p + 1) % 16, place), position.moved(1000, place)):
        response = await client.get(f"/_/feed?after={encode(elsewhere)}")
        refused(response, 400, "invalid_position", "after")


async def test_the_feed_can_be_begun_at_its_beginning_or_now(client: httpx.AsyncClient) -> None:
    await noted(client, new_id(), 2)
    assert len((await fed(client, "?after=beginning"))["events"]) == 2
    page = await fed(client, "?after=now")
    assert (page["events"], page["caught_up"]) == ([], True)
    await appended(client, "order", "global", "was_noted", "new")
    (event,) = (await fed(client, f"?after={page['position']}"))["events"]
    assert event["data"] == "new"


async def some_of_each(client: httpx.AsyncClient) -> None:
    for n in range(4):
        await appended(client, "order", new_id(), "was_noted", n)
        await appended(client, "order", new_id(), "was_cleared", {"n": n})
        await appended(client, "config", "global", "was_changed", {"n": n})
        await appended(client, "ticket", new_id(), "was_opened", {"n": n})


@pytest.mark.parametrize(
    ("query", "types", "event_types"),
    [
        ("types=order", {"order"}, None),
        ("types=order,ticket", {"order", "ticket"}, None),
        ("event_types=was_noted", None, {"was_noted"}),
        ("event_types=was_noted,was_opened", None, {"was_noted", "was_opened"}),
        ("types=order&event_types=was_noted,was_opened", {"order"}, {"was_noted"}),
        ("types=nothing_of_the_kind&include_undeclared=true", set(), None),
    ],
)
async def test_a_filter_takes_what_it_names(
    client: httpx.AsyncClient, query: str, types: set[str] | None, event_types: set[str] | None
) -> None:
    await some_of_each(client)
    whole = await fed(client)
    expected = [
        event
        for event in whole["events"]
        if (types is None or event["aggregate_type"] in types)
        and (event_types is None or event["type"] in event_types)
    ]
    page = await fed(client, f"?{query}")
    assert page["events"] == expected
    assert (page["position"], page["caught_up"]) == (whole["position"], True)
    assert await fed_whole(client, f"{query}&limit=1") == expected
    assert told_in((await client.get(f"/_/feed?{query}", headers=ND)).content) == expected


async def test_a_filtered_answers_position_moves_over_what_was_filtered_out(
    client: httpx.AsyncClient,
) -> None:
    await noted(client, new_id(), 5)
    page = await fed(client, "?types=ticket")
    assert (page["events"], page["caught_up"]) == ([], True)
    await appended(client, "order", "global", "was_noted", "later")
    (event,) = (await fed(client, f"?after={page['position']}"))["events"]
    assert event["data"] == "later"


async def test_large_events_make_small_pages(client: httpx.AsyncClient) -> None:
    text = "x" * 250_000
    for _ in range(8):
        await client.post(f"/order/{new_id()}", json=batch(*[("was_noted", text)] * 3))
    page = await fed(client)
    assert (len(page["events"]) < 24, page["caught_up"]) == (True, False)
    events = await fed_whole(client)
    assert [event["data"] for event in events] == [text] * 24
    assert told_in((await client.get("/_/feed", headers=ND)).content) == events


async def test_ndjson_is_all_there_is_an_event_a_line(client: httpx.AsyncClient) -> None:
    for _ in range(3):
        await noted(client, new_id(), 900, {"a": [1, None]})
    response = await client.get("/_/feed", headers=ND)
    assert (response.status_code, response.headers["content-type"]) == (200, "application/x-ndjson")
    whole = await fed_whole(client)
    assert told_in(response.content) == whole
    assert len(whole) == 2700
    after = whole[1234]["position"]
    assert told_in((await client.get(f"/_/feed?after={after}", headers=ND)).content) == whole[1235:]
    limited = await client.get(f"/_/feed?after={after}&limit=7", headers=ND)
    assert told_in(limited.content) == whole[1235:1242]


async def test_ndjson_of_nothing_is_empty(client: httpx.AsyncClient) -> None:
    response = await client.get("/_/feed", headers=ND)
    assert (response.status_code, response.content) == (200, b"")


async def test_data_comes_as_it_was_sent(client: httpx.AsyncClient) -> None:
    data = b'{"n": 123456789012345678901234567890, "z": 1,\n\r"a": "\\u00e9 \\n", "e": 1e400}'
    body = b'{"data":%b,"metadata":{"actor":{"type":"user","id":"global"},"extra":{ }}}' % data
    assert (await client.post("/order/global/was_noted", content=body, headers=JSON)).status_code == 201
    assert b'"data":%b,' % data in (await client.get("/_/feed")).content
    assert b'"data":%b}' % data in (await client.get("/_/feed", headers=CLOUD)).content
    line = (await client.get("/_/feed", headers=ND)).content
    assert line.count(b"\n") == 1
    assert b'"data":%b,' % data.replace(b"\n\r", b"  ") in line


async def test_cloud_events(client: httpx.AsyncClient) -> None:
    cause = "01a1feb3-0000-7000-8000-000000000001"
    key = new_id()
    await appended(client, "order", key, "was_noted", {"n": 1}, causation_id=cause)
    await appended(client, "order", key, "was_noted", None)
    response = await client.get("/_/feed?limit=1", headers=CLOUD)
    assert response.headers["content-type"] == "application/cloudevents-batch+json"
    page = await fed(client, "?limit=1")
    (event,) = page["events"]
    (told,) = response.json()
    assert datetime.fromisoformat(told.pop("time")).timestamp() == event["metadata"]["timestamp"]
    assert told == {
        "specversion": "1.0",
        "id": event["id"],
        "source": f"/order/{key}",
        "type": "was_noted",
        "datacontenttype": "application/json",
        "position": event["position"],
        "version": 1,
        "correlationid": event["metadata"]["correlation_id"],
        "revision": 1,
        "causationid": cause,
        "data": {"n": 1},
    }
    assert response.headers["sluice-position"] == page["position"]
    assert response.headers["sluice-caught-up"] == "false"
    rest = await client.get(f"/_/feed?after={page['position']}", headers=CLOUD)
    (second,) = rest.json()
    assert "causationid" not in second
    assert rest.headers["sluice-caught-up"] == "true"
    assert (await client.get(f"/_/feed?after={second['position']}", headers=CLOUD)).json() == []


async def test_head_and_other_methods(client: httpx.AsyncClient) -> None:
    await noted(client, new_id(), 2)
    whole = await client.get("/_/feed")
    head = await client.head("/_/feed")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(len(whole.content))
    head = await client.head("/_/feed", headers=CLOUD)
    assert (head.content, head.headers["content-type"]) == (b"", CLOUD["accept"])
    response = await client.post("/_/feed", json={})
    refused(response, 405, "method_not_allowed")
    assert response.headers["allow"] == "GET, HEAD, QUERY, OPTIONS"
    assert (await client.options("/_/feed")).status_code == 204


async def test_a_key_that_may_read_may_follow(
    reader: httpx.AsyncClient, stranger: httpx.AsyncClient, writer: httpx.AsyncClient
) -> None:
    await noted(writer, new_id(), 1)
    assert len((await fed(reader))["events"]) == 1
    refused(await stranger.get("/_/feed"), 401, "unauthorized")


async def test_a_page_of_any_moment_is_a_beginning_of_every_later_one(
    client: httpx.AsyncClient, second_gateway: Served, tenant: Account
) -> None:
    async def write(client: httpx.AsyncClient) -> None:
        for _ in range(15):
            await asyncio.gather(*(appended(client, "order", new_id(), "was_noted") for _ in range(10)))

    async with new_client(second_gateway.url, tenant.admin) as other:
        position, seen = (await fed(other))["position"], []
        writing = asyncio.gather(write(client), write(other))
        finished = caught_up = False
        while not (finished and caught_up):
            finished = writing.done()
            page = await fed(client, f"?after={position}&limit=50")
            seen += page["events"]
            position, caught_up = page["position"], page["caught_up"]
        await writing
    assert seen == await fed_whole(client)
    assert len({event["id"] for event in seen}) == 300


async def test_a_stretch_in_which_nothing_passes_is_crossed(
    own_client: httpx.AsyncClient, own_outbox: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.relay.outbox.STRETCH", 7)
    await appended(own_client, "ticket", new_id(), "was_opened")
    await noted(own_client, new_id(), 40)
    await appended(own_client, "ticket", new_id(), "was_opened")
    monkeypatch.setattr("gateway.relay.outbox.SEARCH_S", 30.0)
    page = await fed(own_client, "?types=ticket")
    assert (len(page["events"]), page["caught_up"]) == (2, True)
    assert await fed_whole(own_client, "types=ticket&limit=1") == page["events"]
    monkeypatch.setattr("gateway.relay.outbox.SEARCH_S", 0.0)
    page = await fed(own_client, "?types=config")
    assert (page["events"], page["caught_up"]) == ([], False)
    assert await fed_whole(own_client, "types=config", page["position"]) == []


async def test_a_backfill_ends_when_its_reader_has_gone(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await noted(client, new_id(), 1000, "x" * 900)
    monkeypatch.setattr("gateway.http.api.feed._EVENTS_A_PAGE", 1)
    pages = count_pages(monkeypatch)
    async with client.stream("GET", "/_/feed", headers=ND) as response:
        await anext(response.aiter_bytes())

    async def rests() -> bool:
        before = len(pages)
        await asyncio.sleep(0.1)
        return before == len(pages)

    await until(rests)
    assert len(pages) < 1000


def count_pages(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """An entry for each page that is read from now on."""
    read: list[None] = []
    page = Outbox.page

    async def counted(*args: Any, **named: Any) -> Any:
        read.append(None)
        return await page(*args, **named)

    monkeypatch.setattr(Outbox, "page", counted)
    return read
