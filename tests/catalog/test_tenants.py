from __future__ import annotations

from io import BytesIO

import asyncpg
import pytest

from gateway.catalog import tenants
from gateway.catalog.model import CatalogError


async def test_a_tenant_has_a_time_ordered_id_and_a_public_handle(conn: asyncpg.Connection) -> None:
    tenant = await tenants.create(conn, "acme")
    assert (tenant.name, tenant.id.version, len(tenant.handle)) == ("acme", 7, 8)
    assert await tenants.named(conn, "acme") == tenant


async def test_tenants_are_listed_by_name(conn: asyncpg.Connection) -> None:
    made = [await tenants.create(conn, name) for name in ("zeta", "acme", "m-1_x")]
    assert await tenants.every(conn) == sorted(made, key=lambda tenant: tenant.name)


@pytest.mark.parametrize("name", ["", "Acme", "1acme", "_x", "a b", "acme\n", "a" * 64, "ä", "a/b", "acme٣"])
async def test_what_is_no_name_is_refused(conn: asyncpg.Connection, name: str) -> None:
    with pytest.raises(CatalogError, match="is not a valid name of a tenant"):
        await tenants.create(conn, name)
    assert await tenants.every(conn) == []


async def test_a_name_is_given_once(conn: asyncpg.Connection) -> None:
    first = await tenants.create(conn, "acme")
    with pytest.raises(CatalogError, match="there is a tenant 'acme' already"):
        await tenants.create(conn, "acme")
    assert await tenants.every(conn) == [first]


async def test_a_handle_that_is_taken_is_drawn_again_and_the_first_row_stays(
    conn: asyncpg.Connection,
) -> None:
    first = await tenants.create(conn, "acme", entropy=BytesIO(bytes(8)).read)
    other = await tenants.create(conn, "beta", entropy=BytesIO(bytes(16) + bytes([1] * 8)).read)
    assert (first.handle, other.handle) == ("00000000", "11111111")
    assert await tenants.named(conn, "acme") == first


async def test_a_source_that_repeats_without_end_is_an_error_and_changes_nothing(
    conn: asyncpg.Connection,
) -> None:
    await tenants.create(conn, "acme", entropy=bytes)
    before = await conn.fetchval("SELECT revision FROM catalog_clock")
    with pytest.raises(CatalogError, match="is the source of randomness broken"):
        await tenants.create(conn, "beta", entropy=bytes)
    assert await conn.fetchval("SELECT revision FROM catalog_clock") == before


async def test_an_unknown_name_says_where_to_look(conn: asyncpg.Connection) -> None:
    with pytest.raises(CatalogError, match="no tenant 'nobody': `sluice tenants list`"):
        await tenants.named(conn, "nobody")
