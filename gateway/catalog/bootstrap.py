"""What `sluice dev` needs in a migrated database before its first request: a tenant, an admin key, a spec."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, assert_never

from gateway.catalog import keys, specs, tenants
from gateway.catalog.database import connect, statement
from gateway.catalog.migrate import require_prepared
from gateway.catalog.model import CatalogError, Scope, Tenant
from gateway.catalog.secrets import Secrets
from gateway.names import tokens
from spec.errors import Faults


@dataclass(frozen=True, slots=True)
class Bootstrapped:
    """`conflicts` are sentences; where there are any, the spec was not deployed. `spec_revision` is what is
    deployed now, 0 for none."""

    key: str = field(repr=False)
    spec_revision: int
    conflicts: tuple[str, ...]


async def bootstrap(
    postgres_url: str,
    *,
    tenant: str,
    spec_document: bytes | None,
    replace_spec: bool,
    have_key: str | None,
    environ: Mapping[str, str] | None = None,
) -> Bootstrapped:
    """Makes what is missing, and nothing twice: the tenant, an admin key unless `have_key` is one, the spec.

    With `replace_spec` the document is deployed whenever it differs from what is deployed, else only where
    the tenant has none. `environ` (default: the tenant's in this process) holds the secrets that the spec
    names. Raises
    `specs.InvalidSpec` with all faults, and CatalogError.
    """
    conn = await connect(postgres_url)
    try:
        await require_prepared(conn)
        owner = await _tenant(conn, tenant)
        key = await _admin_key(conn, owner, have_key)
        revision = await specs.current_revision(conn, owner.id)
        if spec_document is None or (revision and not replace_spec):
            return Bootstrapped(key, revision, ())
        secrets = Secrets(os.environ).of(tenant) if environ is None else environ
        match await specs.deploy(conn, owner.id, spec_document, secrets):
            case specs.Accepted(deployed, _):
                return Bootstrapped(key, deployed, ())
            case specs.Conflicts(current, conflicts):
                return Bootstrapped(key, current, tuple(conflict.error for conflict in conflicts))
            case Faults() as faults:
                raise specs.InvalidSpec(faults)
            case specs.RevisionMismatch():
                raise AssertionError("no revision was expected")
            case impossible:
                assert_never(impossible)
    finally:
        await conn.close()


async def _tenant(conn: Any, name: str) -> Tenant:
    """Of several starts at once one makes it, and all have it."""
    tenant = await tenants.found(conn, name)
    if tenant is not None:
        return tenant
    try:
        return await tenants.create(conn, name)
    except CatalogError:
        tenant = await tenants.found(conn, name)
        if tenant is None:
            raise
        return tenant


async def _admin_key(conn: Any, tenant: Tenant, have_key: str | None) -> str:
    if have_key is not None and tokens.parse(have_key) is not None:
        row = await conn.fetchrow(statement("find_keys"), [tokens.digest(have_key)])
        if row is not None and row["tenant_id"] == tenant.id and row["scope"] == Scope.ADMIN.text:
            return have_key
    return (await keys.create(conn, tenant, Scope.ADMIN, name="sluice dev")).text
