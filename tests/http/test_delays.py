"""When a delay begins: with the commit of its trigger, also where its timer is set much later."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from gateway.config import Config
from gateway.reactions.database import statement
from tests.http.test_schedules import EXPIRY, SHOP
from tests.support.accounts import open_account
from tests.support.calls import appended, new_client, new_id
from tests.support.serving import serving

DEADLINE_S = 20.0
HOUR_S, DAY_S = 3_600.0, 86_400.0
PLACED = SHOP["aggregate_types"]["order"]["events"]["was_placed"]
LATER: dict[str, Any] = {
    **SHOP,
    "aggregate_types": {
        "order": {
            "events": {
                **SHOP["aggregate_types"]["order"]["events"],
                "was_placed": {
                    **PLACED,
                    "implications": [{"schedule": {**EXPIRY, "delay_ms": int(DAY_S * 1000)}}],
                },
            }
        }
    },
}


async def test_a_delay_goes_on_while_no_gateway_sets_timers(
    own_config: Config, own_outbox: asyncpg.Pool
) -> None:
    shop = await open_account(own_outbox, LATER)
    async with serving(replace(own_config, relay=False)) as served, new_client(served.url, shop.admin) as to:
        await appended(to, "order", new_id(), "was_placed", {})
    tenant = UUID(shop.id)
    committed = await own_outbox.fetchval(  # an hour passes
        "UPDATE outbox SET recorded_at = recorded_at - interval '1 hour' WHERE tenant = $1"
        " RETURNING extract(epoch FROM recorded_at)::float8",
        tenant,
    )
    assert await own_outbox.fetchval("SELECT caught_up_at FROM reacting WHERE tenant = $1", tenant) is None
    async with serving(own_config), asyncio.timeout(DEADLINE_S):
        while not (rows := await own_outbox.fetch("SELECT due_at FROM schedule WHERE tenant = $1", tenant)):
            await asyncio.sleep(0.02)
        while not await own_outbox.fetchval("SELECT caught_up_at FROM reacting WHERE tenant = $1", tenant):
            await asyncio.sleep(0.02)
    assert rows[0]["due_at"].timestamp() == pytest.approx(committed + DAY_S, abs=2)


@pytest.mark.parametrize(
    ("committed_s", "caught_up_s", "begins_s"),
    [
        (-HOUR_S, None, -HOUR_S),
        (-HOUR_S, -60.0, 0.0),  # a clock that is slow: it was committed in the last minute
        (-60.0, -HOUR_S, -60.0),
        (HOUR_S, -60.0, 0.0),  # a clock that is fast
        (None, None, 0.0),  # a client's own
    ],
)
async def test_no_gateway_s_clock_makes_a_delay_shorter(
    own_outbox: asyncpg.Pool, committed_s: float | None, caught_up_s: float | None, begins_s: float
) -> None:
    shop, timer, now = await open_account(own_outbox, SHOP), uuid4(), time.time()
    caught_up = None if caught_up_s is None else _time(now + caught_up_s)
    committed_ms = None if committed_s is None else int((now + committed_s) * 1000)
    void = [None]
    await own_outbox.execute(
        statement("add_schedules"), [timer], UUID(shop.id), void, void, void, void, [0], [bytes(4)], [DAY_S],
        void, [b"{}"], [b"[]"], [uuid4()], [committed_ms], caught_up,
    )  # fmt: skip
    due = await own_outbox.fetchval(
        "SELECT extract(epoch FROM due_at)::float8 FROM schedule WHERE id = $1", timer
    )
    assert due == pytest.approx(now + begins_s + DAY_S, abs=5)


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
