"""Deleted rows are remembered for a while, for live readers who come back; later these start again."""

from __future__ import annotations

import asyncpg

from gateway.follow.retention import prune
from tests.follow.conftest import Shop
from tests.follow.test_live import following
from tests.support.calls import new_id


async def test_a_reader_who_comes_back_behind_what_is_forgotten_starts_again(
    shop: Shop, pool: asyncpg.Pool
) -> None:
    one, other = new_id(), new_id()
    path = "/_/projections/customer_totals"
    for customer in (one, other):
        await shop.append(new_id(), "was_placed", {"total": 1, "customer_id": customer})
    await shop.get(path)
    async with following(shop.client, path) as stream:
        seen = [await stream.next() for _ in range(2)]
    await shop.append(one, "was_closed", of="customer")
    await shop.get(path)
    async with following(shop.client, path, seen[1].id) as stream:
        gone = await stream.next()
        assert (gone.event, gone.data) == ("delete", {"key": one})
    assert await prune(pool) == 0
    assert await prune(pool, -3600.0) == 1
    async with following(shop.client, path, seen[1].id) as stream:
        assert (await stream.next()).event == "reset"
        again = await stream.next()
        assert (again.event, again.data["key"]) == ("upsert", other)
    await shop.append(new_id(), "was_placed", {"total": 2, "customer_id": one})
    assert (await shop.get(f"{path}/{one}"))["data"] == {"orders": 1, "spent": 2}
