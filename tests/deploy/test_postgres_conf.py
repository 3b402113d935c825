"""deploy/postgres.conf: the server takes every line of it, and is durable by it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import asyncpg
import pytest

from gateway.config import Config
from tests.deploy.shipped import BESIDE_PARTITIONS, DEPLOY, Shipped

TEXT = (DEPLOY / "postgres.conf").read_text()
OVERRIDDEN = {"listen_addresses"}
"""By these tests, which use a socket."""


@pytest.fixture
async def superuser(shipped: Shipped) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(shipped.postgres.url("postgres"))
    yield connection
    await connection.close()


async def test_every_line_is_in_force(superuser: asyncpg.Connection) -> None:
    rows = await superuser.fetch("SELECT name, setting, applied, error FROM pg_file_settings")
    named = re.findall(r"(?m)^(\w+) = ", TEXT)
    assert [row["name"] for row in rows] == named
    assert len(named) == len(set(named))
    assert {row["name"] for row in rows if row["error"] or not row["applied"]} <= OVERRIDDEN


async def test_what_is_left_out_by_comments_would_be_taken_too(superuser: asyncpg.Connection) -> None:
    for name in re.findall(r"(?m)^#(\w+) = ", TEXT):
        assert await superuser.fetchval("SELECT count(*) FROM pg_settings WHERE name = $1", name) == 1, name


async def test_a_commit_is_on_disk(superuser: asyncpg.Connection) -> None:
    for name, value in {
        "fsync": "on",
        "full_page_writes": "on",
        "synchronous_commit": "on",
        "statement_timeout": "0",
        "log_parameter_max_length": "0",
        "password_encryption": "scram-sha-256",
    }.items():
        assert await superuser.fetchval("SELECT current_setting($1)", name) == value


async def test_the_connections_are_enough_for_the_gateways_that_it_says(
    superuser: asyncpg.Connection,
) -> None:
    a_gateway = Config.partitions + BESIDE_PARTITIONS
    assert f"SLUICE_PARTITIONS + {BESIDE_PARTITIONS} connections" in TEXT
    assert f"{a_gateway} by default, so this is for four gateways" in TEXT
    assert 4 * a_gateway <= int(await superuser.fetchval("SHOW max_connections")) - 20


async def test_passwords_are_kept_as_scram(superuser: asyncpg.Connection) -> None:
    kept = await superuser.fetch("SELECT rolpassword FROM pg_authid WHERE rolname LIKE 'sluice\\_%'")
    assert len(kept) == 2
    assert all(row["rolpassword"].startswith("SCRAM-SHA-256$") for row in kept)
