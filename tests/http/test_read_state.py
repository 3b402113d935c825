"""GET /{type}/{id}: the state, as it is and as it was."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta, timezone
from urllib.parse import quote

import asyncpg
import httpx
import pytest

from tests.support.accounts import SPEC
from tests.support.calls import append, appended, events_of, length_of, new_id, noted, refused

NEVER = "a0000000-0000-4000-a000-0000000000ff"


async def test_the_state_with_its_length_and_times(client: httpx.AsyncClient) -> None:
    key = new_id()
    await appended(client, "order", key, "was_placed", {"total": 5, "customer": {"email": "a@b"}})
    await appended(client, "order", key, "was_placed", {"total": 6, "note": None})
    response = await client.get(f"/order/{key.upper()}")
    times = [event["metadata"]["timestamp"] for event in await events_of(client, "order", key)]
    assert response.status_code == 200
    assert response.headers["etag"] == '"2.r1"'
    assert response.json() == {
        "ok": True,
        "key": key,
        "data": {"total": 6, "customer": {"email": "a@b"}, "note": None},
        "metadata": {"length": 2, "created_at": int(times[0]), "updated_at": int(times[1])},
    }


async def test_handlers_fold_the_state(client: httpx.AsyncClient) -> None:
    key = new_id()
    events = [
        ("was_placed", {"total": 1}),
        ("had_item_added", {"sku": "a"}),
        ("had_item_added", {"sku": "b"}),
        ("had_item_added", {"sku": "a"}),
        ("was_noted", {"ignored": True}),
        ("was_named", {"name": "Zoë"}),
        ("had_item_removed", {"sku": "a"}),
    ]
    for event_type, data in events:
        await appended(client, "order", key, event_type, data)
    actor = "a0000000-0000-4000-a000-000000000001"
    data = (await client.get(f"/order/{key}")).json()["data"]
    assert data == {
        "total": 1,
        "items": [{"sku": "b", "by": actor}],
        "count": 2,
        "skus": ["a", "b"],
        "customer": {"name": "Zoë"},
    }
    await appended(client, "order", key, "was_cleared")
    assert "items" not in (await client.get(f"/order/{key}")).json()["data"]


async def test_what_never_was_written_is_a_404(client: httpx.AsyncClient) -> None:
    for path in ("", "?at_length=3", "?at_length=0", "?at=0", "?consistency=strong", "?synchronous=true"):
        refused(await client.get(f"/order/{NEVER}{path}"), 404, "not_found")
    for spelling in (NEVER.upper(), "ABC123XYZ", f"{NEVER}:2026"):
        refused(await client.get(f"/order/{spelling}"), 404, "not_found")


@pytest.mark.parametrize("name", ["global", "stripe_webhook", "main_webhook"])
async def test_a_singleton_is_always_there(client: httpx.AsyncClient, name: str) -> None:
    for path in ("", "?at_length=0", "?at=1705312900", "?consistency=strong"):
        response = await client.get(f"/config/{name}{path}")
        assert (response.status_code, response.headers["etag"]) == (200, '"0.r1"')
        assert response.json() == {
            "ok": True,
            "key": name,
            "data": {},
            "metadata": {"length": 0, "created_at": None, "updated_at": None},
        }
    await appended(client, "config", name, "was_changed", {"a": 1})
    assert (await client.get(f"/config/{name}")).json()["data"] == {"a": 1}
    refused(await client.get(f"/config/{NEVER}"), 404, "not_found")


async def test_if_none_match_answers_304(client: httpx.AsyncClient) -> None:
    key = new_id()
    await appended(client, "order", key, "was_placed")
    etag = (await client.get(f"/order/{key}")).headers["etag"]
    for form in (etag, f"W/{etag}", f'"x", {etag}', "*"):
        response = await client.get(f"/order/{key}", headers={"if-none-match": form})
        assert (response.status_code, response.content, response.headers["etag"]) == (304, b"", etag)
        assert (await client.head(f"/order/{key}", headers={"if-none-match": form})).status_code == 304
    for form in ('"1"', '"1.r2"', '"0.r1"', "1.r1", '"2.r1"'):
        assert (await client.get(f"/order/{key}", headers={"if-none-match": form})).status_code == 200
    await appended(client, "order", key, "was_placed")
    assert (await client.get(f"/order/{key}", headers={"if-none-match": etag})).status_code == 200


async def test_if_none_match_twice_is_a_list(client: httpx.AsyncClient) -> None:
    headers = [("if-none-match", '"x"'), ("if-none-match", '"0.r1"')]
    assert (await client.get("/order/global", headers=headers)).status_code == 304


async def test_if_none_match_of_what_never_was_written_is_a_404(client: httpx.AsyncClient) -> None:
    refused(await client.get(f"/order/{NEVER}", headers={"if-none-match": "*"}), 404, "not_found")


async def test_a_new_spec_revision_gives_a_new_etag_and_state(client: httpx.AsyncClient) -> None:
    key = new_id()
    await appended(client, "order", key, "was_noted", {"a": 1})
    before = await client.get(f"/order/{key}")
    assert (before.json()["data"], before.headers["etag"]) == ({}, '"1.r1"')
    order = SPEC["aggregate_types"]["order"]["events"]
    changed = {
        **SPEC,
        "aggregate_types": {
            **SPEC["aggregate_types"],
            "order": {"events": {**order, "was_noted": {"schema": True}}},
        },
    }
    assert (await client.put("/_/spec", json=changed)).json()["revision"] == 2
    after = await client.get(f"/order/{key}", headers={"if-none-match": '"1.r1"'})
    assert (after.status_code, after.json()["data"], after.headers["etag"]) == (200, {"a": 1}, '"1.r2"')


async def test_at_length_is_the_state_after_that_many_events(client: httpx.AsyncClient) -> None:
    key = new_id()
    for n in range(1, 6):
        await appended(client, "order", key, "was_placed", {f"f{n}": n})
    now = (await client.get(f"/order/{key}")).json()
    for n in range(1, 6):
        response = await client.get(f"/order/{key}?at_length={n}")
        assert response.json()["data"] == {f"f{m}": m for m in range(1, n + 1)}
        assert response.json()["metadata"]["length"] == n
        assert response.headers["etag"] == f'"{n}.r1"'
    for beyond in (6, 1000, 2**53, 2**53 + 1, 2**63 - 1):
        assert (await client.get(f"/order/{key}?at_length={beyond}")).json() == now
    refused(await client.get(f"/order/{key}?at_length=0"), 404, "not_found")


async def test_at_is_the_state_after_the_last_event_by_then(client: httpx.AsyncClient) -> None:
    key = new_id()
    for n in range(1, 4):
        await appended(client, "order", key, "was_placed", {"n": n})
    events = await events_of(client, "order", key)
    times = [round(event["metadata"]["timestamp"] * 1000) for event in events]
    for ms in times:
        by_then, before = (sum(each <= until_ms for each in times) for until_ms in (ms, ms - 1))
        for spelling in spellings(ms):
            response = await client.get(f"/order/{key}?at={spelling}")
            assert (response.status_code, response.json()["data"]) == (200, {"n": by_then}), spelling
        response = await client.get(f"/order/{key}?at={(ms - 1) / 1000:.3f}")
        assert response.status_code == (200 if before else 404)
        assert response.json().get("data") == ({"n": before} if before else None)
    later = await client.get(f"/order/{key}?at={int(time.time()) + 1000}")
    assert later.json()["metadata"]["length"] == 3
    for before in ("0", "-1", "-62135596800", "1969-12-31T23:59:59Z"):
        refused(await client.get(f"/order/{key}?at={before}"), 404, "not_found")


def spellings(ms: int) -> list[str]:
    moment = datetime.fromtimestamp(ms / 1000, UTC)
    east = moment.astimezone(timezone(timedelta(hours=5, minutes=30)))
    west = moment.astimezone(timezone(-timedelta(hours=3)))
    utc = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return [
        f"{ms // 1000}.{ms % 1000:03d}",
        f"{ms // 1000}.{ms % 1000:03d}999",
        utc,
        utc.lower(),
        quote(east.isoformat(timespec="milliseconds")),
        east.isoformat(timespec="milliseconds"),  # a plus sign stands for itself
        west.isoformat(timespec="milliseconds"),
    ]


@pytest.mark.parametrize(
    ("query", "name"),
    [
        *[
            (f"at_length={value}", "at_length")
            for value in ("", "x", "-1", "1.5", "1e3", "%D9%A3", "+1", "0x1", str(2**63))
        ],
        *[(f"at={value}", "at") for value in ("", "now", "2024-01-15", "2024-01-15T10:00:00", "--1", "1e9")],
        *[
            (f"at={value}", "at")
            for value in ("2024-02-30T10:00:00Z", "99999999999999", "2024-01-15T10:00:00+0100")
        ],
        *[(f"min_length={value}", "min_length") for value in ("", "x", "-1")],
        *[(f"synchronous={value}", "synchronous") for value in ("", "1", "yes", "TRUE")],
        *[(f"consistency={value}", "consistency") for value in ("", "weak", "Strong")],
        ("at_length=1&at_length=1", "at_length"),
        ("at_length=1&at=1705312900", "at_length"),
        ("at_length=%ff", "at_length"),
    ],
)
async def test_a_parameter_that_cannot_be_read_is_refused(
    client: httpx.AsyncClient, query: str, name: str
) -> None:
    refused(await client.get(f"/order/global?{query}"), 422, "invalid_field", name)


async def test_a_parameter_that_there_is_not_is_refused_by_its_name(client: httpx.AsyncClient) -> None:
    for name in ("utm_source", "at-length", "%ff", "AT"):
        refused(await client.get(f"/order/global?{name}=x"), 400, "unknown_parameter", name)
    for query in ("=", "&&", "=x&"):
        assert (await client.get(f"/order/global?{query}")).status_code == 200


async def test_min_length_waits_until_the_stream_is_that_long(client: httpx.AsyncClient) -> None:
    key = new_id()
    await noted(client, key, 2)
    for path in (f"/order/{key}", f"/order/{key}/events", f"/order/{key}/length"):
        assert (await client.get(f"{path}?min_length=2")).status_code == 200
    waiting = asyncio.create_task(client.get(f"/order/{key}?min_length=4"))
    await noted(client, key, 1)
    assert not waiting.done()
    await noted(client, key, 1)
    response = await waiting
    assert response.json()["metadata"]["length"] == 4


async def test_a_time_is_looked_up_once_the_stream_is_that_long(client: httpx.AsyncClient) -> None:
    key = new_id()
    await noted(client, key, 1)
    later = int(time.time()) + 1000
    waiting = asyncio.create_task(client.get(f"/order/{key}?min_length=2&at={later}"))
    await client.get(f"/order/{key}?at={later}")
    assert not waiting.done()
    await noted(client, key, 1)
    assert (await waiting).json()["metadata"]["length"] == 2
    refused(await client.get(f"/order/{key}?min_length=9&at=x"), 422, "invalid_field", "at")


async def test_min_length_waits_for_what_never_was_written(client: httpx.AsyncClient) -> None:
    key = new_id()
    waiting = asyncio.create_task(client.get(f"/order/{key}?min_length=1"))
    await asyncio.sleep(0)
    await appended(client, "order", key, "was_placed", {"a": 1})
    assert (await waiting).json()["data"] == {"a": 1}


async def test_min_length_that_is_not_reached_in_five_seconds_is_a_503(client: httpx.AsyncClient) -> None:
    began = time.monotonic()
    paths = [f"/order/{new_id()}", "/order/global", "/order/global/events", "/order/global/length"]
    answers = await asyncio.gather(*(client.get(f"{path}?min_length=1") for path in paths))
    for response in answers:
        refused(response, 503, "unavailable")
    assert 4.9 < time.monotonic() - began < 20


async def test_consistency_strong_and_synchronous_read_the_same(client: httpx.AsyncClient) -> None:
    key = new_id()
    for n in range(1, 4):
        await appended(client, "order", key, "was_placed", {f"f{n}": n})
        plain = (await client.get(f"/order/{key}")).json()
        for query in (
            "consistency=strong",
            "synchronous=true",
            "synchronous=false",
            "consistency=strong&synchronous=true",
        ):
            assert (await client.get(f"/order/{key}?{query}")).json() == plain


async def test_strong_reads_are_by_postgres_only(client: httpx.AsyncClient, outbox: asyncpg.Pool) -> None:
    """What Postgres says counts, even where its rows were changed under the gateway's feet."""
    key = new_id()
    receipt = await appended(client, "order", key, "was_placed", {"a": 1})
    assert (await client.get(f"/order/{key}")).json()["data"] == {"a": 1}
    await outbox.execute("UPDATE outbox SET payload = $2 WHERE id = $1", receipt["event_id"], b'{"a":2}')
    assert (await client.get(f"/order/{key}?consistency=strong")).json()["data"] == {"a": 2}
    strong = await client.get(f"/order/{key}/events?consistency=strong")
    assert strong.json()["events"][0]["data"] == {"a": 2}


async def test_a_long_stream_folds_whole(client: httpx.AsyncClient) -> None:
    key = new_id()
    for _ in range(3):
        await noted(client, key, 1000)
    await appended(client, "order", key, "was_placed", {"at": "the end"})
    for query in ("", "?synchronous=true", "?consistency=strong"):
        told = (await client.get(f"/order/{key}{query}")).json()
        assert (told["data"], told["metadata"]["length"]) == ({"at": "the end"}, 3001)
    assert (await client.get(f"/order/{key}?at_length=3000")).json()["data"] == {}


async def test_length_of_a_stream(client: httpx.AsyncClient) -> None:
    key = new_id()
    response = await client.get(f"/order/{key}/length")
    assert (response.status_code, response.json()) == (200, {"ok": True, "length": 0})
    await noted(client, key, 5)
    assert (await client.get(f"/order/{key}/length")).json() == {"ok": True, "length": 5}
    assert (await client.get(f"/order/{key.upper()}/length?consistency=strong")).json()["length"] == 5
    assert await length_of(client, "global") == 0
    refused(await client.get("/order/nope/length"), 422, "invalid_identifier", "key")
    refused(await client.get("/nope/global/length"), 404, "unknown_aggregate_type", "type")


async def test_a_read_after_a_write_sees_it_under_load(client: httpx.AsyncClient) -> None:
    async def one(n: int) -> None:
        key = new_id()
        for length in range(1, 6):
            await append(client, "order", key, "was_placed", {"n": length})
            state = (await client.get(f"/order/{key}")).json()
            assert (state["data"], state["metadata"]["length"]) == ({"n": length}, length)

    await asyncio.gather(*(one(n) for n in range(20)))
