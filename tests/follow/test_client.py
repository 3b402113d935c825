"""Lists and projections by the Python client."""

from __future__ import annotations

import asyncio

import pytest

from gateway.client import Actor, AsyncClient, Client, Refused
from tests.support.accounts import Account
from tests.support.calls import new_id
from tests.support.serving import Served

ADA = Actor("user", "global")


async def test_a_client_reads_lists_and_rows_as_of_its_own_appends(gateway: Served, tenant: Account) -> None:
    customer = new_id()
    async with AsyncClient(gateway.url, tenant.write) as sluice:
        for total in (3, 1, 2):
            data = {"total": total, "status": "10", "customer_id": customer}
            placed = await sluice.append("order", new_id(), "was_placed", data, actor=ADA)
        filters = {"status": "10", "total": {"gte": 2}}
        asked = sluice.rows(
            "order", filters=filters, sort=["-total"], fields=["total"], after=placed.position
        )
        assert [row.data async for row in asked] == [{"total": 3}, {"total": 2}]
        row = await sluice.row("customer_totals", customer, after=placed.position)
        assert row is not None and row.data == {"orders": 3, "spent": 6} and row.length == 3
        assert await sluice.row("customer_totals", new_id()) is None
        with pytest.raises(Refused, match="There is no projection 'customer_total'"):
            await sluice.row("customer_total", customer)
        every = [
            row.key async for row in sluice.projection("customer_totals", filters={"spent": {"in": [6, 7]}})
        ]
        assert every == [customer]
        with pytest.raises(Refused):
            [row async for row in sluice.rows("order", filters={"colour": "red"})]

    def read() -> int:
        with Client(gateway.url, tenant.read) as plain:
            return len(list(plain.rows("order", filters={"status": "10"})))

    assert await asyncio.to_thread(read) == 3
