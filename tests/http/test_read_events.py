"""Events: in pages, by version, by id."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from tests.support.calls import append, appended, events_of, new_event_id, new_id, noted, refused

NEVER = "a0000000-0000-4000-a000-0000000000ff"


async def page(client: httpx.AsyncClient, key: str, query: str) -> tuple[list[int], int | None]:
    response = await client.get(f"/order/{key}/events?{query}")
    told = response.json()
    assert list(told) == ["ok", "key", "events", "length", "next"]
    assert (told["ok"], told["key"]) == (True, key)
    return [event["version"] for event in told["events"]], told["next"]


async def test_pages_of_a_stream(client: httpx.AsyncClient) -> None:
    key = new_id()
    await noted(client, key, 250)
    every = list(range(1, 251))
    assert await page(client, key, "") == (every[:100], 101)
    assert await page(client, key, "from=101") == (every[100:200], 201)
    assert await page(client, key, "from=201") == (every[200:], None)
    assert await page(client, key, "limit=1000") == (every, None)
    assert await page(client, key, "limit=250") == (every, None)
    assert await page(client, key, "limit=249") == (every[:-1], 250)
    assert await page(client, key, "from=5&limit=3&order=asc") == ([5, 6, 7], 8)
    assert await page(client, key, "from=250") == ([250], None)
    assert await page(client, key, "from=251") == ([], None)
    for beyond in (2**53, 2**53 + 1, 2**63 - 1):
        assert await page(client, key, f"from={beyond}&limit=1") == ([], None)


async def test_pages_from_the_newest_on(client: httpx.AsyncClient) -> None:
    key = new_id()
    await noted(client, key, 250)
    down = list(range(250, 0, -1))
    assert await page(client, key, "order=desc") == (down[:100], 150)
    assert await page(client, key, "order=desc&from=150") == (down[100:200], 50)
    assert await page(client, key, "order=desc&from=50") == (down[200:], None)
    assert await page(client, key, "order=desc&limit=1000") == (down, None)
    assert await page(client, key, "order=desc&from=3&limit=2") == ([3, 2], 1)
    assert await page(client, key, "order=desc&from=1") == ([1], None)
    for beyond in (1000, 2**63 - 1):
        assert await page(client, key, f"order=desc&from={beyond}&limit=1") == ([250], 249)


async def test_next_leads_through_the_whole_stream(client: httpx.AsyncClient) -> None:
    key = new_id()
    await noted(client, key, 23)
    for order, expected in (("asc", list(range(1, 24))), ("desc", list(range(23, 0, -1)))):
        seen, following = await page(client, key, f"order={order}&limit=5")
        while following is not None:
            more, following = await page(client, key, f"order={order}&limit=5&from={following}")
            seen += more
        assert seen == expected


async def test_a_page_holds_the_length_of_the_whole_stream(client: httpx.AsyncClient) -> None:
    key = new_id()
    await noted(client, key, 12)
    for query in ("limit=1", "from=12", "from=99", "order=desc&limit=2"):
        assert (await client.get(f"/order/{key}/events?{query}")).json()["length"] == 12


@pytest.mark.parametrize(
    ("query", "name"),
    [
        *[
            (f"limit={value}", "limit")
            for value in ("1001", "0", "-1", "x", "", "1e2", "%D9%A1", "99999999999999999999")
        ],
        *[(f"from={value}", "from") for value in ("0", "-1", "x", "", "1.0")],
        *[(f"order={value}", "order") for value in ("", "up", "ASC", "desc,asc")],
        ("limit=1&limit=2", "limit"),
        ("from=%ff", "from"),
        ("consistency=eventual", "consistency"),
        ("min_length=x", "min_length"),
    ],
)
async def test_a_parameter_that_cannot_be_read_is_refused(
    client: httpx.AsyncClient, query: str, name: str
) -> None:
    for accept in ("*/*", "application/x-ndjson", "text/event-stream"):
        response = await client.get(f"/order/global/events?{query}", headers={"accept": accept})
        refused(response, 422, "invalid_field", name)


async def test_what_never_was_written_is_a_404_and_a_singleton_is_empty(client: httpx.AsyncClient) -> None:
    for path in ("events", "events?from=5", "events?order=desc", "events/1", "events?consistency=strong"):
        refused(await client.get(f"/order/{NEVER}/{path}"), 404, "not_found")
    for name in ("global", "stripe_webhook"):
        response = await client.get(f"/order/{name}/events")
        assert response.json() == {"ok": True, "key": name, "events": [], "length": 0, "next": None}
        refused(await client.get(f"/order/{name}/events/1"), 404, "not_found")


async def test_an_event_by_its_version(client: httpx.AsyncClient) -> None:
    key = new_id()
    await noted(client, key, 3)
    events = await events_of(client, "order", key)
    for version in (1, 2, 3):
        response = await client.get(f"/order/{key}/events/{version}")
        assert response.json() == {"ok": True, "event": events[version - 1]}
    refused(await client.get(f"/order/{key}/events/4"), 404, "not_found")
    for beyond in (2**52, 2**53 + 1, 99999999999999999, 2**63 - 1):
        told = refused(await client.get(f"/order/{key}/events/{beyond}"), 404, "not_found")
        assert str(beyond) in told["error"]
    refused(await client.get(f"/order/{key}/events/{2**63}"), 422, "invalid_field", "version")


@pytest.mark.parametrize(
    "version", ["0", "-1", "x", "1.0", "01", "1e3", "%D9%A1", "%31%0A", "99999999999999999999", "%ff"]
)
async def test_a_version_that_cannot_be_one_is_refused(client: httpx.AsyncClient, version: str) -> None:
    await appended(client, "order", "global", "was_noted")
    response = await client.get(f"/order/global/events/{version}")
    assert response.status_code in (404, 422)
    assert response.json()["code"] in ("not_found", "invalid_field")


async def test_an_event_by_its_id(client: httpx.AsyncClient) -> None:
    for aggregate_type, key, event_type in (
        ("order", new_id(), "was_noted"),
        ("config", "global", "was_changed"),
        ("ticket", "ABC123XYZ", "was_opened"),
    ):
        receipt = await appended(client, aggregate_type, key, event_type, {"a": 1})
        [event] = await events_of(client, aggregate_type, key)
        for spelling in (receipt["event_id"], receipt["event_id"].upper()):
            response = await client.get(f"/_/events/{spelling}")
            assert response.json() == {"ok": True, "event": event}


async def test_an_unknown_event_id_is_a_404_and_a_malformed_one_is_refused(client: httpx.AsyncClient) -> None:
    refused(await client.get(f"/_/events/{new_event_id()}"), 404, "not_found")
    for malformed in ("x", new_id(), "1-0", "{" + new_event_id() + "}", "%00", "%ff"):
        response = await client.get(f"/_/events/{malformed}")
        assert response.status_code in (404, 422)
        assert response.json()["code"] in ("not_found", "invalid_field")


async def test_a_page_is_read_while_others_write(client: httpx.AsyncClient) -> None:
    key = new_id()
    await noted(client, key, 1)

    async def read() -> None:
        for _ in range(20):
            told = (await client.get(f"/order/{key}/events?limit=1000")).json()
            versions = [event["version"] for event in told["events"]]
            assert versions == list(range(1, told["length"] + 1))

    writes = [append(client, "order", key, "was_noted", n) for n in range(60)]
    await asyncio.gather(read(), read(), *writes)
    assert len(await events_of(client, "order", key)) == 61


async def test_old_events_come_from_postgres_and_new_ones_from_redis_in_one_order(
    client: httpx.AsyncClient,
) -> None:
    key = new_id()
    for n in range(3):
        await noted(client, key, 400, n)
    for query, expected in (
        ("limit=1000", range(1, 1001)),
        ("from=900&limit=300", range(900, 1200)),
        ("order=desc&limit=1000", range(1200, 200, -1)),
        ("order=desc&from=300&limit=300", range(300, 0, -1)),
    ):
        assert (await page(client, key, query))[0] == list(expected)


@pytest.mark.parametrize("query", ["", "limit=1000", "order=desc", "limit=50&consistency=strong"])
async def test_a_page_of_large_events_ends_by_bytes_and_next_leads_on(
    client: httpx.AsyncClient, query: str
) -> None:
    key = new_id()
    for _ in range(12):
        await appended(client, "order", key, "was_noted", {"text": "x" * 250_000})
    for _ in range(2):
        seen, following = await page(client, key, query)
        assert len(seen) == 5
        while following is not None:
            more, following = await page(client, key, f"{query}&from={following}")
            assert 1 <= len(more) <= 5
            seen += more
        assert seen == sorted(range(1, 13), reverse="desc" in query)


async def test_a_first_page_that_is_full_stays_as_it_is(client: httpx.AsyncClient) -> None:
    key = new_id()
    for count in range(1, 8):
        await appended(client, "order", key, "was_noted", {"text": "x" * 250_000})
        told = (await client.get(f"/order/{key}/events")).json()
        assert [event["version"] for event in told["events"]] == list(range(1, min(count, 5) + 1))
        assert (told["length"], told["next"]) == (count, 6 if count > 5 else None)
