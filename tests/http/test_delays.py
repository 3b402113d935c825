"""When a delay begins: with the commit of its trigger, also where its timer is set much later."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import asyncpg
import pytest

from gateway.config import Config
from gateway.reactions.database import statement
from tests.http.test_schedules import DAY_S, DEADLINE_S, LATER, SHOP
from tests.support.accounts import open_account
from tests.support.calls import appended, new_id
from tests.support.serving import serving, without_reactions

HOUR_S = 3_600.0


async def test_a_delay_continues_while_no_gateway_sets_timers(
    own_config: Config, own_outbox: asyncpg.Pool
) -> None:
    shop = await open_account(own_outbox, LATER)
    async with without_reactions(own_config, shop.admin) as to:
        await appended(to, "order", new_id(), "was_placed", {})
    tenant = UUID(shop.id)
    committed = await own_outbox.fetchval(  # an hour passes
        "UPDATE outbox SET stored_at = stored_at - interval '1 hour' WHERE tenant = $1"
        " RETURNING extract(epoch FROM stored_at)::float8",
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
    ("stored_s", "caught_up_s", "begins_s"),
    [
        (-HOUR_S, None, 1 - HOUR_S),
        (-HOUR_S, -60.0, -60.0),  # it was stored, and a standby kept it from readers until then
        (-60.0, -HOUR_S, -59.0),
        (0.0, None, None),
        (None, None, None),  # an event that is older than the column
    ],
)
async def test_a_delay_begins_when_its_trigger_was_stored(
    own_outbox: asyncpg.Pool,
    own_config: Config,
    stored_s: float | None,
    caught_up_s: float | None,
    begins_s: float | None,
) -> None:
    """None: no later than now, which is when the timer is set."""
    shop, timer = await open_account(own_outbox, SHOP), uuid4()
    tenant = UUID(shop.id)
    async with without_reactions(own_config, shop.admin) as to:
        await appended(to, "order", new_id(), "was_placed", {})
    now = time.time()
    trigger = await own_outbox.fetchval(
        "UPDATE outbox SET recorded_at = to_timestamp(0), stored_at = to_timestamp($2::float8)"
        " WHERE tenant = $1 RETURNING id",
        tenant, None if stored_s is None else now + stored_s,
    )  # fmt: skip
    caught_up = None if caught_up_s is None else datetime.fromtimestamp(now + caught_up_s, UTC)
    void = [None]
    await own_outbox.execute(
        statement("add_schedules"), [timer], tenant, [trigger], void, void, void, [0], [bytes(4)], [DAY_S],
        void, [b"{}"], [b"[]"], [uuid4()], caught_up,
    )  # fmt: skip
    due = await own_outbox.fetchval(
        "SELECT extract(epoch FROM due_at)::float8 FROM schedule WHERE id = $1", timer
    )
    earliest, latest = (now, time.time()) if begins_s is None else (now + begins_s, now + begins_s)
    assert earliest - 0.001 <= due - DAY_S <= latest + 0.001


async def test_an_event_says_when_postgres_stored_it(own_outbox: asyncpg.Pool, own_config: Config) -> None:
    shop = await open_account(own_outbox, SHOP)
    before = await own_outbox.fetchval("SELECT clock_timestamp()")
    async with without_reactions(own_config, shop.admin) as to:
        await appended(to, "order", new_id(), "was_placed", {})
    stored = await own_outbox.fetchval("SELECT stored_at FROM outbox WHERE tenant = $1", UUID(shop.id))
    assert before < stored < await own_outbox.fetchval("SELECT clock_timestamp()")


async def test_a_step_is_late_only_once_all_events_up_to_its_end_were_looked_at(
    own_outbox: asyncpg.Pool,
) -> None:
    """What was committed in time may lie behind the place where events were looked at last."""
    tenant = UUID((await open_account(own_outbox, SHOP)).id)
    due_at = await own_outbox.fetchval(
        "INSERT INTO saga (id, tenant, name, state, length, seq, data, correlation_id, due_at)"
        " VALUES ($1, $2, 'checkout', 'running', 1, 1, '{}', $1, now() - interval '1 second')"
        " RETURNING due_at",
        uuid4(), tenant,
    )  # fmt: skip
    for behind_s, late in ((-1.0, 0), (0.0, 1)):
        looked_at = due_at + timedelta(seconds=behind_s)
        assert len(await own_outbox.fetch(statement("due_sagas"), tenant, 100, looked_at, 1)) == late


async def test_sagas_that_wait_are_read_some_at_a_time(own_outbox: asyncpg.Pool) -> None:
    tenant, other = UUID((await open_account(own_outbox, SHOP)).id), uuid4()
    ids = sorted(uuid4() for _ in range(7))
    for n, each in enumerate(ids):
        key, correlation = ("K", other) if n % 2 else ("none", tenant)
        await own_outbox.execute(
            "INSERT INTO saga (id, tenant, name, state, length, seq, data, correlation_id, due_at,"
            " waits_type, waits_key) VALUES ($1, $2, 'checkout', 'running', 1, 1, $3, $4, now(), 'cart', $5)",
            each, tenant, b"x" * 100, correlation, key,
        )  # fmt: skip
    wanted = tenant, ["cart"], ["K"], [tenant]

    async def found(behind: UUID, most: int, bytes_max: int) -> list[UUID]:
        rows = await own_outbox.fetch(statement("waiting_sagas"), *wanted, behind, most, bytes_max)
        return [row["id"] for row in rows]

    first = UUID(int=0)
    assert await found(first, 10, 1000) == ids
    assert await found(first, 3, 1000) == ids[:3]
    assert await found(ids[2], 3, 1000) == ids[3:6]
    assert await found(ids[2], 3, 150) == ids[3:5]
    assert await found(ids[5], 3, 1) == ids[6:]
    assert await found(ids[6], 3, 1) == []
    looked_at = datetime.fromtimestamp(time.time() + 1, UTC)
    late = await own_outbox.fetch(statement("due_sagas"), tenant, 100, looked_at, 250)
    assert len(late) == 3
