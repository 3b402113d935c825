"""Tenants: whose events they are. A tenant is created once and never renamed or deleted."""

from __future__ import annotations

import re
import secrets
from typing import Any

from uuid_utils.compat import uuid7

from gateway.catalog.database import Database, change, connection, statement
from gateway.catalog.model import CatalogError, Tenant
from gateway.names import tokens

NAME_RULE = "[a-z][a-z0-9_-]{0,62}"
HANDLE_ATTEMPTS_MAX = 8  # each collides once in 2 * 10^14 / tenants; that many in a row mean no randomness


async def create(database: Database, name: str, *, entropy: tokens.Entropy = secrets.token_bytes) -> Tenant:
    """A new tenant under a new UUIDv7. Raises CatalogError where the name is not one or is taken."""
    if re.fullmatch(NAME_RULE, name) is None:
        raise CatalogError(f"{name!r} is no tenant name: {NAME_RULE}, a lower-case letter first")
    async with change(database) as (conn, _):
        if await found(conn, name) is not None:
            raise CatalogError(f"there is a tenant {name!r} already")
        for _ in range(HANDLE_ATTEMPTS_MAX):
            tenant = Tenant(uuid7(), name, tokens.new_handle(entropy))
            if await conn.fetchval(statement("create_tenant"), tenant.id, tenant.name, tenant.handle):
                return tenant
        raise CatalogError(f"{HANDLE_ATTEMPTS_MAX} random handles in a row were taken: no randomness here?")


async def named(database: Database, name: str) -> Tenant:
    """The tenant of this name. Raises CatalogError where there is none."""
    async with connection(database) as conn:
        tenant = await found(conn, name)
    if tenant is None:
        raise CatalogError(f"there is no tenant {name!r}: `sluice tenants list` shows them")
    return tenant


async def every(database: Database) -> list[Tenant]:
    """All tenants, by name."""
    async with connection(database) as conn:
        rows = await conn.fetch("SELECT id, name, handle FROM tenant ORDER BY name")
    return [Tenant(*row) for row in rows]


async def found(conn: Any, name: str) -> Tenant | None:
    """The tenant of this name, if there is one."""
    row = await conn.fetchrow("SELECT id, name, handle FROM tenant WHERE name = $1", name)
    return Tenant(*row) if row else None
