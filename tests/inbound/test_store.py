"""Raw deliveries in Postgres: written once, ended in time; what waits while Postgres is away."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from msgspec.structs import replace
from uuid_utils import uuid7

from gateway.inbound import recorder as recorders
from gateway.inbound import store
from gateway.inbound.recorder import Recorder
from gateway.inbound.request import Request
from gateway.inbound.store import Kept, Verdict, copied
from gateway.postgres.errors import PostgresTrouble
from gateway.postgres.statements import statement_of

DAY_S = 86_400
TENANT = b"t" * 16
REQUEST = Request(
    b"POST", b"/_/webhooks/main/s", b"a=1", ((b"authorization", b"secret"), (b"x-n", b"\xe9")), b"\xff{}"
)


@pytest.fixture
async def pool(postgres_url: str) -> AsyncIterator[asyncpg.Pool]:
    async with asyncpg.create_pool(postgres_url, min_size=1, max_size=2) as pool:
        yield pool


def row(
    name: str, verdict: Verdict = "accepted", days_old: int = 0, request: Request | None = REQUEST
) -> Kept:
    at_ms = time.time_ns() // 1_000_000 - days_old * DAY_S * 1000
    row_id = at_ms.to_bytes(6, "big") + uuid7().bytes[6:]
    return Kept(
        id=row_id,
        tenant=TENANT,
        source="s",
        delivery_id=name,
        digest=b"d" * 32,
        request_id=row_id,
        item=0,
        verdict=verdict,
        reason=None,
        error=None,
        event_id=None if verdict == "quarantined" else uuid7().bytes,
        received_ms=at_ms,
        took_ms=7,
        secret=1,
        request=request,
    )


async def test_a_replay_that_fails_leaves_the_event_of_one_that_did_not(pool: asyncpg.Pool) -> None:
    """Both have read it in quarantine; the one that fails is the last to say so."""
    held, event_id = row("a", "quarantined"), uuid7().bytes
    await store.keep(pool, [held])
    await store.settle(pool, TENANT, held.id, "replayed", None, event_id)
    await store.settle(pool, TENANT, held.id, "quarantined", ("unknown_alias", "There is none."), None)
    found = await store.stored(pool, TENANT, held.id)
    assert found is not None
    told = {name: found.shown[name] for name in ("verdict", "reason", "error", "event_id")}
    assert told == {
        "verdict": "replayed", "reason": None, "error": None, "event_id": str(UUID(bytes=event_id)),
    }  # fmt: skip


async def names(pool: asyncpg.Pool) -> list[str]:
    return [each["delivery_id"] for each in await pool.fetch("SELECT * FROM webhook_delivery ORDER BY id")]


async def test_what_is_kept_soon_and_at_once_comes_back_as_it_came(pool: asyncpg.Pool) -> None:
    soon, now = row("a"), row("b", "quarantined")
    await store.keep_soon(pool, [copied(soon)])
    await store.keep(pool, [now])
    for each in (soon, now):
        found = await store.stored(pool, TENANT, each.id)
        assert found is not None
        assert found.request is not None
        assert replace(found.request, headers=()) == replace(REQUEST, headers=())
        assert found.request.headers == ((b"authorization", b"***"), (b"x-n", b"\xe9"))
        assert (found.shown["took_ms"], found.shown["delivery_id"]) == (7, each.delivery_id)
        at_ms = int(found.id.hex()[:12], 16)
        assert found.shown["received_at"].endswith(f"{at_ms % 1000:03}Z")


async def test_headers_that_an_earlier_release_wrote_are_read(pool: asyncpg.Pool) -> None:
    old = row("a")
    await store.keep_soon(pool, [copied(old)])
    await pool.execute("UPDATE webhook_delivery SET headers = $1", b'[["x-n","\xc3\xa9"]]')
    found = await store.stored(pool, TENANT, old.id)
    assert found is not None
    assert found.request is not None
    assert found.request.headers == ((b"x-n", b"\xe9"),)


async def test_what_was_written_although_no_answer_came_is_there_once(pool: asyncpg.Pool) -> None:
    first, second = row("a"), row("b")
    await store.keep_soon(pool, [copied(first)])
    await store.keep_soon(pool, [copied(first), copied(second)])
    assert await names(pool) == ["a", "b"]


async def test_what_is_old_ends_but_for_quarantine_and_the_request_of_a_batch_with_some_in_it(
    pool: asyncpg.Pool,
) -> None:
    whole, other = row("", "batch", 32), row("ended batch", "batch", 32)
    held = replace(row("held item", "quarantined", 32, None), request_id=whole.id)
    item = replace(row("item", "accepted", 32, None), request_id=other.id)
    rows = [row("old", days_old=31), row("held", "quarantined", 31), row("young", days_old=29)]
    await store.keep(pool, [whole, held, other, item, *rows])
    first = await store.expire(pool, 30 * DAY_S, 365 * DAY_S, bytes(16), rows_max=2)
    assert (first.looked_at, first.quarantined) == (2, 0)
    assert len(await names(pool)) >= 5, "a bounded number at a time"
    assert first.last is not None
    await store.expire(pool, 30 * DAY_S, 365 * DAY_S, first.last, rows_max=9)
    assert sorted(await names(pool)) == ["", "held", "held item", "young"]
    await store.settle(pool, TENANT, held.id, "replayed", None, uuid7().bytes)
    await store.settle(pool, TENANT, rows[1].id, "replayed", None, uuid7().bytes)
    await store.expire(pool, 30 * DAY_S, 365 * DAY_S, bytes(16), rows_max=9)
    assert await names(pool) == ["young"]


async def test_copies_wait_while_postgres_is_away_and_are_written_after(
    pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    keep_soon, away, tried = store.keep_soon, True, asyncio.Event()

    async def keep(pool: asyncpg.Pool, rows: list[bytes]) -> None:
        tried.set()
        if away:
            raise PostgresTrouble("away")
        await keep_soon(pool, rows)

    monkeypatch.setattr(store, "keep_soon", keep)
    monkeypatch.setattr(recorders, "AGAIN_S", 0.01)
    async with recorders.recording(pool, DAY_S, DAY_S) as recorder:
        recorder.keep(row("a"))
        await asyncio.wait_for(tried.wait(), 10)
        recorder.keep(row("b"))
        assert await names(pool) == []
        away = False
    assert await names(pool) == ["a", "b"]
    assert "delivery_log_backlog" in caplog.text


@pytest.mark.bug
async def test_copies_are_written_again_after_a_bug(
    pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As uvloop's RuntimeError of a connection that is closed in this very moment."""
    keep_soon, fails = store.keep_soon, [RuntimeError("unable to perform operation on a closed transport")]
    written = asyncio.Event()

    async def failing(*args: Any) -> None:
        if fails:
            raise fails.pop()
        await keep_soon(*args)
        written.set()

    monkeypatch.setattr(store, "keep_soon", failing)
    async with recorders.recording(pool, DAY_S, DAY_S) as recorder, asyncio.timeout(20):
        recorder.keep(row("a"))
        await written.wait()
    assert await names(pool) == ["a"]
    assert "task_restarted" in caplog.messages


async def test_a_copy_that_postgres_does_not_take_holds_up_no_other(
    pool: asyncpg.Pool, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder(pool, DAY_S, DAY_S)
    bad = (row("a\0b"), replace(row("verdict"), verdict="none"))  # type: ignore[arg-type]
    for each in (row("a"), bad[0], row("b"), bad[1], row("c")):
        recorder.keep(each)
    await recorder.flush()
    assert await names(pool) == ["a", "b", "c"]
    assert caplog.messages.count("webhook_copy_refused") == 2
    await recorder.flush()
    assert caplog.messages.count("webhook_copy_refused") == 2, "they are not tried again"


async def test_copies_beyond_what_memory_they_may_take_are_left_out_and_said_so(
    pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(recorders, "BYTES_MAX", 2 * len(copied(row("a"))))
    recorder = Recorder(pool, DAY_S, DAY_S)
    for name in ("a", "b", "c"):
        recorder.keep(row(name))
    await recorder.flush()
    recorder.keep(row("d"))
    await recorder.flush()
    assert await names(pool) == ["a", "b", "d"]
    assert caplog.messages.count("delivery_log_dropped") == 1


async def test_a_gateway_whose_clock_is_ahead_ends_nothing_that_is_young(
    pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.keep(pool, [row("old", days_old=31), row("young", days_old=1)])
    expire, expired, time_ns = store.expire, asyncio.Event(), time.time_ns

    async def told(*args: object) -> store.Expired:
        done = await expire(*args)  # type: ignore[arg-type]
        expired.set()
        return done

    monkeypatch.setattr(store, "expire", told)
    monkeypatch.setattr(recorders, "EXPIRE_EVERY_S", 0.0)
    monkeypatch.setattr(time, "time_ns", lambda: time_ns() + 40 * DAY_S * 10**9)
    async with recorders.recording(pool, 30 * DAY_S, 365 * DAY_S):
        await asyncio.wait_for(expired.wait(), 10)
    assert await names(pool) == ["young"]


async def test_old_deliveries_end_as_fast_as_they_come_whatever_is_in_quarantine(
    pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _fill(pool, "accepted", 500, 40)
    await _fill(pool, "quarantined", 300, 41)
    expire, ended = store.expire, asyncio.Event()

    async def told(*args: object) -> store.Expired:
        done = await expire(*args)  # type: ignore[arg-type]
        monkeypatch.setattr(recorders, "EXPIRE_EVERY_S", 3600.0)  # all of it is of one turn
        if done.looked_at < 100:
            ended.set()
        return done

    monkeypatch.setattr(store, "expire", told)
    monkeypatch.setattr(recorders, "EXPIRE_ROWS_MAX", 100)
    monkeypatch.setattr(recorders, "GATHER_S", 0.001)
    monkeypatch.setattr(recorders, "EXPIRE_EVERY_S", 0.0)
    async with recorders.recording(pool, 30 * DAY_S, 365 * DAY_S):
        await asyncio.wait_for(ended.wait(), 20)
    assert len(await names(pool)) == 300


async def test_what_is_in_quarantine_ends_after_a_time_of_its_own_and_that_is_logged(
    pool: asyncpg.Pool, caplog: pytest.LogCaptureFixture
) -> None:
    await store.keep(pool, [row("held", "quarantined", 99), row("ended", "quarantined", 101)])
    recorder = Recorder(pool, 30 * DAY_S, 100 * DAY_S)
    await recorder._expire()
    assert await names(pool) == ["held"]
    assert caplog.messages == ["webhook_quarantine_ended"]
    await store.expire(pool, 120 * DAY_S, 1, bytes(16), 9)
    assert await names(pool) == ["held"], "what is in quarantine stays no shorter than others"


async def test_the_end_of_a_page_looks_at_its_own_rows_and_each_of_their_requests_once(
    pool: asyncpg.Pool,
) -> None:
    await _fill(pool, "quarantined", 3000, 40)
    await _fill(pool, "accepted", 200, 39)
    await pool.execute("ANALYZE webhook_delivery")
    statement = statement_of("inbound", "expire")
    args = (float(30 * DAY_S), float(365 * DAY_S), UUID(int=0), 500)
    plan = await pool.fetchval("EXPLAIN (ANALYZE, FORMAT JSON) " + statement, *args)
    assert max(_read(json.loads(plan)[0]["Plan"])) <= 500


def _read(plan: dict[str, Any]) -> list[float]:
    """How many rows each node read for one of its runs, what it left out among them."""
    left_out = plan.get("Rows Removed by Filter", 0) / plan["Actual Loops"] if plan["Actual Loops"] else 0
    return [plan["Actual Rows"] + left_out, *(n for each in plan.get("Plans", ()) for n in _read(each))]


async def _fill(pool: asyncpg.Pool, verdict: Verdict, count: int, days_old: int) -> None:
    await store.keep(pool, [row(f"{verdict} {n}", verdict, days_old) for n in range(count)])


async def test_a_list_looks_through_all_pages_for_what_is_wanted(
    pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "LISTED_PAGE", 7)
    await store.keep(
        pool, [row("one", days_old=9), row("two", "quarantined", 8), *(row(f"n{n}") for n in range(40))]
    )
    assert [
        each["delivery_id"] for each in await store.listed(pool, TENANT, store.Wanted(delivery_id="one"))
    ] == ["one"]
    assert [
        each["delivery_id"] for each in await store.listed(pool, TENANT, store.Wanted(verdict="quarantined"))
    ] == ["two"]
    assert len(await store.listed(pool, TENANT, store.Wanted(limit=20))) == 20
    assert len(await store.listed(pool, TENANT, store.Wanted())) == 42
    assert await store.listed(pool, TENANT, store.Wanted(source="other")) == []
