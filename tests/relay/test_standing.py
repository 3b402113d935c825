"""What the lag of subscriptions costs, however many of them are behind."""

from __future__ import annotations

import asyncio
import time

import pytest

from gateway.relay import standing
from gateway.telemetry.metrics import Reading
from tests.relay.conftest import Bench, until
from tests.support.calls import new_id

BEHIND = 20
EVENTS = 500


async def _behind(bench: Bench) -> None:
    """So many subscriptions without consumers, each behind by so many events, with no others' between."""
    for n in range(BEHIND):
        await bench.put(f"behind-{n}", {"type": "pull"}, "now")
    await bench.append([new_id() for _ in range(10)], EVENTS // 10)


async def test_subscriptions_of_a_list_share_what_is_looked_at_for_their_lag(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _behind(bench)
    monkeypatch.setattr(standing, "LOOKED_AT_IN_ALL", BEHIND * 100)
    listed = (await bench.client.get("/_/subscriptions")).json()["subscriptions"]
    assert [each["lag_events"] for each in listed] == [100] * BEHIND
    assert all(each["lag_s"] > 0 for each in listed)


async def test_a_subscription_asked_for_by_name_is_counted_as_if_it_had_no_others_beside_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _behind(bench)
    monkeypatch.setattr(standing, "LOOKED_AT_IN_ALL", BEHIND * 100)
    asked = (await bench.client.get("/_/subscriptions/behind-7")).json()
    assert asked["lag_events"] == EVENTS
    changed = await bench.client.put("/_/subscriptions/behind-8", json={"target": {"type": "pull"}})
    assert changed.json()["lag_events"] == EVENTS


async def test_gauges_look_at_so_many_events_of_all_subscriptions_together(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _behind(bench)
    monkeypatch.setattr(standing, "GAUGED_LOOKED_AT", BEHIND * 10)
    (pulled,) = await standing.standing_by_kind(bench.pool)
    assert (pulled.kind, pulled.lag_events) == ("pull", 10)
    monkeypatch.setattr(standing, "GAUGED_MAX", 1)
    (pulled,) = await standing.standing_by_kind(bench.pool)
    assert (pulled.kind, pulled.lag_events) == ("pull", BEHIND * 10)
    assert pulled.lag_s > 0


async def test_a_reading_for_gauges_that_takes_long_comes_less_often(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.relay.relay.READ_EVERY_S", 0.01)
    monkeypatch.setattr("gateway.relay.relay.READ_SHARE", 1e-9)
    readings = []

    async def read(_pool: object) -> list[standing.OfKind]:
        readings.append(time.monotonic())
        return [standing.OfKind("pull", lag_events=7)]

    monkeypatch.setattr("gateway.relay.relay.standing_by_kind", read)
    async with bench.relaying() as relay:
        told = Reading("sluice_relay_lag_events", 7, ("pull",))
        await until(lambda: told in list(relay.readings()))
        for _ in range(3):
            await relay._read()
    assert len(readings) == 1


async def test_old_attempts_end_in_one_turn_but_for_those_that_another_gateway_ends(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.put("all", {"type": "pull"})
    await bench.pool.execute(
        """INSERT INTO delivery_attempt (subscription, event, attempt, at, took_ms, outcome, response)
        SELECT s.id, gen_random_uuid(), 1, now() - make_interval(days => days), 1, 'failed', ''
        FROM subscription s, (SELECT 30 AS days FROM generate_series(1, 500) UNION ALL SELECT 1) old
        WHERE s.name = 'all'"""
    )
    monkeypatch.setattr("gateway.relay.relay.FORGET_MAX", 60)
    monkeypatch.setattr("gateway.relay.relay.FORGET_PAUSE_S", 0.0)
    async with bench.pool.acquire() as other, other.transaction():
        await other.execute("SELECT FROM delivery_attempt ORDER BY at LIMIT 60 FOR UPDATE")
        async with bench.relaying() as relay:
            await asyncio.wait_for(relay._forget(), 30)

            async def only_those_are_left() -> bool:
                return await bench.pool.fetchval("SELECT count(*) FROM delivery_attempt") == 61

            await until(only_those_are_left)  # the relay does so by itself too, at the same time
