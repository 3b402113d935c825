from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from gateway.catalog import keys, specs, tenants
from gateway.catalog.bootstrap import Bootstrapped, bootstrap
from gateway.catalog.migrate import NotPrepared
from gateway.catalog.model import CatalogError, Scope
from gateway.names import tokens
from tests.catalog.documents import ORDERS, document, store


async def boot(url: str, **given: Any) -> Bootstrapped:
    options = {
        "tenant": "main",
        "spec_document": ORDERS,
        "replace_spec": False,
        "have_key": None,
        "environ": {},
    }
    return await bootstrap(url, **{**options, **given})


async def test_a_fresh_database_gets_a_tenant_an_admin_key_and_a_spec(
    postgres_url: str, conn: asyncpg.Connection
) -> None:
    made = await boot(postgres_url)
    tenant = await tenants.named(conn, "main")
    (key,) = await keys.every(conn)
    assert (key.tenant, key.scope, key.status) == ("main", Scope.ADMIN, "live")
    assert await conn.fetchval("SELECT digest FROM api_key") == tokens.digest(made.key)
    assert (made.spec_revision, made.conflicts) == (1, ())
    assert await specs.current_revision(conn, tenant.id) == 1
    assert made.key not in repr(made)


async def test_the_next_start_makes_nothing_again(postgres_url: str, conn: asyncpg.Connection) -> None:
    first = await boot(postgres_url)
    before = await conn.fetchval("SELECT revision FROM catalog_clock")
    assert await boot(postgres_url, have_key=first.key, replace_spec=True) == first
    assert await conn.fetchval("SELECT revision FROM catalog_clock") == before


async def test_starts_at_once_make_one_tenant_with_one_spec(
    postgres_url: str, conn: asyncpg.Connection
) -> None:
    made = await asyncio.gather(*(boot(postgres_url) for _ in range(4)))
    assert [each.spec_revision for each in made] == [1] * 4
    assert [tenant.name for tenant in await tenants.every(conn)] == ["main"]
    assert {key.tenant for key in await keys.every(conn)} == {"main"}


async def test_a_key_that_is_no_admin_key_of_the_tenant_is_replaced(
    postgres_url: str, conn: asyncpg.Connection
) -> None:
    first = await boot(postgres_url)
    tenant = await tenants.named(conn, "main")
    other = await keys.create(conn, await tenants.create(conn, "other"), Scope.ADMIN)
    writing = await keys.create(conn, tenant, Scope.WRITE)
    revoked = await keys.create(conn, tenant, Scope.ADMIN)
    await keys.revoke(conn, revoked.handle)
    for useless in (other.text, writing.text, revoked.text, first.key[:-1], ""):
        made = await boot(postgres_url, have_key=useless)
        assert made.key not in (first.key, useless)


async def test_a_bundled_spec_does_not_replace_the_tenants_own(postgres_url: str) -> None:
    await boot(postgres_url)
    made = await boot(postgres_url, spec_document=document({}))
    assert (made.spec_revision, made.conflicts) == (1, ())


async def test_a_given_spec_is_deployed_when_it_differs(postgres_url: str) -> None:
    await boot(postgres_url)
    assert (await boot(postgres_url, spec_document=document({}), replace_spec=True)).spec_revision == 2
    assert (await boot(postgres_url, spec_document=document({}), replace_spec=True)).spec_revision == 2


async def test_no_spec_at_all_is_fine(postgres_url: str) -> None:
    assert (await boot(postgres_url, spec_document=None)).spec_revision == 0


async def test_conflicts_are_sentences_and_the_deployed_spec_stays(
    postgres_url: str, conn: asyncpg.Connection
) -> None:
    await boot(postgres_url)
    tenant = await tenants.named(conn, "main")
    await store(conn, tenant.id, "invoice", "global", "was_sent")
    made = await boot(postgres_url, spec_document=document({}), replace_spec=True)
    assert (made.spec_revision, made.conflicts) == (1, ("Aggregate type invoice has events.",))


async def test_all_faults_of_a_spec_are_in_the_error(postgres_url: str) -> None:
    with pytest.raises(specs.InvalidSpec) as refused:
        await boot(
            postgres_url, spec_document=b'{"agent_types": 1, "aggregate_types": {"X": {"events": {}}}}'
        )
    assert len(refused.value.faults) == 2
    assert str(refused.value).count("\n") == 2
    assert "/aggregate_types/X  invalid_name" in str(refused.value)


async def test_a_name_that_is_none_and_a_database_that_is_not_prepared_are_refused(
    postgres_url: str, empty_postgres_url: str
) -> None:
    with pytest.raises(CatalogError, match="is not a valid name of a tenant"):
        await boot(postgres_url, tenant="Main")
    with pytest.raises(NotPrepared, match="run `sluice migrate`"):
        await boot(empty_postgres_url)
