from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from gateway.catalog import catalog as module
from gateway.catalog import declared, key_look_ups, keys, specs, tenants
from gateway.catalog.catalog import Catalog
from gateway.catalog.database import change, statement
from gateway.catalog.key_look_ups import BATCH_MAX
from gateway.catalog.model import STALE_S, CatalogUnavailable, Principal, Scope, Tenant
from gateway.catalog.specs import Accepted, Conflicts
from gateway.names import tokens
from tests.catalog.documents import ORDERS, accepted, document, store, with_an_id

KEY = "a0000000-0000-4000-a000-000000000001"
UNMINTED = tokens.mint("00000000", bytes)
"""A well-formed key that was never minted."""


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Watched:
    """A pool that counts what is asked of it and can be told to do something after a look-up of a key."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool
        self.acquired = 0
        self.after_look_up: Callable[[], Awaitable[None]] | None = None

    @asynccontextmanager
    async def acquire(self, *, timeout: float) -> AsyncIterator[Any]:
        self.acquired += 1
        async with self._pool.acquire(timeout=timeout) as conn:
            self._conn = conn
            yield self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._conn, name)

    async def fetch(self, *args: Any) -> Any:
        rows = await self._conn.fetch(*args)
        hook, self.after_look_up = self.after_look_up, None
        if hook is not None:
            await hook()
        return rows


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def catalog(pool: asyncpg.Pool, clock: Clock) -> Catalog:
    catalog = Catalog(pool, clock=clock)
    await catalog.start()
    return catalog


async def test_a_key_is_looked_up_once_and_then_known(
    catalog: Catalog, pool: asyncpg.Pool, tenant: Tenant
) -> None:
    minted = await keys.create(pool, tenant, Scope.WRITE)
    assert catalog.principal(minted.text) is None
    principal = await catalog.authenticate(minted.text)
    assert principal == Principal(tenant, Scope.WRITE, minted.handle)
    assert catalog.principal(minted.text) is principal
    assert await catalog.authenticate(minted.text) is principal


async def test_a_key_that_was_never_minted_is_none(catalog: Catalog, clock: Clock) -> None:
    assert await catalog.authenticate(UNMINTED) is None
    assert catalog.principal(UNMINTED) is None


async def test_a_mistyped_key_is_refused_without_a_look_up(pool: asyncpg.Pool, tenant: Tenant) -> None:
    minted = await keys.create(pool, tenant, Scope.READ)
    watched = Watched(pool)
    catalog = Catalog(watched)
    for text in ("", "Bearer", minted.text[:-1], minted.text.swapcase(), minted.text + " "):
        assert await catalog.authenticate(text) is None
    assert watched.acquired == 0


async def test_an_unknown_key_asks_postgres_once_a_second(pool: asyncpg.Pool, clock: Clock) -> None:
    watched = Watched(pool)
    catalog = Catalog(watched, clock=clock)
    await catalog.start()
    before = watched.acquired
    for _ in range(5):
        assert await catalog.authenticate(UNMINTED) is None
    assert watched.acquired == before + 1
    clock.now += module.UNKNOWN_S
    assert await catalog.authenticate(UNMINTED) is None
    assert watched.acquired == before + 2


async def test_a_revoked_key_ends_with_the_next_refresh(
    catalog: Catalog, pool: asyncpg.Pool, tenant: Tenant
) -> None:
    minted, other = [await keys.create(pool, tenant, Scope.READ) for _ in range(2)]
    for key in (minted, other):
        await catalog.authenticate(key.text)
    await keys.revoke(pool, minted.handle)
    await catalog.refresh()
    assert catalog.principal(minted.text) is None
    assert await catalog.authenticate(minted.text) is None
    assert catalog.principal(other.text) is not None


async def test_a_key_revoked_while_it_is_looked_up_is_not_remembered(
    pool: asyncpg.Pool, clock: Clock, tenant: Tenant
) -> None:
    watched = Watched(pool)
    catalog = Catalog(watched, clock=clock)
    await catalog.start()
    minted = await keys.create(pool, tenant, Scope.READ)

    async def revoke_and_refresh() -> None:
        await keys.revoke(pool, minted.handle)
        await catalog.refresh()

    watched.after_look_up = revoke_and_refresh
    assert await catalog.authenticate(minted.text) is None
    assert catalog.principal(minted.text) is None


async def test_a_key_revoked_while_specs_are_read_is_not_remembered(
    pool: asyncpg.Pool, clock: Clock, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its look-up saw it alive and returns while a refresh, which knows of its end, compiles specs."""
    looks = Watched(pool)
    catalog = Catalog(pool, key_pool=looks, clock=clock)
    await catalog.start()
    minted = await keys.create(pool, tenant, Scope.READ)
    await catalog.refresh()
    follow, reading, answered = catalog._declared.follow, asyncio.Event(), asyncio.Event()
    refreshing: list[asyncio.Task[None]] = []

    async def slow(*rows: Any) -> Any:
        reading.set()
        await answered.wait()
        return await follow(*rows)

    async def revoke_meanwhile() -> None:
        await keys.revoke(pool, minted.handle)
        refreshing.append(asyncio.create_task(catalog.refresh()))
        await reading.wait()

    monkeypatch.setattr(catalog._declared, "follow", slow)
    looks.after_look_up = revoke_meanwhile
    await catalog.authenticate(minted.text)
    answered.set()
    await refreshing[0]
    assert catalog.principal(minted.text) is None
    assert await catalog.authenticate(minted.text) is None


async def test_a_key_expires_to_the_moment(
    catalog: Catalog, pool: asyncpg.Pool, tenant: Tenant, clock: Clock
) -> None:
    minted = await keys.create(pool, tenant, Scope.READ, expires_in=timedelta(seconds=3))
    assert await catalog.authenticate(minted.text) is not None
    clock.now += 2.0
    assert catalog.principal(minted.text) is not None
    clock.now += 1.0
    assert catalog.fresh
    assert catalog.principal(minted.text) is None


async def test_an_expired_key_is_unknown(catalog: Catalog, pool: asyncpg.Pool, tenant: Tenant) -> None:
    minted = await keys.create(pool, tenant, Scope.READ)
    await pool.execute("UPDATE api_key SET expires_at = now()")
    assert await catalog.authenticate(minted.text) is None


async def test_a_gateway_cut_off_from_postgres_stops_honouring_keys_and_says_why(
    catalog: Catalog, pool: asyncpg.Pool, tenant: Tenant, clock: Clock
) -> None:
    minted = await keys.create(pool, tenant, Scope.READ)
    await catalog.authenticate(minted.text)
    await catalog.refresh()
    await pool.close()
    clock.now += STALE_S - 0.001
    with pytest.raises(CatalogUnavailable):
        await catalog.refresh()
    assert catalog.principal(minted.text) is not None
    clock.now += 0.001
    assert not catalog.fresh
    assert catalog.stale_s() == STALE_S
    assert catalog.principal(minted.text) is None
    for known_or_not in (minted.text, UNMINTED):
        with pytest.raises(CatalogUnavailable):
            await catalog.authenticate(known_or_not)


async def test_what_was_known_holds_again_once_postgres_is_back(
    catalog: Catalog, pool: asyncpg.Pool, tenant: Tenant, clock: Clock
) -> None:
    minted, revoked = [await keys.create(pool, tenant, Scope.READ) for _ in range(2)]
    for key in (minted, revoked):
        await catalog.authenticate(key.text)
    clock.now += 60
    await keys.revoke(pool, revoked.handle)
    assert catalog.principal(minted.text) is None
    assert await catalog.authenticate(minted.text) is not None
    assert catalog.fresh
    assert catalog.principal(revoked.text) is None


async def test_a_postgres_that_hangs_is_given_up_on(
    pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ANSWER_S", 0.05)
    catalog = Catalog(pool)
    async with pool.acquire() as conn, conn.transaction():
        await conn.execute("LOCK TABLE catalog_clock IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(CatalogUnavailable, match=r"no answer within 0.05 s"):
            await catalog.start()
    monkeypatch.setattr(module, "ANSWER_S", 30)
    await catalog.start()


async def test_many_that_wait_share_one_try(pool: asyncpg.Pool) -> None:
    watched = Watched(pool)
    catalog = Catalog(watched)
    await asyncio.gather(*(catalog.refresh() for _ in range(50)))
    assert watched.acquired <= 2 * 2  # two tries, each with a connection to read and one to report


async def test_keys_that_are_asked_for_at_once_share_statements(pool: asyncpg.Pool, tenant: Tenant) -> None:
    minted = [await keys.create(pool, tenant, Scope.READ) for _ in range(3)]
    watched = Watched(pool)
    catalog = Catalog(pool, key_pool=watched)
    await catalog.start()
    unknown = [tokens.mint("AAAAAAAA", secrets.token_bytes) for _ in range(2 * BATCH_MAX)]
    asked = [*unknown[:BATCH_MAX], *(each.text for each in minted), *unknown[BATCH_MAX:]]
    found = await asyncio.gather(*(catalog.authenticate(text) for text in asked))
    assert [each.handle for each in found if each] == [each.handle for each in minted]
    assert watched.acquired <= 3


async def test_one_that_asks_for_a_key_and_goes_takes_nothing_from_the_others(
    catalog: Catalog, pool: asyncpg.Pool, tenant: Tenant
) -> None:
    minted = await keys.create(pool, tenant, Scope.READ)
    asking = [asyncio.create_task(catalog.authenticate(minted.text)) for _ in range(3)]
    await asyncio.sleep(0)
    asking[0].cancel()
    told = await asyncio.gather(*asking, return_exceptions=True)
    assert isinstance(told[0], asyncio.CancelledError)
    assert [each.handle for each in told[1:] if isinstance(each, Principal)] == [minted.handle] * 2


async def test_look_ups_that_hang_do_not_keep_the_catalog_from_following_its_clock(
    pool: asyncpg.Pool, tenant: Tenant, monkeypatch: pytest.MonkeyPatch, postgres_url: str
) -> None:
    monkeypatch.setattr(key_look_ups, "ANSWER_S", 0.5)
    async with asyncpg.create_pool(postgres_url, min_size=0, max_size=1) as key_pool:
        catalog = Catalog(pool, key_pool=key_pool)
        await catalog.start()
        async with pool.acquire() as conn, conn.transaction():
            await conn.execute("LOCK TABLE api_key IN ACCESS EXCLUSIVE MODE")
            flood = [tokens.mint("AAAAAAAA", secrets.token_bytes) for _ in range(40)]
            asking = [asyncio.create_task(catalog.authenticate(text)) for text in flood]
            await asyncio.sleep(0)
            await catalog.refresh()
            assert catalog.fresh
            told = await asyncio.gather(*asking, return_exceptions=True)
            assert {type(each) for each in told} == {CatalogUnavailable}
            await catalog.refresh()
        monkeypatch.setattr(key_look_ups, "ANSWER_S", 30)
        minted = await keys.create(pool, tenant, Scope.READ)
        assert await catalog.authenticate(minted.text) is not None


async def test_memory_of_keys_is_bounded_and_the_oldest_goes(
    catalog: Catalog, pool: asyncpg.Pool, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEYS_MAX", 2)
    minted = [await keys.create(pool, tenant, Scope.READ) for _ in range(3)]
    for key in minted:
        assert await catalog.authenticate(key.text) is not None
    assert [catalog.principal(key.text) is not None for key in minted] == [False, True, True]
    assert await catalog.authenticate(minted[0].text) is not None


async def test_the_keys_of_one_tenant_displace_no_others(
    catalog: Catalog, pool: asyncpg.Pool, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEYS_MAX", 6)
    neighbours = [await tenants.create(pool, f"neighbour-{n}") for n in range(2)]
    first = [await keys.create(pool, each, Scope.READ) for each in neighbours]
    for key in first:
        await catalog.authenticate(key.text)
    flood = [await keys.create(pool, tenant, Scope.READ) for _ in range(20)]
    for key in flood:
        assert await catalog.authenticate(key.text) is not None
        assert [catalog.principal(each.text) is not None for each in first] == [True, True]
    assert sum(catalog.principal(each.text) is not None for each in flood) == 4
    second = await keys.create(pool, neighbours[0], Scope.READ)
    await catalog.authenticate(second.text)
    known = [catalog.principal(each.text) is not None for each in (*first, second, *flood)]
    assert known == [True] * 3 + [False] * 17 + [True] * 3
    await keys.revoke(pool, second.handle, neighbours[0])
    await catalog.refresh()
    assert catalog.principal(second.text) is None
    assert await catalog.authenticate(flood[0].text) is not None
    assert sum(catalog.principal(each.text) is not None for each in flood) == 4


async def test_a_new_tenant_can_be_used_at_once_with_its_spec(catalog: Catalog, pool: asyncpg.Pool) -> None:
    tenant = await tenants.create(pool, "new")
    await accepted(pool, tenant.id, ORDERS)
    minted = await keys.create(pool, tenant, Scope.ADMIN)
    principal = await catalog.authenticate(minted.text)
    assert principal is not None
    deployed = catalog.deployed(principal.tenant.id)
    assert deployed is not None
    assert (deployed.revision, deployed.document, deployed.etag) == (1, ORDERS, '"1"')
    assert "order" in deployed.spec.aggregate_types


async def test_a_tenant_without_a_spec_has_none(catalog: Catalog, tenant: Tenant) -> None:
    assert catalog.deployed(tenant.id) is None


async def test_a_deployed_spec_is_followed_and_the_others_stay(
    catalog: Catalog, pool: asyncpg.Pool, tenant: Tenant
) -> None:
    other = await tenants.create(pool, "other")
    for owner in (tenant, other):
        await accepted(pool, owner.id, ORDERS)
    await catalog.refresh()
    kept = catalog.deployed(other.id)
    await accepted(pool, tenant.id, document({}), force=True)
    await catalog.refresh()
    deployed = catalog.deployed(tenant.id)
    assert deployed is not None
    assert deployed.revision == 2
    assert catalog.deployed(other.id) is kept


async def test_a_start_loads_every_spec(pool: asyncpg.Pool, tenant: Tenant) -> None:
    for _ in range(2):
        await accepted(pool, tenant.id, ORDERS)
    await accepted(pool, tenant.id, document({}), force=True)
    catalog = Catalog(pool)
    await catalog.start()
    deployed = catalog.deployed(tenant.id)
    assert deployed is not None
    assert deployed.revision == 2


async def test_a_spec_that_can_not_be_read_here_leaves_the_last_one_and_is_told(
    catalog: Catalog, pool: asyncpg.Pool, tenant: Tenant
) -> None:
    await accepted(pool, tenant.id, ORDERS)
    await catalog.refresh()
    await accepted(pool, tenant.id, document({}), force=True)
    await pool.execute("UPDATE spec_revision SET document = '{}' WHERE revision = 2")
    await catalog.refresh()
    deployed = catalog.deployed(tenant.id)
    assert deployed is not None
    assert deployed.revision == 1
    revision, faults = catalog.unreadable[tenant.id]
    assert (revision, faults[0].code) == (2, "missing_key")
    await accepted(pool, tenant.id, document({"order": []}), force=True)
    await catalog.refresh()
    assert not catalog.unreadable


@pytest.mark.bug
async def test_a_bug_that_one_spec_meets_keeps_no_other_from_being_followed(
    catalog: Catalog, pool: asyncpg.Pool, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = await tenants.create(pool, "other")
    for owner in (tenant, other):
        await accepted(pool, owner.id, ORDERS)
    parse = declared.parse_deployed

    def stumbles(text: bytes, *args: Any) -> Any:
        if b"stumble" in text:
            raise KeyError("a bug")
        return parse(text, *args)

    monkeypatch.setattr(declared, "parse_deployed", stumbles)
    await pool.execute("UPDATE spec_revision SET document = '{\"stumble\": 1}' WHERE tenant = $1", tenant.id)
    await catalog.refresh()
    assert catalog.deployed(other.id) is not None
    assert catalog.unserved(tenant.id)
    assert catalog.fresh


async def test_a_spec_that_only_an_earlier_release_accepted_is_served_and_told(
    pool: asyncpg.Pool, tenant: Tenant, caplog: pytest.LogCaptureFixture
) -> None:
    await accepted(pool, tenant.id, with_an_id("global"))
    await pool.execute("UPDATE spec_revision SET document = $1", with_an_id("not one"))
    catalog = Catalog(pool)
    await catalog.start()
    deployed = catalog.deployed(tenant.id)
    assert deployed is not None
    assert [fault.code for fault in deployed.spec.outdated] == ["undeclared"]
    assert not catalog.unreadable
    (told,) = [record for record in caplog.records if record.msg == "spec_outdated"]
    assert vars(told)["faults"] == [f"{deployed.spec.outdated[0].pointer}: undeclared"]


async def test_a_spec_that_can_not_be_read_at_a_start_is_told_from_none(
    pool: asyncpg.Pool, tenant: Tenant
) -> None:
    other = await tenants.create(pool, "other")
    await accepted(pool, tenant.id, ORDERS)
    await pool.execute("UPDATE spec_revision SET document = '{}'")
    catalog = Catalog(pool)
    await catalog.start()
    assert (catalog.deployed(tenant.id), catalog.deployed(other.id)) == (None, None)
    assert (catalog.unserved(tenant.id), catalog.unserved(other.id)) == (True, False)
    await accepted(pool, tenant.id, ORDERS, force=True)
    await catalog.refresh()
    assert not catalog.unserved(tenant.id)


def hooked(*secrets: str) -> bytes:
    """A spec with a source of webhooks for each of these secrets: `s0`, `s1`, …"""
    to = {"type": "order", "id": "stripe_webhook", "event": "was_placed"}
    actor = {"type": "user", "id": "stripe_webhook"}
    sources = {
        f"s{n}": {"provider": "github", "secrets": [secret], "to": to, "actor": actor}
        for n, secret in enumerate(secrets)
    }
    return json.dumps({**json.loads(ORDERS), "webhooks": sources}).encode()


async def test_secrets_that_can_not_be_read_close_their_sources_and_nothing_else(
    pool: asyncpg.Pool, tenant: Tenant
) -> None:
    environ = {"SLUICE_SECRET_A": "a", "SLUICE_SECRET_B": "b"}
    document = hooked("env:SLUICE_SECRET_A", "env:SLUICE_SECRET_B", "itself")
    await specs.deploy(pool, tenant.id, document, environ)
    started = Catalog(pool, lambda _: {"SLUICE_SECRET_A": "a"})
    followed = Catalog(pool, lambda _: {"SLUICE_SECRET_B": "b"})
    for catalog, closed in ((started, {"s1"}), (followed, {"s0"})):
        await catalog.start()
        deployed = catalog.deployed(tenant.id)
        assert deployed is not None
        assert (deployed.closed, deployed.document) == (closed, document)
        assert set(deployed.spec.webhooks) == {"s0", "s1", "s2"} - closed
        assert [fault.code for fault in catalog.unreadable[tenant.id][1]] == ["missing_secret"]
    await specs.deploy(pool, tenant.id, hooked("env:SLUICE_SECRET_A", "itself"), environ)
    await started.refresh()
    deployed = started.deployed(tenant.id)
    assert deployed is not None
    assert (deployed.revision, deployed.closed, set(deployed.spec.webhooks)) == (2, set(), {"s0", "s1"})
    assert not started.unreadable


async def test_a_source_of_a_newer_release_is_closed_and_nothing_else(
    pool: asyncpg.Pool, tenant: Tenant
) -> None:
    newer = json.loads(hooked("a", "b"))
    newer["webhooks"]["s1"]["holograms"] = True
    await accepted(pool, tenant.id, hooked("a", "b"))
    for told in (newer, {"spec": newer}):
        await pool.execute("UPDATE spec_revision SET document = $1", json.dumps(told).encode())
        catalog = Catalog(pool)
        await catalog.start()
        deployed = catalog.deployed(tenant.id)
        assert deployed is not None
        assert (deployed.closed, set(deployed.spec.webhooks)) == ({"s1"}, {"s0"})
    newer["webhooks"]["no/name"] = newer["webhooks"].pop("s1")
    await pool.execute("UPDATE spec_revision SET document = $1", json.dumps(newer).encode())
    catalog = Catalog(pool)
    await catalog.start()
    assert catalog.unserved(tenant.id)


async def test_a_removal_is_closed_where_a_secret_of_what_follows_is_not_set(
    pool: asyncpg.Pool, tenant: Tenant
) -> None:
    await accepted(pool, tenant.id, ORDERS)
    following = json.loads(hooked("env:SLUICE_SECRET_A"))
    del following["aggregate_types"]["invoice"]
    catalog = Catalog(pool)
    await catalog.start()
    deploying = asyncio.create_task(
        specs.deploy(pool, tenant.id, json.dumps(following).encode(), {"SLUICE_SECRET_A": "a"})
    )
    async with asyncio.timeout(40):
        while "invoice" in catalog.deployed(tenant.id).spec.aggregate_types:  # type: ignore[union-attr]
            await catalog.refresh()
    async with asyncio.timeout(40), watching(catalog):
        assert await deploying == Accepted(2, changed=True)


async def test_it_is_known_since_when_events_are_admitted_as_now(pool: asyncpg.Pool, tenant: Tenant) -> None:
    catalog = Catalog(pool)
    await catalog.start()
    placed, paid = ("order", "was_placed"), ("order", "was_paid")
    for events, since in (
        (["was_placed"], {}),
        (["was_placed", "was_paid"], {placed: 1}),
        (["was_paid"], {paid: 2}),
        (["was_paid", "was_placed"], {paid: 2}),
    ):
        await accepted(pool, tenant.id, document({"order": events}), force=True)
        await catalog.refresh()
        deployed = catalog.deployed(tenant.id)
        assert deployed is not None
        assert deployed.since == since
    started = Catalog(pool)
    await started.start()
    deployed = started.deployed(tenant.id)
    assert deployed is not None
    assert deployed.since == {}


async def test_a_catalog_restored_from_a_backup_is_loaded_again(
    catalog: Catalog, pool: asyncpg.Pool, tenant: Tenant
) -> None:
    await accepted(pool, tenant.id, ORDERS)
    minted = await keys.create(pool, tenant, Scope.READ)
    assert await catalog.authenticate(minted.text) is not None
    await pool.execute("DELETE FROM api_key")
    await pool.execute("DELETE FROM spec_revision")
    await pool.execute("UPDATE catalog_clock SET revision = 1")
    await catalog.refresh()
    assert catalog.principal(minted.text) is None
    assert catalog.deployed(tenant.id) is None


async def follow(*catalogs: Catalog) -> None:
    """What each gateway's watch does once a second, without the second."""
    while True:
        for catalog in catalogs:
            await catalog.refresh()
        await asyncio.sleep(0)


@asynccontextmanager
async def watching(*catalogs: Catalog) -> AsyncIterator[None]:
    task = asyncio.create_task(follow(*catalogs))
    yield
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_removal_is_closed_on_every_gateway_before_it_is_looked_for_again(
    pool: asyncpg.Pool, tenant: Tenant
) -> None:
    one, other = Catalog(pool), Catalog(pool)
    await accepted(pool, tenant.id, ORDERS)
    for catalog in (one, other):
        await catalog.refresh()
    deploying = asyncio.create_task(specs.deploy(pool, tenant.id, document({"order": ["was_placed"]}), {}))
    async with asyncio.timeout(40):
        while "invoice" in one.deployed(tenant.id).spec.aggregate_types:  # type: ignore[union-attr]
            await one.refresh()
    closed = one.deployed(tenant.id)
    assert closed is not None
    assert (closed.revision, closed.document, list(closed.spec.aggregate_types)) == (1, ORDERS, ["order"])
    assert closed.spec.singletons == frozenset()
    await one.refresh()
    assert not deploying.done()  # the other gateway has not followed
    async with asyncio.timeout(40), watching(other):
        assert await deploying == Accepted(2, changed=True)
    await one.refresh()
    deployed = one.deployed(tenant.id)
    assert deployed is not None
    assert deployed.revision == 2


async def test_a_gateway_says_that_it_follows_only_a_refresh_later_when_its_last_appends_have_landed(
    catalog: Catalog, pool: asyncpg.Pool, tenant: Tenant
) -> None:
    revision = await pool.fetchval("SELECT revision FROM catalog_clock")
    await catalog.refresh()
    assert await pool.fetchval("SELECT revision FROM catalog_reader") < revision
    await catalog.refresh()
    assert await pool.fetchval("SELECT revision FROM catalog_reader") == revision


async def test_a_gateway_that_has_appends_under_way_says_so_once_they_are_settled(
    pool: asyncpg.Pool, clock: Clock, tenant: Tenant
) -> None:
    since = clock.now
    catalog = Catalog(pool, clock=clock, under_way_since=lambda: since)
    clock.now += 1
    for reported in (-1, -1):
        await catalog.refresh()
        assert await pool.fetchval("SELECT revision FROM catalog_reader") == reported
    since, first = clock.now + 1, await pool.fetchval("SELECT revision FROM catalog_clock")
    clock.now += 2
    await keys.create(pool, tenant, Scope.READ)  # the next revision, from a moment on that is not over
    for _ in range(2):
        await catalog.refresh()
        assert await pool.fetchval("SELECT revision FROM catalog_reader") == first


async def test_gateways_that_were_killed_are_forgotten_after_a_day(
    catalog: Catalog, pool: asyncpg.Pool
) -> None:
    for days in (0, 1, 2):
        silent = (
            f"INSERT INTO catalog_reader VALUES (gen_random_uuid(), 1, now() - interval '{days} days 1 hour')"
        )
        await pool.execute(silent)
    await catalog.refresh()
    await catalog.refresh()
    silent_h = "SELECT extract(epoch FROM now() - seen_at)::int / 3600 FROM catalog_reader"
    assert sorted(row[0] for row in await pool.fetch(silent_h)) == [0, 1]


async def test_an_event_that_was_stored_before_all_had_closed_keeps_what_it_is_of(
    pool: asyncpg.Pool, tenant: Tenant
) -> None:
    catalog = Catalog(pool)
    await accepted(pool, tenant.id, ORDERS)
    await catalog.refresh()
    deploying = asyncio.create_task(specs.deploy(pool, tenant.id, document({"order": ["was_placed"]}), {}))
    async with asyncio.timeout(40), pool.acquire() as conn:
        while not await conn.fetchval("SELECT count(*) FROM spec_closing"):
            await asyncio.sleep(0)
        await store(conn, tenant.id, "invoice", KEY, "was_sent")
    async with asyncio.timeout(40), watching(catalog):
        outcome = await deploying
    assert isinstance(outcome, Conflicts)
    assert [conflict.pointer for conflict in outcome.conflicts] == ["/aggregate_types/invoice"]
    await catalog.refresh()
    reopened = catalog.deployed(tenant.id)
    assert reopened is not None
    assert list(reopened.spec.aggregate_types) == ["order", "invoice"]


async def test_a_closing_whose_deployer_died_ends_by_itself(
    catalog: Catalog, pool: asyncpg.Pool, tenant: Tenant
) -> None:
    await accepted(pool, tenant.id, ORDERS)
    await pool.execute(
        "INSERT INTO spec_closing VALUES ($1, $2, now() + interval '1 day')",
        tenant.id,
        document({"order": []}),
    )
    await catalog.refresh()
    closed = catalog.deployed(tenant.id)
    assert closed is not None
    assert list(closed.spec.aggregate_types) == ["order"]
    await pool.execute("UPDATE spec_closing SET expires_at = now()")
    await catalog.refresh()
    reopened = catalog.deployed(tenant.id)
    assert reopened is not None
    assert list(reopened.spec.aggregate_types) == ["order", "invoice"]


async def test_a_gateway_that_stopped_or_fell_silent_is_not_waited_for(
    pool: asyncpg.Pool, tenant: Tenant
) -> None:
    stopped, silent = Catalog(pool), Catalog(pool)
    await accepted(pool, tenant.id, ORDERS)
    for catalog in (stopped, silent):
        await catalog.start()
    await stopped.close()
    await pool.execute("UPDATE catalog_reader SET seen_at = now() - interval '9 seconds'")
    async with asyncio.timeout(5):
        assert await accepted(pool, tenant.id, document({"order": ["was_placed"]})) == 2


async def last_used(pool: asyncpg.Pool) -> Any:
    return await pool.fetchval("SELECT last_used_at FROM api_key")


async def test_the_last_use_is_noted_at_most_once_a_minute(
    catalog: Catalog, pool: asyncpg.Pool, tenant: Tenant, clock: Clock
) -> None:
    minted = await keys.create(pool, tenant, Scope.READ)
    await catalog.authenticate(minted.text)
    assert await last_used(pool) is None
    await catalog.refresh()
    first = await last_used(pool)
    assert first is not None
    catalog.principal(minted.text)
    clock.now += 1
    await catalog.refresh()
    assert await last_used(pool) == first
    await pool.execute("UPDATE api_key SET last_used_at = now() - interval '1 minute'")
    clock.now += 59
    await catalog.refresh()
    assert await last_used(pool) > first


async def test_another_gateway_does_not_note_the_same_use_again(
    catalog: Catalog, pool: asyncpg.Pool, tenant: Tenant
) -> None:
    minted = await keys.create(pool, tenant, Scope.READ)
    other = Catalog(pool)
    for one in (catalog, other):
        await one.authenticate(minted.text)
    await catalog.refresh()
    first = await last_used(pool)
    await other.refresh()
    assert await last_used(pool) == first


async def test_a_stop_notes_what_was_used_since(catalog: Catalog, pool: asyncpg.Pool, tenant: Tenant) -> None:
    minted = await keys.create(pool, tenant, Scope.READ)
    await catalog.authenticate(minted.text)
    await catalog.close()
    assert await last_used(pool) is not None
    assert await pool.fetchval("SELECT count(*) FROM catalog_reader") == 0


async def test_noting_a_use_does_not_move_the_clock(
    catalog: Catalog, pool: asyncpg.Pool, tenant: Tenant
) -> None:
    minted = await keys.create(pool, tenant, Scope.READ)
    await catalog.authenticate(minted.text)
    before = await pool.fetchval("SELECT revision FROM catalog_clock")
    await catalog.refresh()
    assert await pool.fetchval("SELECT revision FROM catalog_clock") == before


async def test_a_deleted_tenant_is_forgotten_with_its_name(
    catalog: Catalog, pool: asyncpg.Pool, tenant: Tenant
) -> None:
    await specs.deploy(pool, tenant.id, ORDERS, {})
    await catalog.refresh()
    assert (catalog.tenant("acme"), [*catalog.serving]) == (tenant, [tenant.id])
    await tenants.delete(pool, tenant.id)
    await catalog.refresh()
    assert catalog.resting(tenant.id)
    while not await pool.fetchval(statement("delete_step"), tenant.id, 100):
        pass
    async with change(pool):  # it is by another change that gateways follow
        pass
    await catalog.refresh()
    assert (catalog.tenant("acme"), [*catalog.serving], catalog.has_tenant(tenant.handle)) == (
        None,
        [],
        False,
    )
