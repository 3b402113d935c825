"""Tenants, the owners of events. A tenant is created once and never renamed; it may be suspended, and
deleted.

A tenant that is deleted is emptied in steps (`delete_step`), which gateways take once all of them have
followed; its id is never used again. Its API keys end at once.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from uuid_utils.compat import uuid7

from gateway.catalog.database import Database, change, connection, statement
from gateway.catalog.model import CatalogError, Tenant
from gateway.names import tokens

NAME_RULE = "[a-z][a-z0-9_-]{0,62}"
HANDLE_ATTEMPTS_MAX = 8  # each collides once in 2 * 10^14 / tenants; that many in a row mean no randomness
OPERATORS = "_operators"
"""Whose the keys of scope operator are that belong to no tenant. No tenant can have this name."""
TENANTS_PAGE_MAX = 1_000

Status = Literal["active", "suspended", "deleting", "deleted"]


class TenantTaken(CatalogError):
    """The name or the id is another tenant's, or was that of one that is deleted."""


class NoSuchTenant(CatalogError):
    """No tenant has this name or id, or it is deleted."""


class BadName(CatalogError):
    """It can be no tenant's name."""


@dataclass(frozen=True, slots=True)
class Deletion:
    """How far it has come: `deleted` of about `events` events are gone."""

    requested_at: datetime
    events: int
    deleted: int
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class Standing:
    """A tenant as it stands. `name` is None once it is deleted."""

    id: UUID
    name: str | None
    handle: str
    status: Status
    created_at: datetime | None
    deletion: Deletion | None = None


async def create(
    database: Database,
    name: str,
    *,
    tenant_id: UUID | None = None,
    entropy: tokens.Entropy = secrets.token_bytes,
) -> Tenant:
    """A new tenant, under this id or a new UUIDv7. Raises BadName, and TenantTaken where there is one of this
    name or id."""
    _check_name(name)
    async with change(database) as (conn, _):
        if await found(conn, name) is not None:
            raise TenantTaken(f"there is a tenant {name!r} already")
        if tenant_id is not None and await _standing(conn, tenant_id) is not None:
            raise TenantTaken(f"there is, or was, a tenant with the id {tenant_id}")
        return await insert(conn, tenant_id or uuid7(), name, entropy)


async def provided(
    conn: Any, tenant_id: UUID, name: str, *, entropy: tokens.Entropy = secrets.token_bytes
) -> tuple[Tenant, bool]:
    """The tenant of this id and name, within a `change`; whether it was made just now. Raises BadName and
    TenantTaken."""
    _check_name(name)
    standing = await _standing(conn, tenant_id)
    if standing is not None:
        if standing.status in ("deleting", "deleted"):
            raise TenantTaken(f"the tenant {tenant_id} is {standing.status}; ids are never used again")
        if standing.name != name:
            raise TenantTaken(f"the tenant {tenant_id} has the name {standing.name!r}, which never changes")
        return Tenant(tenant_id, name, standing.handle), False
    if await found(conn, name) is not None:
        raise TenantTaken(f"there is a tenant {name!r} already, with another id")
    return await insert(conn, tenant_id, name, entropy), True


async def operators(conn: Any, *, entropy: tokens.Entropy = secrets.token_bytes) -> Tenant:
    """Whose keys of scope operator are that belong to no tenant."""
    known = await found(conn, OPERATORS)
    return await insert(conn, uuid7(), OPERATORS, entropy) if known is None else known


async def insert(conn: Any, tenant_id: UUID, name: str, entropy: tokens.Entropy) -> Tenant:
    """Never overwrites: a handle that is taken is drawn again."""
    for _ in range(HANDLE_ATTEMPTS_MAX):
        tenant = Tenant(tenant_id, name, tokens.new_handle(entropy))
        if await conn.fetchval(statement("create_tenant"), tenant.id, tenant.name, tenant.handle):
            return tenant
    raise CatalogError(
        f"no unique handle after {HANDLE_ATTEMPTS_MAX} attempts: is the source of randomness broken?"
    )


async def named(database: Database, name: str) -> Tenant:
    """The tenant of this name. Raises NoSuchTenant."""
    async with connection(database) as conn:
        tenant = await found(conn, name)
    if tenant is None:
        raise NoSuchTenant(f"there is no tenant {name!r}: `sluice tenants list` shows them")
    return tenant


async def every(database: Database) -> list[Tenant]:
    """All tenants, by name."""
    async with connection(database) as conn:
        rows = await conn.fetch(statement("every_tenant"), OPERATORS)
    return [Tenant(*row) for row in rows]


async def page(database: Database, after: str, limit: int) -> list[Standing]:
    """The tenants behind this name, by name."""
    async with connection(database) as conn:
        rows = await conn.fetch(statement("list_tenants"), None, after, limit, OPERATORS)
    return [_standing_of(row) for row in rows]


async def standing(database: Database, tenant_id: UUID) -> Standing:
    """Raises NoSuchTenant."""
    async with connection(database) as conn:
        known = await _standing(conn, tenant_id)
    if known is None:
        raise _no_such(tenant_id)
    return known


async def suspend(database: Database, tenant_id: UUID, *, suspended: bool = True) -> Standing:
    """Every gateway refuses its requests within 5 s, or takes them again. Idempotent. Raises NoSuchTenant,
    also for one that is being deleted."""
    async with change(database) as (conn, _):
        known = await _standing(conn, tenant_id)
        if known is None or known.status in ("deleting", "deleted"):
            raise _no_such(tenant_id)
        await conn.execute(statement("suspend_tenant"), tenant_id, suspended)
        after = await _standing(conn, tenant_id)
        assert after is not None
        return after


async def delete(database: Database, tenant_id: UUID) -> Standing:
    """Ends its keys now, and has it emptied from now on. Idempotent. Raises NoSuchTenant."""
    async with change(database) as (conn, revision):
        known = await _standing(conn, tenant_id)
        if known is None:
            raise _no_such(tenant_id)
        if known.deletion is None:
            await conn.execute(statement("begin_deletion"), tenant_id, revision)
            await conn.execute(statement("revoke_keys_of"), tenant_id, revision)
            await conn.execute(statement("suspend_tenant"), tenant_id, True)
        after = await _standing(conn, tenant_id)
        assert after is not None
        return after


async def found(conn: Any, name: str) -> Tenant | None:
    """The tenant of this name, if there is one."""
    row = await conn.fetchrow("SELECT id, name, handle FROM tenant WHERE name = $1", name)
    return Tenant(*row) if row else None


def _check_name(name: str) -> None:
    if re.fullmatch(NAME_RULE, name) is None:
        raise BadName(f"{name!r} is not a valid name of a tenant: {NAME_RULE}, a lower-case letter first")


def _no_such(tenant_id: UUID) -> NoSuchTenant:
    return NoSuchTenant(f"there is no tenant {tenant_id}")


async def _standing(conn: Any, tenant_id: UUID) -> Standing | None:
    rows = await conn.fetch(statement("list_tenants"), tenant_id, "", 1, OPERATORS)
    return _standing_of(rows[0]) if rows else None


def _standing_of(row: Any) -> Standing:
    deletion = None
    if row["requested_at"] is not None:
        deletion = Deletion(row["requested_at"], row["events"], row["deleted"], row["finished_at"])
    tenant_id = UUID(bytes=row["id"].bytes)
    return Standing(tenant_id, row["name"], row["handle"], row["status"], row["created_at"], deletion)
