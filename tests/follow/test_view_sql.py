"""A view of rows for programs that read Postgres by themselves."""

from __future__ import annotations

from uuid import UUID

import asyncpg
import pytest

from gateway.follow.view_sql import create_view

TENANT = UUID(int=1)
METADATA = ["length", "created_at", "updated_at", "data"]


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
