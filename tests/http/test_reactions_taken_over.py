"""Timers of a process that died are fired by another one; those that may have fired can't be cancelled."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime, timedelta, tzinfo
from typing import Any
from uuid import UUID

import asyncpg
import httpx
import pytest

from gateway.aggregates.records import Records
from gateway.appends import Append
from gateway.catalog.model import Deployed
from gateway.config import Config
from gateway.http.api import schedules
from gateway.outcomes import NotCommitted, Outcome, OutcomeUnknown
from gateway.reactions import firing
from gateway.reactions.firing import Firing
from spec.model import Spec
from spec.parse import parse_deployed
from tests.http.test_reactions_apart import types
from tests.http.test_schedules import SHOP, ended
from tests.support.accounts import Account, open_account
from tests.support.calls import appended, new_client, new_id, refused
from tests.support.serving import Served, serving, without_reactions

DEADLINE_S = 40.0
LEASE_S = 4.0
"""Of which a third is over before it is held on, and the rest may pass while the machine stands still."""
LOOK_S = 0.05
LEASE = "SELECT lease_until FROM schedule WHERE id = $1"


async def no_news() -> None:
    """The spec is the newest."""


class Taking:
    """A process that fires timers: it notes them, and does not come to an end with any."""

    def __init__(self, pool: asyncpg.Pool, deployed: Deployed) -> None:
        self.taken: list[Append] = []
        self.firing = Firing(pool, lambda _: deployed, self._submit, 10_000, frozenset, LEASE_S, no_news)

    async def _submit(self, append: Append) -> Outcome:
        self.taken.append(append)
        return await asyncio.get_running_loop().create_future()


@pytest.fixture
async def account(own_outbox: asyncpg.Pool) -> Account:
    return await open_account(own_outbox, SHOP)


@pytest.fixture
async def timer(own_config: Config, account: Account) -> AsyncIterator[str]:
    """One that is due, and that no gateway fires."""
    async with without_reactions(own_config, account.admin) as client:
        yield await set_timer(client, new_id(), "2020-01-01T00:00:00Z")


async def set_timer(client: httpx.AsyncClient, key: str, due_at: str) -> str:
    emit = {"aggregate_type": "order", "id": key, "event_type": "was_paid"}
    body = {"due_at": due_at, "emit": emit}
    answer = await client.post("/_/schedules", json=body, headers={"idempotency-key": new_id()})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["schedule"]["id"])


@pytest.fixture
async def two(own_outbox: asyncpg.Pool, account: Account) -> AsyncIterator[tuple[Taking, Taking]]:
    """Processes that see no other tenants."""
    spec = parse_deployed(json.dumps(SHOP).encode())
    assert isinstance(spec, Spec)
    (salt,) = await own_outbox.fetchrow("SELECT salt FROM tenant WHERE id = $1", UUID(account.id))
    found = [Taking(own_outbox, Deployed(1, spec, b"", salt=bytes(salt))) for _ in range(2)]
    yield found[0], found[1]
    for each in found:
        await each.firing.stop()


async def test_a_timer_is_another_process_once_the_one_that_fired_it_died(
    timer: str, two: tuple[Taking, Taking], own_outbox: asyncpg.Pool
) -> None:
    first, second = two
    await first.firing.run_once()
    await until_taken(first)
    held_until = await own_outbox.fetchval(LEASE, UUID(timer))
    async with asyncio.timeout(DEADLINE_S):
        while await own_outbox.fetchval(LEASE, UUID(timer)) == held_until:  # it is alive, and holds it on
            await first.firing.run_once()
            await second.firing.run_once()
            await asyncio.sleep(LOOK_S)
        assert not second.taken
        held_until = await own_outbox.fetchval(LEASE, UUID(timer))
        now = await own_outbox.fetchval("SELECT now()")
        assert held_until <= now + timedelta(seconds=LEASE_S), "it is not held for longer"
        while not second.taken:
            await second.firing.run_once()
            await asyncio.sleep(LOOK_S)
    assert [each.events[0].id for each in second.taken] == [each.events[0].id for each in first.taken]


async def test_a_process_that_stops_gives_its_timers_back(timer: str, two: tuple[Taking, Taking]) -> None:
    first, second = two
    await first.firing.run_once()
    await until_taken(first)
    await first.firing.stop()
    await second.firing.run_once()
    await until_taken(second)


async def until_taken(process: Taking) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not process.taken:
            await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("outcome", "cancelled"), [(OutcomeUnknown(b""), False), (NotCommitted("the test says so"), True)]
)
async def test_a_timer_whose_event_may_be_stored_can_not_be_cancelled(
    own_config: Config,
    account: Account,
    monkeypatch: pytest.MonkeyPatch,
    outcome: Outcome,
    cancelled: bool,
) -> None:
    whole, waits = Records.append, True
    put_off, are_put_off = Firing._put_off, set[UUID]()

    def delayed(self: Records, append: Append) -> asyncio.Future[Outcome]:
        if not (waits and append.events[0].actor_type == "system_scheduler"):
            return whole(self, append)
        answer: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        answer.set_result(outcome)
        return answer

    async def noted(self: Firing, tenant: bytes, row: Any, **more: Any) -> None:
        await put_off(self, tenant, row, **more)
        are_put_off.add(row["id"])

    monkeypatch.setattr(Records, "append", delayed)
    monkeypatch.setattr(Firing, "_put_off", noted)
    if cancelled:  # while no attempt is open
        monkeypatch.setattr(firing, "AGAIN_S", 3600.0)
    async with serving(own_config) as served, new_client(served.url, account.admin) as client:
        key = new_id()
        timer = await set_timer(client, key, "2020-01-01T00:00:00Z")
        async with asyncio.timeout(DEADLINE_S):
            while UUID(timer) not in are_put_off:
                await asyncio.sleep(LOOK_S)
        answer = await client.post(f"/_/schedules/{timer}/cancel", json={})
        if cancelled:
            assert answer.json()["schedule"]["state"] == "cancelled"
            return
        refused(answer, 409, "schedule_ended")
        waits = False
        async with asyncio.timeout(DEADLINE_S):
            while await types(client, "order", key) != ["was_paid"]:
                await asyncio.sleep(LOOK_S)


async def test_a_timer_that_is_run_is_due_by_postgres_clock(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ahead(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Any:
            return datetime.now(tz) + timedelta(hours=1)

    monkeypatch.setattr(schedules, "datetime", Ahead)
    key = new_id()
    timer = await set_timer(client, key, "2099-01-01T00:00:00Z")
    assert (await client.post(f"/_/schedules/{timer}/run", json={})).status_code == 200
    async with asyncio.timeout(DEADLINE_S):
        while await types(client, "order", key) != ["was_paid"]:
            await asyncio.sleep(LOOK_S)


@pytest.fixture
async def client(gateway: Served, outbox: asyncpg.Pool) -> AsyncIterator[httpx.AsyncClient]:
    async with new_client(gateway.url, (await open_account(outbox, SHOP)).admin) as client:
        yield client


async def test_a_gateway_that_does_not_relay_fires_timers(own_config: Config, account: Account) -> None:
    async with (
        serving(replace(own_config, relay=False)) as served,
        new_client(served.url, account.admin) as client,
    ):
        key = new_id()
        await appended(client, "order", key, "was_placed", {})
        await ended(client, key, "fired")
