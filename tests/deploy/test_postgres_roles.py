"""deploy/postgres-roles.sql and -grants.sql: a gateway lives on these privileges, and has no others."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from copy import deepcopy

import asyncpg
import httpx
import pytest
from redis.asyncio import Redis

from gateway.config import Config
from gateway.log.postgres import SQL
from gateway.postgres.statements import statements_of
from tests.deploy.shipped import ROOT, Shipped
from tests.support.accounts import SPEC, Account, open_account
from tests.support.calls import (
    append,
    appended,
    bulk,
    bulk_line,
    events_of,
    length_of,
    new_client,
    new_id,
    noted,
    refused,
    until,
)
from tests.support.serving import Served, serving

STATEMENTS = {**statements_of("log"), **statements_of("catalog"), "change_claims": SQL["commit_claiming"]}
OWNERS_ALONE = {
    "create_instance",
    "create_partitions",
    "create_schema_version",
    "end_key",
    "rename_source_scope",
}
"""Statements that gateways never send: of `sluice migrate`, `tenants`, `keys` and `sources`."""


@pytest.fixture(scope="module")
async def config(shipped: Shipped) -> Config:
    connection = await asyncpg.connect(shipped.owner_url)
    try:
        await connection.execute("UPDATE instance SET id = $1", uuid.uuid4())
    finally:
        await connection.close()
    return Config(redis_url=shipped.redis_url, postgres_url=shipped.gateway_url)


@pytest.fixture(scope="module")
async def gateway(config: Config) -> AsyncIterator[Served]:
    async with serving(config) as served:
        yield served


@pytest.fixture
async def tenant(shipped: Shipped) -> AsyncIterator[Account]:
    """Made by the owner, as `sluice tenants create` and `sluice keys create` do."""
    async with asyncpg.create_pool(shipped.owner_url, min_size=1, max_size=1) as pool:
        yield await open_account(pool)


@pytest.fixture
async def client(gateway: Served, tenant: Account) -> AsyncIterator[httpx.AsyncClient]:
    async with new_client(gateway.url, tenant.admin) as client:
        yield client


@pytest.fixture
async def as_gateway(shipped: Shipped) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(shipped.gateway_url)
    yield connection
    await connection.close()


async def test_a_gateway_does_all_its_work_as_its_role(client: httpx.AsyncClient) -> None:
    key, headers = new_id(), {"idempotency-key": "one"}
    receipt = await appended(client, "order", key, "was_placed", {"total": 1}, headers)
    event = await client.get(f"/_/events/{receipt['event_id']}")
    assert event.status_code == 200
    again = await append(client, "order", key, "was_placed", {"total": 1}, headers)
    assert again.headers["idempotency-replayed"] == "true"
    refused(
        await append(client, "order", key, "was_placed", previous_length=0),
        409,
        "version_conflict",
        more=("length", "missed", "missed_next"),
    )
    await noted(client, key, 3)
    assert [each["status"] for each in await bulk(client, *[bulk_line(key)] * 3)] == [201] * 3
    assert len(await events_of(client, "order", key)) == 7
    for query in ("consistency=strong", "at_length=2", "at=2100-01-01T00:00:00Z", "min_length=7"):
        assert (await client.get(f"/order/{key}?{query}")).status_code == 200
    assert (await client.get("/_/health/ready")).status_code == 200


async def test_specs_are_deployed_over_http_and_what_is_removed_is_closed_first(
    client: httpx.AsyncClient,
) -> None:
    smaller = deepcopy(SPEC)
    del smaller["aggregate_types"]["config"]
    response = await client.put("/_/spec", json=smaller, timeout=30)
    assert response.status_code == 200, response.text
    await appended(client, "ticket", "ABCDEFGH1", "was_opened")
    del smaller["aggregate_types"]["ticket"]
    refused(await client.put("/_/spec", json=smaller), 409, "spec_conflict", more=("revision", "conflicts"))


async def test_a_partition_is_sealed_when_redis_has_lost_all(
    client: httpx.AsyncClient, shipped: Shipped, as_gateway: asyncpg.Connection
) -> None:
    key = new_id()
    await noted(client, key, 2)
    before = await as_gateway.fetchval("SELECT sum(epoch) FROM partition_log")
    async with Redis.from_url(shipped.admin_url) as admin:
        await admin.flushall()
    await noted(client, key, 2)
    assert await length_of(client, key) == 4
    assert await as_gateway.fetchval("SELECT sum(epoch) FROM partition_log") > before


async def test_the_last_use_of_a_key_is_noted(
    client: httpx.AsyncClient, as_gateway: asyncpg.Connection, tenant: Account
) -> None:
    await client.get("/order/global")

    async def noted_down() -> bool:
        query = "SELECT count(last_used_at) FROM api_key WHERE tenant = $1"
        return await as_gateway.fetchval(query, uuid.UUID(tenant.id)) == 1

    await until(noted_down)


@pytest.mark.parametrize("name", STATEMENTS)
async def test_a_statement_is_permitted_if_a_gateway_sends_it(
    name: str, as_gateway: asyncpg.Connection
) -> None:
    """Planning it checks the privileges; nothing is carried out."""
    statement = STATEMENTS[name]
    if "CREATE TABLE" not in statement:
        statement = f"EXPLAIN (GENERIC_PLAN) {statement}"
    if name not in OWNERS_ALONE:
        await as_gateway.execute(statement)
        return
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await as_gateway.execute(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM outbox",
        "UPDATE outbox SET payload = NULL",
        "TRUNCATE outbox",
        "DELETE FROM append_identity",
        "UPDATE append_identity SET seq = 1",
        "DELETE FROM partition_log",
        "INSERT INTO partition_log (p, epoch, seq, chain, mode) VALUES (999, 1, 0, '', 'redis')",
        "UPDATE partition_log SET p = 999",
        "UPDATE instance SET partitions = 1",
        "UPDATE tenant SET name = 'x'",
        "DELETE FROM tenant",
        "UPDATE tenant_deletion SET tenant = gen_random_uuid()",
        "UPDATE api_key SET scope = 'admin'",
        "UPDATE api_key SET digest = '\\x00'",
        "UPDATE api_key SET expires_at = NULL",
        "DELETE FROM api_key",
        "DELETE FROM spec_revision",
        "UPDATE schema_version SET version = 1",
        "SELECT entry FROM quarantined_append",
        "CREATE TABLE mine ()",
        "CREATE TEMP TABLE mine ()",
        "DROP TABLE outbox",
        "ALTER TABLE outbox DISABLE TRIGGER ALL",
        "CREATE SCHEMA mine",
        "SET ROLE sluice_owner",
        "SELECT pg_read_file('/etc/passwd')",
        "COPY outbox TO PROGRAM 'cat'",
    ],
)
async def test_a_gateway_can_not(statement: str, as_gateway: asyncpg.Connection) -> None:
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await as_gateway.execute(statement)


async def test_every_table_is_granted_or_kept_back_on_purpose(as_gateway: asyncpg.Connection) -> None:
    """A migration that adds a table has to say what gateways may do with it."""
    tables = await as_gateway.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    grants = (ROOT / "deploy/postgres-grants.sql").read_text()
    assert {row["tablename"] for row in tables if row["tablename"] not in grants} == set()


async def test_granting_again_changes_nothing(shipped: Shipped, as_gateway: asyncpg.Connection) -> None:
    query = """SELECT table_name, column_name, privilege_type FROM information_schema.column_privileges
               WHERE grantee = 'sluice_gateway' ORDER BY 1, 2, 3"""
    before = await as_gateway.fetch(query)
    shipped.postgres.psql("postgres-grants.sql", "sluice", "sluice_owner")
    assert await as_gateway.fetch(query) == before
    assert len(before) > 50


async def test_the_database_sorts_by_bytes(as_gateway: asyncpg.Connection) -> None:
    assert await as_gateway.fetchval("SELECT 'Z' < 'a'") is True
