"""The revisions of a tenant's spec: which there were, one of them again, and how another would differ.

Owns: what is read of earlier revisions. A revision is never changed; to go back is to deploy it once more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

import msgspec

from gateway.catalog import specs
from gateway.catalog.database import Database, connection, statement
from gateway.catalog.spec_use import Conflict, Notice, Use, of_itself
from gateway.catalog.specs import Look, Stored
from spec.differences import Difference, differences
from spec.errors import Faults
from spec.parse import parse
from spec.webhooks.secrets import masked, masked_beside

REVISION_MAX: Final = 2**31 - 1
LISTED_DEFAULT: Final = 100
LISTED_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class Revision:
    """When a revision was deployed, and how long its document is."""

    revision: int
    deployed_at: datetime
    bytes: int

    def told(self) -> dict[str, object]:
        at = round(self.deployed_at.timestamp(), 3)
        return {"revision": self.revision, "deployed_at": at, "bytes": self.bytes}


@dataclass(frozen=True, slots=True)
class Plan:
    """What deploying a document would do; `revision` is deployed now (0: none). With conflicts it would be
    refused."""

    revision: int
    changes: tuple[Difference, ...]
    conflicts: tuple[Conflict, ...]
    notices: tuple[Notice, ...]

    def told(self) -> dict[str, object]:
        """As the gateway and the command answer it."""
        return {
            "revision": self.revision,
            "changed": bool(self.changes),
            "changes": [each.as_json() for each in self.changes],
            "conflicts": [{"pointer": each.pointer, "error": each.error} for each in self.conflicts],
            "notices": [each.as_json() for each in self.notices],
        }


async def history(
    database: Database, tenant_id: UUID, *, before: int = REVISION_MAX, limit: int = LISTED_DEFAULT
) -> list[Revision]:
    """The newest first, those before a revision."""
    async with connection(database) as conn:
        rows = await conn.fetch(statement("spec_history"), tenant_id, before, limit)
    return [Revision(row["revision"], row["deployed_at"], row["bytes"]) for row in rows]


async def revision_of(database: Database, tenant_id: UUID, revision: int) -> Stored | None:
    """One revision as it was sent; None where there never was one."""
    async with connection(database) as conn:
        row = await conn.fetchrow(statement("spec_revision"), tenant_id, revision)
    return Stored(row["revision"], row["document"]) if row else None


async def roll_back(
    database: Database,
    tenant_id: UUID,
    revision: int,
    environ: Mapping[str, str],
    *,
    force: bool = False,
    expect_revision: int | None = None,
    look: Look | None = None,
) -> specs.Accepted | specs.Conflicts | Faults | specs.RevisionMismatch | None:
    """Deploys a former revision as the next one, secrets included, under the same rules as any other
    document (`specs.deploy`). None where there never was such a revision."""
    former = await revision_of(database, tenant_id, revision)
    if former is None:
        return None
    return await specs.deploy(
        database,
        tenant_id,
        former.document,
        environ,
        force=force,
        expect_revision=expect_revision,
        look=look,
    )


async def compare(
    database: Database, tenant_id: UUID, document: bytes, environ: Mapping[str, str]
) -> Plan | Faults:
    """What deploying `document` now would change and meet. Nothing is changed by the look; what is stored may
    change before the deployment."""
    if specs.HIDDEN in document:
        document = await specs.with_secrets(database, tenant_id, document)
    parsed = await asyncio.to_thread(parse, document, environ)  # up to seconds
    if isinstance(parsed, Faults):
        return parsed
    noticed = await asyncio.to_thread(of_itself, parsed)
    async with connection(database) as conn:
        current = await specs.stored(conn, tenant_id)
        if current is None:
            return Plan(0, await asyncio.to_thread(_changes, b"{}", document), (), noticed)
        changes = await asyncio.to_thread(_changes, current.document, document)
        deployed = await specs.readable_now(current)
        if isinstance(deployed, Conflict):
            return Plan(current.revision, changes, (deployed,), ())
        use = await specs.in_the_way(conn, tenant_id, deployed, parsed) if changes else Use()
        notices = (*noticed, *use.notices) if changes else ()
    return Plan(current.revision, changes, tuple(use.conflicts), notices)


def _changes(old: bytes, new: bytes) -> tuple[Difference, ...]:
    """Between the specs of two documents that may be wrapped, secrets not shown."""
    was, now = _spec_of(old), _spec_of(new)
    return differences(masked(was), masked_beside(now, was))


def _spec_of(document: bytes) -> object:
    value = msgspec.json.decode(document, type=dict[str, object])
    return value.get("spec", value)
