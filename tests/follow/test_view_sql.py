"""A view of rows for programs that read Postgres by themselves."""

from __future__ import annotations

from uuid import UUID

import asyncpg
import pytest

from gateway.follow.view_sql import create_view
from tests.follow.conftest import Shop
from tests.support.accounts import Account
from tests.support.calls import new_id

TENANT = UUID(int=1)


@pytest.mark.parametrize(
    ("by", "columns"),
    [
        (["spent", "a.b"], ["key", "spent", "a_b", "length", "created_at", "updated_at", "data"]),
        (
            ["key", "a.b", "a_b"],
            ["key", "key_2", "a_b", "a_b_2", "length", "created_at", "updated_at", "data"],
        ),
        (["metadata.updated_at", "data", "length"], ["key", "updated_at", "data", "length", "created_at"]),
        (['it"s', "o'clock"], ["key", 'it"s', "o'clock", "length", "created_at", "updated_at", "data"]),
    ],
)
async def test_it_can_be_created_and_has_a_column_for_each_field(
    pool: asyncpg.Pool, by: list[str], columns: list[str]
) -> None:
    async with pool.acquire() as conn:
        await conn.execute(create_view(TENANT, "list", "order", by, {"spent": "number"}))
        statement = await conn.prepare("SELECT * FROM order_rows")
        assert [each.name for each in statement.get_attributes()] == columns
        await conn.execute("DROP VIEW order_rows")


async def test_a_later_value_of_another_type_is_null_in_its_column_and_hides_no_row(
    shop: Shop, pool: asyncpg.Pool, tenant: Account
) -> None:
    """Types are those of the rows when the view was made."""
    for total in (1.5, "much", None, {"a": 1}):
        await shop.append(new_id(), "was_placed", {"total": total, "status": total})
    await shop.get("/order")
    by, types = ["total", "status"], {"total": "number", "status": "boolean"}
    view = create_view(UUID(tenant.id), "list", "order", by, types)
    async with pool.acquire() as conn:
        await conn.execute(view)
        rows = await conn.fetch("SELECT total, status, data ->> 'total' AS data FROM order_rows")
        await conn.execute("DROP VIEW order_rows")
    assert {each["data"]: (each["total"], each["status"]) for each in rows} == {
        "1.5": (1.5, None),
        "much": (None, None),
        None: (None, None),
        '{"a": 1}': (None, None),
    }
