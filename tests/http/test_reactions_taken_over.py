"""Timers of a process that died are fired by another one; those that may have fired can't be cancelled."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
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
from gateway.reactions.firing import Firing
from spec.model import Spec
from spec.parse import parse_deployed
from tests.http.test_reactions_apart import types
from tests.http.test_schedules import SHOP, ended
from tests.support.accounts import Account, open_account
from tests.support.calls import appended, new_client, new_id, refused
from tests.support.serving import Served, serving, without_reactions

DEADLINE_S = 20.0
LEASE_S = 1.0


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
    timer: str, two: tuple[Taking, Taking]
) -> None:
    first, second = two
    await first.firing.run_once()
    await until_taken(first)
    until = time.monotonic() + 2 * LEASE_S
    while time.monotonic() < until:  # it is alive, and holds it on
        await first.firing.run_once()
        await second.firing.run_once()
        await asyncio.sleep(LEASE_S / 20)
    assert not second.taken
    died_at = time.monotonic()
    async with asyncio.timeout(DEADLINE_S):
        while not second.taken:
            await second.firing.run_once()
            await asyncio.sleep(LEASE_S / 20)
    assert time.monotonic() - died_at < 2 * LEASE_S + 1
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
    whole, tries, waits = Records.append, itertools.count(1), True

    def delayed(self: Records, append: Append) -> asyncio.Future[Outcome]:
        if not (waits and append.events[0].actor_type == "system_scheduler"):
            return whole(self, append)
        next(tries)
        answer: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        answer.set_result(outcome)
        return answer

    monkeypatch.setattr(Records, "append", delayed)
    async with serving(own_config) as served, new_client(served.url, account.admin) as client:
        key = new_id()
        timer = await set_timer(client, key, "2020-01-01T00:00:00Z")
        async with asyncio.timeout(DEADLINE_S):
            while not await tried(client, own_config, timer):
                await asyncio.sleep(LEASE_S / 20)
        answer = await client.post(f"/_/schedules/{timer}/cancel", json={})
        if cancelled:
            assert answer.json()["schedule"]["state"] == "cancelled"
            return
        refused(answer, 409, "schedule_ended")
        waits = False
        async with asyncio.timeout(DEADLINE_S):
            while await types(client, "order", key) != ["was_paid"]:
                await asyncio.sleep(LEASE_S / 20)


async def tried(client: httpx.AsyncClient, config: Config, timer: str) -> bool:
    """Whether it was put off behind an attempt."""
    connection = await asyncpg.connect(config.postgres_url)
    try:
        query = "SELECT lease_until < now() + interval '1 s' FROM schedule WHERE id = $1"
        return bool(await connection.fetchval(query, UUID(timer)))
    finally:
        await connection.close()


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
            await asyncio.sleep(LEASE_S / 20)


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
