"""What the overview says of the instance and of the tenant, over plain HTTP."""

from __future__ import annotations

import re
from uuid import UUID

import asyncpg
import httpx

from gateway.console.instance import Alarm, InstanceReader, WithoutRedis
from gateway.console.views.overview import LOOKED_AT
from tests.console.test_site import person, signed_in
from tests.support.accounts import Account
from tests.support.calls import new_client, new_id, until
from tests.support.serving import Served

__all__ = ("person", "signed_in")
OVERVIEW = "/_/console/overview"


async def test_gateways_that_are_known_and_alarms_are_read_from_postgres(postgres_url: str) -> None:
    silent, recent = UUID(int=1), UUID(int=2)
    async with asyncpg.create_pool(postgres_url, min_size=1, max_size=1) as pool:
        ago = "now() - $2 * interval '1 hour'"
        known = f"INSERT INTO catalog_reader (gateway, revision, seen_at) VALUES ($1, 1, {ago})"
        for gateway, hours in ((silent, 1), (recent, 0), (UUID(int=3), 48)):
            await pool.execute(known, gateway, hours)
        away = f"INSERT INTO redis_unreachable (gateway, partitions, seen) VALUES ($1, '{{0,1}}', {ago})"
        for name, hours in (("here:1", 0), ("here:2", 1)):
            await pool.execute(away, name, hours)
        await pool.execute("UPDATE partition_log SET alarm = 'It lost commits.' WHERE p = 3")
        found = await InstanceReader(pool).read()
    assert [(each.id, each.gone) for each in found.gateways] == [(str(recent), False), (str(silent), True)]
    assert found.without_redis == (WithoutRedis("here:1", 2),)
    assert found.alarms == (Alarm(3, "It lost commits."),)


async def test_the_overview_has_the_gateways_and_where_partitions_are(signed_in: httpx.AsyncClient) -> None:
    shown = (await signed_in.get(OVERVIEW)).text
    assert re.search(r"<li class=\"\"><code>[0-9a-f-]{36}</code> reports</li>", shown)
    assert re.search(r'<dt>Partitions open</dt><dd class="">\d+</dd>', shown)
    assert '<dt>Redis</dt><dd class="good">answers</dd>' in shown


async def test_many_parked_timers_are_one_sentence(
    signed_in: httpx.AsyncClient, gateway: Served, shop: Account
) -> None:
    async with new_client(gateway.url, shop.admin) as client:
        emit = {"aggregate_type": "order", "id": new_id(), "event_type": "was_refunded"}
        for _ in range(LOOKED_AT):
            body = {"due_at": "2020-01-01T00:00:00Z", "emit": emit}
            answer = await client.post("/_/schedules", json=body, headers={"idempotency-key": new_id()})
            assert answer.status_code == 201, answer.text

        async def parked() -> bool:
            listed = await client.get("/_/schedules", params={"state": "parked"})
            return len(listed.json()["items"]) == LOOKED_AT

        await until(parked)
    shown = (await signed_in.get(OVERVIEW)).text
    sentence = f"{LOOKED_AT} or more timers are parked."
    assert f'<a href="/_/console/schedules?state=parked">{sentence}</a>' in shown
