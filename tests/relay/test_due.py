"""One look at Postgres for all parts of a process: each is told of what is its own."""

from __future__ import annotations

import asyncio
import logging

import asyncpg
import pytest

from gateway.relay.due import RARELY, Due, taken
from gateway.relay.repeated import Repeated
from gateway.tasks import ended
from tests.relay.conftest import Bench
from tests.relay.receivers import SECRET, WebReceiver

WITHIN_S = 40


@pytest.fixture
def due(pool: asyncpg.Pool) -> Due:
    return Due(pool)


async def look_at_all(due: Due) -> set[str]:
    for _ in range(RARELY):
        await due.look()
    return {name for name, each in vars(due).items() if isinstance(each, asyncio.Event) and each.is_set()}


async def test_nothing_is_due_where_there_is_nothing(due: Due, bench: Bench) -> None:
    assert await look_at_all(due) == set()


async def test_a_subscription_that_no_relay_holds_is_due(
    due: Due, bench: Bench, receiver: WebReceiver
) -> None:
    await bench.put("ours", {"type": "webhook", "url": receiver.url, "secret": SECRET})
    await due.look()
    assert due.subscriptions.is_set()
    lease = "UPDATE subscription SET lease_until = clock_timestamp() + $1 * interval '1 s'"
    await bench.pool.execute(lease, 60.0)
    due.subscriptions.clear()
    assert await look_at_all(due) == set()
    await bench.pool.execute(lease, 0.0)
    await due.look()
    assert due.subscriptions.is_set()


async def test_that_of_a_tenant_that_is_suspended_is_not(
    due: Due, bench: Bench, receiver: WebReceiver
) -> None:
    await bench.put("ours", {"type": "webhook", "url": receiver.url, "secret": SECRET})
    await bench.pool.execute("UPDATE tenant SET suspended_at = now() WHERE id = $1", bench.tenant)
    assert await look_at_all(due) == set()


async def test_what_is_taken_is_due_no_more() -> None:
    event = asyncio.Event()
    event.set()
    assert [taken(event), taken(event), taken(None)] == [True, False, True]


async def test_what_becomes_due_ends_the_pause_before_the_work() -> None:
    due, begun = asyncio.Event(), asyncio.Queue[bool]()

    async def work() -> None:
        begun.put_nowait(taken(due))

    task = asyncio.create_task(Repeated(logging.getLogger("sluice.relay")).run(work, 3600, wakes=due))
    async with asyncio.timeout(WITHIN_S):
        assert not await begun.get()
        due.set()
        assert await begun.get()
    await ended([task])
