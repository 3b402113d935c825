from __future__ import annotations

from datetime import timedelta
from io import BytesIO

import asyncpg
import pytest

from gateway.catalog import keys, tenants
from gateway.catalog.keys import Minted
from gateway.catalog.model import CatalogError, Scope, Tenant
from gateway.names import tokens

HOUR = timedelta(hours=1)


async def clock(conn: asyncpg.Connection) -> int:
    return int(await conn.fetchval("SELECT revision FROM catalog_clock"))


async def expire(conn: asyncpg.Connection, minted: Minted) -> None:
    await conn.execute("UPDATE api_key SET expires_at = now() WHERE handle = $1", minted.handle)


async def statuses(conn: asyncpg.Connection) -> dict[str, str]:
    return {key.handle: key.status for key in await keys.every(conn)}


async def test_only_the_digest_of_a_key_is_stored(conn: asyncpg.Connection, tenant: Tenant) -> None:
    minted = await keys.create(conn, tenant, Scope.WRITE, name="importer")
    (row,) = await conn.fetch("SELECT * FROM api_key")
    assert row["digest"] == tokens.digest(minted.text)
    assert not any(minted.text in str(value) for value in row.values())
    parsed = tokens.parse(minted.text)
    assert parsed is not None
    assert parsed.handle == tenant.handle
    assert minted.text not in repr(minted)


async def test_a_key_is_listed_by_its_handle_without_its_text(
    conn: asyncpg.Connection, tenant: Tenant
) -> None:
    minted = await keys.create(conn, tenant, Scope.READ, name="dashboard", expires_in=HOUR)
    (listed,) = await keys.every(conn)
    assert (listed.handle, listed.tenant, listed.name) == (minted.handle, "acme", "dashboard")
    assert (listed.scope, listed.status, listed.last_used_at) == (Scope.READ, "live", None)
    assert listed.expires_at == minted.expires_at == listed.created_at + HOUR
    assert minted.text not in repr(listed)


async def test_keys_are_listed_for_only_one_tenant(conn: asyncpg.Connection, tenant: Tenant) -> None:
    other = await tenants.create(conn, "beta")
    mine = await keys.create(conn, tenant, Scope.READ)
    theirs = await keys.create(conn, other, Scope.READ)
    assert [key.handle for key in await keys.every(conn, tenant)] == [mine.handle]
    assert [key.handle for key in await keys.every(conn)] == [mine.handle, theirs.handle]


async def test_a_handle_that_is_taken_is_drawn_again_and_the_first_key_stays(
    conn: asyncpg.Connection, tenant: Tenant
) -> None:
    first = await keys.create(conn, tenant, Scope.READ, entropy=BytesIO(bytes(30)).read)
    noise = bytes([2] * 22) + bytes(8) + bytes([1] * 8)
    other = await keys.create(conn, tenant, Scope.READ, entropy=BytesIO(noise).read)
    assert (first.handle, other.handle) == ("00000000", "11111111")
    stored = await conn.fetchval("SELECT digest FROM api_key WHERE handle = '00000000'")
    assert stored == tokens.digest(first.text)


@pytest.mark.parametrize("name", ["a" * 101, "line\nbreak", "bell\a"])
async def test_a_label_that_would_break_a_list_is_refused(
    conn: asyncpg.Connection, tenant: Tenant, name: str
) -> None:
    with pytest.raises(CatalogError, match="all printable"):
        await keys.create(conn, tenant, Scope.READ, name=name)


@pytest.mark.parametrize("days", [0, -1, 40_000])
async def test_a_lifetime_that_can_not_be_is_refused(
    conn: asyncpg.Connection, tenant: Tenant, days: int
) -> None:
    with pytest.raises(CatalogError, match="within a hundred years"):
        await keys.create(conn, tenant, Scope.READ, expires_in=timedelta(days=days))


async def test_a_rotated_key_and_its_successor_are_both_live(
    conn: asyncpg.Connection, tenant: Tenant
) -> None:
    old = await keys.create(conn, tenant, Scope.WRITE, name="importer", expires_in=HOUR)
    new = await keys.rotate(conn, old.handle)
    assert (new.tenant, new.scope, new.name) == (old.tenant, old.scope, old.name)
    assert new.text != old.text
    assert new.expires_at is not None
    assert await statuses(conn) == {old.handle: "live", new.handle: "live"}
    assert (await keys.every(conn))[1].rotated_from == old.handle


async def test_a_grace_ends_the_old_key_but_never_prolongs_it(
    conn: asyncpg.Connection, tenant: Tenant
) -> None:
    endless, ending = [await keys.create(conn, tenant, Scope.READ, expires_in=time) for time in (None, HOUR)]
    for old in (endless, ending):
        await keys.rotate(conn, old.handle, grace=2 * HOUR)
    listed = {key.handle: key for key in await keys.every(conn)}
    left = listed[endless.handle].expires_at
    assert left is not None
    assert timedelta(hours=1.9) < left - listed[endless.handle].created_at < timedelta(hours=2.1)
    assert listed[ending.handle].expires_at == ending.expires_at


async def test_no_grace_at_all_ends_the_old_key_at_once(conn: asyncpg.Connection, tenant: Tenant) -> None:
    old = await keys.create(conn, tenant, Scope.READ)
    new = await keys.rotate(conn, old.handle, grace=timedelta(0))
    assert await statuses(conn) == {old.handle: "expired", new.handle: "live"}


async def test_keys_end_with_the_one_that_made_them_also_where_a_grace_ends_that(
    conn: asyncpg.Connection, tenant: Tenant
) -> None:
    first = await keys.create(conn, tenant, Scope.ADMIN)
    second = await keys.create(conn, tenant, Scope.WRITE, made_by=first.handle)
    third = await keys.create(conn, tenant, Scope.READ, made_by=second.handle, expires_in=HOUR)
    await keys.rotate(conn, first.handle, grace=2 * HOUR)
    listed = {key.handle: key.expires_at for key in await keys.every(conn)}
    assert listed[second.handle] == listed[first.handle] is not None
    assert listed[third.handle] == third.expires_at


async def test_a_key_that_has_ended_makes_none_however_soon_after(
    conn: asyncpg.Connection, tenant: Tenant
) -> None:
    revoked, expired, other = [await keys.create(conn, tenant, Scope.ADMIN) for _ in range(3)]
    await keys.revoke(conn, revoked.handle)
    await expire(conn, expired)
    for ended in (revoked, expired):
        with pytest.raises(keys.MakerEnded, match=f"key {ended.handle} has ended"):
            await keys.create(conn, tenant, Scope.READ, made_by=ended.handle)
        with pytest.raises(keys.MakerEnded):
            await keys.rotate(conn, other.handle, made_by=ended.handle)
    assert len(await keys.every(conn)) == 3


async def test_never_more_than_two_are_live_at_a_time(conn: asyncpg.Connection, tenant: Tenant) -> None:
    first = await keys.create(conn, tenant, Scope.READ)
    second = await keys.rotate(conn, first.handle)
    for handle in (first.handle, second.handle):
        with pytest.raises(CatalogError, match="are both valid: revoke the one"):
            await keys.rotate(conn, handle)
    await keys.revoke(conn, first.handle)
    third = await keys.rotate(conn, second.handle)
    assert await statuses(conn) == {first.handle: "revoked", second.handle: "live", third.handle: "live"}


async def test_a_key_can_be_rotated_once_its_predecessor_has_expired(
    conn: asyncpg.Connection, tenant: Tenant
) -> None:
    first = await keys.create(conn, tenant, Scope.READ)
    second = await keys.rotate(conn, first.handle)
    await expire(conn, first)
    await keys.rotate(conn, second.handle)


async def test_a_dead_key_is_not_rotated(conn: asyncpg.Connection, tenant: Tenant) -> None:
    revoked, expired = [await keys.create(conn, tenant, Scope.READ) for _ in range(2)]
    await keys.revoke(conn, revoked.handle)
    await expire(conn, expired)
    with pytest.raises(CatalogError, match="is revoked: create a new one"):
        await keys.rotate(conn, revoked.handle)
    with pytest.raises(CatalogError, match="is expired: create a new one"):
        await keys.rotate(conn, expired.handle)


async def test_revoking_twice_keeps_the_first_time(conn: asyncpg.Connection, tenant: Tenant) -> None:
    key = await keys.create(conn, tenant, Scope.READ)
    await keys.revoke(conn, key.handle)
    (once,) = await keys.every(conn)
    await keys.revoke(conn, key.handle)
    assert await keys.every(conn) == [once]
    assert once.status == "revoked"


async def test_an_unknown_handle_says_where_to_look(conn: asyncpg.Connection) -> None:
    for change in (keys.revoke(conn, "nobody"), keys.rotate(conn, "nobody")):
        with pytest.raises(CatalogError, match="no key 'nobody': `sluice keys list`"):
            await change


async def test_every_change_moves_the_clock_and_a_refused_one_does_not(
    conn: asyncpg.Connection, tenant: Tenant
) -> None:
    start = await clock(conn)
    key = await keys.create(conn, tenant, Scope.READ)
    await keys.rotate(conn, key.handle)
    await keys.revoke(conn, key.handle)
    assert await clock(conn) == start + 3
    with pytest.raises(CatalogError):
        await keys.rotate(conn, key.handle)
    assert await clock(conn) == start + 3
    changed = await conn.fetchval("SELECT changed FROM api_key WHERE handle = $1", key.handle)
    assert changed == start + 3


async def test_scopes_include_the_ones_before_and_have_names() -> None:
    assert Scope.READ < Scope.WRITE < Scope.ADMIN
    assert [Scope.parse(scope.text) for scope in Scope] == list(Scope)
    assert Scope.parse("READ") is None
    assert Scope.parse("root") is None
