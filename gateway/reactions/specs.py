"""The specs of tenants whose events are looked at: what serves, and what the events were appended under.

Owns: which revisions are kept in memory, and that one that can't be read here is never taken for none.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

import asyncpg
from asyncpg.pgproto.pgproto import UUID as PgUUID

from gateway.catalog.catalog import Catalog
from gateway.catalog.model import Deployed
from gateway.events import Recorded
from gateway.reactions.database import Unreadable, fetch
from spec.errors import Faults
from spec.model import EventType, Spec
from spec.parse import parse_deployed

SPECS_KEPT: Final = 64


class Specs:
    """Specs of tenants by revision, from the catalog or from Postgres; the last SPECS_KEPT stay in memory."""

    def __init__(self, pool: asyncpg.Pool, catalog: Catalog) -> None:
        self._pool = pool
        self._catalog = catalog
        self._kept: OrderedDict[tuple[bytes, int], Deployed | None] = OrderedDict()

    async def serving(self, tenant: bytes, revision: int = 0) -> Deployed:
        """The spec that serves, of this revision or a later one: other gateways may know it sooner. Raises
        Unreadable, and PostgresTrouble."""
        deployed = self._catalog.deployed(UUID(bytes=tenant))
        if deployed is None or deployed.revision < revision:
            await self._catalog.refresh()
            deployed = self._catalog.deployed(UUID(bytes=tenant))
        if deployed is None or deployed.revision < revision:
            raise Unreadable(f"Revision {revision or 'of now'} of the spec can't be read by this process.")
        return deployed

    async def of_revision(self, tenant: bytes, revision: int) -> Deployed | None:
        """0 is the one that serves. Raises Unreadable, and PostgresTrouble."""
        return (
            await self._earlier(tenant, revision) if revision else self._catalog.deployed(UUID(bytes=tenant))
        )

    async def type_of(self, tenant: bytes, recorded: Recorded) -> EventType | None:
        """As the revision declares it that the event was appended under."""
        deployed = await self._earlier(tenant, recorded.event.spec_rev)
        if deployed is None:
            return None
        declared = deployed.spec.aggregate_types.get(recorded.stream.aggregate_type)
        return None if declared is None else declared.events.get(recorded.event.type)

    async def _earlier(self, tenant: bytes, revision: int) -> Deployed | None:
        """What serves is the catalog's: where Postgres lost commits, another spec may have this revision than
        the one that was read here."""
        serving = self._catalog.deployed(UUID(bytes=tenant))
        if serving is not None and serving.revision == revision:
            return serving if serving.whole is None else replace(serving, spec=serving.whole, whole=None)
        key = (tenant, revision)
        if key not in self._kept:
            rows = await fetch(self._pool, "spec_of", PgUUID(tenant), revision)
            read = await asyncio.to_thread(parse_deployed, rows[0]["document"]) if rows else None
            if isinstance(read, Faults):
                raise Unreadable(f"Revision {revision} of the spec can't be read by this process.")
            self._kept[key] = None if read is None else _deployed(revision, read, rows[0])
            if len(self._kept) > SPECS_KEPT:
                self._kept.popitem(last=False)
        return self._kept[key]


def _deployed(revision: int, spec: Spec, row: Any) -> Deployed:
    return Deployed(revision, spec, row["document"], salt=bytes(row["salt"]))
