from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from uuid import UUID

import asyncpg
import pytest

from gateway.catalog import source_ids, tenants
from gateway.catalog.model import CatalogError, CatalogUnavailable, Tenant
from gateway.catalog.source_ids import Sighted, key_of, keys_of, known_key, link, rename_scope, source_ids_of
from gateway.names.source_ids import SourceId, derived_key

TU1 = SourceId("xliff", "a.xlf", "tu1")


async def test_a_first_sight_mints_the_key_and_later_ones_return_it(
    conn: asyncpg.Connection, tenant: Tenant
) -> None:
    first = await key_of(conn, tenant.id, TU1)
    assert first == Sighted(derived_key(tenant.id, "xliff", "a.xlf", 0, "tu1"), True)
    assert await key_of(conn, tenant.id, TU1) == Sighted(first.key, False)
    assert await known_key(conn, tenant.id, TU1) == first.key


async def test_what_was_never_seen_is_not_minted_by_asking(conn: asyncpg.Connection, tenant: Tenant) -> None:
    assert await known_key(conn, tenant.id, TU1) is None
    assert await conn.fetchval("SELECT count(*) FROM source_scope") == 0


@pytest.mark.parametrize("random", [False, True])
async def test_first_sights_at_once_give_one_key(postgres_url: str, tenant: Tenant, random: bool) -> None:
    async with asyncpg.create_pool(postgres_url, min_size=16, max_size=16) as pool:
        sighted = await asyncio.gather(*(key_of(pool, tenant.id, TU1, random=random) for _ in range(64)))
        assert len({each.key for each in sighted}) == 1
        assert sum(each.first for each in sighted) == 1
        assert await pool.fetchval("SELECT count(*) FROM source_map") == 1


async def test_first_sights_of_many_ids_in_one_new_scope_all_succeed(
    pool: asyncpg.Pool, tenant: Tenant
) -> None:
    ids = [SourceId("xliff", "a.xlf", f"tu{n}") for n in range(40)]
    sighted = await asyncio.gather(*(key_of(pool, tenant.id, each) for each in ids))
    assert all(each.first for each in sighted)
    assert len({each.key for each in sighted}) == 40


async def test_many_ids_have_the_keys_that_each_would_have_also_when_they_are_seen_at_once(
    postgres_url: str, tenant: Tenant
) -> None:
    ids = [f"tu{n}" for n in range(200)]
    async with asyncpg.create_pool(postgres_url, min_size=8, max_size=8) as pool:
        known = [await key_of(pool, tenant.id, SourceId("xliff", "a.xlf", each)) for each in ids[:3]]
        turns = [ids[n:] + ids[:n] for n in range(0, 200, 10)]
        found = await asyncio.gather(*(keys_of(pool, tenant.id, "xliff", "a.xlf", turn) for turn in turns))
        assert [found[0][each] for each in ids[:3]] == [each.key for each in known]
        assert all(each == found[0] for each in found)
        assert len(set(found[0].values())) == len(ids)
        one = await key_of(pool, tenant.id, SourceId("xliff", "a.xlf", "tu199"))
        assert one == Sighted(found[0]["tu199"], False)
        assert await keys_of(pool, tenant.id, "xliff", "a.xlf", []) == {}


async def test_a_key_on_request_is_random(conn: asyncpg.Connection, tenant: Tenant) -> None:
    sighted = await key_of(conn, tenant.id, TU1, random=True)
    assert UUID(sighted.key).version == 4
    assert (await key_of(conn, tenant.id, TU1)).key == sighted.key


async def test_an_id_names_something_else_in_another_scope_source_or_tenant(
    conn: asyncpg.Connection, tenant: Tenant
) -> None:
    other = await tenants.create(conn, "other")
    places = [
        (tenant, TU1),
        (tenant, SourceId("xliff", "b.xlf", "tu1")),
        (tenant, SourceId("po", "a.xlf", "tu1")),
    ]
    places += [(other, TU1), (tenant, SourceId("xliff", "a.xlf", "tu1 "))]
    keys = {(await key_of(conn, owner.id, sighted)).key for owner, sighted in places}
    assert len(keys) == 5


async def test_another_tenant_sees_nothing_of_it(conn: asyncpg.Connection, tenant: Tenant) -> None:
    other = await tenants.create(conn, "other")
    key = (await key_of(conn, tenant.id, TU1)).key
    assert await known_key(conn, other.id, TU1) is None
    assert await source_ids_of(conn, other.id, key) == ()
    with pytest.raises(CatalogError, match="no scope"):
        await rename_scope(conn, other.id, "xliff", "a.xlf", "b.xlf")


async def test_a_source_id_that_is_spelled_like_a_key_does_not_address_it(
    conn: asyncpg.Connection, tenant: Tenant
) -> None:
    key = (await key_of(conn, tenant.id, TU1)).key
    assert (await key_of(conn, tenant.id, SourceId("xliff", "a.xlf", key))).key != key


async def test_a_replay_into_an_empty_database_gives_the_same_key(
    conn: asyncpg.Connection, tenant: Tenant
) -> None:
    before = await key_of(conn, tenant.id, TU1)
    await conn.execute("TRUNCATE source_scope, source_key")
    assert await key_of(conn, tenant.id, TU1) == before


async def test_a_renamed_scope_keeps_its_keys(conn: asyncpg.Connection, tenant: Tenant) -> None:
    key = (await key_of(conn, tenant.id, TU1)).key
    await rename_scope(conn, tenant.id, "xliff", "a.xlf", "b.xlf")
    moved = SourceId("xliff", "b.xlf", "tu1")
    assert await key_of(conn, tenant.id, moved) == Sighted(key, False)
    assert await source_ids_of(conn, tenant.id, key) == (moved,)
    await rename_scope(conn, tenant.id, "xliff", "b.xlf", "a.xlf")
    assert await key_of(conn, tenant.id, TU1) == Sighted(key, False)


async def test_a_scope_that_takes_a_name_given_up_gets_keys_of_its_own(
    conn: asyncpg.Connection, tenant: Tenant
) -> None:
    keys = []
    for name in ("b.xlf", "c.xlf", "d.xlf"):
        keys.append(await key_of(conn, tenant.id, TU1))
        await rename_scope(conn, tenant.id, "xliff", "a.xlf", name)
    assert len({each.key for each in keys}) == 3
    assert all(each.first for each in keys)
    again = [await key_of(conn, tenant.id, SourceId("xliff", f"{name}.xlf", "tu1")) for name in "bcd"]
    assert [each.key for each in again] == [each.key for each in keys]


async def test_a_rename_amid_first_sights_leaves_every_id_with_one_key(
    pool: asyncpg.Pool, tenant: Tenant
) -> None:
    ids = [SourceId("xliff", "a.xlf", f"tu{n}") for n in range(60)]
    await key_of(pool, tenant.id, ids[0])

    async def rename() -> list[Sighted]:
        await rename_scope(pool, tenant.id, "xliff", "a.xlf", "b.xlf")
        return []

    work: list[Awaitable[object]] = [key_of(pool, tenant.id, each) for each in ids]
    work.insert(30, rename())
    await asyncio.gather(*work)
    rows = await pool.fetch("SELECT scope, source_id, key FROM source_map")
    assert len(rows) == len({row["key"] for row in rows}) >= 60
    assert {row["scope"] for row in rows} <= {"a.xlf", "b.xlf"}


async def test_a_scope_is_not_renamed_over_another(conn: asyncpg.Connection, tenant: Tenant) -> None:
    await key_of(conn, tenant.id, TU1)
    await key_of(conn, tenant.id, SourceId("xliff", "b.xlf", "tu1"))
    with pytest.raises(CatalogError, match=r"has a scope 'b.xlf' already"):
        await rename_scope(conn, tenant.id, "xliff", "a.xlf", "b.xlf")
    with pytest.raises(CatalogError, match="U\\+0000"):
        await rename_scope(conn, tenant.id, "xliff", "a.xlf", "b\0")


async def test_several_ids_may_be_linked_to_one_aggregate_and_what_is_stored_wins(
    conn: asyncpg.Connection, tenant: Tenant
) -> None:
    key = "a0000000-0000-4000-a000-000000000001"
    jira, github = SourceId("jira", "", "PROJ-1"), SourceId("github", "issue", "7")
    assert await link(conn, tenant.id, jira, key) == Sighted(key, True)
    assert await link(conn, tenant.id, github, key) == Sighted(key, True)
    assert await link(conn, tenant.id, jira, "global") == Sighted(key, False)
    assert await key_of(conn, tenant.id, jira) == Sighted(key, False)
    assert await source_ids_of(conn, tenant.id, key) == (github, jira)


async def test_the_longest_source_id_fits(conn: asyncpg.Connection, tenant: Tenant) -> None:
    # Random text, since Postgres compresses what repeats before it looks whether it fits an index.
    import random

    def longest() -> str:
        return "".join(random.choices([chr(n) for n in range(0x4E00, 0x9FA5)], k=341))

    sighted = SourceId(longest(), longest(), longest())
    key = (await key_of(conn, tenant.id, sighted)).key
    assert await source_ids_of(conn, tenant.id, key) == (sighted,)


async def test_a_postgres_that_does_not_answer_is_said_to_be_unavailable(tenant: Tenant) -> None:
    calls: list[Callable[[asyncpg.Pool], Awaitable[object]]] = [
        lambda pool: source_ids.key_of(pool, tenant.id, TU1),
        lambda pool: source_ids.known_key(pool, tenant.id, TU1),
        lambda pool: source_ids.link(pool, tenant.id, TU1, "global"),
        lambda pool: source_ids.source_ids_of(pool, tenant.id, "global"),
    ]
    pool = asyncpg.create_pool("postgresql://localhost:1/none", min_size=0)
    async with pool:
        for call in calls:
            with pytest.raises(CatalogUnavailable, match="Postgres does not answer"):
                await call(pool)


async def test_a_connection_that_the_server_ends_as_it_is_used_is_no_answer(tenant: Tenant) -> None:
    class Ending:
        async def fetchval(self, *_: object) -> None:
            raise asyncpg.InternalClientError(
                "cannot switch to state 12; another operation (2) is in progress"
            )

    with pytest.raises(CatalogUnavailable, match="Postgres does not answer"):
        await key_of(Ending(), tenant.id, TU1)
